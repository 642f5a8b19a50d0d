"""A small grid that runs in seconds."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from layline.bench.cells import Cell
from layline.bench.engines import Executor
from layline.bench.grid import Grid
from layline.bench.runner import GridProgress, run_grid
from layline.bench.store import Store

ONE = Executor(jobs=1)


@pytest.fixture(scope="session")
def ratings(tmp_path_factory) -> Path:
    """A table with three grades that follow from its two columns."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    rank = np.digitize(x.sum(axis=1) + 0.3 * rng.normal(size=90), [-0.7, 0.7])
    lines = [f"{a:.4f},{b:.4f},{grade}" for (a, b), grade in zip(x, rank, strict=True)]
    path.write_text("a,b,grade\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def tree(ratings) -> dict:
    """The grid as a file would have it: two methods, two seeds."""
    return {
        "data": [
            {
                "name": "ratings",
                "source": "table",
                "root": str(ratings),
                "options": {"label": "grade"},
            }
        ],
        "methods": ["hard-linear", "classification"],
        "seeds": [0, 1],
        "recipes": ["paper"],
        "decodings": ["mode", "median"],
        "settings": {
            "head": {"dim": 8},
            "training": {"epochs": 3, "batch_size": 16, "device": "cpu"},
        },
    }


@pytest.fixture
def grid(tree) -> Grid:
    return Grid.model_validate(tree)


@pytest.fixture(scope="session")
def go():
    """Run a grid; give the cells that failed, and what was said."""

    def call(
        grid: Grid, folder: Path, executor: Executor = ONE, **options
    ) -> tuple[list[Cell], str]:
        said = io.StringIO()
        progress = GridProgress(Console(file=said, width=200))
        store = Store(folder, options.pop("any_version", False))
        return run_grid(grid.cells(), store, progress, executor, **options), said.getvalue()

    return call


@pytest.fixture(scope="session")
def results():
    """Give the results of a grid that was run, without what is never the same."""

    def read(grid: Grid, folder: Path) -> pd.DataFrame:
        frame = Store(folder).frame(grid.cells(), grid.read_by())
        return frame.drop(columns=["seconds", "environment"])

    return read


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, go, results):
    """The results of the small grid, computed once per grid file."""
    done: dict[str, pd.DataFrame] = {}

    def get(grid: Grid) -> pd.DataFrame:
        text = grid.to_toml()
        if text not in done:
            folder = tmp_path_factory.mktemp("grid")
            failed, _ = go(grid, folder)
            assert failed == []
            done[text] = results(grid, folder)
        return done[text]

    return get
