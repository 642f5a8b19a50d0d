"""A small grid that runs in seconds."""

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from layline.bench.grid import Cell, Grid
from layline.bench.runner import run_grid
from layline.bench.store import Store


@pytest.fixture
def tree(ratings) -> dict:
    """The grid as in a file: two methods, two seeds."""
    entry = {"name": "ratings", "source": "table", "root": str(ratings)}
    return {
        "data": [{**entry, "options": {"label": "grade"}}],
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
    """Run a grid; give the cells that failed, and the log."""

    def call(grid: Grid, folder: Path, jobs: int = 1, **options) -> tuple[list[Cell], str]:
        log = io.StringIO()
        console = Console(file=log, width=200)
        failed = run_grid(grid.cells(), Store(folder), console, jobs=jobs, **options)
        return failed, log.getvalue()

    return call


@pytest.fixture(scope="session")
def results():
    """Give the results of a grid without their durations."""

    def read(grid: Grid, folder: Path) -> pd.DataFrame:
        return Store(folder).frame(grid.cells(), grid.used_decodings()).drop(columns="seconds")

    return read


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, go, results):
    """The results of a grid that was not stopped, computed once per grid."""
    done: dict[str, pd.DataFrame] = {}

    def get(grid: Grid) -> pd.DataFrame:
        text = grid.to_toml()
        if text not in done:
            folder = tmp_path_factory.mktemp("grid")
            assert go(grid, folder)[0] == []
            done[text] = results(grid, folder)
        return done[text]

    return get
