"""A run, from data to a tested model and its report.

Each stage happens once: detect → read → group → split → plan → build → fit → test → report.
Training is a function of the configuration and the data, so a run that was stopped resumes from its
last checkpoint and ends with the same numbers.
"""

import copy
import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

import torch
from accelerate import Accelerator
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

from layline import data
from layline.data.dataset import groups_of
from layline.data.stress import gap_class
from layline.data.tables import Rows
from layline.evaluation.evaluate import CALIBRATED, compute_metrics, evaluate_split, measure_gap
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import decide, decode_name
from layline.heads import AUTO, HEADS
from layline.heads.base import probabilities
from layline.metrics import CRITERIA, METRICS
from layline.model.calibration import Calibration, apply_temperature
from layline.model.model import Network, OrdinalModel
from layline.model.model_file import load, read_model_file
from layline.training import prepare
from layline.training.callbacks import Checkpoints, ProgressDisplay, Recording, Reporter, Signals
from layline.training.config import SETTINGS, Config, Tree, combine, flatten, setting_at, tree_of
from layline.training.cross_validation import Outcomes, predict_out_of_fold
from layline.training.distributed import (
    SeveralProcesses,
    end_together,
    make_accelerator,
    run_on_main,
)
from layline.training.gaussian_process import fit_closed_form
from layline.training.planner import choose_network, is_frozen_open, plan_run
from layline.training.prepare import PreparedRun
from layline.training.recipes import (
    add_model_settings,
    choose_method,
    complete_length,
    draft_config,
    fewest_for_splits,
    resolve_config,
)
from layline.training.report_data import choose_samples, write_report_data
from layline.training.run_folder import RunFolder, count_classes, describe_environment, new_folder
from layline.training.trainer import Callback, EpochRecord, Interrupted, Trainer
from layline.utils.devices import Processes, count_processes, is_first_process, one_thread
from layline.utils.files import write_json
from layline.utils.registry import load_plugins
from layline.utils.validation import UserError

# settings that may change when a run is resumed
_CHANGEABLE = {
    *(f"training.{name}" for name in ("epochs", "patience", "checkpoint_minutes")),
    *(f"data.{name}" for name in ("workers", "root", "verify")),
    *(f"report.{name}" for name in ("enabled", "mistakes", "review", "draws")),
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
        settings: Settings by section, such as ``{"training": {"weight_decay": 0.1}}``. Settings by
            name take precedence.
        out: New folder for the run; a name below ``runs`` by default.
        resume: Folder of a run to resume, instead of a source.
        verbose: Whether to print progress on stderr.
        options: Settings by name.

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
        at_once = "Stopped at once; earlier checkpoints are kept"
        how = f"{stop}; the state is saved" if isinstance(stop, Interrupted) else at_once
        raise Stopped(folder.path, how) from None
    if numbers is not None and folder.read_record().report.enabled:
        write_report(folder, console)
    return Run(folder.path)


def _document_settings() -> None:
    """Give :func:`train` a signature and a docstring with every setting."""
    *kept, options = inspect.signature(train).parameters.values()
    named = [
        options.replace(name=name, kind=options.KEYWORD_ONLY, default=None) for name in SETTINGS
    ]
    train.__signature__ = inspect.Signature([*kept, *named], return_annotation=Run)  # type: ignore[attr-defined]
    lines = "\n        ".join(f"{each.name}: {each.help}" for each in SETTINGS.values())
    train.__doc__ = str(train.__doc__).replace("options: Settings by name.", lines)


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
    own_name = name if method == AUTO else f"{name}-{method}"
    folder = RunFolder(out if out is not None else new_folder(own_name))
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


def train_run(
    settings: Config | Mapping[str, Any],
    folder: RunFolder,
    console: Console,
    command: Sequence[str] = (),
    stop: Event | None = None,
    keep_state: bool = True,
) -> dict[str, Any] | None:
    """Train, or resume training, and test the best epoch.

    ``settings`` are complete, or the recipe and the planner choose what is not set. If ``stop`` is
    set, training stops as after a signal, which threads do not get. ``keep_state`` saves the state
    at the end. Returns the numbers of ``test.json`` in the main process, None in others.
    """
    draft = settings if isinstance(settings, Config) else draft_config(settings)
    accelerator = make_accelerator(draft, folder.path)
    log = Reporter(console, accelerator.is_main_process)
    if accelerator.num_processes > 1:
        log(f"{accelerator.num_processes} processes")
    with end_together(accelerator), ExitStack() as locks:
        run = prepare_run(settings, accelerator, log, folder.initial)
        config, processes = run.config, run.processes
        splits = prepare.make_splits(run)
        network = prepare.select_trained(run.model, config)
        options = replace(config.training.options(), workers=config.data.workers)
        callbacks: list[Callback] = [
            Signals(stop),
            # before the checkpoints: they refer to the best model on disk
            Recording(run.model, folder, accelerator, config.report),
            Checkpoints(folder, processes, log, config.training.checkpoint_minutes, keep_state),
            ProgressDisplay(console, processes.is_main),
        ]
        train, validation = splits["train"], splits.get("validation")
        trainer = initial = None
        if not config.training.closed_form:
            initial = copy.deepcopy(network) if config.training.folds else None
            trainer = Trainer(network, train, validation, options, processes, callbacks)
        # the folder is made only now that data and settings are known to be valid
        run_on_main(accelerator, lambda: _open_folder(run, folder, command, locks))
        if config.track:
            flat = flatten(config.model_dump(mode="json"))
            plain = {k: v if isinstance(v, int | float | str) else str(v) for k, v in flat.items()}
            accelerator.init_trackers("layline", plain)
        cheap, best_epoch = config.backbone.freeze or run.model.is_table, 1
        outcomes: Outcomes | None = None
        with one_thread(cheap):
            if trainer is None:
                run.model.to(processes.device)
                outcomes = _fit_closed_form(run, network, train, folder)
            else:
                best_epoch = trainer.fit().best_epoch
                run.model.load_state_dict(read_model_file(folder.best)[1])
            if initial is not None:
                outcomes = _cross_validate(run, initial, train, callbacks[:1])
        held_out = unseen = outcomes
        if held_out is None or validation is not None:
            held_out, apart = _predict_held_out(run, network, splits)
            unseen = apart or outcomes
        facts: dict[str, Any] = {"epoch": best_epoch}
        if config.training.closed_form:
            facts["closed_form"] = True
        if measured := _calibrate(run, held_out, unseen, folder):
            facts["validation"] = measured
        return _test(run, network, splits["test"], folder, facts)


def prepare_run(
    settings: Config | Mapping[str, Any],
    accelerator: Accelerator,
    log: Reporter,
    initial: Path | None = None,
) -> PreparedRun:
    """Read the data, plan the run unless its configuration is complete, and build the model."""
    device = accelerator.device
    if isinstance(settings, Config):
        draft = settings
    else:
        first = draft_config(settings)
        choice = run_on_main(accelerator, lambda: choose_network(first, device, log))
        draft = draft_config(combine(choice, settings))
    model = prepare.load_initial_model(draft, initial)
    known = None if model is None else prepare.known_inputs(draft, model.description)
    is_open = not isinstance(settings, Config) and is_frozen_open(draft, settings)
    fewest = fewest_for_splits(draft, is_open)
    dataset = prepare.read_data(draft, log, accelerator, known, fewest=fewest)
    backbone = None if model is None else model.backbone
    if isinstance(settings, Config):
        config = settings
    elif draft.recipe != "modern":
        config = resolve_config(choice, settings)
    else:
        if isinstance(dataset.inputs, Rows):  # for images the planner must decide first
            draft = choose_method(draft, dataset)
        network = backbone = backbone or prepare.build_backbone(draft, dataset)
        plan = run_on_main(
            accelerator, lambda: plan_run(draft, settings, dataset, network, device, log)
        )
        config = resolve_config(choice, plan, settings)
    config = complete_length(config, dataset)
    if model is None:
        backbone = backbone or prepare.build_backbone(config, dataset)
        model = prepare.build_model(config, dataset, backbone, log)
    method, decode = config.head.method, decode_name(config.training.decoding)
    log(f"Method: {method}, {HEADS[method].summary}; ranks are decoded by the {decode}.")
    if config.training.closed_form:
        log(
            "The last layer is fitted in closed form. The model contains the rows or features of "
            "its training samples."
        )
    elif folds := config.training.folds:
        log(
            f"All {len(dataset.splits.train)} labels are used for training; a cross-validation "
            f"with {folds} folds calibrates the model."
        )
    else:
        label = METRICS[config.training.metric].label
        log(f"The best epoch is selected by {label} on the validation split.")
    if config.data.cache and not config.backbone.freeze:
        dataset = prepare.cache_pixels(dataset, model.description, log, accelerator)
    return PreparedRun(config, dataset, model, SeveralProcesses(accelerator), log)


def _open_folder(
    run: PreparedRun, folder: RunFolder, command: Sequence[str], locks: ExitStack
) -> None:
    try:
        locks.enter_context(folder.lock())
    except NotImplementedError:
        run.log(f"The file system of {folder.path} has no locks; do not use it in another process.")
    environment = describe_environment(run.config, run.dataset, run.model, run.processes, command)
    folder.open(run.config, environment)
    prepare.copy_initial_model(run.config, folder.initial)


def _predict_held_out(
    run: PreparedRun, network: Network, splits: Mapping[str, Split]
) -> tuple[Outcomes, Outcomes | None]:
    """Predict the validation split, for the temperature, and the calibration split, for ranges.

    The validation split already selected the epoch; the calibration split selected nothing.
    """
    outcomes: dict[str, Outcomes] = {}
    for name in ("validation", "calibration"):
        if (split := splits.get(name)) is not None:
            log_probs = predict(network, split, run.config, run.processes).log_probs
            outcomes[name] = log_probs, split.ranks
    return outcomes["validation"], outcomes.get("calibration")


def _fit_closed_form(
    run: PreparedRun, network: Network, train: Split, folder: RunFolder
) -> Outcomes:
    """Fit the last layer and the head in closed form, and record it as one epoch."""
    groups = groups_of(run.dataset, run.dataset.splits.train)
    outcomes = fit_closed_form(network, train, groups)
    loss = float(torch.nn.functional.nll_loss(*outcomes))
    if run.processes.is_main:
        folder.write_history([{"epoch": 1, "train_loss": loss}])
    run.log(f"The model was fitted in closed form; its loss on left-out labels is {loss:.4f}.")
    return outcomes


def _cross_validate(
    run: PreparedRun, initial: Network, train: Split, callbacks: Sequence[Callback]
) -> Outcomes:
    """Predict the training samples by networks that have not seen them."""
    config, fold_of = run.config, prepare.assign_train_folds(run)
    folds = int(fold_of.max(initial=-1)) + 1
    options = replace(config.training.options(), workers=config.data.workers)
    processes: Processes = run.processes
    if processes.count == 1 and run.processes.accelerator.mixed_precision == "no":
        processes = Processes(processes.device)  # without the overhead of accelerate
    with run.log.progress(f"Cross-validation with {folds} folds", folds) as progress:
        return predict_out_of_fold(initial, train, fold_of, options, processes, callbacks, progress)


def _calibrate(
    run: PreparedRun, held_out: Outcomes, unseen: Outcomes | None, folder: RunFolder
) -> dict[str, Any]:
    """Calibrate the model, save it, and measure the held-out predictions."""
    config, model, processes = run.config, run.model, run.processes
    log_probs, ranks = held_out
    calibration = Calibration()
    # the scales of a closed form were fitted to the same predictions
    is_fitted = config.training.closed_form and held_out is unseen
    if len(ranks):
        fits_temperature = config.training.calibrate and not is_fitted
        calibration = Calibration.fit(held_out if fits_temperature else None, unseen)
    model.description = replace(model.description, calibration=calibration)
    processes.accelerator.wait_for_everyone()
    if processes.is_main:
        model.save(folder.best)
    processes.accelerator.wait_for_everyone()
    if not len(ranks):  # no class has samples for two folds
        return {}
    proba = probabilities(apply_temperature(log_probs, calibration.temperature)).numpy()
    predicted = decide(torch.from_numpy(proba), config.training.decoding)
    return {
        "samples": len(ranks),
        **compute_metrics(tuple(CRITERIA), ranks, predicted),
        **compute_metrics(CALIBRATED, ranks, proba),
    }


def _test(
    run: PreparedRun, network: Network, split: Split, folder: RunFolder, facts: dict[str, Any]
) -> dict[str, Any] | None:
    """Evaluate the best epoch on the test split, and write the results."""
    config, dataset, description = run.config, run.dataset, run.model.description
    points = config.report.points if config.report.enabled else 0
    drawn = choose_samples(len(split.ranks), points, config.training.seed)
    calibration = description.calibration
    predictions = predict(network, split, config, run.processes, calibration.temperature, drawn)
    if not run.processes.is_main:
        return None
    if dataset.duplicates is not None and dataset.duplicates.duplicates:
        facts["duplicates"] = dataset.duplicates.facts()
    index = dataset.splits.test
    inputs, groups = dataset.inputs.subset(index), groups_of(dataset, index)
    decode, counts = config.training.decoding, count_classes(dataset)["train"]
    about: tuple[Any, ...] = groups, facts, counts, config.report.draws
    evaluation = evaluate_split(
        "test", split.ranks, inputs.names, predictions, description, decode, *about
    )
    if config.data.stress == "gap":
        missing = gap_class(len(dataset.classes))
        evaluation.numbers["gap"] = measure_gap(split.ranks, predictions, missing)
    evaluation.write_predictions(folder.predictions)
    write_json(folder.test, evaluation.numbers)
    if config.report.enabled:
        try:
            write_report_data(folder, evaluation, inputs, drawn, run.model, config.report)
        except OSError as error:
            run.log(f"The figures of the report were not written: {error}")
    return evaluation.numbers


def predict(
    network: Network,
    split: Split,
    config: Config,
    processes: Processes,
    temperature: float = 1.0,
    keep: Int[Tensor, " m"] | None = None,
) -> Predictions:
    """Predict a split in full precision; the features of the samples in ``keep`` are returned."""
    options = config.training.options()
    batches = split.batches(processes, options.batch_size, config.data.workers)
    choices: Tree = {"keep": keep, "decode": options.decode, "temperature": temperature}
    return predict_split(network, split, batches, processes, full_precision=True, **choices)


def write_report(folder: RunFolder, console: Console) -> None:
    """Write the report of a finished run; a failure is a warning, because the results exist."""
    try:
        from layline.reports.run import write_run_report

        write_run_report(folder.path, folder.report)
    except (ImportError, OSError) as error:
        Reporter(console)(f"report.html was not written: {error}. The other results are complete.")
