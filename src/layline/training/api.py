"""Training in one call, from data to a tested model and its report.

``layline train`` is a thin shell around :func:`train`; its options have the same names.
"""

import inspect
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from layline import data
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.callbacks import Reporter
from layline.training.config import SETTINGS, Config, Tree, combine, flatten, setting_at, tree_of
from layline.training.prepare import add_model_settings
from layline.training.recipes import draft_config, resolve_config
from layline.training.run import train as train_run
from layline.training.run_folder import RunFolder, new_folder
from layline.training.trainer import EpochRecord, Interrupted
from layline.utils.devices import count_processes, is_first_process
from layline.utils.registry import load_plugins
from layline.utils.validation import UserError

# settings that may change when a run is resumed
_CHANGEABLE = {
    *(f"training.{name}" for name in ("epochs", "patience", "checkpoint_minutes")),
    *(f"data.{name}" for name in ("workers", "root", "verify")),
    *(f"report.{name}" for name in ("enabled", "mistakes", "review")),
}


class Run:
    """A finished run: the model, its numbers, and the folder that has all of it."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = RunFolder(folder)

    @property
    def folder(self) -> Path:
        """Where everything was written."""
        return self._folder.path

    @cached_property
    def model(self) -> OrdinalModel:
        """The model of the best epoch, as ``layline.load`` gives it."""
        return load(self.folder)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The numbers on the test split, as in ``test.json``."""
        return self._folder.read_numbers()

    @property
    def history(self) -> list[EpochRecord]:
        """A record of each epoch: losses, and the metrics on the validation split."""
        return self._folder.read_history()

    @property
    def report(self) -> Path | None:
        """The page that shows the run, if one was written."""
        return self._folder.report if self._folder.report.is_file() else None

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"


class Stopped(KeyboardInterrupt):
    """Training was stopped from outside, by Ctrl-C or SIGTERM, and can be resumed."""

    def __init__(self, folder: Path, how: str) -> None:
        super().__init__(f"{how}. Resume with layline.train(resume={str(folder)!r})")
        self.folder, self.how = folder, how


def train(
    source: str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
    **options: Any,
) -> Run:
    """Train a model, test it, and write the results to the folder of the run.

    Args:
        source: The data: a folder, a CSV or npz file, or the name of a data source.
        settings: Settings by section, such as ``{"training": {"weight_decay": 0.1}}``.
        out: New folder for the run; a name below ``runs`` by default.
        resume: Folder of a run to resume, instead of a source.
        verbose: Whether to print progress on stderr.
        options: Settings by name; they take precedence over ``settings``.

    Raises:
        Stopped: Training was stopped with Ctrl-C or SIGTERM. It is a ``KeyboardInterrupt``; the
            state is saved.
    """
    if not isinstance(source, str | Path | None):
        raise UserError(
            f"source must be a path or the name of a data source, got {type(source).__name__}. Use "
            "layline.OrdinalClassifier for arrays and data frames."
        )
    console = Console(stderr=True, quiet=not verbose)
    tree = combine(settings or {}, tree_of(options))
    wanted: Config | Tree
    if resume is None:
        wanted, folder = _start(source, tree, out, Reporter(console, is_first_process()))
    elif source is not None or out is not None:
        raise UserError("resume takes neither source nor out: a run has its own data and folder.")
    else:
        folder = RunFolder(resume)
        wanted = _resume(folder, tree)
    try:
        numbers = train_run(wanted, folder, console)
    except KeyboardInterrupt as stop:
        if not folder.config.exists():
            raise  # nothing was saved yet
        how = "Stopped at once; earlier checkpoints are kept"
        if isinstance(stop, Interrupted):
            how = f"{str(stop).capitalize()}; the state is saved"
        raise Stopped(folder.path, how) from None
    if numbers is not None and folder.read_record().report.enabled:
        write_report(folder, console)
    return Run(folder.path)


def _document_settings() -> None:
    """Give :func:`train` a signature and a docstring with every setting."""
    signature = inspect.signature(train)
    *kept, _ = signature.parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(name, keyword, default=None) for name in SETTINGS]
    train.__signature__ = signature.replace(parameters=[*kept, *named])  # type: ignore[attr-defined]
    before, after = str(train.__doc__).split("        options: Settings by name", 1)
    lines = [f"        {each.name}: {each.help}\n" for each in SETTINGS.values()]
    train.__doc__ = before + "".join(lines) + after.partition("\n")[2]


_document_settings()


def _start(
    source: str | Path | None, tree: Tree, out: str | Path | None, log: Reporter
) -> tuple[Tree, RunFolder]:
    """Find the data and the initial model of a new run, and choose its folder."""
    if plugins := tree.get("plugins"):
        load_plugins(plugins)
    name = setting_at(tree, "data.source")
    if source is not None:
        root, options = setting_at(tree, "data.root"), setting_at(tree, "data.options")
        root = None if root is None else Path(root).expanduser()
        found, place, note = data.find_source(str(source), root, data.names(), options)
        if note:
            log(note)
        name = found if found == source else Path(source).expanduser().resolve().stem
        tree = combine(tree, {"data": {"source": found}}, tree_of({"root": place}))
    if name is None:
        raise UserError(
            "A data source is needed: a folder, a file, or a name such as photo-quality."
        )
    if setting_at(tree, "init_from.model") is not None:
        tree = add_model_settings(tree, log)
    if out is None and count_processes() > 1:
        raise UserError("out is needed with several processes, or each would choose a name.")
    method = draft_config(tree).head.method
    folder = RunFolder(out if out is not None else new_folder(f"{name}-{method}"))
    folder.check_new()
    return tree, folder


def _resume(folder: RunFolder, changes: Tree) -> Config:
    """Read the configuration of a run, with changes that do not make it another run."""
    config = folder.read_config(changes.pop("plugins", ()))
    before = config.model_dump(mode="json", exclude_none=True)
    allowed = set(_CHANGEABLE)
    if config.training.schedule == "cosine":  # its rates depend on the number of epochs
        allowed.remove("training.epochs")
    after, old = combine(before, changes), flatten(before)
    for path, value in flatten(after).items():
        if value != old.get(path) and path not in allowed:
            raise UserError(f"{path} cannot change when a run is resumed. Start a new run.")
    return resolve_config(after)


def write_report(folder: RunFolder, console: Console) -> None:
    """Write the report of a finished run; a failure is a warning, because the results exist."""
    try:
        from layline.reports.run import write_run_report

        write_run_report(folder.path, folder.report)
    except (ImportError, OSError) as error:
        Reporter(console)(f"report.html was not written: {error}. The other results are complete.")
