"""A run is a straight line: each stage happens once, and few files of the package take part."""

import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import layline
from layline import backbones
from layline.data import splits
from layline.data.sources import files
from layline.training import recipes, run

SMALL = {"dim": 4, "epochs": 1, "workers": 0, "verbose": False, "report": False}


@pytest.fixture
def counted(monkeypatch):
    """Count the calls of functions."""

    def count(owner, name):
        counting = Mock(side_effect=getattr(owner, name))
        monkeypatch.setattr(owner, name, counting)
        return counting

    return count


@pytest.mark.parametrize("network", ["convnet", "resnet10t"])
def test_each_stage_happens_once(counted, photographs, tmp_path, network):
    counts = {
        "listing": counted(files, "list_images"),
        "split": counted(splits, "_divide"),
        "backbone": counted(backbones, "create"),
        "configuration": counted(run, "resolve_config"),
        "reading": counted(layline.data, "read"),
        "test": counted(run, "evaluate_split"),
    }
    elsewhere = counted(recipes, "resolve_config")
    photos = tmp_path / "photos"
    for split in photographs.iterdir():  # without prescribed splits
        shutil.copytree(split, photos, dirs_exist_ok=True)
    # the budget makes the planner time the network
    options = {"backbone": network, "weights": "none", "size": 32, "budget": "1h"}
    layline.train(photos, **SMALL, **options, out=tmp_path / "run")
    assert {stage: calls.call_count for stage, calls in counts.items()} == dict.fromkeys(counts, 1)
    elsewhere.assert_not_called()


def test_few_files_take_part_in_a_run(command, photographs, tmp_path):
    """Counted are files of the package in which a function is called, without imports.

    The method is a single head; a committee adds the files of its members.
    """
    options = (
        "--method",
        "classification",
        "--dim",
        4,
        "--epochs",
        1,
        "--workers",
        0,
        "--backbone",
        "convnet",
    )
    used, before = set(), sys.gettrace()
    assert command("train", photographs, *options, "--out", tmp_path / "first").exit_code == 0
    sys.settrace(lambda frame, *_: used.add(frame.f_code.co_filename))  # all is imported now
    try:
        command("train", photographs, *options, "--out", tmp_path / "second")
    finally:
        sys.settrace(before)
    package = str(Path(layline.__file__).parent)
    files = sorted(name for name in used if name.startswith(package) and name.endswith(".py"))
    assert 20 < len(files) <= 55, "\n".join(files)
