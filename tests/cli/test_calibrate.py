"""``layline calibrate``: a trained model is calibrated again."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import layline as package
from layline.model.calibration import Calibration


@pytest.fixture
def mine(graded_run, tmp_path):
    return shutil.copytree(graded_run, tmp_path / "run")


def test_the_splits_of_the_run_give_the_calibration_of_training_again(layline, mine):
    model = package.load(mine)
    before = model.description.calibration
    assert before.temperature != 1
    model.description = replace(model.description, calibration=Calibration())
    model.save(mine / "best.safetensors")
    found = layline("calibrate", mine)
    assert f"Temperature {before.temperature:.3f}" in found.out
    assert f"Ranges from {len(before.scores)} samples" in found.out
    after = package.load(mine).description.calibration
    assert after.temperature == pytest.approx(before.temperature, rel=1e-3)
    np.testing.assert_allclose(after.scores, before.scores, atol=1e-3)


def test_half_of_other_data_gives_the_ranges(layline, mine, grades):
    assert layline("calibrate", mine, "--root", grades).code == 0
    after = package.load(mine).description.calibration
    samples = len(grades.read_text().splitlines()) - 1
    assert abs(len(after.scores) - samples / 2) <= 4
    assert "Ranges at 90%" in layline("evaluate", mine).out


def test_without_a_calibration_split_there_are_no_ranges(layline, run, tmp_path):
    found = layline("calibrate", shutil.copytree(run, tmp_path / "run"))
    assert "no calibration split" in found.err
    assert "No ranges" in found.out
    assert "Temperature 1.000" in found.out  # four validation samples are too few
