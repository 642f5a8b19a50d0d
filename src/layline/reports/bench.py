"""The page of a benchmark: ranks and tables of many runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layline import metrics
from layline.bench import statistics, tables
from layline.bench.grid import Grid, read_grid
from layline.bench.learning_curves import curve_table, find_curves
from layline.bench.statistics import METRICS, MeanRanks, critical_difference
from layline.bench.store import ENVIRONMENT, GRID, read_results
from layline.reports import render_page
from layline.reports.figures import Figure, interval_rows
from layline.reports.learning_curves import curve_figure, draw_learning_curve, save_svg
from layline.reports.paper_figures import critical_difference_diagram, save_figure
from layline.utils.files import check_output, write_text

_LABELS = ["data", "method", "recipe", "backbone", "setting", "labels", "stress", "seed"]


def write_bench_report(folder: Path, out: Path) -> None:
    """Write the page of the benchmark in a folder to an HTML file."""
    check_output(out, [path for path in folder.iterdir() if path.suffix != ".html"])
    write_text(out, render_bench(folder))


def write_bench_figures(folder: Path) -> None:
    """Write the learning curves and, with several data sets, the critical-difference diagram."""
    grid = read_grid(folder / GRID)
    compared = statistics.select_runs(read_results(folder), grid.tune_seeds)
    for curves in find_curves(compared, grid):
        figure = draw_learning_curve(curves, curves.highlighted(grid))
        save_svg(figure, folder / "figures" / f"{curves.name('learning-curve')}.svg")
    decode = METRICS["mae"].own_decoding(grid.used_decodings())
    ranking = statistics.rank_methods(statistics.standard_runs(compared), "mae", decode)
    if _can_rank(ranking):
        figure = critical_difference_diagram(ranking.ranks, ranking.num_data, f"MAE, {decode}")
        save_figure(figure, folder / "figures" / f"critical-difference-{decode}")


def _can_rank(ranking: MeanRanks) -> bool:
    return len(ranking.ranks) > 1 and ranking.num_data > 1


def render_bench(folder: Path) -> str:
    """Make the page of a benchmark."""
    grid, everything = read_grid(folder / GRID), read_results(folder)
    compared = statistics.select_runs(everything, grid.tune_seeds)
    frame, decodings = statistics.standard_runs(compared), grid.used_decodings()
    chosen = {name: METRICS[name].own_decoding(decodings) for name in ("mae", "accuracy")}
    ranking = statistics.rank_methods(frame, "mae", chosen["mae"])
    figures, difference = dict[str, Figure](), 0.0
    if _can_rank(ranking):
        difference = critical_difference(len(ranking.ranks), ranking.num_data)
        figures["ranks"] = ranks_figure(ranking.ranks, difference)
    curves = {each.name("curve"): each for each in find_curves(compared, grid)}
    figures |= {k: curve_figure(each, each.highlighted(grid)) for k, each in curves.items()}
    reference = tables.find_reference(frame, grid.reference_method())
    environment = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
    return render_page(
        "bench.html",
        ["bench.js"],
        {"figures": figures},
        title=folder.resolve().name,
        decodings=decodings,
        decode=chosen["mae"],
        facts=_facts(grid, everything),
        difference=difference,
        board=tables.leaderboard(frame, decodings),
        ranks=tables.mean_rank_table(frame, decodings) if "ranks" in figures else None,
        curves={key: curve_table(each, "mae") for key, each in curves.items()},
        comparisons=_comparisons(frame, decodings),
        metrics=[(name, metric.title) for name, metric in tables.measured(frame).items()],
        reference=reference,
        against=[
            tables.reference_table(frame, reference, *by) for by in chosen.items() if reference
        ],
        failures=_failures(everything),
        about=[(name, _describe(value)) for name, value in environment.items()],
        description=(folder / GRID).read_text(encoding="utf-8"),
        figures=figures,
        content=tables.entry_text,
    )


def _comparisons(frame: pd.DataFrame, decodings: Sequence[str]) -> dict[str, tables.Table]:
    """Compare the methods in each metric, with every decoding if it needs one."""
    comparisons = {}
    for name, metric in tables.measured(frame).items():
        for decode in decodings if metric.decode else decodings[:1]:
            key = f"{name}-{decode}" if metric.decode else name
            comparisons[key] = tables.comparison(frame, name, decode)
    return comparisons


def _facts(grid: Grid, frame: pd.DataFrame) -> dict[str, Any]:
    once = frame[frame["decode"] == grid.used_decodings()[0]]
    tries = once.groupby([name for name in _LABELS if name != "setting"]).size().max()
    tuning = "Nothing was tuned: every method uses the same settings."
    unseen = "Test samples were used neither for training nor to choose an epoch or a setting."
    if tries > 1:
        tuned = "data set and seed"
        if grid.tune_seeds:
            tuned = f"data set with {len(grid.tune_seeds)} of the seeds"
            unseen = (
                "Test samples were used neither for training nor to choose an epoch. With random "
                "splits, some of them were validation samples of the seeds that chose the setting; "
                "this is the same for every method."
            )
        metric = metrics.METRICS[grid.settings.get("training", {}).get("metric", "mae")]
        best = "highest" if metric.higher_is_better else "lowest"
        tuning = (
            f"Every method was tried with up to {tries} settings on each {tuned}; the numbers are "
            f"those of the setting with the {best} validation {metric.label}."
        )
    return {
        "runs": len(once),
        "failed": int((once["error"] != "").sum()),
        "methods": once["method"].nunique(),
        "data": once["data"].nunique(),
        "seeds": once["seed"].nunique(),
        "tuning": tuning,
        "unseen": unseen,
    }


def _failures(frame: pd.DataFrame) -> list[tuple[str, str]]:
    failed = frame[frame["error"] != ""].drop_duplicates(_LABELS)
    return [
        (" · ".join(str(row[label]) for label in _LABELS if row[label]), row["error"])
        for row in failed.to_dict("records")
    ]


def _describe(value: Any) -> str:
    """Write a value of ``environment.json``, or several with their numbers of runs."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ", ".join(f"{_describe(each['value'])} ({each['runs']})" for each in value)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def ranks_figure(ranks: "pd.Series[float]", difference: float) -> Figure:
    """Draw mean ranks in order, and a band of those that do not differ from the best."""
    trace, layout = interval_rows(list(ranks.index), ranks, ranks, ranks, ".2f")
    best = float(ranks.iloc[0])
    band = {"type": "rect", "x0": best, "x1": best + difference, "y0": 0, "y1": 1, "yref": "paper"}
    band |= {"fillcolor": "@soft", "opacity": 0.55, "layer": "below", "line": {"width": 0}}
    xaxis = {"title": {"text": "mean rank by MAE, lower is better"}, "side": "top"}
    layout |= {"xaxis": xaxis | {"range": [0.5, len(ranks) + 0.5]}, "shapes": [band]}
    layout["margin"] = {"l": 60, "r": 16, "t": 56, "b": 12}
    return {"data": [trace], "layout": layout}
