"""The files of a reproduction, from invented results."""

import functools
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from layline.bench.paper import REPRODUCTIONS
from layline.bench.paper.presets import PRESETS
from layline.reports.paper_figures import (
    draw_curves,
    draw_layouts,
    interactive_curves,
    interactive_layouts,
    split_by_outcome,
)
from layline.reports.reproduction import write_reproduction
from layline.training.record import Snapshot
from layline.training.run_folder import RunFolder

SMALL = PRESETS["small"]


def invented(cells):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {**cell.labels, "decode": "mode", "accuracy": a, "mae": m, "error": ""}
        for cell in cells
        for a, m in [rng.random(2)]
    )


def snapshot(seed, classes=8, each=10):
    rng = np.random.default_rng(seed)
    ranks = np.repeat(np.arange(classes), each)
    points = rng.normal(ranks[:, None], 0.7, (len(ranks), 2)).astype(np.float32)
    proxies = np.stack([np.arange(classes)] * 2, axis=1).astype(np.float32)
    predicted = points.mean(axis=1).round().clip(0, classes - 1).astype(int)
    return Snapshot(points, ranks, predicted, 1.0, proxies)


def write(name, folder, frame=None, epochs=(1, 2, 3)):
    each = REPRODUCTIONS[name]
    cells = each.cells(SMALL)
    for number, cell in enumerate(cells if name == "figure-layouts" else []):
        for moment in ("test", *epochs):
            snapshot(number).save(RunFolder(folder / cell.key).layout(moment))
    frame = invented(cells) if frame is None else frame
    files = write_reproduction(
        each, SMALL, cells, frame, lambda cell: RunFolder(folder / cell.key), folder / name
    )
    return {path.name: path for path in files}, frame


def is_drawn(path):
    with Image.open(path) as picture:
        colours = picture.convert("RGB").getcolors(picture.width * picture.height)
    return len(colours) > 50


QUICK = ("table-norm", "figure-tau")  # the others take as long as all the rest


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files of a reproduction by its name, and their frame, each written once."""
    return functools.cache(lambda name: write(name, tmp_path_factory.mktemp("written")))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in REPRODUCTIONS],
)
def test_every_reproduction_writes_its_files(name, written):
    files, frame = written(name)
    assert all(path.stat().st_size for path in files.values())
    expected = {"table.md", "table.tex", "table.csv", "cells.csv"}
    if name.startswith("figure"):
        expected |= {"figure.png", "figure.pdf", "figure.html"}
        assert is_drawn(files["figure.png"])
        assert files["figure.pdf"].read_bytes().startswith(b"%PDF")
    if name == "figure-layouts":
        expected |= {"figure-all.png", "figure-all.pdf"}
        assert files["figure.png"].read_bytes() != files["figure-all.png"].read_bytes()
    assert set(files) == {path.name for path in files["table.md"].parent.iterdir()} == expected
    again = pd.read_csv(files["cells.csv"], dtype=str)
    assert again["mae"].astype(float).tolist() == pytest.approx(frame["mae"].tolist())


def test_a_page_asks_nobody_for_anything(written):
    page = written("figure-tau")[0]["figure.html"].read_text()
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", page)
    assert "Plotly.newPlot" in page
    assert "Not the paper&#x27;s data: Adience Face is photo-quality" in page
    assert page.count("<html") == page.count("</html>") == 1


def test_the_same_results_give_the_same_files(written, tmp_path):
    first, second = written("figure-tau")[0], write("figure-tau", tmp_path)[0]
    assert set(first) == set(second)
    for name in first:
        assert first[name].read_bytes() == second[name].read_bytes(), name


def test_curves_have_two_axes_and_every_point_of_the_frame():
    each = REPRODUCTIONS["figure-alpha"]
    curves = each.curves(invented(each.cells(SMALL)))
    figure = draw_curves(curves, each.symbol, each.title, each.drawn)
    left, right = figure.axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("MAE", "Accuracy (%)")
    for axis, metric in ((left, "mae"), (right, "accuracy")):
        drawn = [bar[0].get_ydata().tolist() for bar in axis.containers]
        assert drawn == [[e.mean for e in curve.metrics[metric]] for curve in curves]
    page = interactive_curves(curves, each.symbol, each.title, each.drawn)
    assert [list(trace.y) for trace in page.data[:2]] == [
        [e.mean for e in curve.metrics["mae"]] for curve in curves
    ]
    assert {trace.yaxis for trace in page.data} == {"y", "y2"}
    styles = {(t.line.color, t.line.dash, t.marker.symbol) for t in page.data}
    assert len({symbol for _, _, symbol in styles}) == len(page.data)  # without colours too


def test_dimensions_are_drawn_in_factors_with_one_axis():
    each = REPRODUCTIONS["figure-dimension"]
    curves = each.curves(invented(each.cells(SMALL)))
    figure = draw_curves(curves, each.symbol, each.title, each.drawn)
    assert [axis.get_xscale() for axis in figure.axes] == ["log"]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()][:3] == ["1", "2", "4"]


def test_samples_are_either_correct_or_wrong():
    whole = snapshot(3)
    right, others = split_by_outcome(whole)
    assert len(right.ranks) + len(others.ranks) == len(whole.ranks)
    assert (right.ranks == right.predicted).all()
    assert (others.ranks != others.predicted).all()
    assert len(others.ranks) > 0


@pytest.mark.parametrize("misclassified", [False, True])
def test_layouts_draw_all_samples_or_the_correct_ones(misclassified):
    methods = {"H-L": {"test": snapshot(0), "validation, epoch 1": snapshot(1)}}
    figure = draw_layouts(methods, "a title", misclassified)
    for axis, whole in zip(figure.axes, methods["H-L"].values(), strict=True):
        proxies = len(whole.proxies)
        drawn = sum(len(points.get_offsets()) for points in axis.collections) - proxies
        assert drawn == (
            len(whole.ranks) if misclassified else len(split_by_outcome(whole)[0].ranks)
        )


def test_on_a_page_the_misclassified_are_a_group_of_their_own():
    methods = {
        "H-L": {"test": snapshot(0), "validation, epoch 1": snapshot(1)},
        "S-P": {"test": snapshot(2)},
    }
    page = interactive_layouts(methods, "a title")
    assert [trace.name for trace in page.data] == ["correct", "misclassified", "proxies"] * 3
    assert sum(trace.showlegend for trace in page.data) == 3
    crosses = page.data[1]
    assert crosses.marker.symbol == "x-thin"
    assert len(crosses.x) == len(split_by_outcome(snapshot(0))[1].ranks)
    titles = [note.text for note in page.layout.annotations]
    assert titles == ["H-L, test", "H-L, validation, epoch 1", "S-P, test"]


@pytest.mark.slow
def test_a_failed_run_has_no_picture_and_the_others_have_theirs(tmp_path):
    cells = REPRODUCTIONS["figure-layouts"].cells(SMALL)
    frame = invented(cells)
    frame.loc[frame["row"] == "H-S", ["error", "mae", "accuracy"]] = ["ValueError: no", None, None]
    files, _ = write("figure-layouts", tmp_path, frame, epochs=(1,))
    assert "failed: ValueError" in files["table.md"].read_text()
    assert "H-S, test" not in files["figure.html"].read_text()
    assert "H-L, test" in files["figure.html"].read_text()
    frame["error"] = "ValueError: no"
    frame[["mae", "accuracy"]] = np.nan
    files, _ = write("figure-layouts", tmp_path / "none", frame, epochs=(1,))
    assert "figure.html" not in files
