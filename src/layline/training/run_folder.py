"""The folder of a run: its configuration, progress and results."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from layline import backbones, data, heads
from layline.training.config import Config, read_toml, to_toml, validate
from layline.training.trainer import EpochRecord
from layline.utils.errors import UserError
from layline.utils.files import write_json, write_text
from layline.utils.plugins import load_plugins

_PARTIAL = ".*.part"  # files that a killed process did not finish
_LOCK = ".lock"
_NUMBERS = {"samples", "decode", "mae", "accuracy"}  # always in test.json
# what must not change between the start of a run and its resumption, by key of environment.json
_FIXED = {
    "data": "The data changed since {} was started: files were added, removed or renamed.",
    "content": "The data changed since {} was started: files with the same names have different "
    "contents.",
    "weights": "The initial weights changed since {} was started.",
}


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


class RunFolder:
    """The paths of a run, and the files that are written during training.

    Args:
        path: The folder; ``~`` is expanded.
    """

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
            cure = ", or resume the run" if self.config.exists() else ""
            raise UserError(
                f"The output {self.path} exists and is not empty. Choose another folder{cure}."
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing into the folder.

        Raises:
            UserError: Another process writes into it.
            NotImplementedError: The file system has no locks.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / _LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(f"Another process is writing into {self.path}.") from None
        try:
            yield
        finally:
            lock.release()

    def open(self, config: Config, environment: dict[str, Any]) -> None:
        """Start a run, or check that it is resumed with the same data and frozen weights."""
        if self.environment.exists():
            before = self.read_environment()
            for key, message in _FIXED.items():
                if key in environment and before.get(key) != environment[key]:
                    raise UserError(f"{message.format(self.path)} Start a new run.")
            environment = environment | {"command": before.get("command", environment["command"])}
        for place in (self.path, self.layouts, self.thumbnails):
            for part in place.glob(_PARTIAL):
                part.unlink()
        write_text(self.config, to_toml(config))
        write_json(self.environment, environment)

    def read_config(self, plugins: Sequence[str | Path] = ()) -> Config:
        """Read the configuration of the run.

        Plug-ins named in the file are not imported, because a folder from someone else must not
        execute code. They must be installed or given by the caller.

        Args:
            plugins: Files or modules that the caller names.
        """
        load_plugins(plugins)
        tree = self._read_tree()
        needed = ", ".join(str(each) for each in tree.pop("plugins", None) or [])
        tree["plugins"] = [str(each) for each in plugins] or None
        with as_written(self.config, "restore it, or start a new run"):
            config = validate(Config, tree)
        heads.HEADS.require(config.head.method, needed)
        backbones.BACKBONES.require(str(config.backbone.name), needed)
        data.SOURCES.require(config.data.source, needed)
        return config

    def read_record(self) -> Config:
        """Read the configuration for display, without its plug-ins."""
        with as_written(self.config, "restore it, or start a new run"):
            return validate(Config, self._read_tree())

    def _read_tree(self) -> dict[str, Any]:
        if not self.config.is_file():
            raise FileNotFoundError(f"{self.path} is not the folder of a run: no config.toml")
        return read_toml(self.config)

    def read_environment(self) -> dict[str, Any]:
        """Read versions, the command, samples per class and fingerprints of the data."""
        with as_written(self.environment, "remove it, then the run can be resumed"):
            environment = json.loads(self.environment.read_text(encoding="utf-8"))
            if not isinstance(environment["data"], str):
                raise UserError("it has no fingerprint of the data")
            return dict(environment)

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
        with as_written(self.test, "resume the run to write it again"):
            numbers = dict(json.loads(self.test.read_text(encoding="utf-8")))
            if missing := _NUMBERS - set(numbers):
                raise UserError(f"no {min(missing)}")
            return numbers


def new_folder(name: str, parent: Path = Path("runs")) -> Path:
    """Return ``runs/NAME``, with a number if it exists."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path
