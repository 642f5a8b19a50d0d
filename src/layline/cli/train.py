"""``layline train``: from data to a tested model."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from layline.cli.evaluate import show_numbers
from layline.cli.options import INTERRUPTED, ConfigFile, Root, Set, read_settings, settings
from layline.cli.report import write_after_training

EXAMPLES = """
Examples:

  layline train photo-quality                               needs no data, takes a few minutes

  layline train folder --root photos                        one folder per class

  layline train folder --root photos --classes low,mid,high --method soft-poisson

  layline train csv --root labels.csv --features tf_efficientnet_lite0 --weights bundled --freeze

  layline train --resume runs/folder-hard-linear            after a stop of any kind
"""
# What may change when a run goes on: nothing that would make it another run.
_CHANGEABLE = {
    "training": {"epochs", "patience", "checkpoint_minutes"},
    "data": {"workers", "root"},
    "report": {"enabled", "mistakes"},
}


def train(
    source: Annotated[
        str | None, typer.Argument(help="Where samples come from, see layline data list.")
    ] = None,
    root: Root = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of the classes, lowest first: low,mid,high.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="See layline methods.")] = None,
    features: Annotated[
        str | None, typer.Option(help="mlp, convnet, or any model of timm.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="none, imagenet, bundled, or a file.")] = None,
    freeze: Annotated[
        bool | None, typer.Option("--freeze", help="Train on frozen features, extracted once.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension of the features.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training samples.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples in a step, altogether.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, order and augmentation.")] = None,
    partition: Annotated[
        int | None, typer.Option(help="Which official fold, or the seed of a random split.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="paper, or released: the authors' code.")
    ] = None,
    cache: Annotated[
        bool | None, typer.Option("--cache", help="Keep decoded images for later epochs and runs.")
    ] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="Leave out files that cannot be decoded.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that decode images.")] = None,
    track: Annotated[str | None, typer.Option(help="tensorboard, mlflow or wandb.")] = None,
    report: Annotated[
        bool | None, typer.Option("--report/--no-report", help="Write report.html at the end.")
    ] = None,
    config: ConfigFile = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run, a new one.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Folder of a run to go on with.")] = None,
) -> None:
    """Train a model, test it, and write all of it into the folder of the run."""
    given = settings(
        data__source=source,
        data__root=None if root is None else str(root),
        data__options__classes=None if classes is None else classes.split(","),
        data__partition=partition,
        data__cache=cache,
        data__skip_bad=skip_bad,
        data__workers=workers,
        features__name=features,
        features__weights=weights,
        features__freeze=freeze,
        head__method=method,
        head__dim=dim,
        training__epochs=epochs,
        training__batch_size=batch_size,
        training__seed=seed,
        report__enabled=report,
        recipe=recipe,
        track=track,
    )
    _start_or_resume(given, read_settings(config, set_), out, resume)


def _start_or_resume(
    given: dict[str, Any], set_: dict[str, Any], out: Path | None, resume: Path | None
) -> None:
    """Train a new run or go on with one, and show what came out."""
    from rich.console import Console

    from layline.training.config import combine, configuration, resolved
    from layline.training.display import Reporter
    from layline.training.interruption import Interrupted
    from layline.training.run import train as train_run
    from layline.training.run_folder import RunFolder, new_folder

    console = Console(stderr=True)
    tree = combine(set_, given)
    if resume is not None:
        if out is not None:
            raise ValueError(f"out must be left out with --resume, got {out}: a run has its folder")
        folder = RunFolder(resume)
        before = folder.read_config().model_dump(mode="json", exclude_none=True)
        config = resolved(configuration(_with_changes(before, tree)))
    else:
        data = tree.get("data", {})
        if isinstance(data, dict) and "source" not in data:
            raise ValueError(
                "SOURCE must be given: photo-quality needs no data, layline data list has all"
            )
        config = resolved(configuration(tree))
        if out is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("--out must be given: several processes would each choose a name")
        name = f"{config.data.source}-{config.head.method}"
        folder = RunFolder(out or new_folder(name))
        folder.check_new()
    try:
        numbers = train_run(config, folder, console)
    except KeyboardInterrupt as stop:
        if not folder.config.exists():
            raise  # too early for anything to go on with
        if os.environ.get("RANK", "0") == "0":  # one of several processes speaks for all
            how = "Stopped at once; what was saved before is kept"
            if isinstance(stop, Interrupted):
                how = f"{str(stop).capitalize()}; nothing is lost"
            Reporter(console)(f"{how}. Go on with\n  layline train --resume {folder.path}")
        raise typer.Exit(INTERRUPTED) from None
    if numbers is not None:
        if config.report.enabled:
            write_after_training(folder, console)
        show_numbers(numbers, Console(), folder.path)


def _with_changes(before: dict[str, Any], tree: dict[str, Any]) -> dict[str, Any]:
    """Change the settings of a run that goes on, where they may change."""
    from layline.training.config import combine

    after = combine(before, tree)
    changeable = _CHANGEABLE
    if before["training"]["schedule"] == "cosine":  # its rates depend on the number of epochs
        changeable = {**changeable, "training": changeable["training"] - {"epochs"}}
    for section, values in after.items():
        kept = before.get(section)
        if isinstance(values, dict) and isinstance(kept, dict):
            changed = {key for key in values if values[key] != kept.get(key)}
            wrong = [f"{section}.{key}" for key in sorted(changed - changeable.get(section, set()))]
        else:
            wrong = [section] if values != kept else []
        if wrong:
            raise ValueError(
                f"{wrong[0]} must stay as it was when a run goes on: start a new run for another "
                "value"
            )
    return after
