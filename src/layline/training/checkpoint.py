"""Checkpoints: the state of a run on disk, so that a power cut costs a few minutes at most.

``state/`` holds one folder per checkpoint, named by its epoch and step. A new one is filled under
another name and renamed when it is complete; then the older ones are removed. Nothing in it is read
by running code.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from layline.files import publish_folder, write_error
from layline.training.distributed import SeveralProcesses
from layline.training.loop import TrainingState
from layline.training.optimisation import WeightAverage

_STATE = "progress.json"
_AVERAGE = "average.safetensors"


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: ``state/`` of the run.
        processes: Know the model and the optimiser.
    """

    def __init__(self, folder: Path, processes: SeveralProcesses) -> None:
        self._folder = folder
        self._processes, self._accelerator = processes, processes.accelerator

    def save(self, state: TrainingState, average: WeightAverage | None = None) -> None:
        """Write a checkpoint, and remove those before it. All processes call it together.

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
                before = self._existing()
                if place in before:  # the same step has the same state
                    shutil.rmtree(part)
                else:
                    publish_folder(part, place)
                for old in before:
                    if old != place:
                        shutil.rmtree(old)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise write_error(error, place) from error
        accelerator.wait_for_everyone()

    def restore(self, average: WeightAverage | None = None) -> TrainingState | None:
        """Go back to the last checkpoint, if there is one; the average too."""
        found = self._existing()
        if not found:
            return None
        state = TrainingState(**json.loads((found[-1] / _STATE).read_text(encoding="utf-8")))
        self._accelerator.load_state(str(found[-1]))
        if average is not None:
            average.load_state_dict(load_file(found[-1] / _AVERAGE))
        if not self._accelerator.is_main_process:  # the main process goes on with all sums
            state.loss_sum = state.weight_sum = 0.0
        return state

    def _write(self, part: Path) -> None:
        with _full_disk_as_such():
            self._accelerator.save_state(str(part))

    def _existing(self) -> list[Path]:
        return sorted(self._folder.glob("epoch-*-step-*"))


def _write_average(average: WeightAverage, path: Path) -> None:
    with _full_disk_as_such():
        save_file({name: each.contiguous() for name, each in average.state_dict().items()}, path)


@contextmanager
def _full_disk_as_such() -> Iterator[None]:
    """Turn the errors that a full disk shows itself by into one that says so."""
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise OSError(None, f"could not be written, the disk may be full ({why})") from error
