"""The report of a run in a browser: it is drawn, it answers, and it fits."""

import io

import pytest
from PIL import Image

from layline.cli.report import write_report

pytestmark = pytest.mark.slow

CLASSES = ("very poor", "poor", "fair", "</script><b>good", "excellent " * 8)
DATA = "[...document.getElementById('layout-plot').data]"


@pytest.fixture(scope="module")
def report(write_run, tmp_path_factory):
    folder = write_run(
        tmp_path_factory.mktemp("runs") / "run",
        **{"classes": CLASSES, "samples": 300, "epochs": 5, "ranges": True, "never": 2},
    )
    write_report(folder, folder / "report.html")
    return folder / "report.html"


def points(page):
    """Where the samples are drawn, all of them in one set."""
    return page.evaluate(
        f"{DATA}.slice(0, 2).flatMap((t) => t.x.map((x, i) => `${{x}} ${{t.y[i]}}`))"
    )


def settled(page, text):
    """Wait until the page tells of a moment, and until its points stand still."""
    page.wait_for_function(
        "(t) => document.getElementById('moment').textContent.includes(t)", arg=text
    )
    page.wait_for_function("!document.getElementById('layout-plot').dataset.moving")


def colours(page):
    image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    return {colour for _, colour in image.resize((400, 2000)).getcolors(800_000)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_drawn(visit, report, scheme):
    page = visit(report, scheme=scheme)
    places = page.evaluate("document.querySelectorAll('[data-figure]').length")
    assert places == 14
    assert page.evaluate("document.querySelectorAll('.js-plotly-plot').length") == places + 1
    assert page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
    assert page.evaluate("document.images.length") > 0
    assert len(colours(page)) > 200


def test_the_slider_moves_the_points(visit, report):
    page = visit(report)
    settled(page, "epoch 4 of 5 (kept)")
    before = points(page)
    assert len(before) == 300
    page.locator("#epoch").focus()
    page.keyboard.press("Home")
    settled(page, "epoch 1 of 5")
    first = points(page)
    assert len(set(before) & set(first)) < 30
    page.keyboard.press("ArrowRight")
    settled(page, "epoch 2 of 5")
    assert points(page) != first
    assert page.locator("#epoch").get_attribute("aria-valuetext") == "epoch 2 of 5"


def test_playing_goes_on_to_the_last_epoch_and_stops(visit, report):
    page = visit(report, reduced_motion="reduce")
    page.locator("#epoch").fill("2")
    page.locator("#play").click()
    assert page.locator("#play").get_attribute("aria-pressed") == "true"
    settled(page, "epoch 5 of 5")
    page.wait_for_function(
        "document.getElementById('play').getAttribute('aria-pressed') === 'false'"
    )


def test_correct_and_misclassified_have_different_shapes_and_switches(visit, report):
    page = visit(report)
    right, wrong = page.evaluate(
        f"{DATA}.slice(0, 2).map((t) => [t.marker.symbol, t.customdata.map((c) => c[0] === c[1])])"
    )
    assert right[0] != wrong[0]
    assert all(right[1])
    assert not any(wrong[1])
    assert len(right[1]) + len(wrong[1]) == 300

    def shown(name):
        return page.evaluate(f"(n) => {DATA}.find((trace) => trace.name === n).visible", name)

    for switch, name in {
        "#show-correct": "correct",
        "#show-wrong": "misclassified",
        "#show-proxies": "proxies",
    }.items():
        assert shown(name) is True
        page.locator(switch).uncheck()
        assert shown(name) is False
        page.locator(switch).check()
        assert shown(name) is True


def test_the_test_part_is_shown_with_names(visit, report):
    page = visit(report)
    page.get_by_text("Test, epoch 4").click()
    settled(page, "Test, epoch 4")
    names = page.evaluate(f"{DATA}[0].customdata.map((c) => c[2])")
    assert all(name.startswith("photos/") for name in names)
    assert not page.locator("#player").is_visible()


def test_the_alarm_is_the_first_thing_to_see(visit, report):
    page = visit(report, width=390, height=844)
    box = page.locator("#alarms")
    assert "Never predicted: “fair”" in box.inner_text()
    assert box.bounding_box()["y"] < page.locator(".tiles").bounding_box()["y"]
    assert box.bounding_box()["y"] < 300


def test_a_threshold_changes_the_table_and_the_curve(visit, report):
    page = visit(report)

    def shown():
        curve = page.evaluate("document.getElementById('plot-roc').data.map((t) => t.y)")
        tables = page.locator("[data-threshold]").all()
        (table,) = (each.inner_text() for each in tables if each.is_visible())
        return table, curve

    (before, curve) = shown()
    assert "are fair or above" in before
    page.get_by_text("≥ poor").click()
    (after, other) = shown()
    assert "are poor or above" in after
    assert other != curve
    page.keyboard.press("ArrowRight")
    assert shown() == (before, curve)


def test_the_wanted_error_changes_how_many_a_person_must_see(visit, report):
    page = visit(report)
    said, slider = page.locator("#to-review"), page.locator("#wanted")
    slider.focus()
    page.keyboard.press("End")
    assert "nobody has to look" in said.inner_text()
    page.keyboard.press("Home")
    assert "To have at most 0.0" in said.inner_text()
    assert "of 300" in said.inner_text() or "all 300" in said.inner_text()
    risks = page.evaluate("report.referral.curves.error.data[0].y")
    wanted = round(50 * (min(risks) + risks[-1]), 1)  # less than all have, but not out of reach
    page.locator("#wanted-number").fill(str(wanted))
    decided = max((k for k, risk in enumerate(risks, 1) if risk <= wanted / 100 + 1e-6), default=0)
    assert 0 < decided < 300
    assert f"look at {300 - decided} of 300" in said.inner_text()
    page.get_by_text("MAE", exact=True).last.click()
    assert "classes off on average" in said.inner_text()


def test_the_theme_changes_the_page_and_its_plots(visit, report):
    page = visit(report)

    def looks():
        return page.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " document.getElementById('plot-loss').layout.font.color,"
            " document.getElementById('layout-plot').layout.font.color]"
        )

    before = looks()
    page.locator("#theme").click()
    assert all(a != b for a, b in zip(before, looks(), strict=True))
    page.locator("#theme").click()
    assert looks() == before


@pytest.mark.parametrize("width", [320, 768, 1440])  # 390: the alarm, a hundred classes
def test_nothing_sticks_out_to_the_side(visit, report, width):
    page = visit(report, width=width, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.wide, pre, .plot'))"
        ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML)"
    )
    assert outside == []


def test_a_page_of_a_head_without_proxies(visit, write_run, tmp_path):
    folder = write_run(tmp_path / "run", method="coral", images=False, epochs=1)
    write_report(folder, folder / "report.html")
    page = visit(folder / "report.html")
    assert page.evaluate(f"{DATA}.length") == 3
    assert not page.locator("#player").is_visible()
    assert "has no proxies" in page.locator("#proxies").inner_text()


def test_a_hundred_classes(visit, write_run, tmp_path):
    names = [f"age {age}" for age in range(100)]
    folder = write_run(tmp_path / "run", classes=names, samples=400, method="hard-semicircular")
    write_report(folder, folder / "report.html")
    page = visit(folder / "report.html", width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert len(colours(page)) > 200


def test_paper_is_light(visit, report):
    page = visit(report, scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert not page.locator(".contents").is_visible()
    assert not page.locator("#play").is_visible()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"
