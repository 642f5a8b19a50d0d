import json

import pytest
import torch

from layline import backbones
from layline.backbones.last_layer import make_last_layer


def create(name, **options):
    return backbones.create(name, 4, **({"in_features": 3} if name == "mlp" else {}), **options)


def samples(name, n=8):
    return torch.rand(n, 3) if name == "mlp" else torch.randint(0, 256, (n, 3, 16, 16))


@pytest.mark.parametrize("name", ["mlp", "convnet"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dropout_changes_neither_the_names_nor_the_start_of_the_tensors(name, dropout):
    plain, other = [], []
    for made, options in ((plain, {}), (other, {"dropout": dropout})):
        torch.manual_seed(1)
        made.append(create(name, **options).eval())
    assert list(plain[0].state_dict()) == list(other[0].state_dict())
    assert torch.equal(plain[0](x := samples(name)), other[0](x))


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_units_are_dropped_in_training_only(name):
    module, x = create(name, dropout=0.5), samples(name)
    assert not torch.equal(module(x), module(x))
    assert torch.equal(module.eval()(x), module(x))


def test_what_is_not_dropped_is_scaled_so_that_the_mean_stays():
    last = make_last_layer(1000, 1000, dropout=0.2)
    with torch.no_grad():
        last.weight.copy_(torch.eye(1000))
        last.bias.zero_()
    out = last(torch.ones(1, 1000))
    assert set(out.unique().tolist()) == {0.0, 1.25}
    assert 0.7 < (out > 0).float().mean() < 0.9


def test_a_table_network_never_drops_columns():
    module, x = create("mlp", hidden=(), dropout=0.9), samples("mlp")
    assert torch.equal(module(x), module(x))
    first = create("mlp", hidden=(5, 5), dropout=0.9).hidden[0]
    assert torch.equal(first(x), first(x))


def test_a_hidden_layer_stands_between_the_body_and_the_features():
    module = create("convnet", hidden=7, dropout=0.5).eval()
    last = module.last
    assert {name: tuple(t.shape) for name, t in last.state_dict().items()} == {
        "hidden.weight": (7, module.width), "hidden.bias": (7,),
        "out.weight": (4, 7), "out.bias": (4,),
    }  # fmt: skip
    body = module.body(x := samples("convnet"))
    assert body.shape == (8, module.width)
    between = torch.nn.functional.gelu(body @ last.hidden.weight.T + last.hidden.bias)
    torch.testing.assert_close(module(x), between @ last.out.weight.T + last.out.bias)


@pytest.mark.parametrize(
    "options", [{"dropout": 0.3}, {"hidden": 5}, {"hidden": 5, "dropout": 1e-3}]
)
def test_a_last_layer_is_rebuilt_from_the_options(options):
    module = create("convnet", **options)
    again = backbones.create("convnet", 4, **json.loads(json.dumps(module.options)))
    assert repr(again) == repr(module)
    assert options.items() <= module.options.items()


def test_options_of_the_last_layer_leave_those_of_the_body_as_they_were():
    """By these, features that were extracted before are found again."""
    plain = create("convnet")
    assert plain.body_options == plain.options
    for options in ({"dropout": 0.3}, {"hidden": 5}, {"hidden": 5, "dropout": 0.3}):
        assert create("convnet", **options).body_options == plain.options
    other = backbones.create("resnet18", 4, drop_rate=0.1, drop_path_rate=0.1, hidden=3)
    assert other.body_options == backbones.create("resnet18", 4).options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": -1}, "hidden must be an integer, at least 0, got -1"),
        ({"dropout": 1}, "dropout must be below 1, got 1: nothing would be left"),
        ({"dropout": -0.1}, "dropout must be a finite number, at least 0, got -0.1"),
    ],
)
def test_a_wrong_last_layer_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        make_last_layer(4, 3, **options)
