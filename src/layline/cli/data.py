"""``layline data``: list the data sources, and check whether training can run on some data."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from layline.cli.options import Classes, ConfigFile, Group, GroupBy, Json, Label, Plugins, Verify
from layline.utils.files import json_text
from layline.utils.registry import PluginError, load_plugins
from layline.utils.validation import UserError

LIST_EXAMPLES = """
layline data list
layline data list --json
"""
CHECK_EXAMPLES = """
layline data check photos                                 a folder per class
layline data check labels.csv --classes low,mid,high
layline data check historical-color --root DIR
layline data check image-aesthetics --root DIR --set category=urban
"""


def list_sources(as_json: Json = False, plugins: Plugins = None) -> None:
    """List the data sources, with a description and the origin of their data."""
    from layline.data import SOURCES

    load_plugins(plugins or ())
    entries: list[dict[str, Any]] = []
    for name, spec, plugin in SOURCES.describe():
        about: dict[str, Any] = {"summary": str(spec), "origin": ""}
        if not isinstance(spec, PluginError):
            fields = ("summary", "origin", "backbone", "partitions", "needs_root")
            about = {field: getattr(spec, field) for field in fields}
            about["options"] = SOURCES.options_of(name)
        entries.append({"name": name, **about, **({"plugin": plugin} if plugin else {})})
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max(len(entry["name"]) for entry in entries) + 2
    for entry in entries:
        origin = f"from {entry['plugin']}" if "plugin" in entry else entry["origin"]
        typer.echo(f"{entry['name']:{width}}{entry['summary']}")
        typer.echo(f"{'':{width}}{origin or 'your own data'}")


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
    import numpy as np
    from rich.console import Console

    from layline import data
    from layline.data.image_cache import describe_bad, find_bad
    from layline.training.callbacks import Reporter
    from layline.training.config import DataConfig, combine, parse_settings, read_toml, validate
    from layline.training.recipes import draft_config, fewest_for_splits

    load_plugins(plugins or ())
    flags = {"classes": classes, "label": label, "group": group, "group_by": group_by}
    options = parse_settings(single or [])
    section = options.pop("data", {})
    options |= {option: value for option, value in flags.items() if value is not None}
    written = read_toml(config).get("data", {}) if config else {}
    tree = combine(written, section, {"options": options})
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
    bad, names = find_bad(dataset.inputs), dataset.inputs.names
    why = f"{len(bad)} files are missing or damaged." if bad and not wanted.skip_bad else ""
    dataset = data.group_duplicates(data.check_files(dataset, skip_bad=True), duplicates)
    try:
        fewest = fewest_for_splits(draft_config({"data": combine(tree, own)}), is_open=True)
        seed, share = wanted.partition, wanted.calibration
        dataset = data.draw_splits(dataset, seed, share, fewest, wanted.per_class)
        dataset.check_complete()
    except UserError as error:
        why = str(error)
    counts = {
        split: np.bincount(dataset.ranks[index], minlength=len(dataset.classes)).tolist()
        for split, index in dataset.splits.by_name().items()
    }
    notes = [note for note in dataset.notes if not note.startswith("Not used:")]
    if as_json:
        found = dataset.duplicates
        about = {
            "source": name,
            "samples": len(dataset.inputs),
            "classes": list(dataset.classes),
            "counts": counts,
            "notes": notes,
            "can_run": not why,
            "why": why,
            "duplicates": found and {**found.facts(), "contradicting": found.contradicting},
            "bad": [{"name": names[place], "why": reason} for place, reason in bad.items()],
        }
        typer.echo(json_text(about, indent=2))
    else:
        rows = [("class", *counts), *zip(dataset.classes, *counts.values(), strict=True)]
        rows.append(("all", *map(sum, counts.values())))
        width = max(len(row[0]) for row in rows) + 2
        for first, *numbers in rows:
            typer.echo(f"{first:{width}}" + "".join(f"{number:>12}" for number in numbers))
        typer.echo(f"{len(dataset.inputs)} samples")
        for note in notes:
            typer.echo(f"note: {note}")
        typer.echo(f"Training cannot run on these data: {why}" if why else "Training can run.")
        if bad:
            typer.echo(describe_bad(names, bad))
    if why:
        raise typer.Exit(1)
