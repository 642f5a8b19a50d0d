"""From a recipe, a TOML file and single settings to one configuration, later ones first."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import ValidationError

from layline import heads
from layline.registry import check_known, find
from layline.training.config import RECIPES, Config, Section

Tree = dict[str, Any]
S = TypeVar("S", bound=Section)


def combine(*trees: Mapping[str, Any]) -> Tree:
    """Lay settings over each other: the last one that names a key decides."""
    result: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            below = result.get(key)
            both = isinstance(below, Mapping) and isinstance(value, Mapping)
            result[key] = combine(below, value) if both else value  # type: ignore[arg-type]
    return result


def configuration(*trees: Mapping[str, Any]) -> Config:
    """Make the configuration from settings, the recipe that they name below them.

    Args:
        *trees: Settings by section, such as ``{"training": {"epochs": 3}}``; later ones decide.
    """
    wanted = combine(*trees)
    name = wanted.get("recipe", "paper")
    recipe = find("recipe", name, RECIPES)
    head = wanted.get("head", {})
    method = head.get("method", "hard-linear") if isinstance(head, Mapping) else None
    if name == "released" and method in heads.HEADS:
        recipe = combine(recipe, {"head": {"options": dict(heads.HEADS[method].released)}})
    config = validated(Config, combine(recipe, wanted))
    check_known("head.method", config.head.method, heads.HEADS)
    return config


def validated(kind: type[S], tree: Mapping[str, Any]) -> S:
    """Make a section from a tree; what is wrong with it is said in a sentence."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ValueError(_sentence(error, kind)) from None


def read_toml(path: Path) -> Tree:
    """Read settings from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"config must be a file, got {path}: it is not there") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config must be TOML, got {path}: {error}") from None


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
            raise ValueError(f"--set must be key=value, got {setting!r}: write training.epochs=10")
        branch: Any = parse_value(text.strip())
        for name in reversed(path):
            branch = {name: branch}
        tree = combine(tree, branch)
    return tree


def parse_value(text: str) -> Any:
    """Read a value as TOML, and as plain text where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sentence(error: ValidationError, kind: type[Section]) -> str:
    """Say the first thing that is wrong, and how many more there are."""
    first, *more = error.errors()
    name = ".".join(map(str, first["loc"]))
    says_so = first["type"] in ("missing", "extra_forbidden", "value_error")  # the last: our own
    got = "" if says_so else f", got {first['input']!r}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"is no setting; {_near(first['loc'], kind)}"
    rest = f" (and {len(more)} more)" if more else ""
    return f"{name}: {message}{got}{rest}"


def _near(location: tuple[int | str, ...], kind: type[Section]) -> str:
    section: Any = kind
    for name in location[:-1]:
        if isinstance(name, str):
            section = section.model_fields[name].annotation
        else:  # one of a list
            (section,) = get_args(section)
    return "known are " + ", ".join(section.model_fields)
