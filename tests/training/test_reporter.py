"""What a user is told beside the progress of training."""

import io

import pytest
from rich.console import Console

from layline.training.reporter import Reporter


def test_a_note_is_a_line_as_it_stands():
    file = io.StringIO()
    Reporter(Console(file=file, width=10))("a [long] note: 3 of 4 are 75 %")
    assert file.getvalue() == "a [long] note: 3 of 4 are 75 %\n"


def test_a_log_gets_a_few_lines_of_a_wait():
    file = io.StringIO()
    with Reporter(Console(file=file)).counted("Looking", 10) as count:
        for done in range(1, 11):
            count(done)
    assert file.getvalue().splitlines() == [f"Looking: {n} of 10" for n in (3, 5, 8, 10)]


def test_a_terminal_gets_a_bar():
    file = io.StringIO()
    with Reporter(Console(file=file, force_terminal=True)).counted("Looking", 10) as count:
        count(10)
    assert "10/10" in file.getvalue()


@pytest.mark.parametrize("total", [0, 5])
def test_other_processes_are_quiet(total):
    file = io.StringIO()
    say = Reporter(Console(file=file), shown=False)
    say("nothing")
    with say.counted("Looking", total) as count:
        count(total)
    assert file.getvalue() == ""
