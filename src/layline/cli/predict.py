"""``layline predict``: predictions of a trained model for new samples."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import Decode, Device, Plugins, read_decode
from layline.utils.files import check_output
from layline.utils.validation import UserError

if TYPE_CHECKING:
    from layline.model.predictor import Predictor

EXAMPLES = """
layline predict runs/photos new-photos --out predictions.csv
layline predict runs/photos new-photos --coverage 0.9 --review 0.2
layline predict model.safetensors a.jpg b.jpg --decode median
layline predict model.onnx new-photos
"""


def predict(
    path: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Run folder, .safetensors or .onnx file.")
    ],
    paths: Annotated[
        list[str], typer.Argument(help="Images and folders, or a table; - reads standard input.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Output file (.csv or .jsonl); by default CSV on stdout.")
    ] = None,
    decode: Decode = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of samples per batch.")] = 64,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Number of processes that decode images.")
    ] = None,
    device: Device = "auto",
    coverage: Annotated[
        float | None,
        typer.Option(help="Add ranges that contain the true class with this probability."),
    ] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Guarantee the coverage in every class.")
    ] = False,
    review: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Share of samples to review, the least certain; 0.2 with --coverage."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Exit normally even if samples were left out.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Predict the class of new samples, with the probability of each class.

    With --coverage or --review, also write the confidence of each prediction, whether to review
    it, and (with --coverage) the lowest and highest possible class.

    Samples that cannot be read or predicted are left out and listed; the exit code is then 1.
    """
    import numpy as np

    from layline.data.detect import describe_skipped
    from layline.data.image_cache import describe_bad, find_bad
    from layline.data.images import UserImages
    from layline.evaluation import prediction_file
    from layline.model.predictor import WHY_NO_PROBABILITIES

    if out is not None:
        prediction_file.check_format(out)
        check_output(out, [path, *paths, decode or path])
    share = prediction_file.REVIEW_SHARE if review is None else review
    model = _open(path, device, plugins or [])
    classes, calibration = model.classes, model.description.calibration
    decoding = read_decode(decode) if decode else None
    if coverage is not None:
        calibration.check(coverage, len(classes), by_class)
    given = [sys.stdin.buffer.read() if each == "-" else each for each in paths]
    # a single path is not put into a list: a table is one file
    samples = model.read(given[0] if len(given) == 1 else given)
    if isinstance(samples, UserImages) and samples.skipped:
        typer.echo(f"layline: {describe_skipped(samples.skipped)}", err=True)
    answers = [  # without the features, which would fill the memory
        (batch.index, batch.has_probabilities, batch.proba, batch.chosen)
        for batch in model.stream(samples, batch_size, workers, decoding, keep_going=True)
    ]
    index, known, proba, ranks = map(np.concatenate, zip(*answers, strict=True))
    good = (index >= 0) & known
    proba, ranks = proba[good], ranks[good]
    columns: dict[str, list[Any]] = {
        "path": [samples.names[i] for i in index[good]],
        "predicted": [classes[rank] for rank in ranks],
    }
    if coverage is not None or review is not None:
        ranges = None if coverage is None else calibration.ranges(proba, ranks, coverage, by_class)
        columns |= prediction_file.certainty_columns(proba, ranks, classes, ranges, share)
    prediction_file.write_predictions(out, columns, classes, proba, paths=not model.is_table)
    bad, unknown = ~index[index < 0], index[(index >= 0) & ~known]
    if len(bad) and isinstance(samples, UserImages):
        damaged = samples.subset(bad)
        typer.echo(f"layline: {describe_bad(damaged.names, find_bad(damaged))}", err=True)
    if len(unknown):
        message = f"layline: No prediction for {len(unknown)} samples: {WHY_NO_PROBABILITIES}"
        typer.echo("\n  ".join([message, *(samples.names[i] for i in unknown)]), err=True)
    if len(bad) + len(unknown) and not skip_bad:
        raise typer.Exit(1)


def _open(path: Path, device: str, plugins: Sequence[str | Path]) -> "Predictor":
    """Load a model; an exported one without importing torch."""
    if path.suffix.lower() != ".onnx":
        from layline.model.model_file import load
        from layline.utils.devices import choose_device

        model = load(path, plugins=plugins)
        return model.to(choose_device(device, model.is_table))
    from layline.model.onnx_runtime import OnnxModel

    if device not in ("auto", "cpu"):
        raise UserError(f"An .onnx model runs on the CPU, but device is {device}.")
    return OnnxModel(path)
