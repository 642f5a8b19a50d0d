"""``layline predict``: predictions of a trained model for new samples."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import Decode, Plugins, read_decode, read_share
from layline.utils.errors import UserError
from layline.utils.files import check_output

if TYPE_CHECKING:
    from layline.model.predictor import Prediction, Predictor

EXAMPLES = """
Examples:

  layline predict runs/photos-arc new-photos --out predictions.csv

  layline predict runs/photos-arc new-photos --coverage 0.9 --review 20%

  layline predict model.safetensors a.jpg b.jpg --decode median

  layline predict model.onnx new-photos
"""


def predict(
    path: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="Folder of a run, or a .safetensors or .onnx file."),
    ],
    paths: Annotated[
        list[str],
        typer.Argument(help="Images and folders, or a table; - reads standard input."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Output file (.csv or .jsonl); CSV on standard output by default."),
    ] = None,
    decode: Decode = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of samples per batch.")] = 64,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Number of processes that decode images.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device: auto (a GPU if there is one), cpu, cuda:1, mps.")
    ] = "auto",
    coverage: Annotated[
        float | None,
        typer.Option(help="Add ranges that contain the true class with this probability."),
    ] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Guarantee the coverage in every class.")
    ] = False,
    review: Annotated[
        str | None,
        typer.Option(
            help="Share of the least certain samples to mark for review.",
            show_default="20% with --coverage",
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

    from layline.data.images import describe_skipped
    from layline.data.index import describe_bad, find_bad
    from layline.data.samples import UserImages
    from layline.evaluation.prediction_file import (
        REVIEW_SHARE,
        certainty_columns,
        check_format,
        write_predictions,
    )
    from layline.geometry.decoding import check_decode
    from layline.model.predictor import WHY_NO_PROBABILITIES

    if out is not None:
        check_format(out)
        check_output(out, [path, *paths, *([] if decode is None else [decode])])
    share = None if review is None else read_share(review)
    model = _open(path, device, plugins or [])
    classes, calibration = model.classes, model.description.calibration
    decoding = model.description.decode if decode is None else read_decode(decode, lambda: classes)
    if coverage is not None:
        calibration.check(coverage, len(classes), by_class)
    given = [sys.stdin.buffer if each == "-" else each for each in paths]
    # a single path is not put into a list: a table is one file
    samples = model.read(given[0] if len(given) == 1 else given)
    names = samples.names
    if isinstance(samples, UserImages) and samples.skipped:
        sys.stderr.write(f"layline: {describe_skipped(samples.skipped)}\n")
    stream = model.stream(
        samples, batch_size, workers, check_decode(decoding, len(classes)), keep_going=True
    )
    bad: list[int] = []
    unknown: list[int] = []
    columns = ["path", "predicted"]
    answers = _drop_failed(stream, bad, unknown)
    rows: Any = (
        ((names[i], classes[rank]), shares.tolist())
        for batch in answers
        for i, shares, rank in zip(*batch, strict=True)
    )
    if coverage is not None or share is not None:  # which are the least certain needs all of them
        batches = list(answers)
        index, proba, ranks = (np.concatenate([each[i] for each in batches]) for i in range(3))
        ranges = None
        if coverage is not None:
            ranges = calibration.ranges(proba, ranks, coverage, by_class)
        more = certainty_columns(
            proba, ranks, classes, ranges, REVIEW_SHARE if share is None else share
        )
        columns += more
        cells = zip(
            [names[i] for i in index],
            [classes[rank] for rank in ranks],
            *more.values(),
            strict=True,
        )
        rows = zip(cells, proba.tolist(), strict=True)
    write_predictions(out, columns, classes, rows, paths=not model.is_table)
    if bad and isinstance(samples, UserImages):
        damaged = samples.subset(np.array(bad))
        sys.stderr.write(f"layline: {describe_bad(damaged.names, find_bad(damaged))}\n")
    if unknown:
        lines = [f"layline: No prediction for {len(unknown)} samples: {WHY_NO_PROBABILITIES}"]
        sys.stderr.write("\n  ".join([*lines, *(names[i] for i in unknown)]) + "\n")
    if (bad or unknown) and not skip_bad:
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


def _drop_failed(
    batches: "Iterator[Prediction]", bad: list[int], unknown: list[int]
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield index, probabilities and ranks of the samples that have a prediction.

    Samples that could not be read are added to ``bad``, those without probabilities to
    ``unknown``.
    """
    for batch in batches:
        index, known = batch.index, batch.has_probabilities
        bad.extend((~index[index < 0]).tolist())
        unknown.extend(index[(index >= 0) & ~known].tolist())
        good = (index >= 0) & known
        yield index[good], batch.proba[good], batch.chosen[good]
