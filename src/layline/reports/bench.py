"""The page of a benchmark: ranks, tables and intervals of many runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layline import metrics
from layline.bench.grid import Grid, read_grid
from layline.bench.statistics import (
    METRICS,
    MeanRanks,
    Metric,
    critical_difference,
    intervals,
    rank_methods,
    select_runs,
)
from layline.bench.store import ENVIRONMENT, GRID, read_results
from layline.bench.tables import (
    Table,
    comparison,
    entry_text,
    find_reference,
    leaderboard,
    mean_rank_table,
    measured,
    reference_table,
)
from layline.reports import render_page
from layline.reports.figures import Figure, interval_rows
from layline.reports.paper_figures import critical_difference_diagram, save_figure
from layline.utils.files import check_output, write_text

_ALL = "all data sets"
_LABELS = ["data", "method", "recipe", "backbone", "setting", "seed"]
_MARGIN = {"l": 60, "r": 16, "t": 56, "b": 12}


def write_bench_report(folder: Path, out: Path) -> None:
    """Write the page of the benchmark in a folder to an HTML file."""
    check_output(out, [path for path in folder.iterdir() if path.suffix != ".html"])
    write_text(out, render_bench(folder))


def write_bench_figures(folder: Path) -> None:
    """Write the critical-difference diagram to ``figures`` if there are data sets to rank on."""
    grid = read_grid(folder / GRID)
    frame = select_runs(read_results(folder), grid.tune_seeds)
    decode = METRICS["mae"].own_decoding(grid.used_decodings())
    ranking = rank_methods(frame, "mae", decode)
    if _can_rank(ranking):
        title = f"MAE, {decode}"
        figure = critical_difference_diagram(ranking.ranks, ranking.num_data, title)
        save_figure(figure, folder / "figures" / f"critical-difference-{decode}")


def _can_rank(ranking: MeanRanks) -> bool:
    return len(ranking.ranks) > 1 and ranking.num_data > 1


def render_bench(folder: Path) -> str:
    """Make the page of a benchmark."""
    grid, everything = read_grid(folder / GRID), read_results(folder)
    frame = select_runs(everything, grid.tune_seeds)
    decodings = grid.used_decodings()
    by = {name: METRICS[name].own_decoding(decodings) for name in ("mae", "accuracy")}
    ranking = rank_methods(frame, "mae", by["mae"])
    panels = _panels(frame, by["mae"])
    figures = {"interval": next(iter(panels.values()))}
    if _can_rank(ranking):
        figures["ranks"] = ranks_figure(ranking)
    reference = find_reference(frame, grid.reference_method())
    against = [reference_table(frame, reference, *each) for each in by.items() if reference]
    environment = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
    return render_page(
        "bench.html",
        ["bench.js"],
        {"figures": figures, "panels": list(panels.values())},
        title=folder.resolve().name,
        decodings=decodings,
        decode=by["mae"],
        facts=_facts(grid, everything, ranking),
        board=leaderboard(frame, decodings),
        ranks=mean_rank_table(frame, decodings) if "ranks" in figures else None,
        comparisons=_comparisons(frame, decodings),
        metrics=[(key.replace("_", "-"), metric.title) for key, metric in measured(frame).items()],
        panels=list(panels),
        reference=reference,
        against=against,
        failures=_failures(everything),
        about=[(name, _describe(value)) for name, value in environment.items()],
        description=(folder / GRID).read_text(encoding="utf-8"),
        figures=figures,
        content=entry_text,
    )


def _comparisons(frame: pd.DataFrame, decodings: Sequence[str]) -> dict[str, Table]:
    """Compare the methods in each metric, with every decoding if it needs one."""
    return {
        (f"{name}-{decode}" if metric.decode else name).replace("_", "-"): comparison(
            frame, name, decode
        )
        for name, metric in measured(frame).items()
        for decode in (decodings if metric.decode else decodings[:1])
    }


def _panels(frame: pd.DataFrame, decode: str) -> dict[str, Figure]:
    """Draw the intervals of the mean over data sets and of each data set."""
    metric, panels = METRICS["mae"], {}
    if frame["data"].nunique() > 1:
        pooled = intervals(frame, "mae", decode, pooled=True).droplevel("data")
        panels[_ALL] = intervals_figure(pooled, metric)
    by_data = intervals(frame, "mae", decode)
    for name in frame["data"].unique():
        panels[str(name)] = intervals_figure(by_data.loc[name], metric)
    return panels


def _facts(grid: Grid, frame: pd.DataFrame, ranking: MeanRanks) -> dict[str, Any]:
    once = frame[frame["decode"] == grid.used_decodings()[0]]
    tries = once.groupby(["data", "method", "recipe", "backbone", "seed"]).size().max()
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
    difference = ""
    if _can_rank(ranking):
        value = critical_difference(len(ranking.ranks), ranking.num_data)
        difference = (
            f"Ranks within {value:.2f} of the best, the shaded band, do not differ significantly "
            "from it (Nemenyi test, 5 %)."
        )
    return {
        "runs": len(once),
        "failed": int((once["error"] != "").sum()),
        "methods": once["method"].nunique(),
        "data": once["data"].nunique(),
        "seeds": once["seed"].nunique(),
        "tuning": tuning,
        "unseen": unseen,
        "difference": difference,
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


def ranks_figure(ranking: MeanRanks) -> Figure:
    """Draw the mean rank of each method and a band of ranks that do not differ from the best."""
    ranks = [float(rank) for rank in ranking.ranks]
    names = [str(name) for name in ranking.ranks.index]
    trace, layout = interval_rows(names, ranks, ranks, ranks, ".2f")
    end = ranks[0] + critical_difference(len(ranks), ranking.num_data)
    band = {"type": "rect", "x0": ranks[0], "x1": end, "y0": 0, "y1": 1, "yref": "paper"}
    band |= {"fillcolor": "@soft", "opacity": 0.55, "layer": "below", "line": {"width": 0}}
    xaxis = {"title": {"text": "mean rank by MAE, lower is better"}, "side": "top"}
    layout |= {"xaxis": xaxis | {"range": [0.5, len(ranks) + 0.5]}, "shapes": [band]}
    return {"data": [trace], "layout": layout | {"margin": _MARGIN}}


def intervals_figure(bounds: pd.DataFrame, metric: Metric) -> Figure:
    """Draw the mean of each method with its interval ``low`` to ``high``, the best on top."""
    rows = bounds.dropna(subset=["mean"])[["mean", "low", "high"]] * metric.scale
    rows = rows.sort_values("mean", ascending=metric.lower_is_better)
    names = [str(name) for name in rows.index]
    trace, layout = interval_rows(names, rows["mean"], rows["low"], rows["high"])
    layout["xaxis"] = {"title": {"text": metric.title}, "side": "top"}
    return {"data": [trace], "layout": layout | {"margin": _MARGIN}}
