"""Settings by section: read from TOML or ``key=value``, laid over each other, and written out."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from layline.training.config import Config, Section, Tree
from layline.utils.errors import UserError


def combine(*trees: Mapping[str, Any]) -> Tree:
    """Lay settings over each other: the last one that names a key decides."""
    result: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            below = result.get(key)
            both = isinstance(below, Mapping) and isinstance(value, Mapping)
            result[key] = combine(below, value) if both else value  # type: ignore[arg-type]
    return result


def setting_at(tree: Mapping[str, Any], path: str) -> Any:
    """Look a setting up by its path, such as ``data.root``; None where there is none."""
    value: Any = tree
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def check_sections(tree: Mapping[str, Any]) -> None:
    """Refuse a value in the place of a section, which other settings would silently replace."""
    for name, kind in Config.model_fields.items():
        section = tree.get(name, {})
        if not (isinstance(kind.annotation, type) and issubclass(kind.annotation, Section)):
            continue
        places = {name: section}
        if isinstance(section, Mapping) and "options" in section:
            places[f"{name}.options"] = section["options"]
        for place, value in places.items():
            if not isinstance(value, Mapping):
                raise UserError(
                    f"{place} must be a section of settings, got {value!r}: write "
                    f"{place}.NAME=VALUE"
                )


def read_toml(path: Path) -> Tree:
    """Read settings from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"config must be a file, got {path}: it is not there") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"config must be TOML, got {path}: {error}") from None


def to_toml(config: Config) -> str:
    """Write a configuration out in full; what is None is left out."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def parse_settings(settings: Iterable[str]) -> Tree:
    """Read settings such as ``training.epochs=10`` into a tree.

    A value is read as TOML (a number, true, a list), and as plain text where it is none.
    """
    tree: Tree = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise UserError(f"--set must be key=value, got {setting!r}: write training.epochs=10")
        branch: Any = _toml_value(text.strip())
        for name in reversed(path):
            branch = {name: branch}
        check_sections(branch)
        tree = combine(tree, branch)
    return tree


def _toml_value(text: str) -> Any:
    """Read a value as TOML, and as plain text where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
