"""What all backbones share: the last layer, stages that are frozen, normalization of images."""

import copy
import json

import pytest
import torch

from layline import backbones
from layline.backbones import ConvNet

RUN = ("resnet18", "tf_efficientnet_lite0", "convnextv2_atto", "vit_tiny_patch16_224")


def create(name, **options):
    if name == "mlp":
        return backbones.create("mlp", 4, **{"in_features": 3, "hidden": (5, 6, 7), **options})
    return backbones.create(name, 4, **({} if name == "convnet" else {"size": 32}), **options)


def samples(name):
    return torch.rand(8, 3) if name == "mlp" else torch.randint(0, 256, (8, 3, 32, 32))


def on_meta(name):
    with torch.device("meta"):
        return create(name) if name in backbones.names() else backbones.create(name, 4)


def test_white_and_black_are_measured_against_mean_and_deviation():
    net = ConvNet(2, mean=(0.1, 0.2, 0.3), std=(0.2, 0.5, 1.0))
    white = net.normalize(torch.full((1, 3, 8, 8), 255, dtype=torch.uint8))
    black = net.normalize(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    torch.testing.assert_close(white[0, :, 0, 0], torch.tensor([4.5, 1.6, 0.7]))
    torch.testing.assert_close(black[0, :, 0, 0], torch.tensor([-0.5, -0.4, -0.3]))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlp", {"hidden": ()}),
        ("mlp", {"hidden": (7, 6), "dropout": 0.1}),
        ("mlp", {"encoded": (0, 2), "bins": 4}),
        ("convnet", {"channels": 6, "depth": 2, "mean": (0.1, 0.2, 0.3), "crop": 0.9}),
        ("mobilenetv3_small_050", {"drop_rate": 0.3, "drop_path_rate": 0.1, "hidden": 7}),
        ("mobilenetv3_small_050", {"drop_rate": 0.3, "dropout": 0.0}),
        ("vit_tiny_patch16_224", {"drop_rate": 0.3, "drop_path_rate": 0.1}),
    ],
)
def test_a_network_is_rebuilt_from_its_options(name, options):
    module = create(name, **options).eval()
    again = backbones.create(name, 4, **json.loads(json.dumps(module.options))).eval()
    again.load_state_dict(module.state_dict())
    x = samples(name)
    assert again.options == module.options
    assert repr(again) == repr(module)  # with every dropout and every share
    assert torch.equal(again(x), module(x))


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_dropout_changes_neither_the_names_nor_the_initial_values_of_the_tensors(name):
    made = []
    for options in ({}, {"dropout": 0.5}):
        torch.manual_seed(1)
        made.append(create(name, **options).state_dict())
    assert list(made[0]) == list(made[1])
    assert all(torch.equal(tensor, made[1][key]) for key, tensor in made[0].items())


def test_a_hidden_layer_stands_between_the_body_and_the_features():
    module = create("convnet", hidden=7, dropout=0.5).eval()
    last, body = module.last, module.body(x := samples("convnet"))
    assert body.shape == (8, module.width)
    between = torch.nn.functional.gelu(body @ last.hidden.weight.T + last.hidden.bias)
    torch.testing.assert_close(module(x), between @ last.out.weight.T + last.out.bias)


def test_options_of_the_last_layer_leave_those_of_the_body_as_they_were():
    plain = create("convnet")
    assert plain.body_options == plain.options
    assert create("convnet", hidden=5, dropout=0.3).body_options == plain.options
    other = backbones.create("resnet18", 4, drop_rate=0.1, drop_path_rate=0.1, hidden=3)
    assert other.body_options == backbones.create("resnet18", 4).options


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("vgg16_bn", 14, "features."),
        ("resnet18", 9, ("conv1.", "bn1.")),
        ("tf_efficientnet_lite0", 17, ("conv_stem.", "bn1.")),
        ("convnextv2_atto", 13, "stem."),
        ("vit_tiny_patch16_224", 13, ("cls_token", "pos_embed", "patch_embed.")),
        ("mlp", 3, "hidden."),
    ],
)
def test_every_parameter_is_in_one_group_and_a_normalization_is_no_layer_of_its_own(
    name, count, first
):
    module = on_meta(name)
    groups = module.layer_groups()
    names = {
        id(parameter): key.removeprefix("network.")
        for key, parameter in module.named_parameters()
        if not key.startswith("last.")
    }
    assert sorted(id(p) for group in groups for p in group) == sorted(names)
    assert len(groups) == count >= len(module.layer_groups(coarse=True))
    assert all(names[id(p)].startswith(first) for p in groups[0])
    assert all(any(p.ndim > 1 for p in group) for group in groups)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, count) for name in RUN for count in (0, 1)),
        *((name, count) for name in ("mlp", "convnet") for count in (0, 1, 2)),
    ],
)
def test_a_step_changes_only_what_is_trained(name, count):
    dropping = {"dropout": 0.5} if name in backbones.names() else {"drop_path_rate": 0.5}
    module = create(name, **dropping).train_stages(count).train()
    before = copy.deepcopy(module.state_dict())
    module(samples(name)).square().sum().backward()
    with torch.no_grad():
        for parameter in module.parameters():
            assert (parameter.grad is not None) == parameter.requires_grad
            if parameter.requires_grad:
                parameter += 1
    trained = {k.rpartition(".")[0] for k, p in module.named_parameters() if p.requires_grad}
    after = module.state_dict()
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {key for key in before if key.rpartition(".")[0] in trained}


@torch.no_grad()
@pytest.mark.parametrize("name", [*RUN, "convnet", "mlp"])
def test_a_frozen_body_is_the_same_function_in_training_and_in_evaluation(name):
    dropping = {} if name in backbones.names() else {"drop_path_rate": 0.5, "drop_rate": 0.5}
    module = create(name, **dropping).train_stages(0)
    x = samples(name)
    evaluated = module.eval().body(x)
    assert torch.equal(module.train().body(x), evaluated)
    assert torch.equal(copy.deepcopy(module).train().body(x), evaluated)
    assert module.last.training
