"""The body by depth: groups of layers, and stages that are frozen."""

import copy

import pytest
import torch

from layline import backbones

# the number of stages, and what the last one consists of
STAGES = {
    "resnet18": (5, ("layer4.",)),
    "tf_efficientnet_lite0": (8, ("blocks.6.", "conv_head.", "bn2.")),
    "convnextv2_atto": (5, ("stages.3.", "head.norm.")),
    "vit_tiny_patch16_224": (13, ("blocks.11.", "norm.")),
    "vgg16_bn": (14, ("pre_logits.",)),
}
RUN = [name for name in STAGES if "vgg" not in name]


def create(name, **options):
    if name == "mlp":
        return backbones.create("mlp", 4, in_features=3, hidden=(5, 6, 7), **options)
    return backbones.create(name, 4, **({} if name == "convnet" else {"size": 32}), **options)


def samples(name):
    return torch.rand(8, 3) if name == "mlp" else torch.randint(0, 256, (8, 3, 32, 32))


def on_meta(name):
    with torch.device("meta"):
        return create(name) if name in backbones.names() else backbones.create(name, 4)


@pytest.mark.parametrize("name", [*STAGES, "vgg16", "densenet121", "mlp", "convnet"])
def test_every_parameter_of_the_body_is_in_one_group(name):
    module = on_meta(name)
    ids = [id(parameter) for group in module.layer_groups() for parameter in group]
    body = [p for key, p in module.named_parameters() if not key.startswith("last.")]
    assert len(ids) == len(set(ids))
    assert set(ids) == {id(parameter) for parameter in body}
    assert len(module.layer_groups()) >= module.num_stages


@pytest.mark.parametrize(
    ("name", "count", "first", "second"),
    [
        ("vgg16", 14, "backbone.0.", "backbone.2."),
        ("vgg16_bn", 14, "features.", "backbone.3."),
        ("resnet18", 9, ("conv1.", "bn1."), "layer1.0."),
        ("tf_efficientnet_lite0", 17, ("conv_stem.", "bn1."), "blocks.0.0."),
        ("convnextv2_atto", 13, "stem.", "stages.0.blocks.0."),
        ("vit_tiny_patch16_224", 13, ("cls_token", "pos_embed", "patch_embed."), "blocks.0."),
    ],
)
def test_groups_go_from_the_input_on_and_a_normalisation_is_no_layer_of_its_own(
    name, count, first, second
):
    module = on_meta(name)
    groups = module.layer_groups()
    names = {id(p): key.removeprefix("network.") for key, p in module.named_parameters()}
    assert len(groups) == count
    assert all(names[id(p)].startswith(first) for p in groups[0])
    assert any(names[id(p)].startswith(second) for p in groups[1])
    assert all(any(p.ndim > 1 for p in group) for group in groups)


def test_own_networks_have_a_group_for_each_layer_with_weights():
    assert [len(group) for group in create("mlp").layer_groups()] == [2, 2, 2]
    # a convolution with a bias, then convolutions with batch normalisation
    assert [len(group) for group in create("convnet").layer_groups()] == [2, 3, 3, 3, 3]


@pytest.mark.parametrize(("name", "stages"), STAGES.items(), ids=STAGES)
def test_the_last_stage_is_the_last_of_timm(name, stages):
    module = on_meta(name).train_stages(1)
    names = [key for key, p in module.named_parameters() if p.requires_grad]
    count, prefixes = stages
    assert module.num_stages == count
    body = [key.removeprefix("network.") for key in names if not key.startswith("last.")]
    assert len(names) == len(body) + 2
    assert all(key.startswith(prefixes) for key in body)
    assert all(any(key.startswith(prefix) for key in body) for prefix in prefixes)


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


@pytest.mark.parametrize("name", ["resnet18", "convnet"])
def test_all_stages_can_be_trained_again(name):
    module = create(name).train_stages(0)
    module.train_stages(module.num_stages).train()
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(each.training for each in module.modules())


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (6, "stages must be at most 5, got 6: convnet has no more"),
        (-1, "stages must be an integer, at least 0, got -1"),
        (1.5, "stages must be an integer, at least 0, got 1.5"),
    ],
)
def test_a_wrong_number_of_stages_is_named(count, message):
    with pytest.raises(ValueError, match=message):
        create("convnet").train_stages(count)
