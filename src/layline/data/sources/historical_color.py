"""Historical Color: photographs of five decades, 265 of each (Palermo, Hays and Efros, 2012).

In each decade 210 images are drawn for training, 5 for validation and 50 for test. Ten draws make
the ten partitions; the number of the partition is the seed. An archive is unpacked once, next to
it.
"""

import hashlib
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from layline.data.dataset import Dataset, Indices, Splits
from layline.utils.errors import UserError
from layline.utils.validation import check_boolean

_DECADES = ("1930s", "1940s", "1950s", "1960s", "1970s")
_TRAIN, _VALIDATION, _TEST = 210, 5, 50
_EACH = _TRAIN + _VALIDATION + _TEST
_ARCHIVE = "HistoricalColor-ECCV2012-DecadeDatabase.tar"
_DEEPEST = 5  # folders between the root and decade_database; the archive has three
_MD5 = "afb4c47b7da105c4afd1f27e06bea171"


def read_historical_color(root: Path, *, partition: int = 0, proportional: bool = False) -> Dataset:
    """Read the five decades and draw one of the ten partitions.

    Args:
        root: The folder with the five decades, any folder above it, the archive, or its folder.
        partition: The number of the draw.
        proportional: Use the same shares of however many images there are, for a part of the data.
    """
    from layline.data.images import ImageFiles, list_images
    from layline.data.index import index_images

    check_boolean("proportional", proportional)
    place, notes = _find_decades(Path(root))
    names: list[str] = []
    counts: list[int] = []
    for decade in _DECADES:
        files = sorted(f"{decade}/{name}" for name in list_images(place / decade))
        # a decade with more files than expected may contain some that are not images
        bad = index_images(ImageFiles(place, files)).faults if len(files) > _EACH else {}
        names += [name for i, name in enumerate(files) if i not in bad]
        counts.append(len(files) - len(bad))
        notes += tuple(f"{files[i]} cannot be decoded and is not used." for i in bad)
    notes += _check_counts(counts, proportional)
    return Dataset(
        inputs=ImageFiles(place, names),
        ranks=np.repeat(np.arange(len(_DECADES)), counts),
        classes=_DECADES,
        splits=_draw(counts, np.random.default_rng(partition), proportional),
        notes=notes,
    )


def _find_decades(root: Path) -> tuple[Path, tuple[str, ...]]:
    """Find the folder of the decades, unpacking the archive if there is only that."""
    if root.is_file():
        return _unpack(root)
    for depth in range(-1, _DEEPEST):
        places = sorted(root.glob("*/" * depth + "decade_database")) if depth >= 0 else [root]
        for place in places:
            absent = [decade for decade in _DECADES if not (place / decade).is_dir()]
            if not absent:
                return place, ()
            if len(absent) < len(_DECADES):
                raise FileNotFoundError(f"{place} has no folder {', '.join(absent)}.")
    if (root / _ARCHIVE).is_file():
        return _unpack(root / _ARCHIVE)
    raise FileNotFoundError(
        f"{root} has no folders {', '.join(_DECADES)}. Give the path of decade_database, of a "
        f"folder above it or of {_ARCHIVE}."
    )


def _check_counts(counts: list[int], proportional: bool) -> tuple[str, ...]:
    shown = ", ".join(f"{decade} {n}" for decade, n in zip(_DECADES, counts, strict=True))
    if proportional:
        if min(counts) < 3:
            raise UserError(f"Each decade needs at least 3 images, got {shown}.")
        return (f"These are shares of {shown}: not the published protocol.",)
    if min(counts) < _EACH:
        raise UserError(
            f"Each decade needs {_EACH} images, got {shown}. Get the whole archive, or set "
            "proportional=true to use the same shares of what there is."
        )
    if max(counts) > _EACH:
        return (f"There are {shown} images; {_EACH} of each are used.",)
    return ()


def _draw(counts: list[int], rng: np.random.Generator, proportional: bool) -> Splits:
    """Draw from each decade; the decades follow one another."""
    drawn: list[list[Indices]] = []
    for start, count in zip(np.cumsum([0, *counts[:-1]]), counts, strict=True):
        train, validation, test = _TRAIN, _VALIDATION, _TEST
        if proportional:
            validation, test = (max(1, round(count * n / _EACH)) for n in (_VALIDATION, _TEST))
            train = count - validation - test
        order = start + rng.permutation(count)[: train + validation + test]
        drawn.append(np.split(order, [train, train + validation]))
    return Splits(*(np.sort(np.concatenate(split)) for split in zip(*drawn, strict=True)))


def _unpack(archive: Path) -> tuple[Path, tuple[str, ...]]:
    """Unpack the folders of the decades, or find them unpacked; returns their folder and notes."""
    if not tarfile.is_tarfile(archive):
        raise UserError(f"{archive} is neither a folder nor a tar archive. Download it again.")
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "md5").hexdigest()
    folder = archive.with_name(f"{archive.name.partition('.')[0]}-{digest[:8]}")
    if not folder.exists():
        _extract(archive, folder)
    if digest == _MD5:
        return folder, ()
    return folder, (f"{archive.name} has the MD5 {digest}; the published archive has {_MD5}.",)


def _extract(archive: Path, folder: Path) -> None:
    """Unpack an archive; the folder appears when it is complete."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as place:
        unpacked = Path(place) / folder.name
        unpacked.mkdir()
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, _members(tar), filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise UserError(f"{archive} is damaged ({error}). Download it again.") from error
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.exists():  # another process may have been faster
                raise


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files in the folders of the decades, with the last two parts of their names."""
    for member in tar:
        *above, decade, name = (".", ".", *PurePosixPath(member.name).parts)
        in_database = above[-1] == "decade_database" and decade in _DECADES
        if member.isfile() and in_database and not name.startswith("."):
            yield member.replace(name=f"{decade}/{name}", deep=False)
