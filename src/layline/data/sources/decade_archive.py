"""The archive of Historical Color: its images are unpacked once, beside it."""

import hashlib
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

_MD5 = "afb4c47b7da105c4afd1f27e06bea171"


def unpack(archive: Path, decades: Iterable[str]) -> tuple[Path, tuple[str, ...]]:
    """Unpack the folders of the decades, or find them unpacked.

    The folder carries a piece of the archive's checksum, so another archive of the same name gets
    a folder of its own. It appears whole or not at all.

    Args:
        archive: A tar file, compressed or not.
        decades: Names of the folders wanted.

    Returns:
        The folder that holds the decades, and what a user should know about the archive.
    """
    if not tarfile.is_tarfile(archive):
        raise ValueError(
            f"root must be a folder or the tar archive, got {archive}: "
            "download HistoricalColor-ECCV2012-DecadeDatabase.tar again"
        )
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "md5").hexdigest()
    folder = archive.with_name(f"{archive.name.partition('.')[0]}-{digest[:8]}")
    if not folder.exists():
        _unpack_whole(archive, folder, frozenset(decades))
    if digest == _MD5:
        return folder, ()
    return folder, (f"{archive.name} has the MD5 {digest}, the published archive has {_MD5}.",)


def _unpack_whole(archive: Path, folder: Path, decades: frozenset[str]) -> None:
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as place:
        whole = Path(place) / folder.name
        whole.mkdir()
        try:
            with tarfile.open(archive) as opened:
                opened.extractall(whole, _images(opened, decades), filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise ValueError(
                f"root must be an intact archive, got {archive} ({error}): download it again"
            ) from error
        try:
            whole.rename(folder)
        except OSError:
            if not folder.exists():  # another process may have been quicker
                raise


def _images(opened: tarfile.TarFile, decades: frozenset[str]) -> Iterator[tarfile.TarInfo]:
    """Give the files that lie in the folders of the decades, under short names.

    Only the last two parts of a name are kept, so that no member can lead out of the folder.
    """
    for member in opened:
        *above, decade, name = (".", ".", *PurePosixPath(member.name).parts)
        in_database = above[-1] == "decade_database" and decade in decades
        if member.isfile() and in_database and not name.startswith("."):
            yield member.replace(name=f"{decade}/{name}", deep=False)
