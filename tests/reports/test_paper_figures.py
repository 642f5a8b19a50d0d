"""Figures for print: the files of a reproduction, and the critical-difference diagram."""

import itertools

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from layline.bench.paper import load_presets, load_reproductions
from layline.bench.store import Outcome, Store
from layline.reports.paper_figures import (
    critical_difference_diagram,
    save_figure,
    write_reproduction,
)
from layline.training.report_data import Snapshot

REPRODUCTIONS, SMALL = load_reproductions(), load_presets()["small"]


def snapshot(seed, classes=8, each=10):
    rng = np.random.default_rng(seed)
    ranks = np.repeat(np.arange(classes), each)
    points = rng.normal(ranks[:, None], 0.7, (len(ranks), 2)).astype(np.float32)
    proxies = np.stack([np.arange(classes)] * 2, axis=1).astype(np.float32)
    predicted = points.mean(axis=1).round().clip(0, classes - 1).astype(int)
    return Snapshot(points, ranks, predicted, 1.0, np.arange(len(ranks)), proxies)


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_reproduction_writes_its_files(name, tmp_path):
    each = REPRODUCTIONS[name]
    cells = each.cells(SMALL)
    store = Store(tmp_path)
    for number, cell in enumerate(cells):
        numbers = {"mode": {"mae": number / 7, "accuracy": 0.5}}
        store.finish(cell, Outcome(cell.key, numbers=numbers))
        for moment in ("test", 1, 2) if each.layouts else ():
            snapshot(number).save(store.run_folder(cell).layout(moment))
    write_reproduction(each, SMALL, cells, store, tmp_path / name)
    names = {path.name for path in (tmp_path / name).iterdir()}
    assert names >= {"table.md", "table.csv", "cells.csv"}
    assert ("figure.png" in names) == ("figure.pdf" in names) == name.startswith("figure")
    if "figure.png" in names:
        with Image.open(tmp_path / name / "figure.png") as image:
            assert len(image.convert("RGB").getcolors(image.width * image.height)) > 50
    again = pd.read_csv(tmp_path / name / "cells.csv", dtype=str)
    assert again["mae"].astype(float).tolist() == pytest.approx(store.frame(cells)["mae"].tolist())


@pytest.mark.parametrize("k", [2, 9, 34])
def test_the_diagram_names_every_method_once_without_overlaps(tmp_path, k):
    values = np.random.default_rng(k).uniform(1, k, size=k)
    ranks = pd.Series(values, index=[f"method-{i}" for i in range(k)])
    figure = critical_difference_diagram(ranks, num_data=12, title="costs 5 $ and _")
    save_figure(figure, tmp_path / "diagram")
    png, pdf = tmp_path / "diagram.png", tmp_path / "diagram.pdf"
    assert pdf.read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in pdf.read_bytes()
    assert png.stat().st_size > 1000
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    words = " ".join(text.get_text() for text in texts).split()
    assert all(words.count(name) == 1 for name in ranks.index)
    boxes = [text.get_window_extent() for text in texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
