"""Options that several commands take, how they become settings, and the exit codes."""

from pathlib import Path
from typing import Annotated, Any

import typer

INTERRUPTED = 130  # what a shell shows after Ctrl-C
SOME_FAILED = 3  # of many runs

Root = Annotated[
    Path | None, typer.Option("--root", help="Folder or file with the data.", show_default=False)
]
Classes = Annotated[
    str | None, typer.Option(help="Names of the classes, lowest first: low,mid,high.")
]
Label = Annotated[
    str | None, typer.Option(help="Column of the labels, in a table or a list of images.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with settings, as in a run's config.toml."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Any setting, such as training.epochs=10."
    ),
]
Decode = Annotated[
    str | None,
    typer.Option("--decode", help="mode (most accurate), median (least MAE) or mean."),
]
Json = Annotated[bool, typer.Option("--json", help="For programs instead of eyes.")]


def read_settings(config: Path | None, set_: list[str] | None) -> dict[str, Any]:
    """Read the file of settings, and lay the single ones over it."""
    from layline.training.config import combine, parse_settings, read_toml

    return combine(read_toml(config) if config else {}, parse_settings(set_ or []))


def settings(**values: Any) -> dict[str, Any]:
    """Put the options that were given into a tree, ``data__root`` at ``data.root``."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        if value is None:
            continue
        *sections, key = name.split("__")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[key] = value
    return tree
