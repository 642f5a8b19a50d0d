"""The page of a comparison in a browser: it is drawn, and it fits."""

import io

import pytest
from PIL import Image

import layline

pytestmark = pytest.mark.slow

NAMES = [f"a long name of a folder/</script><b>{index:05}.jpg" for index in range(60)]


@pytest.fixture(scope="module")
def report(write_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("compared")
    folders = [
        write_run(root / method, method=method, names=NAMES)
        for method in ("soft-poisson", "coral", "classification")
    ]
    return layline.compare(folders, out=root / "page.html", draws=100).report


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_drawn(visit, report, scheme):
    page = visit(report, scheme=scheme)
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot').length === 8")
    image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    assert len(image.resize((400, 2000)).getcolors(800_000)) > 200
    assert page.locator("#disagreement .card img").count() > 0


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_sticks_out_at_the_side(visit, report, width):
    page = visit(report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_changes_the_plots(visit, report):
    page = visit(report)
    colour = "document.getElementById('plot-difference-mae').layout.font.color"
    light = page.evaluate(colour)
    page.click("#theme")
    assert page.evaluate(colour) != light
