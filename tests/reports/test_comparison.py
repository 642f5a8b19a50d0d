"""Runs side by side: matched by name, compared in pairs, shown on one page."""

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image

import layline
from layline.reports.comparison import compare_runs, verdict
from layline.reports.comparison_page import render_comparison

DRAWS = 100


@pytest.fixture(scope="module")
def runs(write_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("compared")
    write_run(root / "soft", method="soft-poisson")
    write_run(root / "coral", method="coral")
    return root


def rewrite(path, change):
    """Write the lines of a file of predictions anew."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows = change(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def copied(runs, name, place, change):
    shutil.copytree(runs / name, place)
    rewrite(place / "predictions.csv", change)
    return place


def test_identical_runs_differ_by_exactly_nothing(runs):
    numbers = compare_runs([runs / "soft", runs / "soft"], DRAWS).numbers
    for metric, row in numbers["pairs"][0]["metrics"].items():
        assert (row["difference"], row["interval"], row["p"]) == (0.0, [0.0, 0.0], 1.0)
        assert verdict(metric, row) == "alike"
    assert numbers["agreement"][0]["share"] == 1.0


def test_samples_are_matched_by_name_whatever_their_order(runs, tmp_path):
    turned = copied(runs, "coral", tmp_path / "coral", lambda rows: rows[::-1])
    pairs = [
        compare_runs([runs / "soft", other], DRAWS).numbers["pairs"]
        for other in (runs / "coral", turned)
    ]
    assert pairs[0] == pairs[1]


def test_who_is_right_adds_up(runs):
    found = compare_runs([runs / "soft", runs / "coral"], DRAWS)
    right, agreement = (found.numbers["pairs"][0][key] for key in ("right", "agreement"))
    assert sum(right.values()) == np.sum(agreement) == 60
    soft, coral = (run["metrics"]["accuracy"] for run in found.numbers["runs"])
    assert right["both"] + right["first_only"] == round(60 * soft)
    assert right["both"] + right["second_only"] == round(60 * coral)
    assert np.trace(agreement) / 60 == found.numbers["agreement"][0]["share"]


def test_groups_are_drawn_as_a_whole(runs, tmp_path):
    def grouped(rows):
        keys = ("path", "true", "predicted")
        return [
            {**{key: row[key] for key in keys}, "group": str(i // 6)}
            | {key: value for key, value in row.items() if key.startswith("p_")}
            for i, row in enumerate(rows)
        ]

    other = copied(runs, "coral", tmp_path / "coral", grouped)
    numbers = compare_runs([runs / "soft", other], 2000).numbers
    assert (numbers["over"], numbers["units"]) == ("groups", 10)
    assert numbers["pairs"][0]["exact"]


def test_other_labels_and_other_classes_are_refused(runs, write_run, tmp_path):
    def relabelled(rows):
        rows[3]["true"] = {"low": "mid", "mid": "high", "high": "low"}[rows[3]["true"]]
        return rows

    other = copied(runs, "coral", tmp_path / "other", relabelled)
    with pytest.raises(ValueError, match=r"same labels in all runs, got 1 with others in other, s"):
        compare_runs([runs / "soft", other], DRAWS)
    named = write_run(tmp_path / "named", classes=("a", "b", "c"), images=False)
    with pytest.raises(ValueError, match="the same classes, got low, mid, high in soft and a, b"):
        compare_runs([runs / "soft", named], DRAWS)


def rooted(runs, name, place, root, source="folder"):
    """Copy a run as if it had been tested on the files of a folder, or on a table."""
    shutil.copytree(runs / name, place)
    text = (place / "config.toml").read_text()
    text = text.replace('source = "folder"', f'source = "{source}"\nroot = "{root}"')
    (place / "config.toml").write_text(text)
    return place


def test_tables_are_compared_by_their_content(runs, tmp_path):
    places = []
    for name in ("soft", "coral"):
        (tmp_path / f"{name}.csv").write_text("a,label\n1,low\n")
        places.append(rooted(runs, name, tmp_path / name, tmp_path / f"{name}.csv", "table"))
    compare_runs(places, DRAWS)
    (tmp_path / "soft.csv").write_text("a,label\n2,low\n")
    with pytest.raises(ValueError, match="got other content in"):
        compare_runs(places, DRAWS)


def test_the_same_names_with_other_content_are_refused(runs, tmp_path):
    places = []
    for name, light in (("soft", 10), ("coral", 200)):
        root = tmp_path / f"data-{name}" / "photos"
        root.mkdir(parents=True)
        for i in range(60):
            Image.new("RGB", (8, 8), (light, i, 0)).save(root / f"{i:05}.jpg")
        places.append(rooted(runs, name, tmp_path / name, root.parent))
    with pytest.raises(ValueError, match="got other content in"):
        compare_runs(places, DRAWS)
    shutil.rmtree(tmp_path / "data-coral")
    shutil.copytree(tmp_path / "data-soft", tmp_path / "data-coral")
    assert compare_runs(places, DRAWS).numbers["notes"] == []
    shutil.rmtree(tmp_path / "data-coral")
    (note,) = compare_runs(places, DRAWS).numbers["notes"]
    assert "their content was not seen" in note


def test_the_page_shows_numbers_pictures_and_names_safely(write_run, tmp_path):
    names = [f"</script><b>{i}.jpg" for i in range(60)]
    classes = ("low", "<i>mid", "high")
    folders = [
        write_run(tmp_path / method, method=method, names=names, classes=classes)
        for method in ("soft-poisson", "coral", "classification")
    ]
    found = layline.compare(folders, out=tmp_path / "page.html", draws=DRAWS)
    page = found.report.read_text()
    assert page == render_comparison(found)
    data = page.split('id="report-data">')[1].split("</script>")[0]
    figures = json.loads(data)["figures"]
    assert {"difference-mae", "difference-nll", "agreement-1", "agreement-2"} <= set(figures)
    assert figures["difference-mae"]["data"][0]["x"] == [
        pair["metrics"]["mae"]["difference"] for pair in found.numbers["pairs"]
    ]
    assert "data:image/jpeg;base64," in page
    assert "<b>1.jpg" not in page
    assert "<i>mid" not in page
    assert "Only soft-poisson is right" in page
    assert "of many some look real by chance" in page
    body = page.split("<style>")[0] + page.split("</style>")[1].split("<script")[0]
    assert "http" not in body


@pytest.mark.parametrize(
    ("metric", "interval", "said"),
    [
        ("mae", [-0.2, -0.1], "better"),
        ("mae", [0.1, 0.2], "worse"),
        ("accuracy", [0.1, 0.2], "better"),
        ("qwk", [-0.2, -0.1], "worse"),
        ("mae", [-0.1, 0.1], "not sure"),
        ("mae", None, "not known"),
    ],
)
def test_a_verdict_knows_which_way_is_better(metric, interval, said):
    assert verdict(metric, {"interval": interval}) == said
