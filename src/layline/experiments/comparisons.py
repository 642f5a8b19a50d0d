"""The tables that compare methods: on each data set, over all of them, and against one method."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from layline.experiments.measures import MEASURES, Measure, measure_of
from layline.experiments.ranks import Ranking, ranking_of
from layline.experiments.statistics import Pairs, against
from layline.experiments.summaries import of_decoding, summary
from layline.experiments.tables import Column, Entry, Table, ranked

_RANK = Column("Mean rank", digits=2, lower_is_better=True)


def comparison(
    frame: pd.DataFrame,
    metric: str,
    decode: str,
    ddof: int = 0,
    notes: Mapping[tuple[str, str], str] | None = None,
) -> Table:
    """Compare methods on each data set: mean ± standard deviation over seeds, and the mean rank.

    Args:
        frame: One row per run and decoding.
        metric: What is compared.
        decode: How distributions became ranks.
        ddof: 0 for the standard deviation of these runs, 1 to estimate that of all runs.
        notes: By data set and method, why there can be no number; shown where no run finished.
    """
    measure, notes = measure_of(metric), notes or {}
    found = summary(of_decoding(frame, decode), metric, by=("data", "method"), ddof=ddof)
    lines = found.to_dict("index")
    data = _names([*frame["data"], *(name for name, _ in notes)])
    methods = _names([*frame["method"], *(name for _, name in notes)])
    ranking = ranking_of(frame, metric, decode)
    entries = tuple(
        (
            *(_entry(lines.get((name, m)), measure, notes.get((name, m), "")) for name in data),
            _rank(ranking, m),
        )
        for m in methods
    )
    columns = [_column(measure, title=name, group=measure.title) for name in data]
    spread = "mean ± standard deviation over seeds"
    return ranked(
        Table(
            caption=f"{_described(measure, decode)}: {spread}",
            rows=methods,
            columns=(*columns, _RANK),
            entries=entries,
            notes=ranking.sentences,
        )
    )


def leaderboard(frame: pd.DataFrame, decode: str, rank_by: str = "mae") -> Table:
    """Average every metric over data sets, best mean rank first.

    Args:
        frame: One row per run and decoding.
        decode: How distributions became ranks.
        rank_by: The metric of the mean ranks.
    """
    ranking = ranking_of(frame, rank_by, decode)
    metrics = [metric for metric in MEASURES if metric in frame]
    runs = of_decoding(frame, decode)
    lines = {metric: summary(runs, metric, by=("method", "data")) for metric in metrics}
    methods = (*map(str, ranking.ranks.index), *ranking.left_out)
    entries = tuple(
        (_rank(ranking, m), *(_average(lines[k], m, MEASURES[k]) for k in metrics)) for m in methods
    )
    title = measure_of(rank_by).title
    notes = (
        "Each number is the mean over data sets of the mean over seeds.",
        f"Mean ranks are those of {title}.",
    )
    return ranked(
        Table(
            caption=f"All data sets, decoding by the {decode}",
            rows=methods,
            columns=(_RANK, *(_column(MEASURES[metric]) for metric in metrics)),
            entries=entries,
            notes=(*notes, *ranking.sentences),
        )
    )


def pairwise(
    frame: pd.DataFrame,
    reference: str,
    metric: str,
    decode: str,
    pairs: Pairs = "data",
    tolerance: float | None = None,
) -> Table:
    """Compare every method with one of them: wins, ties, losses, difference and significance.

    Args:
        frame: One row per run and decoding.
        reference: The method that the others are compared with.
        metric: What is compared.
        decode: How distributions became ranks.
        pairs: What the test pairs: means on each ``data`` set, or single ``runs``.
        tolerance: Means that differ by no more are a tie. Without it, means that are written alike.
    """
    measure = measure_of(metric)
    found = against(frame, reference, metric, decode, pairs=pairs, tolerance=tolerance)
    found = found.assign(difference=found["difference"] * measure.scale)
    columns = {
        "wins": Column("Wins", digits=0),
        "ties": Column("Ties", digits=0),
        "losses": Column("Losses", digits=0),
        "difference": Column("Mean difference", digits=measure.digits, form="signed"),
        "pairs": Column("Pairs", digits=0),
        "p": Column("p", form="p"),
        "p_holm": Column("p (Holm)", form="p"),
    }
    paired = "data sets" if pairs == "data" else "runs of the same data set and seed"
    return Table(
        caption=f"{_described(measure, decode)}: every method against {reference}",
        rows=tuple(map(str, found.index)),
        columns=tuple(columns.values()),
        entries=tuple(
            tuple(Entry(_number(line[name])) for name in columns)
            for line in found.to_dict("records")
        ),
        notes=(
            f"A win is a data set on which the method is better than {reference}. "
            f"p: Wilcoxon's signed-rank test, two-sided, over {paired}; "
            "Holm: corrected for the number of methods.",
        ),
    )


def _entry(line: Mapping[str, Any] | None, measure: Measure, note: str) -> Entry:
    """Turn a line of the summary into what stands in the table."""
    if line is None or (note and not line["n"]):
        return Entry(note=note)
    return Entry(
        mean=_number(line["mean"] * measure.scale),
        sd=_number(line["sd"] * measure.scale) if line["n"] > 1 else None,  # one run has no spread
        n=int(line["n"]),
        failed=int(line["failed"]),
        error=line["error"],
    )


def _average(lines: pd.DataFrame, method: str, measure: Measure) -> Entry:
    """Average over data sets, and count runs; where no method has a number, none is missing.

    A data set on which the method was not run at all is one missing run.
    """
    numbers = lines["n"].groupby("data", sort=False).sum()
    own = lines.loc[method].reindex(numbers.index[numbers > 0])
    if not own["n"].any():
        return Entry()
    return Entry(
        mean=float(own["mean"].mean()) * measure.scale,
        n=int(own["n"].sum()),
        failed=int(own["failed"].fillna(1).sum()),
    )


def _rank(ranking: Ranking, method: str) -> Entry:
    if method not in ranking.ranks.index:
        return Entry()
    return Entry(mean=float(ranking.ranks[method]), n=ranking.data)


def _column(measure: Measure, title: str = "", group: str = "") -> Column:
    return Column(title or measure.title, group, measure.digits, measure.lower_is_better)


def _described(measure: Measure, decode: str) -> str:
    better = "lower" if measure.lower_is_better else "higher"
    decoding = f", decoding by the {decode}" if measure.decoded else ""
    return f"{measure.title}, {better} is better{decoding}"


def _names(labels: Sequence[str]) -> tuple[str, ...]:
    """Give each label once, in the order of their first appearance."""
    return tuple(dict.fromkeys(labels))


def _number(value: float) -> float | None:
    """A table has no NaN."""
    return None if pd.isna(value) else float(value)
