"""``layline export``: a trained model as one file that runs without this package."""

from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Plugins

EXAMPLES = """
Examples:

  layline export runs/photos-arc --out model.onnx

  layline export runs/photos-arc --out model.onnx --coverage 0.95

  layline export runs/photos-arc --out model.pt2 --format torch
"""


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a .safetensors model.")],
    out: Annotated[Path, typer.Option(help="The file: .onnx, or .pt2 for torch.")],
    format_: Annotated[
        str, typer.Option("--format", help="onnx, or torch for a program of torch.export.")
    ] = "onnx",
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Share of samples whose truth the range from low to high shall hold; the usual "
            "one, where the model was calibrated for it, if not given."
        ),
    ] = None,
    opset: Annotated[
        int | None, typer.Option(min=1, help="Version of ONNX's operators.", show_default=False)
    ] = None,
    card: Annotated[
        bool, typer.Option("--card/--no-card", help="Write a model card README.md beside it.")
    ] = True,
    plugins: Plugins = None,
) -> None:
    """Write a model as one graph: from prepared samples to probabilities, a rank and a range.

    It is checked against the model on samples of the run before it is written. Beside it comes a
    model card, unless there is a README.md already.
    """
    from layline.model.onnx_export import export as write
    from layline.utils.memory import in_words

    made = write(run, out, format_, coverage, opset, plugins=plugins or ())
    size = in_words(made.path.stat().st_size)
    typer.echo(f"{made.path}: {size}, gives {', '.join(made.outputs)}")
    near = ""
    if made.other_ranks:
        near = f"; {made.other_ranks} so near to a bound that they are decided otherwise"
    typer.echo(
        f"Checked on {made.samples} {made.checked_on}: probabilities differ by at most "
        f"{made.difference:.1e}{near}"
    )
    if made.coverage is not None:
        typer.echo(f"low and high hold the truth for {made.coverage:.0%} of samples of this kind")
    else:
        typer.echo(f"No low and high: {made.why_no_range}")
    if card and (run / "test.json").is_file():
        from layline.model.card import write_card

        place = made.path.with_name("README.md")
        if place.exists():
            typer.echo(f"No model card: {place} is there already (layline card {run} --out FILE)")
        else:
            write_card(run, place)
            typer.echo(f"Model card: {place}")
