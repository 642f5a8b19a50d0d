"""``layline demo``: two runs, a table, a picture, and what comes with a grade."""

import json
import re

import pytest
from PIL import Image

from layline.cli.demo import METHODS
from layline.training import api

NUMBERS = ("accuracy", "mae", "within_one", "qwk", "rps", "unimodality_rate")
# few crops, but enough of them to calibrate on: a tenth of 240
FEW = {"per_class": 40, "validation_per_class": 5, "test_per_class": 5, "size": 16}
SMALL = [*(f"data.options.{name}={value}" for name, value in FEW.items()), "data.workers=0"]
SMALL += ["backbone.options.channels=4", "head.dim=4"]
OPTIONS = [word for setting in SMALL for word in ("--set", setting)] + ["--epochs", "1"]


def snapshot(folder):
    """Give what training would touch: the checkpoints, the models and the histories."""
    files = [*folder.glob("*/state/**/*"), *folder.glob("*/best.safetensors")]
    files += folder.glob("*/history.jsonl")
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


def stopped(config, folder, console):
    folder.path.mkdir(parents=True)
    folder.create(config)
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def stopped_and_shown(layline, tmp_path_factory):
    """A demo that was stopped at once and started again: its folder, and what was said twice."""
    out = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "train_run", stopped)
        first = layline("demo", "--out", out, *OPTIONS)
    return out, first, layline("demo", "--out", out, *OPTIONS)


@pytest.fixture(scope="module")
def shown(stopped_and_shown):
    """A demo that was run, and its folder."""
    out, _, found = stopped_and_shown
    assert found.code == 0, found.err
    return out, found


def test_the_table_has_both_methods_by_the_default_recipe(shown):
    out, found = shown
    lines = found.out.splitlines()
    assert METHODS == ("arc", "classification")
    assert {path.name for path in out.iterdir()} == {*METHODS, "demo.png"}
    assert "decoded by the median" in lines[0]
    assert "1 epoch (the recipe has 30: too long for a demo), seed 0" in " ".join(lines[:3])
    header = next(i for i, line in enumerate(lines) if line.split()[:1] == ["accuracy"])
    assert lines[header].split() == ["accuracy", "MAE", "within", "one", "QWK", "RPS", "unimodal"]
    for name, line in zip(METHODS, lines[header + 1 :], strict=False):
        numbers = json.loads((out / name / "test.json").read_text())
        assert line.split() == [name, *(f"{numbers[key]:.3f}" for key in NUMBERS)]
        config = (out / name / "config.toml").read_text()
        assert 'recipe = "modern"' in config
        assert f'method = "{name}"' in config
        assert name in (out / name / "report.html").read_text(encoding="utf-8")
    assert max(map(len, lines[:-4])) <= 100  # then come paths


def test_who_is_ahead_is_said_of_each_number(shown):
    out, found = shown
    numbers = [json.loads((out / name / "test.json").read_text()) for name in METHODS]
    text = " ".join(found.out.split())
    said = re.search(r"Ahead: arc in (.*?); classification in (.*?)\. One run each", text)
    titles = ("accuracy", "MAE", "within one", "QWK", "RPS", "unimodal")
    for key, title in zip(NUMBERS, titles, strict=True):
        gain = numbers[0][key] - numbers[1][key]
        gain = -gain if key in ("mae", "rps") else gain
        assert [title in names.split(", ") for names in said.groups()] == [gain > 0, gain < 0]


def test_images_come_with_grade_probability_range_and_truth(shown):
    out, found = shown
    lines = found.out.splitlines()
    start = lines.index("The first test image of each level:") + 2
    classes = ["very poor", "poor", "fair", "good", "very good", "excellent"]
    rows = (out / "arc" / "predictions.csv").read_text().splitlines()[1:]
    for place, true in enumerate(classes):
        cells = next(cells for row in rows if (cells := row.split(","))[1] == true)
        predicted, low, high = cells[2:5]
        share = float(cells[7 + classes.index(predicted)])
        shown_range = low if low == high else f"{low} – {high}"
        expected = ["abcdef"[place], predicted, f"{share:.2f}", shown_range, true]
        assert re.split(r"  +", lines[start + place].strip()) == expected
    review = json.loads((out / "arc" / "review.json").read_text())
    names = lines[lines.index("What a person should see first:") :]
    assert any(review[0]["name"] in line for line in names)
    ranges = {
        name: json.loads((out / name / "test.json").read_text())["ranges"] for name in METHODS
    }
    text = " ".join(found.out.split())
    for name, measured in ranges.items():
        (at_90,) = (each for each in measured if each["coverage"] == 0.9)
        assert f"in {at_90['measured']:.1%} of them for {name} " in text
    degrees = [int(number) for number in re.findall(r"(\d+)°", text)]
    assert degrees == sorted(degrees)
    assert (degrees[0], degrees[-1], len(degrees)) == (0, 180, 6)


def test_the_end_names_the_page_and_how_to_go_on(shown):
    out, found = shown
    places = [line.split("  ")[1] for line in found.out.splitlines()[-4:]]
    page, picture, *commands = places
    assert (page, picture) == (str(out / "arc" / "report.html"), str(out / "demo.png"))
    assert commands == ["layline train photos", "layline serve runs/photos-arc"]
    with Image.open(picture) as drawn:
        assert drawn.format == "PNG"
        assert min(drawn.size) > 600
        colours = drawn.convert("RGB").getcolors(drawn.width * drawn.height)
    assert len(colours) > 500  # photographs, not blank


def test_a_second_demo_trains_nothing_and_refuses_other_options(shown, layline, refused):
    out, found = shown
    before = snapshot(out)
    again = layline("demo", "--out", out, *OPTIONS)
    assert again.out == found.out
    assert "epoch 1/1" in found.err
    assert "epoch 1/1" not in again.err
    assert again.err.count("not trained again") == 2
    assert "out must be new, or made with the same options" in refused(
        "demo", "--out", out, *OPTIONS, "--seed", 1
    )
    assert snapshot(out) == before


def test_a_command_that_it_names_trains_the_same(shown, layline, tmp_path):
    out, found = shown
    (command,) = (line for line in found.err.splitlines() if line.startswith("2 of 2: "))
    words = command.removeprefix("2 of 2: layline ").split()
    words[words.index("--out") + 1] = str(tmp_path / "same")
    assert layline(*words).code == 0
    same, own = (folder / "test.json" for folder in (tmp_path / "same", out / "classification"))
    assert json.loads(same.read_text()) == json.loads(own.read_text())


def test_after_a_stop_the_same_command_goes_on(stopped_and_shown):
    out, first, second = stopped_and_shown
    assert first.code == 130
    assert "The same command goes on" in first.err
    assert first.out == ""
    assert second.code == 0, second.err
    assert (out / "demo.png").is_file()


def test_without_report_and_calibration_the_numbers_are_left(layline, tmp_path):
    settings = ("--set", "report.enabled=false", "--set", "recipe=paper")
    found = layline("demo", "--out", tmp_path / "demo", *OPTIONS, *settings)
    assert found.code == 0, found.err
    assert "Recipe paper" in found.out
    assert "ranges at" not in found.out
    assert "°" not in found.out
    assert not (tmp_path / "demo" / "demo.png").exists()


def test_a_mistake_is_told(layline, refused, tmp_path, monkeypatch):
    assert layline("demo", "--epochs", 0).code == 2
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused("demo", "--out", tmp_path / "file", *OPTIONS)
    for setting in ("data.source=folder", "head.method=sord"):
        place, _, got = setting.partition("=")
        sentence = refused("demo", "--out", tmp_path / "demo", "--set", setting)
        assert f"{place} must be left out, got {got}" in sentence
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "must run as one process" in refused("demo", "--out", tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
