"""The device to compute on, and the processes that compute together."""

import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.optim import Optimizer

from layline.utils.validation import UserError


def is_first_process() -> bool:
    """Tell whether this is the first of the processes that a launcher started."""
    return int(os.environ.get("RANK") or 0) == 0


def count_processes() -> int:
    """Count the processes that a launcher started, on all machines."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def choose_device(device: str, needs_double: bool = False) -> torch.device:
    """Return a device by name; ``auto`` is a GPU if there is one that has float64 if needed."""
    if device == "auto":
        gpu = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return gpu if gpu and (has_double(gpu) or not needs_double) else torch.device("cpu")
    named = check_device(device)
    if needs_double and not has_double(named):
        raise UserError(f"Device {device!r} does not support float64, which a table needs.")
    return named


def check_device(name: str | torch.device) -> torch.device:
    """Return a device by name, or raise an error if it is not available."""
    try:
        device = torch.device(name)
        if device.type != "meta":  # it has no values
            return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError, NotImplementedError):
        pass
    found = ", ".join(["cpu", *gpus_for("auto")])
    raise UserError(f"Device {str(name)!r} is not available; found: {found}.")


def gpus_for(device: str, needs_double: bool = False) -> list[str]:
    """Name the GPUs of this machine that ``auto`` or a kind such as ``cuda`` may refer to."""
    kind = choose_device("auto", needs_double).type
    if kind == "cpu" or device not in ("auto", kind):
        return []
    return [f"{kind}:{index}" for index in range(torch.accelerator.device_count())]


@cache
def processor_name() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")  # platform.processor() is empty on most Linux systems
    text = info.read_text(errors="replace") if info.is_file() else ""
    model = re.search(r"^model name\s*: (.+)$", text, flags=re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Compute with one thread: for the small steps of a table, more only wait for each other."""
    threads = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def has_double(device: torch.device) -> bool:
    """Return whether a device supports float64."""
    return device.type != "mps"


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device that has no float64."""
    return torch.float64 if has_double(device) else torch.float32


def autocast_is_on(device: torch.device) -> bool:
    """Return whether autocast is enabled for a device."""
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def can_check_values(tensor: Tensor) -> bool:
    """Return whether reading values needs no synchronization and breaks no compiled graph."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


class Processes:
    """The processes that train or predict: here a single one, in full precision.

    :class:`layline.training.distributed.SeveralProcesses` has the same methods for several. All
    processes call ``sum``, ``any``, ``gather`` and ``share_buffers`` at the same time.
    """

    def __init__(self, device: torch.device, index: int = 0, count: int = 1) -> None:
        self.device, self.index, self.count = device, index, count

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.index == 0

    def prepare(self, model: nn.Module, optimiser: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Return the model and the optimizer for training steps."""
        return model, optimiser

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Compute the gradients of a loss, averaged over the processes."""
        torch.autograd.backward(loss)

    def clip_gradients(self, parameters: Iterable[nn.Parameter], most: float) -> None:
        """Clip the norm of the gradient of all parameters together."""
        nn.utils.clip_grad_norm_(parameters, most)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Do not average gradients yet: more batches of the same step follow."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[None]:
        """Compute in the precision of training."""
        return nullcontext()

    def sum(self, values: list[float]) -> list[float]:
        """Sum each number over the processes."""
        return values

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true in any process."""
        return self.sum([float(flag)])[0] > 0

    def gather(
        self, index: Int[Tensor, " n"], rows: Shaped[Tensor, "n width"]
    ) -> tuple[Int[Tensor, " m"], Shaped[Tensor, "m width"]]:
        """Collect the rows of all processes and the numbers of their samples."""
        return index, rows

    def share_buffers(self, model: nn.Module) -> None:
        """Copy the buffers of the main process to all others."""
