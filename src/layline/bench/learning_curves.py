r"""Learning curves: methods compared with a reference at several numbers of labels.

On a data set, the errors :math:`e` of a method and :math:`e_0` of the reference, means over seeds,
differ by :math:`100\,(e/e_0 - 1)` per cent. Scores such as the accuracy differ by 100 times their
difference, in points. Means, bootstrap intervals and Wilcoxon's test are over data sets; p-values
are corrected by Holm's rule for the number of methods at the same number of labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from layline.bench.grid import Grid
from layline.bench.statistics import (
    ALL_LABELS,
    METRICS,
    NO_STRESS,
    MeanRanks,
    difference_interval,
    finished_values,
    holm,
    label_counts,
    means,
    rank_methods,
    signed_rank,
)
from layline.bench.tables import Column, Entry, Table, find_reference, measured

_COMPARED = ("mae", "rps", "macro_mae", "qwk", "accuracy")
_RANKED = ("mae", "rps")
_OF_GAP = ("gap_recall", "gap_mae")
_MOST_HIGHLIGHTED = 8


@dataclass(frozen=True)
class Curves:
    """The runs of one learning curve: those of a stress test, on all data sets or on a group."""

    frame: pd.DataFrame
    reference: str
    stress: str = NO_STRESS
    group: str | None = None

    def name(self, *words: str) -> str:
        """Name a file after the stress test and the group, if there are any."""
        stress = [] if self.stress == NO_STRESS else [self.stress]
        return "-".join([*words, *stress, *([self.group] if self.group else [])])

    def order(self) -> list[str]:
        """List the methods by their mean rank in MAE over all numbers of labels."""
        ranks = rank_overall(self.frame, "mae", METRICS["mae"].own_decoding(self.decodings))
        return [*map(str, ranks.ranks.index), *ranks.left_out]

    @property
    def decodings(self) -> list[str]:
        """The decodings of the runs."""
        return list(self.frame["decode"].unique())

    def compare(self, metric: str) -> pd.DataFrame:
        """Compare the methods with the reference; see :func:`compare_by_labels`."""
        decode = METRICS[metric].own_decoding(self.decodings)
        return compare_by_labels(self.frame, self.reference, metric, decode)

    def highlighted(self, grid: Grid) -> list[str]:
        """List the methods that a figure shows: those of the grid, or the best."""
        methods = [method for method in self.order() if method != self.reference]
        if not grid.highlight:
            return methods[:_MOST_HIGHLIGHTED]
        # with several recipes, the name of a method ends with its recipe
        return [m for m in methods if m in grid.highlight or m.split(" · ")[0] in grid.highlight]


def find_curves(frame: pd.DataFrame, grid: Grid) -> Iterator[Curves]:
    """Find the learning curves of the selected runs, one for each stress test and group.

    Runs without a stress test need several numbers of labels.
    """
    groups = {entry.group for entry in grid.data if entry.group}
    for stress in frame["stress"].unique():
        runs = frame[frame["stress"] == stress]
        reference = find_reference(runs, grid.reference_method())
        if reference is None or (stress == NO_STRESS and runs["labels"].nunique() == 1):
            continue
        yield Curves(runs, reference, stress)
        for group in sorted(groups):
            names = [entry.name for entry in grid.data if entry.group == group]
            # with several backbones, the name of a data set ends with its backbone
            own = runs["data"].map(lambda name, of=names: name in of or name.split(" · ")[0] in of)
            if own.any():
                yield Curves(runs[own], reference, stress, group)


def compare_by_labels(
    frame: pd.DataFrame, reference: str, metric: str, decode: str
) -> pd.DataFrame:
    """Compare every method with the reference, at each number of labels.

    There is one row per number of labels and other method, with the mean ``difference``, its
    interval from ``low`` to ``high``, ``p``, ``p_holm``, and the number of data sets as ``pairs``.
    """
    sizes = []
    for size in label_counts(frame):
        differences = relative_differences(
            frame[frame["labels"] == size], reference, metric, decode
        )
        lines = []
        for method in differences:
            values = differences[method].dropna().to_numpy()
            mean = values.mean() if len(values) else np.nan
            ends = difference_interval(values)
            lines.append((size, method, mean, *ends, signed_rank(values), len(values)))
        columns = ["labels", "method", "difference", "low", "high", "p", "pairs"]
        own = pd.DataFrame(lines, columns=columns)
        sizes.append(own.assign(p_holm=holm(own["p"].to_numpy(dtype=np.float64))))
    return pd.concat(sizes).set_index(["labels", "method"])


def relative_differences(
    frame: pd.DataFrame, reference: str, metric: str, decode: str
) -> pd.DataFrame:
    """Compute the differences from the reference: a row per data set, a column per method."""
    table = means(frame, metric, decode)
    base = table[reference]
    if METRICS[metric].lower_is_better:
        table = 100 * (table.div(base.where(base > 0), axis="index") - 1)
    else:
        table = 100 * table.sub(base, axis="index")
    return table.drop(columns=reference)


def rank_overall(frame: pd.DataFrame, metric: str, decode: str) -> MeanRanks:
    """Average the ranks of methods over all pairs of a data set and a number of labels."""
    pairs = frame["data"] + " · " + frame["labels"]
    return rank_methods(frame.assign(data=pairs), metric, decode)


# --- tables


def make_curve_tables(frame: pd.DataFrame, grid: Grid) -> dict[str, Table]:
    """Make the tables of the learning curves and stress tests, by the names of their files."""
    tables = {}
    for curves in find_curves(frame, grid):
        known = measured(curves.frame)
        metrics = _COMPARED if curves.stress == NO_STRESS else _COMPARED[:1]
        for metric in (each for each in metrics if each in known):
            tables[curves.name("learning-curve", metric)] = curve_table(curves, metric)
        if curves.stress == NO_STRESS:
            tables[curves.name("learning-curve", "ranks")] = curve_rank_table(curves)
        if known.keys() >= {*_OF_GAP}:
            tables[curves.name("stress")] = gap_table(curves)
    return tables


def curve_table(curves: Curves, metric: str) -> Table:
    """Compare the methods with the reference: a row per method, a column per number of labels."""
    shown_as, found = METRICS[metric], curves.compare(metric)
    unit = "%" if shown_as.lower_is_better else "points"
    columns, counts, incomplete = {}, [], []
    for size in label_counts(curves.frame):
        lines = found.loc[size]
        lines = lines.astype(object).where(lines.notna(), None)
        title = Column(_title(size), "", 1, shown_as.lower_is_better, "signed")
        columns[title] = {
            str(method): Entry(
                line["difference"],
                n=line["pairs"],
                low=line["low"],
                high=line["high"],
                p=line["p_holm"],
            )
            for method, line in lines.to_dict("index").items()
        }
        most = max(lines["pairs"])
        counts.append(f"{most} ({_title(size)})")
        incomplete += [f"{m} ({n}, {_title(size)})" for m, n in lines["pairs"].items() if n < most]
    notes = [
        f"The difference from {curves.reference} in {unit}, mean over data sets, with the 95 % "
        "interval of a bootstrap over data sets. p: Wilcoxon's signed-rank test over data sets, "
        "two-sided, with Holm's correction for the number of methods.",
        f"Data sets: {', '.join(counts)}.",
    ]
    if incomplete:
        notes.append(f"Fewer data sets, because of failed runs: {', '.join(incomplete)}.")
    decode = shown_as.own_decoding(curves.decodings)
    caption = f"{shown_as.caption(decode)}: difference from {curves.reference} in {unit}"
    rows = [method for method in curves.order() if method != curves.reference]
    return Table.of_columns(_captioned(caption, curves), rows, columns, notes=tuple(notes))


def curve_rank_table(curves: Curves) -> Table:
    """Give the mean ranks of the methods over data sets, by number of labels and over all."""
    columns, left_out = {}, dict[str, None]()
    for metric in (each for each in _RANKED if each in measured(curves.frame)):
        decode, frame = METRICS[metric].own_decoding(curves.decodings), curves.frame
        sizes = {
            size: rank_methods(frame[frame["labels"] == size], metric, decode)
            for size in label_counts(frame)
        }
        sizes["mean"] = rank_overall(frame, metric, decode)
        for title, ranks in sizes.items():
            column = Column(title, METRICS[metric].title, 2, lower_is_better=True)
            columns[column] = {str(m): Entry(r, n=ranks.num_data) for m, r in ranks.ranks.items()}
            left_out |= dict.fromkeys(ranks.left_out)
    notes = [
        "A column is a number of labelled samples per class. The mean is over all pairs of a data "
        "set and a number of labels."
    ]
    if left_out:
        notes.append(
            f"Without some ranks, because a number is missing on some data set: "
            f"{', '.join(left_out)}."
        )
    caption = _captioned("Mean ranks over data sets, 1 is the best possible", curves)
    return Table.of_columns(caption, curves.order(), columns, notes=tuple(notes))


def gap_table(curves: Curves) -> Table:
    """Give recall and MAE on the class without labels, by number of labels."""
    columns = {}
    for metric in _OF_GAP:
        shown_as, frame = METRICS[metric], curves.frame
        decode = shown_as.own_decoding(curves.decodings)
        for size in label_counts(frame):
            own = frame[(frame["labels"] == size) & (frame["decode"] == decode)]
            # a test split without the class has no number, with any method
            values = own.assign(value=finished_values(own, metric)).groupby(["data", "method"])
            table = values["value"].mean().unstack("method").dropna(how="all")
            better = shown_as.lower_is_better
            column = Column(size, shown_as.title_with(decode), shown_as.digits, better)
            columns[column] = {
                str(method): Entry(shown_as.scale * table[method].mean(), n=len(table))
                for method in table
                if table[method].notna().all()
            }
    note = (
        "A column is a number of labelled samples per class. Recall is the share of the test "
        "samples of the class that are predicted as it. Each number is the mean over data sets of "
        "the mean over seeds."
    )
    caption = _captioned("The class without labels", curves)
    return Table.of_columns(caption, curves.order(), columns, notes=(note,))


def _title(size: str) -> str:
    return "all labels" if size == ALL_LABELS else f"{size} per class"


def _captioned(caption: str, curves: Curves) -> str:
    stress = "" if curves.stress == NO_STRESS else f", stress test: {curves.stress}"
    return f"{caption}{stress}{f', data sets: {curves.group}' if curves.group else ''}"
