"""The page of a grid shows the numbers of its results, and nothing breaks it."""

import json
import re

import numpy as np
import pytest

from layline.bench.results import comparisons, read_results, select_runs, tables, write_tables
from layline.bench.statistics import critical_difference, rank_methods
from layline.bench.summaries import find_metric, intervals
from layline.reports.grid import (
    intervals_figure,
    ranks_figure,
    write_grid_figures,
    write_grid_report,
)


@pytest.fixture
def results(long_frame, write_grid, tmp_path):
    """A folder as a grid leaves it, with runs that were made up, and its frame."""
    frame = long_frame()
    grid = write_grid(tmp_path, frame)
    return tmp_path, frame, grid


def test_results_survive_their_file(results):
    folder, frame, _ = results
    again = read_results(folder)
    assert list(again["seed"]) == list(frame["seed"])
    assert list(again["error"]) == list(frame["error"].fillna(""))
    np.testing.assert_allclose(again["mae"], frame["mae"])


def test_the_page_has_every_method_data_set_and_number(results):
    folder, frame, grid = results
    write_grid_report(folder, folder / "report.html")
    page = (folder / "report.html").read_text()
    body = page[: page.index('<script type="application/json"')]
    for name in {*frame["method"], *frame["data"]}:
        assert name in body
    finished = frame[(frame["decode"] == grid.read_by()[0]) & (frame["error"] == "")]
    for (_, _), group in finished.groupby(["data", "method"]):
        assert f"{group['mae'].mean():.3f} ± {group['mae'].std(ddof=0):.3f}" in body
    assert "http://" not in body
    assert "https://" not in body
    assert len(page) < 8e6


def test_names_cannot_break_the_page(results, write_grid):
    folder, frame, _ = results
    odd = "</script><b>'\"&"
    first = frame["data"].iloc[0]
    write_grid(folder, frame.assign(data=frame["data"].replace(first, odd)))
    write_grid_report(folder, folder / "report.html")
    page = (folder / "report.html").read_text()
    assert odd not in page
    assert "&lt;/script&gt;" in page
    found = re.search(r'id="report-data">(.*?)</script>', page, flags=re.DOTALL)
    assert json.loads(found.group(1))["panels"]


def test_failures_are_listed(results, write_grid):
    folder, frame, _ = results
    wrong = frame["seed"] == frame["seed"].iloc[0]
    frame.loc[wrong, "error"] = "FloatingPointError: <nan>"
    frame.loc[wrong, "mae"] = np.nan
    write_grid(folder, frame)
    write_grid_report(folder, folder / "report.html")
    page = (folder / "report.html").read_text()
    assert "Runs that failed" in page
    assert "FloatingPointError: &lt;nan&gt;" in page


def test_pictures_are_written(results):
    folder, _, grid = results
    write_grid_figures(folder)
    names = {path.name for path in (folder / "figures").iterdir()}
    assert grid.read_by() == ["mode", "median"]
    assert names == {
        f"{kind}-median.{ending}"
        for kind in ("critical-difference", "mae")
        for ending in ("png", "pdf")
    }


def test_every_table_is_written_in_every_format(results):
    folder, _, grid = results
    made = dict(tables(select_runs(read_results(folder)), grid.read_by(), grid.against()))
    write_tables(folder / "tables", made)
    assert {path.name for path in (folder / "tables").iterdir()} == {
        f"{name}.{ending}" for name in made for ending in ("md", "tex", "csv")
    }
    assert f"mae-{grid.read_by()[0]}-against-{grid.against()}" in made


def test_a_metric_that_no_decoding_changes_is_compared_once(long_frame):
    names = [name for name, _ in comparisons(long_frame(), ["median", "mode"])]
    assert len(names) == len(set(names))
    assert {name for name in names if name.startswith("mae")} == {"mae-median", "mae-mode"}
    assert {name for name in names if name.startswith("rps")} == {"rps"}


def test_ranks_are_drawn_as_they_are(long_frame):
    ranking = rank_methods(long_frame(), "mae", "mode")
    figure = ranks_figure(ranking)
    (dots,) = figure["data"]
    assert dict(zip(dots["y"], dots["x"], strict=True)) == dict(ranking.ranks)
    (band,) = figure["layout"]["shapes"]
    width = critical_difference(len(ranking.ranks), ranking.num_data)
    assert band["x1"] - band["x0"] == pytest.approx(width)


def test_intervals_are_drawn_in_the_unit_of_the_title(long_frame):
    frame = long_frame()
    name = frame["data"].iloc[0]
    found = intervals(frame, "accuracy", "mode").loc[name]
    (dots,) = intervals_figure(found, find_metric("accuracy"))["data"]
    assert dots["x"] == sorted(dots["x"], reverse=True)
    for method, x, up, down in zip(
        dots["y"], dots["x"], dots["error_x"]["array"], dots["error_x"]["arrayminus"], strict=True
    ):
        assert x == pytest.approx(100 * found.loc[method, "mean"])
        assert x + up == pytest.approx(100 * found.loc[method, "high"])
        assert x - down == pytest.approx(100 * found.loc[method, "low"])
