"""The worst mistakes of a model, with a small picture of each where the samples are images."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.data.base import Dataset, Images
from layline.data.table import Rows
from layline.files import whole_file, write_text

LONGER_SIDE = 96  # pixels
_QUALITY = 80


def worst(
    ranks: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    proba: Float[np.ndarray, "n K"],
    most: int,
) -> Int[np.ndarray, " m"]:
    """Find the samples that are furthest off, the least probable truth first among equals.

    Args:
        ranks: The true classes.
        predicted: What they are taken for.
        proba: Probabilities of the classes.
        most: How many to find at most; there are fewer if fewer are misclassified.
    """
    error = np.abs(predicted - ranks)
    truth = proba[np.arange(len(ranks)), ranks]
    order = np.lexsort((np.arange(len(ranks)), truth, -error))
    wrong: Int[np.ndarray, " m"] = order[error[order] > 0][:most]
    return wrong


def write_mistakes(
    file: Path,
    pictures: Path,
    dataset: Dataset,
    predicted: Int[np.ndarray, " n"],
    proba: Float[np.ndarray, "n K"],
    most: int,
    at_least: int | None,
) -> None:
    """Write the worst mistakes on the test part, and thumbnails of those that are images.

    Args:
        file: A JSON list: name, true and predicted class, probabilities, and the file of the
            thumbnail or the cells of a row.
        pictures: Folder of the thumbnails.
        dataset: The data.
        predicted: What the test samples are taken for.
        proba: Probabilities of the classes.
        most: How many to write at most.
        at_least: The size that images are decoded at.
    """
    test = dataset.partition.test
    inputs, ranks = dataset.inputs.subset(test), dataset.ranks[test]
    records = []
    for number, index in enumerate(worst(ranks, predicted, proba, most)):
        record: dict[str, Any] = {
            "name": inputs.names[index],
            "true": dataset.classes[ranks[index]],
            "predicted": dataset.classes[predicted[index]],
            "probabilities": [float(f"{share:.6g}") for share in proba[index]],
        }
        if isinstance(inputs, Images):
            record["image"] = f"{number:03}.jpg"
            _write_thumbnail(pictures / record["image"], inputs.load(int(index), at_least))
        elif isinstance(inputs, Rows):
            record["values"] = cells_of(inputs, int(index))
        records.append(record)
    # a name may be a path that is not UTF-8, which only an escape can hold
    write_text(file, json.dumps(records, indent=1) + "\n")
    kept = {record.get("image") for record in records}
    for old in pictures.glob("*.jpg"):  # of a test before this one
        if old.name not in kept:
            old.unlink()


def cells_of(rows: Rows, index: int) -> dict[str, float | str | None]:
    """Give the cells of a row as they stood in the table; None for a missing or unknown one."""
    encoded = iter(rows.values[index].tolist())
    found: dict[str, float | str | None] = {}
    for number in rows.encoding.numeric:
        value = next(encoded)
        missing = number.indicator and next(encoded)
        found[number.name] = None if missing else float(f"{value:.6g}")
    for column in rows.encoding.categorical:
        flags = [next(encoded) for _ in column.categories]
        found[column.name] = column.categories[flags.index(1)] if 1 in flags else None
    return found


def _write_thumbnail(path: Path, pixels: Any) -> None:
    from layline.data.images.decoding import Image

    image = Image.fromarray(pixels)
    image.thumbnail((LONGER_SIDE, LONGER_SIDE))
    with whole_file(path) as part:
        image.save(part, format="JPEG", quality=_QUALITY)
