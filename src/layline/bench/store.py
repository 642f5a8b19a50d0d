"""The outcomes of cells on disk: a folder per cell, named by its key."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd
from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from layline.bench.cells import Cell, cell_key
from layline.metrics import METRICS
from layline.training.run_folder import RunFolder
from layline.utils.errors import UserError
from layline.utils.files import write_json

_RANGES = 0.9  # the coverage of the ranges whose width is kept
_DISTRIBUTION_METRICS = tuple(
    name for name, metric in METRICS.items() if metric.kind == "probabilities"
)
_RANK_METRICS = tuple(name for name, metric in METRICS.items() if metric.kind == "ranks")
_RANGE_METRICS = ("range_width", "range_coverage")
METRIC_COLUMNS = (*_RANK_METRICS, *_DISTRIBUTION_METRICS, *_RANGE_METRICS)
_OUTCOME_FIELDS = (
    *("validation_mae", "criterion", "epoch", "samples", "seconds", "version", "error"),
    *("wanted", "place", "data"),
)
_OUTCOME = "outcome.json"
_STARTED = "started"
# What is kept of the environment of a run, beside its outcome.
_ENVIRONMENT = (
    *("command", "layline", "commit", "torch", "numpy", "torchvision", "timm", "python"),
    *("platform", "processor", "device", "threads", "processes", "plugin_versions", "competitor"),
)


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: with its numbers, or with an error.

    Attributes:
        wanted: The cell's ``config_hash``.
        version: The code that ran.
        place: The cell's ``place_hash``.
        data: The digest of the content of its data; empty if it has none, or if an earlier version
            ran, which knew folders by their path.
        environment: What it ran on: versions, processor, device, threads, and the command.
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
    place: str = ""
    data: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    traceback: str = ""
    seconds: float = 0.0
    epoch: int = 0
    validation_mae: float = float("nan")
    criterion: float = float("nan")
    samples: int = 0
    numbers: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @classmethod
    def about(cls, cell: Cell) -> dict[str, Any]:
        """Give the fields that say what it is the outcome of."""
        of_cell = {"wanted": cell.config_hash, "place": cell.place_hash, "data": cell.content or ""}
        return {**of_cell, "version": cell.version}

    @classmethod
    def of_test(cls, test: dict[str, Any], **others: Any) -> Self:
        """Take the metrics from the numbers of a run's ``test.json``, the rest as it is given."""
        same = {name: test[name] for name in _DISTRIBUTION_METRICS}
        for each in test.get("ranges", []):
            if each["coverage"] == _RANGES:
                same |= dict(zip(_RANGE_METRICS, (each["width"], each["measured"]), strict=True))
        numbers = {
            decoding: {name: values[name] for name in _RANK_METRICS} | same
            for decoding, values in test["by_decoding"].items()
        }
        return cls(epoch=test["epoch"], samples=test["samples"], numbers=numbers, **others)

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]], environment: dict[str, Any]) -> Self:
        """Take it from its rows in ``results.csv``, one for each decoding."""
        numbers = {
            str(row["decode"]): {
                name: None if pd.isna(row.get(name)) else float(row[name])
                for name in METRIC_COLUMNS  # those that came later an earlier version has not
            }
            for row in rows
        }
        first = rows[0]
        own = {name: first[_column(name)] for name in _OUTCOME_FIELDS}
        return cls(**own, numbers={} if first["error"] else numbers, environment=environment)

    @property
    def key(self) -> str:
        """The key of the cell that it is the outcome of."""
        return cell_key(self.wanted, self.version)

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

    @property
    def has_cells(self) -> bool:
        """Whether any cell left an outcome here; a published folder has ``results.csv`` alone."""
        return any((self.folder / "cells").glob(f"[!.]*/{_OUTCOME}"))

    def folder_of(self, cell: Cell) -> Path:
        """Name the folder of a cell."""
        return self.folder / "cells" / cell.key

    def run_folder(self, cell: Cell) -> RunFolder:
        """Give the folder of the run of a cell, of whatever version its outcome is."""
        own = self.folder_of(cell)
        if self._any_version and self._own(cell) is None:
            newest, by_place = self._other_versions
            own = newest.get(cell.config_hash) or by_place.get(cell.place_hash) or own
        return RunFolder(own)

    def find(self, cell: Cell) -> Outcome | None:
        """Give the outcome of a cell, if it has one; it may be a failure."""
        place = self.run_folder(cell).path
        return self._own(cell) if place == self.folder_of(cell) else _read(place / _OUTCOME)

    def _own(self, cell: Cell) -> Outcome | None:
        """Give the outcome that this version of the code left, if it can be read."""
        own = _read(self.folder_of(cell) / _OUTCOME)
        return own if own is not None and own.wanted == cell.config_hash else None

    def is_done(self, cell: Cell) -> bool:
        """Tell whether a cell need not be run; one that failed is to be tried again."""
        outcome = self.find(cell)
        return outcome is not None and not outcome.error

    def explain(self, todo: Sequence[Cell]) -> list[str]:
        """Say why cells that have results are to be run nevertheless.

        Args:
            todo: The cells that are to be run.
        """
        damaged = [cell for cell in todo if self._is_damaged(cell)]
        sentences = [
            f"{cell.name}: {self.folder_of(cell) / _OUTCOME} is damaged, so it is run again"
            for cell in damaged
        ]
        by_config = {outcome.wanted: outcome for _, outcome in self._finished}
        by_place = {outcome.place or outcome.wanted: outcome for _, outcome in self._finished}
        versions: Counter[tuple[str, str]] = Counter()
        changed: Counter[str] = Counter()
        unknown = 0
        for cell in todo:
            before, there = by_config.get(cell.config_hash), by_place.get(cell.place_hash)
            if before is not None and before.version != cell.version:
                versions[before.version, cell.version] += 1
            elif before is None and there is not None and there.data:
                changed[str(cell.config.data.root)] += 1
            elif before is None and there is not None:
                unknown += 1
        sentences += [
            f"{_runs(count)} again: the code has changed since (from {then} to {now}); "
            "--any-version keeps the results"
            for (then, now), count in versions.items()
        ]
        sentences += [
            f"{_runs(count)} again: the data in {root} have changed since"
            for root, count in changed.items()
        ]
        if unknown:
            sentences.append(
                f"{_runs(unknown)} again: an earlier version did not know the content of their "
                "data; --any-version keeps the results"
            )
        return sentences

    def _is_damaged(self, cell: Cell) -> bool:
        return (self.folder_of(cell) / _OUTCOME).exists() and self._own(cell) is None

    def lock(self, cell: Cell) -> FileLock:
        """Give the lock that one process at a time holds on a cell; it ends with its process."""
        folder = self.folder / "cells" / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / cell.key)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other grids out of the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"out must be used by one grid at a time, got {self.folder}: wait for the other "
                "one, or take another folder"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def start(self, cell: Cell) -> None:
        """Note the process of a cell; what is left of a failure, or damaged, is removed."""
        folder = self.folder_of(cell)
        if (folder / _OUTCOME).exists():  # of a failure, or damaged
            old = folder.with_name(f".{folder.name}.old")  # half of it must not be taken for a cell
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
            shutil.rmtree(old)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _STARTED).write_text(str(os.getpid()))

    def finish(self, cell: Cell, outcome: Outcome) -> None:
        """Keep the outcome of a cell."""
        folder = self.folder_of(cell)
        write_json(folder / _OUTCOME, outcome.as_json())
        (folder / _STARTED).unlink(missing_ok=True)

    def frame(self, cells: Iterable[Cell], decodings: Sequence[str] = ("mode",)) -> pd.DataFrame:
        """List the outcomes, one row per cell and decoding; cells without one are left out.

        Columns: the labels of the cells, ``decode``, the metrics, ``validation_mae``,
        ``criterion``, ``epoch``, ``samples``, ``seconds``, ``version``, ``error``, the hashes
        ``wanted``, ``place`` and ``content`` that the cell is known by, and its ``environment`` as
        JSON. The metrics of a failure are NaN.
        """
        rows = []
        for cell in cells:
            outcome = self.find(cell)
            if outcome is not None:
                rows += [_row(cell, outcome, decoding) for decoding in decodings]
        return pd.DataFrame(rows)

    def environments(self, cells: Iterable[Cell]) -> list[dict[str, Any]]:
        """List what the runs of the cells ran on, of each that ended and tells it, once."""
        found = []
        for cell in {cell.key: cell for cell in cells}.values():
            outcome, run = self.find(cell), self.run_folder(cell)
            if outcome is not None and outcome.environment:
                found.append(outcome.environment)
            elif outcome is not None and run.environment.is_file():  # of an earlier version
                found.append(kept_environment(run.read_environment()))
        return found

    def merge(self, other: Path) -> int:
        """Take the finished cells of another folder of results that this one has not.

        Args:
            other: Of a grid that was run elsewhere, with its ``cells``.

        Returns:
            How many were taken.
        """
        taken = 0
        with self.alone():
            for path, _ in Store(other)._finished:
                own = self.folder / "cells" / path.name
                kept = _read(own / _OUTCOME)
                if kept is not None and not kept.error:
                    continue
                part = own.with_name(f".{own.name}.part")  # half of it must not be taken for a cell
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(path, part)
                shutil.rmtree(own, ignore_errors=True)
                part.rename(own)
                taken += 1
        return taken

    def take(self, outcomes: Iterable[Outcome]) -> int:
        """Take outcomes that this folder has not, and give their number; failures are left."""
        taken = 0
        with self.alone():
            for outcome in outcomes:
                own = self.folder / "cells" / outcome.key / _OUTCOME
                kept = _read(own)
                if outcome.error or (kept is not None and not kept.error):
                    continue
                own.parent.mkdir(parents=True, exist_ok=True)
                write_json(own, outcome.as_json())
                taken += 1
        return taken

    @property
    def _finished(self) -> list[tuple[Path, Outcome]]:
        """Folders of cells that any version finished, the oldest first, with their outcomes."""
        paths = (self.folder / "cells").glob(f"[!.]*/{_OUTCOME}")
        ordered = sorted(paths, key=lambda path: path.stat().st_mtime)
        found = [(path.parent, _read(path)) for path in ordered]
        return [(path, each) for path, each in found if each is not None and not each.error]

    @cached_property
    def _other_versions(self) -> tuple[dict[str, Path], dict[str, Path]]:
        """Folders of cells that other versions finished; the newest decides.

        By the hash of their configuration, and those that knew a folder by its path by that.
        """
        others = self._finished  # asked only where this version left nothing
        newest = {outcome.wanted: path for path, outcome in others}
        return newest, {outcome.wanted: path for path, outcome in others if not outcome.place}


def kept_environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Give what is kept of the environment of a run beside its outcome."""
    return {name: environment[name] for name in _ENVIRONMENT if name in environment}


def _runs(count: int) -> str:
    return "1 run is made" if count == 1 else f"{count} runs are made"


_OUTCOMES = TypeAdapter(Outcome)


def _read(path: Path) -> Outcome | None:
    """Read an outcome, None where there is none or where what is there cannot be one."""
    try:
        outcome = _OUTCOMES.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except (ValueError, RecursionError):  # what is no JSON, and what pydantic refuses
        return None
    measured = outcome.numbers and all("mae" in each for each in outcome.numbers.values())
    return outcome if outcome.error or measured else None


def _row(cell: Cell, outcome: Outcome, decoding: str) -> dict[str, Any]:
    numbers = outcome.numbers.get(decoding, {})
    known = {name: value for name, value in numbers.items() if value is not None}
    return {
        **cell.labels,
        "decode": decoding,
        **{name: float(known.get(name, "nan")) for name in METRIC_COLUMNS},
        **{_column(name): getattr(outcome, name) for name in _OUTCOME_FIELDS},
        "environment": json.dumps(outcome.environment, sort_keys=True),
    }


def _column(field_name: str) -> str:
    """Name the column of a field of an outcome: ``data`` is the name of the data set there."""
    return "content" if field_name == "data" else field_name
