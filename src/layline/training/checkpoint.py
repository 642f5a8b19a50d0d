"""Checkpoints: the state of a run on disk, from which it resumes with the same result.

``state/`` contains the last two checkpoints, each in a folder named by its epoch and step. A new
one is written under another name and renamed when it is complete. A run resumes from the newest
checkpoint that can be read. Reading never executes code.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from layline.training.distributed import SeveralProcesses
from layline.training.optim import WeightAverage
from layline.training.trainer import TrainingState
from layline.utils.errors import UserError
from layline.utils.files import publish_folder, write_error

_STATE = "progress.json"
_AVERAGE = "average.safetensors"
_NAME = re.compile(r"epoch-(\d+)-step-(\d+)")
_PROGRESS = TypeAdapter(TrainingState)


class Checkpoints:
    """The checkpoints of a run. All processes call its methods together.

    Args:
        folder: ``state/`` of the run.
        processes: One or several; they know the model and the optimizer.
        log: Shows a warning if a checkpoint is damaged.
    """

    def __init__(
        self, folder: Path, processes: SeveralProcesses, log: Callable[[str], None] = lambda _: None
    ) -> None:
        self._folder, self._log = folder, log
        self._processes, self._accelerator = processes, processes.accelerator
        self._last: Path | None = None  # the one that was written or read last

    def save(self, state: TrainingState, average: WeightAverage | None = None) -> None:
        """Write a checkpoint, and keep the one before it."""
        accelerator = self._accelerator
        place = self._folder / f"epoch-{state.epoch:05}-step-{state.step:07}"
        part = self._folder / ".saving"
        if accelerator.is_main_process:
            shutil.rmtree(part, ignore_errors=True)  # of a run that was killed while saving
            part.mkdir(parents=True)
        accelerator.wait_for_everyone()
        try:
            with _disk_errors():
                accelerator.save_state(str(part))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                if average is not None:
                    _write_average(average, part / _AVERAGE)
                (part / _STATE).write_text(json.dumps(asdict(state)), encoding="utf-8")
                self._publish(part, place)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise write_error(error, place) from error
        self._last = place
        accelerator.wait_for_everyone()

    def _publish(self, part: Path, place: Path) -> None:
        """Rename a complete checkpoint, and remove all but it and the one before."""
        if place == self._last:  # the same step has the same state
            shutil.rmtree(part)
            return
        if place.exists():  # it was damaged, since training had to come here again
            shutil.rmtree(place)
        publish_folder(part, place)
        for old in self._existing():
            if old not in (place, self._last):
                shutil.rmtree(old)

    def restore(self, average: WeightAverage | None = None) -> TrainingState | None:
        """Load the newest checkpoint that can be read; None if there is no checkpoint at all."""
        problems: list[str] = []
        for place in reversed(self._existing()):
            state, problem = None, ""
            try:
                state = _read_progress(place / _STATE)
                self._accelerator.load_state(str(place))
                if average is not None:
                    average.load_state_dict(load_file(place / _AVERAGE))
            except MemoryError:
                raise
            except Exception as error:  # the content of a damaged file can be anything
                problem = f"{place} is damaged ({str(error).partition(chr(10))[0]})"
            if not self._processes.any(bool(problem)):
                if problems:
                    self._log(f"{'; '.join(problems)}. Resuming from the one before, {place}.")
                self._last = place
                return state
            problems.append(problem or f"{place} is damaged")
        if not problems:
            return None
        raise UserError(
            f"No checkpoint in {self._folder} can be read: {'; '.join(problems)}. Remove this "
            "folder to train from the beginning."
        )

    def _existing(self) -> list[Path]:
        """List the checkpoints, the oldest first."""
        found = {}
        for path in self._folder.glob("epoch-*-step-*"):
            if match := _NAME.fullmatch(path.name):
                found[int(match[1]), int(match[2])] = path
        return [found[moment] for moment in sorted(found)]


def _read_progress(path: Path) -> TrainingState:
    text = path.read_text(encoding="utf-8")
    values = json.loads(text)
    if set(values) != {field.name for field in fields(TrainingState)}:
        raise UserError(f"{path} was written by another version")
    _PROGRESS.validate_json(text, strict=True)
    return TrainingState(**values)  # unchanged: validation makes integers of the history floats


def _write_average(average: WeightAverage, path: Path) -> None:
    # copies: a network may have a layer under two names, and safetensors refuses shared memory
    copies = {
        name: each.clone(memory_format=torch.contiguous_format)
        for name, each in average.state_dict().items()
    }
    with _disk_errors():
        save_file(copies, path)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Turn what torch and safetensors raise on a full disk into an ``OSError``."""
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise OSError(None, f"could not be written, the disk may be full ({why})") from error
