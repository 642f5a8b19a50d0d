"""``layline predict``: a trained model on new samples, as a stream."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Decode
from layline.prediction_file import FORMATS, prediction_lines

EXAMPLES = """
Examples:

  layline predict runs/photos-arc new-photos --out predictions.csv

  layline predict model.safetensors a.jpg b.jpg --decode median
"""


def predict(
    path: Annotated[
        Path, typer.Argument(metavar="model", help="A .safetensors model, or the folder of a run.")
    ],
    paths: Annotated[list[str], typer.Argument(help="Images and folders; CSV files for a table.")],
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
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Unreadable files are no reason to fail.")
    ] = False,
) -> None:
    """Predict the class of new samples, with the probability of each class.

    Files that cannot be read are left out and listed; the exit code is then 1.
    """
    import numpy as np

    from layline.arguments import check_known
    from layline.data.images.check import describe_bad, find_bad
    from layline.data.loading import ImageBatches
    from layline.data.table import TableEncoding
    from layline.devices import choose_device
    from layline.geometry.decoding import DECODINGS
    from layline.model import normalised
    from layline.model_file import load

    if out is not None and out.suffix not in FORMATS:
        raise ValueError(f"out must end in {' or '.join(FORMATS)}, got {out}")
    if decode is not None:
        check_known("decode", decode, DECODINGS)
    model = load(path)
    decode = decode or model.spec.decode
    model.to(choose_device(device, isinstance(model.spec.inputs, TableEncoding)))
    # one path by itself: a table is one file
    names, samples = model.read(paths[0] if len(paths) == 1 else paths, keep_going=True)
    bad = []
    with prediction_lines(out, model.classes) as write:
        for answer in model.stream(samples, batch_size, workers):
            proba = normalised(answer.log_probs)
            ranks = answer.decisions[decode].tolist()
            for index, rank, shares in zip(answer.index.tolist(), ranks, proba, strict=True):
                if index < 0:
                    bad.append(~index)
                else:
                    write(names[index], model.classes[rank], shares.tolist())
    if bad and isinstance(samples, ImageBatches):
        unreadable = find_bad(samples.images.subset(np.array(bad)))
        sys.stderr.write(f"layline: {describe_bad(unreadable, cure=not skip_bad)}\n")
        if not skip_bad:
            raise typer.Exit(1)
