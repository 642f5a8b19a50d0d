"""The cells of a grid, each one training run, and what a cell is known by.

The key of a cell is a hash of its configuration, of the content of its data and of the code that
runs it.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from layline.bench.baselines import Competitor
from layline.bench.code_version import code_version
from layline.data import SOURCES, content_digest
from layline.data.file_digests import digest_file
from layline.training.config import Config
from layline.training.recipes import resolve_config, used_plugins

# Settings that change no number of a run.
_NO_EFFECT = {
    "data": {"workers", "verify"},
    "training": {"checkpoint_minutes"},
    "report": {"review"},
}
# Settings that the first version had. One that came later counts only where it is not what the
# paper's recipe says, so that results of that recipe are found that an earlier version left.
_FIRST = {
    "data": "source root partition options size augmentation keep_ratio cache skip_bad workers",
    "backbone": "name weights freeze options",
    "head": "method dim options",
    "training": "epochs batch_size optimiser learning_rate head_learning_rate weight_decay "
    "momentum schedule milestones decay warmup_epochs warmup_start drop_last precision "
    "accumulation class_weight decode patience seed checkpoint_minutes device",
    "report": "enabled points mistakes",
}
# What that version left out where a setting is off now.
_NONE = {"class_weight": "off", "patience": 0}
_LONG = 3.0  # seconds, after which it is said what takes so long


@dataclass(frozen=True)
class Cell:
    """One training run of a grid.

    Attributes:
        config: The resolved configuration.
        labels: What the cell is called in tables: the column and its value, as in
            ``{"data": "lev", "method": "hard-linear", "seed": "0"}``.
        threads: Threads that it computes with; another number gives other last digits.
        data: The digest of the content of its data, if it is known already, see
            :func:`with_content`.
        competitor: What is fitted instead of a model of ours, if it is another's.
    """

    config: Config
    labels: Mapping[str, str] = field(compare=False)
    threads: int = 1
    data: str | None = field(default=None, compare=False)
    competitor: Competitor | None = None

    @property
    def name(self) -> str:
        """The name of the cell in a line of text: its labels that are not empty."""
        return " ".join(value for value in self.labels.values() if value)

    @cached_property
    def content(self) -> str | None:
        """The digest of the content of its data; None where there are none, or none to be read."""
        return self.data or read_content(self.config)

    @cached_property
    def config_hash(self) -> str:
        """A hash of the configuration, data and files by their content wherever they are."""
        return self._hash(self.content)

    @cached_property
    def place_hash(self) -> str:
        """A hash of the configuration, a folder by its path: that of earlier versions."""
        return self._hash(None)

    def _hash(self, content: str | None) -> str:
        tree = _without_later_settings(self.config)
        source = SOURCES[self.config.data.source]
        tree["data"]["root"] = content or _identity(self.config.data.root)
        if content is not None:
            for option in source.path_options:
                tree["data"]["options"].pop(option, None)
        tree["backbone"]["weights"] = _identity(self.config.backbone.weights)
        for section, names in _NO_EFFECT.items():
            for name in names:
                tree[section].pop(name, None)  # a later one may be gone already
        # what earlier versions did: they drew splits of image files whatever copies there were
        before = "off" if source.has_images and source.partitions is None else "exact"
        tree["data"].pop("duplicates", None)
        if self.config.data.duplicates != before:
            tree["data"]["duplicates"] = self.config.data.duplicates
        # which of several GPUs it is changes nothing
        tree["training"]["device"] = tree["training"]["device"].partition(":")[0]
        cut = content is not None and source.has_images and not self.config.backbone.freeze
        if not (self.config.data.cache and cut):
            del tree["data"]["cache"]  # else crops are cut from images of the size that it keeps
        del tree["track"]
        tree.pop("init_from", None)
        if (start := self.config.init_from) is not None:  # by its content, wherever it is
            start_content = start.digest or _identity(start.model)
            own = {"model": start_content, "rate": start.rate, "skip": start.skip_unknown}
            tree["init_from"] = own
        tree.pop("plugins", None)  # they are known by what they do, wherever they are
        known: list[Any] = [tree, self.threads]
        if self.competitor is not None:
            known.append(self.competitor.model_dump(mode="json", exclude={"name"}))
        return _short_hash(json.dumps(known, sort_keys=True))

    @cached_property
    def version(self) -> str:
        """The code that runs it, see :meth:`version_here`."""
        return self.version_here()

    def version_here(self) -> str:
        """Name the code that would run it in this process: ours, and that of plug-ins."""
        outside = [str(plugin) for plugin in used_plugins(self.config)]
        if self.competitor is not None:
            outside.append(self.competitor.version())
        return " + ".join([code_version(), *outside])

    @cached_property
    def key(self) -> str:
        """A hash of the configuration, the content of the data and the code that runs it."""
        return cell_key(self.config_hash, self.version)


def cell_key(config_hash: str, version: str) -> str:
    """Give the key of a cell with this configuration, run by this code."""
    return _short_hash(config_hash + version)


def read_content(config: Config) -> str | None:
    """Compute the digest of the content of the data of a run, None if they cannot be read."""
    try:
        return content_digest(config.data.source, config.data.root, config.data.options)
    except (ValueError, OSError):
        return None  # the run will say what is wrong with them


def with_content(cells: Iterable[Cell], say: Callable[[str], None] | None = None) -> list[Cell]:
    """Give cells that know the content of their data, each data set of which is looked at once.

    Args:
        cells: Of a grid.
        say: Told what takes long, if it does.
    """
    found: dict[str, str | None] = {}
    known = []
    for cell in cells:
        place = cell.config.model_dump_json(include={"data": {"source", "root", "options"}})
        if place not in found:
            name = cell.config.data.root or cell.config.data.source
            text = f"Reading the data in {name}: runs are known by its content"
            timer = threading.Timer(_LONG, say or (lambda _: None), [text])
            timer.start()
            try:
                found[place] = read_content(cell.config)
            finally:
                timer.cancel()
        known.append(replace(cell, data=found[place]))
    return known


def _without_later_settings(config: Config) -> dict[str, Any]:
    """Give the configuration as plain values, as the first version would have written it."""
    tree = config.model_dump(mode="json")
    for name, off in _NONE.items():
        if tree["training"][name] == off:
            tree["training"][name] = None
    if config.recipe != "paper":
        return tree
    chosen = {"name", "weights", "freeze"}  # what the recipe depends on
    plain = resolve_config(
        {"recipe": "paper", "data": {"source": config.data.source}},
        {"backbone": config.backbone.model_dump(include=chosen, exclude_none=True)},
    ).model_dump(mode="json")
    for section, names in _FIRST.items():
        for name in [each for each in tree[section] if each not in names.split()]:
            if tree[section][name] == plain[section][name]:
                del tree[section][name]
    return tree


def _identity(place: Path | str | None) -> str | None:
    """Name a file by its content, so that it may be moved but not changed; all else by its name."""
    if place is None or not Path(place).is_file():
        return None if place is None else str(place)
    path = Path(place).resolve()
    state = path.stat()
    return _content_hash(path, state.st_mtime_ns, state.st_size)


@cache
def _content_hash(path: Path, changed: int, size: int) -> str:
    return digest_file(path)


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
