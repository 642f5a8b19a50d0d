"""Presets: the paper's recipe, small stand-ins, and what a user lays over them."""

from hashlib import blake2b
from pathlib import Path

import pytest
import torch
from torch import nn

from layline import data, heads
from layline.bench.paper import REPRODUCTIONS
from layline.bench.paper.presets import PAPER_DATA, PRESETS
from layline.training.optim import make_optimiser, set_rates

PAPER, SMALL = PRESETS["paper"], PRESETS["small"]


def cell(preset, name="adience", partition=0, method="hard-linear", settings=None):
    return preset.cell(name, partition, method, settings or {}, {"row": "a row"})


@pytest.mark.parametrize(
    ("name", "source", "options", "partitions"),
    [
        ("historical-color", "historical-color", {}, 10),
        ("adience", "adience", {}, 5),
        ("nature", "image-aesthetics", {"category": "nature"}, 5),
        ("animals", "image-aesthetics", {"category": "animals"}, 5),
        ("urban", "image-aesthetics", {"category": "urban"}, 5),
        ("people", "image-aesthetics", {"category": "people"}, 5),
    ],
)
def test_the_paper_preset_has_the_papers_data_and_partitions(name, source, options, partitions):
    config = cell(PAPER, name, partition=3).config
    assert (config.data.source, config.data.options) == (source, options)
    assert (config.data.partition, config.training.seed) == (3, 3)
    assert PAPER.data[name].partitions == partitions


def test_the_paper_preset_has_the_papers_recipe():
    config = cell(PAPER).config
    assert (config.backbone.name, config.backbone.weights) == ("vgg16", "imagenet")
    images = config.data
    assert (images.size, images.augmentation, images.keep_ratio) == (224, "crop", False)
    assert images.size / images.crop == 256
    training = config.training
    assert (training.epochs, training.batch_size, training.optimiser) == (48, 32, "adamw")
    assert (training.metric, training.ties, training.decode) == ("mae", "first", "mode")
    assert (training.precision, training.class_weight, training.patience) == ("no", "off", 0)
    assert config.head.dim == 512


def test_the_paper_trains_with_two_constant_rates_and_nothing_else():
    options = cell(PAPER).config.training.options()
    last, head = nn.Linear(5, 8), heads.create("hard-linear", 3, 8)
    optimiser = make_optimiser(last, head, options)
    assert type(optimiser) is torch.optim.AdamW
    asked = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False}
    for passed in (0.0, 0.5, 1.0, 36.5, 47.9):
        set_rates(optimiser, options, passed)
        for group in optimiser.param_groups:
            assert {name: group[name] for name in asked} == asked
            is_head = group["params"][0] is head.layout.vectors
            assert group["lr"] == (0.01 if is_head else 0.001)
    assert sum(len(group["params"]) for group in optimiser.param_groups) == 3
    assert [options.clip, options.ema, options.drop_last, options.head_epochs] == [0, 0, False, 0]


@pytest.mark.parametrize(
    ("name", "runs", "known"),
    [("paper", 1239, "7a6655f91ce47b31"), ("small", 446, "ee16642a1f91c05b")],
)
def test_every_run_is_what_it_was_in_the_first_version(name, runs, known):
    hashes = {
        cell.config_hash for each in REPRODUCTIONS.values() for cell in each.cells(PRESETS[name])
    }
    assert len(hashes) == runs
    assert blake2b(" ".join(sorted(hashes)).encode(), digest_size=8).hexdigest() == known


def test_the_recipe_is_the_papers_unless_the_user_says_otherwise():
    for preset in PRESETS.values():
        assert cell(preset).config.recipe == "paper"
        assert cell(preset.with_settings({"recipe": "released"})).config.recipe == "released"


def test_the_small_preset_needs_no_files_and_has_another_data_set_for_each_of_the_papers():
    assert SMALL.missing(PAPER_DATA) == ""
    seen = set()
    for name in PAPER_DATA:
        config = cell(SMALL, name).config
        options = {**config.data.options, "per_class": 2, "test_per_class": 2}
        dataset = data.read(config.data.source, config.data.root, 0, **options)
        seen.add(dataset.inputs.load(0).tobytes())
    assert len(seen) == len(PAPER_DATA)


def test_a_cell_is_labelled_with_what_it_stands_for_and_what_it_is():
    labels = cell(SMALL, "historical-color", partition=1, method="coral").labels
    assert labels == {
        "data": "historical-color",
        "source": "photo-quality (levels 5, distortion all)",
        "method": "coral",
        "row": "a row",
        "partition": "1",
        "seed": "1",
    }


def test_settings_of_the_user_lie_over_the_preset_and_under_the_cell():
    preset = SMALL.with_settings({"training": {"epochs": 2}, "head": {"dim": 7}})
    config = cell(preset, settings={"head": {"dim": 9}}).config
    assert (config.training.epochs, config.head.dim) == (2, 9)
    assert config.training.batch_size == cell(SMALL).config.training.batch_size
    for cells in (REPRODUCTIONS[name].cells(preset) for name in ("figure-layouts", "table-norm")):
        assert {cell.config.training.epochs for cell in cells} == {2}


@pytest.mark.parametrize(
    "tree",
    [
        {"data": {"source": "folder"}},
        {"data": {"root": "here"}},
        {"data": {"partition": 1}},
        {"training": {"seed": 3}},
        {"training": {"decode": "median"}},
        {"head": {"method": "coral"}},
    ],
)
def test_what_is_reserved_to_the_grid_cannot_be_set(tree):
    ((section, values),) = tree.items()
    with pytest.raises(ValueError, match=rf"{section}\.{next(iter(values))} must not be set"):
        SMALL.with_settings(tree)


def test_roots_bring_the_papers_data_with_any_preset():
    roots = {"image-aesthetics": Path("beauty"), "historical-color": Path("decades")}
    preset = SMALL.with_roots(roots)
    config = cell(preset, "urban").config
    assert (config.data.source, config.data.options) == ("image-aesthetics", {"category": "urban"})
    assert config.data.root == Path("beauty").resolve()
    assert config.backbone.name == "convnet"
    assert preset.data["adience"] == SMALL.data["adience"]
    with pytest.raises(ValueError, match="--root must be a known name, got 'adiance': did you"):
        SMALL.with_roots({"adiance": Path("faces")})


def test_missing_data_are_named_with_their_origin_and_the_cure():
    everything = PAPER.missing(PAPER_DATA)
    for source in ("historical-color", "adience", "image-aesthetics"):
        assert everything.count(f"--root {source}=PATH must be given") == 1
        assert data.SOURCES[source].origin in everything
    assert "adience" not in PAPER.missing(["nature", "urban"])
    assert PAPER.with_roots({"adience": Path("faces")}).missing(["adience"]) == ""


def test_one_data_set_can_stand_for_all():
    preset = SMALL.with_source("folder", Path("photos"))
    keys = {cell(preset, name).key for name in PAPER_DATA}
    assert len(keys) == 1  # so that it is run once
    assert "folder reads data of your own" in SMALL.with_source("folder", None).missing(PAPER_DATA)


def test_a_table_of_numbers_takes_features_of_its_own():
    config = cell(SMALL.with_source("table", Path("ratings.csv"))).config
    assert (config.backbone.name, config.backbone.options) == ("mlp", {})


def test_no_more_partitions_than_the_protocol_has():
    assert PAPER.with_partitions(2).data["nature"].partitions == 2
    with pytest.raises(ValueError, match="at most 5 for Adience Face, got 7"):
        PAPER.with_partitions(7)
    many = SMALL.with_partitions(7)
    assert many.data["nature"].partitions == 7
    assert many.with_roots({"adience": Path("x")}).data["adience"].partitions == 5
