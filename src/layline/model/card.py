"""The model card of a run: Markdown with a header that model hubs read.

The header has a ``model-index``: the metrics of the test, each with its interval. The licence is
left to the user, as it depends on the data.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layline.backbones import BACKBONES
from layline.data import SOURCES
from layline.heads import HEADS
from layline.reports.run import tiles
from layline.reports.run_record import RunRecord, read_run
from layline.training.run_folder import as_written
from layline.utils.errors import UserError
from layline.utils.files import write_text
from layline.utils.optional import require
from layline.utils.plugins import is_path

# By the key in test.json: what the hub calls it, and its name.
_METRICS = {
    "mae": ("mae", "Mean absolute error, in classes"),
    "accuracy": ("accuracy", "Accuracy"),
    "within_one": ("accuracy", "Accuracy within one class"),
    "macro_mae": ("mae", "Mean absolute error, mean over the classes"),
    "qwk": ("quadratic_weighted_kappa", "Quadratic weighted kappa"),
    "rps": ("ranked_probability_score", "Ranked probability score"),
    "ece": ("expected_calibration_error", "Expected calibration error"),
}


def write_card(run: str | Path, out: str | Path) -> None:
    """Write the model card of a run.

    Args:
        run: Folder of a finished run.
        out: The Markdown file.
    """
    write_text(Path(out), card(run))


def card(run: str | Path) -> str:
    """Make the model card of a run, as Markdown.

    Args:
        run: Folder of a finished run.
    """
    record = read_run(Path(run))
    if record.is_evaluation:
        raise UserError(
            f"run must be the folder of a run, got {run}: it has an evaluation, and a card is "
            "about a model"
        )
    with as_written(Path(run), f"layline train --resume {run} tests it again"):
        return f"---\n{_header(record)}\n---\n\n{_body(record)}"


def _header(run: RunRecord) -> str:
    hub = require("huggingface_hub", extra="images", needed_by="a model card")
    config, task = run.config, _task(run)
    intervals = run.numbers.get("intervals") or {}
    results = []
    for key, (kind, name) in _METRICS.items():
        value = run.numbers.get(key)
        if value is None:
            continue
        ends = intervals.get(key)
        interval = {} if ends is None else {"interval": list(ends), "level": intervals["level"]}
        results.append(
            hub.EvalResult(
                task_type=task,
                task_name="Ordinal classification",
                dataset_type=_identifier(run.data_name),
                dataset_name=run.data_name,
                dataset_split="test",
                metric_type=kind,
                metric_name=name,
                metric_value=value,
                metric_args={"samples": run.numbers["samples"], **interval},
            )
        )
    data = hub.ModelCardData(
        library_name="layline",
        pipeline_tag=task,
        tags=["ordinal-classification", "ordinal-regression", "layline", config.head.method],
        metrics=sorted({kind for kind, _ in _METRICS.values()}),
        model_name=run.name,
        eval_results=results,
    )
    text: str = data.to_yaml()
    return text.strip()


def _task(run: RunRecord) -> str:
    return "tabular-classification" if _is_table(run) else "image-classification"


def _is_table(run: RunRecord) -> bool:
    """Tell rows from images by the features or, where those are not installed, by the source."""
    features = BACKBONES.get(str(run.config.backbone.name))
    if features is not None:
        return features.kind == "table"
    source = SOURCES.get(run.config.data.source)
    return source is not None and not source.has_images


def _plugins(run: RunRecord) -> list[str]:
    """Name the files and modules from outside without which the model cannot be loaded."""
    return [Path(each).name if is_path(each) else each for each in run.config.plugins or ()]


def _identifier(name: str) -> str:
    """Write a name as the hub wants those of data sets."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "data"


def _body(run: RunRecord) -> str:
    sections = {
        "": [f"# {_text(run.name)}", _summary(run)],
        "Watch out": _alarms(run.numbers["alarms"]),
        "How good it is": _results(run),
        "How sure it is": _certainty(run.numbers),
        "Data": _data(run),
        "How to use it": _use(run),
        "Licence": [
            "None is chosen yet. Add `license: …` to the header above; the licence of the data "
            "may have a say in it."
        ],
    }
    lines = []
    for title, paragraphs in sections.items():
        if paragraphs:
            lines += [f"## {title}"] if title else []
            lines += paragraphs
    return "\n\n".join(lines) + "\n"


def _summary(run: RunRecord) -> str:
    method, config = run.config.head.method, run.config
    known = HEADS.get(method)
    what = "" if known is None else f" ({known.summary}; {known.reference})"
    samples = "rows of a table" if _is_table(run) else "images"
    classes = " < ".join(_text(name) for name in run.classes)
    weights = config.backbone.weights
    start = "" if weights in (None, "none") else f", which began with the weights `{weights}`"
    frozen = " and stayed frozen" if config.backbone.freeze else ""
    version = run.environment.get("layline")
    by = "Layline" if version is None else f"Layline {version}"
    return (
        f"A model for {samples} in {len(run.classes)} ordered classes, lowest first: {classes}.\n\n"
        f"It was trained by {by} with the method `{method}`{what} on features of "
        f"`{config.backbone.name}`{start}{frozen}."
    )


def _alarms(alarms: Sequence[str]) -> list[str]:
    return [_list(_text(alarm) for alarm in alarms)] if alarms else []


def _results(run: RunRecord) -> list[str]:
    numbers = run.numbers
    level = (numbers.get("intervals") or {}).get("level", 0.95)
    rows = [
        (tile["name"], tile["value"], tile["interval"] or "–", tile["meaning"])
        for tile in tiles(run)
    ]
    between = f"Interval ({level:.0%})"
    return [
        f"On {numbers['samples']:,} test samples, which training did not see; a rank is decided on "
        f"by the {numbers['decode']} of the probabilities.",
        _table(("Metric", "Value", between, "Meaning"), rows),
        _confusion(run),
    ]


def _confusion(run: RunRecord) -> str:
    """Show what is taken for what, as long as it fits a page."""
    if len(run.classes) > 12:
        return "The confusion matrix is in the report of the run."
    rows = [
        (name, *map(str, row))
        for name, row in zip(run.classes, run.numbers["confusion"], strict=True)
    ]
    return _table(("True \\ predicted", *run.classes), rows)


def _certainty(numbers: Mapping[str, Any]) -> list[str]:
    calibration, found = numbers.get("calibration"), []
    if calibration is not None and calibration["temperature"] != 1:
        found.append(
            f"Probabilities are calibrated by a temperature of {calibration['temperature']:.3g}, "
            "which was fitted on samples that training did not learn from."
        )
    rows = [
        (
            f"{row['coverage']:.0%}",
            f"{row['measured']:.1%}",
            "–".join(f"{end:.1%}" for end in row["expected"]),
            f"{row['width']:.2f}",
        )
        for row in numbers.get("ranges") or ()
    ]
    if rows:
        titles = ("Coverage asked for", "On the test part", "Chance allows", "Classes in a range")
        found += ["A range of classes holds the truth for a share of new samples:"]
        found += [_table(titles, rows)]
    elif calibration is not None:
        found.append("It was not calibrated for ranges of classes.")
    return found


def _data(run: RunRecord) -> list[str]:
    counts = run.environment.get("counts")
    if not counts:
        return [f"{_text(run.data_name)}."]
    titles = ("Class", *(part.capitalize() for part in counts))
    rows = [
        (name, *(f"{counts[part][rank]:,}" for part in counts))
        for rank, name in enumerate(run.classes)
    ]
    rows.append(("**all**", *(f"{sum(counts[part]):,}" for part in counts)))
    return [f"{_text(run.data_name)}: samples of each class.", _table(titles, rows)]


def _use(run: RunRecord) -> list[str]:
    samples = "rows.csv" if _is_table(run) else "photos"
    named = "".join(f" --plugin {name}" for name in _plugins(run))
    given = f", plugins={_plugins(run)}" if named else ""
    return [
        "```\n"
        'pip install "layline[images]"\n'
        f"layline predict best.safetensors {samples}{named} --out predictions.csv\n"
        "```",
        "```python\n"
        "import layline\n\n"
        f'model = layline.load("best.safetensors"{given})\n'
        f'model.predict("{samples}")\n'
        "```",
        'An exported `model.onnx` needs no PyTorch (`pip install "layline[export]"`); its metadata '
        "say how a sample is prepared:",
        f"```\nlayline predict model.onnx {samples}\n```",
    ]


# --- Markdown


def _text(text: str) -> str:
    """Write a name so that it has no meaning in Markdown and stays on its line."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _list(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    shown = [titles, ["---"] * len(titles), *rows]
    return "\n".join(
        "| "
        + " | ".join(cell if cell.startswith(("**", "---")) else _text(cell) for cell in row)
        + " |"
        for row in shown
    )
