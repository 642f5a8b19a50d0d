"""The comparison of runs on the same test samples: paired differences, and who is right where.

The first run is the reference. A run is the folder of a trained run or of an evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layline.evaluation.diagnostics import COMPARED, LEVEL, paired_differences
from layline.metrics import METRICS
from layline.reports import format_number, plot_text, render_page, valid_unicode
from layline.reports.figures import interval_rows, line_at
from layline.reports.run import RunRecord, read_run
from layline.training.run_folder import RunFolder
from layline.utils.files import check_output, write_text
from layline.utils.validation import UserError

_SHOWN = 12  # samples that only one of two runs gets right


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs."""

    # the reference and the others, all with their samples in the same order
    runs: tuple[RunRecord, ...]
    numbers: dict[str, Any]  # all results, as plain values that fit into JSON
    report: Path | None = None  # the page, if one was written


def compare(
    runs: Sequence[str | Path], *, out: str | Path | None = None, draws: int = 2000, seed: int = 0
) -> Comparison:
    """Compare runs on the test samples that all of them have: paired differences with intervals.

    Args:
        runs: Folders of runs or evaluations; the first is the reference.
        out: HTML file for a page with the results, if one is wanted.
        draws: Number of resamplings for an interval and of permutations for a test.
        seed: Random seed.
    """
    if len(runs) < 2:
        raise UserError(f"A comparison needs at least two runs, got {len(runs)}.")
    first, *others = _rename_duplicates([read_run(Path(run)) for run in runs])
    others = [_align_samples(first, other) for other in others]
    records = (first, *others)
    groups = next((run.groups for run in records if run.groups is not None), None)
    options: dict[str, Any] = {"groups": groups, "draws": draws, "seed": seed}
    pairs = []
    for other in others:
        one, two = (first.predicted, first.proba), (other.predicted, other.proba)
        result = paired_differences(first.ranks, one, two, **options)
        units, over = result.pop("units"), result.pop("over")
        result["right"] = _count_right(first, other)
        pairs.append({"first": first.name, "second": other.name, **result})
    rows = [(pairs[0], "first"), *((pair, "second") for pair in pairs)]
    metrics = [{name: row[key] for name, row in pair["metrics"].items()} for pair, key in rows]
    numbers = {
        "samples": len(first.ranks),
        "units": units,
        "over": over,
        "level": LEVEL,
        "draws": draws,
        "runs": [
            {
                "name": run.name,
                "folder": valid_unicode(str(run.folder)),
                "method": run.config.head.method,
                "backbone": run.config.backbone.name,
                "part": run.numbers.get("part", "test"),
                "decode": run.numbers["decode"],
                "metrics": values,
            }
            for run, values in zip(records, metrics, strict=True)
        ],
        "pairs": pairs,
        "notes": _notes(records),
    }
    comparison = Comparison(records, numbers)
    if out is None:
        return comparison
    out = Path(out)
    check_output(out, [file for run in records for file in RunFolder(run.folder).inputs()])
    write_text(out, render_comparison(comparison))
    return replace(comparison, report=out)


def _rename_duplicates(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Name the runs by their paths if two have the same name."""
    if len({run.name for run in runs}) == len(runs):
        return list(runs)
    return [replace(run, name=valid_unicode(str(run.folder))) for run in runs]


def _align_samples(first: RunRecord, other: RunRecord) -> RunRecord:
    """Put the samples of a run into the order of the reference."""
    if other.classes != first.classes:
        raise UserError(
            f"The runs have different classes: {', '.join(first.classes)} in {first.name} and "
            f"{', '.join(other.classes)} in {other.name}."
        )
    place = {name: i for i, name in enumerate(other.names)}
    common = sum(name in place for name in first.names)
    if not (common == len(place) == len(other.names) == len(first.names)):
        raise UserError(
            f"The runs were tested on different samples: {first.name} on {len(first.names)} and "
            f"{other.name} on {len(other.names)}, with {common} in common. Evaluate both on the "
            "same data and compare the evaluations."
        )
    order = np.array([place[name] for name in first.names])
    aligned = replace(
        other,
        names=first.names,
        ranks=other.ranks[order],
        predicted=other.predicted[order],
        proba=other.proba[order],
        groups=None if other.groups is None else [other.groups[i] for i in order.tolist()],
    )
    changed = np.flatnonzero(aligned.ranks != first.ranks)
    if len(changed):
        names = ", ".join(first.names[i] for i in changed[:3].tolist())
        raise UserError(
            f"{len(changed)} samples have different labels in {first.name} and {other.name}, for "
            f"example {names}."
        )
    return aligned


def _count_right(first: RunRecord, other: RunRecord) -> dict[str, int]:
    """Count the samples that both, one or neither of two runs gets right."""
    one, two = first.predicted == first.ranks, other.predicted == first.ranks
    right = {"both": one & two, "first_only": one & ~two, "second_only": ~one & two}
    right["neither"] = ~one & ~two
    return {name: int(samples.sum()) for name, samples in right.items()}


def _notes(runs: Sequence[RunRecord]) -> list[str]:
    notes = []
    roots = dict.fromkeys(str(run.config.data.root) for run in runs)
    if len(roots) > 1:
        notes.append(
            f"The runs were tested on data in different places ({', '.join(roots)}). Samples were "
            "matched by name and label; their content was not compared."
        )
    if len({run.numbers["decode"] for run in runs}) > 1:
        used = ", ".join(f"{run.name}: {run.numbers['decode']}" for run in runs)
        notes.append(f"The runs use different decodings ({used}).")
    if len(runs) > 2:
        notes.append(
            "The p values are not corrected for multiple comparisons: with many runs, some "
            "differences look significant by chance."
        )
    return [valid_unicode(note) for note in notes]


def verdict(metric: str, row: dict[str, Any]) -> str:
    """Describe a difference: better, worse, equal or not significant."""
    ends = row["interval"]
    if ends is None:
        return "unknown"
    if ends[0] <= 0 <= ends[1]:
        return "equal" if ends[0] == ends[1] else "not significant"
    return "better" if (ends[0] > 0) == METRICS[metric].higher_is_better else "worse"


def format_row(metric: str, row: dict[str, Any]) -> dict[str, str]:
    """Write the difference of two runs in a metric as text."""
    ends, p = row["interval"], row["p"]
    return {
        "name": METRICS[metric].label,
        "first": format_number(row["first"]),
        "second": format_number(row["second"]),
        "difference": format_number(row["difference"], "+z.3f"),
        "interval": "–" if ends is None else f"{ends[0]:+z.3f} to {ends[1]:+z.3f}",
        "p": "<0.001" if p is not None and p < 0.001 else format_number(p),
        "verdict": verdict(metric, row),
    }


def render_comparison(comparison: Comparison) -> str:
    """Make the page of a comparison."""
    numbers, (first, *others) = comparison.numbers, comparison.runs
    figures = {f"difference-{name}": differences_figure(numbers, name) for name in COMPARED}
    return render_page(
        "comparison.html",
        [],
        {"figures": figures},
        numbers=numbers,
        metrics=[METRICS[name] for name in COMPARED],
        tables=[
            [format_row(metric, row) for metric, row in pair["metrics"].items()]
            for pair in numbers["pairs"]
        ],
        classes=first.classes,
        disagreements=[
            {
                "second": other.name,
                "first_only": disagreements(first, other, right=first),
                "second_only": disagreements(first, other, right=other),
            }
            for other in others
        ],
    )


def differences_figure(numbers: dict[str, Any], metric: str) -> dict[str, Any]:
    """Draw the differences from the reference in a metric, with their intervals."""
    better = "higher" if METRICS[metric].higher_is_better else "lower"
    rows = [(pair["second"], pair["metrics"][metric]) for pair in numbers["pairs"]]
    rows = [(name, row) for name, row in rows if row["difference"] is not None]
    values = np.array([row["difference"] for _, row in rows])
    ends = np.array([row["interval"] or [row["difference"]] * 2 for _, row in rows]).reshape(-1, 2)
    reach = 1.15 * max(float(np.abs([*ends.ravel(), *values]).max(initial=0)), 1e-9)
    names = [plot_text(name) for name, _ in rows]
    trace, layout = interval_rows(names, values, ends[:, 0], ends[:, 1], "+.4f")
    layout |= {
        "height": 104 + 24 * max(len(rows), 1),
        "title": {"text": f"{METRICS[metric].label}: {better} is better"},
        "xaxis": {"range": [-reach, reach], "nticks": 5},
        "margin": {"l": 40, "r": 14, "t": 40, "b": 30},
        "shapes": [line_at(x=0, color="@muted", dash="dot")],
    }
    return {"data": [trace], "layout": layout}


def disagreements(first: RunRecord, other: RunRecord, right: RunRecord) -> list[dict[str, Any]]:
    """List samples that only one of two runs gets right, the largest errors first."""
    wrong = other if right is first else first
    error = np.abs(wrong.predicted - first.ranks)
    chosen = np.flatnonzero((right.predicted == first.ranks) & (error > 0))
    order = np.lexsort((chosen, wrong.proba[chosen, first.ranks[chosen]], -error[chosen]))
    pictures = {
        sample["name"]: sample["picture"]
        for run in (other, first)
        for sample in (*(run.mistakes or ()), *(run.review or ()))
    }
    return [
        {
            "name": first.names[index],
            "true": int(first.ranks[index]),
            "picture": pictures.get(first.names[index]),
            "answers": [
                {
                    "run": run.name,
                    "predicted": int(run.predicted[index]),
                    "probabilities": run.proba[index].tolist(),
                }
                for run in (first, other)
            ],
        }
        for index in chosen[order][:_SHOWN].tolist()
    ]
