"""``layline data``: which sources of data there are, and whether files are as a source needs them.

Exit codes of ``check``: 0 if the protocol can be run, 1 if it cannot, 2 if the source's name or a
setting is not understood.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np
import typer

from layline import data
from layline.amounts import amount
from layline.cli.options import ConfigFile, read_settings, settings
from layline.registry import check_known

if TYPE_CHECKING:
    from layline.data.images.check import BadImage
    from layline.training.config import Data

LIST_EXAMPLES = """
Examples:

  layline data list

  layline data list --json
"""
CHECK_EXAMPLES = """
Examples:

  layline data check historical-color --root DIR

  layline data check image-aesthetics --root DIR --set category=urban
"""

app = typer.Typer(help="The sources of data.", no_args_is_help=True)

_SHOWN = ("summary", "origin", "features", "partitions", "needs_root")
_Json = Annotated[bool, typer.Option("--json", help="For programs instead of eyes.")]


@app.command("list", epilog=LIST_EXAMPLES)
def list_sources(as_json: _Json = False) -> None:
    """List the sources, each with what it is and where its data come from."""
    if as_json:
        entries = [
            {"name": name, **{field: getattr(spec, field) for field in _SHOWN}}
            | {"options": data.options_of(name)}
            for name, spec in data.SOURCES.items()
        ]
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max(map(len, data.SOURCES)) + 2
    for name, spec in data.SOURCES.items():
        typer.echo(f"{name:{width}}{spec.summary}")
        typer.echo(f"{'':{width}}{spec.origin or 'your own data'}")


@app.command(epilog=CHECK_EXAMPLES)
def check(
    name: Annotated[str, typer.Argument(help="A source, see layline data list.")],
    root: Annotated[Path | None, typer.Option(help="The folder or file with the data.")] = None,
    partition: Annotated[
        int | None, typer.Option(help="Which official fold, or the seed.", show_default="0")
    ] = None,
    config: ConfigFile = None,
    single: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="An option of the source; data.options.OPTION is the same.",
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Read the data, decode every image, and say whether training can run on them."""
    try:
        check_known("source", name, data.names())
        wanted = _settings(name, root, partition, config, single)
    except (ValueError, OSError, ImportError) as error:
        _stop(error, code=2)
    try:
        dataset = data.read(name, wanted.root, wanted.partition, **wanted.options)
    except (ValueError, OSError, ImportError) as error:
        _stop(error, code=1)
    bad = find_bad(dataset.inputs) if isinstance(dataset.inputs, data.Images) else []
    found = _judge(dataset, bad)
    if as_json:
        listed = [{"name": one.name, "why": one.why} for one in bad]
        report = {"source": name, **found, "bad": listed}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _show(found, bad)
    if not found["can_run"]:
        raise typer.Exit(1)


def _settings(
    name: str,
    root: Path | None,
    partition: int | None,
    config: Path | None,
    single: list[str] | None,
) -> "Data":
    """Put together what is known of the data; an option's short name is that of the source."""
    from layline.training.settings import configuration

    given = read_settings(None, single)
    section = {"data": given.pop("data")} if "data" in given else {}
    own = settings(data__source=name, data__root=root, data__partition=partition)
    return configuration(
        read_settings(config, None), section, {"data": {"options": given}}, own
    ).data


def _stop(error: Exception, code: int) -> NoReturn:
    typer.echo(f"layline: {error}", err=True)
    raise typer.Exit(code)


def find_bad(images: data.Images) -> list["BadImage"]:
    """Decode every image; a terminal sees how far it is."""
    from layline.data.images import check as files

    def show(done: int, *_: int) -> None:
        sys.stderr.write(f"\r{done}/{len(images)} images")
        sys.stderr.flush()

    live = sys.stderr.isatty()
    # a JPEG is read to its end at any scale, and a small one is quicker
    bad = files.find_bad(images, at_least=32, progress=show if live else None)
    if live:
        sys.stderr.write("\r\033[K")
    return list({one.name: one for one in bad}.values())  # a list may name a file twice


def _judge(dataset: data.Dataset, bad: Sequence["BadImage"]) -> dict[str, Any]:
    """Count the samples and say whether they are enough."""
    missing = sum(one.why.startswith("missing") for one in bad)
    are = "is" if len(bad) == 1 else "are"
    why = f"{amount(len(bad), 'file')} {are} missing or unreadable" if bad else ""
    try:
        dataset.check_complete()
    except ValueError as error:
        why = str(error)
    return {
        "samples": len(dataset.inputs),
        "classes": list(dataset.classes),
        "counts": {
            name: np.bincount(dataset.ranks[part], minlength=len(dataset.classes)).tolist()
            for name, part in dataset.partition.parts().items()
        },
        "missing": missing,
        "unreadable": len(bad) - missing,
        "notes": list(dataset.notes),
        "can_run": not why,
        "why": why,
    }


def _show(found: dict[str, Any], bad: Sequence["BadImage"]) -> None:
    counts = found["counts"]
    rows = [("class", *counts), *zip(found["classes"], *counts.values(), strict=True)]
    rows.append(("all", *map(sum, counts.values())))
    width = max(len(row[0]) for row in rows) + 2
    for first, *numbers in rows:
        typer.echo(f"{first:{width}}" + "".join(f"{number:>12}" for number in numbers))
    typer.echo(
        f"{amount(found['samples'], 'sample')}, {amount(found['missing'], 'file')} missing, "
        f"{found['unreadable']} unreadable"
    )
    if bad:
        from layline.data.images.check import describe_bad

        typer.echo(describe_bad(bad, limit=20))
    for note in found["notes"]:
        typer.echo(f"note: {note}")
    typer.echo(f"cannot be run: {found['why']}" if found["why"] else "the protocol can be run")
