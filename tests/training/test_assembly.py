"""From a configuration to the data, the model and the parts of a run."""

import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from layline import data
from layline.data import Splits
from layline.data.images import ImageArrays
from layline.training import assembly
from layline.training.assembly import build, data_fingerprint, parts_of, read_data
from layline.training.display import Reporter
from layline.training.recipes import resolve_config

QUIET = Reporter(Console(quiet=True))
FEW = {"per_class": 4, "validation_per_class": 2, "test_per_class": 2}


def config(**sections):
    sections.setdefault("data", {"source": "photo-quality", "options": FEW})
    return resolve_config({"head": {"dim": 3}}, sections)


@pytest.fixture(scope="module")
def photographs_read():
    return data.read("photo-quality", **FEW)


def test_what_was_found_is_told():
    console = Console(file=io.StringIO(), width=200)
    read_data(config(), Reporter(console))
    assert console.file.getvalue().splitlines() == [
        "No part for calibration, and so no ranges: 10% of the training samples would be 2, and 9 "
        "are needed",
        "Classes, lowest first: very poor < poor < fair < good < very good < excellent",
        "Samples: 24 for train, 12 for validation, 12 for test",
    ]


def test_bad_files_stop_a_run_unless_they_may_be_left_out(photographs, tmp_path):
    root = shutil.copytree(photographs, tmp_path / "photographs")
    (root / "train" / "0" / "bad.png").write_bytes(b"no image")
    wanted = config(data={"source": "folder", "root": root}, features={"name": "convnet"})
    with pytest.raises(ValueError, match=r"bad\.png"):
        read_data(wanted, QUIET)
    skipping = wanted.model_copy(update={"data": wanted.data.model_copy(update={"skip_bad": True})})
    console = Console(file=io.StringIO())
    found = read_data(skipping, Reporter(console))
    assert len(found.inputs) == 60
    assert "Left out: 1 image cannot be read:" in console.file.getvalue()


def test_copies_stay_in_one_part_unless_they_are_to_be_ignored(tmp_path):
    for picture in range(20):
        noise = np.random.default_rng(picture).integers(0, 256, (24, 24, 3)).astype(np.uint8)
        folder = tmp_path / ("low", "high")[picture % 2]
        folder.mkdir(exist_ok=True)
        for copy in range(3):
            Image.fromarray(noise).save(folder / f"{picture}-{copy}.png")

    def spread(**options):
        """Count the pictures that are in more than one part, and give what was said."""
        wanted = {"source": "folder", "root": tmp_path, **options}
        console = Console(file=io.StringIO(), width=200)
        found = read_data(config(data=wanted, features={"name": "convnet"}), Reporter(console))
        names = np.array([name.rpartition("-")[0] for name in found.inputs.names])
        parts = [set(names[part]) for part in found.splits.by_name().values()]
        return sum(map(len, parts)) - 20, console.file.getvalue()

    split, said = spread()
    assert split == 0
    assert "40 images are copies of others (20 groups): copies stay in one part" in said
    assert spread(duplicates="exact")[0] == 0
    split, said = spread(duplicates="off")
    assert split > 5
    assert "copies" not in said


def test_the_weights_follow_from_the_seed(photographs_read):
    one, same = (build(config(), photographs_read).state_dict() for _ in range(2))
    other = build(config(training={"seed": 1}), photographs_read).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["backbone.last.weight"], other["backbone.last.weight"])


def test_building_draws_nothing_from_others(photographs_read):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    build(config(), photographs_read)
    assert torch.equal(torch.rand(1), expected)


def test_rows_and_images_have_their_own_features(photographs_read, table):
    with pytest.raises(ValueError, match="must be for images, got mlp: photo-quality has images"):
        build(config(features={"name": "mlp"}), photographs_read)
    rows = data.read("table", table)
    wanted = config(data={"source": "table", "root": table}, features={"name": "convnet"})
    with pytest.raises(ValueError, match="must be for tables, got convnet: table has rows"):
        build(wanted, rows)


def test_columns_are_scaled_by_the_training_rows(table):
    rows = data.read("table", table)
    model = build(config(data={"source": "table", "root": table}), rows)
    expected = rows.inputs.values[rows.splits.train].mean(axis=0)
    np.testing.assert_allclose(model.backbone.mean, expected, atol=1e-6)


def test_data_are_told_apart(photographs_read):
    first = data_fingerprint(photographs_read)
    assert data_fingerprint(data.read("photo-quality", **FEW)) == first
    parts = photographs_read.splits
    swapped = Splits(parts.train, parts.test, parts.validation)
    others = [
        replace(photographs_read, ranks=np.roll(photographs_read.ranks, 1)),
        replace(photographs_read, classes=tuple("abcdef")),
        replace(photographs_read, splits=swapped),
        photographs_read.drop([3]),
    ]
    assert len({first, *map(data_fingerprint, others)}) == 5


def test_only_training_images_vary_and_only_the_test_is_unweighted(photographs_read):
    wanted = config(training={"class_weight": {"poor": 3.0}})
    found = parts_of(wanted, photographs_read, build(wanted, photographs_read).spec)
    assert [len(part.ranks) for part in found.values()] == [24, 12, 12]
    keys = [[(0, epoch)] for epoch in range(8)]  # flipped or not
    first, *others = (found["train"].samples.__getitems__(key)[0] for key in keys)
    assert not all(torch.equal(first, other) for other in others)
    first, *others = (found["validation"].samples.__getitems__(key)[0] for key in keys)
    assert all(torch.equal(first, other) for other in others)
    for name in ("train", "validation"):
        weight = found[name].weight
        assert weight.mean().item() == pytest.approx(1)
        assert (weight[found[name].ranks == 1] / weight[found[name].ranks == 0]).unique() == 3
    assert (found["test"].weight == 1).all()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"head": {"dim": 99_999_999_999}}, r"the run must fit into memory, got .* weights"),
        ({"head": {"dim": 10**30}}, "sizes must fit into memory, got one that no computer has"),
        ({"data": {"size": 100_000}}, r"a batch of 24 images of 100000 × 100000 pixels"),
        ({"data": {"size": 10**30}}, r"the run must fit into memory"),
        ({"backbone": {"options": {"channels": 10**12}}}, "sizes must fit into memory"),
        ({"backbone": {"options": {"depth": 14}}}, "the run must fit into memory"),
        ({"backbone": {"options": {"hidden": 10**12}}}, "the run must fit into memory"),
    ],
)
@pytest.mark.parametrize("method", ["arc", "gp-dnnor"])
def test_a_model_that_cannot_fit_is_refused_before_it_is_made(
    photographs_read, sections, message, method
):
    data = {"source": "photo-quality"} | sections.get("data", {})
    head = {"method": method} | sections.get("head", {})
    wanted = config(**{**sections, "data": data, "head": head})
    with pytest.raises(MemoryError, match=message) as error:
        build(wanted, photographs_read)
    assert "free" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_counted_is_no_more_than_a_run_takes(photographs_read, monkeypatch):
    counted = {}
    monkeypatch.setattr(assembly, "check_fits", lambda what, needed, *rest: counted.update(needed))
    wanted = config(training={"optimiser": "adamw", "ema": 0.9, "batch_size": 10**12})
    weights = sum(4 * each.numel() for each in build(wanted, photographs_read).parameters())
    assert list(counted.values()) == [weights, weights, 2 * weights, weights, 24 * 15 * 48 * 48]


def test_images_that_are_too_small_are_refused_before_training():
    dataset = data.read("photo-quality", **FEW)
    tiny = replace(dataset, inputs=ImageArrays(np.zeros((len(dataset.ranks), 1, 1), np.uint8)))
    with pytest.raises(ValueError, match="images must be at least 8×8 pixels, got 1×1"):
        build(config(), tiny)
