"""Reading the folder of a finished run, for its report."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from layline.data import SOURCES
from layline.evaluation.prediction_file import read_predictions
from layline.heads import HEADS
from layline.reports.html import valid_unicode
from layline.training.config import Config, to_toml, validate
from layline.training.loop import EpochRecord
from layline.training.record import Snapshot
from layline.training.run_folder import RunFolder, as_written
from layline.utils.errors import UserError

_WITHOUT = "remove it, and the page does without"


@dataclass(frozen=True)
class Shown:
    """A test sample that the page shows: a mistake, or one to review.

    Attributes:
        name: What it is called.
        true: Its class.
        predicted: What it is taken for.
        probabilities: Of the classes.
        image: Its thumbnail as JPEG, if it is an image.
        values: Its cells by column, if it is a row of a table.
        reason: Why a person should look at it; empty for a mistake.
        ends: The lowest and the highest class that it may be in, if they are known.
    """

    name: str
    true: int
    predicted: int
    probabilities: list[float]
    image: bytes | None
    values: dict[str, Any]
    reason: str = ""
    ends: tuple[int, int] | None = None


@dataclass(frozen=True)
class RunRecord:
    """A finished run.

    Attributes:
        name: Of its folder.
        config: What it was asked for.
        environment: Versions, the command, samples per class.
        history: A record per epoch.
        numbers: Of the test.
        classes: Names of the classes, lowest first.
        names: What the test samples are called.
        ranks: Their classes.
        predicted: What they are taken for.
        proba: Probabilities that the model gives them.
        layouts: The validation part by epoch, as far as it was recorded.
        test_layout: The test part at the best epoch, if it was recorded.
        similarities: Proxies, Q and U, as far as the head has them.
        mistakes: The worst ones, if they were recorded.
        review: What a person should look at first, if that was recorded.
        is_evaluation: Whether a model that was trained elsewhere was only measured.
    """

    name: str
    config: Config
    environment: dict[str, Any]
    history: list[EpochRecord]
    numbers: dict[str, Any]
    classes: list[str]
    names: list[str]
    ranks: Int[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    proba: Float[np.ndarray, "n K"]
    layouts: dict[int, Snapshot]
    test_layout: Snapshot | None
    similarities: dict[str, NDArray[np.float32]]
    mistakes: list[Shown] | None
    review: list[Shown] | None = None
    is_evaluation: bool = False

    @property
    def data_name(self) -> str:
        """Name the data: those of a protocol by their source, others by their folder or file."""
        options = self.config.data
        own = SOURCES.builtin.get(options.source)
        if options.root is None or (own is not None and own.origin):
            return options.source
        is_folder = options.source == "folder"
        return valid_unicode(options.root.name if is_folder else options.root.stem)

    @property
    def by_direction(self) -> bool:
        """Tell whether the proxies are of length one and compared by cosine: only directions count.

        Of a head from outside it is not known how it compares.
        """
        proxies, head = self.similarities.get("proxies"), self.config.head
        known = (
            head.method in HEADS.builtin and head.options.get("similarity", "cosine") == "cosine"
        )
        if proxies is None or not known:
            return False
        return bool(np.allclose(np.linalg.norm(proxies, axis=1), 1, atol=1e-3))

    @property
    def settings(self) -> str:
        """Give the configuration as TOML."""
        return valid_unicode(to_toml(self.config))


def read_run(path: Path) -> RunRecord:
    """Read the folder of a finished run."""
    folder = RunFolder(path)
    measured: dict[str, Any] | None = None
    if folder.evaluation.is_file():
        with as_written(folder.evaluation, "run layline evaluate again"):
            measured = json.loads(folder.evaluation.read_text(encoding="utf-8"))
            config = validate(Config, measured["config"])
    else:
        config = folder.read_record()
    if not folder.test.is_file() or not folder.predictions.is_file():
        raise UserError(
            f"run must be finished, got {path}: it was not tested yet, go on with "
            f"layline train --resume {path}"
        )
    again = f"layline train --resume {path} writes it anew"
    with as_written(folder.predictions, again):
        samples = read_predictions(folder.predictions)
    classes = samples.classes
    test = folder.layout("test")
    return RunRecord(
        name=valid_unicode(path.resolve().name),
        config=config,
        environment=measured or _environment(folder),
        history=[] if measured is not None else folder.read_history(),
        numbers=folder.read_numbers(),
        classes=[valid_unicode(name) for name in classes],
        names=[valid_unicode(name) for name in samples.names],
        ranks=samples.ranks,
        predicted=samples.predicted,
        proba=samples.proba,
        layouts={
            int(file.stem.removeprefix("epoch-")): _snapshot(file)
            for file in sorted(folder.layouts.glob("epoch-*.npz"))
        },
        test_layout=_snapshot(test) if test.is_file() else None,
        similarities=_arrays(folder.proxies) if folder.proxies.is_file() else {},
        mistakes=_shown(folder, folder.mistakes, classes),
        review=_shown(folder, folder.review, classes),
        is_evaluation=measured is not None,
    )


def _snapshot(path: Path) -> Snapshot:
    with as_written(path, _WITHOUT):
        return Snapshot.load(path)


def _environment(folder: RunFolder) -> dict[str, Any]:
    return folder.read_environment() if folder.environment.is_file() else {}


def _arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    with as_written(path, _WITHOUT), np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _shown(folder: RunFolder, path: Path, classes: list[str]) -> list[Shown] | None:
    """Read a list of samples with their pictures, if there is one."""
    if not path.is_file():
        return None
    with as_written(path, _WITHOUT):
        text = path.read_text(encoding="utf-8")
        return [_shown_sample(folder, record, classes) for record in json.loads(text)]


def _shown_sample(folder: RunFolder, record: dict[str, Any], classes: list[str]) -> Shown:
    image = folder.thumbnails / record["image"] if "image" in record else None
    ends = [classes.index(record[end]) for end in ("low", "high") if end in record]
    return Shown(
        name=valid_unicode(record["name"]),
        true=classes.index(record["true"]),
        predicted=classes.index(record["predicted"]),
        probabilities=record["probabilities"],
        image=image.read_bytes() if image is not None and image.is_file() else None,
        values={
            valid_unicode(column): "–" if cell is None else valid_unicode(str(cell))
            for column, cell in record.get("values", {}).items()
        },
        reason=record.get("reason", ""),
        ends=(ends[0], ends[1]) if len(ends) == 2 else None,
    )
