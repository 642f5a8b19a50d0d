import json

import pytest
import torch
from torch import nn

from layline import backbones, heads
from layline.backbones import TimmBackbone
from layline.utils.torchvision_import import import_timm

# a size that keeps the test short, where the network takes any
SPREAD = {
    "vgg16_bn": 32,
    "resnet18": 64,
    "tf_efficientnet_lite0": 64,
    "convnext_atto": 64,
    "vit_tiny_patch16_224": 64,
    "mobilenetv3_small_050": 64,
    "regnetx_002": 64,
    "swin_tiny_patch4_window7_224": 224,
    "mixer_s32_224": 224,
}

LARGE = ("vgg16_bn", "swin_tiny_patch4_window7_224", "mixer_s32_224")

# each way in which timm drops units in front of the classifier
DROPPING = ("resnet18", "tf_efficientnet_lite0", "convnextv2_atto", "vit_tiny_patch16_224")


def images(size, n=2):
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8)


@pytest.fixture(scope="module")
def timm():
    return import_timm()


@torch.no_grad()
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in SPREAD]
)
def test_the_network_is_timms_own_in_two_parts(timm, name):
    size = SPREAD[name]
    module = backbones.create(name, 5, size=size).eval()
    fixed = timm.get_pretrained_cfg(name).fixed_input_size and size != 224
    whole = timm.create_model(name, num_classes=5, **({"img_size": size} if fixed else {})).eval()
    state = module.state_dict()
    whole.load_state_dict({k: state[ours] for k, ours in module.names_by_timm().items()})
    x = images(size)
    assert module.body(x).shape == (2, module.width)
    torch.testing.assert_close(module(x), whole(module.normalised(x)))


def test_a_network_of_another_size_can_be_made_without_memory():
    with torch.device("meta"):
        assert backbones.create("tf_efficientnet_lite0", 4, size=64).last.weight.is_meta


@pytest.mark.parametrize("name", ["resnet18.a1_in1k", "vit_tiny_patch16_224"])
def test_the_input_is_the_models_own(timm, name):
    module = TimmBackbone(name, 4)
    own = timm.data.resolve_model_data_config(timm.create_model(name))
    assert (3, module.input.size, module.input.size) == own["input_size"]
    assert (module.input.mean, module.input.std) == (own["mean"], own["std"])
    assert module.input.interpolation == own["interpolation"]
    assert module.input.crop == own["crop_pct"] != 0.875
    assert TimmBackbone(name, 4, crop=0.875).input.crop == 0.875


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mobilenetv3_small_050", {}),
        ("mobilenetv3_small_050", {"drop_rate": 0.3, "drop_path_rate": 0.1, "hidden": 7}),
        ("mobilenetv3_small_050", {"drop_rate": 0.3, "dropout": 0.0}),
        ("vit_tiny_patch16_224", {"size": 96, "mean": [0, 0, 0], "crop": 1.0}),
        ("vit_tiny_patch16_224", {"size": 96, "drop_rate": 0.3, "drop_path_rate": 0.1}),
    ],
)
def test_a_network_is_rebuilt_from_its_options(name, options):
    module = backbones.create(name, 3, **options).eval()
    again = backbones.create(name, 3, **json.loads(json.dumps(module.options))).eval()
    again.load_state_dict(module.state_dict())
    x = images(module.input.size, n=1)
    assert again.input == module.input
    assert repr(again) == repr(module)  # with every dropout and every share
    assert torch.equal(again(x), module(x))


def test_no_tensor_has_two_names():
    tensors = list(TimmBackbone("resnet18", 3).state_dict().values())
    assert len({tensor.data_ptr() for tensor in tensors if tensor.numel()}) == len(tensors)


def test_the_last_layer_begins_with_random_numbers_and_not_with_zeros():
    assert TimmBackbone("vit_tiny_patch16_224", 3).last.weight.std() > 0.01


def test_the_registry_knows_what_a_model_takes_and_begins_with():
    assert backbones.find("resnet18").kind == "image"
    assert backbones.find("resnet18").weights == "imagenet"
    assert backbones.find("tf_efficientnet_lite0").weights == "bundled"
    options = backbones.options_of(backbones.find("resnet18"))
    assert {"size", "crop", "drop_rate", "drop_path_rate", "hidden", "dropout"} <= set(options)
    assert "resnet18" not in backbones.names()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet81", "features must be a known name, got 'resnet81': did you mean resnet"),
        ("convnte", "got 'convnte': did you mean convnet"),
        ("resnet18.a1_in2k", "got 'resnet18.a1_in2k': did you mean resnet18.a1_in1k"),
        ("?", "got '\\?': timm.list_models"),
        (
            "local-dir:/tmp",
            "without ':' or '/', got 'local-dir:/tmp': give the architecture's name",
        ),
        ("timm/resnet18", "without ':' or '/', .* did you mean hf-hub:timm/resnet18"),
        (18, "features must be a name, got 18"),
        ("deit_tiny_distilled_patch16_224", "must end in one linear layer, .* ends in tuple"),
    ],
)
def test_a_name_that_cannot_be_built_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        backbones.create(name, 3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("densenet121", {"size": 8}, "size must suit densenet121, got 8: "),
        ("resnet18", {"dim": 0}, "dim must be an integer, at least 1, got 0"),
        ("resnet18", {"std": (1, 1)}, r"std must be three finite numbers, got \(1, 1\)"),
        ("vgg11", {"drop_path_rate": 0.1}, "drop_path_rate must be left out for vgg11, got 0.1: "),
        ("resnet18", {"drop_rate": 1.0}, "drop_rate must be below 1, got 1.0"),
        ("resnet18", {"drop_path_rate": -1}, "drop_path_rate must be a finite number, at least 0"),
        ("resnet18", {"dropout": "half"}, "dropout must be a finite number, at least 0"),
        ("resnet18", {"hidden": 0.5}, "hidden must be an integer, at least 0, got 0.5"),
        ("resnet18", {"sise": 8}, "option of resnet18 must be .* did you mean size"),
        ("swin_tiny_patch4_window7_224", {"size": 1}, "size must suit swin_tiny_.*, got 1: "),
    ],
)
def test_a_wrong_option_is_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        backbones.create(name, **{"dim": 3, **options})


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_in_front_of_the_last_layer_is_part_of_it_and_not_of_the_body(name):
    """A frozen body is evaluated once, and what is trained on its output drops units of it."""
    module = backbones.create(name, 5, drop_rate=0.4, size=SPREAD.get(name, 64))
    x = images(module.input.size)
    assert module.last.dropout == 0.4
    assert torch.equal(module.body(x), module.body(x))
    assert not torch.equal(module(x), module(x))


def test_skipped_blocks_are_those_of_timm(timm):
    module = backbones.create("convnextv2_atto", 5, drop_path_rate=0.3)
    whole = timm.create_model("convnextv2_atto", num_classes=5, drop_path_rate=0.3)

    def shares(network):
        return [m.drop_prob for m in network.modules() if type(m).__name__ == "DropPath"]

    assert shares(module) == shares(whole) != []


# VGG, the network of the paper


def executed(network, x):
    """Describe the layers in the order in which they are applied, in one way for both libraries."""
    seen = []

    def describe(module, inputs, output):
        before, after = inputs[0].shape, output.shape
        if isinstance(module, nn.Conv2d) and after[2:] == (1, 1):  # timm's way to write a Linear
            seen.append(("linear", before[1:].numel(), after[1]))
        elif isinstance(module, nn.Conv2d):
            settings = module.kernel_size, module.stride, module.padding, module.dilation
            seen.append(("conv", before[1], after[1], *settings, module.bias is not None))
        elif isinstance(module, nn.BatchNorm2d):
            seen.append(("norm", before[1], module.eps, module.momentum, module.affine))
        elif isinstance(module, nn.MaxPool2d):
            seen.append(("pool", module.kernel_size, module.stride, module.padding))
        elif isinstance(module, nn.Linear):
            if getattr(module, "dropout", 0):
                seen.append(("dropout", module.dropout))
            seen.append(("linear", before[1], after[1]))
        elif isinstance(module, nn.Dropout):
            seen.append(("dropout", module.p))
        elif before[1:].numel() != after[1:].numel() or isinstance(module, nn.ReLU):
            seen.append((type(module).__name__,))  # not what only changes the shape

    for module in network.modules():
        if not any(module.children()):
            module.register_forward_hook(describe)
    network.train()(x)
    return seen


@pytest.mark.parametrize("name", ["vgg11", "vgg16", "vgg16_bn", "vgg16.tv_in1k", "vgg19"])
def test_vgg_has_torchvisions_layers_one_by_one(name):
    from torchvision.models import get_model

    with torch.device("meta"):
        x = torch.zeros(2, 3, 224, 224)
        theirs = executed(get_model(name.partition(".")[0], num_classes=512), x)
        ours = executed(backbones.create(name, 512), x)
    assert ours == theirs
    assert [layer for layer in ours if layer[0] == "dropout"] == [("dropout", 0.5)] * 2


def test_vgg_without_dropout_can_be_had():
    with torch.device("meta"):
        layers = executed(backbones.create("vgg16", 5, drop_rate=0.0), torch.zeros(2, 3, 224, 224))
    assert ("dropout", 0.5) not in layers


@pytest.fixture(scope="module")
def vgg16():
    """The network of the paper, which takes seconds to make."""
    return backbones.create("vgg16", 512)


@pytest.mark.slow
@torch.no_grad()
def test_vgg_computes_what_torchvisions_does(vgg16):
    from torchvision.models import get_model

    theirs = get_model("vgg16", num_classes=512, init_weights=False).eval()
    module = vgg16.eval()
    wanted = module.state_dict()
    values = theirs.state_dict().values()
    module.load_state_dict(
        {key: value.view_as(wanted[key]) for key, value in zip(wanted, values, strict=True)}
    )
    x = images(224, n=1)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (module.input.mean, module.input.std))
    prepared = (x / 255 - mean) / std
    before_last = theirs.classifier[:-1](theirs.avgpool(theirs.features(prepared)).flatten(1))
    torch.testing.assert_close(module.body(x), before_last)
    torch.testing.assert_close(module(x), theirs.classifier[-1](before_last))


@pytest.mark.slow
def test_vgg16_takes_one_optimiser_step(vgg16):
    module, head = vgg16.train(), heads.create("hard-linear", 8, 512)
    assert (module.width, module.last.out_features) == (4096, 512)
    optimiser = torch.optim.AdamW(
        [
            {"params": module.parameters(), "lr": 1e-3},
            {"params": head.parameters(), "lr": 1e-2},
        ]
    )
    watched = [module.last.weight, next(module.network.parameters())]
    before = [tensor.detach().clone() for tensor in [*watched, head.proxies()]]
    loss = head.loss(module(images(224)), torch.tensor([1, 6]))
    loss.backward()
    optimiser.step()
    assert loss.isfinite()
    for old, new in zip(before, [*watched, head.proxies()], strict=True):
        assert new.isfinite().all()
        assert not torch.equal(old, new)


@pytest.mark.parametrize("name", ["resnet10t", "convnextv2_atto", "vit_tiny_patch16_224"])
def test_all_stages_stand_before_the_end(name):
    """The last units are those without the option; what is before them are means of maps."""
    plain = backbones.create(name, 4, size=64).eval()
    both = backbones.create(name, 4, size=64, all_stages=True).eval()
    both.network.load_state_dict(plain.network.state_dict())
    x = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        end, all_of_it = plain.body(x), both.body(x)
    assert all_of_it.shape[1] == both.width > plain.width
    torch.testing.assert_close(all_of_it[:, -plain.width :], end)
    again = backbones.create(name, 4, **both.options)
    assert again.width == both.width


def test_a_network_that_shows_no_stages_gives_its_end():
    with torch.device("meta"):
        plain, both = (backbones.create("vgg11", 4, all_stages=wanted) for wanted in (False, True))
    assert both.width == plain.width
    assert "all_stages" not in both.options
