"""The state of a run on disk: whole or not there, so that a power cut costs a few minutes at most.

``state/`` holds one folder per saved moment, named by its epoch and step. A new one is filled under
another name and renamed when it is complete; then the older ones are removed. Nothing in it is read
by running code.
"""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from accelerate import Accelerator
from safetensors import SafetensorError

from layline.files import explained, publish_folder
from layline.training.sums import summed

Record = dict[str, float]
_PROGRESS = "progress.json"


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        epoch: The epoch being trained, counted from 1.
        step: Steps done in it.
        loss_sum: Weighted sum of the losses in it, of this process.
        weight_sum: Sum of those weights.
        best_epoch: The epoch with the lowest validation error so far; 0 before there is one.
        best_mae: That error.
        history: One record per finished epoch.
    """

    epoch: int = 1
    step: int = 0
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    best_epoch: int = 0
    best_mae: float = float("inf")
    history: list[Record] = field(default_factory=list)


class Checkpoints:
    """The saved moments of a run.

    Args:
        folder: ``state/`` of the run.
        accelerator: Knows the model and the optimiser.
    """

    def __init__(self, folder: Path, accelerator: Accelerator) -> None:
        self._folder = folder
        self._accelerator = accelerator

    def save(self, progress: Progress) -> None:
        """Save this moment, and remove the moments before it. All processes call it together."""
        accelerator = self._accelerator
        loss_sum, weight_sum = summed([progress.loss_sum, progress.weight_sum], accelerator)
        place = self._folder / f"epoch-{progress.epoch:05}-step-{progress.step:07}"
        part = self._folder / ".saving"
        if accelerator.is_main_process:
            shutil.rmtree(part, ignore_errors=True)  # of a run that was killed while saving
            part.mkdir(parents=True)
        accelerator.wait_for_everyone()
        try:
            self._write(part)
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                values = asdict(progress) | {"loss_sum": loss_sum, "weight_sum": weight_sum}
                (part / _PROGRESS).write_text(json.dumps(values), encoding="utf-8")
                before = self._moments()
                if place in before:  # the same moment has the same state
                    shutil.rmtree(part)
                else:
                    publish_folder(part, place)
                for old in before:
                    if old != place:
                        shutil.rmtree(old)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise explained(error, place) from error
        accelerator.wait_for_everyone()

    def restore(self) -> Progress | None:
        """Go back to the last saved moment, if there is one."""
        moments = self._moments()
        if not moments:
            return None
        progress = Progress(**json.loads((moments[-1] / _PROGRESS).read_text(encoding="utf-8")))
        self._accelerator.load_state(str(moments[-1]))
        if not self._accelerator.is_main_process:  # the main process goes on with all sums
            progress.loss_sum = progress.weight_sum = 0.0
        return progress

    def _write(self, part: Path) -> None:
        try:
            self._accelerator.save_state(str(part))
        except (
            SafetensorError,
            RuntimeError,
        ) as error:  # how the two libraries tell of a full disk
            why = str(error).partition("\n")[0]
            raise OSError(None, f"could not be written, the disk may be full ({why})") from error

    def _moments(self) -> list[Path]:
        return sorted(self._folder.glob("epoch-*-step-*"))
