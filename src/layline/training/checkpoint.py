"""Checkpoints: the state of a run on disk, so that a power cut costs a few minutes at most.

``state/`` holds one folder per checkpoint, named by its epoch and step, the last two of them. A new
one is filled under another name and renamed when it is complete, with the digests of its files in
``manifest.json``. A run goes on from the newest checkpoint that is intact, and since it is a
function of its configuration, it ends the same from either. Nothing is read by running code.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import torch
from accelerate.utils import broadcast_object_list
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from layline.data.file_digests import digest_file
from layline.training.distributed import SeveralProcesses
from layline.training.loop import TrainingState
from layline.training.optim import WeightAverage
from layline.utils.errors import UserError
from layline.utils.files import publish_folder, write_error

_STATE = "progress.json"
_AVERAGE = "average.safetensors"
_MANIFEST = "manifest.json"
_NAME = re.compile(r"epoch-(\d+)-step-(\d+)")
_PROGRESS = TypeAdapter(TrainingState)


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: ``state/`` of the run.
        processes: Know the model and the optimiser.
        say: Told of a checkpoint that is damaged.
    """

    def __init__(
        self, folder: Path, processes: SeveralProcesses, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._folder, self._say = folder, say
        self._processes, self._accelerator = processes, processes.accelerator
        self._last: Path | None = None  # the one that was written or read last: it is intact

    def save(self, state: TrainingState, average: WeightAverage | None = None) -> None:
        """Write a checkpoint, and keep the one before it. All processes call it together.

        Args:
            state: How far training is.
            average: The average of the weights, if one is kept; it is the same in all processes.
        """
        accelerator = self._accelerator
        loss_sum, weight_sum = self._processes.sum([state.loss_sum, state.weight_sum])
        place = self._folder / f"epoch-{state.epoch:05}-step-{state.step:07}"
        part = self._folder / ".saving"
        if accelerator.is_main_process:
            shutil.rmtree(part, ignore_errors=True)  # of a run that was killed while saving
            part.mkdir(parents=True)
        accelerator.wait_for_everyone()
        try:
            self._write(part)
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                if average is not None:
                    _write_average(average, part / _AVERAGE)
                values = asdict(state) | {"loss_sum": loss_sum, "weight_sum": weight_sum}
                (part / _STATE).write_text(json.dumps(values), encoding="utf-8")
                manifest = json.dumps({"blake2b": _digests(part)}, indent=1)
                (part / _MANIFEST).write_text(manifest, encoding="utf-8")
                self._publish(part, place)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise write_error(error, place) from error
        self._last = place
        accelerator.wait_for_everyone()

    def _publish(self, part: Path, place: Path) -> None:
        """Give a checkpoint its name, and remove all but it and the one before."""
        if place == self._last:  # the same step has the same state
            shutil.rmtree(part)
            return
        if place.exists():  # it was damaged, since training had to come here again
            shutil.rmtree(place)
        publish_folder(part, place)
        for old in self._existing():
            if old not in (place, self._last):
                shutil.rmtree(old)

    def restore(
        self,
        average: WeightAverage | None = None,
        objection: Callable[[TrainingState], str] = lambda state: "",
    ) -> TrainingState | None:
        """Go back to the newest checkpoint that is intact, if there is any; the average too.

        Args:
            average: The average of the weights, if one is kept.
            objection: Tells why training cannot go on from a state, if it cannot.

        Raises:
            UserError: There are checkpoints, and none of them will do.
        """
        reasons: list[str] = []
        for place in reversed(self._existing()):
            state, why = self._read(place, average)
            if state is not None and not (why := objection(state)):
                if reasons:
                    self._say(f"{'; '.join(reasons)}. Going on from the checkpoint before: {place}")
                self._last = place
                if not self._accelerator.is_main_process:  # the main one goes on with all sums
                    state.loss_sum = state.weight_sum = 0.0
                return state
            reasons.append(why)
        if not reasons:
            return None
        raise UserError(
            f"{self._folder} must have a checkpoint to go on from, got none that will do: "
            f"{'; '.join(dict.fromkeys(reasons))}; without the folder state, --resume trains from "
            "the beginning"
        )

    def _read(self, place: Path, average: WeightAverage | None) -> tuple[TrainingState | None, str]:
        """Load a checkpoint, or tell what is wrong with it; all processes get the same answer."""
        found = [_damage(place) if self._accelerator.is_main_process else ""]
        (why,) = broadcast_object_list(found) if self._processes.count > 1 else found
        state = None
        if not why:
            try:
                state = _read_progress(place / _STATE)
                self._accelerator.load_state(str(place))
                if average is not None:
                    average.load_state_dict(load_file(place / _AVERAGE))
            except MemoryError:
                raise
            except Exception as error:  # whoever wrote the files may have written anything
                why = f"{place} is damaged: {str(error).partition(chr(10))[0]}"
        if self._processes.any(bool(why)):
            return None, why or f"{place} is damaged"
        return state, ""

    def _write(self, part: Path) -> None:
        with _full_disk_as_such():
            self._accelerator.save_state(str(part))

    def _existing(self) -> list[Path]:
        """List the checkpoints, the oldest first."""
        found = {}
        for path in self._folder.glob("epoch-*-step-*"):
            if match := _NAME.fullmatch(path.name):
                found[int(match[1]), int(match[2])] = path
        return [found[moment] for moment in sorted(found)]


def _digests(folder: Path) -> dict[str, str]:
    """Give the digest of each file but the manifest."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _MANIFEST:
            digests[str(path.relative_to(folder))] = digest_file(path)
    return digests


def _damage(place: Path) -> str:
    """Tell what is wrong with a checkpoint, if anything is."""
    try:
        manifest = place / _MANIFEST
        if manifest.exists():  # there was none at first
            wanted = json.loads(manifest.read_text(encoding="utf-8"))["blake2b"]
            found = _digests(place)
            for name in sorted({*wanted, *found}):
                if wanted.get(name) != found.get(name):
                    what = "has other bytes than were written" if name in found else "is missing"
                    return f"{place / name} {what if name in wanted else 'was not written with it'}"
        _read_progress(place / _STATE)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{place} is damaged: {str(error).partition(chr(10))[0]}"
    except OSError as error:
        return f"{place} cannot be read: {error}"
    return ""


def _read_progress(path: Path) -> TrainingState:
    """Read how far training was, with the names and types that it was written with."""
    text = path.read_text(encoding="utf-8")
    values, names = json.loads(text), {field.name for field in fields(TrainingState)}
    if not isinstance(values, dict) or set(values) != names:
        raise UserError(f"{path} must have {', '.join(sorted(names))}, got others")
    try:
        _PROGRESS.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {name}: {first['msg']}, got {first['input']!r}") from None
    return TrainingState(**values)  # as it was: validated, an integer of the history is a float


def _write_average(average: WeightAverage, path: Path) -> None:
    # copies: a network may have a layer under two names, and safetensors refuses shared memory
    copies = {
        name: each.clone(memory_format=torch.contiguous_format)
        for name, each in average.state_dict().items()
    }
    with _full_disk_as_such():
        save_file(copies, path)


@contextmanager
def _full_disk_as_such() -> Iterator[None]:
    """Turn the errors that a full disk shows itself by into one that says so."""
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise OSError(None, f"could not be written, the disk may be full ({why})") from error
