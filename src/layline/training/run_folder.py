"""The folder of a run: what it was asked for, how it went, what came out."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from layline.data.array_cache import cache_folder
from layline.training.config import Config
from layline.training.loop import EpochRecord
from layline.training.recipes import configuration, recorded
from layline.training.settings import combine, read_toml, setting_at, to_toml
from layline.utils.errors import UserError
from layline.utils.files import atomic_write, write_json, write_text
from layline.utils.plugins import (
    Plugin,
    PluginError,
    digest_of,
    full_reference,
    is_installed,
    is_path,
    is_reference,
    module_name,
    source_files,
    use,
)

_HALF_WRITTEN = ".*.part"
_CURE_OF_CONFIG = "write it as it was, or start a new run"
_LOCK = ".lock"
# What may not change between the start of a run and its going on, by its key in environment.json.
# What a run had whose config.toml does not name it, since it was written before there was more.
_NOT_YET = {"data": {"calibration": 0.0, "copies": "ignore"}, "training": {"calibrate": False}}
_NUMBERS = ("samples", "decode", "mae", "accuracy")  # that test.json has in any version
_CHANGED = {
    "data": "the data must be those that {} was started with, got others: files were added, "
    "removed or renamed",
    "content": "the data must be those that {} was started with, got others: the samples have the "
    "same names, but other cells, pixels or bytes",
    "plugins": "plugins must be those that {} was started with, got other source: install the same "
    "version, or leave --plugin out where the run keeps a copy in its folder plugins",
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
        self.start = path / "start.safetensors"
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
        self.plugins = path / "plugins"

    def layout(self, moment: int | Literal["test"]) -> Path:
        """Give the file of a layout: after an epoch, or at the test."""
        name = "test" if moment == "test" else f"epoch-{moment:04}"
        return self.layouts / f"{name}.npz"

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
        self._keep_plugins(config.used_plugins())
        write_json(self.environment, environment)

    def _keep_plugins(self, plugins: Sequence[Plugin]) -> None:
        """Copy the files of plug-ins, and note on this machine that its user has run them."""
        for plugin in plugins:
            files = source_files(plugin.reference) if is_path(plugin.reference) else {}
            for file in files.values():
                place = self.plugins / file.relative_to(Path(plugin.reference).parent)
                if not place.exists():
                    with atomic_write(place) as part:
                        part.write_bytes(file.read_bytes())
        _note_as_run(plugins)

    def create(self, config: Config) -> None:
        """Write what is wanted, and clear away what a run that was killed left half-written."""
        for place in (self.path, self.frozen, self.layouts, self.thumbnails):
            for half in place.glob(_HALF_WRITTEN):
                half.unlink()
        write_text(self.config, to_toml(config))

    def read_config(
        self, plugins: Sequence[str | Path] = (), say: Callable[[str], None] | None = None
    ) -> Config:
        """Read what the run was asked for, and import the plug-ins that it needs.

        Those are imported that the caller names, that are installed, or that this user has trained
        with before on this machine. A folder from somebody else runs nothing by itself.

        Args:
            plugins: Files, packages or modules that the caller names.
            say: Told where a copy is taken instead of what has changed.
        """
        use(plugins)
        written = self._read_tree()
        # in their place: what the file names is not imported because it names it
        written["plugins"] = self.import_plugins(written, plugins, say) or None
        with as_written(self.config, _CURE_OF_CONFIG):
            return configuration(_NOT_YET, written)

    def read_record(self) -> Config:
        """Read what the run was asked for, to look at it; no plug-in is imported for that."""
        written = self._read_tree()
        with as_written(self.config, _CURE_OF_CONFIG):
            return recorded(combine(_NOT_YET, written))

    def import_plugins(
        self,
        written: Mapping[str, Any],
        named: Sequence[str | Path] = (),
        say: Callable[[str], None] | None = None,
    ) -> list[str]:
        """Import the plug-ins that a run was trained with, as it was trained with them.

        Args:
            written: The settings of the run.
            named: Those that the caller names, and has imported, take the place of the run's own.
            say: Told where a copy is taken instead of what has changed.

        Returns:
            Where they are now.
        """
        given = {module_name(full_reference(each)): full_reference(each) for each in named}
        places = ("head.method", "backbone.name", "data.source")
        asked = [name for place in places if is_reference(name := setting_at(written, place))]
        wanted = [str(each) for each in written.get("plugins") or []]
        if self.environment.is_file():  # it has those that the run computed with
            used = self.read_environment().get("plugins", {})
            wanted = [each for each in wanted if module_name(each) in (*used, *given)]
        found = []
        for reference in dict.fromkeys((*wanted, *asked)):
            name = module_name(reference)
            own = given.get(name) or self._find_plugin(reference)
            if say is not None and own not in (reference, given.get(name)):
                say(
                    f"{reference} has changed since {self.path} was trained, or is gone: the copy "
                    f"in {self.plugins} is used"
                )
            use([own], replace=True)
            if own not in found and reference in wanted:
                found.append(own)
        return found

    def _find_plugin(self, reference: str) -> str:
        """Find the source that a run was trained with: where it was, or the copy in the folder."""
        if is_installed(module_name(reference)):
            return reference
        environment = self.read_environment() if self.environment.is_file() else {}
        before = environment.get("plugins", {}).get(module_name(reference))
        copy = str(self.plugins / Path(reference).name) if is_path(reference) else reference
        for place in dict.fromkeys((reference, copy)):
            digest = digest_of(place) if not is_path(place) or Path(place).exists() else None
            if digest is None or before not in (None, digest):
                continue
            if digest in _run_before():
                return place
            raise PluginError(
                f"plugins must be yours or named, got {place} in the configuration of {self.path}, "
                "which was not trained by you on this machine: look at it, since it is a program, "
                f"and name it with --plugin {place}"
            )
        raise PluginError(
            f"plugins must be as they were when {self.path} was trained, got other source or none "
            f"of {reference}: put it back, or name it with --plugin"
        )

    def changed_plugins(self, config: Config) -> list[str]:
        """Name the plug-ins that are not what the run was trained with."""
        environment = self.read_environment() if self.environment.is_file() else {}
        before = environment.get("plugins", {})
        return [
            plugin.label
            for plugin in config.used_plugins()
            if before.get(plugin.module.__name__, plugin.digest) != plugin.digest
        ]

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


def _notes_file() -> Path:
    return cache_folder() / "plugins.txt"


def _run_before() -> set[str]:
    """Give the digests of the plug-ins that this user has trained with on this machine."""
    try:
        return set(_notes_file().read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return set()


def _note_as_run(plugins: Sequence[Plugin]) -> None:
    new = [plugin.digest for plugin in plugins if plugin.digest not in _run_before()]
    if new:
        with suppress(OSError):  # then they are to be named the next time
            _notes_file().parent.mkdir(parents=True, exist_ok=True)
            with _notes_file().open("a", encoding="utf-8") as file:
                file.write("".join(f"{digest}\n" for digest in new))


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
