"""Where to compute."""

import torch

from layline.registry import check_known

CHOICES = ("auto", "cpu")


def choose(device: str, needs_double: bool = False) -> torch.device:
    """Give the device that is meant: ``auto`` takes a GPU if there is one.

    Args:
        device: One of ``CHOICES``.
        needs_double: Whether float64 is needed, as the columns of a table do to keep their digits;
            Apple's GPU has none.
    """
    check_known("device", device, CHOICES)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device == "cpu" or found is None or (needs_double and found.type == "mps"):
        return torch.device("cpu")
    return found


def autocast_is_on(device: torch.device) -> bool:
    """Tell whether torch computes in half precision here, where the device knows that at all."""
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
