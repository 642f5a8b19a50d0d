"""Options that several commands take, how they become settings, and the exit codes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from layline.utils.errors import UserError

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
Group = Annotated[
    str | None, typer.Option(help="Column of what must stay in one part, such as a patient.")
]
GroupBy = Annotated[
    str | None,
    typer.Option(help="Regular expression that finds it in the path of an image instead."),
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
    typer.Option(
        "--decode",
        help="mode (most accurate), median (least MAE), mean, quadratic, or a CSV file of costs: "
        "a row for each true class, a column for each decision.",
    ),
]
Verify = Annotated[
    bool | None,
    typer.Option(
        "--verify",
        help="Read every file and all of a cache again, instead of trusting what is known of them.",
        show_default=False,
    ),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE|MODULE",
        help="Methods, features or sources of your own; may be repeated.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs instead of eyes.")]


def read_settings(config: Path | None, set_: list[str] | None) -> dict[str, Any]:
    """Read the file of settings, and lay the single ones over it."""
    from layline.training.config import check_sections, combine, parse_settings, read_toml

    written = read_toml(config) if config else {}
    check_sections(written)
    return combine(written, parse_settings(set_ or []))


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


def read_decode(text: str, classes: Callable[[], Sequence[str]]) -> "str | list[list[float]]":
    """Give the name of a decoding, or the costs that a CSV file has, with or without names.

    Args:
        text: What was given: a name, or a path.
        classes: Tells the classes, lowest first; asked only if the file names them.
    """
    if not text.endswith(".csv"):
        return text
    import csv

    with Path(text).expanduser().open(newline="", encoding="utf-8-sig") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    high, wide = len(rows), max(map(len, rows), default=0)
    both = high == wide > 0 and not _is_number(rows[0][0])  # costs are square
    header = rows.pop(0)[int(both) :] if both or high > wide else None
    side = [row.pop(0) for row in rows] if both or wide > high else None
    for names in filter(None, (header, side)):
        if names != list(known := classes()):
            raise UserError(
                f"decode must name the classes as they are, lowest first: {', '.join(known)}, got "
                f"{', '.join(names)} in {text}"
            )
    try:
        return [[float(cell) for cell in row] for row in rows]
    except ValueError as error:
        raise UserError(
            f"decode must be a file of costs, got {text} ({error}): numbers, a row for each true "
            "class, a column for each decision"
        ) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_share(text: str) -> float:
    """Read a share such as ``20%`` or ``0.2``."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"review must be a share such as 20% or 0.2, got {text}")
    return share
