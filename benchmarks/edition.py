"""The tables of docs/benchmark.md and of the README, from the published runs.

    python benchmarks/edition.py [FOLDER]

FOLDER is that of ``layline bench``, ``results/edition-2`` if none is named. Ranks and means are over
data sets, of means over seeds; each metric is read by the decoding that it asks for.
"""

import sys
from pathlib import Path

import pandas as pd

from layline.experiments.grid import read_grid
from layline.experiments.results import GRID, read_results, select_runs
from layline.experiments.statistics import MeanRanks, mean_ranks, rank_methods
from layline.experiments.summaries import METRICS, means
from layline.experiments.tables import Column, Entry, Table, mark_best, to_markdown

FOLDER = Path(__file__).resolve().parents[1] / "results" / "edition-2"
DECODINGS = ("median", "mode", "mean")
PHOTOGRAPHS = ("photo-quality", "retinamnist", "vehicle-damage3", "utkface8")
DEFAULT, PLAIN = "arc", "classification"
RANKED = ("mae", "macro_mae", "accuracy", "qwk", "rps", "nll")
AVERAGED = ("mae", "macro_mae", "accuracy", "within_one", "qwk", "rps", "ece", "range_width")
SHORT = ("mae", "macro_mae", "accuracy", "qwk", "rps", "range_width")
PAPER = ("hard-linear", "hard-semicircular", "soft-poisson", "soft-binomial", "unconstrained")


def compared(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the runs that are compared: of each method the setting that validation chose."""
    return select_runs(read_results(folder), read_grid(folder / GRID).tune_seeds)


def other_libraries(folder: Path = FOLDER) -> list[str]:
    """Name what is not ours."""
    return [each.name for each in read_grid(folder / GRID).competitors]


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


def rank_table(frame: pd.DataFrame) -> str:
    """Write the mean rank of each method, best in MAE first."""
    found = ranked(frame)
    return _written(
        list(found["MAE"].ranks.index),
        {
            Column(title, digits=1, lower_is_better=True): ranks.ranks
            for title, ranks in found.items()
        },
    )


def mean_table(frame: pd.DataFrame, names: list[str] | None = None) -> str:
    """Write the means over data sets, best mean rank in MAE first.

    Args:
        frame: The runs that are compared.
        names: Methods to show, all if not given.
    """
    order = rank_methods(frame, "mae", "median").ranks
    shown = (*AVERAGED, "unimodality_rate", "seconds")
    return _written(
        [name for name in order.index if names is None or name in names],
        {_column(name): _mean(frame, name) for name in shown},
    )


def readme_table(frame: pd.DataFrame, others: list[str]) -> str:
    """Write the first in each metric, our default, the paper's methods and the others' best."""
    ranks = {name: found.ranks for name, found in zip(RANKED, ranked(frame).values(), strict=False)}
    order = ranks["mae"]
    best_other = [name for name in order.index if name in others][:2]
    firsts = [ranks[name].index[0] for name in ("mae", "accuracy", "rps", "macro_mae")]
    names = {*firsts, DEFAULT, PLAIN, *PAPER[:3], *best_other, "gradient boosting"}
    columns = {Column("mean rank in MAE", digits=1, lower_is_better=True): order}
    columns |= {_column(name): _mean(frame, name) for name in SHORT}
    return _written([name for name in order.index if name in names], columns)


def set_table(frame: pd.DataFrame, others: list[str]) -> str:
    """Write the MAE on each data set: the best, our default, a plain classifier, the others'."""
    mae = means(frame, "mae", "median")
    ours, theirs = mae.drop(columns=others), mae[others]
    lines = [
        "| data | best of ours | `arc` | its place | `classification` | best of the others |",
        "|---|---|--:|--:|--:|---|",
    ]
    places = mae.rank(axis="columns", method="min")
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


def _written(names: list[str], columns: dict[Column, "pd.Series[float]"]) -> str:
    """Write a table of numbers, the best of each column in bold, in Markdown without a caption."""
    table = mark_best(
        Table(
            caption="",
            rows=tuple(names),
            columns=tuple(columns),
            entries=tuple(
                tuple(_entry(values.get(name)) for values in columns.values()) for name in names
            ),
        )
    )
    return to_markdown(table).partition("\n\n")[2].strip()


def _entry(value: float | None) -> Entry:
    return Entry() if value is None or pd.isna(value) else Entry(float(value))


def _name(method: str, others: list[str]) -> str:
    return method if method in others else f"`{method}`"


def main() -> None:
    """Print the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    frame, others = compared(folder), other_libraries(folder)
    for table in (
        readme_table(frame, others),
        rank_table(frame),
        mean_table(frame),
        set_table(frame, others),
    ):
        print(table, end="\n\n")


if __name__ == "__main__":
    main()
