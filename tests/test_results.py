"""What is published follows from the runs that are published with it."""

import json
import re
import runpy
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from layline import heads
from layline.bench.engines import Executor
from layline.bench.grid import read_grid
from layline.bench.results import read_results, select_runs, tables
from layline.bench.runner import GridProgress, run_grid
from layline.bench.store import Store
from layline.bench.tables import to_markdown

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in ROOT.glob("results/*/tables"))
EDITION = ROOT / "results" / "edition-2"
FINETUNED = ROOT / "results" / "edition-2-finetuned"
SIX = ("arc", "hard-linear", "soft-poisson", "classification", "ranking", "cnnpor")


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_published_table_follows_from_the_runs(folder):
    grid = read_grid(folder / "grid.toml")
    compared = select_runs(read_results(folder), grid.tune_seeds)
    made = dict(tables(compared, grid.read_by(), grid.against()))
    assert {path.stem for path in folder.glob("tables/*.md")} == set(made)
    for name, table in made.items():
        assert (folder / "tables" / f"{name}.md").read_text(encoding="utf-8") == to_markdown(table)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_run_of_a_published_grid_is_there(folder):
    grid = read_grid(folder / "grid.toml")
    frame, read_by = read_results(folder), len(grid.read_by())
    methods = len(grid.variants()) + len(grid.competitors)
    compared = len(grid.data) * methods * len(grid.seeds)
    assert len(select_runs(frame, grid.tune_seeds)) == compared * read_by
    about = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert about["runs"] == len(frame) / read_by >= compared
    assert about["failed"] == (frame["error"] != "").sum() / read_by
    assert sorted(frame["version"].unique()) == about["layline"]
    assert len(grid.seeds) >= (3 if folder == FINETUNED else 5)
    assert len(grid.recipes) == 1


@pytest.mark.slow
def test_six_runs_of_the_second_edition_give_the_published_numbers(tmp_path, monkeypatch):
    """On photographs that come with the package; another processor may round a little."""
    monkeypatch.chdir(ROOT)  # where the grid finds what other libraries offer
    grid = read_grid(EDITION / "grid.toml")
    published = select_runs(read_results(EDITION), grid.tune_seeds)
    labels = ["data", "method", "setting", "seed"]
    only = grid.model_copy(
        update={"data": [each for each in grid.data if each.name == "photo-quality"]}
    )
    wanted = {
        tuple(row)
        for row in published[labels].itertuples(index=False)
        if row.data == "photo-quality" and row.method in SIX and row.seed == "0"
    }
    cells = [c for c in only.cells() if tuple(c.labels[name] for name in labels) in wanted]
    assert len(cells) == len(SIX)
    store = Store(tmp_path)
    assert run_grid(cells, store, GridProgress(Console(quiet=True)), Executor(jobs=1)) == []
    found = store.frame(cells, grid.read_by()).merge(published, on=[*labels, "decode"])
    assert len(found) == len(SIX) * len(grid.read_by())
    for metric, tolerance in {"mae": 0.005, "accuracy": 0.005, "rps": 5e-4, "nll": 5e-3}.items():
        difference = found[f"{metric}_x"] - found[f"{metric}_y"]
        assert difference.abs().max() <= tolerance, metric


def test_the_tables_of_the_benchmark_follow_from_its_runs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    made = runpy.run_path(str(ROOT / "benchmarks" / "edition.py"))
    written, shown = made["tables"](), []
    for page in made["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert made["filled"](text, written) == text
        shown += re.findall(r"<!-- table: (\w+) -->", text)
    assert sorted(shown) == sorted(written)


def test_the_benchmark_has_every_method():
    grid = read_grid(EDITION / "grid.toml")
    assert {each.method for each in grid.variants()} == set(heads.names())


def test_the_tables_of_the_recipes_follow_from_their_runs():
    made = runpy.run_path(str(ROOT / "benchmarks" / "recipes.py"))
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert made["recipe_tables"]() in page
    assert made["rank_table"]() in page
    assert made["repeated_table"]() in page
    assert made["ablation_table"]() in page
    assert made["class_weight_table"]() in page
    change = made["changes"](made["by_recipe"]()["mae"])
    assert (change < 0).all()
    by_set = change.groupby(level="data").mean()
    assert f"by {-100 * by_set.mean():.1f} % in the mean over the four data sets" in page
    assert f"by {-100 * change.mean():.1f} % over the six rows" in page


def test_what_is_said_of_rates_follows_from_their_runs():
    runs = pd.read_csv(ROOT / "results" / "recipes" / "rates.csv")
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    recipe, one = runs[runs["mode"] == "recipe"], ["data", "seed", "method"]
    usual = recipe[(recipe["rate"] == 0.001) & (recipe["head_rate"] == 0.01)]
    both = recipe.merge(usual, on=one, suffixes=("", "_usual"))
    slow = both["method"].isin(["coral", "proportional-odds"])
    for chosen, rate, head_rate, metric, said in (
        (~slow, 0.003, 0.01, "mae", "2.1 ± 1.1 %"),
        (~slow, 0.003, 0.01, "rps", "0.3 ± 0.8 %"),
        (slow, 0.001, 0.1, "mae", "12 ± 4 %"),
        (slow, 0.001, 0.1, "rps", "27 ± 7 %"),
    ):
        pair = both[chosen & (both["rate"] == rate) & (both["head_rate"] == head_rate)]
        lower = 100 * (1 - pair[metric] / pair[f"{metric}_usual"])
        by_data = lower.groupby(pair["data"]).mean()
        digits = 1 if "." in said else 0
        error = by_data.std() / len(by_data) ** 0.5
        assert f"{by_data.mean():.{digits}f} ± {error:.{digits}f} %" == said
        assert f"lower by {said}" in page or f"RPS by {said}" in page
    tables = runs[(runs["mode"] == "edition") & runs["data"].isin(recipe["data"])]
    mean = tables.groupby(["data", "method"])["mae"].mean()
    by_range = {}
    for rates in combinations(sorted(tables["rate"].unique()), 2):
        for heads_at in combinations(sorted(tables["head_rate"].unique()), 2):
            tried = tables[tables["rate"].isin(rates) & tables["head_rate"].isin(heads_at)]
            best = tried.groupby(["data", "method"])["mae"].min()
            by_range[rates, heads_at] = (best / mean).mean()
    ordered = sorted(by_range, key=by_range.__getitem__)
    assert len(ordered) == 18
    assert ordered[0] == ((0.003, 0.01), (0.01, 0.1))  # that of the second edition
    assert ordered[-1] == ((0.001, 0.003), (0.003, 0.01))  # that of before
    tune = read_grid(ROOT / "benchmarks" / "edition-2.toml").tune
    assert tuple(tuple(values) for values in tune.values()) == ordered[0]


def test_the_tables_of_certainty_follow_from_their_runs():
    made = runpy.run_path(str(ROOT / "benchmarks" / "certainty.py"))
    page = (ROOT / "docs" / "certainty.md").read_text(encoding="utf-8")
    assert made["coverage_table"]() in page
    assert made["set_table"]() in page
