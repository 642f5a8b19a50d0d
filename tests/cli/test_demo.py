"""``layline demo``: five runs, five pictures and a table."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.cli.demo import METHODS


def snapshot(folder):
    """Give what training would touch: the checkpoints, the models and the histories."""
    files = [*folder.glob("*/state/**/*"), *folder.glob("*/best.safetensors")]
    files += folder.glob("*/history.jsonl")
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


@pytest.fixture
def fewer(monkeypatch):
    """The same photographs, few crops."""
    spec = data.SOURCES["photo-quality"]
    read = partial(spec.read, per_class=6, validation_per_class=2, test_per_class=4)
    monkeypatch.setitem(data.SOURCES.builtin, "photo-quality", replace(spec, read=read))


@pytest.mark.slow
@pytest.mark.usefixtures("fewer")
def test_the_demo_trains_five_methods_draws_them_and_does_not_train_them_again(
    layline, refused, tmp_path
):
    out = tmp_path / "demo"
    found = layline("demo", "--out", out, "--epochs", 1)
    assert found.code == 0, found.err
    names = ["hard-linear", "hard-semicircular", "soft-poisson", "soft-binomial", "classification"]
    assert list(METHODS) == names
    assert {path.name for path in out.iterdir()} == {*names, *(f"{name}.png" for name in names)}
    lines = found.out.splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("method"))
    assert lines[header].split() == ["method", "accuracy", "MAE", "within", "one", "QWK"]
    for name, line in zip(names, lines[header + 1 :], strict=False):
        numbers = json.loads((out / name / "test.json").read_text())
        shown = [numbers["by_decoding"]["mode"][key] for key in ("accuracy", "mae")]
        assert line.split()[:3] == [name, *(f"{value:.3f}" for value in shown)]
        assert name in (out / name / "report.html").read_text(encoding="utf-8")
        with Image.open(out / f"{name}.png") as picture:
            assert picture.format == "PNG"
            pixels = np.asarray(picture.convert("RGB"))
        assert min(pixels.shape[:2]) > 300
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50  # not blank: six colours, edges
    before = snapshot(out)
    again = layline("demo", "--out", out, "--epochs", 1)
    assert again.out == found.out
    assert snapshot(out) == before
    assert "epoch 1/1" in found.err
    assert "epoch 1/1" not in again.err
    assert "out must be new, or made with the same options" in refused(
        "demo", "--out", out, "--epochs", 2
    )
    assert snapshot(out) == before


@pytest.mark.usefixtures("fewer")
def test_a_mistake_is_told(layline, refused, tmp_path):
    assert layline("demo", "--epochs", 0).code == 2
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused("demo", "--out", tmp_path / "file", "--epochs", 1)
