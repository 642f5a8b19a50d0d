"""Grids as files, and what the command lays over them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from layline.experiments.grid import Grid
from layline.training.settings import Tree, combine, parse_settings, read_toml, validated


def parse_tune(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read what to tune, such as ``training.head_learning_rate=[0.01, 0.001]``."""
    tune = {}
    for text in texts:
        key = text.partition("=")[0].strip()
        value: Any = parse_settings([text])
        for name in key.split("."):
            value = value[name]
        if not isinstance(value, list):
            raise ValueError(
                f"--tune must be a setting with a list of values, got {text!r}: "
                f"write {key}=[{value}, …]"
            )
        tune[key] = value
    return tune


def read_grid(
    file: Path | None,
    data_folder: Path | None,
    given: Tree,
    settings: Tree,
    tune: dict[str, list[Any]],
) -> Grid:
    """Put a grid together.

    Args:
        file: TOML file with the grid, if there is one.
        data_folder: Where the relative roots of that file are, if not in the current folder.
        given: Parts of the grid that decide over those of the file.
        settings: Settings of every run, laid over those of the file.
        tune: What to tune, laid over that of the file.
    """
    tree = read_toml(file) if file is not None else {}
    if data_folder is not None:
        for entry in tree.get("data", []):
            if "root" in entry:
                entry["root"] = str(data_folder / entry["root"])
    tree = {**tree, **given}
    for key, more in (("settings", settings), ("tune", tune)):
        if more:
            tree[key] = combine(tree.get(key, {}), more)
    if not tree.get("data"):
        raise ValueError("SOURCES must be given: photo-quality needs no data, or take a --grid")
    return validated(Grid, tree)


def to_toml(grid: Grid) -> str:
    """Write a grid out in full; what is None is left out."""
    return tomli_w.dumps(grid.model_dump(mode="json", exclude_none=True))
