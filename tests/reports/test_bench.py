"""The page of a benchmark shows the numbers of its results."""

import json
import re

import numpy as np
import pytest

from layline.bench.statistics import critical_difference, rank_methods
from layline.reports.bench import (
    ranks_figure,
    render_bench,
    write_bench_figures,
    write_bench_report,
)
from layline.utils.validation import UserError

ODD = "</script><b>'\"&"


@pytest.fixture(scope="module")
def bench(long_frame, write_grid, tmp_path_factory):
    """The folder of a benchmark with a failed run and an odd name, its results and its page."""
    folder = tmp_path_factory.mktemp("bench")
    frame = long_frame(data=("lev", "era", ODD), failed=[("lev", "arc", "1")])
    write_grid(folder, frame)
    return folder, frame, render_bench(folder)


def test_the_page_has_every_number(bench):
    _, frame, page = bench
    body = page[: page.index('<script type="application/json"')]
    finished = frame[(frame["decode"] == "mode") & (frame["error"] == "")]
    for (_, method), group in finished.groupby(["data", "method"]):
        assert method in body
        assert f"{group['mae'].mean():.3f} ± {group['mae'].std(ddof=0):.3f}" in body
    assert "http" not in body
    assert "FloatingPointError: the loss is nan" in body


def test_names_cannot_break_the_page(bench):
    _, _, page = bench
    assert ODD not in page
    assert "&lt;/script&gt;" in page
    data = re.search(r'id="report-data">(.*?)</script>', page, flags=re.DOTALL)
    assert "figures" in json.loads(data.group(1))


def test_the_report_does_not_overwrite_results(bench):
    folder, _, _ = bench
    with pytest.raises(UserError, match="also an input"):
        write_bench_report(folder, folder / "results.csv")
    write_bench_report(folder, folder / "report.html")
    write_bench_report(folder, folder / "report.html")


def test_the_diagram_is_written(bench):
    folder, _, _ = bench
    write_bench_figures(folder)
    names = {path.name for path in (folder / "figures").iterdir()}
    assert names == {f"critical-difference-median.{suffix}" for suffix in ("png", "pdf")}


def test_the_figure_shows_ranks(long_frame):
    frame = long_frame()
    ranking = rank_methods(frame, "mae", "mode")
    width = critical_difference(len(ranking.ranks), ranking.num_data)
    figure = ranks_figure(ranking.ranks, width)
    (dots,) = figure["data"]
    np.testing.assert_allclose(dots["x"], ranking.ranks, atol=1e-5)
    assert dots["y"] == list(ranking.ranks.index)
    (band,) = figure["layout"]["shapes"]
    assert band["x1"] - band["x0"] == pytest.approx(width)
