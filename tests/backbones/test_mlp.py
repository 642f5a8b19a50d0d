"""The two networks of the package: the perceptron for tables and the small convolutional one."""

import copy
import json

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


# the encoding of columns


def mixed(n=60):
    """Two columns with many values, one with three, one with two, and a constant one."""
    x = table(n, columns=5)
    x[:, 2], x[:, 3], x[:, 4] = torch.arange(n) % 3, torch.arange(n) % 2, 7.0
    return x


def encoded_mlp(x, **options):
    """A perceptron whose encoding was trained."""
    mlp = MLP(x.shape[1], 4, hidden=(6,), **{"bins": 8, **options}).fit_scale(x).eval()
    torch.nn.init.normal_(mlp.encoding.weight)
    return mlp


def standardize(mlp, x):
    return ((x - mlp.mean) / mlp.scale).float()


def test_the_encoding_is_the_formula_at_quantiles_of_the_training_rows():
    x = mixed()
    mlp = encoded_mlp(x)
    assert mlp.options["encoded"] == [0, 1, 2]
    new = torch.cat([x, 3 * table(20, columns=5)])
    rows, expected = standardize(mlp, new), 0
    weight = mlp.encoding.weight.view(6, 3, 8)
    for place, column in enumerate((0, 1, 2)):
        own = standardize(mlp, x)[:, column].numpy()
        edges = np.unique(np.quantile(own, np.linspace(0, 1, 9), method="inverted_cdf"))
        for t in range(1, len(edges)):
            share = (rows[:, column] - edges[t - 1]) / (edges[t] - edges[t - 1])
            expected = expected + share.clamp(0, 1)[:, None] * weight[:, place, t - 1]
    torch.testing.assert_close(mlp.encoding(rows), expected)


def test_it_starts_as_the_perceptron_without_an_encoding_and_learns():
    x = mixed()
    encoded, plain = MLP(5, 4).fit_scale(x).eval(), MLP(5, 4, bins=0).fit_scale(x).eval()
    shared = {name: v for name, v in encoded.state_dict().items() if "encoding" not in name}
    plain.load_state_dict(shared, strict=False)
    assert torch.equal(encoded(x), plain(x))
    encoded(x).square().sum().backward()
    assert encoded.encoding.weight.grad.any()
    assert plain.options["encoded"] == []


def test_outside_of_the_training_rows_the_encoding_is_constant():
    x = mixed()
    mlp = encoded_mlp(x)
    highest = standardize(mlp, x).amax(dim=0, keepdim=True)
    torch.testing.assert_close(mlp.encoding(highest + 5), mlp.encoding(highest))
    lowest = standardize(mlp, x).amin(dim=0, keepdim=True)
    assert not mlp.encoding(lowest - 5).any()


def test_integer_weights_and_blocks_of_columns_give_the_same_bins():
    x, weight = mixed(), torch.arange(60) % 4
    weighted = MLP(5, 4).fit_scale(x, weight)
    repeated = MLP(5, 4).fit_scale(x.repeat_interleave(weight, dim=0))
    blocks = MLP(5, 4).fit_scale(iter([x[:, :2], x[:, 2:]]), weight)
    for other in (repeated, blocks):
        for name, value in weighted.encoding.named_buffers():
            torch.testing.assert_close(other.encoding.get_buffer(name), value)


def test_the_encoding_is_rebuilt_from_options_and_tensors():
    x = mixed()
    mlp = encoded_mlp(x)
    again = backbones.create("mlp", 4, **json.loads(json.dumps(mlp.options))).eval()
    again.load_state_dict(mlp.state_dict())
    assert torch.equal(again(x), mlp(x))
    assert torch.equal(copy.deepcopy(mlp)(x), mlp(x))
    double = copy.deepcopy(mlp).double()(x)
    torch.testing.assert_close(double, mlp(x).double(), rtol=1e-4, atol=1e-5)


def test_the_encoding_belongs_to_the_first_layer():
    mlp = MLP(5, 4, hidden=(6, 7)).fit_scale(mixed())
    first, second = mlp.layer_groups()
    assert {id(p) for p in first} == {
        id(mlp.encoding.weight),
        *map(id, mlp.hidden[0].parameters()),
    }
    assert [*map(id, second)] == [*map(id, mlp.hidden[2].parameters())]
    mlp.train_stages(1)
    assert not mlp.encoding.weight.requires_grad


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
        ("mlp", {"bins": -1}, "bins must be an integer from 0 to 1000, got -1"),
        ("mlp", {"encoded": (3,)}, "encoded must be an integer from 0 to 2, got 3"),
        ("convnet", {"channels": 0}, "channels must be an integer, at least 1, got 0"),
        ("convnet", {"size": 7}, "images must be at least 8×8 pixels, got 7×7"),
        ("convnet", {"depth": 10**30}, "depth must be an integer from 1 to 16"),
    ],
)
def test_a_wrong_argument_is_named(name, arguments, message):
    needed = {"dim": 4} | ({"in_features": 3} if name == "mlp" else {})
    with pytest.raises(ValueError, match=message):
        backbones.create(name, **needed | arguments)
