"""``layline train``: from data to a tested model."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from layline.cli.evaluate import show_numbers
from layline.cli.options import INTERRUPTED, read_decode, read_settings
from layline.utils.errors import UserError

EXAMPLES = """
Examples:

  layline train photo-quality                               needs no data, takes a few minutes

  layline train photos                                      one folder per class

  layline train photos --classes low,mid,high --metric qwk --budget 10min

  layline train labels.csv --backbone tf_efficientnet_lite0 --weights bundled --freeze

  layline train ratings.csv --label rating                  a table

  layline train new-hospital --from runs/photos-arc         go on with its model

  layline train photos --plugin my_head.py --method MyHead  your own method

  layline train --resume runs/photos-arc                    after a stop of any kind
"""
# What stands in the help where a recipe leaves a choice to something else.
_OPEN = {
    "classes": "the order that the names carry",
    "label": "label, or a column that is called like it",
    "group": "group, if there is one",
    "group_by": "none",
    "size": "the network's own",
    "weights": "the usual ones of the features",
    "body_lr": "as --lr",
    "workers": "one for each core",
    "budget": "10min without a GPU",
}
# What the machine decides under the recipe modern, with {} for the recipe's own choice.
_DECIDED = {
    "backbone": "the best that can be had",
    "weights": "those at hand",
    "freeze": "where there is no time for more",
    "body_lr": "{}, less for some networks",
    "head_lr": "{}, more for some methods",
    "epochs": "{}, fewer where there is no time",
}


class TrainCommand(TyperCommand):
    """The command, with the recipes' defaults in its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; what the recipes say is read now, since few calls want it."""
        defaults = _defaults()
        for parameter in self.params:
            if parameter.name in defaults:
                parameter.show_default = defaults[parameter.name]  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _defaults() -> dict[str, str]:
    """Say what each recipe chooses for photographs if nobody says."""
    from layline.training.api import SETTINGS
    from layline.training.recipes import RECIPES, configuration, resolved

    data = {"source": "folder"}
    configs = {name: resolved(configuration({"recipe": name, "data": data})) for name in RECIPES}
    words = dict(_OPEN)
    for name, path in SETTINGS.items():
        recipes_of: dict[str, list[str]] = {}
        for recipe, config in configs.items():
            value: Any = config
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
            text = _OPEN.get(name, "") if value is None else _text(value)
            if recipe == "modern":
                text = _DECIDED.get(name, "{}").format(text)
            recipes_of.setdefault(text, []).append(recipe)
        first, *others = recipes_of
        others = [] if name in ("recipe", "budget") else others
        rest = [f"{', '.join(recipes_of[text])}: {text}" for text in others]
        words[name] = "; ".join([first, *rest])
    return {name: text for name, text in words.items() if text}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **more)


_DATA, _MODEL, _TRAINING, _MACHINE, _OUTPUT = "Data", "Model", "Training", "Machine", "Output"


def _said(classes: str | None) -> list[str]:
    """Give the names of ``--classes``, for a file of costs that has names too."""
    from layline.data.labels import parse_names

    if classes is None:
        raise UserError(
            "classes must be given if the file of --decode names them: the data are not read yet. "
            "Say --classes, lowest first, or leave the names out of the file"
        )
    return list(parse_names("classes", classes))


def train(
    source: Annotated[
        str | None,
        typer.Argument(
            help="The data: a folder, CSV or npz file, which is recognised, or the name of a "
            "source, see layline data list.",
            show_default=False,
        ),
    ] = None,
    root: Annotated[
        Path | None, _option(_DATA, "Folder or file with the data of a named source.")
    ] = None,
    classes: Annotated[
        str | None, _option(_DATA, "Names of the classes, lowest first: low,mid,high.")
    ] = None,
    label: Annotated[
        str | None, _option(_DATA, "Column of the labels, in a table or a list of images.")
    ] = None,
    group: Annotated[
        str | None, _option(_DATA, "Column of what must stay in one part, such as a patient.")
    ] = None,
    group_by: Annotated[
        str | None,
        _option(_DATA, "Regular expression that finds it in the path of an image instead."),
    ] = None,
    partition: Annotated[
        int | None, _option(_DATA, "Which official fold, or the seed of a random split.")
    ] = None,
    calibration: Annotated[
        float | None,
        _option(_DATA, "Share of the training samples that is kept apart, for ranges."),
    ] = None,
    copies: Annotated[
        str | None, _option(_DATA, "Copies of an image: together in one part, exact, or ignore.")
    ] = None,
    cache: Annotated[
        bool | None, _option(_DATA, "Keep decoded images or frozen features.", "--cache")
    ] = None,
    skip_bad: Annotated[
        bool | None, _option(_DATA, "Leave out files that cannot be decoded.", "--skip-bad")
    ] = None,
    verify: Annotated[
        bool | None,
        _option(_DATA, "Read all files again, whatever is known of them.", "--verify"),
    ] = None,
    from_run: Annotated[
        Path | None,
        _option(_MODEL, "Go on from this run or model, with its network and classes.", "--from"),
    ] = None,
    skip_unknown: Annotated[
        bool | None,
        _option(_DATA, "Leave out classes that the model does not know.", "--skip-unknown"),
    ] = None,
    method: Annotated[str | None, _option(_MODEL, "See layline methods.")] = None,
    backbone: Annotated[str | None, _option(_MODEL, "mlp, convnet, or any model of timm.")] = None,
    weights: Annotated[str | None, _option(_MODEL, "none, imagenet, bundled, or a file.")] = None,
    freeze: Annotated[
        bool | None,
        _option(_MODEL, "Train on frozen features, extracted once.", "--freeze/--no-freeze"),
    ] = None,
    dim: Annotated[int | None, _option(_MODEL, "Dimension of the features.")] = None,
    size: Annotated[
        int | None, _option(_MODEL, "Height and width of the images that the network sees.")
    ] = None,
    recipe: Annotated[
        str | None, _option(_TRAINING, "modern, paper, or released: the authors' code.")
    ] = None,
    metric: Annotated[
        str | None,
        _option(
            _TRAINING,
            "mae, accuracy or qwk: chooses the epoch, and how a rank is decided on.",
        ),
    ] = None,
    decode: Annotated[
        str | None,
        _option(_TRAINING, "mode, median, mean, quadratic, or a CSV file of costs."),
    ] = None,
    calibrate: Annotated[
        bool | None,
        _option(
            _TRAINING,
            "Fit a temperature, so that probabilities mean what they say.",
            "--calibrate/--no-calibrate",
        ),
    ] = None,
    epochs: Annotated[int | None, _option(_TRAINING, "Passes over the training samples.")] = None,
    batch_size: Annotated[int | None, _option(_TRAINING, "Samples in a step, altogether.")] = None,
    lr: Annotated[float | None, _option(_TRAINING, "Learning rate of the features.")] = None,
    body_lr: Annotated[
        float | None, _option(_TRAINING, "Of their layers below the last ones.")
    ] = None,
    head_lr: Annotated[float | None, _option(_TRAINING, "Of the head.")] = None,
    patience: Annotated[
        int | None,
        _option(_TRAINING, "Stop after so many epochs without a better one; 0: never."),
    ] = None,
    class_weight: Annotated[
        str | None, _option(_TRAINING, "off, balanced, or effective: rare classes count more.")
    ] = None,
    seed: Annotated[int | None, _option(_TRAINING, "Of weights, order and augmentation.")] = None,
    budget: Annotated[
        str | None, _option(_MACHINE, "Time that training may take: 90s, 10min, 1h.")
    ] = None,
    device: Annotated[
        str | None, _option(_MACHINE, "auto, cpu, cuda, cuda:1, mps: as PyTorch names it.")
    ] = None,
    precision: Annotated[
        str | None, _option(_MACHINE, "no, bf16, fp16, or auto: bf16 on a GPU that has it.")
    ] = None,
    workers: Annotated[int | None, _option(_MACHINE, "Processes that decode images.")] = None,
    out: Annotated[Path | None, _option(_OUTPUT, "Folder of the run, a new one.")] = None,
    resume: Annotated[Path | None, _option(_OUTPUT, "Folder of a run to go on with.")] = None,
    report: Annotated[
        bool | None, _option(_OUTPUT, "Write report.html at the end.", "--report/--no-report")
    ] = None,
    track: Annotated[str | None, _option(_OUTPUT, "tensorboard, mlflow or wandb.")] = None,
    plugins: Annotated[
        list[str] | None,
        _option(
            _MODEL,
            "Methods, features or sources of your own; may be repeated.",
            "--plugin",
            metavar="FILE|MODULE",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        _option(_OUTPUT, "TOML file with settings, as in a run's config.toml.", "--config"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        _option(
            _OUTPUT,
            "Any setting, such as training.weight_decay=0.1.",
            "--set",
            metavar="SECTION.KEY=VALUE",
        ),
    ] = None,
) -> None:
    """Train a model, test it, and write all of it into the folder of the run."""
    given = locals().copy()
    from rich.console import Console

    from layline.training import api
    from layline.training.display import Reporter

    settings = read_settings(given.pop("config"), given.pop("set_"))
    if decode is not None:
        given["decode"] = read_decode(decode, lambda: _said(classes))
    speaks = os.environ.get("RANK", "0") == "0"  # one of several processes speaks for all
    try:
        run = api.train(**given, settings=settings)
    except api.Stopped as stop:
        Reporter(Console(stderr=True), speaks)(
            f"{stop.how}. Go on with\n  layline train --resume {stop.folder}"
        )
        raise typer.Exit(INTERRUPTED) from None
    if speaks:
        show_numbers(run.metrics, Console(), run.folder)
