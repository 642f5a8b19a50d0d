"""The two networks of the package: the perceptron for tables and the small convolutional one."""

import copy

import numpy as np
import pytest
import torch

from layline import backbones
from layline.backbones import MLP, ConvNet


def table(n=40, columns=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, columns, dtype=dtype, generator=generator) * 5 + 2


def images(n=4, height=32, width=32):
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8)


def test_statistics_agree_with_numpy_and_an_integer_weight_is_that_many_rows():
    x, weight = table(), torch.arange(40) % 4
    weighted, repeated = MLP(3, 4).fit_scale(x, weight), x.numpy().repeat(weight, axis=0)
    np.testing.assert_allclose(weighted.mean, repeated.mean(axis=0))
    np.testing.assert_allclose(weighted.scale, repeated.std(axis=0))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-300, 1e9 + 0.1])
def test_a_constant_column_becomes_exactly_zero(value):
    x = table()
    x[:, 1] = value
    mlp = MLP(3, 4, hidden=()).fit_scale(x)  # its body only standardizes
    assert mlp.scale[1] == 1
    assert (mlp.body(x)[:, 1] == 0).all()


def test_time_stamps_keep_their_seconds():
    seconds = torch.arange(60, dtype=torch.float64)[:, None]
    stamps = 1.7e9 + seconds  # float32 has only multiples of 128 here
    mlp = MLP(1, 4, hidden=()).fit_scale(stamps)
    loaded = MLP(1, 4, hidden=())
    loaded.load_state_dict(mlp.state_dict())
    expected = (seconds - seconds.mean()) / seconds.std(correction=0)
    for each in (mlp, copy.deepcopy(mlp).half().float(), loaded):
        torch.testing.assert_close(each.body(stamps), expected.float())


@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 30), (28, 28), (64, 48), (97, 16)])
def test_images_of_any_size_become_features(height, width):
    out = ConvNet(5)(images(height=height, width=width))
    assert out.shape == (4, 5)
    assert out.isfinite().all()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mlp", {"in_features": 0}, "in_features must be an integer, at least 1, got 0"),
        ("mlp", {"dim": -1}, "dim must be an integer, at least 1, got -1"),
        ("mlp", {"hidden": (50_000, 50_000)}, "hidden must be an integer from 1 to 10000, got 50"),
        ("mlp", {"hidden": 8}, "hidden must be a sequence, got 8: write"),
        ("convnet", {"channels": 0}, "channels must be an integer, at least 1, got 0"),
        ("convnet", {"size": 7}, "images must be at least 8×8 pixels, got 7×7"),
        ("convnet", {"depth": 10**30}, "depth must be an integer from 1 to 16"),
    ],
)
def test_a_wrong_argument_is_named(name, arguments, message):
    needed = {"dim": 4} | ({"in_features": 3} if name == "mlp" else {})
    with pytest.raises(ValueError, match=message):
        backbones.create(name, **needed | arguments)
