"""``layline methods``: what there is to choose from."""

import json

import typer

from layline.cli.options import Json

EXAMPLES = """
Examples:

  layline methods

  layline methods --json
"""
_SHOWN = ("family", "summary", "reference", "decode")


def methods(as_json: Json = False) -> None:
    """List the ordinal methods by family, each with what it is and where it comes from.

    A name goes wherever a method is asked for: heads.create(NAME, …), OrdinalClassifier(NAME).
    """
    from layline.heads import HEADS

    if as_json:
        entries = [
            {
                "name": name,
                **{field: getattr(spec, field) for field in _SHOWN},
                "export": "export" not in spec.unsupported,
            }
            for name, spec in HEADS.items()
        ]
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max(map(len, HEADS)) + 2
    for family in dict.fromkeys(spec.family for spec in HEADS.values()):
        typer.echo(typer.style(family, bold=True))
        for name, spec in HEADS.items():
            if spec.family == family:
                typer.echo(f"  {name:{width}}{spec.summary}")
                limit = "; cannot be exported" if "export" in spec.unsupported else ""
                typer.echo(f"  {'':{width}}{spec.reference}; decode: {spec.decode}{limit}")
