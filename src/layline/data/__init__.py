"""Where samples come from. To add a source: its file, and one line in ``SOURCES``.

A source is a function of the root and of its own options that gives a :class:`Dataset`. Its files
are read when it is asked, and its own libraries imported then.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layline.arguments import check_known, find_known
from layline.data.base import Dataset, Images, Inputs, KnownClasses, Partition, existing
from layline.data.labels import match_classes
from layline.data.recognition import find_source, recognise
from layline.data.sources.adience import read_adience
from layline.data.sources.folder import read_folder
from layline.data.sources.historical_color import read_historical_color
from layline.data.sources.image_aesthetics import read_image_aesthetics
from layline.data.sources.manifest import read_manifest
from layline.data.sources.npz import read_npz
from layline.data.sources.photo_quality import read_photo_quality
from layline.data.sources.table import read_table
from layline.data.splits import UNDRAWN, stratified_holdout, with_calibration
from layline.data.table import Rows, TableEncoding


@dataclass(frozen=True)
class SourceSpec:
    """An entry of the registry.

    Attributes:
        read: Gives the data set, from ``root`` (a path, or None for an embedded source),
            ``partition`` (which official fold, or the seed of a random split) and own options.
        summary: What it is, in one line.
        origin: Where the data come from, with their licence; empty for the user's own.
        features: The features to train if the user does not say; None for photographs, for which
            the recipe has a network.
        partitions: How many partitions the protocol has; None if any seed makes one.
        needs_root: Whether there is something to point at.
        path_options: Own options that are paths.
    """

    read: Callable[..., Dataset]
    summary: str
    origin: str = ""
    features: str | None = None
    partitions: int | None = None
    needs_root: bool = True
    path_options: tuple[str, ...] = ()


SOURCES: dict[str, SourceSpec] = {
    "folder": SourceSpec(read_folder, "images in a folder per class, or in train, val and test"),
    "csv": SourceSpec(
        read_manifest, "images that a CSV file lists with their labels", path_options=("images",)
    ),
    "table": SourceSpec(read_table, "numbers and categories in a CSV file", features="mlp"),
    "npz": SourceSpec(read_npz, "images in arrays, as MedMNIST has them", features="convnet"),
    "historical-color": SourceSpec(
        read_historical_color,
        "photographs of the 1930s to the 1970s, by decade",
        origin="Palermo, Hays and Efros, Dating Historical Color Images, ECCV 2012; "
        "graphics.cs.cmu.edu/projects/historicalColor; licence: none that we know of",
        partitions=10,
    ),
    "adience": SourceSpec(
        read_adience,
        "faces in eight age groups, the official five folds",
        origin="Eidinger, Enbar and Hassner, Age and Gender Estimation of Unfiltered Faces, 2014; "
        "folds of Levi and Hassner, 2015; talhassner.github.io/home/projects/Adience; "
        "photographs under Creative Commons licences",
        partitions=5,
        path_options=("lists",),
    ),
    "image-aesthetics": SourceSpec(
        read_image_aesthetics,
        "Flickr photographs in five grades of beauty, by category",
        origin="Schifanella, Redi and Aiello, An Image is Worth More than a Thousand Favorites, "
        "ICWSM 2015; www.di.unito.it/~schifane/dataset/beauty-icwsm15; "
        "photographs under Creative Commons licences",
        partitions=5,
    ),
    "photo-quality": SourceSpec(
        read_photo_quality,
        "crops of two photographs in six levels of quality, made on the spot",
        origin="the two photographs that scikit-learn ships, CC BY 2.0",
        features="convnet",
        needs_root=False,
    ),
}

_CALIBRATION = "calibration"
_ENCODING = "encoding"


@dataclass(frozen=True)
class KnownInputs:
    """What a trained model knows of its data, for reading others that it is used on.

    Attributes:
        classes: Their names, lowest first.
        encoding: How the cells of a table become numbers; None for images.
        skip_unknown: Leave samples of other classes out instead of refusing them.
    """

    classes: tuple[str, ...]
    encoding: TableEncoding | None = None
    skip_unknown: bool = False


def names() -> tuple[str, ...]:
    """List the registered sources."""
    return tuple(SOURCES)


def options_of(name: str) -> tuple[str, ...]:
    """List the options that a source takes beside its root and the partition."""
    parameters = inspect.signature(find_known("source", name, SOURCES).read).parameters
    own = ("root", "partition", _CALIBRATION, _ENCODING)
    return tuple(key for key in parameters if key not in own)


def label_option(name: str) -> str:
    """Name the option of a source that says which column has the labels."""
    return "label_column" if "label_column" in options_of(name) else "label"


def read(
    name: str,
    root: str | Path | None = None,
    partition: int = 0,
    calibration: float = 0.0,
    known: KnownInputs | None = None,
    **options: Any,
) -> Dataset:
    """Read a data set by the name of its source.

    Args:
        name: One of :func:`names`.
        root: The folder or file that holds the data.
        partition: Which official fold, or the seed of a random split; ``UNDRAWN`` draws none.
        calibration: Share of the training part that is kept apart for calibration.
        known: The model that the data are read for: classes are matched by name with its own.
        **options: The source's own options, see :func:`options_of`.
    """
    spec = find_known("source", name, SOURCES)
    for option in options:
        check_known(f"option of {name}", option, options_of(name))
    if known is not None:
        own: dict[str, Any] = {"classes": KnownClasses(known.classes), _ENCODING: known.encoding}
        takes = inspect.signature(spec.read).parameters
        options |= {key: value for key, value in own.items() if key in takes}
        dataset = _read_parts(name, spec, root, partition, calibration, options)
        return match_classes(dataset, known.classes, known.skip_unknown)
    return _read_parts(name, spec, root, partition, calibration, options)


def _read_parts(
    name: str,
    spec: SourceSpec,
    root: str | Path | None,
    partition: int,
    calibration: float,
    options: dict[str, Any],
) -> Dataset:
    """Read a data set, with a part for calibration where one is wanted."""
    if partition == UNDRAWN:
        calibration = 0.0
        partition = UNDRAWN if spec.partitions is None else 0
    if _CALIBRATION in inspect.signature(spec.read).parameters:
        return _read(name, spec, root, partition, {**options, _CALIBRATION: calibration})
    dataset = _read(name, spec, root, partition, options)
    parts, notes = with_calibration(
        dataset.partition, dataset.ranks, calibration, partition, dataset.groups
    )
    return replace(dataset, partition=parts, notes=(*dataset.notes, *notes))


def _read(
    name: str, spec: SourceSpec, root: str | Path | None, partition: int, options: dict[str, Any]
) -> Dataset:
    if spec.partitions is not None and not 0 <= partition < spec.partitions:
        raise ValueError(
            f"partition must be in 0…{spec.partitions - 1}, got {partition}: "
            f"{name} has {spec.partitions} of them"
        )
    if not spec.needs_root:
        if root is not None:
            raise ValueError(f"root must be left out for {name}, got {root}: it needs no files")
        return spec.read(partition=partition, **options)
    if root is None:
        raise ValueError(f"root must be given for {name}: the folder or file with the data")
    return spec.read(existing(Path(root).expanduser()), partition=partition, **options)


__all__ = [
    "SOURCES",
    "UNDRAWN",
    "Dataset",
    "Images",
    "Inputs",
    "KnownInputs",
    "Partition",
    "Rows",
    "SourceSpec",
    "find_source",
    "label_option",
    "names",
    "options_of",
    "read",
    "recognise",
    "stratified_holdout",
]
