"""``layline demo``: the method in five minutes, without any data of your own."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import ConfigFile, Set, read_settings
from layline.cli.report import write_after_training

if TYPE_CHECKING:
    from rich.console import Console

    from layline.training.run_folder import RunFolder

# A convnet from scratch is slow to tell classes apart, and in two dimensions a learned length of
# the line would shrink meanwhile; so it is fixed here.
METHODS: dict[str, dict[str, Any]] = {
    "hard-linear": {"norm": 3.0},
    "hard-semicircular": {},
    "soft-poisson": {},
    "soft-binomial": {},
    "classification": {},
}
EXAMPLES = """
Examples:

  layline demo

  layline demo --out pictures --epochs 4
"""
_SHOWN = {"accuracy": "accuracy", "mae": "MAE", "within_one": "within one", "qwk": "QWK"}


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the runs and pictures.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    config: ConfigFile = None,
    set_: Set = None,
) -> None:
    """Train four proxy methods and a classifier on photo quality, in two dimensions.

    The recipe is the paper's, with rates and a schedule for so short a training. Prints a table of
    test numbers, and draws where the classes lie. A run that is already in the folder is not
    trained again.
    """
    from rich.console import Console

    from layline.training.run_folder import RunFolder

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("layline demo must run as one process, got several: it is small")
    console, results = Console(stderr=True), {}
    wanted = {"training": {"epochs": epochs, "seed": seed}}
    changes = read_settings(config, set_)
    for method in METHODS:
        console.print(f"[bold]{method}[/bold]")
        folder = RunFolder(out / method)
        results[method] = _train(folder, method, [wanted, changes], console)
        _draw_layout(folder, out / f"{method}.png", results[method])
        write_after_training(folder, console)
    _show_table(results, out)


def _train(
    folder: "RunFolder", method: str, settings: list[dict[str, Any]], console: "Console"
) -> dict[str, Any]:
    """Train a method, or go on with it."""
    from layline.training.recipes import configuration, resolved
    from layline.training.run import train

    config = resolved(
        configuration(
            {
                "recipe": "paper",  # but for the rates and their schedule, below
                "data": {"source": "photo-quality", "augmentation": "flip"},
                "features": {"name": "convnet"},
                "head": {"method": method, "dim": 2, "options": METHODS[method]},
                # in so few steps free proxies find their order at a high rate only
                "training": {
                    "learning_rate": 0.003,
                    "head_learning_rate": 0.1,
                    "schedule": "cosine",
                    "warmup_epochs": 1,
                },
            },
            *settings,
        )
    )
    if folder.config.exists() and folder.read_config() != config:
        raise ValueError(
            f"out must be new, or made with the same options, got {folder.path}: it has a run "
            "with others"
        )
    return train(config, folder, console) or {}  # only other processes get none


def _draw_layout(folder: "RunFolder", path: Path, numbers: dict[str, Any]) -> None:
    from layline.reports.printed_figures import layout_plot, save_figure
    from layline.reports.run_record import read_run

    run = read_run(folder.path)
    if run.test_layout is not None:  # which --set report.enabled=false leaves out
        title = f"{run.config.head.method}: {numbers['samples']} test images"
        title = f"{title}, MAE {numbers['mae']:.2f}"
        save_figure(layout_plot(title, run.test_layout, run.classes), path)


def _show_table(results: dict[str, dict[str, Any]], out: Path) -> None:
    first = next(iter(results.values()))
    typer.echo(f"Photo quality in six levels: {first['samples']} test images, decode mode\n")
    typer.echo(f"{'method':20}" + "".join(f"{title:>12}" for title in _SHOWN.values()))
    for method, numbers in results.items():
        row = "".join(f"{numbers['by_decoding']['mode'][key]:12.3f}" for key in _SHOWN)
        typer.echo(f"{method:20}{row}")
    typer.echo(f"\nPictures of the layouts: {out}/*.png, reports: {out}/*/report.html")
