"""Comparisons: samples matched by name, paired differences, one page."""

import csv
import json
import shutil

import numpy as np
import pytest

import layline
from layline.reports.comparison import compare, render_comparison, verdict
from layline.utils.validation import UserError

DRAWS = 100


@pytest.fixture(scope="module")
def runs(write_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("compared")
    write_run(root / "soft", method="soft-poisson")
    write_run(root / "coral", method="coral")
    return root


def copy_run(run, place, change):
    """Copy a run with changed rows of its predictions."""
    shutil.copytree(run, place)
    path = place / "predictions.csv"
    with path.open(newline="") as file:
        rows = change(list(csv.DictReader(file)))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return place


def test_identical_runs_do_not_differ(runs):
    numbers = compare([runs / "soft", runs / "soft"], draws=DRAWS).numbers
    for metric, row in numbers["pairs"][0]["metrics"].items():
        assert (row["difference"], row["interval"], row["p"]) == (0.0, [0.0, 0.0], 1.0)
        assert verdict(metric, row) == "equal"


def test_samples_are_matched_by_name_in_any_order(runs, tmp_path):
    reverse = copy_run(runs / "coral", tmp_path / "coral", lambda rows: rows[::-1])
    both = compare([runs / "coral", reverse], draws=DRAWS).numbers["runs"]
    assert [run["name"] for run in both] == [str(runs / "coral"), str(reverse)]
    pairs = [
        compare([runs / "soft", other], draws=DRAWS).numbers["pairs"]
        for other in (runs / "coral", reverse)
    ]
    assert pairs[0] == pairs[1]


def test_the_counts_add_up(runs):
    numbers = compare([runs / "soft", runs / "coral"], draws=DRAWS).numbers
    right = numbers["pairs"][0]["right"]
    assert sum(right.values()) == 60
    soft, coral = (run["metrics"]["accuracy"] for run in numbers["runs"])
    assert right["both"] + right["first_only"] == round(60 * soft)
    assert right["both"] + right["second_only"] == round(60 * coral)


def test_groups_are_resampled_as_a_whole(runs, tmp_path):
    def add_groups(rows):
        return [row | {"group": str(i // 6)} for i, row in enumerate(rows)]

    def move_groups(rows):  # further columns come before the probabilities
        keys = ["path", "true", "predicted", "group"]
        return [{key: row[key] for key in dict.fromkeys([*keys, *row])} for row in add_groups(rows)]

    other = copy_run(runs / "coral", tmp_path / "coral", move_groups)
    numbers = compare([runs / "soft", other], draws=2000).numbers
    assert (numbers["over"], numbers["units"]) == ("groups", 10)


def test_runs_that_cannot_be_compared_are_refused(runs, write_run, tmp_path):
    def change_label(rows):
        rows[3]["true"] = {"low": "mid", "mid": "high", "high": "low"}[rows[3]["true"]]
        return rows

    other = copy_run(runs / "coral", tmp_path / "other", change_label)
    named = write_run(tmp_path / "named", classes=("a", "b", "c"), images=False)
    fewer = copy_run(runs / "coral", tmp_path / "fewer", lambda rows: rows[1:])
    for folder, message in (
        (other, "1 samples have different labels"),
        (named, "different classes: low, mid, high in soft and a, b, c in named"),
        (fewer, "with 59 in common"),
    ):
        with pytest.raises(UserError, match=message):
            compare([runs / "soft", folder], draws=DRAWS)
    with pytest.raises(UserError, match="at least two runs"):
        compare([runs / "soft"])


def test_the_page_shows_numbers_images_and_names_safely(write_run, tmp_path):
    names = [f"</script><b>{i}.jpg" for i in range(60)]
    folders = [
        write_run(tmp_path / method, method=method, names=names, classes=("low", "<i>mid", "high"))
        for method in ("soft-poisson", "coral", "classification")
    ]
    comparison = layline.compare(folders, out=tmp_path / "page.html", draws=DRAWS)
    page = comparison.report.read_text()
    assert page == render_comparison(comparison)
    figures = json.loads(page.split('id="report-data">')[1].split("</script>")[0])["figures"]
    assert {"difference-mae", "difference-nll"} <= set(figures)
    np.testing.assert_allclose(
        figures["difference-mae"]["data"][0]["x"],
        [pair["metrics"]["mae"]["difference"] for pair in comparison.numbers["pairs"]],
        atol=1e-5,
    )
    assert "data:image/jpeg;base64," in page
    assert "<b>1.jpg" not in page
    assert "<i>mid" not in page
    assert "multiple comparisons" in page


def test_a_page_does_not_overwrite_a_run(runs):
    before = (runs / "soft" / "test.json").read_text()
    with pytest.raises(UserError, match="also an input"):
        layline.compare(
            [runs / "soft", runs / "coral"], out=runs / "soft" / "test.json", draws=DRAWS
        )
    assert (runs / "soft" / "test.json").read_text() == before


@pytest.mark.parametrize(
    ("metric", "interval", "expected"),
    [
        ("mae", [-0.2, -0.1], "better"),
        ("mae", [0.1, 0.2], "worse"),
        ("accuracy", [0.1, 0.2], "better"),
        ("qwk", [-0.2, -0.1], "worse"),
        ("mae", [-0.1, 0.1], "not significant"),
        ("mae", None, "unknown"),
    ],
)
def test_the_verdict_knows_the_direction_of_a_metric(metric, interval, expected):
    assert verdict(metric, {"interval": interval}) == expected
