"""The folder of a run: what it was asked for, how it went, what came out."""

import json
from pathlib import Path
from typing import Literal

from layline.files import write_text
from layline.model import OrdinalModel
from layline.training.checkpoint import Record
from layline.training.config import Config
from layline.training.settings import configuration, read_toml, to_toml

_HALF = ".*.part"


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
        self.state = path / "state"
        self.frozen = path / "frozen"
        self.environment = path / "environment.json"
        self.test = path / "test.json"
        self.predictions = path / "predictions.csv"
        self.layouts = path / "layouts"
        self.proxies = path / "proxies.npz"
        self.mistakes = path / "mistakes.json"
        self.thumbnails = path / "mistakes"
        self.report = path / "report.html"

    def layout(self, moment: int | Literal["test"]) -> Path:
        """Give the file of a layout: after an epoch, or at the test."""
        name = "test" if moment == "test" else f"epoch-{moment:04}"
        return self.layouts / f"{name}.npz"

    def check_new(self) -> None:
        """Refuse a folder with something in it, but what was half-written when it was made."""
        if self.path.exists() and (
            not self.path.is_dir() or set(self.path.iterdir()) - set(self.path.glob(_HALF))
        ):
            cure = (
                f"go on with layline train --resume {self.path}"
                if self.config.exists()
                else "take another name"
            )
            raise ValueError(f"out must be new or empty, got {self.path}: {cure}")

    def create(self, config: Config) -> None:
        """Start a run, or go on with it."""
        for place in (self.path, self.frozen, self.layouts, self.thumbnails):
            for half in place.glob(_HALF):
                half.unlink()  # of a run that was killed while writing
        write_text(self.config, to_toml(config))

    def read_config(self) -> Config:
        """Read what the run was asked for."""
        if not self.config.is_file():
            raise FileNotFoundError(
                f"run must be the folder of a run, got {self.path}: it has no config.toml"
            )
        return configuration(read_toml(self.config))

    def write_history(self, history: list[Record]) -> None:
        """Write one line of JSON per epoch."""
        write_text(self.history, "".join(json.dumps(record) + "\n" for record in history))

    def read_history(self) -> list[Record]:
        """Read the records of the epochs."""
        return [json.loads(line) for line in self.history.read_text(encoding="utf-8").splitlines()]

    def write_best(self, model: OrdinalModel) -> None:
        """Write the best model so far."""
        model.save(self.best)


def new_folder(name: str, parent: Path = Path("runs")) -> Path:
    """Find a name that is free: ``runs/NAME``, or with a number behind it."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path
