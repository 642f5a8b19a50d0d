import copy

import numpy as np
import pytest
import torch

from layline import backbones
from layline.backbones import MLP


def table(n=40, columns=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, columns, dtype=dtype, generator=generator) * 5 + 2


def standardised(mlp, x):
    """What the first layer gets to see."""
    seen = []
    hook = next(m for m in mlp.modules() if isinstance(m, torch.nn.Linear))
    handle = hook.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    mlp(x)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("hidden", [(), (7,), (7, 5, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_become_features_of_the_wanted_width(hidden, dtype):
    out = MLP(3, 6, hidden=hidden).fit_scale(table(dtype=dtype))(table(dtype=dtype))
    assert out.shape == (40, 6)
    assert out.dtype == torch.float32


def test_the_last_layer_has_no_activation():
    out = MLP(3, 32).fit_scale(table())(table())
    assert (out < 0).any()
    assert (out > 0).any()


def test_training_columns_are_standardised():
    seen = standardised(MLP(3, 4).fit_scale(table()), table())
    assert seen.mean(dim=0).abs().max() < 1e-6
    torch.testing.assert_close(seen.square().mean(dim=0), torch.ones(3))


def test_an_integer_weight_is_that_many_equal_rows():
    x, weight = table(), torch.arange(40) % 4
    weighted = MLP(3, 4).fit_scale(x, weight)
    repeated = MLP(3, 4).fit_scale(x.repeat_interleave(weight, dim=0))
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.scale, repeated.scale)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-300, 1e9 + 0.1])
def test_a_constant_column_becomes_exactly_zero(value):
    x = table()
    x[:, 1] = value
    mlp = MLP(3, 4).fit_scale(x)
    assert mlp.scale[1] == 1
    assert (standardised(mlp, x)[:, 1] == 0).all()


def test_a_column_too_small_to_have_a_deviation_stays_finite():
    assert standardised(MLP(3, 4).fit_scale(table() * 1e-200), table() * 1e-200).isfinite().all()


def test_a_column_too_large_to_be_squared_stays_finite():
    x = table(dtype=torch.float32) * 1e30
    torch.testing.assert_close(
        standardised(MLP(3, 4).fit_scale(x), x).square().mean(dim=0), torch.ones(3)
    )


def casts():
    return {
        "as it is": lambda mlp: mlp,
        "float": lambda mlp: mlp.float(),
        "half and back": lambda mlp: mlp.half().float(),
        "copied": copy.deepcopy,
        "moved": lambda mlp: mlp.to("cpu", torch.float32),
        "loaded": lambda mlp: _loaded(mlp),
    }


def _loaded(mlp):
    fresh = MLP(1, 4)
    fresh.load_state_dict(mlp.state_dict())
    return fresh


@pytest.mark.parametrize("cast", casts().values(), ids=casts())
def test_time_stamps_keep_their_seconds(cast):
    seconds = torch.arange(60, dtype=torch.float64)[:, None]
    stamps = 1.7e9 + seconds  # float32 knows only multiples of 128 here
    mlp = cast(MLP(1, 4).fit_scale(stamps))
    expected = (seconds - seconds.mean()) / seconds.std(correction=0)
    torch.testing.assert_close(standardised(mlp, stamps), expected.float())


def test_the_network_can_run_in_double_precision():
    mlp = MLP(3, 4).fit_scale(table())
    assert mlp.double()(table()).dtype == torch.float64


def test_statistics_are_no_parameters_but_are_saved():
    mlp = MLP(3, 4)
    assert {"mean", "scale"} <= set(mlp.state_dict())
    assert not {"mean", "scale"} & {name for name, _ in mlp.named_parameters()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_features": 0}, "in_features must be an integer, at least 1, got 0"),
        ({"dim": -1}, "dim must be an integer, at least 1, got -1"),
        ({"hidden": (8, 0)}, "hidden must be an integer, at least 1, got 0"),
        ({"hidden": 8}, "hidden must be a sequence, got 8: write"),
    ],
)
def test_a_wrong_width_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(**{"in_features": 3, "dim": 4, **arguments})


def test_the_registry_builds_by_name():
    assert "mlp" in backbones.names()
    assert isinstance(backbones.create("mlp", in_features=3, dim=4, hidden=(5,)), MLP)
    assert all(spec.summary for spec in backbones.BACKBONES.values())


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="got 'mpl': did you mean mlp"):
        backbones.create("mpl", in_features=3, dim=4)


def test_statistics_agree_with_numpy():
    x = table()
    mlp = MLP(3, 4).fit_scale(x)
    np.testing.assert_allclose(mlp.mean, x.numpy().mean(axis=0))
    np.testing.assert_allclose(mlp.scale, x.numpy().std(axis=0))
