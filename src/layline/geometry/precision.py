"""Single precision or better, whatever autocast says."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def in_full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Suspend autocast, where it is on.

    A backward pass that is called under autocast runs under it as well, so that a gradient written
    by hand has to suspend it again.
    """
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
