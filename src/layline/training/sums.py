"""Sums over processes."""

import torch
from accelerate import Accelerator


def summed(values: list[float], accelerator: Accelerator) -> list[float]:
    """Add each number up over the processes, in float64. All processes call it together."""
    if accelerator.num_processes == 1:
        return values  # not every device of a single process has float64, Apple's has not
    tensor = torch.tensor(values, dtype=torch.float64, device=accelerator.device)
    total: list[float] = accelerator.reduce(tensor).tolist()
    return total
