"""Ctrl-C and a polite kill."""

import os
import signal
import threading

import pytest
import torch

from layline.training.interruption import (
    Interrupted,
    Interruption,
    polite_signals_interrupt,
    stopped_by,
)
from layline.utils.devices import Processes

STEP = "layline.training.loop:Loop._step"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_noticed_and_nothing_else_happens(number):
    before = signal.getsignal(number)
    with Interruption() as interruption:
        assert not interruption.requested(Processes(torch.device("cpu")))
        signal.raise_signal(number)
        assert interruption.requested(Processes(torch.device("cpu")))
    assert signal.getsignal(number) is before


def test_a_second_one_from_the_keyboard_stops_at_once():
    with Interruption():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # a scheduler may repeat itself
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_other_threads_leave_signals_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def enter():
        with Interruption():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_signal_that_is_ignored_stays_so():
    """As a shell has it for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGINT)
            assert not interruption.requested(Processes(torch.device("cpu")))
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_event_stops_the_runs_of_its_thread_alone():
    event, processes = threading.Event(), Processes(torch.device("cpu"))
    with stopped_by(event), Interruption() as own:
        assert not own.requested(processes)
        event.set()
        assert own.requested(processes)
    with Interruption() as other:
        assert not other.requested(processes)


def test_what_stopped_a_run_is_told():
    def stopped():
        with Interruption():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGUSR1)
            raise Interrupted(1, 1)

    with pytest.raises(Interrupted) as stop:
        stopped()
    assert stop.value.signal == signal.SIGTERM
    event = threading.Event()
    event.set()
    with pytest.raises(Interrupted) as stop, stopped_by(event), Interruption():
        raise Interrupted(1, 1)
    assert stop.value.signal is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_polite_kill_interrupts_once(number):
    before = signal.getsignal(number)
    with polite_signals_interrupt():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)  # a scheduler may repeat itself
    assert signal.getsignal(number) is before


def test_where_a_run_was_stopped_is_told():
    assert str(Interrupted(3, 7)) == "stopped in epoch 3 after 7 steps"
    assert str(Interrupted(3, 1)) == "stopped in epoch 3 after 1 step"
    assert str(Interrupted(3, 0)) == "stopped after epoch 2"


def interrupt(monkeypatch, target, number, signals=(signal.SIGINT,)):
    """Send signals to this process at a call."""
    owner, name = target
    function, calls = getattr(owner, name), []

    def harmed(*args, **kwargs):
        calls.append(1)
        if len(calls) == number:
            for each in signals:
                os.kill(os.getpid(), each)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, harmed)


@pytest.fixture(scope="module")
def options(table):
    return ("table", "--root", table, "--dim", 4, "--epochs", 3)


@pytest.fixture(scope="module")
def undisturbed(command, options, outcome, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert command("train", *options, "--out", folder).exit_code == 0
    return outcome(folder)


@pytest.mark.parametrize(
    ("step", "said"),
    [(3, "in epoch 1 after 3 steps"), (10, "after epoch 2"), (15, "after epoch 3")],
)
def test_a_run_that_is_stopped_says_how_to_go_on_and_ends_the_same(
    monkeypatch, command, options, undisturbed, outcome, tmp_path, step, said
):
    from layline.training.loop import Loop

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt(patch, (Loop, "_step"), step)
        stopped = command("train", *options, "--out", folder)
    assert stopped.exit_code == 130
    assert f"Stopped {said}; nothing is lost. Go on with" in stopped.stderr
    assert stopped.stderr.endswith(f"\n  layline train --resume {folder}\n")
    assert not (folder / "test.json").exists()
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == undisturbed


def test_a_run_that_is_stopped_at_once_goes_on_from_what_was_saved(
    monkeypatch, command, options, undisturbed, outcome, tmp_path
):
    from layline.training.loop import Loop

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt(patch, (Loop, "_step"), 8, [signal.SIGINT, signal.SIGINT])
        stopped = command("train", *options, "--out", folder)
    assert stopped.exit_code == 130
    assert "Stopped at once; what was saved before is kept. Go on with" in stopped.stderr
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == undisturbed


def test_before_there_is_a_run_nothing_is_promised(monkeypatch, command, options, tmp_path):
    from layline.training import run

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "assemble", stop)
    stopped = command("train", *options, "--out", tmp_path / "run")
    assert (stopped.exit_code, stopped.stderr.splitlines()[-1]) == (130, "layline: stopped")
    assert "Go on" not in stopped.stderr


@pytest.fixture(scope="module")
def with_workers(attempt, photographs, outcome, tmp_path_factory):
    """Options of a run with workers, and what comes of it undisturbed."""
    options = ("folder", "--root", photographs, "--backbone", "convnet", "--workers", 2)
    options += ("--dim", 4, "--epochs", 2, "--batch-size", 12)
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert attempt("train", *options, "--out", folder).codes == [0]
    return options, outcome(folder)


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["interrupt", "terminate", "interrupt all", "terminate all"])
def test_workers_end_with_the_run(attempt, with_workers, outcome, tmp_path, deed):
    """A terminal, a launcher or a scheduler may send a signal to every process of the run."""
    options, undisturbed = with_workers
    folder = tmp_path / "run"
    harm = {"target": STEP, "deed": deed, "number": 2}
    stopped = attempt("train", *options, "--out", folder, harm=[harm])
    assert (stopped.codes, stopped.left) == ([130], []), stopped.stderr
    assert "Stopped in epoch 1 after 2 steps" in stopped.stderr
    again = {"target": STEP, "deed": "interrupt", "number": 1}
    saving = {"target": "accelerate:Accelerator.save_state", "deed": "interrupt"}
    hasty = attempt("train", "--resume", folder, harm=[again, saving])
    assert (hasty.codes, hasty.left) == ([130], [])
    assert "Stopped at once" in hasty.stderr
    assert attempt("train", "--resume", folder).codes == [0]
    assert outcome(folder) == undisturbed
