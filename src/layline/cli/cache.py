"""``layline cache``: list and clear cached images, features and indexes of files.

Everything that is cleared is computed again when it is needed.
"""

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Json
from layline.utils.errors import UserError
from layline.utils.files import format_bytes

EXAMPLES = """
Examples:

  layline cache                                             list the entries

  layline cache clear --older-than 30d

  LAYLINE_CACHE=/scratch/layline layline train photos --cache
"""
CLEAR_EXAMPLES = """
Examples:

  layline cache clear                                       everything

  layline cache clear --older-than 30d --yes

  layline cache clear features-3f2a91                       by the beginning of a name
"""
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(h|d|w)")
_SECONDS = {"h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}


@dataclass(frozen=True)
class Entry:
    """An entry of the cache.

    Attributes:
        name: The name of its file.
        kind: ``pixels``, ``features``, ``index`` or ``unfinished``.
        bytes: Its size.
        samples: The number of samples, if known.
        used: When it was last used, in seconds since 1970.
        root: The data that it was made from, if known.
    """

    name: str
    kind: str
    bytes: int
    samples: int | None
    used: float
    root: str


def list_caches(context: typer.Context, as_json: Json = False) -> None:
    """List cached images and features: kind, size, last use, and of which data."""
    if context.invoked_subcommand is not None:
        return
    from layline.data.array_cache import cache_folder

    entries = find_entries()
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    for entry in entries:
        samples = "" if entry.samples is None else f"{entry.samples:,}"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        size, root = format_bytes(entry.bytes), entry.root.encode(errors="backslashreplace")
        cells = f"{entry.name[:24]:24}  {entry.kind:10}  {size:>10}  {samples:>10}  {used}"
        typer.echo(f"{cells}  {root.decode()}".rstrip())
    total = format_bytes(sum(entry.bytes for entry in entries))
    typer.echo(f"{total if entries else 'Nothing'} in {cache_folder()}")


def clear(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Beginning of the name of an entry; default: all."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Only entries not used for this long: 12h, 30d, 8w."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete cache entries; they are computed again when needed."""
    entries = find_entries()
    for name in names or ():
        if not any(entry.name.startswith(name) for entry in entries):
            raise UserError(f"There is no cache entry {name!r}.")
    age = 0.0 if older_than is None else parse_age(older_than)
    chosen = [
        entry
        for entry in entries
        if (not names or entry.name.startswith(tuple(names)))
        and (older_than is None or time.time() - entry.used > age)
    ]
    if not chosen:
        typer.echo("Nothing to clear.")
        return
    size = format_bytes(sum(entry.bytes for entry in chosen))
    what = f"{len(chosen)} of {len(entries)} entries, {size}"
    if not yes and not typer.confirm(f"Clear {what}?"):
        typer.echo("Nothing was cleared.")
        return
    from layline.data.array_cache import ArrayCache

    for entry in chosen:
        if entry.kind == "index":
            _index_file(entry.name).unlink(missing_ok=True)
        else:
            ArrayCache().remove(entry.name)
    typer.echo(f"Cleared {what}.")


def find_entries() -> list[Entry]:
    """List all entries, the largest first."""
    from layline.data.array_cache import ArrayCache
    from layline.data.index import known_root

    entries = []
    for array in ArrayCache().entries():
        kind = array.key.partition("-")[0] if array.complete else "unfinished"
        samples, root = array.about.get("samples"), str(array.about.get("root", ""))
        entries.append(Entry(array.key, kind, array.size, samples, array.used, root))
    for file in _index_file("").parent.glob("*.sqlite"):
        root, samples = known_root(file) or ("", None)
        status = file.stat()
        entries.append(Entry(file.stem, "index", status.st_size, samples, status.st_mtime, root))
    return sorted(entries, key=lambda entry: (-entry.bytes, entry.name))


def _index_file(name: str) -> Path:
    from layline.data.array_cache import cache_folder

    return cache_folder() / "index" / f"{name}.sqlite"


def parse_age(text: str) -> float:
    """Parse an age such as ``30d`` into seconds."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UserError(
            f"The age must be a number of hours, days or weeks, such as 30d; got {text!r}."
        )
    return float(match[1]) * _SECONDS[match[2]]
