"""``layline export``, and ``layline predict`` with what it wrote."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from layline.cli import app
from layline.model.onnx_runtime import OnnxModel

pytestmark = pytest.mark.slow  # an export takes seconds


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def probabilities(rows):
    return np.array([[float(row[name]) for name in row if name.startswith("p_")] for row in rows])


@pytest.fixture(scope="module")
def exported(layline, run, tmp_path_factory):
    """A model for photographs, and what was said."""
    out = tmp_path_factory.mktemp("photos") / "model.onnx"
    found = layline("export", run, "--out", out)
    assert found.code == 0, found.err
    return out, found.out


@pytest.fixture(scope="module")
def graded(layline, graded_run, tmp_path_factory):
    """A calibrated model for a table, and what was said."""
    out = tmp_path_factory.mktemp("table") / "model.onnx"
    out.with_name("README.md").write_text("mine")
    found = layline("export", graded_run, "--out", out, "--coverage", 0.8)
    assert found.code == 0, found.err
    return out, found.out


def test_it_says_what_was_checked(exported, graded):
    assert "gives log_probs, probs, rank\n" in exported[1]
    assert "test samples of the run: probabilities differ by at most" in exported[1]
    assert "No low and high: 0 calibration samples, 9 are needed at 90%" in exported[1]
    assert "gives log_probs, probs, rank, low, high\n" in graded[1]
    assert "low and high hold the truth for 80%" in graded[1]


def test_a_card_stands_beside_it_unless_there_is_one(exported, graded):
    card = exported[0].with_name("README.md")
    assert card.read_text().startswith("---\nlibrary_name: layline\n")
    assert f"Model card: {card}" in exported[1]
    assert "No model card" in graded[1]
    assert graded[0].with_name("README.md").read_text() == "mine"


def test_photographs_are_predicted_as_by_the_run(layline, run, photos, exported):
    own, other = (rows_of(layline("predict", model, photos).out) for model in (run, exported[0]))
    assert [row["path"] for row in own] == [row["path"] for row in other]
    np.testing.assert_allclose(probabilities(own), probabilities(other), atol=5e-3)
    same = np.mean([a["predicted"] == b["predicted"] for a, b in zip(own, other, strict=True)])
    assert same > 0.95


def test_prepared_alike_photographs_have_the_same_probabilities(run, photos, exported):
    """What is left is the graph alone: the images have the size that it takes."""
    from layline.data.decoding import decode
    from layline.model.model_file import load

    model, opened = load(run), OnnxModel(exported[0])
    side = opened.description.inputs.size
    squares = [
        decode(path)[:1, :1].repeat(side, 0).repeat(side, 1) for path in (photos / "mid").iterdir()
    ]
    np.testing.assert_allclose(
        opened.predict_proba(squares), model.predict_proba(squares), atol=1e-5
    )


@pytest.mark.parametrize(
    "more", [(), ("--coverage", 0.9), ("--coverage", 0.8, "--by-class"), ("--review", "10%")]
)
def test_rows_are_predicted_as_by_the_run(layline, graded_run, grades, graded, more):
    own, other = (layline("predict", model, grades, *more) for model in (graded_run, graded[0]))
    assert (other.code, other.err) == (0, "")
    own, other = rows_of(own.out), rows_of(other.out)
    assert list(own[0]) == list(other[0])
    for name in ("path", "predicted"):
        assert [row[name] for row in own] == [row[name] for row in other]
    for name in {"low", "high", "review"} & set(own[0]):
        same = [a[name] == b[name] for a, b in zip(own, other, strict=True)]
        assert np.mean(same) > 0.99  # a calibration sample may lie on a bound: it is its own score
    np.testing.assert_allclose(probabilities(own), probabilities(other), atol=1e-5)


def test_the_decoding_can_be_chosen_and_the_file_too(layline, graded_run, grades, graded, tmp_path):
    for name, model in (("own", graded_run), ("other", graded[0])):
        layline("predict", model, grades, "--decode", "mean", "--out", tmp_path / f"{name}.jsonl")
    own, other = (
        [json.loads(line)["predicted"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("own.jsonl", "other.jsonl")
    )
    assert own == other


def test_torch_is_not_imported(photos, grades, exported, graded):
    code = (
        "import sys; from layline.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "sys.exit(str({'torch', 'torchvision', 'timm'} & set(sys.modules)))"
    )
    for model, samples in ((exported[0], photos), (graded[0], grades)):
        found = subprocess.run(
            [sys.executable, "-c", code, "predict", str(model), str(samples), "--review", "10%"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stderr.strip() == "set()"
        assert len(rows_of(found.stdout)) > 30


@pytest.mark.parametrize("more", [(), ("--workers", 0), ("--batch-size", 2)])
def test_bad_files_are_listed_and_the_others_predicted(layline, photos, exported, tmp_path, more):
    good = (photos / "low" / "0.png").read_bytes()
    (tmp_path / "a.png").write_bytes(good)
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "c.png").write_bytes(good)
    found = layline("predict", exported[0], tmp_path, *more)
    assert [Path(row["path"]).name for row in rows_of(found.out)] == ["a.png", "c.png"]
    assert "1 image cannot be read" in found.err
    assert found.code == 1
    assert layline("predict", exported[0], tmp_path, "--skip-bad", *more).code == 0


def test_an_image_that_needs_a_library_is_warned_of(exported, photos, tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes((photos / "low" / "0.png").read_bytes())
    (tmp_path / "b.heic").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.warns(UserWarning, match=r"1 file skipped: 1 \.heic; pip install") as caught:
        OnnxModel(exported[0]).predict(tmp_path)
    assert caught[0].filename == __file__


def test_standard_input_is_read(exported, photos):
    image = (photos / "high" / "0.png").read_bytes()
    found = CliRunner().invoke(app, ["predict", str(exported[0]), "-"], input=image)
    (row,) = rows_of(found.stdout)
    assert row["path"] == "<stdin>" or row["path"]
    assert abs(probabilities([row]).sum() - 1) < 1e-6


# --- what is refused


def test_a_damaged_file_is_refused(refused, exported, photos, tmp_path):
    whole = exported[0].read_bytes()
    path = tmp_path / "model.onnx"
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    assert "must be as it was written, got other bytes" in refused("predict", path, photos)
    path.write_bytes(whole[:middle])
    assert "must be a whole .onnx file, got" in refused("predict", path, photos)
    path.write_bytes(b"")
    assert "must be a whole .onnx file, got" in refused("predict", path, photos)
    path.unlink()
    assert "must be a model file, got" in refused("predict", path, photos)


def changed(path, out, **values):
    """Write a model with other metadata."""
    import onnx

    from layline.model.description import KEY

    model = onnx.load(path)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    del model.metadata_props[:]
    if values:
        said = json.loads(metadata[KEY]) | values
        model.metadata_props.add(key=KEY, value=json.dumps(said))
    onnx.save(model, out)
    return out


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "must be a model that layline export wrote, got another .onnx file"),
        ({"format": 99, "version": "9.9"}, "format must be at most 1, got 99, of layline 9.9"),
        ({"classes": ["a", "b"]}, "the graph must have 2 classes, got [3]"),
        ({"classes": ["a", "a", "b"]}, "classes must have different names"),
        ({"decode": "wild"}, "decode must be a known name, got 'wild'"),
        ({"kind": "films"}, "kind must be right"),
        ({"inputs": {"size": 3, "resize": 3}}, "the graph must take image with [3, 3, 3]"),
        ({"inputs": {"size": 3}}, "inputs must be how images are prepared"),
        ({"coverage": 0.9}, "the graph must give low"),
    ],
)
def test_a_file_that_does_not_describe_itself_is_refused(
    refused, exported, photos, tmp_path, values, sentence
):
    path = changed(exported[0], tmp_path / "model.onnx", **values)
    assert sentence in refused("predict", path, photos)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--device", "cuda"), "device must be cpu for an .onnx model, got cuda"),
        (("--coverage", 0.9), "must have been calibrated for ranges"),
        (("--coverage", 1.5), "coverage must be a number between 0 and 1, got 1.5"),
        (("--decode", "wild"), "decode must be a known name"),
    ],
)
def test_what_an_exported_model_cannot_do_is_said(refused, exported, photos, more, sentence):
    assert sentence in refused("predict", exported[0], photos, *more)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--out", "m.pt"), "out must end in .onnx for the format onnx, got m.pt"),
        (("--out", "m.onnx", "--format", "torch"), "out must end in .pt2 for the format torch"),
        (("--out", "m.onnx", "--format", "tflite"), "format must be a known name, got 'tflite'"),
        (("--out", "m.onnx", "--coverage", 1), "coverage must be a number between 0 and 1"),
        (("--out", "m.onnx", "--coverage", 0.999), "must have at least 999 calibration samples"),
        (("--out", "m.pt2", "--format", "torch", "--opset", 18), "opset must be left out"),
    ],
)
def test_a_wrong_argument_is_named(refused, graded_run, monkeypatch, tmp_path, more, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused("export", graded_run, *more)
    assert list(tmp_path.iterdir()) == []


def test_an_opset_that_is_not_written_is_refused(refused, table_run, tmp_path):
    sentence = refused("export", table_run, "--out", tmp_path / "model.onnx", "--opset", 99)
    assert "opset must be one that torch can write this model in, got 99: it wrote" in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_run_is_refused(refused, tmp_path):
    sentence = refused("export", tmp_path, "--out", tmp_path / "model.onnx")
    assert "run must be the folder of a trained run, got" in sentence
    sentence = refused("export", tmp_path / "nothing", "--out", tmp_path / "model.onnx")
    assert "it is not there" in sentence


def test_a_missing_library_is_named_with_its_extra(refused, run, exported, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    sentence = refused("export", run, "--out", tmp_path / "model.onnx")
    assert "export needs onnxruntime: pip install layline[export]" in sentence
    sentence = refused("predict", exported[0], tmp_path)
    assert "an .onnx model needs onnxruntime: pip install layline[export]" in sentence
