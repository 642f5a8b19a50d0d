"""What a user sees while a run goes."""

import io
import re

import pytest
from rich.console import Console

from layline.training import display as module
from layline.training.display import LiveDisplay, Reporter, amount
from layline.training.loop import TrainingState

RECORD = {
    "epoch": 2,
    "train_loss": 0.5,
    "validation_loss": 0.75,
    "validation_mae": 0.25,
    "validation_accuracy": 0.875,
}


@pytest.fixture
def clock(monkeypatch):
    """A clock that only goes when it is told to."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def show(console, clock, shown=True):
    """Show the second of ten epochs: four steps of 32 images, half a second each."""
    state = TrainingState(epoch=2, loss_sum=6.0, weight_sum=8.0, best_epoch=1, best_score=0.125)
    with LiveDisplay(10, console, shown) as display:
        display.start_epoch(state, steps=4)
        for _ in range(4):
            clock[0] += 0.5
            state.step += 1
            display.show_step(state, samples=32)
        state.history.append(RECORD)
        display.show_epoch(state)
        display.start_epoch(TrainingState(epoch=3, history=[RECORD]), steps=4)
        clock[0] += 0.5
        display.show_step(TrainingState(3, 1, 1.0, 2.0, 1, 0.125), samples=32)


def test_a_log_gets_a_plain_line_per_epoch(clock):
    file = io.StringIO()
    show(Console(file=file, width=40), clock)
    assert file.getvalue() == (
        "epoch  2/10  loss 0.5000  val loss 0.7500  val MAE 0.2500  accuracy 0.8750  "
        "best 0.1250 at 1  64 samples/s  0:16 left\n"
    )


def test_a_terminal_gets_a_line_that_lives(clock):
    file = io.StringIO()
    show(Console(file=file, width=140, force_terminal=True, color_system=None), clock)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert "epoch  3/10" in text
    assert "64 samples/s  loss 0.5000  0:16 left" in text
    assert "val MAE 0.2500  accuracy 0.8750  best 0.1250 at 1" in text
    assert "val loss" not in text  # that is in the log of those who have no terminal


def test_a_usual_terminal_is_wide_enough(clock):
    file = io.StringIO()
    show(Console(file=file, width=80, force_terminal=True, color_system=None), clock)
    *_, line = re.findall(r"epoch  3/10[^\r\n]*", file.getvalue())
    rest = " ".join(line.split()[3:])
    assert rest == "64 samples/s loss 0.5000 0:16 left MAE 0.250 acc 0.875"


@pytest.mark.parametrize("terminal", [False, True])
def test_only_one_of_several_processes_shows_anything(clock, terminal):
    file = io.StringIO()
    show(Console(file=file, force_terminal=terminal), clock, shown=False)
    assert file.getvalue() == ""


def test_what_was_done_before_does_not_make_it_look_fast(clock):
    """A run that goes on in the middle of an epoch counts its own steps and images only."""
    file = io.StringIO()
    state = TrainingState(epoch=1, step=3, loss_sum=1.0, weight_sum=1.0, best_score=0.5)
    with LiveDisplay(1, Console(file=file), True) as display:
        display.start_epoch(state, steps=4)
        clock[0] += 2
        state.step = 4
        display.show_step(state, samples=10)
        state.history.append(RECORD)
        display.show_epoch(state)
    assert "5 samples/s  0:00 left" in " ".join(file.getvalue().split("\n"))


def test_a_note_is_a_line_as_it_stands():
    file = io.StringIO()
    Reporter(Console(file=file, width=10))("a [long] note: 3 of 4 are 75 %")
    assert file.getvalue() == "a [long] note: 3 of 4 are 75 %\n"


def test_a_log_gets_a_few_lines_of_a_wait():
    file = io.StringIO()
    with Reporter(Console(file=file)).progress("Looking", 10) as count:
        for done in range(1, 11):
            count(done)
    assert file.getvalue().splitlines() == [f"Looking: {n} of 10" for n in (3, 5, 8, 10)]


def test_a_terminal_gets_a_bar():
    file = io.StringIO()
    with Reporter(Console(file=file, force_terminal=True)).progress("Looking", 10) as count:
        count(10)
    assert "10/10" in file.getvalue()


@pytest.mark.parametrize("total", [0, 5])
def test_other_processes_are_quiet(total):
    file = io.StringIO()
    say = Reporter(Console(file=file), shown=False)
    say("nothing")
    with say.progress("Looking", total) as count:
        count(total)
    assert file.getvalue() == ""


@pytest.mark.parametrize(("count", "words"), [(0, "0 runs"), (1, "1 run"), (21, "21 runs")])
def test_only_one_is_no_plural(count, words):
    assert amount(count, "run") == words
