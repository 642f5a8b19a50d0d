"""The paper's tables and figures as grids: the runs that they need."""

import functools

import pandas as pd
import pytest
import torch

from layline import heads
from layline.bench.paper import REPRODUCTIONS, numbers
from layline.bench.paper.figures import default_option
from layline.bench.paper.presets import PRESETS

PAPER, SMALL = PRESETS["paper"], PRESETS["small"]
COUNTS = {
    "table-historical-adience": 225,
    "table-aesthetics": 280,
    "figure-scale": 25,
    "figure-tau": 60,
    "figure-alpha": 70,
    "figure-dimension": 240 - 5,
    "figure-layouts": 4,
    "table-unimodal": 280,
    "table-negative-euclidean": 210,
    "table-norm": 175,
}


def test_every_name_is_there_with_the_cells_and_the_recipe_of_the_paper():
    assert list(REPRODUCTIONS) == list(COUNTS)
    cells = {name: each.cells(PAPER) for name, each in REPRODUCTIONS.items()}
    assert {name: len(some) for name, some in cells.items()} == COUNTS
    for name, some in cells.items():
        labels = [tuple(cell.labels.values()) for cell in some]
        assert len(set(labels)) == len(labels), name
        for cell in some:
            training, features = cell.config.training, cell.config.backbone
            assert (training.epochs, training.batch_size, training.optimiser) == (48, 32, "adamw")
            assert (training.learning_rate, training.head_learning_rate) == (1e-3, 1e-2)
            assert (features.name, features.weights) == ("vgg16", "imagenet")
            assert cell.config.data.partition == training.seed == int(cell.labels["seed"])
            if name not in ("figure-dimension", "figure-layouts"):
                assert cell.config.head.dim == 512


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_partition_is_used_once(name):
    each = REPRODUCTIONS[name]
    frame = pd.DataFrame(dict(cell.labels) for cell in each.cells(PAPER))
    by = [key for key in ("data", "row", "x") if key in frame]
    for labels, group in frame.groupby(by):
        used = 1 if name == "figure-layouts" else PAPER.data[labels[0]].partitions
        assert group["partition"].astype(int).tolist() == list(range(used))
    assert set(frame["data"]) == set(each.data)


def test_cells_that_tables_share_are_run_once():
    keys = [cell.key for each in REPRODUCTIONS.values() for cell in each.cells(SMALL)]
    assert len(set(keys)) == 446
    main = {cell.key for cell in REPRODUCTIONS["table-historical-adience"].cells(SMALL)}
    for name, shared in {"figure-scale": 2, "figure-tau": 4, "figure-alpha": 4}.items():
        assert len(main & {cell.key for cell in REPRODUCTIONS[name].cells(SMALL)}) == shared


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_cell_can_be_built_as_a_head(name):
    wanted = {
        (head.method, head.dim, tuple(head.options.items())): head
        for cell in REPRODUCTIONS[name].cells(SMALL)
        for head in [cell.config.head]
    }
    for each in wanted.values():
        head = heads.create(each.method, 5, each.dim, **each.options)
        assert head.loss(torch.randn(4, each.dim), torch.arange(4)).isfinite()


@functools.cache
def small_heads(name):
    """What describes the head of a cell, by the row and the place on the axis."""
    return {
        (cell.labels["row"], cell.labels.get("x")): cell.config.head
        for cell in REPRODUCTIONS[name].cells(SMALL)
    }


def head_of(name, row, x=None):
    wanted = small_heads(name)[row, x]
    return heads.create(wanted.method, 8, wanted.dim, **wanted.options)


def scale(head):
    return head.similarity.scale


def tau(head):
    return head.smoothing.tau


def alpha(head):
    return head.alpha


def dim(head):
    return head.dim


SOFT, ALL = ("S-P", "S-B"), ("H-L", "H-S", "S-P", "S-B")


@pytest.mark.parametrize(
    ("name", "row", "values", "read"),
    [
        ("figure-scale", "H-S", [2, 4, 6, 8, 10], scale),
        *[("figure-tau", row, [0.07, 0.09, 0.11, 0.13, 0.15, 0.17], tau) for row in SOFT],
        *[("figure-alpha", row, [0, 2, 4, 6, 8, 10, 12], alpha) for row in SOFT],
        *[("figure-dimension", row, [2**p for p in range(1, 12)], dim) for row in ALL],
        *[("figure-dimension", row, [1], dim) for row in ALL if row != "H-S"],
    ],
)
def test_the_curves_vary_what_the_paper_varies(name, row, values, read):
    assert [read(head_of(name, row, f"{x:g}")) for x in values] == values


def test_a_default_is_the_papers_and_not_set_so_that_the_run_is_shared():
    assert default_option("hard-semicircular", "scale") == 6
    assert default_option("soft-poisson", "tau") == 0.11
    assert default_option("soft-binomial", "tau") == 0.13
    assert default_option("soft-binomial", "alpha") == default_option("soft-poisson", "alpha") == 6
    for cell in REPRODUCTIONS["figure-tau"].cells(SMALL):
        is_default = float(cell.labels["x"]) == default_option(cell.labels["method"], "tau")
        assert (cell.config.head.options == {}) is is_default


def test_half_a_circle_in_one_dimension_is_impossible():
    ((labels, reason),) = REPRODUCTIONS["figure-dimension"].impossible().items()
    assert labels == ("H-S", "1")
    assert "half a circle needs a plane" in reason
    others = [each for name, each in REPRODUCTIONS.items() if name != "figure-dimension"]
    assert not any(each.impossible() for each in others)


@pytest.mark.parametrize(
    ("row", "norm"), [("learnable v0", None), *[(f"Fix ‖v0‖ = {n}", n) for n in (1, 3, 5, 7)]]
)
def test_the_table_of_norms_fixes_them(row, norm):
    head = head_of("table-norm", row)
    lengths = head.proxies().diff(dim=0).norm(dim=1)
    before = lengths.mean().item()
    for vector in head.parameters():
        vector.data.mul_(3)
    after = head.proxies().diff(dim=0).norm(dim=1).mean().item()
    if norm is None:
        assert after == pytest.approx(3 * before, rel=1e-4)
    else:
        assert before == pytest.approx(norm, rel=1e-4)
        assert after == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("row", ["H-L", "S-P", "S-B"])
def test_the_dagger_is_the_negative_euclidean_distance(row):
    plain, other = (head_of("table-negative-euclidean", name) for name in (row, f"{row} †"))
    assert type(plain.similarity).__name__ == "StudentT"
    assert type(other.similarity).__name__ == "NegativeEuclidean"
    assert type(plain.layout) is type(other.layout)
    assert plain.smoothing == other.smoothing


def test_the_rows_of_unimodal_shapes_have_them():
    shapes = {"P": "Poisson", "B": "Binomial", "E": "Exponential", "T": "Triangular"}
    similarities = {"Euc": "StudentT", "Cos": "Cosine"}
    for row in numbers.UNIMODAL.printed.rows:
        similarity, letter = row.split()
        head = head_of("table-unimodal", row)
        assert type(head.smoothing).__name__ == shapes[letter.strip("()")]
        assert type(head.similarity).__name__ == similarities[similarity]


def test_layout_cells_have_two_dimensions_and_record_what_is_drawn():
    for cell in REPRODUCTIONS["figure-layouts"].cells(PAPER):
        assert cell.config.head.dim == 2
        assert cell.config.report.enabled
        assert cell.config.data.partition == 0
    assert not REPRODUCTIONS["table-norm"].cells(PAPER)[0].config.report.enabled


def test_the_rows_of_the_aesthetics_are_those_of_the_first_table_but_one():
    assert set(numbers.AESTHETICS.printed.rows) == set(numbers.HISTORICAL_ADIENCE.printed.rows) - {
        "GP-DNNOR"
    }
