"""Published tables are made from the published runs."""

import json
import re
import runpy
from pathlib import Path

import pytest
from rich.console import Console

from layline.bench.grid import read_grid
from layline.bench.learning_curves import make_curve_tables
from layline.bench.runner import run_grid
from layline.bench.statistics import select_runs
from layline.bench.store import Store, read_results
from layline.bench.tables import make_tables, to_csv, to_markdown

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in ROOT.glob("results/*/tables"))
EDITION = ROOT / "results" / "edition-3"


def test_the_results_are_small():
    assert sum(path.stat().st_size for path in ROOT.glob("results/**/*.*")) < 4e6


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_published_table_is_made_from_the_runs(folder):
    grid = read_grid(folder / "grid.toml")
    frame = read_results(folder)
    compared = select_runs(frame, grid.tune_seeds)
    sizes = sum(len(grid.labels_of(each)) for each in grid.data)
    runs = sizes * len(grid.stress) * len(grid.all_methods()) * len(grid.seeds)
    assert len(compared) == len(frame) == runs * len(grid.used_decodings())
    made = make_tables(compared, grid) | make_curve_tables(compared, grid)
    assert {path.stem for path in folder.glob("tables/*")} == set(made)
    for name, table in made.items():
        for ending, convert in {"md": to_markdown, "csv": to_csv}.items():
            published = (folder / "tables" / f"{name}.{ending}").read_text(encoding="utf-8")
            assert published == convert(table)
    about = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert about["runs"] >= runs  # with those of the settings that were not chosen
    assert about["failed"] == 0


def test_the_tables_of_the_benchmark_are_in_its_pages(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    made = runpy.run_path(str(ROOT / "benchmarks" / "edition.py"))
    written, shown = made["tables"](), []
    for page in made["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert made["filled"](text, written) == text
        shown += re.findall(r"<!-- table: (\w+) -->", text)
    assert set(shown) == set(written)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("certainty", ["coverage_table", "set_table"]),
    ],
)
def test_the_tables_of_other_pages_are_made_from_results(page, names):
    made = runpy.run_path(str(ROOT / "benchmarks" / f"{page}.py"))
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for name in names:
        assert made[name]() in text, name


@pytest.mark.parametrize("file", [*ROOT.glob("benchmarks/*.toml"), *ROOT.glob("results/*/*.toml")],
                         ids=lambda path: path.stem)  # fmt: skip
def test_every_grid_can_be_run(file, monkeypatch):
    monkeypatch.chdir(ROOT)  # baselines are in benchmarks/peers.py
    grid = read_grid(file)
    small = grid.model_copy(update={"seeds": grid.seeds[:1], "tune_seeds": [], "tune": {}})
    assert small.cells()


@pytest.mark.slow
def test_runs_agree_with_the_published_ones(tmp_path, monkeypatch):
    """On photographs that come with the package; another processor may change a few predictions."""
    monkeypatch.chdir(ROOT)
    grid = read_grid(EDITION / "grid.toml")
    only = [each for each in grid.data if each.name == "photo-quality"]
    cells = grid.model_copy(update={"data": only, "seeds": [0]}).cells()
    cells = [cell for cell in cells if cell.labels["method"] in ("default", "classification")]
    assert len(cells) == 2 * len(grid.labels_of(only[0]))
    store = Store(tmp_path)
    assert run_grid(cells, store, Console(quiet=True), jobs=1) == []
    known = ["data", "method", "labels", "seed", "decode"]
    new = store.frame(cells, grid.used_decodings()).set_index(known)
    published = read_results(EDITION).set_index(known).loc[new.index]
    assert (new["key"] == published["key"]).all()
    for metric in ("mae", "rps"):
        assert ((new[metric] - published[metric]).abs() < 0.02).all(), metric
