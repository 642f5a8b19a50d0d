"""What the tests of commands share: a way to call them, and small photographs."""

from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from layline.backbones import create
from layline.cli import app

LEVELS = ("low", "mid", "high")
SPLITS = ("--folds", 0)  # a validation split, although the data are small


class Called(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


def call(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # a user would see a traceback
    return Called(result.exit_code, result.stdout, result.stderr)


def refuse(*arguments):
    """Call what must fail, and give the one sentence that stands last on stderr."""
    found = call(*arguments)
    *before, sentence = found.err.splitlines()
    assert found.code == 1
    assert found.out == ""
    assert sentence.startswith("layline: ")
    assert not any(line.startswith("layline: ") or "Traceback" in line for line in before)
    return sentence


def write_photos(root, each=12, names=LEVELS):
    """A folder per class of images that get lighter from class to class."""
    rng = np.random.default_rng(0)
    for rank, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.normal(60 + 70 * rank, 20, (18, 20, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.fixture(scope="session")
def layline():
    return call


@pytest.fixture(scope="session")
def refused():
    return refuse


@pytest.fixture(scope="session")
def make_photos():
    return write_photos


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="session")
def small():
    """Arguments that make a run small."""
    network = ["--backbone", "convnet", "--dim", "4", "--set", "backbone.options.channels=8"]
    return [*network, "--epochs", "2", "--workers", "0"]


@pytest.fixture(scope="session")
def run(photos, small, tmp_path_factory):
    """The folder of a finished run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    classes = ("--classes", ",".join(LEVELS))
    found = call("train", "folder", "--root", photos, *classes, *small, "--out", out)
    assert found.code == 0, found.err
    return out


@pytest.fixture(scope="session")
def frozen_run(photos, tmp_path_factory):
    """A run on the frozen features of a small network whose weights are in a file."""
    folder = tmp_path_factory.mktemp("frozen")
    save_file(create("mobilenetv3_small_050", 4).state_dict(), folder / "weights.safetensors")
    network = ("--backbone", "mobilenetv3_small_050", "--set", "data.size=32", "--dim", 4)
    weights = ("--weights", folder / "weights.safetensors", "--freeze")
    common = ("--classes", ",".join(LEVELS), "--epochs", 2, "--workers", 0, *SPLITS)
    out = ("--out", folder / "run")
    found = call("train", "folder", "--root", photos, *network, *weights, *common, *out)
    assert found.code == 0, found.err
    return folder / "run"


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table.csv"
    rows = [f"{i % 3 + i / 100},{'red' if i % 2 else 'blue'},grade {i % 3}" for i in range(60)]
    path.write_text("\n".join(["size,colour,label", *rows]) + "\n")
    return path


@pytest.fixture(scope="session")
def table_run(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "table"
    settings = ("--dim", 4, "--epochs", 2, *SPLITS)
    found = call("train", "table", "--root", table, *settings, "--out", out)
    assert found.code == 0, found.err
    return out


@pytest.fixture(scope="session")
def grades(tmp_path_factory):
    """A table that is large enough for a calibration part."""
    path = tmp_path_factory.mktemp("grades") / "grades.csv"
    rng = np.random.default_rng(0)
    rows = [f"{i % 4 + rng.normal():.3f},{rng.normal():.3f},{i % 4}" for i in range(400)]
    path.write_text("\n".join(["size,weight,label", *rows]) + "\n")
    return path


@pytest.fixture(scope="session")
def graded_run(grades, tmp_path_factory):
    """The folder of a run whose model is calibrated."""
    out = tmp_path_factory.mktemp("runs") / "graded"
    found = call("train", grades, "--dim", 4, "--epochs", 3, *SPLITS, "--out", out)
    assert found.code == 0, found.err
    return out
