"""From the files of the paper's data sets, in their official layouts, to predictions."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import layline
from layline import data
from layline.cli import app

pytestmark = pytest.mark.slow

NETWORK = ("--backbone", "convnet", "--weights", "none", "--set", "backbone.options.channels=4")
SHORT = ("--epochs", "1", "--dim", "8", "--workers", "0", "--batch-size", "64")


def call(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return result


def photograph(path, level, size=(14, 11)):
    """A small JPEG, lighter the higher its class; the name makes it different from others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(sum(map(ord, str(path.name))))
    pixels = rng.normal(40 + 25 * level, 12, (size[1], size[0], 3)).clip(0, 255)
    Image.fromarray(pixels.astype(np.uint8)).save(path, quality=90)


def whole_way(source, root, tmp_path, *options, partition=0, others=()):
    """Check, train, evaluate and predict; the test split must be the protocol's."""
    pairs = [option.split("=") for option in options]
    where = ("--root", root, "--partition", partition)
    checked = call(
        "data", "check", source, *where, *(x for o in options for x in ("--set", o)), "--json"
    )
    found = json.loads(checked.stdout)
    assert found["can_run"], found["why"]
    assert found["bad"] == []
    run = tmp_path / "run"
    settings = [x for option in options for x in ("--set", f"data.options.{option}")]
    trained = call("train", source, *where, *settings, *NETWORK, *SHORT, "--out", run)
    assert f"Classes, lowest first: {' < '.join(found['classes'])}" in trained.stderr
    for said in others:
        assert said in trained.stderr
    values = {name: {"true": True}.get(value, value) for name, value in pairs}
    dataset = data.read(source, root, partition, **values)
    test = dataset.splits.test
    with (run / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [dataset.inputs.names[i] for i in test]
    assert [row["true"] for row in rows] == [dataset.classes[dataset.ranks[i]] for i in test]
    numbers = json.loads((run / "test.json").read_text())
    assert numbers["samples"] == len(test) == sum(found["counts"]["test"])
    again = json.loads(call("evaluate", run, "--json").stdout)
    assert again["by_decoding"] == numbers["by_decoding"]
    paths = [dataset.inputs.path(i) for i in test]
    predicted = list(csv.DictReader(io.StringIO(call("predict", run, *paths).stdout)))
    columns = [f"p_{name}" for name in dataset.classes]
    own, others = ([[float(r[c]) for c in columns] for r in each] for each in (rows, predicted))
    np.testing.assert_allclose(own, others, atol=1e-6)
    np.testing.assert_allclose(layline.load(run).predict_proba(paths), own, atol=1e-6)
    return dataset, found


DECADES = ("1930s", "1940s", "1950s", "1960s", "1970s")


def write_decades(place, each):
    for level, decade in enumerate(DECADES):
        for i in range(each):
            photograph(place / decade / f"{decade}_{i:03}.jpg", level)


def test_historical_color_as_a_part_of_the_official_archive(tmp_path):
    top = tmp_path / "HistoricalColor-ECCV2012"
    write_decades(top / "data" / "imgs" / "decade_database", 20)
    said = ["not the published protocol"]
    _, found = whole_way("historical-color", top, tmp_path, "proportional=true", others=said)
    assert found["counts"]["test"] == [4] * 5  # 50 of 265


def write_adience(root, fold):
    """Albums of one person each: four in training and validation, the fold's own in test."""
    lists = {"train": [], "val": [], "test": []}
    for album in range(5):
        for age in range(8):
            for photo in range(3):
                path = f"{album}@N00/landmark_aligned_face.{album}.{age}{photo}_o.jpg"
                photograph(root / "aligned" / path, age, size=(16, 16))
                part = "test" if album == fold else "val" if photo == 2 else "train"
                lists[part].append(f"{path} {age}")
    place = root / "adience" / f"test_fold_is_{fold}"
    place.mkdir(parents=True)
    for part, lines in lists.items():
        (place / f"age_{part}.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("fold", [0, 4])
def test_adience_with_the_official_lists(tmp_path, fold):
    write_adience(tmp_path / "root", fold)
    dataset, found = whole_way("adience", tmp_path / "root", tmp_path, partition=fold)
    assert found["counts"] == {"train": [8] * 8, "validation": [4] * 8, "test": [3] * 8}
    folders = {
        name: {dataset.inputs.names[i].partition("/")[0] for i in part}
        for name, part in dataset.splits.by_name().items()
    }
    assert folders["test"] == {f"{fold}@N00"}
    assert not folders["test"] & (folders["train"] | folders["validation"])


@pytest.mark.parametrize("category", ["nature", "urban"])
def test_image_aesthetics_with_the_public_table_and_some_photographs_missing(tmp_path, category):
    root = tmp_path / "root"
    lines = ["#flickr_photo_id\tcategory\tbeauty_scores"]
    for number in range(240):
        kind = ("nature", "animals", "people", "urban")[number % 4]
        level = number // 4 % 5
        scores = [level + 1] * 3 + [max(1, level), min(5, level + 2)]
        lines.append(f"{number}\t{kind}\t{','.join(map(str, scores))}")
        if number % 24 >= 4:  # one in six of each category was deleted by its owner
            photograph(root / "img_files" / f"{number}.jpg", level)
    (root / "beauty-icwsm15-dataset.tsv").write_text("\n".join(lines) + "\n")
    said = ["The files of 10 of 60 photographs are missing."]
    option = f"category={category}"
    dataset, found = whole_way("image-aesthetics", root, tmp_path, option, partition=4, others=said)
    sizes = {name: len(part) for name, part in dataset.splits.by_name().items()}
    assert sizes == {"train": 37, "validation": 3, "test": 10}  # of 50: 5 % and 20 %, rounded up
    assert found["samples"] == 50
    assert dataset.classes[0] == "unacceptable"
