"""The folder of a run: its paths, its configuration, its progress and its environment."""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock, Timeout

import layline
from layline import backbones, data, heads
from layline.backbones.base import Backbone
from layline.data.dataset import Dataset
from layline.model.model import OrdinalModel
from layline.training.config import Config, read_toml, to_toml, validate
from layline.training.trainer import EpochRecord
from layline.utils.devices import Processes, processor_name
from layline.utils.files import write_json, write_text
from layline.utils.registry import load_plugins
from layline.utils.validation import UserError

_PARTIAL = ".*.part"  # files that a killed process did not finish
_LOCK = ".lock"
# what must not change between the start of a run and its resumption, by key of environment.json
_FIXED = {
    "data": "The data changed since {} was started: files were added, removed or renamed.",
    "content": "The data changed since {} was started: files with the same names have different "
    "contents.",
    "weights": "The initial weights changed since {} was started.",
}
_LIBRARIES = ("numpy", "torchvision", "timm")  # besides torch, they change results


class RunFolder:
    """The paths of a run, and the files that are written during training."""

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path).expanduser()
        self.config = path / "config.toml"
        self.history = path / "history.jsonl"
        self.best = path / "best.safetensors"
        self.initial = path / "init_from.safetensors"
        self.state = path / "state"
        self.environment = path / "environment.json"
        self.test = path / "test.json"
        self.predictions = path / "predictions.csv"
        self.evaluation = path / "evaluation.json"  # in folders of evaluations
        self.layouts = path / "layouts"
        self.proxies = path / "proxies.npz"
        self.mistakes = path / "mistakes.json"
        self.review = path / "review.json"
        self.thumbnails = path / "mistakes"
        self.report = path / "report.html"

    def layout(self, moment: int | Literal["test"]) -> Path:
        """Return the file of a layout: after an epoch, or at the test."""
        name = "test" if moment == "test" else f"epoch-{moment:04}"
        return self.layouts / f"{name}.npz"

    def inputs(self) -> list[Path]:
        """List the files of the run and its data, which no other output may overwrite."""
        files = [path for path in self.path.glob("*") if path != self.report]
        root = self.read_record().data.root if self.config.is_file() else None
        return files if root is None else [*files, Path(root)]

    def check_new(self) -> None:
        """Raise an error if the folder contains anything."""
        if not self.path.exists():
            return
        ignored = {*self.path.glob(_PARTIAL), self.path / _LOCK}
        if not self.path.is_dir() or set(self.path.iterdir()) - ignored:
            raise UserError(
                f"The output {self.path} exists and is not empty. Choose another folder."
            )

    def lock(self) -> AbstractContextManager[object]:
        """Keep other processes from writing into the folder, until the context ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            return FileLock(self.path / _LOCK, timeout=0).acquire()
        except Timeout:
            raise UserError(f"Another process is writing into {self.path}.") from None

    def open(self, config: Config, environment: dict[str, Any]) -> None:
        """Start a run, or check that it is resumed with the same data and frozen weights."""
        if self.environment.exists():
            if change := self.find_change(environment):
                raise UserError(f"{change} Start a new run.")
            command = self.read_environment().get("command", environment["command"])
            environment = environment | {"command": command}
        for place in (self.path, self.layouts, self.thumbnails):
            for part in place.glob(_PARTIAL):
                part.unlink()
        write_text(self.config, to_toml(config))
        write_json(self.environment, environment)

    def find_change(self, now: Mapping[str, Any]) -> str | None:
        """Describe how the data or the frozen weights differ from those of the run, if they do."""
        before = self.read_environment()
        changes = (key for key in _FIXED if key in now and before.get(key) != now[key])
        return next((_FIXED[key].format(self.path) for key in changes), None)

    def read_config(self, plugins: Sequence[str | Path] = ()) -> Config:
        """Read the configuration of the run.

        Plug-ins named in the file are not imported, because a folder from someone else must not
        execute code. They must be installed or given by the caller.
        """
        load_plugins(plugins)
        config = self.read_record()
        needed = ", ".join(config.plugins or ())
        heads.HEADS.require(config.head.method, needed)
        backbones.BACKBONES.require(str(config.backbone.name), needed)
        data.SOURCES.require(config.data.source, needed)
        return config.model_copy(update={"plugins": [str(each) for each in plugins] or None})

    def read_record(self) -> Config:
        """Read the configuration for display, without its plug-ins."""
        if not self.config.is_file():
            raise FileNotFoundError(f"{self.path} is not the folder of a run: no config.toml")
        with as_written(self.config, "restore it, or start a new run"):
            return validate(Config, read_toml(self.config))

    def read_environment(self) -> dict[str, Any]:
        """Read versions, the command, samples per class and fingerprints of the data."""
        return _read_json(self.environment, "data", "remove it, then the run can be resumed")

    def write_history(self, history: list[EpochRecord]) -> None:
        """Write one line of JSON per epoch."""
        write_text(self.history, "".join(json.dumps(record) + "\n" for record in history))

    def read_history(self) -> list[EpochRecord]:
        """Read the records of the epochs."""
        with as_written(self.history, "resume the run to write it again"):
            lines = self.history.read_text(encoding="utf-8").splitlines()
            return [dict(json.loads(line)) for line in lines]

    def read_numbers(self) -> dict[str, Any]:
        """Read the numbers of the test."""
        return _read_json(self.test, "mae", "resume the run to write it again")


@contextmanager
def as_written(path: Path, cure: str) -> Iterator[None]:
    """Turn errors of reading a damaged or edited file into one that names it and a cure."""
    try:
        yield
    except (OSError, MemoryError, ImportError):
        raise
    except Exception as error:  # an edited file can contain anything
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"Cannot read {path} ({why}): {cure}.") from error


def _read_json(path: Path, key: str, cure: str) -> dict[str, Any]:
    """Read a dictionary that has a certain key."""
    with as_written(path, cure):
        values = dict(json.loads(path.read_text(encoding="utf-8")))
        if key not in values:
            raise UserError(f"no {key}")
        return values


def new_folder(name: str, parent: Path = Path("runs")) -> Path:
    """Return ``runs/NAME``, with a number if it exists."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


# The environment of a run


def describe_environment(
    config: Config,
    dataset: Dataset,
    model: OrdinalModel,
    processes: Processes,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Describe data, software and machine; a resumed run must have the same fingerprints."""
    initial, duplicates, frozen = config.init_from, dataset.duplicates, config.backbone.freeze
    plugins = (
        heads.HEADS.plugin_of(config.head.method),
        backbones.BACKBONES.plugin_of(str(config.backbone.name)),
        data.SOURCES.plugin_of(config.data.source),
    )
    about = {
        **fingerprint_data(dataset),
        "weights": fingerprint_body(model.backbone) if frozen else None,
        "plugins": {each.name: each.version for each in plugins if each is not None} or None,
        "init_from": initial and initial.model_dump(mode="json"),
        "duplicates": duplicates and duplicates.facts(),
        "counts": count_classes(dataset),
        "command": list(command or sys.argv),
        **describe_software(),
        "processor": processor_name(),
        "processes": processes.count,
        "device": str(processes.device),
        "threads": torch.get_num_threads(),
    }
    return {key: value for key, value in about.items() if value is not None}


def fingerprint_data(dataset: Dataset) -> dict[str, str]:
    """Hash the names of the samples, their ranks and splits; and their contents."""
    names = "\n".join([*dataset.classes, "", *dataset.inputs.names])
    digest = hashlib.blake2b(names.encode(errors="surrogateescape"), digest_size=16)
    for array in (dataset.ranks, *dataset.splits.by_name().values()):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes() + b"|")
    return {"data": digest.hexdigest(), "content": dataset.inputs.digest()}


def fingerprint_body(backbone: Backbone) -> str:
    """Hash the tensors of a backbone without its last layer."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(backbone.body_state().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def count_classes(dataset: Dataset) -> dict[str, list[int]]:
    """Count the samples of each class by split."""
    return {
        name: np.bincount(dataset.ranks[index], minlength=len(dataset.classes)).tolist()
        for name, index in dataset.splits.by_name().items()
    }


@cache
def describe_software() -> Mapping[str, str]:
    """List the versions of this package and of what it computes with."""
    commit = _find_commit()
    return {
        **({"commit": commit} if commit else {}),
        "layline": layline.__version__,
        **{name: version(name) for name in _LIBRARIES if find_spec(name)},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


@cache
def _find_commit() -> str | None:
    """Return the commit of this code, if it is a checkout; ``-dirty`` if files have changed."""
    root = Path(layline.__file__).parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
