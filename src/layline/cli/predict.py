"""``layline predict``: a trained model on new samples, as a stream."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import Decode, Plugins, read_decode, read_share
from layline.prediction_file import FORMATS, prediction_lines

if TYPE_CHECKING:
    from layline.model import Answer

EXAMPLES = """
Examples:

  layline predict runs/photos-arc new-photos --out predictions.csv

  layline predict runs/photos-arc new-photos --coverage 0.9 --review 20%

  layline predict model.safetensors a.jpg b.jpg --decode median
"""


def predict(
    path: Annotated[
        Path, typer.Argument(metavar="model", help="A .safetensors model, or the folder of a run.")
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

    from layline.data.images.check import describe_bad, find_bad
    from layline.data.images.files import describe_skipped
    from layline.data.loading import ImageBatches
    from layline.data.samples import UserImages
    from layline.data.table import TableEncoding
    from layline.devices import choose_device
    from layline.evaluation import REVIEWED, certainty_columns
    from layline.geometry.decoding import checked_decode
    from layline.model import WHY_NO_PROBABILITIES
    from layline.model_file import load
    from layline.training.display import amount

    if out is not None and out.suffix not in FORMATS:
        raise ValueError(f"out must end in {' or '.join(FORMATS)}, got {out}")
    share = None if review is None else read_share(review)
    model = load(path, plugins=plugins or ())
    wanted = model.spec.decode if decode is None else read_decode(decode, model.classes)
    wanted = checked_decode(wanted, len(model.classes))
    calibration = model.spec.calibration
    if coverage is not None:
        calibration.check(coverage, len(model.classes), by_class)
    model.to(choose_device(device, isinstance(model.spec.inputs, TableEncoding)))
    given = [sys.stdin.buffer if each == "-" else each for each in paths]
    # one path by itself: a table is one file
    names, samples = model.read(given[0] if len(given) == 1 else given, keep_going=True)
    images = samples.images if isinstance(samples, ImageBatches) else None
    if isinstance(images, UserImages) and images.skipped:
        sys.stderr.write(f"layline: {describe_skipped(images.skipped)}\n")
    bad: list[int] = []
    without: list[int] = []
    answers = _good_ones(model.stream(samples, batch_size, workers, wanted), bad, without)
    are_paths = not isinstance(model.spec.inputs, TableEncoding)
    if coverage is None and share is None:
        with prediction_lines(out, model.classes, paths=are_paths) as write:
            for index, proba, ranks in answers:
                for i, rank, shares in zip(index, ranks, proba, strict=True):
                    write(names[i], model.classes[rank], shares.tolist())
    else:  # the least certain of all are known at the end
        found = list(answers)
        index, proba, ranks = (np.concatenate([each[i] for each in found]) for i in range(3))
        ranges = None
        if coverage is not None:
            ranges = calibration.ranges(proba, ranks, coverage, by_class)
        share = REVIEWED if share is None else share
        columns = certainty_columns(proba, ranks, model.classes, ranges, share)
        with prediction_lines(out, model.classes, more=list(columns), paths=are_paths) as write:
            for row, i in enumerate(index):
                more = {name: values[row] for name, values in columns.items()}
                write(names[i], model.classes[ranks[row]], proba[row].tolist(), more=more)
    if bad and isinstance(samples, ImageBatches):
        unreadable = find_bad(samples.images.subset(np.array(bad)))
        sys.stderr.write(f"layline: {describe_bad(unreadable, cure=not skip_bad)}\n")
    if without:
        lines = [f"{amount(len(without), 'sample')} left out: {WHY_NO_PROBABILITIES}"]
        sys.stderr.write("\n  ".join([f"layline: {lines[0]}", *(names[i] for i in without)]) + "\n")
    if (bad or without) and not skip_bad:
        raise typer.Exit(1)


def _good_ones(
    answers: Iterator["Answer"], bad: list[int], without: list[int]
) -> Iterator[tuple[Any, Any, Any]]:
    """Give index, probabilities and rank of the samples, but for those that have none.

    Args:
        answers: For all of them.
        bad: Gets those that could not be read.
        without: Gets those that have no probabilities.
    """
    from layline.model import normalised

    for answer in answers:
        index, finite = answer.index.numpy(), answer.has_probabilities.numpy()
        good = (index >= 0) & finite
        bad.extend((~index[index < 0]).tolist())
        without.extend(index[(index >= 0) & ~finite].tolist())
        yield index[good], normalised(answer.log_probs)[good], answer.chosen.numpy()[good]
