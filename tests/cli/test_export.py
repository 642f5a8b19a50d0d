"""``layline export``, and ``layline predict`` with the exported model."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest

from layline.model.description import KEY
from layline.model.model_file import load
from layline.model.onnx_runtime import OnnxModel

pytestmark = pytest.mark.slow  # an export takes seconds


def read(text):
    return pd.read_csv(io.StringIO(text))


@pytest.fixture(scope="module")
def exported(layline, run, tmp_path_factory):
    """A model for photographs, and the output of the command."""
    out = tmp_path_factory.mktemp("photos") / "model.onnx"
    found = layline("export", run, "--out", out)
    assert found.code == 0, found.err
    return out, found.out


@pytest.fixture(scope="module")
def graded(layline, graded_run, tmp_path_factory):
    """A calibrated model for a table, and the output of the command."""
    out = tmp_path_factory.mktemp("table") / "model.onnx"
    out.with_name("README.md").write_text("mine")
    found = layline("export", graded_run, "--out", out, "--coverage", 0.8)
    assert found.code == 0, found.err
    return out, found.out


def test_the_check_is_reported(exported, graded):
    assert "outputs log_probs, probs, rank\n" in exported[1]
    assert "probabilities differ by at most" in exported[1]
    assert "No ranges" in exported[1]
    assert "outputs log_probs, probs, rank, low, high\n" in graded[1]
    assert "coverage of 80%" in graded[1]


def test_a_model_card_is_written_unless_there_is_one(exported, graded):
    card = exported[0].with_name("README.md")
    assert card.read_text().startswith("---\nlibrary_name: layline\n")
    assert f"Model card: {card}" in exported[1]
    assert "No model card" in graded[1]
    assert graded[0].with_name("README.md").read_text() == "mine"


def test_photographs_are_predicted_as_by_the_run(layline, run, photos, exported):
    own, other = (read(layline("predict", model, photos).out) for model in (run, exported[0]))
    # images are resized by different libraries
    pd.testing.assert_frame_equal(own, other, atol=0.03)
    colors = np.random.default_rng(0).integers(0, 256, (9, 1, 1, 3), dtype=np.uint8)
    opened = OnnxModel(exported[0])
    size = opened.description.inputs.size
    squares = colors.repeat(size, 1).repeat(size, 2)
    expected = load(run).predict_proba(squares)
    np.testing.assert_allclose(opened.predict_proba(squares), expected, atol=1e-5)


@pytest.mark.parametrize(
    "more", [(), ("--coverage", 0.8, "--by-class"), ("--review", 0.1), ("--decode", "mean")]
)
def test_rows_are_predicted_as_by_the_run(layline, graded_run, grades, graded, more):
    own, other = (layline("predict", model, grades, *more) for model in (graded_run, graded[0]))
    assert (other.code, other.err) == (0, "")
    own, other = read(own.out), read(other.out)
    for name in {"low", "high", "review"} & set(own):
        assert (own.pop(name) == other.pop(name)).mean() > 0.99  # a sample may be on a bound
    pd.testing.assert_frame_equal(own, other, atol=1e-5)


def test_torch_is_not_imported(photos, grades, exported, graded):
    code = (
        "import sys; from layline.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "sys.exit(str({'torch', 'torchvision', 'timm'} & set(sys.modules)))"
    )
    for model, samples in ((exported[0], photos), (graded[0], grades)):
        found = subprocess.run(
            [sys.executable, "-c", code, "predict", str(model), str(samples), "--review", "0.1"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stderr.strip() == "set()"
        assert len(read(found.stdout)) > 30


def test_a_damaged_file_is_refused(refused, exported, photos, tmp_path):
    whole, path = exported[0].read_bytes(), tmp_path / "model.onnx"
    for content in (whole[: len(whole) // 2], b"", b"hello"):
        path.write_bytes(content)
        assert "is not an .onnx file, or is damaged" in refused("predict", path, photos)
    path.unlink()
    assert "There is no model file" in refused("predict", path, photos)


@pytest.mark.parametrize(
    "values",
    [
        {"classes": ["a", "b"]},
        {"decode": "wild"},
        {"inputs": {"kind": "images", "size": 3, "resize": 3}},
        {"coverage": 0.9},
        None,
    ],
)
def test_a_wrong_description_is_refused(refused, exported, photos, tmp_path, values):
    model, path = onnx.load(exported[0]), tmp_path / "model.onnx"
    (entry,) = model.metadata_props
    description = json.loads(entry.value)
    del model.metadata_props[:]
    message = "was not exported by Layline"
    if values is not None:
        model.metadata_props.add(key=KEY, value=json.dumps(description | values))
        message = "does not describe a valid model"
    onnx.save(model, path)
    assert message in refused("predict", path, photos)


def test_mistakes_are_reported_before_anything_is_written(
    refused, graded_run, tmp_path, monkeypatch
):
    assert "out must end in .onnx" in refused("export", graded_run, "--out", tmp_path / "m.pt")
    options = ("--out", tmp_path / "m.onnx", "--coverage", 0.999)
    assert "needs at least 999 calibration samples" in refused("export", graded_run, *options)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "needs jinja2" in refused("export", graded_run, *options[:2])
    assert list(tmp_path.iterdir()) == []


def test_bad_files_are_listed_and_the_others_predicted(layline, photos, exported, tmp_path):
    good = (photos / "low" / "0.png").read_bytes()
    for name, content in {"a.png": good, "b.png": b"", "c.png": good}.items():
        (tmp_path / name).write_bytes(content)
    found = layline("predict", exported[0], tmp_path, "--batch-size", 2)
    assert [Path(path).name for path in read(found.out)["path"]] == ["a.png", "c.png"]
    assert "b.png" in found.err
    assert found.code == 1
    assert layline("predict", exported[0], tmp_path, "--skip-bad").code == 0
