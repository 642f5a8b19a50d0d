"""Tables of results: their entries, the marks of the best, and their text in three formats.

Markdown is for reading, LaTeX for papers, CSV for computing on.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from math import isfinite, nan
from typing import Literal, Self

import pandas as pd

from layline.bench.summaries import Metric, find_metric, summary
from layline.utils.errors import UserError


@dataclass(frozen=True)
class Entry:
    """One field of a table: a number over several runs, or why there is none.

    Attributes:
        mean: The number, in the unit of its column; None if there is none.
        sd: Its standard deviation over the runs, where there is one to show.
        n: Runs that finished.
        failed: Runs that did not.
        error: What they failed with, as in ``FloatingPointError``.
        note: Why there can be no number, as in ``impossible``.
        reference: The paper's number, in the same unit.
        reference_sd: Its standard deviation, where the paper prints one.
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
                raise UserError(
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
    form: Literal["plain", "signed", "p"] = "plain"

    @classmethod
    def of_metric(cls, metric: Metric, title: str = "", group: str = "") -> Self:
        """Make the column of a metric, under its own title if no other is given."""
        return cls(title or metric.title, group, metric.digits, metric.lower_is_better)

    def write(self, value: float) -> str:
        """Write one number of this column."""
        if self.form == "p" and value < 10**-self.digits:
            return f"<{10**-self.digits:.{self.digits}f}"
        write = write_signed if self.form == "signed" else write_fixed
        return write(value, self.digits)


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
    """

    caption: str
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    entries: tuple[tuple[Entry, ...], ...]
    corner: str = "Method"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape = [len(line) for line in self.entries]
        if shape != [len(self.columns)] * len(self.rows):
            raise UserError(
                f"entries must have {len(self.rows)} rows of {len(self.columns)} columns, got rows "
                f"of {shape}: give an empty Entry() where there is nothing"
            )

    def lines(self) -> Iterator[tuple[str, list[tuple[Column, Entry]]]]:
        """Go through the rows: the label of each, and its entries with their columns."""
        for label, entries in zip(self.rows, self.entries, strict=True):
            yield label, list(zip(self.columns, entries, strict=True))


def summary_entries(
    frame: pd.DataFrame, metric: str, by: Sequence[str]
) -> dict[tuple[str, ...], Entry]:
    """Summarise one metric over the runs that share their labels, in the unit of tables.

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
            sd=number(line["sd"]) if line["n"] > 1 else None,  # one run has no spread
            n=int(line["n"]),
            failed=int(line["failed"]),
            error=line["error"],
        )
        for labels, line in summary(frame, metric, by).to_dict("index").items()
    }


def mark_best(table: Table) -> Table:
    """Mark the best and the second best number of each column, as they are written.

    Numbers that are written alike are marked alike. A number from which failed runs are missing
    cannot be compared and has no mark, nor has anything in a column with a single number or where
    no number is better than another.
    """
    columns = [
        _mark_column(column, [line[place] for line in table.entries])
        for place, column in enumerate(table.columns)
    ]
    return replace(table, entries=tuple(zip(*columns, strict=True)) if columns else table.entries)


def _mark_column(column: Column, entries: Sequence[Entry]) -> list[Entry]:
    written = pd.Series(
        [
            nan if e.failed or e.mean is None else float(write_fixed(e.mean, column.digits))
            for e in entries
        ]
    )
    ranks = written.rank(method="dense", ascending=bool(column.lower_is_better))
    if column.lower_is_better is None or written.count() < 2:
        ranks[:] = nan
    return [
        replace(entry, is_best=rank == 1, is_second=rank == 2)
        for entry, rank in zip(entries, ranks.tolist(), strict=True)
    ]


def write_fixed(value: float, digits: int) -> str:
    """Write a number with so many digits; what rounds to zero has no sign."""
    return f"{value:z.{digits}f}"


def write_signed(value: float, digits: int) -> str:
    """Write a difference with its sign, which zero has not."""
    text = f"{value:+z.{digits}f}"
    return text if float(text) else write_fixed(0.0, digits)


def entry_text(entry: Entry, column: Column) -> str:
    """Write an entry: its number, why there is none, or a dash."""
    if entry.note:
        return entry.note
    if entry.mean is None:
        return f"failed: {entry.error or 'unknown error'}" if entry.failed else "–"
    number = column.write(entry.mean)
    return number if entry.sd is None else f"{number} ± {write_fixed(entry.sd, column.digits)}"


def entry_remark(entry: Entry, column: Column) -> str:
    """Write what follows the number: how many runs it is from, and the paper's number."""
    remarks = []
    if entry.mean is not None and entry.failed:
        remarks.append(f"({entry.n} of {entry.n + entry.failed})")
    if entry.reference is not None:
        published = f"paper {write_fixed(entry.reference, column.digits)}"
        if entry.reference_sd is not None:
            published += f" ± {write_fixed(entry.reference_sd, column.digits)}"
        if entry.difference is not None:
            published += f", {write_signed(entry.difference, column.digits)}"
        remarks.append(f"({published})")
    return " ".join(remarks)


def to_markdown(table: Table) -> str:
    """Write a table in Markdown: the best in bold, the second best underlined.

    Markdown has one line of heads: a group is written into them where there is more than one.
    """
    several = len({column.group for column in table.columns if column.group}) > 1
    heads = [f"{c.group} · {c.title}" if c.group and several else c.title for c in table.columns]
    lines = [[_markdown(head) for head in (table.corner, *heads)]]
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
    """Keep a text on its line and in its column; nothing in it is a tag or an emphasis."""
    text = re.sub(r"([\\|*`])", r"\\\1", " ".join(text.split()))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def to_latex(table: Table) -> str:
    r"""Write a table in LaTeX, the best in bold, the second best underlined.

    The document needs ``\usepackage{booktabs}``.
    """
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(table.caption)}}}",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"\toprule",
        *_latex_groups(table),
        " & ".join(map(_latex, [table.corner, *(c.title for c in table.columns)])) + r" \\",
        r"\midrule",
    ]
    for label, fields in table.lines():
        texts = [_latex(label), *(_latex_entry(e, column) for column, e in fields)]
        lines.append(" & ".join(texts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {_latex(note)}\par}}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}", ""])


def _latex_groups(table: Table) -> list[str]:
    """Write the upper header with its rules, if any column has a group."""
    if not any(column.group for column in table.columns):
        return []
    heads, rules, start = [""], [], 2
    for group, columns in groupby(table.columns, key=lambda column: column.group):
        width = len(list(columns))
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    return [" & ".join(heads) + r" \\", "".join(rules)]


def _latex_entry(entry: Entry, column: Column) -> str:
    text = _latex(entry_text(entry, column))
    if entry.is_best:
        text = rf"\textbf{{{text}}}"
    elif entry.is_second:
        text = rf"\underline{{{text}}}"
    remark = _latex(entry_remark(entry, column))
    return rf"{text} {{\scriptsize {remark}}}" if remark else text


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"$<$", ">": r"$>$", "|": r"\textbar{}", "[": "{[}", "±": r"$\pm$", "×": r"$\times$",
    "≥": r"$\geq$", "≤": r"$\leq$", "−": "$-$", "–": "--", "·": r"$\cdot$", "…": r"\ldots{}",
    "α": r"$\alpha$", "τ": r"$\tau$", "χ": r"$\chi$", "²": r"$^2$", "\n": " ",
    "†": r"$\dagger$", "‖": r"$\Vert$",
}  # fmt: skip


def _latex(text: str) -> str:
    """Escape what LaTeX would read as a command, and write signs as mathematics."""
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w.)}-])-(?=\d)", "$-$", escaped)


_CSV_COLUMNS = (
    "row", "group", "column", "mean", "sd", "n", "failed", "error", "note",
    "reference", "reference_sd", "difference", "best", "second",
)  # fmt: skip


def to_csv(table: Table) -> str:
    """Write one line per entry, with all digits: what pandas pivots into any other form."""
    rows = [
        {
            **{"row": label, "group": column.group, "column": column.title},
            **asdict(entry),
            **{"difference": entry.difference, "best": entry.is_best, "second": entry.is_second},
        }
        for label, fields in table.lines()
        for column, entry in fields
    ]
    frame = pd.DataFrame(rows, columns=_CSV_COLUMNS)
    return str(frame.to_csv(index=False, lineterminator="\n"))


# The ending of a file, and how a table is written there.
TABLE_FORMATS: dict[str, Callable[[Table], str]] = {
    "md": to_markdown,
    "tex": to_latex,
    "csv": to_csv,
}
