"""A table on a terminal: whole columns, every name as it is, and what is missing."""

import io

import pytest
from rich.console import Console

from layline.cli.grids import show
from layline.experiments.tables import Column, Entry, Table


def shown(table: Table, width: int) -> str:
    said = io.StringIO()
    show(table, Console(file=said, width=width))
    return said.getvalue()


@pytest.fixture
def table() -> Table:
    entries = (
        tuple(Entry(mean=1.234, n=3, is_best=True) for _ in range(9)),
        tuple(Entry(mean=5.678, n=2, failed=1) for _ in range(9)),
    )
    columns = tuple(Column(f"C{number}") for number in range(9))
    return Table("A caption", ("line [norm=3]", "arc"), columns, entries)


@pytest.mark.parametrize("width", [30, 60, 61, 62, 63, 80, 200])
def test_a_column_is_shown_whole_or_not_at_all(table, width):
    lines = [line for line in shown(table, width).splitlines() if line.strip()]
    (head,) = [line.split() for line in lines if line.split()[0] == "Method"]
    (line,) = [line for line in lines if "line [norm=3]" in line]
    (arc,) = [line for line in lines if line.split()[0] == "arc"]
    count = len(head) - 1
    assert head == ["Method", *(f"C{number}" for number in range(count))]
    assert line.split() == ["line", "[norm=3]", *["1.234"] * count]
    assert arc.split() == ["arc", *["5.678", "(2", "of", "3)"] * count]
    assert (count == 9) == (width == 200)
