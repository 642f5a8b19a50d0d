"""Training in one call, from data to a tested model, and what it leaves behind.

``layline train`` is a thin shell around :func:`train`; its flags have the same names.
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list
from rich.console import Console

from layline import data
from layline.evaluation.prediction_file import check_format
from layline.geometry.decoding import Decode
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.config import (
    SETTINGS,
    Config,
    check_sections,
    combine,
    setting_at,
    tree_of,
)
from layline.training.decisions import decided
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.training.evaluate import evaluate_run, write_evaluation
from layline.training.recipes import resolve_config
from layline.training.run import train as train_run
from layline.training.run_folder import RunFolder, new_folder
from layline.training.start import with_start
from layline.training.trainer import EpochRecord, Interrupted
from layline.utils.errors import UserError
from layline.utils.files import check_output
from layline.utils.memory import memory_errors
from layline.utils.plugins import load_plugins

if TYPE_CHECKING:
    from layline.reports.comparison import Comparison

# What may change when a run goes on: nothing that would make it another run.
_CHANGEABLE = {
    "training": {"epochs", "patience", "checkpoint_minutes"},
    "data": {"workers", "root", "verify"},
    "report": {"enabled", "mistakes", "review"},
}


class Run:
    """A finished run: the model, its numbers, and the folder that has all of it.

    Args:
        folder: Of the run.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = RunFolder(Path(folder))

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
        """The numbers on the test part, as in ``test.json``."""
        if not self._folder.test.is_file():
            raise FileNotFoundError(
                f"folder must be that of a finished run, got {self.folder}: it has no test.json"
            )
        return self._folder.read_numbers()

    @property
    def history(self) -> list[EpochRecord]:
        """A record of each epoch: losses, and the errors on the validation part."""
        return self._folder.read_history()

    @property
    def report(self) -> Path | None:
        """The page that shows the run, if one was written."""
        return self._folder.report if self._folder.report.is_file() else None

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"


class Evaluated:
    """A model measured on labelled data: the numbers, and the folder that has all of them.

    Args:
        metrics: The numbers, as in ``test.json``.
        folder: Where everything was written, if it was.
    """

    def __init__(self, metrics: dict[str, Any], folder: Path | None) -> None:
        self.metrics, self.folder = metrics, folder

    @property
    def predictions(self) -> Path | None:
        """The file with a line for each sample, if one was written."""
        return None if self.folder is None else RunFolder(self.folder).predictions

    @property
    def report(self) -> Path | None:
        """The page that shows it, if one was written."""
        page = None if self.folder is None else RunFolder(self.folder).report
        return page if page is not None and page.is_file() else None

    def __repr__(self) -> str:
        return f"Evaluated({str(self.folder)!r})"


class Stopped(KeyboardInterrupt):
    """Training was stopped from outside, by Ctrl-C or SIGTERM, and can go on.

    Args:
        folder: Of the run.
        how: What was saved.
    """

    def __init__(self, folder: Path, how: str) -> None:
        super().__init__(f"{how}. Go on with layline.train(resume={str(folder)!r})")
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
    console = Console(stderr=True, quiet=not verbose)
    say = Reporter(console, os.environ.get("RANK", "0") == "0")  # one of several processes speaks
    check_sections(settings or {})
    tree = combine(settings or {}, tree_of(options))
    load_plugins(tree.get("plugins") or [])
    name = None
    if source is not None:
        found, place = _find_source(str(source), tree, say)
        name = None if found == source else Path(source).expanduser().resolve().stem
        tree = combine(tree, {"data": {"source": found}}, place)
    if setting_at(tree, "init_from") is not None and resume is None:
        if setting_at(tree, "init_from.model") is None:
            raise UserError("skip_unknown needs init_from: only a trained model knows its classes.")
        tree = with_start(tree, say)
    if resume is not None:
        folder = RunFolder(Path(resume))
        if out is not None:
            raise UserError(f"out must be left out with --resume, got {out}: a run has its folder")
        before = folder.read_config(tree.pop("plugins", ())).model_dump(
            mode="json", exclude_none=True
        )
        config = resolve_config(_with_changes(before, tree))
    else:
        if setting_at(tree, "data.source") is None and isinstance(tree.get("data", {}), Mapping):
            raise UserError(
                "SOURCE must be given, a path or a name: photo-quality needs no data, "
                "layline data list has all"
            )
        with memory_errors():
            config = _decided(tree, say)
        if out is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError("--out must be given: several processes would each choose a name")
        default = f"{name or config.data.source}-{config.head.method}"
        folder = RunFolder(Path(out) if out is not None else new_folder(default))
        folder.check_new()
    _run(config, folder, console)
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


def evaluate(
    run: str | Path,
    *,
    root: str | Path | None = None,
    part: str | None = None,
    out: str | Path | None = None,
    label: str | None = None,
    group: str | None = None,
    decode: Decode | None = None,
    skip_unknown: bool = False,
    predictions: str | Path | None = None,
    report: bool = True,
    plugins: Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    verbose: bool = True,
) -> Evaluated:
    """Measure the best model of a run, on a part of its own data or on labelled data elsewhere.

    Other data may be a folder per class, a CSV file of images, a table or an npz file, and are
    recognised. Their classes are matched by name with those of the model.

    Args:
        run: Folder of a trained run.
        root: Other labelled data, or where those of the run are now; its own if not given.
        part: ``train``, ``validation``, ``test``, ``calibration`` or ``all``. If not given, the
            test part; of other data without a split of their own, all samples.
        out: Folder for what comes out, a new one. If not given, one in ``evaluations`` of the run
            where there is a root, and else none.
        label: The column of the labels in the other data, if it is not as in the run.
        group: The column of what belongs together in them, such as a patient.
        decode: How a rank is decided on, if not as in the run.
        skip_unknown: Leave out samples of classes that the model does not know.
        predictions: Write a line per sample to this file, too.
        report: Whether to write pictures and ``report.html`` into the folder.
        plugins: Files, packages or modules that the run needs, if it was not trained by you on this
            machine; installed ones need not be named.
        settings: Settings to lay over those of the run, such as ``{"data": {"workers": 0}}``.
        verbose: Whether to say on stderr what happens.
    """
    console = Console(stderr=True, quiet=not verbose)
    folder = RunFolder(Path(run))
    place = None if out is None else RunFolder(Path(out))
    if place is not None:
        place.check_new()
    if predictions is not None:  # now, not after all of it is measured
        check_format(Path(predictions))
        check_output(predictions, [*folder.inputs(), *([] if root is None else [root])])
    given = {"label": label, "group": group}
    options = {name: value for name, value in given.items() if value is not None}
    if options and root is None:
        raise UserError("label and group must come with root: the run knows its own columns")
    found = evaluate_run(
        folder,
        part,
        decode,
        None if root is None else Path(root),
        console,
        settings,
        options,
        skip_unknown,
        plugins,
    )
    if place is None and root is not None:
        name = Path(str(found.config.data.root)).stem
        place = RunFolder(new_folder(name, folder.path / "evaluations"))
    if predictions is not None:
        found.evaluation.write_predictions(Path(predictions))
    numbers = found.evaluation.numbers
    if place is None:
        return Evaluated(numbers, None)
    write_evaluation(found, place, report)
    if report:
        write_report(place, console)
    Reporter(console)(f"Numbers, predictions and report are in {place.path}")
    return Evaluated(numbers, place.path)


def compare(
    runs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> "Comparison":
    """Compare runs on the same test samples: paired differences with intervals.

    Args:
        runs: Folders of runs, or of what :func:`evaluate` wrote; the first is what the others are
            compared with.
        out: The HTML file of a page that shows it, if one is wanted.
        draws: Number of resamplings for intervals, and of permutations for tests.
        seed: Random seed.
    """
    from layline.reports.comparison import compare_runs, write_comparison

    found = compare_runs([Path(run) for run in runs], draws, seed)
    if out is None:
        return found
    write_comparison(found, Path(out))
    return replace(found, report=Path(out))


def _decided(tree: Mapping[str, Any], say: Reporter) -> Config:
    """Make the configuration of a new run; of several processes one decides for all."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return decided(tree, say)
    outcome: list[Any] = [None]
    if make_accelerator(resolve_config(tree)).is_main_process:
        try:
            outcome = [decided(tree, say)]
        except Exception as error:  # whatever it is
            outcome = [error]  # or the others would wait for ever
    config = broadcast_object_list(outcome)[0]
    if isinstance(config, Exception):
        raise config
    assert isinstance(config, Config)
    return config


def _run(config: Config, folder: RunFolder, console: Console) -> None:
    """Train, test and report."""
    try:
        with memory_errors():
            numbers = train_run(config, folder, console)
    except KeyboardInterrupt as stop:
        if not folder.config.exists():
            raise  # too early for anything to go on with
        how = "Stopped at once; what was saved before is kept"
        if isinstance(stop, Interrupted):
            how = f"{str(stop).capitalize()}; nothing is lost"
        raise Stopped(folder.path, how) from None
    if numbers is not None and config.report.enabled:  # only one of several processes has numbers
        write_report(folder, console)


def write_report(folder: RunFolder, console: Console) -> None:
    """Write the report of a run that has just ended, or say what is missing for it."""
    try:
        from layline.reports.run import write_run_report

        write_run_report(folder.path, folder.report)
    except ImportError as error:
        Reporter(console)(f"No report.html: {error}")


def _find_source(source: str, tree: Mapping[str, Any], say: Reporter) -> tuple[str, dict[str, Any]]:
    """Give the name of the source, and the root where a path was given instead."""
    value = setting_at(tree, "data.root")
    root = None if value is None else Path(str(value)).expanduser()
    options = setting_at(tree, "data.options")
    name, place, sentence = data.find_source(source, root, data.names(), options)
    if sentence:
        say(sentence)
    return name, {} if place == root else tree_of({"root": place})


def _with_changes(before: dict[str, Any], tree: dict[str, Any]) -> dict[str, Any]:
    """Change the settings of a run that goes on, where they may change."""
    after = combine(before, tree)
    changeable = _CHANGEABLE
    if before["training"]["schedule"] == "cosine":  # its rates depend on the number of epochs
        changeable = {**changeable, "training": changeable["training"] - {"epochs"}}
    for section, values in after.items():
        kept = before.get(section)
        if isinstance(values, dict) and isinstance(kept, dict):
            changed = {key for key in values if values[key] != kept.get(key)}
            wrong = [f"{section}.{key}" for key in sorted(changed - changeable.get(section, set()))]
        else:
            wrong = [section] if values != kept else []
        if wrong:
            raise UserError(
                f"{wrong[0]} must stay as it was when a run goes on: start a new run for another "
                "value"
            )
    return after
