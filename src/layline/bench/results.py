"""The results of a grid: ``results.csv``, and the tables that compare its methods."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layline.bench.grid import Cell, Grid
from layline.bench.statistics import (
    METRICS,
    MeanRanks,
    Metric,
    compare_with_reference,
    find_metric,
    rank_methods,
    select_decoding,
    summary,
)
from layline.bench.store import METRIC_COLUMNS, Store
from layline.bench.tables import Column, Entry, Table, summary_entries, write_tables
from layline.evaluation.prediction_file import plain_cell, safe_cell
from layline.utils.files import atomic_write, write_json, write_text

RESULTS = "results.csv"
GRID = "grid.toml"
ENVIRONMENT = "environment.json"
_RANK = Column("Mean rank", digits=2, lower_is_better=True)
_RANKED_BY = ("mae", "macro_mae", "accuracy", "qwk", "rps", "nll")


def write_grid(grid: Grid, folder: Path) -> None:
    """Write ``grid.toml``, from which a stopped grid can be resumed."""
    write_text(folder / GRID, grid.to_toml())


def write_results(
    grid: Grid, cells: Sequence[Cell], store: Store, latex: bool = False
) -> pd.DataFrame:
    """Write ``results.csv``, ``environment.json`` and the tables.

    Args:
        grid: The grid.
        cells: Its cells.
        store: Their outcomes.
        latex: Write the tables as LaTeX, too.

    Returns:
        The runs that are compared, see :func:`select_runs`.
    """
    frame = write_runs(grid, cells, store)
    selected = select_runs(frame, grid.tune_seeds)
    write_tables(store.folder / "tables", make_tables(selected, grid), latex)
    return selected


def write_runs(grid: Grid, cells: Sequence[Cell], store: Store) -> pd.DataFrame:
    """Write ``results.csv`` and ``environment.json`` of all finished runs."""
    frame = store.frame(cells, grid.used_decodings())
    if frame.empty:
        return frame
    with atomic_write(store.folder / RESULTS) as part:
        frame.map(lambda cell: safe_cell(cell) if isinstance(cell, str) else cell).to_csv(
            part, index=False
        )
    once = frame[frame["decode"] == frame["decode"].iloc[0]]
    environments = store.environments(cells)
    names = dict.fromkeys(name for each in environments for name in each)
    about = {name: _common([each.get(name) for each in environments]) for name in names}
    counts = {"runs": len(once), "failed": int((once["error"] != "").sum())}
    hours = {"hours": round(float(once["seconds"].sum()) / 3600, 2)}
    write_json(store.folder / ENVIRONMENT, about | counts | hours)
    return frame


def _common(values: Sequence[Any]) -> Any:
    """Give the value of all runs, or each value with the number of runs that have it."""
    counts = Counter(json.dumps(value) for value in values)
    if len(counts) == 1:
        return values[0]
    return [{"value": json.loads(text), "runs": runs} for text, runs in counts.most_common()]


def read_results(folder: Path) -> pd.DataFrame:
    """Read ``results.csv``."""
    labels = ("data", "method", "recipe", "backbone", "setting", "seed", "decode")
    texts = (*labels, "key", "version", "error")
    numbers = {name: [""] for name in (*METRIC_COLUMNS, "criterion")}
    frame = pd.read_csv(
        folder / RESULTS, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=numbers
    )
    return frame.map(lambda cell: plain_cell(cell) if isinstance(cell, str) else cell)


def read_environment(folder: Path) -> dict[str, Any]:
    """Read ``environment.json``: the values of all runs, or each value with its count."""
    return dict(json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8")))


def select_runs(frame: pd.DataFrame, tune_seeds: Sequence[int] = ()) -> pd.DataFrame:
    """Keep the runs that are compared: of the tuned settings, the best on validation.

    A setting is chosen by the metric that selects epochs, for each data set, method, recipe,
    backbone and seed, or once for all seeds. Test samples have no influence. A setting with a
    failed run is chosen only if every setting has one.

    If a data set has several backbones, each counts as a data set. If there are several recipes, a
    method with each of them counts as a method.

    Args:
        frame: All runs.
        tune_seeds: The seeds whose mean chooses a setting for all seeds; by default, each seed
            chooses its own.
    """
    chosen = best_settings(frame, tune_seeds)
    selected = frame.merge(chosen, on=list(chosen.columns), how="inner")
    several = selected.groupby("data")["backbone"].transform("nunique") > 1
    both = selected["data"] + " · " + selected["backbone"]
    method = selected["method"]
    if selected["recipe"].nunique() > 1:
        method = method + " · " + selected["recipe"]
    return selected.assign(data=selected["data"].where(~several, both), method=method)


def best_settings(frame: pd.DataFrame, tune_seeds: Sequence[int] = ()) -> pd.DataFrame:
    """Find the labels of the best settings on validation, see :func:`select_runs`."""
    runs = frame.assign(criterion=frame["criterion"].fillna(float("inf")))
    by = ["data", "method", "recipe", "backbone"]
    if tune_seeds:
        runs = runs[runs["seed"].isin([str(seed) for seed in tune_seeds])]
    else:
        by.append("seed")
    runs = runs.drop_duplicates([*by, "setting", "seed"])  # it is the same for every decoding
    found = runs.groupby([*by, "setting"], sort=False, as_index=False)["criterion"].mean()
    found["criterion"] = found["criterion"].round(12)  # so that rounding errors decide nothing
    best = found.groupby(by, sort=False)["criterion"].idxmin()
    return found.loc[best, [*by, "setting"]]


def chosen_cells(cells: Sequence[Cell], store: Store, tune_seeds: Sequence[int]) -> list[Cell]:
    """Keep the cells with the chosen settings, and all cells of the seeds that chose them."""
    seeds = {str(seed) for seed in tune_seeds}
    frame = store.frame([cell for cell in cells if cell.labels["seed"] in seeds])
    found = best_settings(frame, tune_seeds)
    best = {tuple(row) for row in found.itertuples(index=False)}
    return [
        cell
        for cell in cells
        if cell.labels["seed"] in seeds
        or tuple(cell.labels[name] for name in found.columns) in best
    ]


def find_reference(frame: pd.DataFrame, reference: str) -> str | None:
    """Find the name of the reference method in a frame; with several recipes, of the first.

    Returns:
        None if there is no other method to compare with it.
    """
    methods = [*frame["method"].unique()]
    names = (reference, *(f"{reference} · {each}" for each in frame["recipe"].unique()[:1]))
    return next((name for name in names if name in methods and len(methods) > 1), None)


def make_tables(frame: pd.DataFrame, grid: Grid) -> dict[str, Table]:
    """Make the tables of a grid from the runs that are compared, by the names of their files."""
    decodings = grid.used_decodings()
    by = {name: find_metric(name).own_decoding(decodings) for name in ("mae", "accuracy")}
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


def measured(frame: pd.DataFrame) -> dict[str, Metric]:
    """Give the metrics that at least one run has."""
    return {
        name: metric
        for name, metric in METRICS.items()
        if name in frame and frame[name].notna().any()
    }


def leaderboard(frame: pd.DataFrame, decodings: Sequence[str]) -> Table:
    """Average every metric over data sets, sorted by the mean rank by MAE.

    Args:
        frame: The runs that are compared.
        decodings: Each metric uses its own decoding if it is among these, or the first.
    """
    columns = {}
    for name, metric in measured(frame).items():
        decode = metric.own_decoding(decodings)
        runs = select_decoding(frame, decode)
        column = Column.of_metric(metric, f"{metric.title}, {decode}" if metric.decode else "")
        columns[column] = _averages(summary(runs, name, by=("method", "data")), metric.scale)
    ranks = rank_methods(frame, "mae", find_metric("mae").own_decoding(decodings))
    return Table.of_columns(
        "All data sets",
        (*map(str, ranks.ranks.index), *ranks.left_out),
        {_RANK: _rank_entries(ranks), **columns},
        notes=(
            "Each number is the mean over data sets of the mean over seeds.",
            "Mean ranks are those of MAE.",
            *ranks.notes,
        ),
    )


def _averages(lines: pd.DataFrame, scale: float) -> dict[str, Entry]:
    """Average over the data sets on which any method has a number, and count runs."""
    numbers = lines["n"].groupby("data", sort=False).sum()
    found = {}
    for method, own in lines.groupby("method", sort=False):
        own = own.droplevel("method").reindex(numbers.index[numbers > 0])
        if own["n"].any():
            failed = int(own["failed"].fillna(1).sum())
            found[str(method)] = Entry(own["mean"].mean() * scale, n=own["n"].sum(), failed=failed)
    return found


def _rank_entries(ranks: MeanRanks) -> dict[str, Entry]:
    return {str(method): Entry(mean, n=ranks.num_data) for method, mean in ranks.ranks.items()}


def comparison(frame: pd.DataFrame, metric: str, decode: str) -> Table:
    """Compare methods on each data set: mean ± standard deviation over seeds, and mean rank."""
    shown_as = find_metric(metric)
    entries = summary_entries(select_decoding(frame, decode), metric, ("data", "method"))
    ranks = rank_methods(frame, metric, decode)
    columns = {
        Column.of_metric(shown_as, data, shown_as.title): {
            method: entry for (place, method), entry in entries.items() if place == data
        }
        for data in frame["data"].unique()
    }
    caption = f"{shown_as.caption(decode)}: mean ± standard deviation over seeds"
    columns[_RANK] = _rank_entries(ranks)
    return Table.of_columns(caption, frame["method"].unique(), columns, notes=ranks.notes)


def mean_rank_table(frame: pd.DataFrame, decodings: Sequence[str]) -> Table:
    """Give the mean rank of each method over data sets in several metrics, sorted by MAE."""
    found: dict[str, MeanRanks] = {}
    for name in ("mae", *(each for each in _RANKED_BY if each in measured(frame))):
        metric = find_metric(name)
        decode = metric.own_decoding(decodings)
        title = f"{metric.title}, {decode}" if metric.decode else metric.title
        found[title] = rank_methods(frame, name, decode)
    first = next(iter(found.values()))
    return Table.of_columns(
        "Mean ranks over data sets, 1 is the best possible",
        (*map(str, first.ranks.index), *first.left_out),
        {
            Column(title, digits=2, lower_is_better=True): _rank_entries(ranks)
            for title, ranks in found.items()
        },
        notes=tuple(f"{title}: {note}" for title, each in found.items() for note in each.notes),
    )


def reference_table(frame: pd.DataFrame, reference: str, metric: str, decode: str) -> Table:
    """Compare every method with the reference: wins, ties, losses, difference, significance."""
    shown_as = find_metric(metric)
    found = compare_with_reference(frame, reference, metric, decode)
    ends = ["difference", "low", "high"]
    found[ends] = found[ends] * shown_as.scale
    columns = {
        "wins": Column("Wins", digits=0),
        "ties": Column("Ties", digits=0),
        "losses": Column("Losses", digits=0),
        "difference": Column("Mean difference", digits=shown_as.digits, form="signed"),
        "low": Column("From", digits=shown_as.digits, form="signed"),
        "high": Column("To", digits=shown_as.digits, form="signed"),
        "pairs": Column("Pairs", digits=0),
        "p": Column("p", form="p"),
        "p_holm": Column("p (Holm)", form="p"),
    }
    return Table.of_columns(
        f"{shown_as.caption(decode)}: every method compared with {reference}",
        [str(method) for method in found.index],
        {
            column: {str(k): Entry(float(v)) for k, v in found[name].dropna().items()}
            for name, column in columns.items()
        },
        notes=(
            f"A win is a data set on which the method is better than {reference}. "
            "From, to: the 95 % interval of a bootstrap over data sets. "
            "p: Wilcoxon's signed-rank test, two-sided, over data sets; "
            "Holm: corrected for the number of methods.",
        ),
    )
