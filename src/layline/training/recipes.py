"""The recipes, and how a recipe and a user's settings become one complete configuration."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layline import backbones, data, heads
from layline.backbones.mlp import MLP
from layline.backbones.weights import NAMES, check_weights
from layline.data.dataset import Dataset
from layline.data.labels import parse_names
from layline.data.preprocessing import ImagePreprocessing
from layline.data.splits import FEWEST_FOR_SPLITS, FOLDS
from layline.data.tables import Rows
from layline.geometry.decoding import Decode
from layline.heads.joint_layout import count_coordinates
from layline.model.description import ModelDescription
from layline.model.model_file import load
from layline.training.config import (
    NOT_OPTIONS,
    Config,
    TrainingConfig,
    Tree,
    combine,
    flatten,
    read_toml,
    setting_at,
    validate,
)
from layline.training.gaussian_process import MOST_FEATURES, is_few
from layline.training.optim import (
    MODERN,
    InputKind,
    choose_batch_size,
    choose_epochs,
    choose_learning_rate,
    default_head_rate,
)
from layline.utils.files import digest_file
from layline.utils.registry import load_plugins, resolve_reference
from layline.utils.validation import UserError, find_known


@dataclass(frozen=True)
class Recipe:
    """Default settings."""

    backbone: str  # for photographs
    settings: Tree  # of every run
    # by what is trained: table, small (a small network for small images), scratch and pretrained
    # (networks for photographs), frozen, and frozen small
    situations: Mapping[str, Tree] = field(default_factory=dict)


_AFTER_FROZEN: Tree = {
    "backbone": {"options": {"hidden": 256, "dropout": 0.5}},
    "training": {"learning_rate": 2e-3},
}
# the center 224 of 256 pixels; small images are not cropped
_CROP: Tree = {key: {"data": {"crop": 0.875}} for key in ("scratch", "pretrained", "frozen")}
RECIPES: dict[str, Recipe] = {
    "modern": Recipe(
        backbone="tf_efficientnet_lite0",
        settings={
            "head": {"method": heads.AUTO, "dim": 128},
            "data": {"calibration": 0.1},
            "training": {
                **MODERN,
                "epochs": None,
                "batch_size": None,
                "folds": None,
                "patience": 10,
                "warmup_epochs": None,
                "precision": "auto",
                "calibrate": True,
            },
        },
        situations={
            "table": {"training": {"learning_rate": None, "patience": 5}},
            "small": {"data": {"augmentation": "flip"}, "training": {"learning_rate": 1e-2}},
            "frozen small": _AFTER_FROZEN,
            "frozen": combine(_AFTER_FROZEN, {"backbone": {"options": {"all_stages": True}}}),
            "pretrained": {
                "data": {"augmentation": "mild"},
                "training": {
                    "learning_rate": 5e-3,
                    "backbone_learning_rate": 2e-3,
                    "layer_decay": 0.9,
                    "head_epochs": None,
                },
            },
        },
    ),
    "paper": Recipe(
        backbone="vgg16",
        settings={"head": {"method": "hard-linear"}, "training": {"decode": "mode"}},
        situations=_CROP,
    ),
    # where the authors' released code differs from the paper
    "released": Recipe(
        backbone="vgg16_bn",
        settings={
            "head": {"method": "hard-linear"},
            "data": {"keep_ratio": True},
            "training": {
                "optimiser": "sgd",
                "learning_rate": 0.01,
                "head_learning_rate": 0.1,
                "weight_decay": 1e-4,
                "schedule": "steps",
                "warmup_epochs": 1.0,
                "schedule_unit": "sample",
                "drop_last": True,
                "decode": "mode",
            },
        },
        situations=_CROP,
    ),
}


def draft_config(tree: Mapping[str, Any]) -> Config:
    """Check settings, and combine them with what their recipe sets for every run."""
    if plugins := tree.get("plugins"):
        load_plugins(plugins)
    recipe = find_known("recipe", tree.get("recipe", "modern"), RECIPES)
    draft = validate(Config, combine(recipe.settings, tree))
    if draft.training.budget is not None and draft.recipe != "modern":
        raise UserError(f"budget is only for the recipe modern, got {draft.recipe}.")
    _find_method(draft)
    if draft.backbone.name is not None:
        spec = backbones.find(draft.backbone.name)
        check_weights(draft.backbone.weights or spec.weights, draft.backbone.name)
    return draft


def resolve_config(*trees: Mapping[str, Any]) -> Config:
    """Make the complete configuration of a run from settings and the recipe that they name."""
    wanted = combine(*trees)
    draft = draft_config(wanted)
    recipe, method = RECIPES[draft.recipe], _find_method(draft)
    name = draft.backbone.name or default_backbone(draft.data.source, draft.recipe)
    own: Tree = {"training": {"head_learning_rate": default_head_rate(method, draft.recipe)}}
    if draft.recipe == "released":
        own["head"] = {"options": dict(method.released)}
    defaults = combine(own, recipe.settings, recipe.situations.get(_situation(draft, name), {}))
    if "learning_rate" in wanted.get("training", {}):  # then it is meant for all of the network
        defaults["training"].pop("backbone_learning_rate", None)
    if backbones.BACKBONES.plugin_of(name) is not None:  # it need not have the recipe's options
        options, known = defaults.get("backbone", {}).get("options", {}), backbones.find(name)
        kept = {k: v for k, v in options.items() if k in backbones.options_of(known)}
        defaults["backbone"] = {"options": kept}
    if draft.init_from is not None:  # the initial model has its own options of the backbone
        usual = TrainingConfig().model_dump() | defaults["training"]
        rates = {k: v for k, v in usual.items() if k.endswith("learning_rate") and v is not None}
        rates.setdefault("learning_rate", choose_learning_rate(0, "table"))
        lower = {key: draft.init_from.rate * rate for key, rate in rates.items()}
        defaults = combine({**defaults, "backbone": {}}, {"training": lower})
    return _complete(validate(Config, combine(defaults, wanted)), name)


def _find_method(draft: Config) -> heads.HeadSpec:
    """Look up the method; ``auto`` has the settings of the method for many labels."""
    return heads.HEADS.find(heads.resolve_auto(draft.head.method))


def _situation(config: Config, name: str) -> str:
    """Tell what is trained, as the situations of a recipe are named."""
    spec = backbones.find(name)
    if spec.kind == "table":
        return "table"
    small = name in backbones.BACKBONES and spec.augmentation != "crop"
    if config.backbone.freeze:
        return "frozen small" if small else "frozen"
    if small:
        return "small"
    is_new = config.init_from is None and (config.backbone.weights or spec.weights) == "none"
    return "scratch" if is_new else "pretrained"


def _complete(config: Config, name: str) -> Config:
    """Fill in what follows from other settings: backbone, weights, full paths, decoding."""
    spec = backbones.find(name)
    weights = config.backbone.weights or spec.weights
    check_weights(weights, name)
    if config.backbone.freeze and weights == "none" and config.init_from is None:
        raise UserError(
            f"freeze needs pretrained weights, but weights is none for {name}: a frozen random "
            "network would not learn."
        )
    root = config.data.root and config.data.root.expanduser().resolve()
    if root is not None and re.search(r"[\ud800-\udfff]", str(root)):
        raise UserError(f"The name of {root} is not valid Unicode. Rename the folder.")
    options = dict(config.data.options)
    for key in data.SOURCES.find(config.data.source).path_options:
        if isinstance(options.get(key), str):
            options[key] = _full_path(options[key])
    augmentation = config.data.augmentation or spec.augmentation
    derived: Tree = {
        "data": {"root": root, "options": options, "augmentation": augmentation},
        "backbone": {"name": name, "weights": weights if weights in NAMES else _full_path(weights)},
        "training": {"decode": config.training.decoding},
        "plugins": [*map(resolve_reference, config.plugins)] if config.plugins else None,
    }
    return validate(Config, combine(config.model_dump(), derived))


def choose_method(config: Config, dataset: Dataset) -> Config:
    """Choose the method ``auto``, and whether the model is fitted in closed form.

    That needs inputs of the last layer that do not change: a table, or frozen features. Options of
    the layers, epochs, batch size and folds belong to training by gradient descent.
    """
    head, training, backbone = config.head, config.training, config.backbone
    is_table, count = isinstance(dataset.inputs, Rows), len(dataset.splits.train)
    name = backbone.name or default_backbone(config.data.source, config.recipe)
    if is_table:
        can, usual = name == MLP.name, Tree()
    else:
        can = backbone.freeze and "kernel" in backbones.options_of(backbones.find(name))
        usual = RECIPES[config.recipe].situations.get("frozen", {}).get("backbone", {})
    can = can and config.init_from is None
    closed, method = training.closed_form, head.method
    if closed is None:
        wanted = (training.epochs, training.batch_size, training.folds)
        is_open = config.recipe == "modern" and wanted == (None, None, None)
        is_open &= all(
            usual.get("options", {}).get(key) == value for key, value in backbone.options.items()
        )
        is_open &= set(head.options) <= set(heads.options_of(heads.FEW_LABELS_METHOD))
        is_meant = method in (heads.AUTO, heads.FEW_LABELS_METHOD)
        closed = can and is_open and is_meant and is_few(count, is_table)
    if method == heads.AUTO:
        method = heads.FEW_LABELS_METHOD if closed else heads.DEFAULT_METHOD
    if closed and not (can and method == heads.FEW_LABELS_METHOD):
        raise UserError(
            f"closed_form needs the method {heads.FEW_LABELS_METHOD}, a table or frozen features, "
            "and no initial model."
        )
    dim = head.dim
    if closed:
        dim = count_coordinates(len(dataset.classes), **head.options)
        training = training.model_copy(update={"epochs": 1})
    training = training.model_copy(update={"closed_form": closed})
    head = head.model_copy(update={"method": method, "dim": dim})
    return config.model_copy(update={"head": head, "training": training})


def complete_length(config: Config, dataset: Dataset) -> Config:
    """Fill in what follows from the samples: method, epochs, batch size, rates, folds."""
    config = choose_method(config, dataset)
    training, count = config.training, len(dataset.splits.train)
    kind: InputKind = "features" if config.backbone.freeze else "images"
    kind = "table" if isinstance(dataset.inputs, Rows) else kind
    size = training.batch_size or (32 if kind == "images" else choose_batch_size(count, kind))
    epochs = training.epochs or choose_epochs(count, size, kind)
    folds = training.folds
    if folds is None:
        folds = 0 if len(dataset.splits.validation) else FOLDS
    lengths: Tree = {"batch_size": size, "epochs": epochs, "folds": folds}
    lengths["learning_rate"] = training.learning_rate or choose_learning_rate(count, kind)
    chosen = training.model_copy(update=lengths)
    options = chosen.options()
    lengths |= {"warmup_epochs": options.warmup_epochs, "head_epochs": options.head_epochs}
    return config.model_copy(update={"training": chosen.model_copy(update=lengths)})


def fewest_for_splits(config: Config, is_open: bool = False) -> float:
    """Return the number of labels from which on validation and calibration splits are drawn.

    With fewer, all of them are for training, and a cross-validation calibrates: see
    :mod:`layline.training.cross_validation`. ``is_open`` tells that the planner may choose frozen
    features, which it does for small data.
    """
    if config.training.folds is not None:
        return math.inf if config.training.folds else 0
    spec = backbones.find(config.backbone.name or default_backbone(config.data.source, "modern"))
    if spec.kind == "table":
        return FEWEST_FOR_SPLITS
    is_closed = config.training.closed_form is not False
    is_closed &= config.head.method in (heads.AUTO, heads.FEW_LABELS_METHOD)
    if config.backbone.freeze and is_closed and config.training.epochs is None:
        return MOST_FEATURES
    return FEWEST_FOR_SPLITS // 2 if config.backbone.freeze or is_open else 0


def _full_path(path: str) -> str:
    return str(Path(path).expanduser().resolve())


def default_backbone(source: str, recipe: str) -> str:
    """Name the backbone for a source: its own, or the recipe's network for photographs."""
    own = data.SOURCES.find(source).backbone
    return RECIPES[recipe].backbone if own is None else own


def recipe_decoding(recipe: str, *trees: Mapping[str, Any]) -> Decode:
    """Give the decoding of a recipe's runs with some settings."""
    settings = combine(find_known("recipe", recipe, RECIPES).settings, *trees)
    return validate(TrainingConfig, settings.get("training", {})).decoding


# Settings that follow from the initial model


def add_model_settings(tree: Mapping[str, Any], log: Callable[[str], None]) -> Tree:
    """Add the settings that follow from the initial model to those of the user."""
    path = find_model(tree["init_from"]["model"])
    description = load(path).description
    own = _settings_of(description)
    fixed = flatten(own)
    for place, value in flatten(tree).items():
        is_fixed = place in fixed or place.startswith(("backbone.options.", "head.options."))
        if is_fixed and fixed.get(place) != value:
            raise UserError(f"{place} cannot be set with init_from: {path} has its own.")
    classes = setting_at(tree, "data.options.classes")
    if classes is not None and parse_names("classes", classes) != description.classes:
        known = ", ".join(description.classes)
        raise UserError(f"classes cannot be changed with init_from: {path} has {known}.")
    log(
        f"Initialized from {path}: {description.backbone}, {description.method}, "
        f"{len(description.classes)} classes. Default learning rates are lowered."
    )
    digest, full = {"digest": digest_file(path)}, {"model": str(path)}
    return combine({"init_from": digest}, _settings_of_run(path), own, tree, {"init_from": full})


def find_model(run: str | Path) -> Path:
    """Return the model file of a run, or the file itself."""
    path = Path(run).expanduser().resolve()
    file = path / "best.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"There is no model to initialize from: {file} does not exist.")
    return file


def _settings_of(description: ModelDescription) -> Tree:
    """Return the settings that describe a model; TOML has no None."""
    own, inputs = description.backbone_options, description.inputs
    options = {k: v for k, v in own.items() if k not in NOT_OPTIONS and v is not None}
    tree: Tree = {
        "backbone": {"name": description.backbone, "options": options, "weights": "none"},
        "head": {"method": description.method, "dim": description.dim},
    }
    tree["head"]["options"] = dict(description.head_options)
    if isinstance(inputs, ImagePreprocessing):
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
    return {
        "recipe": before.recipe,
        "data": {"augmentation": before.data.augmentation},
        "training": {"metric": before.training.metric},
        "backbone": before.backbone.model_dump(include={"freeze", "stages"}, exclude_defaults=True),
    }
