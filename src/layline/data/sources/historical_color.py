"""Historical Color: photographs of five decades, 265 of each (Palermo, Hays and Efros, 2012).

In each decade 210 images are drawn for training, 5 for validation and 50 for test. Ten drawings
make the ten partitions; the number of the partition is the seed. The images of an archive are
unpacked once, beside it.
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
_DEEPEST = 5  # folders between the root and decade_database; the archive's own tree has three
_MD5 = "afb4c47b7da105c4afd1f27e06bea171"


def read_historical_color(root: Path, *, partition: int = 0, proportional: bool = False) -> Dataset:
    """Read the five decades and draw one of the ten partitions.

    Args:
        root: The folder with the five decades, any folder above it, the archive, or its folder.
        partition: Which drawing.
        proportional: Take the same shares of however many images there are, for a part of the data.
    """
    from layline.data.images import ImageFiles, list_images
    from layline.data.index import find_bad

    check_boolean("proportional", proportional)
    place, notes = _find_decades(Path(root))
    names: list[str] = []
    counts: list[int] = []
    for decade in _DECADES:
        files = sorted(f.relative_to(place).as_posix() for f in list_images(place / decade))
        # a decade with more files than it should have may hold some that are no images
        bad = find_bad(ImageFiles(place, files)) if len(files) > _EACH else []
        junk = [each.name for each in bad]
        names += [name for name in files if name not in junk]
        counts.append(len(files) - len(junk))
        notes += tuple(f"{name} does not decode and was left out." for name in junk)
    notes += _check_counts(counts, proportional)
    return Dataset(
        inputs=ImageFiles(place, names),
        ranks=np.repeat(np.arange(len(_DECADES)), counts),
        classes=_DECADES,
        splits=_draw(counts, np.random.default_rng(partition), proportional),
        notes=notes,
    )


def _find_decades(root: Path) -> tuple[Path, tuple[str, ...]]:
    """Find the folder that holds the decades, unpacking the archive if there is only that."""
    if root.is_file():
        return _unpack(root)
    tries = [root]
    for depth in range(_DEEPEST):
        tries += sorted(root.glob("*/" * depth + "decade_database"))
    for place in tries:
        absent = [decade for decade in _DECADES if not (place / decade).is_dir()]
        if not absent:
            return place, ()
        if len(absent) < len(_DECADES):
            raise FileNotFoundError(
                f"root must hold a folder for each decade, got none for {', '.join(absent)} in "
                f"{place}: unpack the archive again"
            )
    if (root / _ARCHIVE).is_file():
        return _unpack(root / _ARCHIVE)
    raise FileNotFoundError(
        f"root must hold the folders {', '.join(_DECADES)}, got {root}: "
        f"point at decade_database, at a folder above it or at {_ARCHIVE}"
    )


def _check_counts(counts: list[int], proportional: bool) -> tuple[str, ...]:
    shown = ", ".join(f"{decade} {n}" for decade, n in zip(_DECADES, counts, strict=True))
    if proportional:
        if min(counts) < 3:
            raise UserError(f"a decade must have at least 3 images, got {shown}: one for each part")
        return (f"These are shares of {shown}: not the published protocol.",)
    if min(counts) < _EACH:
        raise UserError(
            f"a decade must have {_EACH} images, got {shown}: get the whole archive, "
            "or set proportional=true to take the same shares of what there is"
        )
    if max(counts) > _EACH:
        return (f"There are {shown}: {_EACH} of each are drawn and the rest is not used.",)
    return ()


def _draw(counts: list[int], rng: np.random.Generator, proportional: bool) -> Splits:
    """Draw from each decade; the decades lie one after the other."""
    drawn: list[list[Indices]] = []
    for start, count in zip(np.cumsum([0, *counts[:-1]]), counts, strict=True):
        train, validation, test = _shares(count) if proportional else (_TRAIN, _VALIDATION, _TEST)
        order = start + rng.permutation(count)[: train + validation + test]
        drawn.append(np.split(order, [train, train + validation]))
    return Splits(*(np.sort(np.concatenate(part)) for part in zip(*drawn, strict=True)))


def _shares(count: int) -> tuple[int, int, int]:
    validation, test = (max(1, round(count * part / _EACH)) for part in (_VALIDATION, _TEST))
    return count - validation - test, validation, test


def _unpack(archive: Path) -> tuple[Path, tuple[str, ...]]:
    """Unpack the folders of the decades, or find them unpacked; give their folder and notes.

    The folder carries a piece of the archive's checksum, so another archive of the same name gets
    a folder of its own. It appears when it is complete, or not at all.
    """
    if not tarfile.is_tarfile(archive):
        raise UserError(
            f"root must be a folder or the tar archive, got {archive}: "
            "download HistoricalColor-ECCV2012-DecadeDatabase.tar again"
        )
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "md5").hexdigest()
    folder = archive.with_name(f"{archive.name.partition('.')[0]}-{digest[:8]}")
    if not folder.exists():
        _extract(archive, folder)
    if digest == _MD5:
        return folder, ()
    return folder, (f"{archive.name} has the MD5 {digest}, the published archive has {_MD5}.",)


def _extract(archive: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as place:
        unpacked = Path(place) / folder.name
        unpacked.mkdir()
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, _members(tar), filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise UserError(
                f"root must be an intact archive, got {archive} ({error}): download it again"
            ) from error
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.exists():  # another process may have been quicker
                raise


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Give the files that lie in the folders of the decades, under short names.

    Only the last two parts of a name are kept, so that no member can lead out of the folder.
    """
    for member in tar:
        *above, decade, name = (".", ".", *PurePosixPath(member.name).parts)
        in_database = above[-1] == "decade_database" and decade in _DECADES
        if member.isfile() and in_database and not name.startswith("."):
            yield member.replace(name=f"{decade}/{name}", deep=False)
