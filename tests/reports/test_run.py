"""The report as a page: complete, self-contained, and safe whatever the names are."""

import json
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from layline import heads
from layline.heads.constrained_proxies import ConstrainedProxies
from layline.reports.run import (
    constant_baselines,
    diagnosed,
    most_peaked,
    render_run,
    threshold_tables,
    tiles,
)
from layline.reports.run_figures import count_modes
from layline.reports.run_record import read_run

HOSTILE = ("</script><script>alert(1)</script>", "\"quotes' & <b>", "😀" * 3, "x" * 300, "@accent")
SECTIONS = {
    *("summary", "grades", "review", "layout", "learning"),
    *("errors", "probabilities", "proxies", "mistakes"),
}


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


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"ties": "first"}, "the first with the lowest validation MAE"),
        (
            {"metric": "qwk"},
            "that with the highest validation QWK, of equal ones that with the lowest loss",
        ),
    ],
)
def test_the_page_says_which_epoch_was_kept(usual, training, said):
    run = read_run(usual)
    config = run.config.model_copy(
        update={"training": run.config.training.model_copy(update=training)}
    )
    assert f"the epoch that was kept, {said}." in render_run(replace(run, config=config))


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


def test_mistakes_and_what_to_review_have_their_pictures(usual, usual_page):
    lists = [json.loads((usual / f"{name}.json").read_text()) for name in ("mistakes", "review")]
    assert all(lists)
    assert usual_page.count("img") == sum(map(len, lists))


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
    found = page(write_run(tmp_path / "run", method=method, epochs=2, samples=30, images=False))
    frames = found.data["layout"]["validation"]
    assert [frame["epoch"] for frame in frames] == [1, 2]
    head = heads.create(method, 3, 6)
    assert (frames[0]["proxies"] is not None) == hasattr(head, "proxies")
    assert ("q" in found.data["figures"]) == isinstance(head, ConstrainedProxies)
    assert ("u" in found.data["figures"]) == (getattr(head, "smoothing", None) is not None)


@pytest.mark.parametrize("num_classes", [2, 100])
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


@pytest.mark.parametrize(
    ("method", "similarity", "is_said"),
    [
        ("arc", {}, True),
        ("hard-semicircular", {}, True),
        ("hard-semicircular", {"similarity": "student-t"}, False),
        ("hard-linear", {}, False),
        ("unconstrained-cosine", {}, False),  # its proxies have lengths of their own
        ("classification", {}, False),
    ],
)
def test_only_where_directions_count_proxies_are_moved_to_the_rim(
    page, write_run, tmp_path, method, similarity, is_said
):
    folder = write_run(tmp_path / "run", method=method)
    settings = tomllib.loads((folder / "config.toml").read_text())
    settings["head"]["options"] = similarity
    (folder / "config.toml").write_text(tomli_w.dumps(settings))
    assert read_run(folder).by_direction == is_said
    assert ("drawn at the rim" in " ".join(page(folder).words)) == is_said


def test_a_single_epoch(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", epochs=1))
    assert len(found.data["layout"]["validation"]) == 1


def test_a_run_of_before_recording_has_a_report(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", recorded=False))
    words = " ".join(found.words)
    assert "recorded no layouts" in words
    assert "recorded no mistakes" in words
    assert "recorded no samples to review" in words
    assert "recorded no proxies" in words


def test_numbers_that_are_none_are_dashes(page, write_run, tmp_path):
    folder = write_run(tmp_path / "run")
    numbers = json.loads((folder / "test.json").read_text())
    for values in (numbers, *numbers["by_decoding"].values()):
        values |= {"qwk": None, "spearman": None, "kendall": None}
    (folder / "test.json").write_text(json.dumps(numbers))
    assert "–" in page(folder).words


def test_the_numbers_stand_with_their_intervals(usual):
    run = read_run(usual)
    low, high = run.numbers["intervals"]["accuracy"]
    assert tiles(run)[0]["interval"] == f"{low:.1%}–{high:.1%}"
    assert tiles(run)[-1]["interval"] == ""  # unimodality has none
    numbers = run.numbers | {"intervals": {"qwk": [-0.2, 0.1]}}
    shown = {tile["name"]: tile["interval"] for tile in tiles(replace(run, numbers=numbers))}
    assert shown["QWK"] == "-0.200 to 0.100"


def test_a_run_of_before_diagnoses_gets_one_from_its_predictions(page, write_run, tmp_path):
    kept = read_run(write_run(tmp_path / "new"))
    old = read_run(write_run(tmp_path / "old", recorded=False))
    assert "intervals" not in old.numbers
    found = diagnosed(old)
    for name in ("by_class", "thresholds"):
        for before, now in zip(kept.numbers[name], found[name], strict=True):
            assert now.keys() == before.keys()
            for key in before.keys() - {"class", "from", "curve"}:
                assert now[key] == pytest.approx(before[key], abs=1e-6)
    assert found["alarms"] == [text for text in kept.numbers["alarms"] if "training" not in text]
    assert "Before you use it" in page(tmp_path / "old").words


def test_alarms_stand_above_everything_else(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", never=1, samples=200))
    words = [text for text in found.words if text.strip()]
    places = [words.index(text) for text in ("Before you use it", "Accuracy")]
    assert places == sorted(places)
    (said,) = (text for text in words if text.startswith("Never predicted: “mid”"))
    assert places[0] < words.index(said) < places[1]


def test_without_alarms_there_is_no_box(page, write_run, tmp_path):
    folder = write_run(tmp_path / "run")
    numbers = json.loads((folder / "test.json").read_text())
    (folder / "test.json").write_text(json.dumps(numbers | {"alarms": []}))
    assert "alarms" not in page(folder).ids


def test_every_threshold_is_told_in_words(usual, usual_page):
    run = read_run(usual)
    tables = threshold_tables(run)
    assert [table["from"] for table in tables] == run.classes[1:]
    row = run.numbers["thresholds"][0]
    low, high = row["sensitivity_interval"]
    assert tables[0]["rates"][0] == {
        "name": "Sensitivity",
        "words": "Of 100 cases at or above, it finds",
        "of_100": f"{100 * row['sensitivity']:.0f}",
        "interval": f"{100 * low:.0f}–{100 * high:.0f}",
    }
    shown = [a["data-threshold"] for _, a in usual_page.tags if "data-threshold" in a]
    hidden = [a["data-threshold"] for _, a in usual_page.tags if "hidden" in a]
    assert (shown, hidden) == (["1", "2"], ["2"])


def test_where_all_samples_are_on_one_side_there_is_no_curve(page, write_run, tmp_path):
    folder = write_run(tmp_path / "run", classes=("a", "b"))
    lines = (folder / "predictions.csv").read_text().splitlines()
    same = [line.split(",") for line in lines[1:]]
    text = "\n".join([lines[0], *(",".join([name, "b", *rest]) for name, _, *rest in same)])
    (folder / "predictions.csv").write_text(text + "\n")
    numbers = json.loads((folder / "test.json").read_text())
    del numbers["intervals"]
    (folder / "test.json").write_text(json.dumps(numbers))
    found = page(folder)
    assert "roc" not in found.data["figures"]
    assert any("The curve is not drawn" in text for text in found.words)


def test_ranges_and_calibration_are_shown_where_they_are_known(page, write_run, tmp_path):
    found = page(write_run(tmp_path / "run", ranges=True))
    names = [trace.get("name") for trace in found.data["figures"]["reliability"]["data"]]
    assert names == ["perfectly calibrated", "before calibration", "this model", "samples"]
    words = " ".join(found.words)
    assert "held on the test" in words
    assert "made softer" in words
    assert "the range is shaded" in words
    run = read_run(tmp_path / "run")
    assert all(shown.ends is not None for shown in run.review)
    shaded = sum(a.get("class") == "range" for tag, a in found.tags if tag == "rect")
    assert shaded == len(run.review)


def test_columns_between_prediction_and_probabilities_are_passed_over(usual, tmp_path):
    folder = shutil.copytree(usual, tmp_path / "run")
    lines = (folder / "predictions.csv").read_text().splitlines()
    more = ["low,high,confidence,review", *["low,mid,0.9,no"] * (len(lines) - 1)]
    cut = [line.split(",", 3) for line in lines]
    text = [",".join([*start, new, rest]) for (*start, rest), new in zip(cut, more, strict=True)]
    (folder / "predictions.csv").write_text("\n".join(text) + "\n")
    before, after = read_run(usual), read_run(folder)
    assert after.classes == before.classes
    for name in ("ranks", "predicted", "proba"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


@pytest.mark.parametrize(
    ("source", "root", "name"),
    [
        ("folder", "/data/cars", "cars"),
        ("folder", "/data/cars.v2", "cars.v2"),
        ("table", "/data/wine.csv", "wine"),
        ("photo-quality", None, "photo-quality"),
        ("adience", "/data/faces", "adience"),  # a protocol has a name of its own
    ],
)
def test_a_page_is_called_after_its_data(usual, source, root, name):
    run = read_run(usual)
    options = run.config.data.model_copy(update={"source": source, "root": root and Path(root)})
    run = replace(run, config=run.config.model_copy(update={"data": options}))
    assert run.data_name == name
    assert f"<title>soft-poisson on {name} · Layline report</title>" in render_run(run)


def test_names_are_never_markup(page, write_run, tmp_path):
    names = [f"</script><img src=x onerror=alert({i})>" for i in range(59)] + ["\udcff\u2028.jpg"]
    folder = write_run(tmp_path / "run", classes=HOSTILE, names=names)
    found = page(folder)
    assert found.ids >= SECTIONS
    assert not any("onerror" in attributes for _, attributes in found.tags)
    assert found.count("script") == 6
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


def test_names_that_were_written_as_texts_for_spreadsheets_come_back(write_run, tmp_path):
    names = [f"=SUM({i})" for i in range(60)]
    classes = ("=low", "-mid", "@high")
    folder = write_run(tmp_path / "run", names=names, classes=classes)
    found = read_run(folder)
    assert (found.names, found.classes) == (names, [*classes])
    assert "\n./=SUM(0),'" in (folder / "predictions.csv").read_text()
