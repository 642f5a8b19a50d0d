"""The results of a grid: ``results.csv``, and the tables that compare its methods."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layline.bench.cells import Cell
from layline.bench.grid import Grid
from layline.bench.statistics import (
    MeanRanks,
    compare_with_reference,
    holm,
    rank_methods,
)
from layline.bench.store import METRIC_COLUMNS, Outcome, Store
from layline.bench.summaries import (
    Metric,
    find_metric,
    means,
    measured,
    select_decoding,
    summary,
)
from layline.bench.tables import (
    TABLE_FORMATS,
    Column,
    Entry,
    Table,
    mark_best,
    summary_entries,
)
from layline.training.display import amount
from layline.utils.errors import UserError
from layline.utils.files import atomic_write, write_json, write_text

RESULTS = "results.csv"
GRID = "grid.toml"
ENVIRONMENT = "environment.json"
_EACH = "environments"  # of the runs, in environment.json, by their place in the list
_MEAN, _ALL_METHODS = "Mean", "all methods"
# What a number may depend on and what is not in a cell's key, by its name in environment.json.
_COMPUTING = ("torch", "numpy", "torchvision", "timm", "python", "platform", "processor", "device")
_RANK = Column("Mean rank", digits=2, lower_is_better=True)
_RANKED_BY = ("mae", "macro_mae", "accuracy", "qwk", "rps", "nll")


def write_grid(grid: Grid, folder: Path) -> None:
    """Write ``grid.toml``, from which a grid that was stopped goes on."""
    write_text(folder / GRID, grid.to_toml())


def write_results(
    grid: Grid, cells: Sequence[Cell], store: Store, part_of: Grid | None = None
) -> pd.DataFrame:
    """Write ``environment.json``, ``results.csv`` and ``tables/`` beside the cells.

    Args:
        grid: What is compared.
        cells: Its runs.
        store: Where their outcomes are.
        part_of: The whole grid, if that was some of its data sets only; see :func:`write_runs`.

    Returns:
        The runs that are compared, see :func:`select_runs`.
    """
    whole = part_of or grid
    frame = write_runs(whole, cells, store)
    frame = frame[frame["data"].isin([each.name for each in grid.data])]
    selected = select_runs(frame, grid.tune_seeds)
    named = dict(tables(selected, whole.read_by(), grid.against()))
    folder = store.folder / "tables"
    written = write_tables(folder, named)
    for stale in {file for ending in TABLE_FORMATS for file in folder.glob(f"*.{ending}")}:
        if stale not in written:  # of an earlier form of the grid
            stale.unlink()
    return selected


def write_runs(grid: Grid, cells: Sequence[Cell], store: Store) -> pd.DataFrame:
    """Write ``results.csv`` and ``environment.json`` of the runs that ended.

    With ``grid.toml`` that is all it takes to go on elsewhere, see :func:`read_outcomes`. Runs on
    other data sets of the grid than those of the cells stay as they are there.

    Returns:
        All runs that ended, one row for each decoding.
    """
    folder = store.folder
    others = {each.name for each in grid.data} - {cell.labels["data"] for cell in cells}
    kept = _runs_on(folder, others)
    frame = pd.concat([store.frame(cells, grid.read_by()), kept], ignore_index=True)
    if frame.empty:
        return frame
    environments = [*dict.fromkeys(frame["environment"])]
    frame["environment"] = frame["environment"].map(environments.index)
    with atomic_write(folder / RESULTS) as part:
        frame.to_csv(part, index=False)
    once = kept.drop_duplicates(["wanted", "version"])["environment"] if len(kept) else ()
    about = _environment(frame, [*store.environments(cells), *map(json.loads, once)])
    each = [json.loads(text) for text in environments]
    write_json(folder / ENVIRONMENT, about | {_EACH: each})
    return frame


def _runs_on(folder: Path, names: Collection[str]) -> pd.DataFrame:
    """Read the runs on some data sets from ``results.csv``, each with its environment as JSON."""
    if not names or not holds_runs(folder):
        return pd.DataFrame()
    texts = [json.dumps(each, sort_keys=True) for each in read_environments(folder)[1]]
    frame = read_results(folder)
    frame = frame[frame["data"].isin(names)]
    return frame.assign(environment=[texts[place] for place in frame["environment"]])


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
        *("data", "method", "recipe", "backbone", "setting", "seed", "decode", "version", "error"),
        *("wanted", "place", "content"),
    )
    numbers = {name: [""] for name in (*METRIC_COLUMNS, "validation_mae", "criterion")}
    frame = pd.read_csv(
        folder / RESULTS, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=numbers
    )
    return frame if "recipe" in frame else frame.assign(recipe="")


def read_environments(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what all runs have in common, or count it, and the environment of each kind of run."""
    about = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
    return about, about.pop(_EACH, [])


def holds_runs(folder: Path) -> bool:
    """Tell whether :func:`read_outcomes` finds runs in a folder; an earlier version left none."""
    try:
        return bool(read_outcomes(folder))
    except ValueError:
        return False


def read_outcomes(folder: Path) -> list[Outcome]:
    """Read the outcomes of all runs from ``results.csv``, where the folders of cells are gone."""
    if not (folder / RESULTS).is_file():
        raise UserError(
            f"merge must be the folder of a grid, got {folder}: it has neither cells nor {RESULTS}"
        )
    frame = read_results(folder)
    if "wanted" not in frame:
        raise UserError(
            f"merge must be results that say what each run was, got {folder}: an earlier version "
            "left them without cells"
        )
    if not (folder / ENVIRONMENT).is_file() or not read_environments(folder)[1]:
        raise UserError(
            f"merge must be results with {ENVIRONMENT}, got {folder}: it says what each run was "
            f"made on; copy it beside {RESULTS}"
        )
    _, environments = read_environments(folder)
    return [
        Outcome.of_rows(rows.to_dict("records"), environments[int(rows["environment"].iloc[0])])
        for _, rows in frame.groupby(["wanted", "version"], sort=False)
    ]


def select_runs(frame: pd.DataFrame, tune_seeds: Sequence[int] = ()) -> pd.DataFrame:
    """Keep the runs that are compared: of the settings tried, the one that validation prefers.

    It is chosen by the metric that chose the epochs, for each data set, method, recipe, features
    and seed, or once for all seeds; the first of equal ones is kept. The test part has no
    influence. A setting with a failed run is chosen only if all of them have one.

    Where a data set has several kinds of features, each of them is a data set of its own. Where
    there are several recipes, a method is another one with each of them.

    Args:
        frame: All runs.
        tune_seeds: The seeds by whose mean a setting is chosen for all seeds; if none, each seed
            chooses for itself.
    """
    chosen = best_settings(frame, tune_seeds)
    selected = frame.merge(chosen, on=list(chosen.columns), how="inner")
    several = selected.groupby("data")["backbone"].transform("nunique") > 1
    both = selected["data"] + " · " + selected["backbone"]
    method = selected["method"]
    if selected["recipe"].nunique() > 1:
        method = _with_recipe(method, selected["recipe"])
    return selected.assign(data=selected["data"].where(~several, both), method=method)


def best_settings(frame: pd.DataFrame, tune_seeds: Sequence[int] = ()) -> pd.DataFrame:
    """Find the setting that validation prefers, see :func:`select_runs`: its labels, a row each."""
    errors = frame["validation_mae"]
    if "criterion" in frame:  # which an earlier version did not write
        errors = frame["criterion"].fillna(errors)
    runs = frame.assign(criterion=errors.fillna(float("inf")))
    by = ["data", "method", "recipe", "backbone"]
    if tune_seeds:
        runs = runs[runs["seed"].isin([str(seed) for seed in tune_seeds])]
    else:
        by.append("seed")
    found = runs.groupby([*by, "setting"], sort=False, as_index=False)["criterion"].mean()
    best = found.groupby(by, sort=False)["criterion"].idxmin()
    return found.loc[best, [*by, "setting"]]


def chosen_cells(cells: Sequence[Cell], store: Store, tune_seeds: Sequence[int]) -> list[Cell]:
    """Keep the cells with the settings that are chosen, and all of the seeds that choose.

    Args:
        cells: Of the grid.
        store: Which has the outcomes of the seeds that choose.
        tune_seeds: Those seeds.
    """
    choosing = {str(seed) for seed in tune_seeds}
    frame = store.frame([cell for cell in cells if cell.labels["seed"] in choosing])
    found = best_settings(frame, tune_seeds)
    best = {tuple(row) for row in found.itertuples(index=False)}
    return [
        cell
        for cell in cells
        if cell.labels["seed"] in choosing
        or tuple(cell.labels[name] for name in found.columns) in best
    ]


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
    if len(decodings) > 1:
        yield "all", leaderboard(frame, decodings)
    if frame["method"].nunique() > 1:
        yield "ranks", mean_rank_table(frame, decodings)
        yield "first", first_places(frame, decodings, against)
    for decode in decodings:
        yield f"all-{decode}", leaderboard(frame, [decode])
        for metric in ("mae", "accuracy"):
            if against is not None:
                name = f"{metric}-{decode}-against-{reference}"
                yield name, pairwise(frame, against, metric, decode)
            if frame["recipe"].nunique() > 1:
                yield f"{metric}-{decode}-by-recipe", recipe_gains(frame, metric, decode)


def comparisons(frame: pd.DataFrame, decodings: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Compare the methods in each metric, by every decoding where it depends on that."""
    for name, metric in measured(frame).items():
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


def leaderboard(frame: pd.DataFrame, decodings: Sequence[str]) -> Table:
    """Average every metric over data sets, best mean rank by MAE first.

    Args:
        frame: The runs that are compared.
        decodings: Each metric is read by the one that it asks for, if it is among them, or by the
            first.
    """
    metrics = measured(frame)
    read_by = {name: metric.own_decoding(decodings) for name, metric in metrics.items()}
    ranks = rank_methods(frame, "mae", read_by["mae"])
    summaries = {
        name: summary(select_decoding(frame, read_by[name]), name, by=("method", "data"))
        for name in metrics
    }
    methods = (*map(str, ranks.ranks.index), *ranks.left_out)
    several = len(decodings) > 1
    return mark_best(
        Table(
            caption="All data sets, each metric by the decoding that it asks for"
            if several
            else f"All data sets, decoding by the {decodings[0]}",
            rows=methods,
            columns=(
                _RANK,
                *(
                    Column.of_metric(
                        metric,
                        f"{metric.title}, {read_by[name]}" if several and metric.decoded else "",
                    )
                    for name, metric in metrics.items()
                ),
            ),
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


def _ranked_by(
    frame: pd.DataFrame, decodings: Sequence[str]
) -> Iterator[tuple[str, str, str, MeanRanks]]:
    """Rank the methods in the metrics that matter most: name, decoding, title and ranks of each."""
    for name, metric in measured(frame).items():
        if name in _RANKED_BY:
            decode = metric.own_decoding(decodings)
            title = f"{metric.title}, {decode}" if metric.decoded else metric.title
            yield name, decode, title, rank_methods(frame, name, decode)


def mean_rank_table(frame: pd.DataFrame, decodings: Sequence[str]) -> Table:
    """Give the mean rank of each method over data sets, in several metrics, best by MAE first."""
    found = {title: ranks for _, _, title, ranks in _ranked_by(frame, decodings)}
    first = next(iter(found.values()))
    return mark_best(
        Table(
            caption="Mean ranks over data sets, 1 is the best possible; each metric by the "
            "decoding that it asks for",
            rows=(*map(str, first.ranks.index), *first.left_out),
            columns=tuple(Column(title, digits=2, lower_is_better=True) for title in found),
            entries=tuple(
                tuple(_rank(ranks, method) for ranks in found.values())
                for method in (*map(str, first.ranks.index), *first.left_out)
            ),
            notes=tuple(f"{title}: {note}" for title, each in found.items() for note in each.notes),
        )
    )


def first_places(frame: pd.DataFrame, decodings: Sequence[str], reference: str | None) -> Table:
    """Say who is first by mean rank in each metric, and compare it with the second and another.

    Args:
        frame: The runs that are compared.
        decodings: See :func:`leaderboard`.
        reference: The other one, if there is one.
    """
    columns = (
        *(Column("First"), Column("Mean rank", digits=2), Column("Against")),
        *(Column("Its mean rank", digits=2), Column("Wins", digits=0), Column("Ties", digits=0)),
        *(Column("Losses", digits=0), Column("Mean difference", form="signed")),
        *(Column("From", form="signed"), Column("To", form="signed"), Column("p", form="p")),
        Column("p (Holm)", form="p"),
    )
    rows, entries = [], []
    for name, decode, title, ranks in _ranked_by(frame, decodings):
        ordered = [*map(str, ranks.ranks.index)]
        others = dict.fromkeys([*ordered[1:2], *([reference] if reference in ordered else [])])
        others.pop(ordered[0] if ordered else "", None)
        if not others:
            continue
        first, scale = ordered[0], find_metric(name).scale
        lines = {
            other: compare_with_reference(
                frame[frame["method"].isin([first, other])], other, name, decode
            ).loc[first]
            for other in others
        }
        corrected = holm([line["p"] for line in lines.values()])
        for (other, line), p in zip(lines.items(), corrected, strict=True):
            rows.append(title)
            numbers = [line[key] for key in ("wins", "ties", "losses")]
            numbers += [line[key] * scale for key in ("difference", "low", "high")]
            entries.append(
                (
                    *(Entry(note=first), _rank(ranks, first), Entry(note=other)),
                    *(_rank(ranks, other), *map(_number_entry, [*numbers, line["p"], p])),
                )
            )
    return Table(
        caption="Who is first by mean rank, against the second and the reference",
        rows=tuple(rows),
        columns=columns,
        entries=tuple(entries),
        corner="Metric",
        notes=(
            "Mean difference: of the first to the other, over data sets, with the 95 % interval of "
            "the bootstrap over data sets. p: Wilcoxon's signed-rank test, two-sided; Holm: "
            "corrected for the comparisons of this metric. The first was found on these data sets, "
            "so its lead looks larger than it is.",
        ),
    )


def _number_entry(value: float) -> Entry:
    return Entry(None if pd.isna(value) else float(value))


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
    return Table(
        caption=f"{shown_as.caption(decode)}: every method against {reference}",
        rows=tuple(map(str, found.index)),
        columns=tuple(columns.values()),
        entries=tuple(
            tuple(_number_entry(line[name]) for name in columns)
            for line in found.to_dict("records")
        ),
        notes=(
            f"A win is a data set on which the method is better than {reference}. "
            "From, to: the 95 % interval of the bootstrap over data sets. "
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
        entries += [tuple(map(_number_entry, gains[name])) for name in gains.columns]
    unit = "points" if shown_as.scale != 1 else "per cent"
    return Table(
        caption=f"{shown_as.caption(decode)}: change from the recipe {first}, in {unit}",
        rows=tuple(rows),
        columns=tuple(Column(name, digits=1, form="signed") for name in (*numbers.index, _MEAN)),
        entries=tuple(entries),
        notes=("Each number is of the means over seeds.",),
    )
