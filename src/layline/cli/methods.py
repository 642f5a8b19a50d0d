"""``layline methods``: list the ordinal methods."""

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


def methods(as_json: Json = False, plugins: Plugins = None) -> None:
    """List the ordinal methods by family, each with a summary and its source.

    Use a name wherever a method is expected: heads.create(NAME, …), OrdinalClassifier(NAME).
    Methods of plug-ins come last, with the package or file that offers them.
    """
    from layline.heads import HEADS
    from layline.utils.plugins import PluginError, load_plugins

    load_plugins(plugins or ())
    outside = list(HEADS.from_plugins())
    if as_json:
        entries = [_describe(name, spec) for name, spec in HEADS.builtin.items()]
        for name, spec, plugin in outside:
            about = {"error": str(spec)} if isinstance(spec, PluginError) else _describe(name, spec)
            entries.append({"name": name, **about, "plugin": plugin})
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
    for name, found, plugin in outside:
        typer.echo(f"  {name:{width}}{found if isinstance(found, PluginError) else found.summary}")
        typer.echo(f"  {'':{width}}from {plugin}")


def _describe(name: str, spec: "HeadSpec") -> dict[str, Any]:
    fields = {key: getattr(spec, key) for key in ("family", "summary", "reference", "decode")}
    return {"name": name, **fields, "export": spec.exports}
