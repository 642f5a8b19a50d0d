"""Tables as text: Markdown for reading, LaTeX for papers, CSV for computing on."""

import csv
import re
from collections.abc import Callable
from io import StringIO
from itertools import groupby

from layline.experiments.tables import Column, Entry, Table, fixed, signed

_FIELDS = (
    "row", "group", "column", "mean", "sd", "n", "failed", "error", "note",
    "reference", "reference_sd", "difference", "best", "second",
)  # fmt: skip
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"$<$", ">": r"$>$", "|": r"\textbar{}", "[": "{[}", "±": r"$\pm$", "×": r"$\times$",
    "≥": r"$\geq$", "≤": r"$\leq$", "−": "$-$", "–": "--", "·": r"$\cdot$", "…": r"\ldots{}",
    "α": r"$\alpha$", "τ": r"$\tau$", "χ": r"$\chi$", "²": r"$^2$", "\n": " ",
    "†": r"$\dagger$", "‖": r"$\Vert$",
}  # fmt: skip


def content(entry: Entry, column: Column) -> str:
    """Write what an entry says: its number, why there is none, or a dash."""
    if entry.note:
        return entry.note
    if entry.mean is None:
        return f"failed: {entry.error or 'unknown error'}" if entry.failed else "–"
    number = column.number(entry.mean)
    return number if entry.sd is None else f"{number} ± {fixed(entry.sd, column.digits)}"


def remark(entry: Entry, column: Column, reference: str) -> str:
    """Write what belongs behind the number: how many runs it is from, and the reference."""
    remarks = []
    if entry.mean is not None and entry.failed:
        remarks.append(f"({entry.n} of {entry.n + entry.failed})")
    if entry.reference is not None:
        known = f"{reference} {fixed(entry.reference, column.digits)}"
        if entry.reference_sd is not None:
            known += f" ± {fixed(entry.reference_sd, column.digits)}"
        if entry.difference is not None:
            known += f", {signed(entry.difference, column.digits)}"
        remarks.append(f"({known})")
    return " ".join(remarks)


def to_markdown(table: Table) -> str:
    """Write a table in Markdown: the best in bold, the second best underlined.

    Markdown has one line of heads: a group is written into them where there is more than one.
    """
    several = len({column.group for column in table.columns if column.group}) > 1
    heads = [f"{c.group} · {c.title}" if c.group and several else c.title for c in table.columns]
    lines = [[table.corner, *heads]]
    for label, entries in zip(table.rows, table.entries, strict=True):
        fields = [
            _markdown_entry(entry, column, table.reference)
            for entry, column in zip(entries, table.columns, strict=True)
        ]
        lines.append([_markdown(label), *fields])
    lines[0] = [_markdown(head) for head in lines[0]]
    widths = [max(3, *(len(line[place]) for line in lines)) for place in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [_padded(lines[0], widths), rule, *(_padded(line, widths) for line in lines[1:])]
    body = "\n".join("| " + " | ".join(line) + " |" for line in padded)
    notes = [_markdown(note) for note in table.notes]
    return "\n\n".join([f"**{_markdown(table.caption)}**", body, *notes]) + "\n"


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
    for label, entries in zip(table.rows, table.entries, strict=True):
        fields = [
            _latex_entry(entry, column, table.reference)
            for entry, column in zip(entries, table.columns, strict=True)
        ]
        lines.append(" & ".join([_latex(label), *fields]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {_latex(note)}\par}}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}", ""])


def to_csv(table: Table) -> str:
    """Write one line per entry, with all digits: what pandas pivots into any other form."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    for label, entries in zip(table.rows, table.entries, strict=True):
        for column, e in zip(table.columns, entries, strict=True):
            known = [_plain(value) for value in (e.reference, e.reference_sd, e.difference)]
            measured = [_plain(e.mean), _plain(e.sd), e.n, e.failed, e.error, e.note]
            place = [label, column.group, column.title]
            writer.writerow([*place, *measured, *known, e.is_best, e.is_second])
    return text.getvalue()


# The ending of a file, and how a table is written there.
FORMATS: dict[str, Callable[[Table], str]] = {"md": to_markdown, "tex": to_latex, "csv": to_csv}


def _plain(value: float | None) -> float | None:
    """Make a number of Python's own, which is written without its type."""
    return None if value is None else float(value)


def _markdown_entry(entry: Entry, column: Column, reference: str) -> str:
    text = _markdown(content(entry, column))
    if entry.is_best:
        text = f"**{text}**"
    elif entry.is_second:
        text = f"<u>{text}</u>"
    return f"{text} {_markdown(remark(entry, column, reference))}".rstrip()


def _markdown(text: str) -> str:
    """Keep a text on its line and in its column; nothing in it is a tag or an emphasis."""
    text = re.sub(r"([\\|*`])", r"\\\1", " ".join(text.split()))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def _padded(line: list[str], widths: list[int]) -> list[str]:
    """Align the labels at the left and the numbers at the right."""
    first, *others = line
    return [first.ljust(widths[0]), *(t.rjust(w) for t, w in zip(others, widths[1:], strict=True))]


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


def _latex_entry(entry: Entry, column: Column, reference: str) -> str:
    text = _latex(content(entry, column))
    if entry.is_best:
        text = rf"\textbf{{{text}}}"
    elif entry.is_second:
        text = rf"\underline{{{text}}}"
    behind = _latex(remark(entry, column, reference))
    return rf"{text} {{\scriptsize {behind}}}" if behind else text


def _latex(text: str) -> str:
    """Escape what LaTeX would read as a command, and write signs as mathematics."""
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w.)}-])-(?=\d)", "$-$", escaped)
