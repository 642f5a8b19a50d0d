"""``layline evaluate``: the numbers of a trained run, measured again."""

import json
from pathlib import Path
from typing import Annotated

import typer

from layline.cli.errors import explained
from layline.cli.options import ConfigFile, Decode, Root, Set, read_settings

EXAMPLES = """
Examples:

  layline evaluate runs/folder-hard-linear

  layline evaluate runs/folder-hard-linear --part validation --decode median
"""


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    part: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    decode: Decode = None,
    root: Root = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Write a line per sample to this CSV file.")
    ] = None,
    config: ConfigFile = None,
    set_: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs instead of eyes.")] = False,
) -> None:
    """Measure the best model of a run on a part of its data."""
    with explained():
        from rich.console import Console

        from layline.cli.results import show
        from layline.evaluation import write_predictions
        from layline.training.evaluate import evaluate_run
        from layline.training.run_folder import RunFolder

        console = Console(stderr=True)
        changes = read_settings(config, set_)
        found = evaluate_run(RunFolder(run), part, decode, root, console, changes)
        if predictions is not None:
            write_predictions(
                predictions,
                found.names,
                found.classes,
                found.log_probs,
                found.numbers["decode"],
                found.ranks,
            )
        if as_json:
            typer.echo(json.dumps(found.numbers, indent=2, ensure_ascii=False))
        else:
            show(found.numbers, Console())
