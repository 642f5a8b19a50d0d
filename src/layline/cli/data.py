"""``layline data``: which sources of data there are, and whether files are as a source needs them.

Exit codes of ``check``: 0 if the protocol can be run, 1 if it cannot, 2 if the source or a
setting is not understood.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from layline import data
from layline.cli.options import (
    Classes,
    ConfigFile,
    Group,
    GroupBy,
    Json,
    Label,
    Plugins,
    Verify,
    read_settings,
    settings,
)
from layline.utils.files import json_text
from layline.utils.plugins import PluginError, load_plugins

if TYPE_CHECKING:
    from layline.data.index import BadImage
    from layline.training.config import DataConfig

LIST_EXAMPLES = """
Examples:

  layline data list

  layline data list --json
"""
CHECK_EXAMPLES = """
Examples:

  layline data check photos                                 a folder per class

  layline data check labels.csv --classes low,mid,high

  layline data check historical-color --root DIR

  layline data check image-aesthetics --root DIR --set category=urban
"""

_SHOWN = ("summary", "origin", "backbone", "partitions", "needs_root")


def list_sources(as_json: Json = False, plugins: Plugins = None) -> None:
    """List the sources, each with what it is and where its data come from."""
    load_plugins(plugins or ())
    outside = list(data.SOURCES.from_plugins())
    if as_json:
        entries = [_entry(name, spec) for name, spec in data.SOURCES.builtin.items()]
        for name, found, owner in outside:
            about = {"error": str(found)} if isinstance(found, PluginError) else _entry(name, found)
            entries.append({"name": name, **about, "plugin": owner})
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max(map(len, [*data.SOURCES.builtin, *(name for name, *_ in outside)])) + 2
    for name, spec in data.SOURCES.builtin.items():
        typer.echo(f"{name:{width}}{spec.summary}")
        typer.echo(f"{'':{width}}{spec.origin or 'your own data'}")
    for name, found, owner in outside:
        text = str(found) if isinstance(found, PluginError) else found.summary
        typer.echo(f"{name:{width}}{text}")
        typer.echo(f"{'':{width}}of {owner}")


def _entry(name: str, spec: data.SourceSpec) -> dict[str, Any]:
    shown = {field: getattr(spec, field) for field in _SHOWN}
    return {"name": name, **shown, "options": data.options_of(name)}


def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, CSV or npz file, which is recognised, or a name of layline data list.",
        ),
    ],
    root: Annotated[
        Path | None, typer.Option(help="The folder or file with the data of a named source.")
    ] = None,
    classes: Classes = None,
    label: Label = None,
    group: Group = None,
    group_by: GroupBy = None,
    partition: Annotated[
        int | None, typer.Option(help="Which official fold, or the seed.", show_default="0")
    ] = None,
    duplicates: Annotated[
        str | None,
        typer.Option(
            help="Which duplicate images to keep in one split: exact, near, or off.",
            show_default="exact",
        ),
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
    as_json: Json = False,
    verify: Verify = None,
    plugins: Plugins = None,
) -> None:
    """Read the data, decode every image that is new, and say whether training can run on them."""
    try:
        load_plugins(plugins or ())
        given = read_settings(None, single)
        flags = {"classes": classes, "label": label, "group": group, "group_by": group_by}
        given |= {option: value for option, value in flags.items() if value is not None}
        images = given.get("images")
        place = None if images is None else Path(str(images)).expanduser()
        name, root, sentence = data.find_source(name, root, data.names(), place, given.get("sheet"))
        own = {
            "data__partition": partition,
            "data__duplicates": duplicates,
            "data__verify": verify or None,
        }
        wanted = _settings(name, root, own, config, given)
    except (ValueError, OSError) as error:
        typer.echo(f"layline: {error}", err=True)
        raise typer.Exit(2) from None
    if sentence:
        typer.echo(sentence, err=True)
    dataset = data.read(name, wanted.root, wanted.partition, **wanted.options)
    bad: list[BadImage] = []
    if isinstance(dataset.inputs, data.Images):
        dataset, bad = _look_at_images(dataset, wanted)
    found = _findings(dataset, bad, wanted.skip_bad)
    if as_json:
        listed = [{"name": one.name, "why": one.why} for one in bad]
        report = {"source": name, **found, "bad": listed}
        typer.echo(json_text(report, indent=2))
    else:
        _show_findings(found, bad)
    if not found["can_run"]:
        raise typer.Exit(1)


def _settings(
    name: str,
    root: Path | None,
    own: dict[str, Any],
    config: Path | None,
    given: dict[str, Any],
) -> "DataConfig":
    """Put together what is known of the data; an option's short name is that of the source."""
    from layline.training.recipes import resolve_config

    section = {"data": given.pop("data")} if "data" in given else {}
    flags = settings(data__source=name, data__root=root, **own)
    return resolve_config(
        read_settings(config, None), section, {"data": {"options": given}}, flags
    ).data


def _look_at_images(
    dataset: data.Dataset, wanted: "DataConfig"
) -> tuple[data.Dataset, list["BadImage"]]:
    """Find copies, and images that cannot be decoded; a terminal sees how far it is."""
    from rich.console import Console

    from layline.data.index import find_bad
    from layline.training.assembly import with_copies, with_index
    from layline.training.display import Reporter

    console = Console(stderr=True)
    say = Reporter(console, shown=console.is_terminal)
    dataset = with_copies(with_index(dataset, say, wanted.verify), wanted)
    images = dataset.inputs
    assert isinstance(images, data.Images)  # whoever calls it has seen to that
    with say.progress("images", len(images)) as progress:
        # a JPEG is read to its end at any scale, and a small one is quicker
        bad = find_bad(images, at_least=32, progress=progress)
    if wanted.skip_bad:
        dataset = dataset.drop(one.index for one in bad)
    return dataset, list({one.name: one for one in bad}.values())  # a list may name a file twice


def _findings(dataset: data.Dataset, bad: Sequence["BadImage"], left_out: bool) -> dict[str, Any]:
    """Count the samples and say whether they are enough; bad ones may be left out already."""
    from layline.training.display import amount

    missing = sum(one.why.startswith("missing") for one in bad)
    are = "is" if len(bad) == 1 else "are"
    why = f"{amount(len(bad), 'file')} {are} missing or unreadable" if bad and not left_out else ""
    try:
        dataset.check_complete()
    except ValueError as error:
        why = str(error)
    return {
        "samples": len(dataset.inputs),
        "classes": list(dataset.classes),
        "counts": {
            name: np.bincount(dataset.ranks[part], minlength=len(dataset.classes)).tolist()
            for name, part in dataset.splits.by_name().items()
        },
        "missing": missing,
        "unreadable": len(bad) - missing,
        **({} if dataset.duplicates is None else {"copies": dataset.duplicates.report()}),
        "notes": list(dataset.notes),
        "can_run": not why,
        "why": why,
    }


def _show_findings(found: dict[str, Any], bad: Sequence["BadImage"]) -> None:
    from layline.data.index import describe_bad
    from layline.training.display import amount

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
        typer.echo(describe_bad(bad))
    for note in found["notes"]:
        typer.echo(f"note: {note}")
    typer.echo(f"cannot be run: {found['why']}" if found["why"] else "the protocol can be run")
