"""The file of a model: it comes back the same, and nothing else gets in."""

import json
import math
import pickle
import re
import resource
import signal
import socket
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import layline
from layline.model.description import ModelDescription
from served_models import make_model

CLASSES = ("low", "mid", "high")
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 40, 36, 3), dtype=np.uint8)
FRAME = pd.DataFrame({"size": [1.5, 2.0, None, 9.0], "colour": ["red", "blue", "red", "öl"]})
DATA = Path(__file__).parent / "data"
REFUSED = (ValueError, FileNotFoundError)


@pytest.fixture(autouse=True)
def nothing_is_downloaded(monkeypatch):
    """Any way to the network fails the test, also where the error would be swallowed."""
    tried = []

    def refuse(*arguments, **options):
        tried.append(arguments)
        raise AssertionError("something was to be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    yield
    assert tried == []


def convnet(method="hard-linear"):
    return make_model(method=method, dim=3)


def table():
    return make_model("table", dim=3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A model file, the bytes of it, its description and its tensors."""
    path = tmp_path_factory.mktemp("sound") / "model.safetensors"
    convnet().save(path)
    with safe_open(path, framework="pt") as file:
        description = json.loads(file.metadata()["layline"])
    return path.read_bytes(), description, load_file(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def refusal(path):
    """Load a file that must be refused, and return the message."""
    with pytest.raises(REFUSED) as caught:
        layline.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def assert_a_model_or_one_line(path):
    message = ""
    try:
        layline.load(path)
    except REFUSED as error:
        message = str(error)
    assert "\n" not in message


def with_header(text):
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(("make", "samples"), [(convnet, IMAGES), (table, FRAME)])
def test_a_model_comes_back_with_the_same_probabilities(path, tmp_path, make, samples):
    model, random = make(), torch.get_rng_state()
    model.save(path)
    again = layline.load(path)
    assert torch.equal(torch.get_rng_state(), random)
    assert (again.description, again.classes, again.training) == (model.description, CLASSES, False)
    np.testing.assert_array_equal(again.predict_proba(samples), model.predict_proba(samples))
    np.testing.assert_array_equal(again.predict(samples), model.predict(samples))
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_full_disk_keeps_the_old_model(path, tmp_path, sound):
    path.write_bytes(sound[0])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        with pytest.raises(OSError, match="nothing was left half-written"):
            convnet("classification").save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    assert path.read_bytes() == sound[0]


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("code of the file was run",)


def test_a_pickle_in_disguise_is_refused_and_not_run(path):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Evil(), protocol=protocol))
        refusal(path)
    for new in (True, False):
        torch.save({"x": Evil()}, path, _use_new_zipfile_serialization=new)
        refusal(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
@example(b"")
@example(b"\0" * 8)
@example(b"\xff" * 8)
@example(with_header(b"{}"))
@example(with_header(b"[]"))
@example(with_header(b"nul"))
@example(with_header(b'{"__metadata__": {"layline": 3}}'))
@example(with_header(b'{"__metadata__": null}'))
def test_other_bytes_are_refused(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    refusal(tmp_path / "model.safetensors")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.data())
def test_a_truncated_file_is_refused(tmp_path, sound, data):
    length = data.draw(st.integers(0, len(sound[0]) - 1))
    (tmp_path / "model.safetensors").write_bytes(sound[0][:length])
    assert "damaged" in refusal(tmp_path / "model.safetensors")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_of_the_header_is_refused_or_changes_a_word_only(tmp_path, sound, data):
    content, path = bytearray(sound[0]), tmp_path / "model.safetensors"
    end = 8 + struct.unpack("<Q", content[:8])[0]
    content[data.draw(st.integers(0, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    assert_a_model_or_one_line(path)


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "3", "null", "[]", '"text"', "{}", "[" * 100_000, "1" * 5000, '{"format": }'],
)
def test_a_description_that_is_none_is_refused(path, sound, text):
    save_file(sound[2], path, metadata={"layline": text})
    assert "does not describe a valid model" in refusal(path)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("make", [convnet, table])
def test_weights_that_are_not_finite_are_refused_by_name(path, make, value):
    model = make()
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            before = tensor.flatten()[-1].item()
            tensor.view(-1)[-1] = value
            model.save(path)
            assert f"the tensor {name} contains NaN or infinity" in refusal(path)
            tensor.view(-1)[-1] = before
    model.save(path)
    layline.load(path)


def test_files_of_others_and_of_newer_versions_are_refused(path, sound):
    save_file(sound[2], path)
    assert "is not a model written by Layline" in refusal(path)
    newer = {"format": 99, "version": "9.1", "shape": "unknown"}
    save_file(sound[2], path, metadata={"layline": json.dumps(newer)})
    assert re.search(r"written by Layline 9\.1 in format 99.*Upgrade Layline", refusal(path))


IMAGES_16 = {"kind": "images", "size": 16, "resize": 18, "interpolation": "bicubic"}
ABSURD = 10**12
WRONG = {
    "format": ["x", None],
    "method": ["hard-lines", "os.system", 3],
    "backbone": ["convnets", "hf-hub:evil/model", "local-dir:/x", "../../x", ["convnet"], "mlp"],
    "backbone_options": [
        {"channels": "4"},
        {"channels": ABSURD},
        {"depth": ABSURD},
        [],
        {"dim": 3},
    ],
    "head_options": [{"norm": -3.0}, {"nrom": 3}, {"num_classes": 3}, {"self": 3}],
    "dim": [0, 2.5, "many", 4, ABSURD, 10**400],
    "classes": [["low"], ["low", "low", "high"], ["low", 3, "high"], "abc"],
    "inputs": [
        *({"kind": "sound"}, {"kind": "table"}, {}, [], IMAGES_16 | {"size": "16"}),
        *(IMAGES_16 | {"resize": 3}, IMAGES_16 | {"resize": ABSURD}),
        *(IMAGES_16 | {"interpolation": "evil"}, IMAGES_16 | {"more": 1}),
    ],
    "calibration": [
        {"temperature": 0.0, "scores": [], "ranks": []},
        {"temperature": math.nan, "scores": [], "ranks": []},
        {"temperature": 1.0, "scores": [0.1], "ranks": []},
        {"temperature": 1.0, "scores": [0.1], "ranks": [4]},
    ],
    "surprise": [1],
}


@pytest.mark.parametrize(
    "change",
    [
        *({key: value} for key, values in WRONG.items() for value in values),
        {"backbone": "resnet18", "backbone_options": {"pretrained": True}},
        {"backbone": "resnet18", "backbone_options": {"model": "hf-hub:e/m"}},
    ],
)
def test_a_wrong_description_is_refused(path, sound, change):
    save_file(sound[2], path, metadata={"layline": json.dumps(sound[1] | change)})
    assert "does not describe a valid model: " in refusal(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("backbone.last.bias"), r"backbone.last.bias must be floats.*got absent"),
        (lambda t: t.update(more=torch.zeros(1)), r"more must be absent, got floats"),
        (
            lambda t: t.update({"backbone.last.bias": torch.zeros(4)}),
            r"backbone.last.bias must be floats of shape \(3,\), got floats of shape \(4,\)",
        ),
        (
            lambda t: t.update({"backbone.last.bias": torch.zeros(3, dtype=torch.int64)}),
            r"must be floats of shape \(3,\), got torch.int64",
        ),
    ],
)
def test_tensors_that_are_not_those_of_the_model_are_refused(path, sound, change, message):
    tensors = dict(sound[2])
    change(tensors)
    save_file(tensors, path, metadata={"layline": json.dumps(sound[1])})
    assert re.search("the tensor .*" + message, refusal(path))


@pytest.mark.parametrize(
    ("make", "section", "options"),
    [
        (table, "backbone_options", {"hidden": [50_000, 50_000]}),
        (convnet, "backbone_options", {"channels": 30_000}),
        (lambda: convnet("gp-dnnor"), "head_options", {"inducing_points": 30_000}),
        (lambda: convnet("poe"), "head_options", {"samples": 20_000_000}),
    ],
)
def test_a_description_of_gigabytes_is_refused_before_memory_is_allocated(
    path, monkeypatch, make, section, options
):
    model = make()
    description = json.loads(model.description.to_json())
    description[section] |= options
    save_file(model.state_dict(), path, metadata={"layline": json.dumps(description)})
    build, devices = ModelDescription.build, []

    def record(self):
        devices.append(torch.get_default_device().type)
        return build(self)

    monkeypatch.setattr(ModelDescription, "build", record)
    before = psutil.Process().memory_info().rss
    assert "does not describe a valid model" in refusal(path)
    assert devices == ["meta"]  # where tensors have a shape and no memory
    assert psutil.Process().memory_info().rss - before < 500_000_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.data(), value=JSON)
def test_any_value_in_any_place_is_refused_or_harmless(path, sound, data, value):
    """Loading gives a model or one line of an error message."""
    key = data.draw(st.sampled_from(sorted(sound[1])))
    inside = sound[1][key]
    if isinstance(inside, dict) and inside and data.draw(st.booleans()):
        value = inside | {data.draw(st.sampled_from(sorted(inside))): value}
    save_file(sound[2], path, metadata={"layline": json.dumps(sound[1] | {key: value})})
    assert_a_model_or_one_line(path)


def pictures():
    """Four images by a formula."""
    y, x = np.mgrid[:24, :32]
    bands = [((7 * x + 3 * y * i), (x * y + 40 * i), (11 * y + i * x)) for i in range(1, 5)]
    return [np.stack(each, axis=-1).astype(np.uint8) for each in bands]


@pytest.mark.parametrize("kind", ["table", "images"])
def test_a_file_of_version_0_2_0_gives_the_same_predictions(kind, tmp_path):
    expected = json.loads((DATA / "model-0.2.0.json").read_text(encoding="utf-8"))[kind]
    samples = pd.DataFrame(expected["rows"]) if kind == "table" else pictures()
    old = layline.load(DATA / f"model-0.2.0-{kind}.safetensors")
    old.save(tmp_path / "new.safetensors")
    for model in (old, layline.load(tmp_path / "new.safetensors")):
        np.testing.assert_allclose(model.predict_proba(samples), expected["proba"], atol=1e-6)
        assert model.predict(samples).tolist() == expected["predicted"]
        if "range" in expected:
            ends = model.predict_range(samples, coverage=0.8)
            assert [end.tolist() for end in ends] == expected["range"]
