"""``layline methods``: what there is to choose from."""

import json
from typing import TYPE_CHECKING, Any

import typer

from layline.cli.options import Json, Plugins

if TYPE_CHECKING:
    from layline.heads import HeadSpec

EXAMPLES = """
Examples:

  layline methods

  layline methods --json

  layline methods --plugin my_head.py
"""
_SHOWN = ("family", "summary", "reference", "decode")


def methods(as_json: Json = False, plugins: Plugins = None) -> None:
    """List the ordinal methods by family, each with what it is and where it comes from.

    A name goes wherever a method is asked for: heads.create(NAME, …), OrdinalClassifier(NAME).
    Those of plug-ins come last, with the package or file that they are of.
    """
    from layline.heads import HEADS
    from layline.utils.plugins import PluginError, load_plugins

    load_plugins(plugins or ())
    outside = list(HEADS.from_plugins())
    if as_json:
        entries = [_entry(name, spec) for name, spec in HEADS.builtin.items()]
        for name, found, owner in outside:
            about = {"error": str(found)} if isinstance(found, PluginError) else _entry(name, found)
            entries.append({"name": name, **about, "plugin": owner})
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max(map(len, [*HEADS.builtin, *(name for name, *_ in outside)])) + 2
    for family in dict.fromkeys(spec.family for spec in HEADS.builtin.values()):
        typer.echo(typer.style(family, bold=True))
        for name, spec in HEADS.builtin.items():
            if spec.family == family:
                typer.echo(f"  {name:{width}}{spec.summary}")
                limit = "" if spec.exports else "; cannot be exported"
                typer.echo(f"  {'':{width}}{spec.reference}; decode: {spec.decode}{limit}")
    if outside:
        typer.echo(typer.style("plug-ins", bold=True))
    for name, found, owner in outside:
        text = str(found) if isinstance(found, PluginError) else found.summary
        typer.echo(f"  {name:{width}}{text}")
        typer.echo(f"  {'':{width}}of {owner}")


def _entry(name: str, spec: "HeadSpec") -> dict[str, Any]:
    return {
        "name": name,
        **{field: getattr(spec, field) for field in _SHOWN},
        "export": spec.exports,
    }
