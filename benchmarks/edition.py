"""The tables of docs/benchmark.md and of the README, from the published runs.

    python benchmarks/edition.py

writes each between its two comments, ``<!-- table: NAME -->`` and ``<!-- end of table -->``.
Ranks and means are over data sets, of means over seeds; each metric uses its matching
decoding.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from claims import claim_table, compare, compare_seeds, read, seed_table

from layline.bench.grid import read_grid
from layline.bench.statistics import (
    METRICS,
    MeanRanks,
    compare_with_reference,
    holm,
    mean_ranks,
    means,
    rank_methods,
    select_decoding,
    select_runs,
)
from layline.bench.store import GRID, read_results
from layline.bench.tables import (
    Column,
    Entry,
    Table,
    summary_entries,
    to_markdown,
)

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "edition-2"
FINETUNED = ROOT / "results" / "edition-2-finetuned"
CLAIMS = ROOT / "results" / "claims"
PAGES = (ROOT / "docs" / "benchmark.md", ROOT / "README.md")
DECODINGS = ("median", "mode", "mean")
PHOTOGRAPHS = ("photo-quality", "retinamnist", "vehicle-damage3", "utkface8")
DEFAULT, PLAIN = "arc", "classification"
RANKED = ("mae", "macro_mae", "accuracy", "qwk", "rps", "nll")
AVERAGED = (
    *("mae", "macro_mae", "accuracy", "within_one", "qwk", "rps", "ece", "range_width"),
    *("unimodality_rate", "seconds"),
)
CPL = ("hard-linear", "hard-semicircular", "soft-poisson", "soft-binomial-cosine")
SHORT = ("mae", "macro_mae", "accuracy", "qwk", "rps", "unimodality_rate")
OF_EACH_SET = ("mae", "accuracy", "rps")


def compared(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the runs that are compared: of each method the setting that validation chose."""
    return select_runs(read_results(folder), read_grid(folder / GRID).tune_seeds)


def other_libraries(folder: Path = FOLDER) -> list[str]:
    """Name what is not ours."""
    return [each.name for each in read_grid(folder / GRID).baselines]


def ranked(frame: pd.DataFrame) -> dict[str, MeanRanks]:
    """Rank the methods in the metrics that matter most, and in MAE by the kind of the data."""
    found = {
        METRICS[name].title: rank_methods(frame, name, METRICS[name].own_decoding(DECODINGS))
        for name in RANKED
    }
    mae = means(frame, "mae", "median")
    is_photograph = mae.index.isin(PHOTOGRAPHS)
    found["MAE, tables"] = mean_ranks(mae[~is_photograph], lower_is_better=True)
    found["MAE, photographs"] = mean_ranks(mae[is_photograph], lower_is_better=True)
    return found


def rank_table(frame: pd.DataFrame, others: list[str]) -> str:
    """Write the mean rank of each method, best in MAE first."""
    found = ranked(frame)
    return _written(
        list(found["MAE"].ranks.index),
        {
            Column(title, digits=1, lower_is_better=True): ranks.ranks
            for title, ranks in found.items()
        },
        others,
    )


def mean_table(frame: pd.DataFrame, others: list[str]) -> str:
    """Write the means over data sets, best mean rank in MAE first."""
    order = rank_methods(frame, "mae", "median").ranks
    columns = {_column(name): _mean(frame, name) for name in AVERAGED}
    return _written(list(order.index), columns, others)


def readme_table(frame: pd.DataFrame, others: list[str]) -> str:
    """Write the first in each of four metrics, our default, the paper's and the others' best."""
    ranks = {name: found.ranks for name, found in zip(RANKED, ranked(frame).values(), strict=False)}
    order = ranks["mae"]
    best_others = [name for name in order.index if name in others][:2]
    firsts = [ranks[name].index[0] for name in ("mae", "accuracy", "rps", "macro_mae")]
    names = {*firsts, DEFAULT, PLAIN, *CPL, *best_others, "gradient boosting"}
    columns = {Column("MAE rank", digits=1, lower_is_better=True): order}
    columns |= {_column(name): _mean(frame, name) for name in SHORT}
    return _written([name for name in order.index if name in names], columns, others)


def set_table(frame: pd.DataFrame, others: list[str]) -> str:
    """Write the MAE on each data set: the best, our default, a plain classifier, the others'."""
    mae = means(frame, "mae", "median")
    ours, theirs = mae.drop(columns=others), mae[others]
    lines = [
        "| data | best of ours | `arc` | its place | `classification` | best of the others |",
        "|---|---|--:|--:|--:|---|",
    ]
    places = mae.round(8).rank(axis="columns", method="min")
    for data in mae.index:
        best, other = ours.loc[data].idxmin(), theirs.loc[data].idxmin()
        lines.append(
            f"| {data} | {ours.loc[data, best]:.3f} {_name(best, others)} | "
            f"{mae.loc[data, DEFAULT]:.3f} | {places.loc[data, DEFAULT]:.0f} | "
            f"{mae.loc[data, PLAIN]:.3f} | "
            f"{theirs.loc[data, other]:.3f} {other} |"
        )
    return "\n".join(lines)


def _column(name: str) -> Column:
    metric = METRICS[name]
    digits = {"accuracy": 1, "within_one": 1, "unimodality_rate": 0}.get(name, metric.digits)
    return Column(metric.title, digits=digits, lower_is_better=metric.lower_is_better)


def _mean(frame: pd.DataFrame, name: str) -> "pd.Series[float]":
    metric = METRICS[name]
    found = means(frame, name, metric.own_decoding(DECODINGS))
    return metric.scale * found.mean(skipna=False)


def _written(names: list[str], columns: dict[Column, "pd.Series[float]"], others: list[str]) -> str:
    """Write a table of numbers, the best of each column in bold, in Markdown without a caption."""
    entries = {
        column: {_name(name, others): _entry(values.get(name)) for name in names}
        for column, values in columns.items()
    }
    return _without_caption(Table.of_columns("", [_name(name, others) for name in names], entries))


def _without_caption(table: Table) -> str:
    text = to_markdown(table).partition("\n\n")[2].strip()
    return text.replace("\\`", "`")  # the names of our methods are code


def _entry(value: float | None) -> Entry:
    return Entry() if value is None or pd.isna(value) else Entry(float(value))


def _name(method: str, others: list[str]) -> str:
    return method if method in others else f"`{method}`"


def finetuned_table(frame: pd.DataFrame) -> str:
    """Write the means over seeds with their deviations on each data set, best rank in MAE first."""
    columns = {}
    for data in frame["data"].unique():
        for name in OF_EACH_SET:
            metric = METRICS[name]
            rows = select_decoding(frame, metric.own_decoding(DECODINGS))
            entries = summary_entries(rows, name, ("data", "method"))
            title = f"{data}: {metric.title}"
            columns[Column(title, "", metric.digits, metric.lower_is_better)] = {
                f"`{method}`": each for (of, method), each in entries.items() if of == data
            }
    methods = rank_methods(frame, "mae", "median").ranks.index
    table = Table.of_columns("", [f"`{method}`" for method in methods], columns)
    return _without_caption(table)


def first_table(frame: pd.DataFrame) -> str:
    """Write who is first in each metric, against the second and a plain classifier."""
    columns = (
        *(Column("First"), Column("Mean rank", digits=2), Column("Against")),
        *(Column("Its mean rank", digits=2), Column("Wins", digits=0), Column("Ties", digits=0)),
        *(Column("Losses", digits=0), Column("Mean difference", form="signed")),
        *(Column("From", form="signed"), Column("To", form="signed"), Column("p", form="p")),
        Column("p (Holm)", form="p"),
    )
    rows, entries = [], []
    for name in RANKED:
        metric, decode = METRICS[name], METRICS[name].own_decoding(DECODINGS)
        ranks = rank_methods(frame, name, decode).ranks
        first, second = ranks.index[:2]
        lines = {
            other: compare_with_reference(
                frame[frame["method"].isin([first, other])], other, name, decode
            ).loc[first]
            for other in dict.fromkeys([second, PLAIN])
            if other != first
        }
        corrected = holm([line["p"] for line in lines.values()])
        for (other, line), p in zip(lines.items(), corrected, strict=True):
            rows.append(metric.title_with(decode))
            numbers = [line[key] for key in ("wins", "ties", "losses")]
            numbers += [line[key] * metric.scale for key in ("difference", "low", "high")]
            own = Entry(note=first), Entry(ranks[first]), Entry(note=other), Entry(ranks[other])
            entries.append((*own, *(Entry(float(each)) for each in (*numbers, line["p"], p))))
    return _without_caption(Table("", tuple(rows), columns, tuple(entries), corner="Metric"))


def tables() -> dict[str, str]:
    """Write every table, by its name in the pages."""
    frame, others = compared(), other_libraries()
    return {
        "short": readme_table(frame, others),
        "first": first_table(frame),
        "ranks": rank_table(frame, others),
        "means": mean_table(frame, others),
        "sets": set_table(frame, others),
        "claims": claim_table(compare(read([FOLDER, CLAIMS]))),
        "finetuned": finetuned_table(compared(FINETUNED)),
        "finetuned_claims": seed_table(compare_seeds(compared(FINETUNED))),
    }


def filled(page: str, written: Mapping[str, str]) -> str:
    """Put the tables into a page, each between its comments."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)",
        lambda found: f"{found[1]}{written[found[2]]}\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def main() -> None:
    """Write the tables into the pages."""
    written = tables()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), written), encoding="utf-8")


if __name__ == "__main__":
    main()
