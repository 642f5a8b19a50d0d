"""Small runs: in this process, and in others with injected faults."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from layline.cli import app
from layline.data.sources.photo_quality import read_photo_quality

OUTCOME = (
    *("best.safetensors", "history.jsonl", "test.json", "predictions.csv", "layouts/*.npz"),
    *("proxies.npz", "mistakes.json", "review.json"),
)


@pytest.fixture(scope="session")
def command():
    """Run the command in this process."""

    def run(*arguments):
        return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)

    return run


@pytest.fixture(scope="session")
def attempt():
    """Run the command in other processes with injected faults, see ``attempts.py``."""
    script = Path(__file__).with_name("attempts.py")
    with subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:

        def run(*arguments, **wanted):
            wanted["arguments"] = [*map(str, arguments)]
            process.stdin.write(json.dumps(wanted) + "\n")
            process.stdin.flush()
            return SimpleNamespace(**json.loads(process.stdout.readline()))

        yield run
        process.kill()  # other children of this process may hold its standard input open


@pytest.fixture(scope="session")
def outcome():
    """Read the bytes of the results of a run."""

    def read(folder):
        found = {name: sorted(Path(folder).glob(name)) for name in OUTCOME}
        assert all(found.values())
        return {name: [path.read_bytes() for path in paths] for name, paths in found.items()}

    return read


@pytest.fixture(scope="session")
def crops():
    """Options for a run on a few crops, every step of it saved."""
    sizes = ("per_class=8", "validation_per_class=3", "test_per_class=3")
    settings = [f"data.options.{size}" for size in sizes]
    settings += ["training.checkpoint_minutes=0", "report.mistakes=2", "report.review=2"]
    options = [part for setting in settings for part in ("--set", setting)]
    return ("photo-quality", *options, "--dim", 4, "--epochs", 3, "--batch-size", 16)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """A folder with an image file for each of a few crops."""
    root = tmp_path_factory.mktemp("photographs")
    found = read_photo_quality(per_class=6, validation_per_class=2, test_per_class=2, size=40)
    for part, indices in found.splits.by_name().items():
        for index in indices:
            place = root / part / str(found.ranks[index])
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(found.inputs.load(index)).save(place / f"{index}.png")
    return root


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """A table of 150 training rows, 66 to validate and 54 to test, in four uneven classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(270, 3))
    labels = np.digitize(x[:, 0] + 0.3 * x[:, 1] + 0.2 * rng.normal(size=270), [-1, 0.2, 0.9])
    parts = np.repeat(["train", "val", "test"], [150, 66, 54])
    path = tmp_path_factory.mktemp("table") / "table.csv"
    frame = pd.DataFrame(x, columns=[*"abc"]).assign(label=labels, split=parts)
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def options(table):
    """Options for a run on the table."""
    return ("table", "--root", table, "--dim", 4, "--epochs", 3, "--batch-size", 32)


@pytest.fixture(scope="session")
def whole(command, options, tmp_path_factory):
    """An undisturbed run on the table, every step of it saved."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    saved = ("--set", "training.checkpoint_minutes=0", "--out", folder)
    assert command("train", *options, *saved).exit_code == 0
    return folder
