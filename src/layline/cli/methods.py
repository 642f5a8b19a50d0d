"""``layline methods``: list the ordinal methods."""

import json
from typing import Any

import typer

from layline.cli.options import Json, Plugins

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
    from layline.utils.registry import PluginError, load_plugins

    load_plugins(plugins or ())
    entries = [_describe(name, spec) for name, spec in HEADS.builtin.items()]
    for name, found, plugin in HEADS.from_plugins():
        failed = isinstance(found, PluginError)
        about = {"name": name, "error": str(found)} if failed else _describe(name, found)
        entries.append({**about, "plugin": plugin})
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width, family = max(len(entry["name"]) for entry in entries) + 2, ""
    for entry in entries:
        first, second = entry.get("summary", entry.get("error")), f"from {entry.get('plugin')}"
        if "plugin" not in entry:
            limit = "" if entry["export"] else "; cannot be exported"
            second = f"{entry['reference']}; decode: {entry['decode']}{limit}"
        heading = "plug-ins" if "plugin" in entry else entry["family"]
        if heading != family:
            typer.echo(typer.style(heading, bold=True))
            family = heading
        typer.echo(f"  {entry['name']:{width}}{first}\n  {'':{width}}{second}")


def _describe(name: str, spec: Any) -> dict[str, Any]:
    fields = {key: getattr(spec, key) for key in ("family", "summary", "reference", "decode")}
    return {"name": name, **fields, "export": spec.exports}
