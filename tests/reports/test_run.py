"""The report as a page: complete, self-contained, and safe whatever the names are."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from layline import heads
from layline.heads.constrained_proxies import ConstrainedProxies
from layline.reports.run import constant_baselines, most_peaked, tiles
from layline.reports.run_figures import count_modes
from layline.reports.run_record import read_run

HOSTILE = ("</script><script>alert(1)</script>", "\"quotes' & <b>", "😀" * 3, "x" * 300, "@accent")
SECTIONS = {"summary", "layout", "learning", "errors", "probabilities", "proxies", "mistakes"}


@pytest.fixture(scope="module")
def usual(write_run, tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "usual")


@pytest.fixture(scope="module")
def usual_page(page, usual):
    return page(usual)


def test_every_section_is_there_and_the_contents_lead_to_it(usual_page):
    assert usual_page.ids >= SECTIONS
    links = {attributes["href"] for tag, attributes in usual_page.tags if tag == "a"}
    assert links == {f"#{name}" for name in SECTIONS}
    assert ("html", "en") in [(tag, a.get("lang")) for tag, a in usual_page.tags]
    assert usual_page.count("h1") == 1


def test_nothing_is_fetched_from_anywhere(usual_page):
    for _, attributes in usual_page.tags:
        for name in ("src", "href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    styles = re.search(r"<style>(.*?)</style>", usual_page.text, re.DOTALL).group(1)
    assert "url(" not in styles
    assert "@import" not in styles


def test_every_figure_has_its_place_and_its_words(usual_page):
    places = {a["data-figure"]: a for tag, a in usual_page.tags if "data-figure" in a}
    assert set(places) == set(usual_page.data["figures"])
    assert all(len(place["aria-label"]) > 20 for place in places.values())
    assert all(a.get("alt") for tag, a in usual_page.tags if tag == "img")


def test_the_worst_mistakes_have_their_pictures(usual, usual_page):
    records = json.loads((usual / "mistakes.json").read_text())
    assert 0 < usual_page.count("img") == len(records)


def test_the_numbers_are_those_of_the_test(usual, usual_page):
    numbers = json.loads((usual / "test.json").read_text())
    words = " ".join(usual_page.words)
    assert f"{numbers['accuracy']:.1%}" in words
    assert f"{numbers['mae']:.3f}" in words
    assert numbers["decode"] in words
    (heat,) = usual_page.data["figures"]["confusion"]["data"]
    assert [[cell[0] for cell in row] for row in heat["customdata"]] == numbers["confusion"]


def test_a_constant_prediction_is_the_baseline(usual):
    run = read_run(usual)
    found = constant_baselines(run)
    counts = np.bincount(run.ranks)
    assert found["accuracy"] == (run.classes[counts.argmax()], counts.max() / counts.sum())
    errors = [np.abs(run.ranks - rank).mean() for rank in range(3)]
    assert found["mae"] == (run.classes[int(np.argmin(errors))], pytest.approx(min(errors)))
    assert "always" in tiles(run)[0]["baseline"]


@pytest.mark.parametrize("method", heads.HEADS)
def test_every_head_has_a_report(page, write_run, tmp_path, method):
    found = page(write_run(tmp_path / "run", method=method, epochs=2))
    frames = found.data["layout"]["validation"]
    assert [frame["epoch"] for frame in frames] == [1, 2]
    head = heads.create(method, 3, 6)
    assert (frames[0]["proxies"] is not None) == hasattr(head, "proxies")
    assert ("q" in found.data["figures"]) == isinstance(head, ConstrainedProxies)
    assert ("u" in found.data["figures"]) == (getattr(head, "smoothing", None) is not None)


@pytest.mark.parametrize("num_classes", [2, 17, 100])
def test_few_and_many_classes(page, write_run, tmp_path, num_classes):
    names = [f"c{k}" for k in range(num_classes)]
    found = page(write_run(tmp_path / "run", classes=names, samples=300))
    assert len(found.data["layout"]["classes"]) == num_classes


def test_a_table_has_no_pictures(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", images=False))
    assert found.count("img") == 0
    assert "photos/" in " ".join(found.words)


@pytest.mark.parametrize("dim", [1, 2])
def test_one_and_two_dimensions_are_exact(page, write_run, tmp_path, dim):
    found = page(write_run(tmp_path / "run", dim=dim, method="hard-linear"))
    words = " ".join(found.words)
    assert ("the picture is exact" if dim == 2 else "have one dimension") in words
    assert found.data["layout"]["validation"][0]["explained"] == 1


def test_a_single_epoch(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", epochs=1))
    assert len(found.data["layout"]["validation"]) == 1


def test_a_run_of_before_recording_has_a_report(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", recorded=False))
    words = " ".join(found.words)
    assert "recorded no layouts" in words
    assert "recorded no mistakes" in words
    assert "recorded no proxies" in words


def test_numbers_that_are_none_are_dashes(page, write_run, tmp_path):
    folder = write_run(tmp_path / "run")
    numbers = json.loads((folder / "test.json").read_text())
    for values in (numbers, *numbers["by_decoding"].values()):
        values |= {"qwk": None, "spearman": None, "kendall": None}
    (folder / "test.json").write_text(json.dumps(numbers))
    assert "–" in page(folder).words


def test_names_are_never_markup(page, write_run, tmp_path):
    names = [f"</script><img src=x onerror=alert({i})>" for i in range(59)] + ["\udcff\u2028.jpg"]
    folder = write_run(tmp_path / "run", classes=HOSTILE, names=names)
    found = page(folder)
    assert found.ids >= SECTIONS
    assert not any("onerror" in attributes for _, attributes in found.tags)
    assert found.count("script") == 5
    assert HOSTILE[0] in found.words
    found.text.encode("utf-8")  # half a character could not be written


def test_the_page_of_a_large_run_stays_small(page, write_run, tmp_path):
    folder = write_run(
        tmp_path / "run", classes=[f"level {k}" for k in range(8)], samples=8000, epochs=48, dim=32
    )
    found = page(folder)
    assert len(found.data["layout"]["validation"]) == 48
    assert len(found.text.encode()) < 8e6


def test_a_run_that_is_not_finished_is_refused(write_run, tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "test.json").unlink()
    with pytest.raises(ValueError, match=r"run must be finished, got .*run: .*--resume"):
        read_run(folder)


def test_predictions_are_those_that_the_run_wrote(usual):
    run = read_run(usual)
    lines = [line.split(",") for line in (usual / "predictions.csv").read_text().splitlines()]
    assert [run.classes[rank] for rank in run.predicted] == [line[2] for line in lines[1:]]
    proba = np.array([[0.4, 0.15, 0.45]])
    run = replace(run, proba=proba, ranks=np.array([0]), predicted=np.array([1]))  # the median
    (shown,) = most_peaked(run, count_modes(proba))
    assert (shown["peaks"], shown["predicted"]) == (2, 1)
