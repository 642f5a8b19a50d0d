"""``layline cache``: list and clear cached images, features and indexes of files.

Everything that is cleared is computed again when it is needed.
"""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich import filesize

from layline.cli.options import Json

if TYPE_CHECKING:
    from layline.data.array_cache import CacheEntry

EXAMPLES = """
layline cache                                             list the entries
layline cache clear                                       everything, after a question
layline cache clear --older-than 30 --yes
LAYLINE_CACHE=/scratch/layline layline train photos --cache
"""


def list_caches(context: typer.Context, as_json: Json = False) -> None:
    """List cached images and features: kind, size, last use, and of which data."""
    if context.invoked_subcommand is not None:
        return
    from layline.utils.files import cache_folder

    entries = _find_entries()
    if as_json:
        typer.echo(json.dumps([entry._asdict() for entry in entries], indent=2))
        return
    for entry in entries:
        samples = "" if entry.samples is None else f"{entry.samples:,}"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        size, root = filesize.decimal(entry.bytes), entry.root.encode(errors="backslashreplace")
        cells = f"{entry.name[:24]:24}  {entry.kind:10}  {size:>10}  {samples:>10}  {used}"
        typer.echo(f"{cells}  {root.decode()}".rstrip())
    total = filesize.decimal(sum(entry.bytes for entry in entries))
    typer.echo(f"{total if entries else 'Nothing'} in {cache_folder()}")


def clear(
    older_than: Annotated[
        float,
        typer.Option(metavar="DAYS", min=0, help="Only entries not used for this many days."),
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete cache entries; they are computed again when needed."""
    from layline.data.array_cache import ArrayCache
    from layline.data.image_cache import index_folder

    entries = _find_entries()
    latest = time.time() - older_than * 24 * 3600
    chosen = [entry for entry in entries if entry.used <= latest]
    if not chosen:
        typer.echo("Nothing to clear.")
        return
    size = filesize.decimal(sum(entry.bytes for entry in chosen))
    what = f"{len(chosen)} of {len(entries)} entries, {size}"
    if not yes:
        typer.confirm(f"Clear {what}?", abort=True)
    for entry in chosen:
        if entry.kind == "index":
            (index_folder() / f"{entry.name}.sqlite").unlink(missing_ok=True)
        else:
            ArrayCache().remove(entry.name)
    typer.echo(f"Cleared {what}.")


def _find_entries() -> "list[CacheEntry]":
    """List the entries of both kinds, the largest first."""
    from layline.data.array_cache import ArrayCache, CacheEntry
    from layline.data.image_cache import index_folder

    indexes = [(file.stem, file.stat()) for file in index_folder().glob("*.sqlite")]
    entries = [CacheEntry(name, "index", each.st_size, each.st_mtime) for name, each in indexes]
    return sorted(ArrayCache().entries() + entries, key=lambda entry: (-entry.bytes, entry.name))
