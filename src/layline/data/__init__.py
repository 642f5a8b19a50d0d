"""Where samples come from. To add a source: its file, and one line in ``SOURCES``.

A source is a function of the root and of its own options that gives a :class:`Dataset`. Its files
are read when it is asked, and its own libraries imported then. Plug-ins add
others, see :mod:`layline.utils.plugins`.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from layline.data.dataset import (
    Dataset,
    Drawing,
    Images,
    Inputs,
    KnownClasses,
    Names,
    Splits,
    existing,
)
from layline.data.detect import find_source, recognise
from layline.data.file_digests import digest_files
from layline.data.labels import match_classes
from layline.data.sources.adience import read_adience
from layline.data.sources.folder import read_folder
from layline.data.sources.historical_color import read_historical_color
from layline.data.sources.image_aesthetics import read_image_aesthetics
from layline.data.sources.manifest import read_manifest
from layline.data.sources.npz import read_npz
from layline.data.sources.photo_quality import read_photo_quality
from layline.data.sources.table import read_table
from layline.data.splits import UNDRAWN, stratified_holdout, with_calibration
from layline.data.table_encoding import Rows, TableEncoding
from layline.utils.errors import UserError
from layline.utils.registry import Registry, first_line
from layline.utils.validation import check_known


@dataclass(frozen=True)
class SourceSpec:
    """An entry of the registry.

    Attributes:
        read: Gives the data set, from ``root`` (a path, or None for an embedded source),
            ``partition`` (which official fold, or the seed of a random split) and own options.
        summary: What it is, in one line.
        origin: Where the data come from, with their licence; empty for the user's own.
        backbone: The backbone to train if the user does not say; None for photographs, for which
            the recipe has a network.
        partitions: How many partitions the protocol has; None if any seed makes one.
        needs_root: Whether there is something to point at.
        path_options: Own options that are paths.
        has_images: Whether it reads images in files.
        has_files: Whether it reads other files: a table, lists, an archive.
    """

    read: Callable[..., Dataset]
    summary: str
    origin: str = ""
    backbone: str | None = None
    partitions: int | None = None
    needs_root: bool = True
    path_options: tuple[str, ...] = ()
    has_images: bool = True
    has_files: bool = True


_BUILT_IN: dict[str, SourceSpec] = {
    "folder": SourceSpec(
        read_folder, "images in a folder per class, or in train, val and test", has_files=False
    ),
    "csv": SourceSpec(
        read_manifest, "images that a CSV file lists with their labels", path_options=("images",)
    ),
    "table": SourceSpec(
        read_table, "numbers and categories in a CSV file", backbone="mlp", has_images=False
    ),
    "npz": SourceSpec(
        read_npz, "images in arrays, as MedMNIST has them", backbone="convnet", has_images=False
    ),
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
        backbone="convnet",
        needs_root=False,
        has_images=False,
        has_files=False,
    ),
}


def _adopt(name: str, found: Any) -> SourceSpec:
    """Make an entry from what a plug-in has: an entry, or a function that reads."""
    if isinstance(found, SourceSpec):
        return found
    if isinstance(found, type) or not callable(found):
        raise TypeError("a SourceSpec, or a function that gives a Dataset")
    takes = inspect.signature(found).parameters
    if "partition" not in takes:
        raise TypeError("a function with the argument partition, or a SourceSpec")
    return SourceSpec(found, first_line(found), needs_root="root" in takes)


SOURCES: Registry[SourceSpec] = Registry("sources", "source", _BUILT_IN, _adopt, build="read")

_CALIBRATION = "calibration"
# what options were called once; run folders and grids still have these
_OLD_OPTIONS = {f"{name}_column": name for name in ("path", "label", "split", "group", "id")}
_ENCODING = "known_encoding"


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
    """List the sources: those that are built in, and those of plug-ins."""
    return tuple(SOURCES)


def options_of(name: str) -> tuple[str, ...]:
    """List the options that a source takes beside its root and the partition."""
    parameters = inspect.signature(SOURCES.find(name).read).parameters
    own = ("root", "partition", _CALIBRATION, _ENCODING)
    return tuple(key for key in parameters if key not in own)


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
    spec = SOURCES.find(name)
    options = _with_new_names(name, options)
    for option in options:
        check_known(f"option of {name}", option, options_of(name))
    options = _with_texts(spec, options)
    if known is not None:
        own: dict[str, Any] = {"classes": KnownClasses(known.classes), _ENCODING: known.encoding}
        takes = inspect.signature(spec.read).parameters
        options |= {key: value for key, value in own.items() if key in takes}
        dataset = _read_parts(name, spec, root, partition, calibration, options)
        _check_encoding(name, dataset, known)
        return match_classes(dataset, known.classes, known.skip_unknown)
    return _read_parts(name, spec, root, partition, calibration, options)


def _check_encoding(name: str, dataset: Dataset, known: KnownInputs) -> None:
    """Refuse rows that are encoded otherwise than the model knows them."""
    rows = dataset.inputs
    if known.encoding is None or not isinstance(rows, Rows):
        return
    if replace(rows.encoding, id_column=known.encoding.id_column) == known.encoding:
        return
    raise UserError(
        f"the rows of {name} must be encoded as those of training, got other columns or "
        f"categories: its function can take {_ENCODING}, the encoding to apply"
    )


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
    draw = partial(
        with_calibration,
        dataset.splits,
        dataset.ranks,
        calibration,
        partition,
        dataset.groups,
    )
    parts, notes = draw()
    return replace(
        dataset,
        splits=parts,
        notes=(*dataset.notes, *notes),
        drawing=Drawing(draw, notes) if calibration else None,
    )


def content_digest(
    name: str,
    root: str | Path | None,
    options: Mapping[str, Any] | None = None,
    verify: bool = False,
) -> str | None:
    """Name the content of the data that a source would read: other bytes, another name.

    Files that did not change since they were looked at are not read again. Where the data lie, and
    when they were written, is no part of it.

    Args:
        name: The source.
        root: Its folder or file.
        options: The source's own options.
        verify: Read all files again, whatever is known of them.

    Returns:
        None for a source that reads no files.
    """
    spec, options = SOURCES.find(name), dict(options or {})
    if not spec.needs_root or root is None:
        return None
    root = existing(Path(root).expanduser())
    digest = hashlib.blake2b(name.encode(), digest_size=16)
    if spec.has_files:
        own = (options[key] for key in spec.path_options if options.get(key) is not None)
        for place in [root, *(Path(str(each)).expanduser() for each in own)]:
            # of the user's own files one is read, and beside it may lie anything; the folder of a
            # protocol holds the protocol
            for file, content in digest_files(place, spec.partitions is not None, verify):
                digest.update(f"\0{file}\0{content}".encode(errors="surrogatepass"))
    if spec.has_images:
        try:
            dataset = read(name, root, **options)
        except (ValueError, OSError) as error:  # for whoever reads the data to say
            digest.update(str(error).encode(errors="surrogatepass"))
            return digest.hexdigest()
        text, ends = Names(dataset.inputs.names).pack()
        digest.update(text + ends.astype("<i8").tobytes() + dataset.ranks.astype("<i8").tobytes())
        digest.update(repr(dataset.classes).encode(errors="surrogatepass"))
        digest.update(_inputs_digest(dataset.inputs, verify).encode())
    return digest.hexdigest()


def _inputs_digest(inputs: Inputs, verify: bool) -> str:
    from layline.data.images import ImageFiles
    from layline.data.index import index_images

    if isinstance(inputs, ImageFiles):
        return index_images(inputs, verify=verify).digest()
    return inputs.digest()


def _with_new_names(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Call options by their names of today."""
    renamed: dict[str, Any] = {}
    for option, value in options.items():
        new = _OLD_OPTIONS.get(option, option)
        known = new if new in options_of(name) else option
        if known in renamed:
            raise UserError(f"{known} must be given once, got {option} beside it: leave that out")
        renamed[known] = value
    return renamed


def _with_texts(spec: SourceSpec, options: dict[str, Any]) -> dict[str, Any]:
    """Take an integer for the name of a column that is called so, and refuse what is no name."""
    takes = inspect.signature(spec.read).parameters
    found = dict(options)
    for option, value in options.items():
        if takes[option].annotation not in (str, str | None) or isinstance(value, str | None):
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"{option} must be a text, got {value!r}: write it in quotes")
        found[option] = str(value)
    return found


def _read(
    name: str, spec: SourceSpec, root: str | Path | None, partition: int, options: dict[str, Any]
) -> Dataset:
    if spec.partitions is not None and not 0 <= partition < spec.partitions:
        raise UserError(
            f"partition must be in 0…{spec.partitions - 1}, got {partition}: "
            f"{name} has {spec.partitions} of them"
        )
    if not spec.needs_root:
        if root is not None:
            raise UserError(f"root must be left out for {name}, got {root}: it needs no files")
        return _checked(name, spec.read(partition=partition, **options))
    if root is None:
        raise UserError(f"root must be given for {name}: the folder or file with the data")
    place = existing(Path(root).expanduser())
    return _checked(name, spec.read(place, partition=partition, **options))


def _checked(name: str, dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise UserError(f"{name} must give a Dataset, got {type(dataset).__name__}")
    return dataset


__all__ = [
    "SOURCES",
    "UNDRAWN",
    "Dataset",
    "Images",
    "Inputs",
    "KnownInputs",
    "Rows",
    "SourceSpec",
    "Splits",
    "content_digest",
    "find_source",
    "names",
    "options_of",
    "read",
    "recognise",
    "stratified_holdout",
]
