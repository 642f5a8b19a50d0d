"""Data sets. To add a source: its file, and one line in ``SOURCES``.

The stages, each of which runs once::

    name, root, note = find_source(argument, root, names())     # detect what a path contains
    dataset = read(name, root, **options)                        # list files, read labels
    dataset = check_files(index_files(dataset))                  # look at new and changed files
    dataset = group_duplicates(dataset)                          # duplicates stay in one split
    dataset = draw_splits(dataset, seed)                         # fill splits that are not given

A source is a function of the root and its own options that returns a :class:`Dataset`. Files are
read and libraries imported when it is called.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.dataset import Dataset, Images, KnownClasses, Splits, require_path
from layline.data.detect import detect, find_source
from layline.data.duplicates import group_duplicates
from layline.data.image_cache import check_files, index_files
from layline.data.labels import match_classes
from layline.data.sources.files import read_folder, read_manifest, read_npz, read_table
from layline.data.sources.paper import read_adience, read_historical_color, read_image_aesthetics
from layline.data.sources.photo_quality import read_photo_quality
from layline.data.splits import draw_splits, stratified_holdout
from layline.data.stress import stress_labels
from layline.data.tables import TableEncoding, UnencodedRows
from layline.utils.registry import Registry, first_line
from layline.utils.validation import UserError


@dataclass(frozen=True)
class SourceSpec:
    """An entry of the registry.

    ``read`` returns the data set, from ``root`` (a path; not for an embedded source), ``partition``
    (the fold of a protocol, if it has folds) and its own options.
    """

    read: Callable[..., Dataset]
    summary: str  # one line
    origin: str = ""  # where the data come from, with their license; empty for the user's own
    backbone: str | None = None  # the default; None for photographs, for which the recipe has one
    partitions: int | None = None  # folds of the protocol; None if any seed gives a split
    needs_root: bool = True  # it reads files
    path_options: tuple[str, ...] = ()  # its options that are paths


_BUILT_IN: dict[str, SourceSpec] = {
    "folder": SourceSpec(read_folder, "images in a folder per class, or in train, val and test"),
    "csv": SourceSpec(
        read_manifest,
        "images listed with their labels in a CSV or Excel file",
        path_options=("images",),
    ),
    "table": SourceSpec(
        read_table, "numbers and categories in a CSV or Excel file", backbone="mlp"
    ),
    "npz": SourceSpec(read_npz, "images in arrays, as in MedMNIST", backbone="convnet"),
    "historical-color": SourceSpec(
        read_historical_color,
        "photographs of the 1930s to the 1970s, by decade",
        origin="Palermo, Hays and Efros, Dating Historical Color Images, ECCV 2012; "
        "graphics.cs.cmu.edu/projects/historicalColor; license unknown",
        partitions=10,
    ),
    "adience": SourceSpec(
        read_adience,
        "faces in eight age groups, the official five folds",
        origin="Eidinger, Enbar and Hassner, Age and Gender Estimation of Unfiltered Faces, 2014; "
        "folds of Levi and Hassner, 2015; talhassner.github.io/home/projects/Adience; "
        "photographs under Creative Commons licenses",
        partitions=5,
        path_options=("lists",),
    ),
    "image-aesthetics": SourceSpec(
        read_image_aesthetics,
        "Flickr photographs in five grades of beauty, by category",
        origin="Schifanella, Redi and Aiello, An Image is Worth More than a Thousand Favorites, "
        "ICWSM 2015; www.di.unito.it/~schifane/dataset/beauty-icwsm15; "
        "photographs under Creative Commons licenses",
        partitions=5,
    ),
    "photo-quality": SourceSpec(
        read_photo_quality,
        "crops of two photographs in six levels of quality, generated on the fly",
        origin="the two photographs that scikit-learn ships, CC BY 2.0",
        backbone="convnet",
        needs_root=False,
    ),
}


def _adopt(name: str, found: Any) -> SourceSpec:
    if isinstance(found, SourceSpec):
        return found
    if isinstance(found, type) or not callable(found):
        raise TypeError("a SourceSpec, or a function that returns a Dataset")
    takes = inspect.signature(found).parameters
    return SourceSpec(found, first_line(found), needs_root="root" in takes)


SOURCES: Registry[SourceSpec] = Registry(
    "sources", "source", _BUILT_IN, _adopt, build="read", reserved=("root", "partition")
)
names, options_of = SOURCES.names, SOURCES.options_of


@dataclass(frozen=True)
class KnownInputs:
    """What a trained model expects of data that it is used on."""

    classes: tuple[str, ...]
    encoding: TableEncoding | None = None  # of the cells of a table
    skip_unknown: bool = False  # drop samples of other classes instead of refusing them


def read(
    name: str,
    root: str | Path | None = None,
    partition: int = 0,
    known: KnownInputs | None = None,
    **options: Any,
) -> Dataset:
    """Read a data set by the name of its source; splits that are not prescribed stay empty.

    Sources without folds ignore the partition. The options are those of :func:`options_of`.
    """
    spec = SOURCES.find(name)
    SOURCES.check_options(name, spec, options)
    takes = inspect.signature(spec.read).parameters
    for option in options.keys() & takes.keys():  # a column may be named by a number
        if takes[option].annotation in (str, str | None) and options[option] is not None:
            options[option] = str(options[option])
    if spec.partitions is not None and not 0 <= partition < spec.partitions:
        raise UserError(f"{name} has the partitions 0…{spec.partitions - 1}, got {partition}.")
    if "partition" in takes:
        options["partition"] = partition
    if known is not None and "classes" in takes:
        options["classes"] = KnownClasses(known.classes)
    if spec.needs_root and root is None:
        raise UserError(f"{name} needs the folder or file with the data. Set the root.")
    if not spec.needs_root and root is not None:
        raise UserError(f"{name} needs no files; leave out the root {root}.")
    dataset = spec.read(**options) if root is None else spec.read(require_path(root), **options)
    if not isinstance(dataset, Dataset):
        raise UserError(f"{name} must return a Dataset, got {type(dataset).__name__}.")
    if known is None:
        return dataset
    rows: Any = dataset.inputs
    if isinstance(rows, UnencodedRows) and known.encoding is not None:
        rows, notes = rows.encode(dataset.splits.train, known.encoding)
        dataset = replace(dataset, inputs=rows, notes=(*dataset.notes, *notes))
    return match_classes(dataset, known.classes, known.skip_unknown)


def content_digest(
    name: str,
    root: str | Path | None,
    options: Mapping[str, Any] | None = None,
    verify: bool = False,
) -> str | None:
    """Hash what a source reads: samples, labels and given splits. Embedded data have no hash."""
    if root is None:
        return None
    dataset = index_files(read(name, root, **(options or {})), verify=verify)
    texts = [name, *dataset.inputs.names, *dataset.classes, *map(str, dataset.groups or ())]
    digest = hashlib.blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=16)
    for indices in (dataset.ranks, *dataset.splits.by_name().values()):
        digest.update(b"\0" + np.ascontiguousarray(indices, dtype="<i8").tobytes())
    digest.update(dataset.inputs.digest().encode())
    return digest.hexdigest()


__all__ = [
    "SOURCES",
    "Dataset",
    "Images",
    "KnownInputs",
    "SourceSpec",
    "Splits",
    "check_files",
    "content_digest",
    "detect",
    "draw_splits",
    "find_source",
    "group_duplicates",
    "index_files",
    "names",
    "options_of",
    "read",
    "stratified_holdout",
    "stress_labels",
]
