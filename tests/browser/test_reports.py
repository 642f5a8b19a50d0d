"""The reports in a browser: drawn without errors, interactive, and no wider than the screen."""

import io

import pytest
from PIL import Image

import layline
from layline.reports.bench import write_bench_report
from layline.reports.run import write_run_report

pytestmark = pytest.mark.slow

CLASSES = ("very poor", "poor", "fair", "</script><b>good", "excellent " * 8)
DATA_SETS = ("lev", "</script><b>era", "a data set with a long name " * 3)
METHODS = ("hard-linear", "classification", "soft-poisson-cosine", "coral")
NAMES = [f"a long name of a folder/</script><b>{index:05}.jpg" for index in range(60)]
TRACES = "[...document.getElementById('layout-plot').data]"
FIGURES = {"run": 14, "comparison": 6, "bench": 1}


@pytest.fixture(scope="module")
def pages(write_run, long_frame, write_grid, tmp_path_factory):
    """A page of each kind."""
    root = tmp_path_factory.mktemp("pages")
    options = {"classes": CLASSES, "samples": 300, "epochs": 5, "ranges": True, "never": 2}
    write_run_report(write_run(root / "run", **options), root / "run.html")
    runs = [
        write_run(root / method, method=method, names=NAMES)
        for method in ("soft-poisson", "coral", "classification")
    ]
    layline.compare(runs, out=root / "comparison.html", draws=100)
    (root / "bench").mkdir()
    write_grid(root / "bench", long_frame(DATA_SETS, METHODS, failed=[("lev", "coral", "1")]))
    write_bench_report(root / "bench", root / "bench.html")
    return {name: root / f"{name}.html" for name in FIGURES}


@pytest.fixture
def show(visit):
    """Open a report and wait for its figures."""

    def open_report(path, **options):
        page = visit(path.as_uri(), **options)
        page.wait_for_function("document.querySelectorAll('.js-plotly-plot').length > 0")
        return page

    return open_report


def settle(page, text):
    """Wait until the caption of the layout contains a text and its points stand still."""
    page.wait_for_function(
        "(t) => document.getElementById('moment').textContent.includes(t)", arg=text
    )
    page.wait_for_function("!document.getElementById('layout-plot').dataset.moving")


def points(page):
    return page.evaluate(
        f"{TRACES}.slice(0, 2).flatMap((t) => t.x.map((x, i) => `${{x}} ${{t.y[i]}}`))"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", FIGURES)
def test_everything_is_drawn(show, pages, kind, scheme):
    page = show(pages[kind], scheme=scheme)
    page.wait_for_function(
        f"document.querySelectorAll('.js-plotly-plot').length === {FIGURES[kind]}"
    )
    assert page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
    image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    assert len(image.resize((400, 2000)).getcolors(800_000)) > 200


@pytest.mark.parametrize("width", [320, 768, 1440])
@pytest.mark.parametrize("kind", FIGURES)
def test_nothing_is_wider_than_the_screen(show, pages, kind, width):
    page = show(pages[kind], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.wide, pre, .plot'))"
        ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML)"
    )
    assert outside == []


@pytest.mark.parametrize("kind", FIGURES)
def test_the_theme_changes_page_and_figures(show, pages, kind):
    page = show(pages[kind])
    colors = (
        "[getComputedStyle(document.body).backgroundColor,"
        " document.querySelector('.js-plotly-plot').layout.font.color]"
    )
    before = page.evaluate(colors)
    page.locator("#theme").click()
    assert all(a != b for a, b in zip(before, page.evaluate(colors), strict=True))


def test_the_slider_moves_the_points_and_playing_ends(show, pages):
    page = show(pages["run"], reduced_motion="reduce")
    settle(page, "epoch 4 of 5")
    before = points(page)
    assert len(before) == 300
    page.locator("#epoch").focus()
    page.keyboard.press("Home")
    settle(page, "epoch 1 of 5")
    assert len(set(before) & set(points(page))) < 30
    page.locator("#play").click()
    settle(page, "epoch 5 of 5")
    page.wait_for_function(
        "document.getElementById('play').getAttribute('aria-pressed') === 'false'"
    )
    page.get_by_text("Test, epoch 4").click()
    settle(page, "Test, epoch 4")
    names = page.evaluate(f"{TRACES}[0].customdata.map((c) => c[2])")
    assert all(name.startswith("photos/") for name in names)


def test_a_threshold_changes_the_table_and_the_curve(show, pages):
    page = show(pages["run"])

    def state():
        curve = page.evaluate("document.getElementById('plot-roc').data.map((t) => t.y)")
        tables = page.locator("[data-threshold]").all()
        (table,) = (each.inner_text() for each in tables if each.is_visible())
        return table, curve

    before, curve = state()
    assert "are fair or above" in before
    page.get_by_text("≥ poor").click()
    after, other = state()
    assert "are poor or above" in after
    assert other != curve


def test_the_wanted_error_gives_the_number_of_cases_to_review(show, pages):
    page = show(pages["run"])
    answer = page.locator("#to-review")
    risks = page.evaluate("report.referral.curves.error.data[0].y")
    wanted = round(50 * (min(risks) + risks[-1]), 1)
    page.locator("#wanted-number").fill(str(wanted))
    decided = max((k for k, risk in enumerate(risks, 1) if risk <= wanted / 100 + 1e-6), default=0)
    assert 0 < decided < 300
    assert f"{300 - decided} of 300" in answer.inner_text()


def test_the_bench_page_shows_the_chosen_table(show, pages):
    page = show(pages["bench"])

    def tables():
        return page.evaluate(
            "[...document.querySelectorAll('#tables [data-table]')]"
            ".filter((each) => each.offsetParent !== null).map((each) => each.dataset.table)"
        )

    assert tables() == ["mae-mode"]
    page.select_option("#decode", "median")
    assert tables() == ["mae-median"]
    page.select_option("#metric", "rps")
    assert tables() == ["rps"]
    assert page.locator("#decode").is_disabled()
