"""Training in one call, from data to a tested model, and what it leaves behind.

``layline train`` is a thin shell around :func:`train`; its flags have the same names.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list
from rich.console import Console

from layline import data
from layline.evaluation.prediction_file import FORMATS
from layline.geometry.decoding import Decode
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.config import Config
from layline.training.decisions import decided
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.training.evaluate import evaluate_run, write_evaluation
from layline.training.interruption import Interrupted
from layline.training.loop import EpochRecord
from layline.training.recipes import configuration, resolved
from layline.training.run import train as train_run
from layline.training.run_folder import RunFolder, new_folder
from layline.training.settings import check_sections, combine, setting_at
from layline.training.start import with_start
from layline.utils.errors import UserError
from layline.utils.memory import memory_errors
from layline.utils.plugins import load_plugins
from layline.utils.validation import check_known, find_known

if TYPE_CHECKING:
    from layline.reports.comparison import Comparison

# The setting that an argument of :func:`train` is short for.
SETTINGS = {
    "root": "data.root",
    "classes": "data.options.classes",
    "label": "data.options.label",
    "group": "data.options.group",
    "group_by": "data.options.group_by",
    "partition": "data.partition",
    "calibration": "data.calibration",
    "copies": "data.copies",
    "cache": "data.cache",
    "skip_bad": "data.skip_bad",
    "from_run": "start.model",
    "skip_unknown": "start.skip_unknown",
    "workers": "data.workers",
    "verify": "data.verify",
    "size": "data.size",
    "backbone": "backbone.name",
    "weights": "backbone.weights",
    "freeze": "backbone.freeze",
    "method": "head.method",
    "dim": "head.dim",
    "recipe": "recipe",
    "metric": "training.metric",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "lr": "training.learning_rate",
    "body_lr": "training.body_learning_rate",
    "head_lr": "training.head_learning_rate",
    "patience": "training.patience",
    "decode": "training.decode",
    "calibrate": "training.calibrate",
    "class_weight": "training.class_weight",
    "seed": "training.seed",
    "budget": "training.budget",
    "device": "training.device",
    "precision": "training.precision",
    "report": "report.enabled",
    "track": "track",
    "plugins": "plugins",
}
# What may change when a run goes on: nothing that would make it another run.
_CHANGEABLE = {
    "training": {"epochs", "patience", "checkpoint_minutes"},
    "data": {"workers", "root", "verify"},
    "report": {"enabled", "mistakes", "review"},
}
_TIME = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(hours?|h|minutes?|min|m|seconds?|sec|s|)")
_MINUTES = {"h": 60.0, "m": 1.0, "s": 1 / 60, "": 1.0}


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
    root: str | Path | None = None,
    classes: str | Sequence[str] | None = None,
    label: str | None = None,
    group: str | None = None,
    group_by: str | None = None,
    partition: int | None = None,
    calibration: float | None = None,
    copies: str | None = None,
    cache: bool | None = None,
    skip_bad: bool | None = None,
    verify: bool | None = None,
    from_run: str | Path | None = None,
    skip_unknown: bool | None = None,
    method: str | None = None,
    backbone: str | None = None,
    weights: str | None = None,
    freeze: bool | None = None,
    dim: int | None = None,
    size: int | None = None,
    recipe: str | None = None,
    metric: str | None = None,
    decode: Decode | None = None,
    calibrate: bool | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    body_lr: float | None = None,
    head_lr: float | None = None,
    patience: int | None = None,
    class_weight: str | Mapping[str, float] | None = None,
    seed: int | None = None,
    budget: str | float | None = None,
    device: str | None = None,
    precision: str | None = None,
    workers: int | None = None,
    report: bool | None = None,
    track: str | None = None,
    plugins: Sequence[str | Path] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
) -> Run:
    """Train a model, test it, and write all of it into the folder of the run.

    What is not given is as the recipe has it. An argument is short for a setting
    (:data:`SETTINGS`), and stands above ``settings``.

    Args:
        source: The data: a path, whose kind is recognised, or the name of a source.
        root: Where the data of a named source are.
        classes: Names of the classes, lowest first, as a list or ``"low,mid,high"``.
        label: The column of the labels, in a table or a list of images.
        group: The column of what must stay in one part, such as a patient.
        group_by: A regular expression that finds it in the path of an image, instead of a column.
        partition: Which official fold, or the seed of a random split.
        calibration: Share of the training samples that is kept apart, for ranges of grades.
        copies: ``together`` keeps copies of an image in one part, ``exact`` only those with the
            same bytes, and ``ignore`` does not look for them.
        cache: Keep decoded images for later epochs and runs.
        skip_bad: Leave out files that cannot be decoded.
        verify: Read every file and all of a cache again, instead of trusting what is known of them.
        from_run: Go on from a trained model, the folder of a run or a ``.safetensors`` file, with
            its features, head, classes and preparation of samples, at lower rates.
        skip_unknown: Leave out samples of classes that the model of ``from_run`` does not know.
        method: The ordinal method, one of ``layline.names()``, or a place such as
            ``my_package.heads:MyHead``.
        backbone: ``mlp``, ``convnet``, any model of timm, or a place as for ``method``.
        weights: ``none``, ``imagenet``, ``bundled``, or a file.
        freeze: Train on frozen features, extracted once.
        dim: Dimension of the features.
        size: Height and width of the images that the network sees.
        recipe: ``modern``, ``paper`` or ``released``.
        metric: ``mae``, ``accuracy`` or ``qwk``: chooses the epoch, and how a rank is decided on.
        decode: How a rank is decided on, if not as the metric asks for: ``mode``, ``median``,
            ``mean``, ``quadratic``, or a matrix of what each decision costs, a row for each true
            class.
        calibrate: Fit a temperature, so that probabilities mean what they say.
        epochs: Passes over the training samples.
        batch_size: Samples in a step, altogether.
        lr: Learning rate of the features.
        body_lr: Of their layers below the last ones, if it is another.
        head_lr: Of the head.
        patience: Stop after so many epochs without a better one; 0 never stops early.
        class_weight: ``off``, ``balanced``, ``effective``, or a weight for each class by its name.
        seed: Of weights, order and augmentation.
        budget: The time that training may take, such as ``"10min"``; a number means minutes.
        device: ``auto``, or as PyTorch names it: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        precision: ``no``, ``bf16``, ``fp16`` or ``auto``.
        workers: Processes that decode images.
        report: Whether to write ``report.html``.
        track: ``tensorboard``, ``mlflow`` or ``wandb``.
        plugins: Files, packages or modules with methods, features or sources of your own; those
            that are installed with entry points need not be named.
        settings: Any other settings by section, such as ``{"training": {"weight_decay": 0.1}}``.
        out: Folder of the run, a new one; below ``runs`` if not given.
        resume: Folder of a run to go on with, instead of a source.
        verbose: Whether to say on stderr what happens.

    Raises:
        MemoryError: It does not fit, said with what is needed and what is free.
        Stopped: Ctrl-C or SIGTERM came; it is a ``KeyboardInterrupt``, and the state is saved.
    """
    given = {
        name: value for name, value in locals().items() if name in SETTINGS and value is not None
    }
    console = Console(stderr=True, quiet=not verbose)
    say = Reporter(console, os.environ.get("RANK", "0") == "0")  # one of several processes speaks
    check_sections(settings or {})
    tree = combine(settings or {}, _tree(given))
    load_plugins(tree.get("plugins") or [])
    name = None
    if source is not None:
        found, place = _find_source(str(source), tree, say)
        name = None if found == source else Path(source).expanduser().resolve().stem
        tree = combine(tree, {"data": {"source": found}}, place)
    if setting_at(tree, "start") is not None and resume is None:
        if setting_at(tree, "start.model") is None:
            raise UserError(
                "skip_unknown must come with --from: only a trained model knows its classes"
            )
        tree = with_start(tree, say)
    if resume is not None:
        folder = RunFolder(Path(resume))
        if out is not None:
            raise UserError(f"out must be left out with --resume, got {out}: a run has its folder")
        before = folder.read_config(tree.pop("plugins", ())).model_dump(
            mode="json", exclude_none=True
        )
        config = resolved(configuration(_with_changes(before, tree)))
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
        find_known("the ending of predictions", Path(predictions).suffix, FORMATS)
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
        found.found.write_predictions(Path(predictions))
    if place is None:
        return Evaluated(found.found.numbers, None)
    numbers = write_evaluation(found, place, report)
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
        draws: Resamplings of an interval, and exchanges of a test.
        seed: Of both.
    """
    from layline.reports.comparison import compare_runs
    from layline.reports.comparison_page import write_comparison

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
    if make_accelerator(resolved(configuration(tree))).is_main_process:
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
    root, images = (
        None if value is None else Path(str(value)).expanduser()
        for value in (setting_at(tree, "data.root"), setting_at(tree, "data.options.images"))
    )
    sheet = setting_at(tree, "data.options.sheet")
    name, place, sentence = data.find_source(source, root, data.names(), images, sheet)
    if sentence:
        say(sentence)
    return name, {} if place == root else _tree({"root": place})


def _tree(values: Mapping[str, Any], paths: Mapping[str, str] = SETTINGS) -> dict[str, Any]:
    """Put values into a tree of settings, each at its path or else at its name."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        branch: Any = _READ[name](value) if name in _READ else value
        for key in reversed(paths.get(name, name).split(".")):
            branch = {key: branch}
        tree = combine(tree, branch)
    return tree


def minutes(budget: str | float) -> float:
    """Read a time such as ``90s``, ``10min``, ``1h30min`` or ``0.5h``; a number means minutes."""
    text = str(budget).strip().lower()
    parts = _TIME.findall(text)
    total = sum(float(number) * _MINUTES[unit[:1]] for number, unit in parts)
    rest = re.sub(_TIME, "", text).strip()
    if not parts or rest or not total > 0 or (len(parts) > 1 and any(not u for _, u in parts)):
        raise UserError(f"budget must be a time such as 90s, 10min or 1h, got {budget!r}")
    return total


def _classes(value: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else list(value)


def _class_weight(value: str | Mapping[str, float]) -> str | dict[str, float]:
    if isinstance(value, str):
        check_known("class_weight", value, ("off", "balanced", "effective"))
        return value
    return dict(value)


# what is not a setting yet as it is given
_READ: dict[str, Any] = {
    "root": str,
    "from_run": str,
    "classes": _classes,
    "budget": minutes,
    "class_weight": _class_weight,
    "plugins": lambda values: [str(each) for each in values],
}


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
