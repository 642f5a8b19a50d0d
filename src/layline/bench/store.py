"""The results of a grid on disk: a run folder per cell, named by its key, and ``results.csv``.

A cell is finished when its ``outcome.json`` exists, which is written atomically, or if it is in
``results.csv``: published results can be extended without the folders of their runs. One process
runs a grid in a folder at a time; its workers write to different cells.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

import layline
from layline.bench.grid import Cell, Grid
from layline.bench.statistics import ALL_LABELS, NO_STRESS, best_settings
from layline.evaluation.prediction_file import plain_cell, safe_cell
from layline.metrics import PROBABILITY_METRICS, RANK_METRICS
from layline.training.run_folder import RunFolder
from layline.utils.files import atomic_write, write_json
from layline.utils.validation import UserError

GRID, RESULTS, ENVIRONMENT = "grid.toml", "results.csv", "environment.json"
RUNNING = "running"  # has the process of a cell that is not finished
_OUTCOME = "outcome.json"
_RANGES = 0.9  # the coverage of the ranges whose width is recorded
_NUMBERS = (*RANK_METRICS, *PROBABILITY_METRICS, "range_width", "range_coverage", "criterion")
_GAP = ("gap_recall", "gap_mae")  # only of the stress test
# The parts of a run's environment.json that its outcome repeats.
_ENVIRONMENT = (
    *("command", "layline", "commit", "torch", "numpy", "torchvision", "timm", "python"),
    *("platform", "processor", "device", "threads", "processes", "plugins", "baseline"),
)


@dataclass(frozen=True)
class Outcome:
    """The result of a cell: its numbers, or an error."""

    key: str  # of the cell
    version: str = layline.__version__  # of the package
    # versions, processor, device, threads and the command of the run
    environment: dict[str, Any] = field(default_factory=dict)
    error: str = ""  # the error, starting with its type; empty if the run succeeded
    traceback: str = ""
    seconds: float = 0.0
    epoch: int = 0  # the selected epoch
    # the validation score that selected it, negated if higher is better
    criterion: float | None = None
    samples: int = 0  # of the test split
    # test metrics by decoding
    numbers: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @classmethod
    def of_test(cls, test: Mapping[str, Any], run: RunFolder, **others: Any) -> Self:
        """Take the metrics from the numbers of a run's ``test.json``."""
        same = {name: test[name] for name in PROBABILITY_METRICS}
        for each in test.get("ranges", []):
            if each["coverage"] == _RANGES:
                same |= {"range_width": each["width"], "range_coverage": each["measured"]}
        numbers = {
            decoding: {name: values[name] for name in RANK_METRICS}
            | same
            | test.get("gap", {}).get(decoding, {})
            for decoding, values in test["by_decoding"].items()
        }
        whole = run.read_environment()
        environment = {name: whole[name] for name in _ENVIRONMENT if name in whole}
        counts = {"epoch": test["epoch"], "samples": test["samples"]}
        return cls(numbers=numbers, environment=environment, **counts, **others)


class Store:
    """Find, write and list the outcomes of cells in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check_folder(self, cells: Sequence[Cell]) -> None:
        """Refuse a folder with something other than results of these cells."""
        names = {path.name for path in self.folder.glob("[!.]*")}
        kept = {cell.key for cell in cells} | {p.name for p in (self.folder / "cells").glob("*")}
        has_others = not kept >= set(self._published)  # that would be lost
        if names and (not names & {"cells", GRID} or has_others or not self._has_keys()):
            raise UserError(
                f"{self.folder} contains other files or results of another grid, which could be "
                "overwritten. Choose a new folder for the results."
            )

    def _has_keys(self) -> bool:
        """Return whether ``results.csv``, if it is there, names the cells of its runs."""
        file = self.folder / RESULTS
        return not file.is_file() or "key" in pd.read_csv(file, nrows=0).columns

    def run_folder(self, cell: Cell) -> RunFolder:
        """Give the folder of the run of a cell."""
        return RunFolder(self.folder / "cells" / cell.key)

    def find(self, cell: Cell) -> Outcome | None:
        """Give the outcome of a cell; None if it is missing or damaged."""
        return _read(self.run_folder(cell).path / _OUTCOME)

    def outcome(self, cell: Cell) -> Outcome | None:
        """Give the outcome of a cell, or what ``results.csv`` has of it."""
        return self.find(cell) or self._published.get(cell.key)

    def is_done(self, cell: Cell) -> bool:
        """Tell whether a cell finished without an error."""
        outcome = self.outcome(cell)
        return outcome is not None and not outcome.error

    def is_running(self, cell: Cell) -> bool:
        """Tell whether a process has started a cell and not finished it."""
        return (self.run_folder(cell).path / RUNNING).exists()

    def start(self, cell: Cell) -> None:
        """Prepare the folder of a cell; the remains of a failed run are removed."""
        folder = self.run_folder(cell).path
        if (folder / _OUTCOME).exists():
            self.remove(cell)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RUNNING).write_text(str(os.getpid()))

    def remove(self, cell: Cell) -> None:
        """Delete the folder of a cell."""
        folder = self.run_folder(cell).path
        (folder / _OUTCOME).unlink(missing_ok=True)  # first: half a folder must not look finished
        shutil.rmtree(folder, ignore_errors=True)

    def remove_published(self, cells: Sequence[Cell]) -> None:
        """Delete cells from ``results.csv``."""
        keys = {cell.key for cell in cells}
        if keys & set(self._published):
            frame = pd.read_csv(self.folder / RESULTS, dtype=str, keep_default_na=False)
            with atomic_write(self.folder / RESULTS) as part:
                frame[~frame["key"].isin(keys)].to_csv(part, index=False)
            del self._published

    def finish(self, cell: Cell, outcome: Outcome) -> None:
        """Write the outcome of a cell."""
        folder = self.run_folder(cell).path
        write_json(folder / _OUTCOME, asdict(outcome))
        (folder / RUNNING).unlink(missing_ok=True)

    @contextmanager
    def lock(self, log: Callable[[str], None]) -> Iterator[None]:
        """Keep other grids out of the folder, if the file system supports locks."""
        try:
            with _lock(self.folder / ".lock", timeout=0) as supported:
                if not supported:
                    log(f"{self.folder} does not support locks. Run only one grid there at a time.")
                yield
        except Timeout:
            raise UserError(
                f"Another process is running a grid in {self.folder}. Wait for it, or choose "
                "another folder."
            ) from None

    def cell_lock(self, cell: Cell) -> AbstractContextManager[bool]:
        """Wait until no other process runs a cell, if the file system supports locks."""
        return _lock(self.folder / "cells" / f".{cell.key}.lock")

    def frame(self, cells: Iterable[Cell], decodings: Sequence[str] = ("mode",)) -> pd.DataFrame:
        """List the outcomes, one row per cell and decoding, without cells that have none."""
        others = ("epoch", "samples", "seconds", "key", "version", "error")
        rows = [
            {**cell.labels, "decode": decoding, **dict.fromkeys(_NUMBERS)}
            | outcome.numbers.get(decoding, {})
            | {name: getattr(outcome, name) for name in ("criterion", *others)}
            for cell in cells
            if (outcome := self.outcome(cell)) is not None
            for decoding in decodings
        ]
        frame = pd.DataFrame(rows)
        return frame.astype(dict.fromkeys(_NUMBERS, float)) if rows else frame

    def select_tuned(self, cells: Sequence[Cell], tune_seeds: Sequence[int]) -> list[Cell]:
        """Keep the cells of the other seeds that have the best settings of ``tune_seeds``."""
        seeds = {str(seed) for seed in tune_seeds}
        frame = self.frame(cell for cell in cells if cell.labels["seed"] in seeds)
        settings = best_settings(frame, tune_seeds)
        best = {tuple(row) for row in settings.itertuples(index=False)}
        others = [cell for cell in cells if cell.labels["seed"] not in seeds]
        return [cell for cell in others if tuple(map(cell.labels.get, settings.columns)) in best]

    def _earlier_environment(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """List the values of published runs that differ from those of the present ones."""
        file = self.folder / ENVIRONMENT
        earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        known = {name: earlier[name] for name in _ENVIRONMENT if name in earlier}
        return {
            name: value
            if about.get(name, value) == value
            else {"earlier": value, "now": about[name]}
            for name, value in known.items()
        }

    @cached_property
    def _published(self) -> dict[str, Outcome]:
        """The outcomes in ``results.csv``, by key; they have no environment and no traceback."""
        if not (self.folder / RESULTS).is_file() or not self._has_keys():
            return {}
        frame = read_results(self.folder)
        found = {}
        for key, rows in frame.groupby("key"):
            first = rows.iloc[0]
            numbers = {
                str(row["decode"]): {
                    name: None if pd.isna(row[name]) else float(row[name])
                    for name in (*_NUMBERS[:-1], *_GAP)
                    if name in row
                }
                for _, row in rows.iterrows()
                if not first["error"]
            }
            criterion = None if pd.isna(first["criterion"]) else float(first["criterion"])
            found[str(key)] = Outcome(
                key=str(key),
                version=first["version"],
                error=first["error"],
                seconds=float(first["seconds"]),
                epoch=int(first["epoch"]),
                samples=int(first["samples"]),
                criterion=criterion,
                numbers=numbers,
            )
        return found

    def write_results(self, grid: Grid, cells: Sequence[Cell]) -> pd.DataFrame:
        """Write ``results.csv`` and ``environment.json`` of all finished runs."""
        frame = self.frame(cells, grid.used_decodings())
        if frame.empty:
            return frame
        with atomic_write(self.folder / RESULTS) as part:
            _map_texts(frame, safe_cell).to_csv(part, index=False)
        outcomes = [self.outcome(cell) for cell in {cell.key: cell for cell in cells}.values()]
        runs = [each.environment for each in outcomes if each is not None and each.environment]
        names = dict.fromkeys(name for each in runs for name in each)
        about = {name: _common([each[name] for each in runs if name in each]) for name in names}
        if len(runs) < sum(outcome is not None and not outcome.error for outcome in outcomes):
            about |= self._earlier_environment(about)
        once = frame[frame["decode"] == frame["decode"].iloc[0]]
        about |= {"runs": len(once), "failed": int((once["error"] != "").sum())}
        about["hours"] = round(float(once["seconds"].sum()) / 3600, 2)
        write_json(self.folder / ENVIRONMENT, about)
        return frame


def read_results(folder: Path) -> pd.DataFrame:
    """Read ``results.csv``."""
    texts = ("data", "method", "recipe", "backbone", "setting", "labels", "stress", "seed")
    types = dict.fromkeys((*texts, "decode", "key", "version", "error"), str)
    empty = {name: [""] for name in (*_NUMBERS, *_GAP)}
    frame = pd.read_csv(folder / RESULTS, dtype=types, keep_default_na=False, na_values=empty)
    for name, usual in {"labels": ALL_LABELS, "stress": NO_STRESS}.items():
        if name not in frame:  # results of earlier versions
            frame[name] = usual
    return _map_texts(frame, plain_cell)


def _map_texts(frame: pd.DataFrame, function: Callable[[str], str]) -> pd.DataFrame:
    return frame.map(lambda cell: function(cell) if isinstance(cell, str) else cell)


def _common(values: Sequence[Any]) -> Any:
    """Give the value of all runs, or each value with the number of runs that have it."""
    counts = Counter(json.dumps(value) for value in values)
    if len(counts) == 1:
        return values[0]
    return [{"value": json.loads(text), "runs": runs} for text, runs in counts.most_common()]


@contextmanager
def _lock(path: Path, timeout: float = -1) -> Iterator[bool]:
    """Hold a lock; yield False if the file system does not support locks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=timeout)
    try:
        lock.acquire()
    except (NotImplementedError, OSError) as error:
        if isinstance(error, Timeout):
            raise
    try:
        yield lock.is_locked
    finally:
        lock.release()


@cache
def _outcomes() -> TypeAdapter[Outcome]:
    return TypeAdapter(Outcome)  # making it takes longer than reading a file


def _read(path: Path) -> Outcome | None:
    try:
        return _outcomes().validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
