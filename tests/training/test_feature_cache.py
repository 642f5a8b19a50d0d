"""Features of a frozen backbone: extracted once, shared by runs, exact."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from layline import backbones, load
from layline.data.images import ImageArrays
from layline.data.loaders import ImageBatches
from layline.data.preprocessing import ImagePreprocessing
from layline.training import prepare
from layline.training.distributed import SeveralProcesses
from layline.training.prepare import PreparedRun, extract_features, feature_key
from layline.training.recipes import resolve_config
from layline.training.trainer import Trainer


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepare, "PIECE", 16)
    return tmp_path / "cache"


@pytest.fixture
def images():
    pixels = np.random.default_rng(0).integers(0, 256, (50, 12, 12, 3), dtype=np.uint8)
    return ImageArrays(pixels)


PREPARATION = ImagePreprocessing(12, 12)


def make_backbone(seed=0, **options):
    torch.manual_seed(seed)
    return backbones.create("convnet", 4, channels=4, **options).eval()


def extract(backbone, images, log=None):
    config = resolve_config({"data": {"source": "photo-quality"}, "training": {"batch_size": 2}})
    dataset = SimpleNamespace(inputs=images)
    model = SimpleNamespace(backbone=backbone, description=SimpleNamespace(inputs=PREPARATION))
    processes = SeveralProcesses(Accelerator(cpu=True))
    return extract_features(PreparedRun(config, dataset, model, processes, log or MagicMock()))


def test_the_features_are_those_of_the_body_and_are_read_the_second_time(images, monkeypatch):
    backbone = make_backbone()
    x, _ = ImageBatches(images, PREPARATION).__getitems__([(i, 0) for i in range(50)])
    rows = extract(backbone, images)
    with torch.no_grad():
        np.testing.assert_allclose(rows, backbone.body(x), rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(type(backbone), "body", lambda *_: pytest.fail("extracted again"))
    np.testing.assert_array_equal(extract(backbone, images), rows)


def test_everything_the_features_depend_on_changes_the_key(images):
    backbone = make_backbone()
    others = [
        feature_key(make_backbone(seed=1), images, PREPARATION),
        feature_key(backbone, images.subset(np.arange(49)), PREPARATION),
        feature_key(backbone, images, ImagePreprocessing(10, 12)),
        feature_key(backbone, images, PREPARATION),
    ]
    assert len(set(others)) == 4
    again = make_backbone()
    again.set_last_layer(4, hidden=8)  # not part of the body
    assert feature_key(again, images, PREPARATION) == others[-1]


def test_features_that_do_not_fit_into_the_cache_are_kept_in_memory(images, monkeypatch):
    monkeypatch.setenv("LAYLINE_CACHE_GB", "0.000001")
    log = MagicMock()
    rows = extract(make_backbone(), images, log)
    assert not isinstance(rows, np.memmap)
    assert log.call_args.args[0].startswith("The features are kept in memory: ")
    monkeypatch.delenv("LAYLINE_CACHE_GB")
    np.testing.assert_array_equal(rows, extract(make_backbone(), images))


@pytest.fixture
def weights(tmp_path):
    save_file(backbones.create("convnet", 4).state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_a_second_method_uses_the_features_of_the_first(
    command, crops, weights, tmp_path, monkeypatch
):
    options = (*crops, "--weights", weights, "--freeze")
    assert command("train", *options, "--out", tmp_path / "run").exit_code == 0
    before, after = load_file(weights), load(tmp_path / "run").backbone.state_dict()
    body = {name for name in before if not name.startswith("last.")}
    assert all(torch.equal(before[name], after[name]) for name in body)
    with monkeypatch.context() as patch:
        patch.setattr(backbones.ConvNet, "body", lambda *_: pytest.fail("extracted again"))
        second = command("train", *options, "--method", "coral", "--out", tmp_path / "second")
    assert second.exit_code == 0
    # other initial weights make another run
    tensors = load_file(weights)
    save_file(tensors | {"layers.0.weight": tensors["layers.0.weight"] + 1}, weights)
    result = command("train", "--resume", tmp_path / "run")
    assert result.exit_code == 1
    assert "The initial weights changed since" in result.stderr


def test_a_truncated_file_is_an_error_and_not_a_crash(
    command, crops, weights, tmp_path, monkeypatch, cache
):
    step, calls = Trainer._step, []

    def truncate(*args):
        calls.append(1)
        if len(calls) == 2:
            (file,) = (cache / "arrays").glob("features-*.npy")
            with file.open("r+b") as stream:
                stream.truncate(100)
        return step(*args)

    monkeypatch.setattr(Trainer, "_step", truncate)
    result = command("train", *crops, "--weights", weights, "--freeze", "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert "A cache file was truncated" in result.stderr
