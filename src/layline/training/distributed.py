"""One or several processes that train together, through accelerate."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers
from accelerate.utils import broadcast, broadcast_object_list, gather, pad_across_processes
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.optim import Optimizer

from layline import backbones
from layline.training.config import Config
from layline.training.recipes import default_backbone
from layline.training.trainer import Interrupted
from layline.utils.devices import Processes, choose_device, count_processes
from layline.utils.validation import UserError

T = TypeVar("T")


def make_accelerator(config: Config, tracked: Path | None = None) -> Accelerator:
    """Make the accelerator of a run; ``tracked`` is its folder, if its tracker is to be used."""
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"):
        if os.environ.get(name) == "":
            del os.environ[name]  # accelerate cannot read an empty one
    track = None if tracked is None else config.track
    if track and track not in map(str, get_available_trackers()):
        raise UserError(f"The tracker {track} is not installed: pip install {track}")
    backbone = config.backbone.name or default_backbone(config.data.source, config.recipe)
    is_table = backbones.find(backbone).kind == "table"
    device = choose_device(config.training.device, is_table)
    precision: str = config.training.precision
    if precision == "auto":
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "no"
    if precision == "fp16" and device.type == "cpu":
        raise UserError("precision must be no or bf16 on a CPU, got 'fp16'")
    if device.index is not None and device.type != "cpu" and count_processes() == 1:
        torch.accelerator.set_device_index(device.index)  # accelerate takes the current one
    # a second run in one process may ask for another precision, or another device
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    torch.backends.cudnn.benchmark = False  # it may choose another algorithm each time
    torch.backends.cudnn.deterministic = True
    cpu = device.type == "cpu"  # otherwise several processes would not find each other on a CPU
    return Accelerator(mixed_precision=precision, cpu=cpu, log_with=track, project_dir=tracked)


def run_on_main(accelerator: Accelerator, function: Callable[[], T]) -> T:
    """Call a function on the main process, and give all processes its result or its error."""
    if accelerator.num_processes == 1:
        return function()
    outcome: list[Any] = [None]
    if accelerator.is_main_process:
        try:
            outcome[0] = function()
        except Exception as error:  # the other processes would wait forever
            outcome[0] = error
    (result,) = broadcast_object_list(outcome)
    if isinstance(result, Exception):
        raise result
    return cast("T", result)


@contextmanager
def end_together(accelerator: Accelerator) -> Iterator[None]:
    """Finish the trackers at the end, and leave the process group if all processes come here."""
    together = False
    try:
        yield
        together = True
    except (Interrupted, FloatingPointError):  # raised by all processes at the same step
        together = True
        raise
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
        if accelerator.num_processes > 1:
            if together:  # otherwise the others may never arrive; the launcher ends them
                accelerator.wait_for_everyone()
            # gloo's threads need the GIL to free their last tensors, and its destructor holds it
            time.sleep(0.2)
            if together:
                accelerator.state.destroy_process_group()


class SeveralProcesses(Processes):
    """The processes of an accelerator, one or several, with its precision."""

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(accelerator.device, accelerator.process_index, accelerator.num_processes)
        self.accelerator = accelerator

    def prepare(self, model: nn.Module, optimiser: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Move the model to its device, and average its gradients over the processes."""
        return self.accelerator.prepare(model, optimiser)  # type: ignore[no-any-return]

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Compute the gradients of a loss, scaled where half precision needs it."""
        self.accelerator.backward(loss)

    def clip_gradients(self, parameters: Iterable[nn.Parameter], most: float) -> None:
        """Shorten the gradient, of all parameters together, to a length."""
        self.accelerator.clip_grad_norm_(parameters, most)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Leave gradients with their process: more of the same step follow."""
        return self.accelerator.no_sync(model)  # type: ignore[no-any-return]

    def autocast(self) -> AbstractContextManager[None]:
        """Compute in the precision of training."""
        return self.accelerator.autocast()  # type: ignore[no-any-return]

    def sum(self, values: list[float]) -> list[float]:
        """Add each number up over the processes, in float64."""
        if self.count == 1:
            return values  # not every device of a single process has float64, Apple's has not
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        return self.accelerator.reduce(tensor).tolist()  # type: ignore[no-any-return]

    def gather(
        self, index: Int[Tensor, " n"], rows: Shaped[Tensor, "n width"]
    ) -> tuple[Int[Tensor, " m"], Shaped[Tensor, "m width"]]:
        """Collect the rows of all processes, which may have different numbers of them."""
        if self.count > 1:
            index = gather(pad_across_processes(index, pad_index=-1))
            rows = gather(pad_across_processes(rows))
            index, rows = index[index >= 0], rows[index >= 0]
        return index, rows

    def share_buffers(self, model: nn.Module) -> None:
        """Give all processes the main one's buffers: each has its own statistics of BatchNorm."""
        if self.count > 1:
            for buffer in model.buffers():
                broadcast(buffer)
