"""The model card of a run: Markdown with a header that model hubs read.

The header has a ``model-index`` with the test metrics and their intervals. The license is left to
the user, because it depends on the data.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layline.backbones import BACKBONES
from layline.heads import HEADS
from layline.metrics import METRICS
from layline.reports.run import RunRecord, read_run, tiles
from layline.training.run_folder import as_written
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.plugins import is_path

# the metric types of the hub
_HUB_TYPES = {
    "mae": "mae",
    "accuracy": "accuracy",
    "within_one": "accuracy",
    "macro_mae": "mae",
    "qwk": "quadratic_weighted_kappa",
    "rps": "ranked_probability_score",
    "ece": "expected_calibration_error",
}


def create_card(run: str | Path) -> str:
    """Create the model card of a finished run as Markdown."""
    record = read_run(Path(run))
    if record.is_evaluation:
        raise UserError(f"{run} is an evaluation. A card needs the folder of a training run.")
    with as_written(Path(run), "resume the run to test it again"):
        return f"---\n{_header(record)}\n---\n\n{_body(record)}"


def _header(run: RunRecord) -> str:
    hub = require("huggingface_hub", extra="images", needed_by="a model card")
    task = "tabular-classification" if _is_table(run) else "image-classification"
    intervals, results = run.numbers["intervals"], []
    for key, kind in _HUB_TYPES.items():
        if (value := run.numbers[key]) is None:
            continue
        arguments: dict[str, Any] = {"samples": run.numbers["samples"]}
        if (ends := intervals.get(key)) is not None:
            arguments |= {"interval": list(ends), "level": intervals["level"]}
        results.append(
            hub.EvalResult(
                task_type=task,
                task_name="Ordinal classification",
                dataset_type=re.sub(r"[^A-Za-z0-9._-]+", "-", run.data_name).strip("-.") or "data",
                dataset_name=run.data_name,
                dataset_split="test",
                metric_type=kind,
                metric_name=METRICS[key].label,
                metric_value=value,
                metric_args=arguments,
            )
        )
    data = hub.ModelCardData(
        library_name="layline",
        pipeline_tag=task,
        tags=["ordinal-classification", "ordinal-regression", "layline", run.config.head.method],
        metrics=sorted(set(_HUB_TYPES.values())),
        model_name=run.name,
        eval_results=results,
    )
    return str(data.to_yaml()).strip()


def _is_table(run: RunRecord) -> bool:
    backbone = BACKBONES.get(str(run.config.backbone.name))
    return backbone is not None and backbone.kind == "table"


def _body(run: RunRecord) -> str:
    sections = {
        "": [f"# {_escape(run.name)}", _summarize(run)],
        "Warnings": ["\n".join(f"- {_escape(alarm)}" for alarm in run.numbers["alarms"])],
        "Results": _results(run),
        "Calibration": _calibration(run.numbers),
        "Data": _data(run),
        "Usage": _usage(run),
        "License": [
            "No license is chosen yet. Add `license: …` to the header above; it may depend on the "
            "license of the data."
        ],
    }
    lines = []
    for title, paragraphs in sections.items():
        if any(paragraphs):
            lines += [*([f"## {title}"] if title else []), *paragraphs]
    return "\n\n".join(lines) + "\n"


def _summarize(run: RunRecord) -> str:
    backbone, method = run.config.backbone, run.config.head.method
    about = f" ({HEADS[method].summary}; {HEADS[method].reference})" if method in HEADS else ""
    weights = "" if backbone.weights in (None, "none") else f" with weights `{backbone.weights}`"
    return (
        f"A model for {'rows of a table' if _is_table(run) else 'images'} in {len(run.classes)} "
        f"ordered classes, lowest first: {' < '.join(_escape(name) for name in run.classes)}.\n\n"
        f"It was trained by Layline {run.environment.get('layline', '')} with the method "
        f"`{method}`{about} on the {'frozen ' if backbone.freeze else ''}backbone "
        f"`{backbone.name}`{weights}."
    )


def _results(run: RunRecord) -> list[str]:
    numbers, level = run.numbers, run.numbers["intervals"]["level"]
    rows = [
        (tile["name"], tile["value"], tile["interval"] or "–", tile["meaning"])
        for tile in tiles(run)
    ]
    paragraphs = [
        f"On {numbers['samples']:,} test samples that were not used in training; predictions are "
        f"the {numbers['decode']} of the probabilities.",
        _table(("Metric", "Value", f"Interval ({level:.0%})", "Meaning"), rows),
    ]
    if len(run.classes) <= 12:
        counts = zip(run.classes, numbers["confusion"], strict=True)
        confusion = [(name, *map(str, row)) for name, row in counts]
        paragraphs.append(_table(("True \\ predicted", *run.classes), confusion))
    return paragraphs


def _calibration(numbers: dict[str, Any]) -> list[str]:
    temperature = numbers["calibration"]["temperature"]
    scaling = f"Probabilities are scaled with a temperature of {temperature:.3g}."
    paragraphs = [] if temperature == 1 else [scaling]
    if not numbers["ranges"]:
        return [*paragraphs, "The model is not calibrated for ranges of classes."]
    rows = [
        (
            f"{row['coverage']:.0%}",
            f"{row['measured']:.1%}",
            "–".join(f"{end:.1%}" for end in row["expected"]),
            f"{row['width']:.2f}",
        )
        for row in numbers["ranges"]
    ]
    titles = ("Coverage", "Measured on the test split", "Expected", "Classes in a range")
    paragraphs.append("Ranges of classes contain the true class with a chosen coverage:")
    return [*paragraphs, _table(titles, rows)]


def _data(run: RunRecord) -> list[str]:
    counts = run.environment["counts"]
    rows = [
        (name, *(f"{split[rank]:,}" for split in counts.values()))
        for rank, name in enumerate(run.classes)
    ]
    rows.append(("All classes", *(f"{sum(split):,}" for split in counts.values())))
    titles = ("Class", *(split.capitalize() for split in counts))
    return [f"Samples of each class in {_escape(run.data_name)}:", _table(titles, rows)]


def _usage(run: RunRecord) -> list[str]:
    samples = "rows.csv" if _is_table(run) else "photos"
    plugins = [Path(each).name if is_path(each) else each for each in run.config.plugins or ()]
    options = "".join(f" --plugin {name}" for name in plugins)
    argument = f", plugins={plugins}" if plugins else ""
    return [
        f"""```
pip install "layline[images]"
layline predict best.safetensors {samples}{options} --out predictions.csv
```""",
        f"""```python
import layline

model = layline.load("best.safetensors"{argument})
model.predict("{samples}")
```""",
    ]


def _escape(text: str) -> str:
    """Escape a name for Markdown and keep it on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[_escape(cell) for cell in row] for row in (titles, *rows)]
    lines.insert(1, ["---"] * len(titles))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
