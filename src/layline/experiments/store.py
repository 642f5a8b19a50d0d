"""The results of a grid on disk: a folder per cell, named by its key."""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from layline.evaluation import DECODED
from layline.experiments.cells import DISTRIBUTION_METRICS, Cell, Outcome, code_version
from layline.files import write_json
from layline.training.run_folder import RunFolder

METRIC_COLUMNS = (*DECODED, *DISTRIBUTION_METRICS)
_OUTCOME_COLUMNS = ("validation_mae", "epoch", "samples", "seconds", "version", "error")
_OUTCOME = "outcome.json"
_STARTED = "started"


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

        Columns: the labels of the cells, ``decode``, the metrics, ``validation_mae``, ``epoch``,
        ``samples``, ``seconds``, ``version`` and ``error``. The metrics of a failure are NaN.
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
