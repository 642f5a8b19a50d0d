"""Tables of results: the five of a grid, and their text as Markdown, CSV and LaTeX.

The tables of learning curves are in :mod:`layline.bench.learning_curves`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd

from layline.bench.grid import Grid
from layline.bench.statistics import (
    METRICS,
    MeanRanks,
    Metric,
    compare_with_reference,
    rank_methods,
    select_decoding,
    standard_runs,
    summary,
)
from layline.utils.files import write_text
from layline.utils.validation import require

_RANKED_BY = ("mae", "macro_mae", "accuracy", "qwk", "rps", "nll")


@dataclass(frozen=True)
class Entry:
    """One field of a table: a number over several runs, or the reason why there is none."""

    mean: float | None = None  # the number, in the unit of its column
    sd: float | None = None  # its standard deviation over the runs
    n: int = 0  # number of runs that finished
    failed: int = 0  # number of runs that failed
    error: str = ""  # the type of their error, such as FloatingPointError
    note: str = ""  # text instead of a number
    reference: float | None = None  # the paper's number, in the same unit
    reference_sd: float | None = None
    is_best: bool = False  # of its column
    is_second: bool = False
    low: float | None = None  # the ends of its interval
    high: float | None = None
    p: float | None = None  # the p-value of the number

    @property
    def difference(self) -> float | None:
        """The number minus the paper's, if both exist."""
        if self.mean is None or self.reference is None:
            return None
        return self.mean - self.reference


@dataclass(frozen=True)
class Column:
    """The title of a column, and how its numbers are formatted and compared."""

    title: str  # with the unit
    group: str = ""  # a title that neighboring columns share; may be empty
    digits: int = 3  # after the decimal point
    lower_is_better: bool | None = None  # None if no number is better than another
    # signed adds a plus sign, p writes tiny probabilities as a bound
    form: Literal["plain", "signed", "p"] = "plain"

    def format(self, value: float, *, signed: bool = False) -> str:
        """Format a number; zero has no sign."""
        if self.form == "p" and value < 10**-self.digits:
            return f"<{10**-self.digits:.{self.digits}f}"
        text = f"{value:z.{self.digits}f}"
        return f"+{text}" if (signed or self.form == "signed") and float(text) > 0 else text


Entries = Mapping[str, Entry]  # of a column, by row
_RANK = Column("Mean rank", digits=2, lower_is_better=True)
_P = Column("p", form="p")


@dataclass(frozen=True)
class Table:
    """Results in rows and columns."""

    caption: str
    rows: tuple[str, ...]  # their labels
    columns: tuple[Column, ...]
    entries: tuple[tuple[Entry, ...], ...]  # one tuple per row, with one entry per column
    corner: str = "Method"  # what the rows are
    notes: tuple[str, ...] = ()  # sentences under the table

    @classmethod
    def of_columns(
        cls, caption: str, rows: Sequence[str], columns: "Mapping[Column, Entries]", **others: Any
    ) -> Self:
        """Make a table from the entries of each column, by row, and mark the best."""
        marked = [
            _mark_best(column, [entries.get(row, Entry()) for row in rows])
            for column, entries in columns.items()
        ]
        return cls(caption, tuple(rows), tuple(columns), tuple(zip(*marked, strict=True)), **others)

    def lines(self) -> Iterator[tuple[str, list[tuple[Column, Entry]]]]:
        """Iterate over the rows: the label of each, and its entries with their columns."""
        for label, entries in zip(self.rows, self.entries, strict=True):
            yield label, list(zip(self.columns, entries, strict=True))


def _mark_best(column: Column, entries: Sequence[Entry]) -> list[Entry]:
    """Mark the best and the second best of several rounded numbers that no failed run changes."""
    values = [nan if e.failed or e.mean is None else round(e.mean, column.digits) for e in entries]
    rounded = pd.Series(values, dtype=float)
    if column.lower_is_better is None or rounded.count() < 2:
        return list(entries)
    ranks = rounded.rank(method="dense", ascending=column.lower_is_better)
    marks = zip(entries, ranks == 1, ranks == 2, strict=True)
    return [replace(entry, is_best=best, is_second=second) for entry, best, second in marks]


# --- the five tables of a grid


def make_tables(frame: pd.DataFrame, grid: Grid) -> dict[str, Table]:
    """Make the tables of a grid from the runs that are compared, by the names of their files.

    They use the runs with all labels and without a stress test; see ``make_curve_tables`` for the
    others.
    """
    frame, decodings = standard_runs(frame), grid.used_decodings()
    by = {name: METRICS[name].own_decoding(decodings) for name in ("mae", "accuracy")}
    tables = {
        "leaderboard": leaderboard(frame, decodings),
        **{name: comparison(frame, name, decode) for name, decode in by.items()},
    }
    if frame["method"].nunique() > 1:
        tables["ranks"] = mean_rank_table(frame, decodings)
    reference = find_reference(frame, grid.reference_method())
    if reference is not None:
        tables["against-reference"] = reference_table(frame, reference, "mae", by["mae"])
    return tables


def find_reference(frame: pd.DataFrame, reference: str) -> str | None:
    """Find the reference in a frame, with several recipes that of the first; None if alone."""
    methods = frame["method"].unique()
    names = (reference, f"{reference} · {frame['recipe'].iloc[0]}")
    return next((name for name in names if name in methods and len(methods) > 1), None)


def measured(frame: pd.DataFrame) -> dict[str, Metric]:
    """Give the metrics that at least one run has."""
    return {name: METRICS[name] for name in METRICS if name in frame and frame[name].notna().any()}


def leaderboard(frame: pd.DataFrame, decodings: Sequence[str]) -> Table:
    """Average every metric over data sets, sorted by the mean rank by MAE."""
    ranks = rank_methods(frame, "mae", METRICS["mae"].own_decoding(decodings))
    columns = {_RANK: _rank_entries(ranks)}
    for name, metric in measured(frame).items():
        decode = metric.own_decoding(decodings)
        lines = summary(select_decoding(frame, decode), name, by=("method", "data"))
        runs = lines["n"].groupby("data", sort=False).sum()
        entries = {}
        for method, own in lines.groupby("method", sort=False):
            # over the data sets on which any method has a number
            own = own.droplevel("method").reindex(runs.index[runs > 0])
            if own["n"].any():
                counts = {"n": own["n"].sum(), "failed": int(own["failed"].fillna(1).sum())}
                entries[str(method)] = Entry(own["mean"].mean() * metric.scale, **counts)
        title = metric.title_with(decode)
        columns[Column(title, "", metric.digits, metric.lower_is_better)] = entries
    return Table.of_columns(
        "All data sets",
        (*map(str, ranks.ranks.index), *ranks.left_out),
        columns,
        notes=(
            "Each number is the mean over data sets of the mean over seeds.",
            "Mean ranks are those of MAE.",
            *ranks.notes,
        ),
    )


def _rank_entries(ranks: MeanRanks) -> dict[str, Entry]:
    return {str(method): Entry(mean, n=ranks.num_data) for method, mean in ranks.ranks.items()}


def comparison(frame: pd.DataFrame, metric: str, decode: str) -> Table:
    """Compare methods on each data set: mean ± standard deviation over seeds, and mean rank."""
    shown_as = METRICS[metric]
    entries = summary_entries(select_decoding(frame, decode), metric, ("data", "method"))
    ranks = rank_methods(frame, metric, decode)
    columns = {
        Column(data, shown_as.title, shown_as.digits, shown_as.lower_is_better): {
            method: entry for (place, method), entry in entries.items() if place == data
        }
        for data in frame["data"].unique()
    }
    caption = f"{shown_as.caption(decode)}: mean ± standard deviation over seeds"
    columns[_RANK] = _rank_entries(ranks)
    return Table.of_columns(caption, frame["method"].unique(), columns, notes=ranks.notes)


def summary_entries(
    frame: pd.DataFrame, metric: str, by: Sequence[str]
) -> dict[tuple[str, ...], Entry]:
    """Summarize a metric over the runs that share their labels, in the unit of tables."""
    numbers = summary(frame, metric, by)
    numbers[["mean", "sd"]] *= METRICS[metric].scale
    numbers["sd"] = numbers["sd"].where(numbers["n"] > 1)
    lines = numbers.astype(object).where(numbers.notna(), None).to_dict("index")
    return {labels: Entry(**line) for labels, line in lines.items()}


def mean_rank_table(frame: pd.DataFrame, decodings: Sequence[str]) -> Table:
    """Give the mean rank of each method over data sets in several metrics, sorted by MAE."""
    rankings = {}
    for name in ("mae", *(each for each in _RANKED_BY if each in measured(frame))):
        decode = METRICS[name].own_decoding(decodings)
        rankings[METRICS[name].title_with(decode)] = rank_methods(frame, name, decode)
    first = next(iter(rankings.values()))
    return Table.of_columns(
        "Mean ranks over data sets, 1 is the best possible",
        (*map(str, first.ranks.index), *first.left_out),
        {replace(_RANK, title=title): _rank_entries(ranks) for title, ranks in rankings.items()},
        notes=tuple(f"{title}: {note}" for title, each in rankings.items() for note in each.notes),
    )


def reference_table(frame: pd.DataFrame, reference: str, metric: str, decode: str) -> Table:
    """Compare every method with the reference: wins, ties, losses, difference, significance."""
    shown_as = METRICS[metric]
    differences = compare_with_reference(frame, reference, metric, decode)
    ends = {"difference": "Mean difference", "low": "From", "high": "To"}
    differences[list(ends)] *= shown_as.scale
    columns = {name: Column(name.title(), digits=0) for name in ("wins", "ties", "losses")}
    for name, title in ends.items():
        columns[name] = Column(title, digits=shown_as.digits, form="signed")
    columns["pairs"] = Column("Pairs", digits=0)
    columns |= {"p": Column("p", form="p"), "p_holm": Column("p (Holm)", form="p")}
    return Table.of_columns(
        f"{shown_as.caption(decode)}: every method compared with {reference}",
        [str(method) for method in differences.index],
        {
            column: {str(k): Entry(float(v)) for k, v in differences[name].dropna().items()}
            for name, column in columns.items()
        },
        notes=(
            f"A win is a data set on which the method is better than {reference}. "
            "From, to: the 95 % interval of a bootstrap over data sets. "
            "p: Wilcoxon's signed-rank test, two-sided, over data sets; "
            "Holm: corrected for the number of methods.",
        ),
    )


# --- formats


def entry_text(entry: Entry, column: Column) -> str:
    """Format the number of an entry, or the reason why there is none."""
    if entry.note:
        return entry.note
    if entry.mean is None:
        return f"failed: {entry.error or 'unknown error'}" if entry.failed else "–"
    text = column.format(entry.mean)
    if entry.sd is not None:
        text += f" ± {entry.sd:.{column.digits}f}"
    if entry.low is not None and entry.high is not None:
        text += f" [{column.format(entry.low)}, {column.format(entry.high)}]"
    if entry.p is not None:
        p = _P.format(entry.p)
        text += f" p{p if p.startswith('<') else f'={p}'}"
    return text


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
    lines = [[_escape(head) for head in (table.corner, *_heads(table))]]
    for label, fields in table.lines():
        line = [_escape(label)]
        for column, entry in fields:
            mark = "**{}**" if entry.is_best else "<u>{}</u>" if entry.is_second else "{}"
            text = mark.format(_escape(entry_text(entry, column)))
            line.append(f"{text} {_escape(entry_remark(entry, column))}".rstrip())
        lines.append(line)
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    aligned = [
        [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])] for first, *others in lines
    ]
    body = "\n".join("| " + " | ".join(line) + " |" for line in [aligned[0], rule, *aligned[1:]])
    notes = [_escape(note) for note in table.notes]
    return "\n\n".join([f"**{_escape(table.caption)}**", body, *notes]) + "\n"


def _escape(text: str) -> str:
    """Escape a text for Markdown, so that it stays on its line and in its column."""
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
    bold = [["textbf:--rwrap;" if e.is_best else "" for e in line] for line in table.entries]
    best = pd.DataFrame(bold, index=frame.index, columns=frame.columns)
    style = frame.style.format(escape="latex").format_index(escape="latex", axis="index")
    style = style.format_index(escape="latex", axis="columns").apply(lambda _: best, axis=None)
    return str(style.to_latex(hrules=True, caption=table.caption.replace("%", r"\%")))


def to_csv(table: Table) -> str:
    """Format a table as CSV: one line per entry, with all digits."""
    rows = [
        {"row": label, "group": column.group, "column": column.title, **asdict(entry)}
        | {"difference": entry.difference}
        for label, fields in table.lines()
        for column, entry in fields
    ]
    frame = pd.DataFrame(rows)
    unused = [name for name in ("low", "high", "p") if frame[name].isna().all()]
    return str(frame.drop(columns=unused).to_csv(index=False, lineterminator="\n"))


def write_tables(folder: Path, named: Mapping[str, Table], latex: bool = False) -> None:
    """Write tables as Markdown, CSV and, if wanted, LaTeX."""
    formats = {"md": to_markdown, "csv": to_csv, **({"tex": to_latex} if latex else {})}
    for name, table in named.items():
        for ending, convert in formats.items():
            write_text(folder / f"{name}.{ending}", convert(table))
