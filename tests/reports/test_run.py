"""The report of a run: complete, self-contained, and safe with any names."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from layline import heads
from layline.heads.constrained_proxies import ConstrainedProxies
from layline.reports.run import (
    constant_baselines,
    read_run,
    render_run,
    tiles,
    write_run_report,
)
from layline.utils.validation import UserError

HOSTILE = ("</script><script>alert(1)</script>", "\"quotes' & <b>", "😀" * 3, "x" * 300, "@accent")
SECTIONS = {
    *("summary", "grades", "review", "layout", "learning"),
    *("errors", "probabilities", "proxies", "mistakes"),
}


@pytest.fixture(scope="module")
def folder(write_run, tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "usual")


@pytest.fixture(scope="module")
def usual(page, folder):
    return page(folder)


def test_every_section_and_figure_is_on_the_page(usual):
    assert usual.ids >= SECTIONS
    links = {attributes["href"] for tag, attributes in usual.tags if tag == "a"}
    assert links == {f"#{name}" for name in SECTIONS}
    places = {a["data-figure"]: a for _, a in usual.tags if "data-figure" in a}
    assert set(places) == set(usual.data["figures"])
    assert all(len(place["aria-label"]) > 20 for place in places.values())
    assert all(a.get("alt") for tag, a in usual.tags if tag == "img")


def test_nothing_is_fetched(usual):
    for _, attributes in usual.tags:
        for name in ("src", "href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    styles = re.search(r"<style>(.*?)</style>", usual.text, re.DOTALL).group(1)
    assert "url(" not in styles
    assert "@import" not in styles


def test_the_numbers_are_those_of_the_test(folder, usual):
    numbers = json.loads((folder / "test.json").read_text())
    shown = {tile["name"]: tile for tile in tiles(read_run(folder))}
    low, high = numbers["intervals"]["accuracy"]
    assert shown["Accuracy"]["value"] == f"{numbers['accuracy']:.1%}"
    assert shown["Accuracy"]["interval"] == f"{low:.1%}–{high:.1%}"
    assert f"{numbers['mae']:.3f}" in " ".join(usual.words)
    (heat,) = usual.data["figures"]["confusion"]["data"]
    assert [[cell[0] for cell in row] for row in heat["customdata"]] == numbers["confusion"]
    lists = [json.loads((folder / f"{name}.json").read_text()) for name in ("mistakes", "review")]
    assert usual.count("img") == sum(map(len, lists)) > 0


@pytest.mark.parametrize(
    ("metric", "words"), [("mae", "lowest validation MAE"), ("qwk", "highest validation QWK")]
)
def test_the_selection_names_the_metric_and_its_direction(folder, metric, words):
    run = read_run(folder)
    training = run.config.training.model_copy(update={"metric": metric})
    text = render_run(replace(run, config=run.config.model_copy(update={"training": training})))
    assert words in text
    assert "lowest validation error" not in text


def test_the_baseline_is_the_best_constant_prediction(folder):
    run = read_run(folder)
    baselines = constant_baselines(run)
    counts = np.bincount(run.ranks)
    assert baselines["accuracy"] == (run.classes[counts.argmax()], counts.max() / counts.sum())
    errors = [np.abs(run.ranks - rank).mean() for rank in range(3)]
    assert baselines["mae"] == (run.classes[int(np.argmin(errors))], pytest.approx(min(errors)))


@pytest.mark.parametrize("method", heads.HEADS)
def test_every_head_has_a_report(page, write_run, tmp_path, method):
    found = page(write_run(tmp_path / "run", method=method, epochs=2, samples=30, images=False))
    frames, figures = found.data["layout"]["validation"], found.data["figures"]
    head = heads.create(method, 3, 6)
    assert [frame["epoch"] for frame in frames] == [1, 2]
    assert (frames[0]["proxies"] is not None) == hasattr(head, "proxies")
    assert ("q" in figures) == isinstance(head, ConstrainedProxies)
    assert ("u" in figures) == (getattr(head, "smoothing", None) is not None)
    assert found.count("img") == 0


@pytest.mark.parametrize(
    "options",
    [
        {"classes": ("a", "b"), "epochs": 1, "dim": 1, "method": "hard-linear"},
        {"classes": [f"c{k}" for k in range(100)], "samples": 300, "dim": 2},
        {"recorded": False},
        {"samples": 8000, "epochs": 48, "dim": 32},
    ],
    ids=["few", "many classes", "not recorded", "large"],
)
def test_runs_of_all_sizes_have_a_report(page, write_run, tmp_path, options):
    found = page(write_run(tmp_path / "run", **options))
    assert found.ids >= SECTIONS
    assert len(found.text.encode()) < 8e6
    recorded = 0 if "recorded" in options else options.get("epochs", 3)
    assert len(found.data["layout"]["validation"]) == recorded


def test_alarms_come_first(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", never=1, samples=200))
    words = [text for text in found.words if text.strip()]
    (alarm,) = (i for i, text in enumerate(words) if "Never predicted: “mid”" in text)
    assert alarm < words.index("Accuracy")


def test_calibrated_runs_show_ranges(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", ranges=True))
    names = [trace.get("name") for trace in found.data["figures"]["reliability"]["data"]]
    assert "before calibration" in names
    shaded = sum(a.get("class") == "range" for tag, a in found.tags if tag == "rect")
    assert shaded == len(read_run(tmp_path / "run").review)


def test_names_are_never_markup(page, write_run, tmp_path):
    names = [f"</script><img src=x onerror=alert({i})>" for i in range(58)]
    names += ["\udcff\u2028.jpg", "=SUM(1)"]
    run = write_run(tmp_path / "run", classes=HOSTILE, names=names)
    found = page(run)
    assert found.ids >= SECTIONS
    assert not any("onerror" in attributes for _, attributes in found.tags)
    assert found.count("script") == 6
    found.text.encode("utf-8")  # lone surrogates could not be written
    assert read_run(run).names[-1] == "=SUM(1)"


def test_an_unfinished_run_and_an_output_that_is_an_input_are_refused(write_run, tmp_path):
    folder = write_run(tmp_path / "run")
    before = (folder / "predictions.csv").read_text()
    with pytest.raises(UserError, match="also an input"):
        write_run_report(folder, folder / "predictions.csv")
    assert (folder / "predictions.csv").read_text() == before
    (folder / "test.json").unlink()
    with pytest.raises(UserError, match="not finished"):
        read_run(folder)
