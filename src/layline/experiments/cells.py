"""A cell of a grid: one training run, its key, and its outcome."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

import layline
from layline.evaluation import DECODED, DISTRIBUTION
from layline.training.config import Config

DISTRIBUTION_METRICS = (*DISTRIBUTION, "unimodality_rate")
# Settings that change no number of a run.
_NO_EFFECT = {"data": {"workers", "cache"}, "training": {"checkpoint_minutes"}}
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
        """What the cell is called in a line: its labels that are not empty."""
        return " ".join(value for value in self.labels.values() if value)

    @cached_property
    def config_hash(self) -> str:
        """A hash of the configuration, files by their content and folders by their path."""
        tree = self.config.model_dump(mode="json")
        tree["data"]["root"] = _identity(self.config.data.root)
        tree["features"]["weights"] = _identity(self.config.features.weights)
        for section, names in _NO_EFFECT.items():
            for name in names:
                del tree[section][name]
        del tree["track"]
        return _hash(json.dumps([tree, self.threads], sort_keys=True))

    @cached_property
    def key(self) -> str:
        """A hash of the configuration and of the code that runs it."""
        return _hash(self.config_hash + code_version())


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
    samples: int = 0
    numbers: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @classmethod
    def of_test(cls, test: dict[str, Any], **others: Any) -> Self:
        """Take the metrics from the numbers of a run's ``test.json``, the rest as it is given."""
        same = {name: test[name] for name in DISTRIBUTION_METRICS}
        numbers = {
            decoding: {name: values[name] for name in DECODED} | same
            for decoding, values in test["by_decoding"].items()
        }
        return cls(epoch=test["epoch"], samples=test["samples"], numbers=numbers, **others)

    def as_json(self) -> dict[str, Any]:
        """Give it as plain values; JSON has no NaN."""
        values = asdict(self)
        if self.validation_mae != self.validation_mae:
            del values["validation_mae"]
        return values
