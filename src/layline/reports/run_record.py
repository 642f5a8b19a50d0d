"""Reading the folder of a finished run or evaluation for its report."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from layline.evaluation.prediction_file import read_predictions
from layline.reports.pages import valid_unicode
from layline.training.config import Config, validate
from layline.training.record import Snapshot
from layline.training.run_folder import RunFolder, as_written
from layline.training.trainer import EpochRecord
from layline.utils.errors import UserError

_NAMED_BY_PATH = ("folder", "csv", "table", "npz")  # other sources are known by their own name


@dataclass(frozen=True)
class ShownSample:
    """A test sample on the page: a mistake, or one to review.

    Attributes:
        name: Name of the sample.
        true: Its class.
        predicted: The predicted class.
        probabilities: The probabilities of the classes.
        image: Its thumbnail as JPEG, if it is an image.
        values: Its cells by column, if it is a row of a table.
        reason: Why a person should look at it; empty for a mistake.
        ends: The lowest and the highest class of its range, if there is one.
    """

    name: str
    true: int
    predicted: int
    probabilities: list[float]
    image: bytes | None
    values: dict[str, str]
    reason: str = ""
    ends: tuple[int, int] | None = None


@dataclass(frozen=True)
class RunRecord:
    """A finished run, or the evaluation of a model.

    Attributes:
        folder: The folder.
        name: Name of the run.
        config: Its configuration.
        environment: Versions, the command, samples per class.
        history: A record per epoch; empty for an evaluation.
        numbers: The content of ``test.json``.
        classes: Names of the classes, lowest first.
        names: Names of the test samples.
        ranks: Their classes.
        predicted: Their predicted classes.
        proba: Their probabilities.
        layouts: The validation samples by epoch, if recorded.
        test_layout: The test samples at the selected epoch, if recorded.
        similarities: Proxies, Q and U, if the head has them.
        mistakes: The worst mistakes, if recorded.
        review: The samples that a person should check, if recorded.
        groups: The group of each test sample, such as a patient, if known.
        is_evaluation: Whether it is an evaluation of a model that was trained before.
    """

    folder: Path
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
    mistakes: list[ShownSample] | None
    review: list[ShownSample] | None
    groups: list[str] | None = None
    is_evaluation: bool = False

    @property
    def data_name(self) -> str:
        """Name the data: by their folder or file, or by their source."""
        source, root = self.config.data.source, self.config.data.root
        if root is None or source not in _NAMED_BY_PATH:
            return str(source)
        return valid_unicode(root.name if source == "folder" else root.stem)

    @property
    def by_direction(self) -> bool:
        """Whether proxies have length one and are compared by cosine: only directions matter."""
        proxies = self.similarities.get("proxies")
        if proxies is None or self.config.head.options.get("similarity", "cosine") != "cosine":
            return False
        return bool(np.allclose(np.linalg.norm(proxies, axis=1), 1, atol=1e-3))


def read_run(path: Path) -> RunRecord:
    """Read the folder of a finished run or evaluation."""
    folder = RunFolder(path)
    is_evaluation = folder.evaluation.is_file()
    if is_evaluation:
        with as_written(folder.evaluation, "run the evaluation again"):
            environment = json.loads(folder.evaluation.read_text(encoding="utf-8"))
            config, history = validate(Config, environment["config"]), []
    else:
        config = folder.read_record()
    if not folder.test.is_file() or not folder.predictions.is_file():
        raise UserError(f"The run in {path} is not finished: it has no test results. Resume it.")
    if not is_evaluation:
        environment, history = folder.read_environment(), folder.read_history()
    with as_written(path, "resume the run to test it again"):
        samples = read_predictions(folder.predictions)
        test, epochs = folder.layout("test"), sorted(folder.layouts.glob("epoch-*.npz"))
        return RunRecord(
            folder=path,
            name=valid_unicode(Path(environment["run"] if is_evaluation else path.resolve()).name),
            config=config,
            environment=environment,
            history=history,
            numbers=folder.read_numbers(),
            classes=[valid_unicode(name) for name in samples.classes],
            names=[valid_unicode(name) for name in samples.names],
            ranks=samples.ranks,
            predicted=samples.predicted,
            proba=samples.proba,
            layouts={int(file.stem.removeprefix("epoch-")): Snapshot.load(file) for file in epochs},
            test_layout=Snapshot.load(test) if test.is_file() else None,
            similarities=_read_arrays(folder.proxies) if folder.proxies.is_file() else {},
            mistakes=_read_samples(folder, folder.mistakes, samples.classes),
            review=_read_samples(folder, folder.review, samples.classes),
            groups=samples.groups,
            is_evaluation=is_evaluation,
        )


def _read_arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _read_samples(folder: RunFolder, path: Path, classes: list[str]) -> list[ShownSample] | None:
    if not path.is_file():
        return None
    samples = []
    for record in json.loads(path.read_text(encoding="utf-8")):
        image = folder.thumbnails / record["image"] if "image" in record else None
        ends = [classes.index(record[end]) for end in ("low", "high") if end in record]
        samples.append(
            ShownSample(
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
        )
    return samples
