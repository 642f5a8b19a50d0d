"""``layline export``: write a trained model as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Plugins

EXAMPLES = """
layline export runs/photos --out model.onnx
layline export runs/photos --out model.onnx --coverage 0.95
"""


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a .safetensors model.")],
    out: Annotated[Path, typer.Option(help="The .onnx file to write.")],
    coverage: Annotated[
        float | None,
        typer.Option(help="Coverage of the range; by default 0.9 if calibration samples suffice."),
    ] = None,
    card: Annotated[
        bool, typer.Option("--card/--no-card", help="Write a model card README.md next to it.")
    ] = True,
    plugins: Plugins = None,
) -> None:
    """Export a model as an ONNX graph: from prepared samples to probabilities, a rank and a range.

    The graph is compared with the model before it is written. A model card is written next to it,
    unless there already is a README.md.
    """
    from layline.model.onnx_export import export as write
    from layline.reports.card import create_card
    from layline.utils.files import write_text
    from layline.utils.registry import load_plugins

    load_plugins(plugins or ())
    place, text = out.expanduser().with_name("README.md"), None
    card = card and (run / "test.json").is_file()
    if card and not place.exists():
        text = create_card(run)  # before the export: if a library is missing, nothing is written
    made = write(run, out, coverage)
    size = made.path.stat().st_size / 1e6
    typer.echo(f"{made.path}: {size:.3g} MB, outputs {', '.join(made.outputs)}")
    typer.echo(
        f"Compared with the model on {made.samples} random inputs: probabilities differ by at "
        f"most {made.difference:.1e}"
    )
    if made.coverage is not None:
        typer.echo(f"Ranges from low to high have a coverage of {made.coverage:.0%}")
    else:
        typer.echo("No ranges: the model has too few calibration samples")
    if text is not None:
        write_text(place, text)
        typer.echo(f"Model card: {place}")
    elif card:
        typer.echo(f"No model card: {place} already exists (layline card {run} --out FILE)")
