"""Memory: how much is free, and a sentence for what does not fit."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
# what PyTorch and NumPy say of a size that no computer has, in many kinds of errors
_TOO_LARGE = re.compile(
    r"overflow|too large to convert|too big to convert|array is too big|Maximum allowed dimension",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|out of memory|Unable to allocate|bad_alloc",
    re.IGNORECASE,
)
_TRIED = re.compile(
    r"(?:tried to allocate|Unable to allocate) ([\d.]+) (bytes|[KMGTPE]iB)", re.IGNORECASE
)
_CURE = "a smaller model, size of images or batch_size needs less"


def free_memory(device: "torch.device | None" = None) -> int | None:
    """Give the bytes that can still be had, None where nobody knows.

    Args:
        device: Whose memory is meant; the computer's own if not given.
    """
    if device is not None and device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    if device is not None and device.type not in ("cpu", "mps"):
        return None
    known = [each for each in (_free_of_system(), _free_of_group()) if each is not None]
    return min(known, default=None)


def _free_of_system() -> int | None:
    """Read what the system could still give, what it keeps of files included, and free swap."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        values = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
        return 1024 * (values["MemAvailable"] + values["SwapFree"])
    with suppress(AttributeError, OSError, ValueError):  # not everywhere
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _free_of_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Read what is left of the limit of a container or a scheduler's job, if there is one.

    Args:
        root: Where the system shows its control groups, of the second version or the first.
    """
    for folder, most, used in (
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # the word max is no limit
            limit, taken = (
                int((folder / each).read_text(encoding="utf-8")) for each in (most, used)
            )
            stat = (folder / "memory.stat").read_text(encoding="utf-8")
            cached = re.search(r"^(?:total_)?inactive_file (\d+)", stat, re.MULTILINE)
            return max(limit - taken + (int(cached[1]) if cached else 0), 0)
    return None


def check_fits(
    what: str, needed: dict[str, int], cure: str = _CURE, device: "torch.device | None" = None
) -> None:
    """Refuse what cannot fit into the memory that is free.

    Args:
        what: Names what is to fit, for the error.
        needed: Bytes that are needed at least, by what they are for.
        cure: What to do about it.
        device: Whose memory is meant; the computer's own if not given.

    Raises:
        MemoryError: More is needed than is free.
    """
    total, free = sum(needed.values()), free_memory(device)
    if free is None or total <= free:
        return
    largest = sorted((size, name) for name, size in needed.items() if 100 * size > total)
    listed = ", ".join(f"{in_words(size)} for {name}" for size, name in reversed(largest))
    got = listed if len(largest) == 1 else f"{in_words(total)} ({listed})"
    raise MemoryError(f"{what} must fit into memory, got {got}: {in_words(free)} are free; {cure}")


def in_words(size: float) -> str:
    """Write a number of bytes with three digits."""
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            return f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError  # the last unit takes all


def memory_sentence(error: BaseException) -> str | None:
    """Say of an error that memory was short, with what is free; None if it is about other things.

    PyTorch raises a ``RuntimeError`` for it, of which only the text tells what it is.
    """
    text = str(error)
    if type(error) is MemoryError and "must fit into memory" in text:
        return text  # our own
    free = free_memory()
    there = "" if free is None else f"{in_words(free)} are free; "
    torch = sys.modules.get("torch")  # where it is not loaded, the error is not its own
    is_torch = torch is not None and isinstance(error, torch.OutOfMemoryError)
    if isinstance(error, MemoryError) or is_torch or _NO_MEMORY.search(text):
        tried, got = _TRIED.search(text), "too little"
        if tried:
            wanted = in_words(float(tried[1])) if tried[2] == "bytes" else f"{tried[1]} {tried[2]}"
            got = f"too little for {wanted} more"
        return f"memory must suffice, got {got}: {there}{_CURE}"
    if isinstance(error, OverflowError | RuntimeError | TypeError) and _TOO_LARGE.search(text):
        why = text.partition("\n")[0].strip().rstrip(".")
        return f"sizes must fit into memory, got one that no computer has ({why}): {there}{_CURE}"
    return None


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn the many errors that short memory shows itself by into a ``MemoryError``."""
    try:
        yield
    except (MemoryError, OverflowError, RuntimeError, TypeError) as error:
        sentence = memory_sentence(error)
        if sentence is None:
            raise
        raise MemoryError(sentence) from error
