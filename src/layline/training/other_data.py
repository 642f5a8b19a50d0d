"""Labelled data that a model was not trained on: what they are, and how they are read for it."""

from dataclasses import replace
from pathlib import Path

from layline import data
from layline.data.dataset import Dataset
from layline.data.detect import Detected
from layline.model.description import ModelDescription
from layline.training.assembly import read_data
from layline.training.config import Config
from layline.training.display import Reporter
from layline.training.start import known_inputs
from layline.utils.errors import UserError

# options that say where the run's own data are, or what they hold
_OF_OWN_DATA = ("classes", "images")


def other_config(
    config: Config, root: Path, say: Reporter, options: dict[str, object] | None = None
) -> Config:
    """Point a run's configuration at other data, whose kind is recognised.

    Where they are of the same kind as those of the run, they are read with the same options, such
    as the column of the labels.

    Args:
        config: Of the run.
        root: The other data.
        say: Told what they are taken for.
        options: Options of the source that stand above those of the run.
    """
    own, root = config.data, root.expanduser().resolve()
    if not root.exists():
        raise FileNotFoundError(f"root must exist, got {root}: check the path")
    source, place = own.source, root
    # a protocol has a tree of its own, and a source of a plug-in knows its own only
    if source in data.SOURCES.builtin and not data.SOURCES[source].origin:
        found = _recognised(config, root)
        source, place = found.source, found.root
        say(f"{root} is taken as {source}: {found.why}")
    kept = own.options if source == own.source else {}
    kept = {name: value for name, value in kept.items() if name not in _OF_OWN_DATA}
    given = dict(options or {})
    for name in given:
        if name not in data.options_of(source):
            raise UserError(f"{name} must be left out for {source}, got {given[name]}")
    changes = {"source": source, "root": place, "options": kept | given}
    return config.model_copy(update={"data": own.model_copy(update=changes)})


def _recognised(config: Config, root: Path) -> Detected:
    """Tell what other data are; what could be anything is taken for what the run had."""
    images = config.data.options.get("images")
    for place in (None, *([] if images is None else [Path(str(images))])):
        try:
            return data.detect(root, place)
        except ValueError as error:
            reason = error
    if config.data.source == "folder" and root.is_dir() and any(root.glob("*/*")):
        # a folder per class may be a single one here
        return Detected("folder", root, "as the data of the run")
    raise reason


def read_other(
    config: Config,
    spec: ModelDescription,
    say: Reporter,
    skip_unknown: bool = False,
    whole: bool = False,
) -> Dataset:
    """Read other data for a model: its classes by name, its columns, its order.

    Args:
        config: What :func:`other_config` gives.
        spec: The model.
        say: Tells the user what happens.
        skip_unknown: Leave out samples of classes that the model does not know.
        whole: Draw no parts; those that are given are kept.
    """
    known = replace(known_inputs(config, spec), skip_unknown=skip_unknown)
    return read_data(config, say, known=known, whole=whole)
