"""The recipes, what is chosen if nobody says, and how they and settings become a configuration.

First the recipes, which are laid over the plain defaults of the sections, then how a recipe and
settings become one ``Config``, then what follows from the choices, such as the weights of the
features.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layline import backbones, data, heads
from layline.backbones.weights import NAMES, check_weights
from layline.geometry.decoding import Decode
from layline.training.config import Config, TrainingConfig, Tree, validated
from layline.training.optimisation import MODERN, usual_head_rate
from layline.training.settings import combine, setting_at
from layline.utils.errors import UserError
from layline.utils.plugins import load_plugins, resolve_reference
from layline.utils.validation import find_known


@dataclass(frozen=True)
class Recipe:
    """What is chosen if nobody says.

    Attributes:
        backbone: The network for photographs.
        method: The ordinal method.
        settings: Of every run, by section.
        situations: Laid over them, by what is trained: a network on a ``table``, a ``small`` one
            for small images, one for photographs from ``scratch``, a ``pretrained`` one, or what
            follows a ``frozen`` one or a ``frozen small`` one.
    """

    backbone: str
    method: str
    settings: Tree
    situations: Mapping[str, Tree] = field(default_factory=dict)


_AFTER_FROZEN: Tree = {
    "backbone": {"options": {"hidden": 512, "dropout": 0.5}},
    "training": {"batch_size": 128},
}
# of 256 pixels the middle 224; small images are seen whole
_FOR_PHOTOGRAPHS: Tree = {
    situation: {"data": {"crop": 0.875}} for situation in ("scratch", "pretrained", "frozen")
}
RECIPES: dict[str, Recipe] = {
    "modern": Recipe(
        backbone="tf_efficientnet_lite0",
        method=heads.DEFAULT_METHOD,
        settings={
            "data": {"calibration": 0.1},
            "training": {
                **MODERN,
                "epochs": 30,
                "patience": 10,
                "warmup_epochs": None,
                "precision": "auto",
                "calibrate": True,
            },
        },
        situations={
            "small": {
                "data": {"augmentation": "flip"},
                "training": {"learning_rate": 1e-2},
            },
            "frozen small": _AFTER_FROZEN,
            "frozen": combine(_AFTER_FROZEN, {"backbone": {"options": {"all_stages": True}}}),
            "pretrained": {
                "data": {"augmentation": "mild"},
                "training": {
                    "learning_rate": 5e-3,
                    "body_learning_rate": 2e-3,
                    "layer_decay": 0.9,
                    "head_epochs": None,
                },
            },
        },
    ),
    "paper": Recipe(
        backbone="vgg16",
        method="hard-linear",
        settings={"training": {"decode": "mode"}},
        situations=_FOR_PHOTOGRAPHS,
    ),
    # what the authors' released code does differently, where it can be chosen
    "released": Recipe(
        backbone="vgg16_bn",
        method="hard-linear",
        settings={
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
        situations=_FOR_PHOTOGRAPHS,
    ),
}


def configuration(*trees: Mapping[str, Any]) -> Config:
    """Make the configuration from settings, the recipe that they name below them.

    Args:
        *trees: Settings by section, such as ``{"training": {"epochs": 3}}``; later ones decide.
    """
    wanted = combine(*trees)
    name = wanted.get("recipe", "modern")
    recipe = find_known("recipe", name, RECIPES)
    # what is laid below cannot make wrong settings right, so they are refused before it is chosen
    draft = validated(Config, combine({"head": {"method": recipe.method}}, wanted))
    load_plugins(draft.plugins or [])
    method = heads.HEADS.find(draft.head.method)
    own: Tree = {"head": {"method": recipe.method}}
    if name == "released":
        own["head"]["options"] = dict(method.released)
    if name == "modern":
        own["training"] = {"head_learning_rate": usual_head_rate(method, name)}
    situation = recipe.situations.get(_situation(draft, recipe), {})
    below = combine(recipe.settings, situation, own)
    if "learning_rate" in wanted.get("training", {}):  # who names one rate means all of the network
        below.get("training", {}).pop("body_learning_rate", None)
    if (own_options := _plugin_options(draft, recipe)) is not None:
        options = below.get("backbone", {}).get("options", {})
        kept = {key: value for key, value in options.items() if key in own_options}
        below = {**below, "backbone": {**below.get("backbone", {}), "options": kept}}
    if draft.start is not None:  # the options of the features are those of the model
        below = combine({**below, "backbone": {}}, _lowered(below, draft.start.rate))
    return validated(Config, combine(below, wanted))


def recorded(tree: Mapping[str, Any]) -> Config:
    """Read the configuration of a run that is only looked at: no plug-in is imported for it.

    Args:
        tree: As the run wrote it, in full.
    """
    method, source = setting_at(tree, "head.method"), setting_at(tree, "data.source")
    name = setting_at(tree, "backbone.name")
    outside = [
        wanted
        for wanted, own in ((method, heads.HEADS.builtin), (source, data.SOURCES.builtin))
        if isinstance(wanted, str) and wanted not in own
    ]
    if outside or tree.get("plugins"):
        return validated(Config, tree)
    try:
        return configuration(tree)
    except ValueError:
        if name is None or name in backbones.BACKBONES.builtin:
            raise
        return validated(Config, tree)  # a network that is not installed here


def recipe_decoding(recipe: str, *trees: Mapping[str, Any]) -> Decode:
    """Tell how runs of a recipe decide on a rank, with settings laid over it."""
    below = find_known("recipe", recipe, RECIPES).settings
    tree = combine(below, *trees).get("training", {})
    return validated(TrainingConfig, tree).decoding


def _lowered(below: Tree, rate: float) -> Tree:
    """Give the learning rates of a recipe for a network that has been trained already."""
    usual = TrainingConfig().model_dump() | below.get("training", {})
    names = ("learning_rate", "body_learning_rate", "head_learning_rate")
    return {"training": {name: rate * usual[name] for name in names if usual[name] is not None}}


def _plugin_options(config: Config, recipe: Recipe) -> tuple[str, ...] | None:
    """List the options of features of a plug-in, which need not have those of a recipe."""
    name = config.backbone.name or backbone_of(config.data.source, recipe)
    if backbones.BACKBONES.plugin_of(name) is None:
        return None
    return backbones.options_of(backbones.find(name))


def _situation(config: Config, recipe: Recipe) -> str:
    """Tell what is trained, as the situations of a recipe are named."""
    name = config.backbone.name or backbone_of(config.data.source, recipe)
    spec = backbones.find(name)
    if spec.kind == "table":
        return "table"
    small = name in backbones.BACKBONES and spec.augmentation != "crop"
    if config.backbone.freeze:
        return "frozen small" if small else "frozen"
    if small:
        return "small"
    is_new = config.start is None and (config.backbone.weights or spec.weights) == "none"
    return "scratch" if is_new else "pretrained"


def backbone_of(source: str, recipe: Recipe) -> str:
    """Name the features for a source: its own, or the network of the recipe for photographs."""
    own = data.SOURCES.find(source).backbone
    return recipe.backbone if own is None else own


def resolved(config: Config) -> Config:
    """Fill in what follows from other choices, so that the configuration stands by itself."""
    source = data.SOURCES.find(config.data.source)
    name = config.backbone.name or backbone_of(config.data.source, RECIPES[config.recipe])
    spec = backbones.find(name)
    weights = config.backbone.weights or spec.weights
    check_weights(weights, name)
    if weights not in NAMES:
        weights = str(Path(weights).expanduser().resolve())
    if config.backbone.freeze and weights == "none" and config.start is None:
        raise UserError(
            f"freeze must come with weights, got none for {name}: frozen, it would stay as random "
            "as it was made"
        )
    if config.data.root is not None and re.search("[\ud800-\udfff]", str(config.data.root)):
        raise UserError(
            f"data.root must be Unicode, got {config.data.root}: rename the folder, since a run "
            "writes it into its config.toml"
        )
    options = dict(config.data.options)
    for key in source.path_options:  # in full, so that the run can go on from another folder
        if isinstance(options.get(key), str):
            options[key] = str(Path(options[key]).expanduser().resolve())
    filled = {
        "root": config.data.root and config.data.root.expanduser().resolve(),
        "options": options,
        "augmentation": config.data.augmentation or spec.augmentation,
    }
    training = config.training
    loop = training.options()
    followed = {name: getattr(loop, name) for name in ("decode", "warmup_epochs", "head_epochs")}
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=filled),
            "training": training.model_copy(update=followed),
            "backbone": config.backbone.model_copy(update={"name": name, "weights": weights}),
            "plugins": [*map(resolve_reference, config.plugins)] if config.plugins else None,
        }
    )
