"""Tables of results: their entries, the marks of the best, and their text in several formats."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import pandas as pd

from layline.bench.statistics import Metric, find_metric, summary
from layline.utils.files import write_text
from layline.utils.optional import require


@dataclass(frozen=True)
class Entry:
    """One field of a table: a number over several runs, or the reason why there is none.

    Attributes:
        mean: The number, in the unit of its column.
        sd: Its standard deviation over the runs.
        n: Number of runs that finished.
        failed: Number of runs that failed.
        error: The type of their error, such as ``FloatingPointError``.
        note: Text instead of a number.
        reference: The paper's number, in the same unit.
        reference_sd: The paper's standard deviation.
        is_best: Whether it is the best of its column.
        is_second: Whether it is the second best of its column.
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

    @property
    def difference(self) -> float | None:
        """The number minus the paper's, if both exist."""
        if self.mean is None or self.reference is None:
            return None
        return self.mean - self.reference


@dataclass(frozen=True)
class Column:
    """The title of a column, and how its numbers are formatted and compared.

    Attributes:
        title: Title with the unit.
        group: A title that neighboring columns share; may be empty.
        digits: Number of digits after the decimal point.
        lower_is_better: None if no number is better than another.
        form: ``signed`` adds a plus sign, ``p`` writes tiny probabilities as a bound.
    """

    title: str
    group: str = ""
    digits: int = 3
    lower_is_better: bool | None = None
    form: Literal["plain", "signed", "p"] = "plain"

    @classmethod
    def of_metric(cls, metric: Metric, title: str = "", group: str = "") -> Self:
        """Make the column of a metric, by default with the title of the metric."""
        return cls(title or metric.title, group, metric.digits, metric.lower_is_better)

    def format(self, value: float, *, signed: bool = False) -> str:
        """Format a number; zero has no sign."""
        if self.form == "p" and value < 10**-self.digits:
            return f"<{10**-self.digits:.{self.digits}f}"
        text = f"{value:z.{self.digits}f}"
        return f"+{text}" if (signed or self.form == "signed") and float(text) > 0 else text


@dataclass(frozen=True)
class Table:
    """Results in rows and columns.

    Attributes:
        caption: What the table shows.
        rows: The label of each row.
        columns: The columns.
        entries: One tuple per row, with one entry per column.
        corner: What the rows are.
        notes: Sentences under the table.
    """

    caption: str
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    entries: tuple[tuple[Entry, ...], ...]
    corner: str = "Method"
    notes: tuple[str, ...] = ()

    @classmethod
    def of_columns(
        cls,
        caption: str,
        rows: Sequence[str],
        columns: Mapping[Column, Mapping[str, Entry]],
        **others: Any,
    ) -> Self:
        """Make a table from the entries of each column, by row, and mark the best."""
        entries = [tuple(found.get(row, Entry()) for found in columns.values()) for row in rows]
        return mark_best(cls(caption, tuple(rows), tuple(columns), tuple(entries), **others))

    def without_last_column(self) -> Self:
        """Leave the last column out."""
        entries = tuple(line[:-1] for line in self.entries)
        return replace(self, columns=self.columns[:-1], entries=entries)

    def lines(self) -> Iterator[tuple[str, list[tuple[Column, Entry]]]]:
        """Iterate over the rows: the label of each, and its entries with their columns."""
        for label, entries in zip(self.rows, self.entries, strict=True):
            yield label, list(zip(self.columns, entries, strict=True))


T = TypeVar("T", bound=Table)


def summary_entries(
    frame: pd.DataFrame, metric: str, by: Sequence[str]
) -> dict[tuple[str, ...], Entry]:
    """Summarize a metric over the runs that share their labels, in the unit of tables.

    Args:
        frame: One row per run.
        metric: The name of its column.
        by: Two labels or more; their values are the keys of the entries.
    """
    scale = find_metric(metric).scale

    def number(value: float) -> float | None:
        return None if pd.isna(value) else float(value) * scale

    return {
        labels: Entry(
            mean=number(line["mean"]),
            sd=number(line["sd"]) if line["n"] > 1 else None,
            n=int(line["n"]),
            failed=int(line["failed"]),
            error=line["error"],
        )
        for labels, line in summary(frame, metric, by).to_dict("index").items()
    }


def mark_best(table: T) -> T:
    """Mark the best and the second best number of each column, as they are rounded.

    Numbers from which failed runs are missing have no mark, nor have columns with a single number
    or without a direction.
    """
    columns = [
        _mark_column(column, [line[place] for line in table.entries])
        for place, column in enumerate(table.columns)
    ]
    return replace(table, entries=tuple(zip(*columns, strict=True)) if columns else table.entries)


def _mark_column(column: Column, entries: Sequence[Entry]) -> list[Entry]:
    rounded = pd.Series(
        [nan if e.failed or e.mean is None else round(e.mean, column.digits) for e in entries],
        dtype=float,
    )
    ranks = rounded.rank(method="dense", ascending=bool(column.lower_is_better))
    if column.lower_is_better is None or rounded.count() < 2:
        ranks[:] = nan
    return [
        replace(entry, is_best=rank == 1, is_second=rank == 2)
        for entry, rank in zip(entries, ranks.tolist(), strict=True)
    ]


def entry_text(entry: Entry, column: Column) -> str:
    """Format the number of an entry, or the reason why there is none."""
    if entry.note:
        return entry.note
    if entry.mean is None:
        return f"failed: {entry.error or 'unknown error'}" if entry.failed else "–"
    number = column.format(entry.mean)
    return number if entry.sd is None else f"{number} ± {entry.sd:.{column.digits}f}"


def entry_remark(entry: Entry, column: Column) -> str:
    """Format what follows the number: how many runs finished, and the paper's number."""
    remarks = []
    if entry.mean is not None and entry.failed:
        remarks.append(f"({entry.n} of {entry.n + entry.failed})")
    if entry.reference is not None:
        published = f"paper {column.format(entry.reference)}"
        if entry.reference_sd is not None:
            published += f" ± {column.format(entry.reference_sd)}"
        if entry.difference is not None:
            published += f", {column.format(entry.difference, signed=True)}"
        remarks.append(f"({published})")
    return " ".join(remarks)


def _heads(table: Table) -> list[str]:
    """Give the titles of the columns, with their groups if there are several."""
    several = len({column.group for column in table.columns if column.group}) > 1
    return [f"{c.group} · {c.title}" if c.group and several else c.title for c in table.columns]


def to_markdown(table: Table) -> str:
    """Format a table in Markdown: the best in bold, the second best underlined."""
    lines = [[_markdown(head) for head in (table.corner, *_heads(table))]]
    for label, fields in table.lines():
        lines.append([_markdown(label), *(_markdown_entry(e, column) for column, e in fields)])
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    aligned = [
        [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])] for first, *others in lines
    ]
    body = "\n".join("| " + " | ".join(line) + " |" for line in [aligned[0], rule, *aligned[1:]])
    notes = [_markdown(note) for note in table.notes]
    return "\n\n".join([f"**{_markdown(table.caption)}**", body, *notes]) + "\n"


def _markdown_entry(entry: Entry, column: Column) -> str:
    text = _markdown(entry_text(entry, column))
    if entry.is_best:
        text = f"**{text}**"
    elif entry.is_second:
        text = f"<u>{text}</u>"
    return f"{text} {_markdown(entry_remark(entry, column))}".rstrip()


def _markdown(text: str) -> str:
    """Escape a text, so that it stays on its line and in its column."""
    text = re.sub(r"([\\|*`])", r"\\\1", " ".join(text.split()))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def to_latex(table: Table) -> str:
    r"""Format a table in LaTeX, the best in bold; it needs ``\usepackage{booktabs}``."""
    require("jinja2", extra="report", needed_by="a LaTeX table")
    texts = [
        [f"{entry_text(e, c)} {entry_remark(e, c)}".rstrip() for c, e in fields]
        for _, fields in table.lines()
    ]
    frame = pd.DataFrame(texts, index=list(table.rows), columns=_heads(table))
    best = pd.DataFrame(
        [["textbf:--rwrap;" if e.is_best else "" for e in line] for line in table.entries],
        index=frame.index,
        columns=frame.columns,
    )
    style = frame.style.format(escape="latex").format_index(escape="latex", axis="index")
    style = style.format_index(escape="latex", axis="columns")
    style = style.apply(lambda _: best, axis=None)
    return str(style.to_latex(hrules=True, caption=table.caption.replace("%", r"\%")))


def to_csv(table: Table) -> str:
    """Format a table as CSV: one line per entry, with all digits."""
    rows = [
        {
            **{"row": label, "group": column.group, "column": column.title},
            **asdict(entry),
            "difference": entry.difference,
        }
        for label, fields in table.lines()
        for column, entry in fields
    ]
    return str(pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


def write_tables(folder: Path, named: Mapping[str, Table], latex: bool = False) -> list[Path]:
    """Write tables as Markdown, CSV and, if wanted, LaTeX.

    Returns:
        The files.
    """
    formats = {"md": to_markdown, "csv": to_csv, **({"tex": to_latex} if latex else {})}
    files = []
    for name, table in named.items():
        for ending, convert in formats.items():
            files.append(folder / f"{name}.{ending}")
            write_text(files[-1], convert(table))
    return files
