"""Decisions by the machine: what is chosen, what is said, and what a user says stays."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from layline.backbones.weights import Backbone
from layline.training import decisions
from layline.training.config import read_toml, to_toml
from layline.training.decisions import decided
from layline.training.recipes import resolve_config

COUNTS = (1000, 100, 200)


@pytest.fixture
def photos(tmp_path):
    """Sixty small photographs in three classes."""
    for name in ("low", "medium", "high"):
        (tmp_path / name).mkdir()
        for i in range(20):
            pixels = np.full((40, 40, 3), 4 * i, np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    return tmp_path


@pytest.fixture
def machine(monkeypatch):
    """A machine without a GPU and a hub, on which everything takes as long as it is told."""

    def make(forward=0.01):
        costs = decisions._Costs(COUNTS, read=0.0, forward=forward, step=0.03)
        monkeypatch.setattr(decisions._Costs, "measure", lambda *_: costs)

    offline = Backbone("tf_efficientnet_lite0", "bundled", "the hub does not answer")
    monkeypatch.setattr(decisions, "best_backbone", lambda device: offline)
    monkeypatch.setattr(decisions, "choose_device", lambda *_: torch.device("cpu"))
    return make


def choose(root, **training):
    said = []
    tree = {"data": {"source": "folder", "root": str(root)}, "training": training}
    return decided(tree, said.append), "\n".join(said)


def test_without_a_gpu_as_much_is_trained_as_there_is_time_for(photos, machine):
    """An epoch of all takes 31 s, the features once 13 s."""
    machine()
    config, said = choose(photos)
    assert (config.backbone.name, config.backbone.weights) == ("tf_efficientnet_lite0", "bundled")
    assert "the hub does not answer" in said
    assert (config.backbone.freeze, config.backbone.stages, config.training.epochs) == (
        False,
        None,
        19,  # of 31 s each, after 2 s
    )
    config, said = choose(photos, budget=2)
    assert (config.backbone.freeze, config.training.epochs) == (True, 30)
    assert "all of the network would take 5 min" in said
    assert config.backbone.options["hidden"] > 0  # the recipe's for a frozen body


def test_a_budget_too_short_for_one_epoch_says_what_would_do(photos, machine):
    machine(forward=1.0)
    with pytest.raises(
        ValueError, match=r"budget must allow an epoch, got 30 s: .* --budget 2\dmin"
    ):
        choose(photos, budget=0.5)
    config, said = choose(photos)  # a time that nobody asked for is no reason to refuse
    assert (config.backbone.freeze, config.training.epochs) == (True, 30)
    assert "10 min (--budget changes it): its last layers, on frozen features" in said


def test_epochs_that_are_wanted_must_fit(photos, machine):
    machine()
    config, _ = choose(photos, epochs=30)
    assert (config.training.epochs, config.backbone.freeze) == (30, True)  # 30 · 31 s are too much
    config, _ = choose(photos, epochs=12)
    assert (config.training.epochs, config.backbone.freeze) == (12, False)
    with pytest.raises(
        ValueError, match=r"must allow the 3000 epochs .* give --budget (\d+)min, or fewer --epochs"
    ) as refused:
        choose(photos, epochs=3000, budget=0.3)
    enough = int(re.search(r"--budget (\d+)min", str(refused.value))[1])
    config, _ = choose(photos, epochs=3000, budget=enough)
    assert config.training.epochs == 3000


def test_what_a_user_says_stays(photos, machine):
    machine()
    root = {"data": {"source": "folder", "root": str(photos)}}
    said = []
    own = {"backbone": {"name": "resnet10t", "weights": "none", "stages": 1}}
    config = decided(root | own | {"training": {"budget": 5}}, said.append)
    assert (config.backbone.name, config.backbone.stages) == ("resnet10t", 1)
    frozen = decided(root | {"backbone": {"freeze": True}}, said.append)
    assert frozen.features.freeze


def test_the_file_of_a_run_repeats_what_was_decided(photos, machine, tmp_path):
    machine()
    config, _ = choose(photos, budget=2)
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    assert resolve_config(read_toml(file)) == config


def test_a_network_without_batch_normalisation_learns_slowly(photos, machine):
    machine()
    rates = {}
    for name in ("resnet10t", "vit_tiny_patch16_224"):
        tree = {"data": {"source": "folder", "root": str(photos)}, "backbone": {"name": name}}
        rates[name] = decided(tree, print).training.backbone_learning_rate
    assert rates == {"resnet10t": 2e-3, "vit_tiny_patch16_224": 1e-4}


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_a_rate_that_is_named_is_the_rate_of_all_of_the_network(photos, machine, name):
    machine()
    tree = {
        "data": {"source": "folder", "root": str(photos)},
        "backbone": {"name": name},
        "training": {"learning_rate": 3e-4},
    }
    training = decided(tree, print).training
    assert (training.learning_rate, training.backbone_learning_rate) == (3e-4, None)


def test_features_that_do_not_fit_the_data_are_refused_by_name(photos):
    tree = {
        "data": {"source": "folder", "root": str(photos)},
        "backbone": {"name": "mlp"},
        "training": {"budget": 5},
    }
    with pytest.raises(ValueError, match=r"backbone.name must be for images, got mlp"):
        decided(tree, print)


def test_weights_for_a_table_leave_nothing_to_decide(tmp_path):
    table, weights = tmp_path / "t.csv", tmp_path / "w.safetensors"
    table.write_text("a,label\n" + "".join(f"{i},{i % 3}\n" for i in range(30)))
    weights.write_bytes(b"")
    tree = {
        "data": {"source": "table", "root": str(table)},
        "backbone": {"weights": str(weights)},
    }
    config = decided(tree, print)
    assert not config.backbone.freeze


def test_only_modern_decides(photos):
    with pytest.raises(ValueError, match="budget must be left out for the recipe paper"):
        decided(
            {
                "recipe": "paper",
                "data": {"source": "folder", "root": str(photos)},
                "training": {"budget": 5},
            },
            print,
        )


def test_a_measurement_of_this_machine_is_positive(photos):
    tree = {
        "data": {"source": "folder", "root": str(photos), "size": 32},
        "backbone": {"name": "resnet10t", "weights": "none"},
        "training": {"budget": 60, "epochs": 1},
    }
    config = resolve_config(tree)
    dataset = decisions.data.read("folder", photos, calibration=0.3)
    costs = decisions._Costs.measure(config, dataset, torch.device("cpu"))
    parts = dataset.splits
    assert len(parts.calibration) > 0
    seen_once = len(parts.test) + len(parts.calibration)
    assert costs.counts == (len(parts.train), len(parts.validation), seen_once)
    assert min(costs.forward, costs.read, costs.step) > 0
