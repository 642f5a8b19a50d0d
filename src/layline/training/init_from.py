"""Initializing a run from a trained model.

The run takes the backbone, the head, the classes and the preparation of samples from the model
file, and its tensors as initial weights. Splits, calibration and test are its own.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layline import backbones, data
from layline.data import KnownInputs
from layline.data.index import digest_file
from layline.data.labels import parse_names
from layline.data.table_encoding import TableEncoding
from layline.model.calibration import Calibration
from layline.model.description import ModelDescription
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.config import Config, Tree, combine, read_toml, setting_at, validate
from layline.utils.errors import UserError
from layline.utils.files import atomic_write
from layline.utils.plugins import load_plugins

# options of a backbone that are settings of their own, or follow from the data
_NOT_OPTIONS = ("name", "model", "size", "crop", "dim", "in_features")
_OF_MODEL = (
    "backbone.name",
    "backbone.options",
    "backbone.weights",
    "head.method",
    "head.dim",
    "head.options",
    "data.size",
    "data.crop",
    "data.keep_ratio",
)


def find_model(run: str | Path) -> Path:
    """Return the model file of a run, or the file itself."""
    path = Path(run).expanduser().resolve()
    file = path / "best.safetensors" if path.is_dir() else path
    if not file.is_file():
        why = "it has no best.safetensors" if path.is_dir() else "it does not exist"
        raise FileNotFoundError(
            f"init_from must be the folder of a trained run or a .safetensors model, got {run}: "
            f"{why}."
        )
    return file


def add_model_settings(tree: Mapping[str, Any], log: Callable[[str], None]) -> Tree:
    """Add the settings that follow from the initial model to those of the user.

    Args:
        tree: Settings by section; ``init_from.model`` is a model file or the folder of a run.
        log: Shows what the run is initialized from.
    """
    if setting_at(tree, "init_from.model") is None:
        raise UserError("skip_unknown needs init_from: only a trained model knows its classes.")
    path = find_model(tree["init_from"]["model"])
    load_plugins(tree.get("plugins") or [])
    description = load(path).description
    own = _settings_of(description)
    for place in _OF_MODEL:
        wanted, has = setting_at(tree, place), setting_at(own, place)
        if isinstance(wanted, Mapping):
            differs = any(key not in has or has[key] != wanted[key] for key in wanted)
        else:
            differs = None not in (wanted, has) and wanted != has
        if differs:
            raise UserError(f"{place} cannot be set with init_from: {path} has its own, {has}.")
    classes = setting_at(tree, "data.options.classes")
    if classes is not None and parse_names("classes", classes) != description.classes:
        raise UserError(
            f"classes cannot be changed with init_from: {path} has "
            f"{', '.join(description.classes)}."
        )
    start = {"model": str(path), "digest": digest_file(path)}
    if setting_at(tree, "init_from.digest") not in (None, start["digest"]):
        raise UserError(f"{path} changed since init_from.digest was written; remove the digest.")
    log(
        f"Initialized from {path}: {description.backbone}, {description.method}, "
        f"{len(description.classes)} classes. Default learning rates are lowered."
    )
    return combine(_settings_of_run(path), own, tree, {"init_from": start})


def _settings_of(description: ModelDescription) -> Tree:
    """Return the settings that describe a model."""
    own = description.backbone_options
    options = {
        name: value
        for name, value in own.items()
        if name not in _NOT_OPTIONS and value is not None  # TOML has no None
    }
    tree: Tree = {
        "backbone": {"name": description.backbone, "options": options, "weights": "none"},
        "head": {
            "method": description.method,
            "dim": description.dim,
            "options": dict(description.head_options),
        },
    }
    if not isinstance(description.inputs, TableEncoding):
        inputs = description.inputs
        tree["data"] = {"size": inputs.size, "keep_ratio": inputs.keep_ratio}
        if own.get("crop") is not None:
            tree["data"]["crop"] = own["crop"]
    return tree


def _settings_of_run(path: Path) -> Tree:
    """Return what the run of a model used, as defaults, if its configuration is there."""
    file = path.parent / "config.toml"
    if path.name != "best.safetensors" or not file.is_file():
        return {}
    before = validate(Config, read_toml(file))
    backbone: Tree = {"freeze": True} if before.backbone.freeze else {}
    if before.backbone.stages is not None:
        backbone["stages"] = before.backbone.stages
    return {
        "recipe": before.recipe,
        "data": {"augmentation": before.data.augmentation},
        "training": {"metric": before.training.metric},
        "backbone": backbone,
    }


def load_initial_model(config: Config, copy: Path | None = None) -> OrdinalModel:
    """Load the initial model of a run, without its calibration.

    Args:
        config: Contains the path and the digest of the model file.
        copy: The copy in the folder of the run, which is used if it exists.
    """
    assert config.init_from is not None
    path = copy if copy is not None and copy.is_file() else find_model(config.init_from.model)
    if config.init_from.digest not in (None, digest_file(path)):
        raise UserError(f"{path} changed since the run was started. Start a new run.")
    model = load(path)
    description = model.description
    wanted = config.backbone.name, config.head.method, config.head.dim
    has = description.backbone, description.method, description.dim
    if wanted != has:
        raise UserError(
            "backbone, method and dim must be those of the initial model, "
            f"{', '.join(map(str, has))}, got {', '.join(map(str, wanted))}."
        )
    model.description = replace(
        description, calibration=Calibration(), decode=config.training.decoding
    )
    return model.train()


def copy_initial_model(model: Path, copy: Path) -> None:
    """Copy the initial model into the folder of the run, so that it can be resumed without it."""
    if not copy.is_file():
        with atomic_write(copy) as part:
            shutil.copyfile(find_model(model), part)


def known_inputs(config: Config, description: ModelDescription) -> KnownInputs:
    """Return what a model knows about its inputs, to read data for it."""
    encoding = description.inputs if isinstance(description.inputs, TableEncoding) else None
    own = data.SOURCES.find(config.data.source).backbone
    is_table = own is not None and backbones.find(own).kind == "table"
    if is_table != (encoding is not None):
        takes, got = ("images", "a table") if is_table else ("a table", "images")
        raise UserError(f"The model takes {takes}, but {config.data.root} is {got}.")
    skip = config.init_from is not None and config.init_from.skip_unknown
    return KnownInputs(description.classes, encoding, skip)
