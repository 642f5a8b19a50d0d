"""Reading data, building models and making splits."""

import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from layline.data import Splits
from layline.training.callbacks import Reporter
from layline.training.prepare import (
    PreparedRun,
    build_backbone,
    build_model,
    make_splits,
    read_data,
)
from layline.training.recipes import resolve_config
from layline.training.run_folder import fingerprint_data

QUIET = Reporter(Console(quiet=True))
FEW = {"per_class": 4, "validation_per_class": 2, "test_per_class": 2}


def config(**sections):
    sections.setdefault("data", {"source": "photo-quality", "options": FEW})
    return resolve_config({"head": {"dim": 3, "method": "ranking"}}, sections)


def build(config, dataset):
    return build_model(config, dataset, build_backbone(config, dataset), QUIET)


@pytest.fixture(scope="module")
def dataset():
    return read_data(config(), QUIET)


def test_damaged_files_stop_a_run_unless_they_are_skipped(photographs, tmp_path):
    root = shutil.copytree(photographs, tmp_path / "photographs")
    (root / "train" / "0" / "bad.png").write_bytes(b"no image")
    wanted = {"source": "folder", "root": str(root)}
    backbone = {"name": "convnet"}
    with pytest.raises(ValueError, match=r"bad\.png"):
        read_data(config(data=wanted, backbone=backbone), QUIET)
    file = io.StringIO()
    skipping = config(data=wanted | {"skip_bad": True}, backbone=backbone)
    found = read_data(skipping, Reporter(Console(file=file, width=200)))
    assert len(found.inputs) == 60
    assert "bad.png" in file.getvalue()


def test_columns_are_scaled_by_the_training_rows(table):
    wanted = config(data={"source": "table", "root": str(table)})
    rows = read_data(wanted, QUIET)
    expected = rows.inputs.values[rows.splits.train].mean(axis=0)
    np.testing.assert_allclose(build(wanted, rows).backbone.mean, expected, atol=1e-6)


def test_the_fingerprint_depends_on_names_ranks_and_splits(dataset):
    first = fingerprint_data(dataset)["data"]
    assert fingerprint_data(read_data(config(), QUIET))["data"] == first
    splits = dataset.splits
    others = [
        replace(dataset, ranks=np.roll(dataset.ranks, 1)),
        replace(dataset, classes=tuple("abcdef")),
        replace(dataset, splits=Splits(splits.train, splits.test, splits.validation)),
        dataset.drop([3]),
    ]
    assert len({first, *(fingerprint_data(other)["data"] for other in others)}) == 5


def test_only_training_images_are_augmented_and_the_test_is_not_weighted(dataset):
    wanted = config(training={"class_weight": {"poor": 3.0}})
    splits = make_splits(PreparedRun(wanted, dataset, build(wanted, dataset), None, QUIET))
    assert [len(split.ranks) for split in splits.values()] == [24, 12, 12]
    keys = [[(0, epoch)] for epoch in range(8)]  # flipped or not
    first, *others = (splits["train"].samples.__getitems__(key)[0] for key in keys)
    assert not all(torch.equal(first, other) for other in others)
    first, *others = (splits["validation"].samples.__getitems__(key)[0] for key in keys)
    assert all(torch.equal(first, other) for other in others)
    for name in ("train", "validation"):
        weight, ranks = splits[name].weight, splits[name].ranks
        assert weight.mean().item() == pytest.approx(1)
        assert (weight[ranks == 1] / weight[ranks == 0]).unique() == 3
    assert (splits["test"].weight == 1).all()
