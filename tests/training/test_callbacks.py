"""Callbacks: signals, and what a user sees during training."""

import io
import os
import signal
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

from layline.training.callbacks import ProgressDisplay, Reporter, Signals
from layline.training.config import TrainingConfig
from layline.training.trainer import Trainer, TrainingState


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_requests_a_stop_and_handlers_are_restored(number):
    before, made = signal.getsignal(number), Signals()
    made.on_start(None)
    assert not made.stop_requested()
    signal.raise_signal(number)
    assert made.stop_requested()
    signal.raise_signal(signal.SIGTERM)  # schedulers repeat it
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    made.on_end(None)
    assert signal.getsignal(number) is before


def test_ignored_signals_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells do for background jobs
    try:
        made = Signals()
        made.on_start(None)
        signal.raise_signal(signal.SIGINT)
        assert not made.stop_requested()
        made.on_end(None)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_event_stops_a_run():
    event = threading.Event()
    assert not Signals(event).stop_requested()
    event.set()
    assert Signals(event).stop_requested()


@pytest.mark.parametrize(
    ("step", "signals", "message"),
    [
        (3, (signal.SIGINT,), "Stopped in epoch 1 at step 3; the state is saved."),
        (10, (signal.SIGTERM,), "Stopped in epoch 3 at step 0; the state is saved."),
        (8, (signal.SIGINT,) * 2, "Stopped at once; earlier checkpoints are kept."),
    ],
)
def test_a_stopped_run_is_resumed_with_the_same_result(
    monkeypatch, command, options, whole, outcome, tmp_path, step, signals, message
):
    folder = tmp_path / "run"
    function, calls = Trainer._step, []

    def interrupt(*args):
        calls.append(1)
        for each in signals if len(calls) == step else ():
            os.kill(os.getpid(), each)
        return function(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupt)
        stopped = command("train", *options, "--out", folder)
    assert stopped.exit_code == 130
    assert message in stopped.stderr
    assert stopped.stderr.endswith(f"\n  layline train --resume {folder}\n")
    assert not (folder / "test.json").exists()
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)


@pytest.mark.slow
def test_workers_end_with_the_run(attempt, photographs, outcome, tmp_path):
    """A terminal, a launcher or a scheduler may send a signal to every process of the run."""
    options = ("folder", "--root", photographs, "--backbone", "convnet", "--workers", 2)
    options += ("--dim", 4, "--epochs", 2, "--batch-size", 12)
    options += ("--set", "training.checkpoint_minutes=0")
    assert attempt("train", *options, "--out", tmp_path / "whole").codes == [0]
    for deed, code in {"interrupt": 130, "terminate all": 130, "kill": -9}.items():
        folder = tmp_path / deed.replace(" ", "-")
        harm = {"target": "layline.training.trainer:Trainer._step", "deed": deed, "number": 2}
        stopped = attempt("train", *options, "--out", folder, harm=[harm])
        assert (stopped.codes, stopped.left) == ([code], []), stopped.stderr
        assert ("Stopped in epoch 1 at step 2" in stopped.stderr) == (code == 130)
        assert attempt("train", "--resume", folder, "--workers", 0).codes == [0]
        assert outcome(folder) == outcome(tmp_path / "whole")


# The display

RECORD = {"epoch": 2, "train_loss": 0.5, "validation_loss": 0.75}
RECORD |= {"validation_mae": 0.25, "validation_accuracy": 0.875}


def show(shown=True, metric="mae", **console):
    """Show the second of ten epochs: four steps of 32 images, half a second each."""
    now, file = [0.0], io.StringIO()
    console = Console(file=file, get_time=lambda: now[0], color_system=None, **console)
    state = TrainingState(epoch=2, loss_sum=6.0, weight_sum=8.0, best_epoch=1, best_score=0.125)
    options = TrainingConfig(epochs=10, metric=metric).options()
    trainer = SimpleNamespace(state=state, options=options, batches=SimpleNamespace(steps=4))
    display = ProgressDisplay(console, shown)
    display.on_start(trainer)
    for _ in range(4):
        now[0] += 0.5
        state.step += 1
        display.on_step(trainer)
    state.history.append(RECORD)
    display.on_epoch_end(trainer, None, False)
    display.on_end(trainer)
    return file.getvalue()


@pytest.mark.parametrize(("metric", "label"), [("mae", "MAE"), ("qwk", "QWK")])
def test_a_log_gets_a_line_per_epoch_that_names_the_metric(metric, label):
    assert show(metric=metric, width=40) == (
        "epoch  2/10  loss 0.5000  val loss 0.7500  val MAE 0.2500  accuracy 0.8750  "
        f"best {label} 0.1250 at epoch 1  64 samples/s  0:00:16 left\n"
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_shown_by_one_process_in_a_few_lines_or_as_a_bar(terminal):
    assert show(shown=False, force_terminal=terminal) == ""
    assert ("epoch 2/10  loss 0.7500" in show(width=80, force_terminal=terminal)) == terminal
    shown = {}
    for main in (True, False):
        file = io.StringIO()
        log = Reporter(Console(file=file, force_terminal=terminal), shown=main)
        with log.progress("Looking", 10) as count:
            for done in range(1, 11):
                count(done)
        shown[main] = file.getvalue()
    assert shown[False] == ""
    if terminal:
        assert "10/10" in shown[True]
    else:
        assert shown[True].splitlines() == [f"Looking: {n} of 10" for n in (3, 5, 8, 10)]
