"""The cells of a grid and their results on disk: a folder per cell, named by its key.

A cell is one training run. Its key is a hash of its configuration and of the code that runs it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd
from filelock import FileLock

import layline
from layline.data import SOURCES
from layline.evaluation import DECODED, DISTRIBUTION
from layline.files import write_json
from layline.training.config import Config, configuration
from layline.training.run_folder import RunFolder

_DISTRIBUTION_METRICS = (*DISTRIBUTION, "unimodality_rate")
METRIC_COLUMNS = (*DECODED, *_DISTRIBUTION_METRICS)
_OUTCOME_COLUMNS = (
    *("validation_mae", "criterion", "epoch", "samples", "seconds", "version", "error"),
)
_OUTCOME = "outcome.json"
_STARTED = "started"
# Settings that change no number of a run.
_NO_EFFECT = {
    "data": {"workers", "verify"},
    "training": {"checkpoint_minutes"},
    "report": {"review"},
}
# Settings that the first version had. One that came later counts only where it is not what the
# paper's recipe says, so that results of that recipe are found that an earlier version left.
_FIRST = {
    "data": "source root partition options size augmentation keep_ratio cache skip_bad workers",
    "features": "name weights freeze options",
    "head": "method dim options",
    "training": "epochs batch_size optimiser learning_rate head_learning_rate weight_decay "
    "momentum schedule milestones decay warmup_epochs warmup_start drop_last precision "
    "accumulation class_weight decode patience seed checkpoint_minutes device",
    "report": "enabled points mistakes",
}
# What that version left out where a setting is off now.
_NONE = {"class_weight": "off", "patience": 0}
# Packages whose code changes no number of a run: they come after training.
_DOWNSTREAM = ("cli", "experiments", "reports")


@dataclass(frozen=True)
class Cell:
    """One training run of a grid.

    Attributes:
        config: The resolved configuration.
        labels: What the cell is called in tables: the column and its value, as in
            ``{"data": "lev", "method": "hard-linear", "seed": "0"}``.
        threads: Threads that it computes with; another number gives other last digits.
    """

    config: Config
    labels: Mapping[str, str] = field(compare=False)
    threads: int = 1

    @property
    def name(self) -> str:
        """The name of the cell in a line of text: its labels that are not empty."""
        return " ".join(value for value in self.labels.values() if value)

    @cached_property
    def config_hash(self) -> str:
        """A hash of the configuration, files by their content and folders by their path."""
        tree = _without_later_settings(self.config)
        tree["data"]["root"] = _identity(self.config.data.root)
        tree["features"]["weights"] = _identity(self.config.features.weights)
        for section, names in _NO_EFFECT.items():
            for name in names:
                tree[section].pop(name, None)  # a later one may be gone already
        in_files = SOURCES[self.config.data.source].has_images
        if not self.config.data.cache or self.config.features.freeze or not in_files:
            del tree["data"]["cache"]  # else crops are cut from images of the size that it keeps
        del tree["track"]
        tree.pop("start", None)
        if (start := self.config.start) is not None:  # by its content, wherever it is
            content = start.digest or _identity(start.model)
            tree["start"] = {"model": content, "rate": start.rate, "skip": start.skip_unknown}
        return _hash(json.dumps([tree, self.threads], sort_keys=True))

    @cached_property
    def key(self) -> str:
        """A hash of the configuration and of the code that runs it."""
        return _hash(self.config_hash + code_version())


def _without_later_settings(config: Config) -> dict[str, Any]:
    """Give the configuration as plain values, as the first version would have written it."""
    tree = config.model_dump(mode="json")
    for name, off in _NONE.items():
        if tree["training"][name] == off:
            tree["training"][name] = None
    if config.recipe != "paper":
        return tree
    chosen = {"name", "weights", "freeze"}  # what the recipe depends on
    plain = configuration(
        {"recipe": "paper", "data": {"source": config.data.source}},
        {"features": config.features.model_dump(include=chosen, exclude_none=True)},
    ).model_dump(mode="json")
    for section, names in _FIRST.items():
        for name in [each for each in tree[section] if each not in names.split()]:
            if tree[section][name] == plain[section][name]:
                del tree[section][name]
    return tree


@cache
def code_version() -> str:
    """Name the code that the numbers of a run depend on: the version and a hash of the sources."""
    root = Path(layline.__file__).parent
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in _DOWNSTREAM:
            digest.update(place.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{layline.__version__}+{digest.hexdigest()}"


def _identity(place: Path | str | None) -> str | None:
    """Name a file by its content, so that it may be moved but not changed; all else by its name."""
    if place is None or not Path(place).is_file():
        return None if place is None else str(place)
    path = Path(place).resolve()
    state = path.stat()
    return _content_hash(path, state.st_mtime_ns, state.st_size)


@cache
def _content_hash(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: with its numbers, or with an error.

    Attributes:
        wanted: The cell's ``config_hash``.
        version: The code that ran.
        error: Why it failed, beginning with the kind of error; empty if it did not.
        traceback: Where it failed.
        seconds: How long it took, this time.
        epoch: The epoch that was chosen.
        validation_mae: Its validation error, by the decoding of the run.
        criterion: What it was chosen by, lower is better: the metric of the run on validation.
        samples: Test samples.
        numbers: The metrics of the test, by decoding.
    """

    wanted: str
    version: str
    error: str = ""
    traceback: str = ""
    seconds: float = 0.0
    epoch: int = 0
    validation_mae: float = float("nan")
    criterion: float = float("nan")
    samples: int = 0
    numbers: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @classmethod
    def of_test(cls, test: dict[str, Any], **others: Any) -> Self:
        """Take the metrics from the numbers of a run's ``test.json``, the rest as it is given."""
        same = {name: test[name] for name in _DISTRIBUTION_METRICS}
        numbers = {
            decoding: {name: values[name] for name in DECODED} | same
            for decoding, values in test["by_decoding"].items()
        }
        return cls(epoch=test["epoch"], samples=test["samples"], numbers=numbers, **others)

    def as_json(self) -> dict[str, Any]:
        """Give it as plain values; JSON has no NaN."""
        return {name: value for name, value in asdict(self).items() if value == value}


class Store:
    """Find, keep and list the outcomes of cells.

    Args:
        folder: Where they are.
        any_version: Also take outcomes of other versions of the code, where this one has none.
    """

    def __init__(self, folder: Path, any_version: bool = False) -> None:
        self.folder, self._any_version = folder, any_version

    def folder_of(self, cell: Cell) -> Path:
        """Name the folder of a cell."""
        return self.folder / "cells" / cell.key

    def run_folder(self, cell: Cell) -> RunFolder:
        """Give the folder of the run of a cell, of whatever version its outcome is."""
        own = self.folder_of(cell)
        if self._any_version and not (own / _OUTCOME).exists():
            own = self._other_versions.get(cell.config_hash, own)
        return RunFolder(own)

    def find(self, cell: Cell) -> Outcome | None:
        """Give the outcome of a cell, if it has one; it may be a failure."""
        return _read(self.run_folder(cell).path / _OUTCOME)

    def is_done(self, cell: Cell) -> bool:
        """Tell whether a cell need not be run; one that failed is to be tried again."""
        outcome = self.find(cell)
        return outcome is not None and not outcome.error

    def lock(self, cell: Cell) -> FileLock:
        """Give the lock that one process at a time holds on a cell; it ends with its process."""
        folder = self.folder / "cells" / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / cell.key)

    def start(self, cell: Cell) -> None:
        """Note that a cell is being run; what is left of a failure is removed."""
        folder = self.folder_of(cell)
        failed = _read(folder / _OUTCOME)
        if failed is not None and failed.error:
            old = folder.with_name(f".{folder.name}.old")  # half of it must not be taken for a cell
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
            shutil.rmtree(old)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _STARTED).write_text(str(os.getpid()))

    def was_started(self, cell: Cell) -> bool:
        """Tell whether a cell was begun and has no outcome."""
        folder = self.folder_of(cell)
        return (folder / _STARTED).exists() and not (folder / _OUTCOME).exists()

    def finish(self, cell: Cell, outcome: Outcome) -> None:
        """Keep the outcome of a cell."""
        folder = self.folder_of(cell)
        write_json(folder / _OUTCOME, outcome.as_json())
        (folder / _STARTED).unlink(missing_ok=True)

    def frame(self, cells: Iterable[Cell], decodings: Sequence[str] = ("mode",)) -> pd.DataFrame:
        """List the outcomes, one row per cell and decoding; cells without one are left out.

        Columns: the labels of the cells, ``decode``, the metrics, ``validation_mae``,
        ``criterion``, ``epoch``, ``samples``, ``seconds``, ``version`` and ``error``.
        The metrics of a failure are NaN.
        """
        rows = []
        for cell in cells:
            outcome = self.find(cell)
            if outcome is not None:
                rows += [_row(cell, outcome, decoding) for decoding in decodings]
        return pd.DataFrame(rows)

    @cached_property
    def _other_versions(self) -> dict[str, Path]:
        """Folders of cells that other versions finished, by the hash of their configuration."""
        found = {}
        paths = (self.folder / "cells").glob(f"*/{_OUTCOME}")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime):  # the newest decides
            outcome = _read(path)
            if outcome is not None and not outcome.error and outcome.version != code_version():
                found[outcome.wanted] = path.parent
        return found


def _read(path: Path) -> Outcome | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    known = {field.name for field in fields(Outcome)}  # another version may have more
    return Outcome(**{name: value for name, value in values.items() if name in known})


def _row(cell: Cell, outcome: Outcome, decoding: str) -> dict[str, Any]:
    numbers = outcome.numbers.get(decoding, {})
    known = {name: value for name, value in numbers.items() if value is not None}
    return {
        **cell.labels,
        "decode": decoding,
        **{name: float(known.get(name, "nan")) for name in METRIC_COLUMNS},
        **{name: getattr(outcome, name) for name in _OUTCOME_COLUMNS},
    }
