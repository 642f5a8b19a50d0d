"""What a grid leaves beside its cells: one CSV file of all runs, and the tables made of it."""

import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from layline.evaluation import write_json
from layline.experiments.cells import Cell
from layline.experiments.comparisons import comparison, leaderboard, pairwise
from layline.experiments.grid import Grid
from layline.experiments.grid_file import to_toml
from layline.experiments.measures import MEASURES
from layline.experiments.rendering import FORMATS
from layline.experiments.store import METRICS, Store
from layline.experiments.tables import Table
from layline.experiments.tuning import tuned
from layline.files import whole_file, write_text

RESULTS = "results.csv"
GRID = "grid.toml"


def write_grid(grid: Grid, folder: Path) -> None:
    """Write ``grid.toml``, from which a grid that was stopped goes on."""
    write_text(folder / GRID, to_toml(grid))


def write_results(grid: Grid, cells: Sequence[Cell], store: Store) -> pd.DataFrame:
    """Write ``grid.toml``, ``environment.json``, ``results.csv`` and ``tables/``.

    Args:
        grid: What was asked for.
        cells: Its runs.
        store: Where their outcomes are; the files come beside them.

    Returns:
        The runs that count: tuned, one row per run and decoding.
    """
    write_grid(grid, store.folder)
    frame = store.frame(cells, grid.decodings)
    chosen = judged(frame)
    with whole_file(store.folder / RESULTS) as part:
        frame.to_csv(part, index=False)
    write_json(store.folder / "environment.json", _environment(frame))
    write_tables(store.folder / "tables", dict(tables(chosen, grid.decodings, grid.reference)))
    return chosen


def read_results(folder: Path) -> pd.DataFrame:
    """Read ``results.csv`` as it was written."""
    texts = ("data", "method", "features", "setting", "seed", "decode", "version", "error")
    numbers = {name: [""] for name in (*METRICS, "validation_mae")}
    return pd.read_csv(
        folder / RESULTS, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=numbers
    )


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the runs that count: of what was tuned, what validation chose.

    Where a data set has several kinds of features, each of them is a data set of its own.
    """
    chosen = tuned(frame)
    several = chosen.groupby("data")["features"].transform("nunique") > 1
    both = chosen["data"] + " · " + chosen["features"]
    return chosen.assign(data=chosen["data"].where(~several, both))


def tables(
    frame: pd.DataFrame, decodings: Sequence[str], reference: str
) -> Iterator[tuple[str, Table]]:
    """Make the tables of a grid, each with a name for its file.

    Args:
        frame: The runs that count.
        decodings: How distributions became ranks.
        reference: The method to compare the others with; if it is not there, none is.
    """
    yield from comparisons(frame, decodings)
    for decode in decodings:
        yield f"all-{decode}", leaderboard(frame, decode)
        if reference in set(frame["method"]) and frame["method"].nunique() > 1:
            for metric in ("mae", "accuracy"):
                name = f"{metric}-{decode}-against-{reference}"
                yield name, pairwise(frame, reference, metric, decode)


def comparisons(frame: pd.DataFrame, decodings: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Compare the methods in each metric, by every decoding where it depends on that.

    Args:
        frame: The runs that count.
        decodings: How distributions became ranks.
    """
    for metric, measure in MEASURES.items():
        for decode in decodings if measure.decoded else decodings[:1]:
            name = f"{metric}-{decode}" if measure.decoded else metric
            yield name.replace("_", "-"), comparison(frame, metric, decode)


def write_tables(folder: Path, named: dict[str, Table]) -> None:
    """Write tables in every format."""
    for name, table in named.items():
        for ending, write in FORMATS.items():
            write_text(folder / f"{name}.{ending}", write(table))


def _environment(frame: pd.DataFrame) -> dict[str, Any]:
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "layline": sorted(frame["version"].unique()),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "runs": int(frame.groupby("decode").size().max()),
        "failed": int((frame["error"] != "").groupby(frame["decode"]).sum().max()),
        "hours": round(float(frame.groupby("decode")["seconds"].sum().max()) / 3600, 2),
    }
