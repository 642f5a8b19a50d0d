"""``layline cache``: list and clear cached images, features and indexes of files.

Everything that is cleared is computed again when it is needed.
"""

import json
import re
import time
from typing import Annotated, Any

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
_SECONDS = {"h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}


def list_caches(context: typer.Context, as_json: Json = False) -> None:
    """List cached images and features: kind, size, last use, and of which data."""
    if context.invoked_subcommand is not None:
        return
    from layline.data.array_cache import cache_folder

    entries = find_entries()
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    for entry in entries:
        samples = "" if entry["samples"] is None else f"{entry['samples']:,}"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["used"]))
        size, root = format_bytes(entry["bytes"]), entry["root"].encode(errors="backslashreplace")
        cells = f"{entry['name'][:24]:24}  {entry['kind']:10}  {size:>10}  {samples:>10}  {used}"
        typer.echo(f"{cells}  {root.decode()}".rstrip())
    total = format_bytes(sum(entry["bytes"] for entry in entries))
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
    from layline.data.array_cache import ArrayCache
    from layline.data.index import index_folder

    entries = find_entries()
    for name in names or ():
        if not any(entry["name"].startswith(name) for entry in entries):
            raise UserError(f"There is no cache entry {name!r}.")
    latest = None if older_than is None else time.time() - parse_age(older_than)
    chosen = [
        entry
        for entry in entries
        if (not names or entry["name"].startswith(tuple(names)))
        and (latest is None or entry["used"] < latest)
    ]
    if not chosen:
        typer.echo("Nothing to clear.")
        return
    size = format_bytes(sum(entry["bytes"] for entry in chosen))
    what = f"{len(chosen)} of {len(entries)} entries, {size}"
    if not yes and not typer.confirm(f"Clear {what}?"):
        typer.echo("Nothing was cleared.")
        return
    for entry in chosen:
        if entry["kind"] == "index":
            (index_folder() / f"{entry['name']}.sqlite").unlink(missing_ok=True)
        else:
            ArrayCache().remove(entry["name"])
    typer.echo(f"Cleared {what}.")


def find_entries() -> list[dict[str, Any]]:
    """Describe all entries, the largest first."""
    from layline.data.array_cache import ArrayCache
    from layline.data.index import describe_index, index_folder

    keys = ("name", "kind", "bytes", "samples", "used", "root")
    rows: list[tuple[Any, ...]] = []
    for array in ArrayCache().entries():
        kind = array.key.partition("-")[0] if array.complete else "unfinished"
        samples, root = array.about.get("samples"), str(array.about.get("root", ""))
        rows.append((array.key, kind, array.size, samples, array.used, root))
    for file in index_folder().glob("*.sqlite"):
        root, samples = describe_index(file) or ("", None)
        rows.append((file.stem, "index", file.stat().st_size, samples, file.stat().st_mtime, root))
    rows.sort(key=lambda row: (-row[2], row[0]))
    return [dict(zip(keys, row, strict=True)) for row in rows]


def parse_age(text: str) -> float:
    """Parse an age such as ``30d`` into seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdw])", text.strip())
    if match is None:
        raise UserError(
            f"The age must be a number of hours, days or weeks, such as 30d; got {text!r}."
        )
    return float(match[1]) * _SECONDS[match[2]]
