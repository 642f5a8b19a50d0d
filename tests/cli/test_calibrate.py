"""``layline calibrate``: the certainty of a trained model, found out anew."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import layline as package
from layline.model.calibration import Calibration


@pytest.fixture
def mine(graded_run, tmp_path):
    return shutil.copytree(graded_run, tmp_path / "run")


def same(a: Calibration, b: Calibration) -> bool:
    close = np.isclose(a.temperature, b.temperature, rtol=1e-3)
    return bool(close) and np.allclose(a.scores, b.scores, atol=1e-3)


def test_the_held_out_parts_give_again_what_training_found(layline, mine):
    before = package.load(mine).description.calibration
    assert before.temperature != 1
    plain = package.load(mine)
    plain.spec = replace(plain.spec, calibration=Calibration())
    plain.save(mine / "best.safetensors")
    found = layline("calibrate", mine)
    assert f"Temperature {before.temperature:.3f}" in found.out
    assert f"Ranges from {len(before.scores)} samples" in found.out
    assert same(package.load(mine).description.calibration, before)


def test_other_data_calibrate_by_halves(layline, mine, grades):
    found = layline("calibrate", mine, "--root", grades)
    after = package.load(mine).description.calibration
    samples = len(grades.read_text().splitlines()) - 1
    assert abs(len(after.scores) - samples / 2) <= 4
    assert found.code == 0
    assert "Ranges at 90%" in layline("evaluate", mine).out


def test_without_a_part_kept_apart_the_temperature_is_fitted_and_the_cure_named(layline, run):
    found = layline("calibrate", run)
    assert "there are no ranges: train with --calibration 0.1" in found.err
    assert "Temperature 1.000" in found.out  # four validation samples are too few
