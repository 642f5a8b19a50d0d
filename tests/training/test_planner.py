"""The planner: it fits a run into its budget, and never changes what the user set."""

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from layline import backbones, data
from layline.data.splits import FOLDS
from layline.training import planner, run
from layline.training.callbacks import Reporter
from layline.training.config import read_toml, to_toml
from layline.training.distributed import make_accelerator
from layline.training.optim import choose_batch_size, choose_epochs
from layline.training.recipes import draft_config, resolve_config

EPOCHS = choose_epochs(42, choose_batch_size(42, "features"), kind="features")  # on frozen features


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Sixty small photographs in three classes."""
    root = tmp_path_factory.mktemp("photos")
    for rank, name in enumerate(("low", "medium", "high")):
        (root / name).mkdir()
        for i in range(20):
            pixels = np.full((40, 40, 3), 4 * i + 60 * rank, np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.fixture
def plan(photos, monkeypatch, tmp_path):
    """Plan a run on a machine without a GPU or a hub, where a forward pass takes a given time.

    There are 42 training samples, 6 for validation and 12 for the test.
    """

    def make(tree=None, predict=0.5, **training):
        messages = []
        offline = ("resnet10t", "imagenet", "the hub does not answer")
        monkeypatch.setattr(planner, "choose_backbone", lambda device: offline)
        times = (0.0, predict, 3 * predict)
        monkeypatch.setattr(planner, "_time_samples", lambda *_: times)
        monkeypatch.setattr("layline.training.prepare.load_weights", lambda *_: [])
        tree = {"data": {"source": "folder", "root": str(photos), "size": 32}, **(tree or {})}
        tree.setdefault("head", {"method": "committee"})
        tree["training"] = {"folds": 0, **training, "device": "cpu"}
        tree["data"]["calibration"] = 0.0
        log = Reporter(Console(quiet=True))
        monkeypatch.setattr(Reporter, "__call__", lambda self, text: messages.append(text))
        accelerator = make_accelerator(draft_config(tree))
        return run.prepare_run(tree, accelerator, log).config, "\n".join(messages)

    return make


def test_without_a_gpu_as_much_is_trained_as_the_budget_allows(plan):
    """An epoch of all takes 66 s, and extracting the features 30 s."""
    config, messages = plan(budget=12)
    assert (config.backbone.name, config.backbone.weights) == ("resnet10t", "imagenet")
    assert "the hub does not answer" in messages
    assert (config.backbone.freeze, config.training.epochs) == (False, 10)
    config, messages = plan(budget=2)
    assert (config.backbone.freeze, config.training.epochs) == (True, EPOCHS)
    assert "all of the network would take 11 min" in messages
    assert config.backbone.options["hidden"] > 0  # of the recipe for frozen features


@pytest.mark.parametrize("freeze", [False, True])
def test_timing_does_not_change_the_network(photos, freeze):
    dataset = data.read("folder", photos)
    backbone = backbones.create("resnet10t", dim=8).requires_grad_(not freeze)
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    draft = draft_config({"data": {"source": "folder", "root": str(photos), "size": 32}})
    times = planner._time_samples(draft, dataset, backbone, torch.device("cpu"))
    assert min(times[1:]) > 0
    assert backbone.training
    assert all(p.grad is None for p in backbone.parameters())
    assert all(value.equal(before[name]) for name, value in backbone.state_dict().items())


def test_a_budget_that_is_too_short_is_refused_unless_it_is_the_default(plan):
    with pytest.raises(ValueError, match=r"A budget of 30 s is too short: .* 60 s"):
        plan(budget=0.5, predict=1.0)
    config, _ = plan(predict=100.0)
    assert (config.backbone.freeze, config.training.epochs) == (True, EPOCHS)


def test_small_data_are_learned_from_frozen_features(plan):
    config, messages = plan(folds=None)
    assert (config.backbone.freeze, config.training.folds) == (True, FOLDS)
    assert "With 48 labelled images" in messages
    config, _ = plan({"head": {"method": "auto"}}, folds=None)
    assert (config.head.method, config.training.closed_form) == ("joint-layout", True)
    config, _ = plan({"backbone": {"freeze": False}}, folds=None, epochs=1)
    assert (config.backbone.freeze, config.training.folds) == (False, 0)


def test_epochs_that_the_user_sets_must_fit(plan):
    config, _ = plan(epochs=30)
    assert (config.training.epochs, config.backbone.freeze) == (30, True)
    config, _ = plan(epochs=8)
    assert (config.training.epochs, config.backbone.freeze) == (8, False)
    with pytest.raises(ValueError, match="Set a budget of"):
        plan(epochs=30000, budget=0.6)


def test_the_settings_of_the_user_stay(plan):
    own = {"backbone": {"name": "resnet10t", "weights": "none", "stages": 1}}
    config, _ = plan(own, budget=60)
    assert (config.backbone.name, config.backbone.stages) == ("resnet10t", 1)
    config, _ = plan({"backbone": {"freeze": True}})
    assert config.backbone.freeze


def test_the_configuration_of_a_run_repeats_the_plan(plan, tmp_path):
    config, _ = plan(budget=2)
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    assert resolve_config(read_toml(file)) == config


def test_a_network_without_batch_normalization_gets_a_low_rate_unless_one_is_set(plan):
    vit = {"backbone": {"name": "vit_tiny_patch16_224"}, "data": {}}
    vit["data"] = {"source": "folder", "root": plan()[0].data.root, "size": 224}
    assert plan(epochs=1)[0].training.backbone_learning_rate == 2e-3
    assert plan(vit, epochs=1)[0].training.backbone_learning_rate == 1e-4
    training = plan(vit, epochs=1, learning_rate=3e-4)[0].training
    assert (training.learning_rate, training.backbone_learning_rate) == (3e-4, None)
