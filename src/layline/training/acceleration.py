"""The accelerator of a run: on which device it computes, how precisely, and what tracks it."""

from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers

from layline.devices import choose
from layline.features import find
from layline.training.config import Config


def make_accelerator(config: Config, tracked: Path | None = None) -> Accelerator:
    """Make the accelerator that a configuration asks for.

    Args:
        config: What is wanted, resolved.
        tracked: The folder of the run, where it is to be tracked.
    """
    options = config.training
    track = None if tracked is None else config.track
    if track and track not in map(str, get_available_trackers()):
        raise ImportError(f"--track {track} needs {track}: pip install {track}")
    is_table = find(str(config.features.name)).kind == "table"
    # a second run in one process may ask for another precision, or another device
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    accelerator = Accelerator(
        mixed_precision=options.precision,
        # without saying so, several processes would not find each other on a CPU
        cpu=choose(options.device, is_table).type == "cpu",
        log_with=track,
        project_dir=tracked,
    )
    if options.precision == "fp16" and accelerator.device.type == "cpu":
        raise ValueError("training.precision must be no or bf16 on a CPU, got 'fp16'")
    torch.backends.cudnn.benchmark = False  # it may choose another algorithm each time
    torch.backends.cudnn.deterministic = True
    return accelerator
