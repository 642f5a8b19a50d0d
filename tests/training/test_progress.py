import io
import os

import pytest
from torch import nn

from layline.training import BestEpoch, Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def window(monkeypatch):
    size = os.terminal_size((120, 24))
    monkeypatch.setattr("shutil.get_terminal_size", lambda: size)


def run(stream, maes=(0.9, 0.4, 0.6), verbose=1, validated=True, planned=3):
    best = BestEpoch(nn.Linear(1, 1))
    with Progress(planned, verbose, stream) as progress:
        for epoch, mae in enumerate(maes, start=1):
            record = {"epoch": epoch, "train_loss": 1 / epoch}
            if validated:
                record["validation_mae"] = mae
                best.offer(epoch, mae)
            progress.show(record, best)
    return stream.getvalue()


def test_a_plain_stream_gets_one_line_per_epoch():
    lines = run(io.StringIO()).splitlines()
    assert lines == [
        "epoch 1/3  loss 1.0000  val MAE 0.9000  best 0.9000 at 1",
        "epoch 2/3  loss 0.5000  val MAE 0.4000  best 0.4000 at 2",
        "epoch 3/3  loss 0.3333  val MAE 0.6000  best 0.4000 at 2",
    ]


def test_a_terminal_gets_one_line_that_is_rewritten():
    shown = run(Terminal())
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    states = shown.strip().split("\r")
    assert len(states) == 3
    assert states[-1].startswith("[==========]  epoch 3/3  loss 0.3333")
    assert "best 0.4000 at 2" in states[-1]
    assert "0:00 left" in states[-1]


def test_a_shorter_line_covers_the_longer_one_before_it():
    shown = run(Terminal(), maes=(1000.0, 0.4))
    first, second = shown.strip("\r\n").split("\r")
    assert len(second) >= len(first)


def test_a_line_never_wraps(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((30, 24)))
    assert all(len(state) < 30 for state in run(Terminal()).strip().split("\r"))


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_nothing_is_shown_at_zero(stream):
    assert run(stream(), verbose=0) == ""


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_without_validation_only_the_loss_is_shown(stream):
    shown = run(stream(), validated=False)
    assert "loss" in shown
    assert "MAE" not in shown
    assert "best" not in shown


def test_the_line_ends_when_training_fails():
    stream = Terminal()
    progress = Progress(2, 1, stream)
    with pytest.raises(KeyboardInterrupt), progress:  # noqa: PT012
        progress.show({"epoch": 1, "train_loss": 1.0}, BestEpoch())
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("\n")


@pytest.mark.parametrize(
    ("elapsed", "left"), [(10, "0:30 left"), (60, "3:00 left"), (3600, "3:00:00 left")]
)
def test_the_time_left_follows_from_the_time_so_far(monkeypatch, elapsed, left):
    times = iter([0.0, float(elapsed)])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    assert left in run(Terminal(), maes=(1.0,), planned=4)


def test_stderr_is_the_default(capsys):
    Progress(1).show({"epoch": 1, "train_loss": 1.0}, BestEpoch())
    captured = capsys.readouterr()
    assert captured.err == "epoch 1/1  loss 1.0000\n"
    assert captured.out == ""
