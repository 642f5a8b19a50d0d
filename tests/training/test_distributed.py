"""One process may run with one accelerator after another."""

import pytest

from layline.training.distributed import make_accelerator
from layline.training.recipes import resolve_config


def config(**training):
    data, device = {"source": "photo-quality"}, {"device": "cpu"}
    return resolve_config({"data": data, "training": device | training, "track": "tensorboard"})


def test_each_has_its_own_precision():
    for precision in ("no", "bf16", "no"):
        made = make_accelerator(config(precision=precision))
        assert (made.mixed_precision, made.device.type) == (precision, "cpu")


@pytest.mark.parametrize("is_tracked", [True, False])
def test_a_run_is_tracked_and_what_has_no_folder_is_not(tmp_path, is_tracked):
    made = make_accelerator(config(), tmp_path if is_tracked else None)
    assert len(made.log_with) == is_tracked
