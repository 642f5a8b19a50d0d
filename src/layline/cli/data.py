"""``layline data``: list the data sources, and check whether training can run on some data."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import Classes, ConfigFile, Group, GroupBy, Json, Label, Plugins, Verify
from layline.utils.errors import UserError
from layline.utils.files import json_text
from layline.utils.plugins import PluginError, load_plugins

if TYPE_CHECKING:
    from layline.data import Dataset, SourceSpec

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
    """List the data sources, with a description and the origin of their data."""
    from layline.data import SOURCES

    load_plugins(plugins or ())
    outside = list(SOURCES.from_plugins())
    if as_json:
        entries = [_describe(name, spec) for name, spec in SOURCES.builtin.items()]
        for name, spec, owner in outside:
            is_error = isinstance(spec, PluginError)
            about = {"error": str(spec)} if is_error else _describe(name, spec)
            entries.append({"name": name, **about, "plugin": owner})
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    rows = [(name, s.summary, s.origin or "your own data") for name, s in SOURCES.builtin.items()]
    rows += [
        (name, str(s) if isinstance(s, PluginError) else s.summary, f"from {owner}")
        for name, s, owner in outside
    ]
    width = max(len(name) for name, *_ in rows) + 2
    for name, summary, origin in rows:
        typer.echo(f"{name:{width}}{summary}\n{'':{width}}{origin}")


def _describe(name: str, spec: "SourceSpec | Any") -> dict[str, Any]:
    from layline.data import options_of

    return {
        "name": name,
        **{field: getattr(spec, field) for field in _SHOWN},
        "options": options_of(name),
    }


def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder, a CSV, Excel or npz file, or the name of a source."
        ),
    ],
    root: Annotated[
        Path | None, typer.Option(help="Folder or file with the data of a named source.")
    ] = None,
    classes: Classes = None,
    label: Label = None,
    group: Group = None,
    group_by: GroupBy = None,
    partition: Annotated[
        int | None, typer.Option(help="Fold of a protocol, or random seed.", show_default="0")
    ] = None,
    duplicates: Annotated[
        str, typer.Option(help="Search for duplicate images: near, exact or off.")
    ] = "near",
    config: ConfigFile = None,
    single: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="An option of the source."),
    ] = None,
    as_json: Json = False,
    verify: Verify = None,
    plugins: Plugins = None,
) -> None:
    """Read the data, look at every new image, and report whether training can run on them.

    The exit code is 0 if it can, and 1 if it cannot.
    """
    from rich.console import Console

    from layline import data
    from layline.data.index import describe_bad, find_bad
    from layline.training.callbacks import Reporter
    from layline.training.config import DataConfig, combine, parse_settings, read_toml, validate

    load_plugins(plugins or ())
    flags = {"classes": classes, "label": label, "group": group, "group_by": group_by}
    given: dict[str, Any] = parse_settings(single or [])
    section = given.pop("data", {})
    given |= {option: value for option, value in flags.items() if value is not None}
    written = read_toml(config).get("data", {}) if config else {}
    tree = combine(written, section, {"options": given})
    name, root, note = data.find_source(name, root, data.names(), tree["options"])
    if note:
        typer.echo(note, err=True)
    own = {"source": name, "root": root, "partition": partition}
    own = {key: value for key, value in own.items() if value is not None}
    wanted = validate(DataConfig, combine(tree, own))
    console = Console(stderr=True)
    progress = Reporter(console, shown=console.is_terminal).progress
    dataset = data.read(name, wanted.root, wanted.partition, **wanted.options)
    with progress("Looking at the images", len(dataset.inputs)) as count:
        dataset = data.index_files(dataset, count, bool(verify))
    is_file = isinstance(dataset.inputs, data.Images) and not dataset.inputs.decoded
    bad = find_bad(dataset.inputs) if is_file else {}  # type: ignore[arg-type]
    names = dataset.inputs.names
    why = f"{len(bad)} files are missing or damaged." if bad and not wanted.skip_bad else ""
    dataset = data.group_duplicates(data.check_files(dataset, skip_bad=True), duplicates)
    try:
        dataset = data.draw_splits(dataset, wanted.partition, wanted.calibration)
        dataset.check_complete()
    except UserError as error:
        why = str(error)
    facts = _count(dataset, why)
    if as_json:
        found = dataset.duplicates
        report = found and {**found.facts(), "contradicting": found.contradicting}
        listed = [{"name": names[place], "why": reason} for place, reason in bad.items()]
        about = {"source": name, **facts, "duplicates": report, "bad": listed}
        typer.echo(json_text(about, indent=2))
    else:
        _show(facts)
        if bad:
            typer.echo(describe_bad(names, bad))
    if why:
        raise typer.Exit(1)


def _count(dataset: "Dataset", why: str) -> dict[str, Any]:
    import numpy as np

    splits = dataset.splits.by_name()
    return {
        "samples": len(dataset.inputs),
        "classes": list(dataset.classes),
        "counts": {
            name: np.bincount(dataset.ranks[index], minlength=len(dataset.classes)).tolist()
            for name, index in splits.items()
        },
        "notes": [note for note in dataset.notes if not note.startswith("Not used:")],
        "can_run": not why,
        "why": why,
    }


def _show(facts: dict[str, Any]) -> None:
    counts = facts["counts"]
    rows = [("class", *counts), *zip(facts["classes"], *counts.values(), strict=True)]
    rows.append(("all", *map(sum, counts.values())))
    width = max(len(row[0]) for row in rows) + 2
    for first, *numbers in rows:
        typer.echo(f"{first:{width}}" + "".join(f"{number:>12}" for number in numbers))
    typer.echo(f"{facts['samples']} samples")
    for note in facts["notes"]:
        typer.echo(f"note: {note}")
    why = facts["why"]
    typer.echo(f"Training cannot run on these data: {why}" if why else "Training can run.")
