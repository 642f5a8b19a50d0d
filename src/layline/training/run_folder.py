"""The folder of a run: what it was asked for, how it went, what came out."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from layline import backbones, data, heads
from layline.training.config import Config, read_toml, to_toml, validate
from layline.training.trainer import EpochRecord
from layline.utils.errors import UserError
from layline.utils.files import write_json, write_text
from layline.utils.plugins import PluginError, load_plugins

_HALF_WRITTEN = ".*.part"
_CURE_OF_CONFIG = "write it as it was, or start a new run"
_LOCK = ".lock"
# What may not change between the start of a run and its going on, by its key in environment.json.
_NUMBERS = ("samples", "decode", "mae", "accuracy")  # that test.json has in any version
_CHANGED = {
    "data": "the data must be those that {} was started with, got others: files were added, "
    "removed or renamed",
    "content": "the data must be those that {} was started with, got others: the samples have the "
    "same names, but other cells, pixels or bytes",
    "frozen": "weights must be those that {} was started with, got others: the file has changed",
}


@contextmanager
def as_written(path: Path, cure: str) -> Iterator[None]:
    """Say of a file that cannot be understood which one it is, and what to do about it.

    Args:
        path: The file that is read.
        cure: What to do.
    """
    try:
        yield
    except (OSError, MemoryError, ImportError, PluginError):  # they say themselves what is wrong
        raise
    except Exception as error:  # whoever changed the file may have written anything
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(
            f"{path} must be as the run wrote it, got something else ({why}): {cure}"
        ) from error


class RunFolder:
    """Paths of a run, and the files that are written on the way.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.history = path / "history.jsonl"
        self.best = path / "best.safetensors"
        self.start = path / "init_from.safetensors"
        self.state = path / "state"
        self.frozen = path / "frozen"
        self.environment = path / "environment.json"
        self.test = path / "test.json"
        self.predictions = path / "predictions.csv"
        self.evaluation = path / "evaluation.json"  # where no run was trained but one measured
        self.layouts = path / "layouts"
        self.proxies = path / "proxies.npz"
        self.mistakes = path / "mistakes.json"
        self.review = path / "review.json"
        self.thumbnails = path / "mistakes"
        self.report = path / "report.html"

    def layout(self, moment: int | Literal["test"]) -> Path:
        """Give the file of a layout: after an epoch, or at the test."""
        name = "test" if moment == "test" else f"epoch-{moment:04}"
        return self.layouts / f"{name}.npz"

    def inputs(self) -> list[Path]:
        """List the files of the run and its data, which no other output may overwrite."""
        files = [path for path in self.path.glob("*") if path != self.report]
        root = self.read_record().data.root if self.config.is_file() else None
        return files if root is None else [*files, Path(root)]

    def check_new(self) -> None:
        """Refuse a folder with something in it, but what was half-written when it was made."""
        no_matter = {*self.path.glob(_HALF_WRITTEN), self.path / _LOCK}
        if self.path.exists() and (not self.path.is_dir() or set(self.path.iterdir()) - no_matter):
            cure = (
                f"go on with layline train --resume {self.path}"
                if self.config.exists()
                else "take another name"
            )
            raise UserError(f"out must be new or empty, got {self.path}: {cure}")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing into the folder; the lock ends with this process.

        Raises:
            UserError: Another process has it.
            NotImplementedError: The file system knows no locks.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / _LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"run must be used by one process at a time, got {self.path}: another one is "
                "writing into it, wait for its end"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def open(self, config: Config, environment: dict[str, Any], goes_on: bool = True) -> None:
        """Start a run, or see that it goes on with the same data and frozen weights.

        Args:
            config: What is wanted.
            environment: What ``environment.json`` is to say.
            goes_on: Whether there may be a run already.
        """
        if self.environment.exists():
            if not goes_on:  # another process has started it, and ended, in the meantime
                self.check_new()
            before = self.read_environment()
            for what, message in _CHANGED.items():
                if what == "content" and what not in before:
                    continue  # a run of an earlier version, which did not look at it
                if what in environment and before.get(what) != environment[what]:
                    raise UserError(message.format(self.path))
            # that which a run goes on with says nothing of it
            environment = environment | {"command": before.get("command", environment["command"])}
        self.create(config)
        write_json(self.environment, environment)

    def create(self, config: Config) -> None:
        """Write what is wanted, and clear away what a run that was killed left half-written."""
        for place in (self.path, self.frozen, self.layouts, self.thumbnails):
            for half in place.glob(_HALF_WRITTEN):
                half.unlink()
        write_text(self.config, to_toml(config))

    def read_config(self, plugins: Sequence[str | Path] = ()) -> Config:
        """Read the configuration of the run.

        Plug-ins that the file names are not imported: a folder from somebody else must not run
        code. They must be installed or named by the caller.

        Args:
            plugins: Files, packages or modules that the caller names.
        """
        load_plugins(plugins)
        written = self._read_tree()
        needed = [str(each) for each in written.pop("plugins", None) or []]
        written["plugins"] = [str(each) for each in plugins] or None
        with as_written(self.config, _CURE_OF_CONFIG):
            config = validate(Config, written)
        heads.HEADS.require(config.head.method, ", ".join(needed))
        backbones.BACKBONES.require(str(config.backbone.name), ", ".join(needed))
        data.SOURCES.require(config.data.source, ", ".join(needed))
        return config

    def read_record(self) -> Config:
        """Read what the run was asked for, to look at it; no plug-in is imported for that."""
        written = self._read_tree()
        with as_written(self.config, _CURE_OF_CONFIG):
            return validate(Config, written)

    def _read_tree(self) -> dict[str, Any]:
        if not self.config.is_file():
            raise FileNotFoundError(
                f"run must be the folder of a run, got {self.path}: it has no config.toml"
            )
        with as_written(self.config, _CURE_OF_CONFIG):
            return read_toml(self.config)

    def read_environment(self) -> dict[str, Any]:
        """Read versions, the command, samples per class and the fingerprint of the data."""
        cure = "remove it, and --resume writes it anew, without a look at whether the data changed"
        with as_written(self.environment, cure):
            environment: dict[str, Any] = json.loads(self.environment.read_text(encoding="utf-8"))
            if not isinstance(environment, dict) or not isinstance(environment.get("data"), str):
                raise UserError("no fingerprint of the data")
            return environment

    def write_history(self, history: list[EpochRecord]) -> None:
        """Write one line of JSON per epoch, unless the file has just these."""
        with suppress(OSError, ValueError):  # what cannot be read is written anew
            if self.read_history() == history:
                return
        write_text(self.history, "".join(json.dumps(record) + "\n" for record in history))

    def read_history(self) -> list[EpochRecord]:
        """Read the records of the epochs."""
        with as_written(self.history, f"layline train --resume {self.path} writes it anew"):
            lines = self.history.read_text(encoding="utf-8").splitlines()
            return [_checked_record(json.loads(line)) for line in lines]

    def read_numbers(self) -> dict[str, Any]:
        """Read the numbers of the test."""
        with as_written(self.test, f"layline train --resume {self.path} writes it anew"):
            numbers: dict[str, Any] = json.loads(self.test.read_text(encoding="utf-8"))
            if missing := [name for name in _NUMBERS if name not in dict(numbers)]:
                raise UserError(f"no {missing[0]}")
            return numbers


def _checked_record(record: Any) -> EpochRecord:
    """Refuse what is no record of an epoch."""
    good = isinstance(record, dict) and {"epoch", "train_loss"} <= set(record)
    if not good or not all(isinstance(value, int | float) for value in record.values()):
        raise UserError("a line that is no epoch")
    return dict(record)


def new_folder(name: str, parent: Path = Path("runs")) -> Path:
    """Find a name that is free: ``runs/NAME``, or with a number behind it."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path
