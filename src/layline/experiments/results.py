"""The results of a grid: ``results.csv``, and the tables that compare its methods."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layline.experiments.cells import Cell
from layline.experiments.grid import Grid
from layline.experiments.statistics import MeanRanks, compare_with_reference, rank_methods
from layline.experiments.store import METRIC_COLUMNS, Store
from layline.experiments.summaries import (
    METRICS,
    Metric,
    find_metric,
    means,
    select_decoding,
    summary,
)
from layline.experiments.tables import (
    TABLE_FORMATS,
    Column,
    Entry,
    Table,
    mark_best,
    summary_entries,
)
from layline.files import atomic_write, write_json, write_text
from layline.training.display import amount

RESULTS = "results.csv"
GRID = "grid.toml"
_MEAN, _ALL_METHODS = "Mean", "all methods"
# What a number may depend on and what is not in a cell's key, by its name in environment.json.
_COMPUTING = ("torch", "numpy", "torchvision", "timm", "python", "platform", "processor", "device")
_RANK = Column("Mean rank", digits=2, lower_is_better=True)


def write_grid(grid: Grid, folder: Path) -> None:
    """Write ``grid.toml``, from which a grid that was stopped goes on."""
    write_text(folder / GRID, grid.to_toml())


def write_results(grid: Grid, cells: Sequence[Cell], store: Store) -> pd.DataFrame:
    """Write ``grid.toml``, ``environment.json``, ``results.csv`` and ``tables/`` beside the cells.

    Returns:
        The runs that are compared, see :func:`select_runs`.
    """
    folder, decodings = store.folder, grid.read_by()
    frame = store.frame(cells, decodings)
    write_grid(grid, folder)
    with atomic_write(folder / RESULTS) as part:
        frame.to_csv(part, index=False)
    write_json(folder / "environment.json", _environment(frame, store.environments(cells)))
    selected = select_runs(frame)
    write_tables(folder / "tables", dict(tables(selected, decodings, grid.reference)))
    return selected


def _environment(frame: pd.DataFrame, environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Say what ran the runs, each with the number of runs where they differ."""
    names = dict.fromkeys(name for each in environments for name in each)
    return {
        **{name: _common([each.get(name) for each in environments]) for name in names},
        "layline": sorted(frame["version"].unique()),
        "runs": int(frame.groupby("decode").size().max()),
        "failed": int((frame["error"] != "").groupby(frame["decode"]).sum().max()),
        "hours": round(float(frame.groupby("decode")["seconds"].sum().max()) / 3600, 2),
    }


def _common(values: Sequence[Any]) -> Any:
    """Give what all runs have, or each value with the number of runs that have it."""
    counts = Counter(json.dumps(value) for value in values)
    if len(counts) == 1:
        return values[0]
    return [{"value": json.loads(text), "runs": runs} for text, runs in counts.most_common()]


def differing_environments(store: Store, cells: Sequence[Cell]) -> list[str]:
    """Say in which versions, and on which processors, the runs differ: last digits may, too."""
    environments = store.environments(cells)
    sentences = []
    for name in _COMPUTING:
        counts = Counter(str(each[name]) for each in environments if name in each)
        if len(counts) > 1:
            each = ", ".join(f"{value} ({amount(n, 'run')})" for value, n in counts.most_common())
            sentences.append(f"The runs differ in {name}: {each}")
    return sentences


def write_tables(folder: Path, named: Mapping[str, Table]) -> list[Path]:
    """Write tables in every format, and give the files."""
    files = []
    for name, table in named.items():
        for ending, write in TABLE_FORMATS.items():
            files.append(folder / f"{name}.{ending}")
            write_text(files[-1], write(table))
    return files


def read_results(folder: Path) -> pd.DataFrame:
    """Read ``results.csv`` as it was written; without a column for the recipe, it is empty."""
    texts = (
        "data",
        "method",
        "recipe",
        "features",
        "setting",
        "seed",
        "decode",
        "version",
        "error",
    )
    numbers = {name: [""] for name in (*METRIC_COLUMNS, "validation_mae", "criterion")}
    frame = pd.read_csv(
        folder / RESULTS, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=numbers
    )
    return frame if "recipe" in frame else frame.assign(recipe="")


def select_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the runs that are compared: of the settings tried, the one that validation prefers.

    It is chosen by the metric that chose the epochs, and for each data set, method, recipe,
    features and seed; the first of equal ones is kept. The test part has no influence. A setting
    whose run failed is chosen only if all of them failed.

    Where a data set has several kinds of features, each of them is a data set of its own. Where
    there are several recipes, a method is another one with each of them.
    """
    by = ["data", "method", "recipe", "features", "seed", "decode"]
    errors = frame["validation_mae"]
    if "criterion" in frame:  # which an earlier version did not write
        errors = frame["criterion"].fillna(errors)
    errors = errors.fillna(float("inf"))
    best = frame[by].assign(error=errors).groupby(by, sort=False)["error"].idxmin()
    selected = frame.loc[best.sort_values()].reset_index(drop=True)
    several = selected.groupby("data")["features"].transform("nunique") > 1
    both = selected["data"] + " · " + selected["features"]
    method = selected["method"]
    if selected["recipe"].nunique() > 1:
        method = _with_recipe(method, selected["recipe"])
    return selected.assign(data=selected["data"].where(~several, both), method=method)


def _with_recipe(method: Any, recipe: Any) -> Any:
    """Name a method with its recipe, single ones or whole columns."""
    return method + " · " + recipe


def find_reference(frame: pd.DataFrame, reference: str) -> str | None:
    """Find the method to compare the others with, of several recipes that of the first.

    Args:
        frame: The runs that are compared.
        reference: Its name in the grid.

    Returns:
        Its name in the frame; None if it is not there, or alone.
    """
    methods = [*frame["method"].unique()]
    names = (reference, *(_with_recipe(reference, each) for each in frame["recipe"].unique()[:1]))
    return next((name for name in names if name in methods and len(methods) > 1), None)


def tables(
    frame: pd.DataFrame, decodings: Sequence[str], reference: str
) -> Iterator[tuple[str, Table]]:
    """Make the tables of a grid from the runs that are compared, each with a name for its file.

    The other methods are compared with the reference, if it is in the frame, and the other recipes
    with the first.
    """
    against = find_reference(frame, reference)
    yield from comparisons(frame, decodings)
    for decode in decodings:
        yield f"all-{decode}", leaderboard(frame, decode)
        for metric in ("mae", "accuracy"):
            if against is not None:
                name = f"{metric}-{decode}-against-{reference}"
                yield name, pairwise(frame, against, metric, decode)
            if frame["recipe"].nunique() > 1:
                yield f"{metric}-{decode}-by-recipe", recipe_gains(frame, metric, decode)


def comparisons(frame: pd.DataFrame, decodings: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Compare the methods in each metric, by every decoding where it depends on that."""
    for name, metric in METRICS.items():
        for decode in decodings if metric.decoded else decodings[:1]:
            file = f"{name}-{decode}" if metric.decoded else name
            yield file.replace("_", "-"), comparison(frame, name, decode)


def comparison(frame: pd.DataFrame, metric: str, decode: str) -> Table:
    """Compare methods on each data set: mean ± standard deviation over seeds, and the mean rank."""
    shown_as = find_metric(metric)
    data, methods = ([*dict.fromkeys(frame[label])] for label in ("data", "method"))
    entries = summary_entries(select_decoding(frame, decode), metric, ("data", "method"))
    ranks = rank_methods(frame, metric, decode)
    return mark_best(
        Table(
            caption=f"{shown_as.caption(decode)}: mean ± standard deviation over seeds",
            rows=tuple(methods),
            columns=(*(Column.of_metric(shown_as, name, shown_as.title) for name in data), _RANK),
            entries=tuple(
                (*(entries.get((name, method), Entry()) for name in data), _rank(ranks, method))
                for method in methods
            ),
            notes=ranks.notes,
        )
    )


def leaderboard(frame: pd.DataFrame, decode: str) -> Table:
    """Average every metric over data sets, best mean rank by MAE first."""
    ranks = rank_methods(frame, "mae", decode)
    metrics = {name: metric for name, metric in METRICS.items() if name in frame}
    runs = select_decoding(frame, decode)
    summaries = {name: summary(runs, name, by=("method", "data")) for name in metrics}
    methods = (*map(str, ranks.ranks.index), *ranks.left_out)
    return mark_best(
        Table(
            caption=f"All data sets, decoding by the {decode}",
            rows=methods,
            columns=(_RANK, *map(Column.of_metric, metrics.values())),
            entries=tuple(
                (
                    _rank(ranks, method),
                    *(_average(summaries[name], method, metrics[name]) for name in metrics),
                )
                for method in methods
            ),
            notes=(
                "Each number is the mean over data sets of the mean over seeds.",
                "Mean ranks are those of MAE.",
                *ranks.notes,
            ),
        )
    )


def _average(lines: pd.DataFrame, method: str, metric: Metric) -> Entry:
    """Average over data sets, and count runs; a data set where no method has a number is left out.

    A data set on which the method was not run at all is one missing run.
    """
    numbers = lines["n"].groupby("data", sort=False).sum()
    own = lines.loc[method].reindex(numbers.index[numbers > 0])
    if not own["n"].any():
        return Entry()
    return Entry(
        mean=float(own["mean"].mean()) * metric.scale,
        n=int(own["n"].sum()),
        failed=int(own["failed"].fillna(1).sum()),
    )


def _rank(ranks: MeanRanks, method: str) -> Entry:
    if method not in ranks.ranks.index:
        return Entry()
    return Entry(mean=float(ranks.ranks[method]), n=ranks.num_data)


def pairwise(frame: pd.DataFrame, reference: str, metric: str, decode: str) -> Table:
    """Compare every method with one of them: wins, ties, losses, difference and significance."""
    shown_as = find_metric(metric)
    found = compare_with_reference(frame, reference, metric, decode)
    found = found.assign(difference=found["difference"] * shown_as.scale)
    columns = {
        "wins": Column("Wins", digits=0),
        "ties": Column("Ties", digits=0),
        "losses": Column("Losses", digits=0),
        "difference": Column("Mean difference", digits=shown_as.digits, form="signed"),
        "pairs": Column("Pairs", digits=0),
        "p": Column("p", form="p"),
        "p_holm": Column("p (Holm)", form="p"),
    }
    return Table(
        caption=f"{shown_as.caption(decode)}: every method against {reference}",
        rows=tuple(map(str, found.index)),
        columns=tuple(columns.values()),
        entries=tuple(
            tuple(Entry(None if pd.isna(line[name]) else float(line[name])) for name in columns)
            for line in found.to_dict("records")
        ),
        notes=(
            f"A win is a data set on which the method is better than {reference}. "
            "p: Wilcoxon's signed-rank test, two-sided, over data sets; "
            "Holm: corrected for the number of methods.",
        ),
    )


def recipe_gains(frame: pd.DataFrame, metric: str, decode: str) -> Table:
    """Compare recipes with the first one, method by method on each data set.

    A metric in per cent is compared by its difference, in points; any other by its change in per
    cent of the first recipe's number. The last column is the mean over data sets, the last row of a
    recipe the mean over methods.
    """
    shown_as = find_metric(metric)
    numbers = means(frame, metric, decode)
    known = frame.drop_duplicates("method").set_index("method")["recipe"]
    first, *others = frame["recipe"].unique()
    names = [name.removesuffix(f" · {first}") for name, recipe in known.items() if recipe == first]
    before = numbers[[_with_recipe(name, first) for name in names]].set_axis(names, axis="columns")
    rows, entries = [], []
    for recipe in others:
        own = [_with_recipe(name, recipe) for name in names]
        after = numbers.reindex(columns=own).set_axis(names, axis="columns")
        gains = (after - before) * shown_as.scale
        if shown_as.scale == 1:
            gains = 100 * gains / before.where(before != 0)
        gains = gains.assign(**{_ALL_METHODS: gains.mean(axis="columns", skipna=False)})
        gains.loc[_MEAN] = gains.mean(skipna=False)
        rows += [_with_recipe(name, recipe) for name in gains.columns]
        entries += [
            tuple(Entry(None if pd.isna(value) else float(value)) for value in gains[name])
            for name in gains.columns
        ]
    unit = "points" if shown_as.scale != 1 else "per cent"
    return Table(
        caption=f"{shown_as.caption(decode)}: change from the recipe {first}, in {unit}",
        rows=tuple(rows),
        columns=tuple(Column(name, digits=1, form="signed") for name in (*numbers.index, _MEAN)),
        entries=tuple(entries),
        notes=("Each number is of the means over seeds.",),
    )
