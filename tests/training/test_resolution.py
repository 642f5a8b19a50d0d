"""A configuration stands by itself once what follows from it is filled in."""

import pytest

from layline.training.resolution import resolved
from layline.training.settings import configuration


def config(**sections):
    sections.setdefault("data", {"source": "photo-quality"})
    return resolved(configuration(sections))


def test_what_follows_from_the_source_is_filled_in():
    made = config()
    assert (made.features.name, made.features.weights) == ("convnet", "none")
    assert made.data.augmentation == "shift"


def test_what_was_chosen_stays():
    made = config(
        data={"source": "csv", "augmentation": "none", "root": "labels.csv"},
        features={"name": "resnet18", "weights": "none"},
    )
    assert (made.features.name, made.features.weights) == ("resnet18", "none")
    assert made.data.augmentation == "none"


def test_paths_do_not_depend_on_where_the_run_was_started(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.safetensors").touch()
    made = config(
        data={"source": "folder", "root": "photos"},
        features={"name": "convnet", "weights": "weights.safetensors"},
    )
    assert made.data.root == tmp_path / "photos"
    assert made.features.weights == str(tmp_path / "weights.safetensors")


def test_random_weights_are_not_frozen():
    with pytest.raises(ValueError, match="freeze must come with weights, got none for convnet"):
        config(features={"freeze": True})
