"""What measures speed measures the right things. No test looks at a time."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from layline.heads import create

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


@pytest.mark.parametrize("num_classes", [2, 8, 31])
@pytest.mark.parametrize(
    ("ours", "theirs"), [("hard-linear", "TextbookLine"), ("hard-semicircular", "TextbookArc")]
)
def test_the_textbook_computes_the_same(ours, theirs, num_classes):
    import textbook

    head = create(ours, num_classes, 16)
    written_down = getattr(textbook, theirs)(num_classes, 16)
    (learned,) = written_down.parameters()
    with torch.no_grad():
        head.layout.vectors.copy_(learned)
    torch.testing.assert_close(head.proxies(), written_down.proxies(), rtol=1e-4, atol=1e-5)
    features, ranks = torch.randn(20, 16, requires_grad=True), torch.arange(20) % num_classes
    (short,), (long,) = (
        torch.autograd.grad(each.loss(features, ranks), features) for each in (head, written_down)
    )
    torch.testing.assert_close(short, long, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(head.loss(features, ranks), written_down.loss(features, ranks))
    assert torch.equal(head.predict(features), written_down.predict(features))


def test_memory_is_counted_at_its_peak():
    from measuring import peak_bytes

    before = torch.ones(1000)

    def task():
        a = before + 1
        b = a * 2
        del a
        return b + b  # two arrays at once, three never

    assert peak_bytes(task) == 2 * 4000


@pytest.mark.slow
def test_the_table_the_file_and_the_plot_are_made(tmp_path):
    given = "--classes 3 5 --samples 4 --dim 6 --repetitions 1 --heads hard-linear soft-poisson"
    command = [sys.executable, FOLDER / "heads.py", *given.split(), "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    frame = pd.read_csv(tmp_path / "speed.csv")
    assert set(frame["K"]) == {3, 5}
    assert {"classification", "hard-linear", "soft-poisson", "textbook line"} <= set(
        frame["method"]
    )
    assert (frame["train_seconds"] > 0).all()
    assert (frame.loc[frame["method"] == "classification", "train_ratio"] == 1).all()
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    for name in frame["method"].unique():
        assert name in done.stdout
    assert "hard-linear: predict at K = 100000 against K = 3" in done.stdout
    assert "faster than the textbook line" in done.stdout
