"""A table of results: what stands in it, and as which text, before any file format.

The builders are in ``comparisons``, the formats (Markdown, LaTeX, CSV) in ``rendering``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

Form = Literal["plain", "signed", "p"]


@dataclass(frozen=True)
class Entry:
    """What stands in one field of a table: a number over several runs, or why there is none.

    Attributes:
        mean: The number, in the unit of its column; None if there is none.
        sd: Its standard deviation over the runs, where there is one to show.
        n: Runs that finished.
        failed: Runs that did not.
        error: What they failed with, as in ``FloatingPointError``.
        note: Why there can be no number, as in ``needs d ≥ 2``.
        reference: A number published elsewhere, such as the paper's, in the same unit.
        reference_sd: Its standard deviation, where it was published.
        is_best: The best of its column.
        is_second: The second best of its column.
    """

    mean: float | None = None
    sd: float | None = None
    n: int = 0
    failed: int = 0
    error: str = ""
    note: str = ""
    reference: float | None = None
    reference_sd: float | None = None
    is_best: bool = False
    is_second: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "sd", "reference", "reference_sd"):
            value = getattr(self, name)
            if value is not None and not isfinite(value):
                raise ValueError(
                    f"{name} must be a finite number or None, got {value}: "
                    "a field without a number has None"
                )

    @property
    def difference(self) -> float | None:
        """The number minus the reference, where both are there."""
        if self.mean is None or self.reference is None:
            return None
        return self.mean - self.reference


@dataclass(frozen=True)
class Column:
    """How the numbers of one column are titled, written and compared.

    Attributes:
        title: With the unit.
        group: The header above the title that neighbouring columns share; may be empty.
        digits: After the decimal point.
        lower_is_better: None where no number is better than another.
        form: ``signed`` writes a plus too, ``p`` writes tiny probabilities as a bound.
    """

    title: str
    group: str = ""
    digits: int = 3
    lower_is_better: bool | None = None
    form: Form = "plain"

    def number(self, value: float) -> str:
        """Write one number of this column."""
        if self.form == "p" and value < 10**-self.digits:
            return f"<{10**-self.digits:.{self.digits}f}"
        return signed(value, self.digits) if self.form == "signed" else fixed(value, self.digits)


@dataclass(frozen=True)
class Table:
    """Results in rows and columns.

    Attributes:
        caption: What the table shows.
        rows: The label of each row.
        columns: The head of each column.
        entries: One tuple per row, with one entry per column.
        corner: What the rows are.
        notes: Sentences under the table.
        reference: What the entries' reference numbers are called.
    """

    caption: str
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    entries: tuple[tuple[Entry, ...], ...]
    corner: str = "Method"
    notes: tuple[str, ...] = ()
    reference: str = "paper"

    def __post_init__(self) -> None:
        shape = [len(line) for line in self.entries]
        if shape != [len(self.columns)] * len(self.rows):
            raise ValueError(
                f"entries must have {len(self.rows)} rows of {len(self.columns)} columns, got rows "
                f"of {shape}: give an empty Entry() where there is nothing"
            )


def fixed(value: float, digits: int) -> str:
    """Write a number with so many digits; what rounds to zero has no sign."""
    return f"{value:z.{digits}f}"


def signed(value: float, digits: int) -> str:
    """Write a difference with its sign, which zero has not."""
    text = f"{value:+z.{digits}f}"
    return text if float(text) else fixed(0.0, digits)


def ranked(table: Table) -> Table:
    """Mark the best and the second best number of each column, as they are written.

    Numbers that are written alike are marked alike. A number from which failed runs are missing is
    no match for the others and has no mark, nor has anything in a column with a single number or
    where no number is better than another.
    """
    columns = [
        _marked(column, [line[place] for line in table.entries])
        for place, column in enumerate(table.columns)
    ]
    return replace(table, entries=tuple(zip(*columns, strict=True)) if columns else table.entries)


def _marked(column: Column, entries: Sequence[Entry]) -> list[Entry]:
    """Mark the leaders among the entries of one column."""
    shown = [
        None if e.mean is None or e.failed else float(fixed(e.mean, column.digits)) for e in entries
    ]
    values = [value for value in shown if value is not None]
    if column.lower_is_better is None or len(values) < 2:
        return [replace(entry, is_best=False, is_second=False) for entry in entries]
    best, second, *_ = [*sorted(set(values), reverse=not column.lower_is_better), None]
    return [
        replace(
            entry,
            is_best=value is not None and value == best,
            is_second=value is not None and value == second,
        )
        for entry, value in zip(entries, shown, strict=True)
    ]
