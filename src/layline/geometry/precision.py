"""Single precision or better, whatever autocast says."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from layline.utils.devices import autocast_is_on


def in_full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Suspend autocast, where it is on.

    A backward pass that is called under autocast runs under it as well, so that a gradient written
    by hand has to suspend it again.
    """
    if autocast_is_on(device):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
