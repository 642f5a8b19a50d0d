"""A cell of a grid: one training run, known by what is asked for and the code that runs it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import layline
from layline.training.config import Config

# What changes nothing in the numbers of a run.
_FREE = {"data": {"workers", "cache"}, "training": {"checkpoint_minutes"}}
# Packages whose code can change no number of a run.
_AFTER = ("cli", "experiments", "reports")


@dataclass(frozen=True)
class Cell:
    """One training run of a grid.

    Attributes:
        config: What is asked for, resolved.
        labels: What the cell is called in tables: the column and its value, as in
            ``{"data": "lev", "method": "hard-linear", "seed": "0"}``.
        threads: Threads that it computes with; another number gives other last digits.
    """

    config: Config
    labels: Mapping[str, str] = field(compare=False)
    threads: int = 1

    @property
    def name(self) -> str:
        """What the cell is called in a line: its labels that say something."""
        return " ".join(value for value in self.labels.values() if value)

    @cached_property
    def wanted(self) -> str:
        """A hash of what is asked for, files by their content and folders by their path."""
        tree = self.config.model_dump(mode="json")
        tree["data"]["root"] = _known_by(self.config.data.root)
        tree["features"]["weights"] = _known_by(self.config.features.weights)
        for section, names in _FREE.items():
            for name in names:
                del tree[section][name]
        del tree["track"]
        return _digest(json.dumps([tree, self.threads], sort_keys=True))

    @cached_property
    def key(self) -> str:
        """A hash of what is asked for and of the code that answers it."""
        return _digest(self.wanted + code_version())


@cache
def code_version() -> str:
    """Name the code that the numbers of a run depend on: the version and a hash of the sources."""
    root = Path(layline.__file__).parent
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in _AFTER:
            digest.update(place.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{layline.__version__}+{digest.hexdigest()}"


def _known_by(place: Path | str | None) -> str | None:
    """Name a file by its content, so that it may be moved but not changed; all else by its name."""
    if place is None or not Path(place).is_file():
        return None if place is None else str(place)
    path = Path(place).resolve()
    state = path.stat()
    return _content(path, state.st_mtime_ns, state.st_size)


@cache
def _content(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
