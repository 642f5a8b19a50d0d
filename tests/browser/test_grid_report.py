"""The report of a grid in a browser: it is drawn, its choices work, and it fits."""

import io

import pytest
from PIL import Image

from layline.bench.results import read_results
from layline.bench.summaries import measured
from layline.cli.report import write_report

pytestmark = pytest.mark.slow

DATA = ("lev", "</script><b>era", "a data set with a long name " * 3)
METHODS = ("hard-linear", "classification", "soft-poisson-cosine", "coral")


@pytest.fixture(scope="module")
def report(long_frame, write_grid, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    write_grid(folder, long_frame(DATA, METHODS, failed=[("lev", "coral", "1")]))
    write_report(folder, folder / "report.html")
    return folder / "report.html"


def shown(page):
    """The names of the tables that can be seen in the section of tables."""
    return page.evaluate(
        "[...document.querySelectorAll('#tables [data-table]')]"
        ".filter((each) => each.offsetParent !== null).map((each) => each.dataset.table)"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_drawn(visit, report, scheme):
    page = visit(report, scheme=scheme)
    assert page.evaluate("document.querySelectorAll('.js-plotly-plot').length") == 2
    image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    assert len(image.resize((400, 2000)).getcolors(800_000)) > 200


def test_metric_and_decoding_choose_the_table(visit, report):
    page = visit(report)
    assert shown(page) == ["mae-mode"]
    page.select_option("#decode", "median")
    assert shown(page) == ["mae-median"]
    for metric, measure in measured(read_results(report.parent)).items():
        name = metric.replace("_", "-")
        page.select_option("#metric", name)
        assert shown(page) == [f"{name}-median" if measure.decoded else name]
        assert page.locator("#decode").is_disabled() != measure.decoded


def test_the_data_set_chooses_the_intervals(visit, report):
    page = visit(report)
    read = "[...document.getElementById('plot-interval').data[0].x]"
    pooled = page.evaluate(read)
    page.select_option("#panel", "2")
    page.wait_for_function(f"{read}.join() !== '{','.join(map(str, pooled))}'")
    assert len(page.evaluate(read)) == len(METHODS)


def test_the_theme_changes_the_page_and_the_plots(visit, report):
    page = visit(report)
    colours = """[getComputedStyle(document.body).backgroundColor,
        document.getElementById('plot-ranks').layout.font.color]"""
    light = page.evaluate(colours)
    page.click("#theme")
    dark = page.evaluate(colours)
    assert light[0] != dark[0]
    assert light[1] != dark[1]


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_sticks_out_at_the_side(visit, report, width):
    page = visit(report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
