"""``layline predict``: a trained model on new samples, as a stream."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import Decode, Plugins, read_decode, read_share
from layline.evaluation.prediction_file import FORMATS, WHY_NO_PROBABILITIES, prediction_lines
from layline.utils.errors import UserError

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
        typer.Argument(metavar="model", help="A run, a .safetensors or an .onnx file."),
    ],
    paths: Annotated[
        list[str],
        typer.Argument(help="Images and folders; a CSV file for a table; - is standard input."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .jsonl file; CSV on stdout if not given.")
    ] = None,
    decode: Decode = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples at a time.")] = 64,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode images.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto takes a GPU if there is one; or cpu, cuda:1, mps.")
    ] = "auto",
    coverage: Annotated[
        float | None,
        typer.Option(help="Write a range that holds the truth for this share of samples: 0.9."),
    ] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Keep to the coverage in every class.")
    ] = False,
    review: Annotated[
        str | None,
        typer.Option(
            help="Mark the least certain for a person, such as 20%; that with --coverage."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Samples that are left out are no reason to fail.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Predict the class of new samples, with the probability of each class.

    With --coverage or --review also the lowest and the highest class that is possible, a
    confidence from 0 to 1, and whether a person should look at it.

    Samples that cannot be read, or that give no probabilities, are left out and listed; the exit
    code is then 1.
    """
    import numpy as np

    from layline.data.images import describe_skipped
    from layline.data.index import describe_bad, find_bad
    from layline.data.samples import UserImages
    from layline.evaluation.diagnostics import REVIEWED, certainty_columns
    from layline.utils.validation import checked_decode

    if out is not None and out.suffix not in FORMATS:
        raise UserError(f"out must end in {' or '.join(FORMATS)}, got {out}")
    share = None if review is None else read_share(review)
    open_model = _open_onnx if path.suffix.lower() == ".onnx" else _open_torch
    model = open_model(path, device, plugins or [])
    classes = model.classes
    wanted = model.description.decode if decode is None else read_decode(decode, lambda: classes)
    wanted = checked_decode(wanted, len(classes))
    calibration = model.description.calibration
    if coverage is not None:
        calibration.check(coverage, len(classes), by_class)
    given = [sys.stdin.buffer if each == "-" else each for each in paths]
    # one path by itself: a table is one file
    samples = model.read(given[0] if len(given) == 1 else given)
    found = model.stream(samples, batch_size, workers, wanted, keep_going=True)
    names, images = samples.names, samples if isinstance(samples, UserImages) else None
    if images is not None and images.skipped:
        sys.stderr.write(f"layline: {describe_skipped(images.skipped)}\n")
    bad: list[int] = []
    without: list[int] = []
    answers = _good_ones(found, bad, without)
    are_paths = not model.is_table
    if coverage is None and share is None:
        with prediction_lines(out, classes, paths=are_paths) as write:
            for index, proba, ranks in answers:
                for i, rank, shares in zip(index, ranks, proba, strict=True):
                    write(names[i], classes[rank], shares.tolist())
    else:  # the least certain of all are known at the end
        parts = list(answers)
        index, proba, ranks = (np.concatenate([each[i] for each in parts]) for i in range(3))
        ranges = None
        if coverage is not None:
            ranges = calibration.ranges(proba, ranks, coverage, by_class)
        share = REVIEWED if share is None else share
        columns = certainty_columns(proba, ranks, classes, ranges, share)
        with prediction_lines(out, classes, more=list(columns), paths=are_paths) as write:
            for row, i in enumerate(index):
                more = {name: values[row] for name, values in columns.items()}
                write(names[i], classes[ranks[row]], proba[row].tolist(), more=more)
    if bad and images is not None:
        unreadable = find_bad(images.subset(np.array(bad)))
        sys.stderr.write(f"layline: {describe_bad(unreadable, cure=not skip_bad)}\n")
    if without:
        count = f"{len(without)} sample{'s' if len(without) > 1 else ''}"
        lines = [f"layline: {count} left out: {WHY_NO_PROBABILITIES}"]
        sys.stderr.write("\n  ".join([*lines, *(names[i] for i in without)]) + "\n")
    if (bad or without) and not skip_bad:
        raise typer.Exit(1)


def _open_torch(path: Path, device: str, plugins: Sequence[str | Path]) -> "Predictor":
    """Load the model of a run."""
    from layline.model.model_file import load
    from layline.utils.devices import choose_device

    model = load(path, plugins=plugins)
    return model.to(choose_device(device, model.is_table))


def _open_onnx(path: Path, device: str, plugins: Sequence[str | Path]) -> "Predictor":
    """Open an exported model, which needs no plug-in; this and what follows import no torch."""
    from layline.model.onnx_runtime import OnnxModel

    if device not in ("auto", "cpu"):
        raise UserError(
            f"device must be cpu for an .onnx model, got {device}: predict with the folder of the "
            "run to use another"
        )
    return OnnxModel(path)


def _good_ones(
    answers: "Iterator[Prediction]", bad: list[int], without: list[int]
) -> Iterator[tuple[Any, Any, Any]]:
    """Give index, probabilities and rank of the samples, but for those that have none.

    Args:
        answers: For all of them.
        bad: Gets those that could not be read.
        without: Gets those that have no probabilities.
    """
    for answer in answers:
        index, finite = answer.index, answer.has_probabilities
        good = (index >= 0) & finite
        bad.extend((~index[index < 0]).tolist())
        without.extend(index[(index >= 0) & ~finite].tolist())
        yield index[good], answer.proba[good], answer.chosen[good]
