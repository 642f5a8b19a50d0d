"""The model card of a run: Markdown with a header that model hubs read.

The header has a ``model-index`` with the test metrics and their intervals. The license is left to
the user, because it depends on the data.
"""

import re
from pathlib import Path
from typing import Any

from layline.backbones import BACKBONES
from layline.heads import HEADS
from layline.metrics import METRICS
from layline.reports import read_template, valid_unicode
from layline.reports.run import RunRecord, read_run, tiles
from layline.training.run_folder import as_written
from layline.utils.registry import is_path
from layline.utils.validation import UserError, require

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
    config, is_table = record.config, _is_table(record)
    with as_written(Path(run), "resume the run to test it again"):
        card: str = read_template("card.md", {"md": _escape}).render(
            header=_header(record),
            run=record,
            config=config,
            numbers=record.numbers,
            is_table=is_table,
            method=HEADS.get(config.head.method),
            tiles=tiles(record),
            samples="rows.csv" if is_table else "photos",
            plugins=[Path(each).name if is_path(each) else each for each in config.plugins or ()],
        )
    return valid_unicode(f"{card}\n")


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


def _escape(text: str) -> str:
    """Escape a name for Markdown and keep it on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))
