"""Single precision or better, whatever autocast says."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def autocast_is_on(device: torch.device) -> bool:
    """Tell whether torch computes in half precision here, where the device knows that at all."""
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def in_full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Suspend autocast, where it is on.

    A backward pass that is called under autocast runs under it as well, so that a gradient written
    by hand has to suspend it again.
    """
    if autocast_is_on(device):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
