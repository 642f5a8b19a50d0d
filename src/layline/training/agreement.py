"""What one of several processes knows, told to all: they must take the same way."""

import torch
from accelerate import Accelerator


def anywhere(flag: bool, accelerator: Accelerator) -> bool:
    """Tell whether the flag is true in any process. All processes call it together."""
    if accelerator.num_processes == 1:
        return flag
    flags = torch.tensor([float(flag)], device=accelerator.device)
    return bool(accelerator.reduce(flags).item())
