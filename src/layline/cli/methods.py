"""``layline methods``: list the ordinal methods."""

import json
from itertools import groupby
from typing import Any

import typer

from layline.cli.options import Json, Plugins

EXAMPLES = """
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
    from layline.utils.registry import PluginError, load_plugins

    load_plugins(plugins or ())
    entries: list[dict[str, Any]] = []
    for name, spec, plugin in HEADS.describe():
        entry: dict[str, Any] = {"name": name}
        if isinstance(spec, PluginError):
            entry["error"] = str(spec)
        else:
            fields = ("family", "summary", "reference", "decode")
            entry |= {field: getattr(spec, field) for field in fields} | {"export": spec.exports}
        entries.append(entry | ({"plugin": plugin} if plugin else {}))
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max(len(entry["name"]) for entry in entries) + 2
    for heading, group in groupby(entries, lambda e: "plug-ins" if "plugin" in e else e["family"]):
        typer.echo(typer.style(heading, bold=True))
        for entry in group:
            origin = f"from {entry.get('plugin')}"
            if "plugin" not in entry:
                limit = "" if entry["export"] else "; cannot be exported"
                origin = f"{entry['reference']}; decode: {entry['decode']}{limit}"
            typer.echo(f"  {entry['name']:{width}}{entry.get('summary', entry.get('error'))}")
            typer.echo(f"  {'':{width}}{origin}")
