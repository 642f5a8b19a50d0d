"""``layline cache``: what is kept of images beside the runs, and how to be rid of it.

Whatever is cleared is made again when it is needed.
"""

import json
import re
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from layline.cli.options import Json
from layline.utils.errors import UserError

EXAMPLES = """
Examples:

  layline cache                                             list what there is

  layline cache clear --older-than 30d

  LAYLINE_CACHE=/scratch/layline layline train photos --cache
"""
CLEAR_EXAMPLES = """
Examples:

  layline cache clear                                       everything

  layline cache clear --older-than 30d --yes

  layline cache clear features-3f2a91                       by name, or how a name begins
"""
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(h|d|w)")
_SECONDS = {"h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}


@dataclass(frozen=True)
class Entry:
    """Something that is kept.

    Attributes:
        name: Of the file or folder.
        kind: ``pixels``, ``features``, ``index`` or ``unfinished``.
        bytes: What it takes.
        samples: How many it knows, if that can be told.
        used: When it was used last, in seconds since 1970.
        root: The data that it was made of, if that can be told.
        files: Where it is.
    """

    name: str
    kind: str
    bytes: int
    samples: int | None
    used: float
    root: str
    files: tuple[Path, ...]


def list_caches(context: typer.Context, as_json: Json = False) -> None:
    """List what is kept of images: what it is, how large, when it was used, and of which data."""
    if context.invoked_subcommand is not None:
        return
    from layline.data.array_cache import cache_folder

    entries = find_entries()
    if as_json:
        listed: list[dict[str, Any]] = [
            {key: value for key, value in asdict(entry).items() if key != "files"}
            for entry in entries
        ]
        typer.echo(json.dumps(listed, indent=2, ensure_ascii=True))
        return
    rows = [("name", "kind", "size", "samples", "last use", "of")]
    for entry in entries:
        samples = "" if entry.samples is None else f"{entry.samples:,}"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        shown = entry.root.encode(errors="backslashreplace").decode()
        rows.append((entry.name[:24], entry.kind, _size(entry.bytes), samples, used, shown))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if entries else []:
        name, kind, size, samples, used, of = row
        cells = [name.ljust(widths[0]), kind.ljust(widths[1]), size.rjust(widths[2])]
        cells += [samples.rjust(widths[3]), used.ljust(widths[4]), of]
        typer.echo("  ".join(cells).rstrip())
    total = _size(sum(entry.bytes for entry in entries))
    typer.echo(f"{total} in {cache_folder()}" if entries else f"nothing in {cache_folder()}")


def clear(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="As listed, or how it begins; all if none is given."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Only what was not used for so long: 12h, 30d, 8w."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Clear what is kept; it is made again when it is needed."""
    entries = find_entries()
    for name in names or ():
        if not any(entry.name.startswith(name) for entry in entries):
            raise UserError(f"name must be one of layline cache, got {name!r}: it is not there")
    age = None if older_than is None else read_age(older_than)
    chosen = [
        entry
        for entry in entries
        if (not names or any(entry.name.startswith(name) for name in names))
        and (age is None or time.time() - entry.used > age)
    ]
    if not chosen:
        typer.echo("nothing to clear")
        return
    what = f"{len(chosen)} of {len(entries)}, {_size(sum(entry.bytes for entry in chosen))}"
    if not yes and not typer.confirm(f"Clear {what}?"):
        typer.echo("nothing was cleared")
        return
    for entry in chosen:
        for file in entry.files:
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink(missing_ok=True)
    typer.echo(f"cleared {what}")


def find_entries() -> list[Entry]:
    """Find what is kept, the largest first."""
    from layline.data.array_cache import cache_folder

    folder = cache_folder()
    found = [_entry(path) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((each for each in found if each is not None), key=lambda e: (-e.bytes, e.name))


def read_age(text: str) -> float:
    """Read an age such as ``30d``, in seconds."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"older-than must be an age such as 12h, 30d or 8w, got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def _entry(path: Path) -> Entry | None:
    """Say what a file or folder is; None for one that is another's, or not ours."""
    try:
        status = path.stat()
        if path.suffix == ".part":
            return Entry(
                path.name, "unfinished", status.st_size, None, status.st_mtime, "", (path,)
            )
        if path.suffix == ".pixels":
            return _pixels(path)
        if path.suffix == ".index":
            from layline.data.index import known_root

            root, samples = known_root(path) or ("", None)
            size = status.st_size
            return Entry(path.stem, "index", size, samples, status.st_mtime, root, (path,))
        if path.suffix == ".copies":
            return Entry(path.stem, "copies", status.st_size, None, status.st_mtime, "", (path,))
        if path.name == "digests.json":
            return Entry(path.stem, "index", status.st_size, None, status.st_mtime, "", (path,))
        if path.is_dir() and path.name.startswith("features-"):
            return _features(path)
    except FileNotFoundError:  # somebody else cleared it meanwhile
        pass
    return None


def _pixels(path: Path) -> Entry:
    about, status = path.with_suffix(".json"), path.stat()
    values: Any = {}
    with suppress(OSError, ValueError):  # an earlier version wrote none
        values = json.loads(about.read_text(encoding="utf-8"))
    values = values if isinstance(values, dict) else {}
    samples, root = values.get("samples"), str(values.get("root", ""))
    known = samples if isinstance(samples, int) else None
    return Entry(path.stem, "pixels", status.st_size, known, status.st_mtime, root, (path, about))


def _features(path: Path) -> Entry:
    from layline.training.frozen import describe_rows

    size = sum(file.stat().st_size for file in path.iterdir())
    about = describe_rows(path)
    kind, samples, root = ("unfinished", None, "") if about is None else ("backbone", *about)
    return Entry(path.name, kind, size, samples, path.stat().st_mtime, root, (path,))


def _size(count: int) -> str:
    """Write a number of bytes."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
