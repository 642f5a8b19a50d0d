"""The trained model that a run goes on from: what follows from it, and what contradicts it.

A new run takes the features, the head, the classes and the preparation of samples as they are in
the file of the model, and its tensors to begin with. The split, the calibration and the test are
its own.
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
from layline.training.recipes import resolve_config
from layline.utils.errors import UserError
from layline.utils.files import atomic_write
from layline.utils.plugins import load_plugins

# settings of their own, or what the data have
_NOT_OPTIONS = ("name", "model", "size", "crop", "dim", "in_features")
_FOLLOWS = {
    "backbone.name": "--backbone",
    "backbone.options": "backbone.options",
    "backbone.weights": "--weights",
    "head.method": "--method",
    "head.dim": "--dim",
    "head.options": "head.options",
    "data.size": "--size",
    "data.crop": "data.crop",
    "data.keep_ratio": "data.keep_ratio",
}


def model_path(run: str | Path) -> Path:
    """Give the file of the model to go on from: itself, or the best one of a run."""
    path = Path(run).expanduser().resolve()
    found = path / "best.safetensors" if path.is_dir() else path
    if not found.is_file():
        why = "it has no best.safetensors" if path.is_dir() else "it is not there"
        raise FileNotFoundError(
            f"from must be the folder of a trained run or a .safetensors model, got {run}: {why}"
        )
    return found


def with_start(tree: Mapping[str, Any], say: Callable[[str], None]) -> Tree:
    """Lay the settings over what follows from the model that they name as the start.

    Args:
        tree: Settings by section; ``start.model`` is a model file or the folder of a run.
        say: Told what the run goes on from.
    """
    start = dict(tree["init_from"])
    path = model_path(start["model"])
    start["model"] = str(path)
    now = digest_file(path)
    if start.setdefault("digest", now) != now:
        raise UserError(
            f"init_from.model must be as it was, got {path} with other content: it was trained or "
            "calibrated since; leave init_from.digest out to go on from what it is now"
        )
    load_plugins(tree.get("plugins") or [])
    spec = load(path).description
    follows = _settings_of(spec)
    for place, option in _FOLLOWS.items():
        wanted, own = setting_at(tree, place), setting_at(follows, place)
        if isinstance(wanted, Mapping):  # some of the options
            is_other = any(key not in own or own[key] != wanted[key] for key in wanted)
        else:
            is_other = None not in (wanted, own) and wanted != own
        if is_other:
            got = "another" if isinstance(wanted, dict) else str(wanted)
            raise UserError(
                f"{option} must be left out with --init-from, got {got}: the model {path} has its "
                f"own, {own}"
            )
    _check_classes(tree, spec)
    found = combine(_usual_of(path), follows, tree, {"init_from": start})
    rate = resolve_config(found).init_from
    assert rate is not None  # it was laid in the line above
    lowered = f"{rate.rate:g} of the recipe's rates where none is named (--lr, init_from.rate)"
    say(
        f"Goes on from {path}: {spec.backbone}, {spec.method}, {len(spec.classes)} classes, at "
        f"{lowered}"
    )
    return found


def _settings_of(spec: ModelDescription) -> Tree:
    """Give the settings that describe a model."""
    own = spec.backbone_options
    options = {
        name: value
        for name, value in own.items()
        if name not in _NOT_OPTIONS and value is not None  # which TOML cannot say
    }
    tree: Tree = {
        "backbone": {"name": spec.backbone, "options": options, "weights": "none"},
        "head": {"method": spec.method, "dim": spec.dim, "options": dict(spec.head_options)},
    }
    if not isinstance(spec.inputs, TableEncoding):
        tree["data"] = {"size": spec.inputs.size, "keep_ratio": spec.inputs.keep_ratio}
        if own.get("crop") is not None:
            tree["data"]["crop"] = own["crop"]
    return tree


def _usual_of(path: Path) -> Tree:
    """Give what the run of a model chose, where it is beside the model, for what is not said."""
    place = path.parent / "config.toml"
    if path.name != "best.safetensors" or not place.is_file():
        return {}
    before = validate(Config, read_toml(place))
    usual: Tree = {
        "recipe": before.recipe,
        "data": {"augmentation": before.data.augmentation},
        "training": {"metric": before.training.metric},
        "backbone": {},
    }
    if before.backbone.freeze:  # else what there is time for is decided anew
        usual["backbone"]["freeze"] = True
    if before.backbone.stages is not None:
        usual["backbone"]["stages"] = before.backbone.stages
    return usual


def _check_classes(tree: Mapping[str, Any], spec: ModelDescription) -> None:
    """Refuse another order: the model has its own, and data are matched by name."""
    wanted = setting_at(tree, "data.options.classes")
    if wanted is not None and parse_names("classes", wanted) != spec.classes:
        raise UserError(
            "classes must be left out with --init-from, got "
            f"{', '.join(parse_names('classes', wanted))}: the model has its own, "
            f"{', '.join(spec.classes)}"
        )


def load_start(config: Config, copy: Path | None = None) -> OrdinalModel:
    """Read the model that a run goes on from, without its calibration.

    Args:
        config: Names the model and what it must be.
        copy: Where else it is, such as in the folder of the run.
    """
    assert config.init_from is not None  # the caller has looked
    path = model_path(config.init_from.model) if copy is None else copy
    if config.init_from.digest is not None and digest_file(path) != config.init_from.digest:
        raise UserError(
            f"init_from.model must be as it was, got {path} with other content: the run would be "
            "another one"
        )
    model = load(path)
    spec = model.description
    described = config.backbone.name, config.head.method, config.head.dim
    if described != (spec.backbone, spec.method, spec.dim):
        raise UserError(
            f"backbone.name, head.method and head.dim must be those of start.model, "
            f"{spec.backbone}, {spec.method} and {spec.dim}, got "
            f"{', '.join(map(str, described))}: layline train --init-from takes them over"
        )
    decode = config.training.decoding
    model.description = replace(spec, calibration=Calibration(), decode=decode)
    return model.train()


def keep_start(config: Config, place: Path) -> None:
    """Copy the model that a run goes on from into its folder."""
    assert config.init_from is not None  # the caller has looked
    with atomic_write(place) as part:
        shutil.copyfile(model_path(config.init_from.model), part)


def known_inputs(config: Config, spec: ModelDescription) -> KnownInputs:
    """Say what a model knows of its data, for reading those of the configuration."""
    encoding = spec.inputs if isinstance(spec.inputs, TableEncoding) else None
    own = data.SOURCES.find(config.data.source).backbone
    is_table = own is not None and backbones.find(own).kind == "table"
    if is_table != (encoding is not None):
        takes, got = ("images", "a table") if is_table else ("a table", "images")
        raise UserError(
            f"the data must be {takes}, got {got} in {config.data.root}: the model takes nothing "
            "else"
        )
    skip = config.init_from is not None and config.init_from.skip_unknown
    return KnownInputs(spec.classes, encoding, skip)
