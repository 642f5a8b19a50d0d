"""The report of a grid: tables, ranks and intervals of many runs, on one page and as pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layline.bench.grid import Grid, read_grid
from layline.bench.results import (
    GRID,
    comparisons,
    find_reference,
    first_places,
    leaderboard,
    mean_rank_table,
    pairwise,
    read_environments,
    read_results,
    recipe_gains,
    select_runs,
)
from layline.bench.statistics import MeanRanks, critical_difference, rank_methods
from layline.bench.summaries import Metric, find_metric, intervals, measured
from layline.bench.tables import entry_text
from layline.reports.html import render_page
from layline.reports.printed_figures import (
    PRINT_FORMATS,
    critical_difference_diagram,
    forest_plot,
    save_figure,
)
from layline.training.display import amount
from layline.utils.files import write_text

_ALL = "all data sets"
_LINE = 21  # pixels for a method


def write_grid_report(folder: Path, out: Path, only: Sequence[str] | None = None) -> None:
    """Write the page of a grid.

    Args:
        folder: Of the grid.
        out: The HTML file.
        only: The data sets that it is about, if not all that were run.
    """
    write_text(out, _render(folder, only))


def write_grid_figures(folder: Path, only: Sequence[str] | None = None) -> None:
    """Write the critical-difference diagram and the intervals as PNG and PDF, where there are any.

    Args:
        folder: Of the grid; the pictures come into ``figures``.
        only: The data sets that they are about, if not all that were run.
    """
    grid = read_grid(folder / GRID)
    frame = select_runs(_runs(folder, only), grid.tune_seeds)
    decode = find_metric("mae").own_decoding(grid.read_by())
    ranking = rank_methods(frame, "mae", decode)
    figures = {f"mae-{decode}": forest_plot(frame, "mae", decode)}
    if _can_rank(ranking):
        figures[f"critical-difference-{decode}"] = critical_difference_diagram(
            ranking.ranks, ranking.num_data, title=f"MAE, {decode}"
        )
    for name, figure in figures.items():
        for ending in PRINT_FORMATS:
            save_figure(figure, folder / "figures" / f"{name}{ending}")


def _runs(folder: Path, only: Sequence[str] | None) -> pd.DataFrame:
    frame = read_results(folder)
    return frame if only is None else frame[frame["data"].isin(only)]


def _render(folder: Path, only: Sequence[str] | None) -> str:
    grid, everything = read_grid(folder / GRID), _runs(folder, only)
    frame = select_runs(everything, grid.tune_seeds)
    decodings = grid.read_by()
    first = find_metric("mae").own_decoding(decodings)
    ranking = rank_methods(frame, "mae", first)
    figures: dict[str, Any] = {"ranks": ranks_figure(ranking)} if _can_rank(ranking) else {}
    panels = _panels(frame, first)
    figures["interval"] = next(iter(panels.values()))
    against = find_reference(frame, grid.against())
    several = frame["recipe"].nunique() > 1
    return render_page(
        "grid.html",
        ["grid.js"],
        {"figures": figures, "panels": list(panels.values())},
        title=folder.resolve().name,
        grid=grid,
        decodings=decodings,
        decode=first,
        facts=_facts(grid, everything, ranking),
        board=leaderboard(frame, decodings),
        boards={decode: leaderboard(frame, [decode]) for decode in decodings},
        ranks=mean_rank_table(frame, decodings) if frame["method"].nunique() > 1 else None,
        places=first_places(frame, decodings, against) if frame["method"].nunique() > 1 else None,
        comparisons=dict(comparisons(frame, decodings)),
        metrics=[(key.replace("_", "-"), metric.title) for key, metric in measured(frame).items()],
        panels=list(panels),
        reference=against,
        against=[
            pairwise(frame, against, metric, find_metric(metric).own_decoding(decodings))
            for metric in ("mae", "accuracy")
        ]
        if against is not None
        else [],
        gains=[
            recipe_gains(frame, metric, decode)
            for metric in ("mae", "accuracy")
            for decode in decodings
        ]
        if several
        else [],
        failures=_failures(everything),
        about=_about(folder),
        description=(folder / GRID).read_text(encoding="utf-8"),
        figures=figures,
        content=entry_text,
    )


def _can_rank(ranking: MeanRanks) -> bool:
    return len(ranking.ranks) > 1 and ranking.num_data > 1


def _panels(frame: pd.DataFrame, decode: str) -> dict[str, dict[str, Any]]:
    """Give the intervals of the mean over data sets, then of each of them."""
    metric = find_metric("mae")
    panels = {}
    if frame["data"].nunique() > 1:
        pooled = intervals(frame, "mae", decode, pooled=True).droplevel("data")
        panels[_ALL] = intervals_figure(pooled, metric)
    found = intervals(frame, "mae", decode)
    for name in frame["data"].unique():
        panels[str(name)] = intervals_figure(found.loc[name], metric)
    return panels


def _facts(grid: Grid, frame: pd.DataFrame, ranking: MeanRanks) -> dict[str, Any]:
    once = frame[frame["decode"] == grid.read_by()[0]]
    tries = max(once.groupby(["data", "method", "recipe", "backbone", "seed"]).size())
    tuning = "Nothing was tuned: every method has the same settings."
    if tries > 1:
        seeds = amount(len(grid.tune_seeds), "seed")
        where = f"data set with {seeds}, for all seeds" if grid.tune_seeds else "data set and seed"
        tuning = (
            f"Every method was tried with up to {tries} settings on each {where}, and "
            "is judged by the one with the lowest validation error."
        )
    unseen = (
        "Every number is measured on samples that neither training nor the choice of an epoch or "
        "a setting has seen."
    )
    if tries > 1 and grid.tune_seeds:
        unseen = (
            "Every number is measured on samples that neither training nor the choice of an epoch "
            "has seen; where splits are random, some of them are among those that chose the "
            "setting, in the split of another seed, for every method alike."
        )
    difference = ""
    if _can_rank(ranking):
        value = critical_difference(len(ranking.ranks), ranking.num_data)
        difference = (
            f"Ranks that differ by less than {value:.2f}, the shaded band behind the best, may "
            f"differ by chance (Nemenyi, 5 %). {' '.join(ranking.notes)}"
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
    labels = ["data", "method", "recipe", "backbone", "setting", "seed"]
    wrong = frame[frame["error"] != ""].drop_duplicates(labels)
    return [
        (" · ".join(str(row[label]) for label in labels if row[label]), row["error"])
        for row in wrong.to_dict("records")
    ]


def _about(folder: Path) -> list[tuple[str, str]]:
    about, _ = read_environments(folder)
    return [(name, _described(value)) for name, value in about.items()]


def _described(value: Any) -> str:
    """Write a value of ``environment.json``, or several with the number of runs that have them."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ", ".join(f"{_described(each['value'])} ({each['runs']})" for each in value)
    return " ".join(value) if isinstance(value, list) else str(value)


def ranks_figure(ranking: MeanRanks) -> dict[str, Any]:
    """Draw the mean rank of each method; the band is what differs from the best by chance.

    Args:
        ranking: The best first.
    """
    ranks = ranking.ranks
    best = float(ranks.iloc[0])
    within = critical_difference(len(ranks), ranking.num_data)
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": [float(rank) for rank in ranks],
                "y": [str(name) for name in ranks.index],
                "marker": {"color": "@accent", "size": 9},
                "hovertemplate": "%{y}: %{x:.2f}<extra></extra>",
            }
        ],
        "layout": {
            **_method_rows(len(ranks)),
            "xaxis": {
                "title": {"text": "mean rank by MAE, lower is better"},
                "side": "top",
                "range": [0.5, len(ranks) + 0.5],
            },
            "shapes": [
                {
                    **{"type": "rect", "x0": best, "x1": best + within, "y0": 0, "y1": 1},
                    **{"yref": "paper", "fillcolor": "@soft", "opacity": 0.55, "layer": "below"},
                    "line": {"width": 0},
                }
            ],
        },
    }


def intervals_figure(found: pd.DataFrame, metric: Metric) -> dict[str, Any]:
    """Draw the mean of each method with its interval, the best on top.

    Args:
        found: ``mean``, ``low`` and ``high`` of each method, in the metric's own unit.
        metric: How it is shown.
    """
    finished = found.dropna(subset=["mean"])[["mean", "low", "high"]] * metric.scale
    finished = finished.sort_values("mean", ascending=metric.lower_is_better)
    mean = finished["mean"]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": mean.tolist(),
                "y": [str(name) for name in finished.index],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": (finished["high"] - mean).tolist(),
                    "arrayminus": (mean - finished["low"]).tolist(),
                    "color": "@muted",
                    "thickness": 1.6,
                    "width": 3,
                },
                "marker": {"color": "@accent", "size": 8},
                "hovertemplate": "%{y}: %{x:.3f}<extra></extra>",
            }
        ],
        "layout": {
            **_method_rows(len(finished)),
            "xaxis": {"title": {"text": metric.title}, "side": "top"},
        },
    }


def _method_rows(count: int) -> dict[str, Any]:
    """One line per method, the first on top, each with its name."""
    return {
        "height": 90 + _LINE * count,
        "yaxis": {"autorange": "reversed", "type": "category", "dtick": 1, "ticksuffix": " "},
        "margin": {"l": 60, "r": 16, "t": 56, "b": 12},
    }
