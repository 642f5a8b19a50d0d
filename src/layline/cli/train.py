"""``layline train``: from data to a tested model. Its options are the settings of ``Config``."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from layline.cli.options import (
    INTERRUPTED,
    ConfigFile,
    Set,
    read_decode,
    read_settings,
    show_numbers,
)

if TYPE_CHECKING:
    from layline.training.config import Setting

EXAMPLES = """
layline train photo-quality                               needs no data, takes a few minutes
layline train photos                                      one folder per class
layline train photos --classes low,mid,high --metric qwk --budget 10min
layline train labels.csv --backbone tf_efficientnet_lite0 --weights bundled --freeze
layline train ratings.csv --label rating                  a table
layline train new-hospital --init-from runs/photos        start from its model
layline train photos --plugin my_head.py --method MyHead  your own method
layline train --resume runs/photos                        after an interruption
"""
# Settings that the recipe modern may choose itself.
_CHOSEN = {
    "backbone": "best available",
    "weights": "best available",
    "freeze": "if time is short",
    "backbone_lr": "chosen by backbone",
    "head_lr": "chosen by method",
    "epochs": "chosen by number of samples",
    "batch_size": "chosen by number of samples",
    "folds": "3 for small data",
}


def train(
    source: Annotated[
        str | None,
        typer.Argument(
            help="The data: a folder, a CSV or npz file, or the name of a data source (see layline "
            "data list).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the run.", rich_help_panel="Output")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Folder of a run to resume.", rich_help_panel="Output")
    ] = None,
    config: ConfigFile = None,
    set_: Set = None,
    **options: Any,
) -> None:
    """Train a model, test it, and write the results to the folder of the run."""
    from rich.console import Console

    from layline.training import run as runs
    from layline.utils.devices import is_first_process

    if options["decode"] is not None:
        options["decode"] = read_decode(options["decode"])
    options["plugins"] = options["plugins"] or None
    settings = read_settings(config, set_)
    try:
        run = runs.train(source, settings=settings, out=out, resume=resume, **options)
    except runs.Stopped as stop:
        if is_first_process():
            text = f"{stop.how}. Resume with\n  layline train --resume {stop.folder}"
            Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
        raise typer.Exit(INTERRUPTED) from None
    if is_first_process():
        show_numbers(run.metrics, Console(), run.folder)


# The options of the settings are made when they are needed, because that imports PyTorch. Typer
# reads options from the signature of a function.

_SOURCE, *_OTHERS, _ = inspect.signature(train).parameters.values()


def _set_signature(*settings: inspect.Parameter) -> None:
    train.__signature__ = inspect.Signature([_SOURCE, *settings, *_OTHERS])  # type: ignore[attr-defined]


_set_signature()


class TrainCommand(TyperCommand):
    """The command, with an option for each setting that has a panel in the help."""

    _complete = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, those of the settings first."""
        if not self._complete:
            from layline.training.config import SETTINGS

            _set_signature(*(_make_option(each) for each in SETTINGS.values() if each.panel))
            app = typer.Typer(add_completion=False)
            app.command()(train)
            made: Any = typer.main.get_command(app)
            self.params, self.callback, self._complete = made.params, made.callback, True
        return super().get_params(ctx)


def _make_option(setting: "Setting") -> inspect.Parameter:
    flag = "--" + setting.name.replace("_", "-")
    kind: Any = setting.kind
    if setting.name == "plugins":
        flag, kind = "--plugin", list[str]
    elif kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    elif setting.name == "budget":  # the configuration reads it
        kind = str
    option = typer.Option(
        flag,
        help=setting.help,
        rich_help_panel=setting.panel,
        show_default=_describe_default(setting) or False,
    )
    either, annotation = inspect.Parameter.POSITIONAL_OR_KEYWORD, Annotated[kind | None, option]
    return inspect.Parameter(setting.name, either, default=None, annotation=annotation)


def _describe_default(setting: "Setting") -> str:
    """Describe the default of a setting in the recipe modern."""
    from layline.training.config import flatten
    from layline.training.recipes import RECIPES

    if setting.name in _CHOSEN:
        return _CHOSEN[setting.name]
    own = flatten(RECIPES["modern"].settings)
    value = own.get(setting.path, setting.default)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
