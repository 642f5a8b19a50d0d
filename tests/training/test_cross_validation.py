"""Small data are used whole: a cross-validation calibrates the model, and measures it."""

import json
from unittest.mock import DEFAULT, Mock

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn

import layline
from layline import heads
from layline.data import splits
from layline.data.loaders import RowBatches
from layline.data.splits import assign_folds
from layline.evaluation.predictions import Split
from layline.model.model import Network
from layline.training import cross_validation, prepare
from layline.training import run as runs
from layline.training.callbacks import Reporter
from layline.training.config import TrainingConfig, combine, tree_of
from layline.training.cross_validation import predict_out_of_fold
from layline.training.distributed import make_accelerator
from layline.training.recipes import draft_config
from layline.training.trainer import Callback, EpochBatches, Interrupted
from layline.utils.devices import Processes

PROCESSES = Processes(torch.device("cpu"))
COUNT = 42
FOLDS = assign_folds(np.arange(COUNT) % 3, 4, seed=0)


def network():
    """A network that can learn every sample by heart."""
    torch.manual_seed(0)
    return Network(nn.Linear(COUNT, 8), heads.create("classification", 3, 8))


def samples(ranks=None):
    """Each sample has a column of its own, so nothing can be learned about the others."""
    ranks = torch.arange(COUNT) % 3 if ranks is None else ranks
    return Split(RowBatches(np.eye(COUNT, dtype=np.float32)), ranks, torch.ones(COUNT))


def cross_validate(initial, train, fold_of=FOLDS, callbacks=(), **changes):
    settings = {"epochs": 8, "batch_size": 8, "learning_rate": 0.05, **changes}
    options = TrainingConfig(**settings).options()
    return predict_out_of_fold(initial, train, fold_of, options, PROCESSES, callbacks)


def order_of(fold_of):
    """The samples in the order of the predictions: fold by fold."""
    return np.concatenate([np.flatnonzero(fold_of == k) for k in range(fold_of.max() + 1)])


class Seen(nn.Linear):
    """Notes the samples of each pass, and whether it was in training."""

    passes: list

    def forward(self, x):
        Seen.passes.append((self.training, set(x.argmax(dim=1).tolist())))
        return super().forward(x)


def test_each_sample_is_predicted_once_by_a_network_that_was_trained_on_all_other_folds():
    Seen.passes, fold_of = [], FOLDS.copy()
    fold_of[[3, 4]] = -1  # never held out
    model = Network(Seen(COUNT, 8), heads.create("classification", 3, 8))
    log_probs, ranks = cross_validate(model, samples(), fold_of, epochs=2)
    assert log_probs.shape == (COUNT - 2, 3)
    assert ranks.tolist() == samples().ranks[order_of(fold_of)].tolist()
    trained, held_out = set(), []
    for training, numbers in Seen.passes:
        if training and held_out and held_out[-1]:
            trained = set()  # of the next fold
        if training:
            trained |= numbers
            held_out += [set()] if not held_out or held_out[-1] else []
        else:
            held_out[-1] |= numbers
            assert not trained & numbers
            assert trained | held_out[-1] <= set(range(COUNT))
    assert [sorted(fold) for fold in held_out] == [
        np.flatnonzero(fold_of == k).tolist() for k in range(4)
    ]


def test_the_labels_of_a_fold_do_not_change_its_predictions():
    train, order = samples(), order_of(FOLDS)
    changed = train.ranks.clone()
    changed[FOLDS == 1] = (changed[FOLDS == 1] + 1) % 3
    (before, _), (after, ranks) = (
        cross_validate(network(), each) for each in (train, samples(changed))
    )
    assert torch.equal(ranks, changed[order])
    own = torch.from_numpy(FOLDS[order] == 1)
    assert torch.equal(before[own], after[own])
    assert not torch.isclose(before[~own], after[~own]).all(dim=1).any()


def test_the_initial_network_stays_as_it_is_and_the_seed_decides_everything():
    initial = network()
    before = {name: value.clone() for name, value in initial.state_dict().items()}
    first = cross_validate(initial, samples())[0]
    assert all(torch.equal(value, before[name]) for name, value in initial.state_dict().items())
    torch.rand(3)
    assert torch.equal(cross_validate(initial, samples())[0], first)
    assert not torch.equal(cross_validate(initial, samples(), seed=1)[0], first)


class Last(Callback):
    """Keeps the predictions of the network at the end of each last epoch, as a run saves it."""

    def __init__(self):
        self.log_probs = []

    def on_epoch_end(self, trainer, validation, is_best):
        if is_best:
            with torch.no_grad():
                features = trainer.network.eval().backbone(torch.eye(COUNT))
                self.log_probs.append(trainer.network.head(features))


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_the_weights_that_a_run_would_save_predict(ema):
    last = Last()
    log_probs, _ = cross_validate(network(), samples(), callbacks=[last], ema=ema)
    expected = [each[torch.from_numpy(k == FOLDS)] for k, each in enumerate(last.log_probs)]
    torch.testing.assert_close(log_probs.float(), torch.cat(expected))


def test_without_folds_there_are_no_predictions():
    log_probs, ranks = cross_validate(network(), samples(), np.full(COUNT, -1))
    assert (log_probs.shape, ranks.shape, ranks.dtype) == ((0, 3), (0,), torch.int64)


def test_a_callback_stops_a_fold():
    class Stop(Callback):
        def stop_requested(self):
            return True

    with pytest.raises(Interrupted):
        cross_validate(network(), samples(), callbacks=[Stop()])


# Runs

SMALL = {"label": "grade", "dim": 4, "epochs": 10, "folds": 3, "lr": 0.01}
QUIET = {"verbose": False, "report": False}


@pytest.fixture(scope="module")
def run(ratings, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return layline.train(ratings, **SMALL, out=out, verbose=False)


def test_a_run_is_trained_on_all_samples_except_the_test_split(run):
    counts = json.loads((run.folder / "environment.json").read_text())["counts"]
    assert {split: sum(count) for split, count in counts.items()} == {"train": 72, "test": 18}
    validation = run.metrics["validation"]
    assert validation["samples"] == 72
    assert 0.5 < validation["accuracy"] < 1
    assert validation["rps"] < 0.2
    assert run.metrics["calibration"]["samples"] == 72
    assert run.metrics["epoch"] == 10  # the last
    assert [set(record) for record in run.history] == [{"epoch", "train_loss"}] * 10
    calibration = run.model.description.calibration
    assert calibration.temperature != 1
    assert len(calibration.scores) == 72


def test_its_report_has_no_figure_of_a_validation_split(run):
    page = run.report.read_text()
    assert "cross-validation with 3 folds" in page
    assert "the last one" in page
    for absent in ("Validation MAE", "Validation accuracy", "validation_mae"):
        assert absent not in page


def test_it_is_a_function_of_its_seed(run, ratings, tmp_path):
    again = layline.train(ratings, **SMALL, **QUIET, out=tmp_path / "same")
    assert again.metrics == run.metrics
    other = layline.train(ratings, **SMALL, **QUIET, seed=1, out=tmp_path / "other")
    assert other.metrics["validation"] != run.metrics["validation"]


@pytest.mark.parametrize(
    ("name", "stop"),
    [("predict_split", KeyboardInterrupt), ("Trainer", Interrupted("Stopped in epoch 1"))],
)
def test_a_run_that_was_interrupted_in_the_folds_is_resumed(
    run, ratings, tmp_path, monkeypatch, name, stop
):
    folder, target = tmp_path / "run", f"layline.training.cross_validation.{name}"
    with monkeypatch.context() as patch:
        function = getattr(cross_validation, name)
        second = Mock(side_effect=[DEFAULT, stop], wraps=function)
        patch.setattr(target, second)
        with pytest.raises(runs.Stopped, match="Resume with"):
            layline.train(ratings, **SMALL, **QUIET, out=folder)
    assert second.call_count == 2
    assert not (folder / "test.json").exists()
    resumed = layline.train(resume=folder, verbose=False)
    assert resumed.metrics == run.metrics
    assert resumed.history == run.history


@pytest.mark.slow
def test_a_run_that_was_killed_in_the_folds_is_resumed(attempt, run, ratings, tmp_path):
    folder = tmp_path / "run"
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    steps = 10 * EpochBatches(72, TrainingConfig(batch_size=16).options()).steps
    for harm in (
        {"target": "layline.training.trainer:Trainer._step", "number": steps + 7},
        {"target": "layline.training.cross_validation:predict_split", "number": 3},
        {"target": "layline.training.run:write_json", "when": "before"},
    ):
        start = ("--resume", folder) if folder.exists() else (ratings, *options, "--out", folder)
        made = attempt("train", *start, harm=[harm])
        assert made.codes == [-9], made.stderr
    assert attempt("train", "--resume", folder).codes == [0]
    numbers = json.loads((folder / "test.json").read_text())
    assert numbers == run.metrics


def test_the_splits_of_a_run_are_evaluated_as_they_were(run):
    again = layline.evaluate(run.folder, verbose=False)
    assert again.metrics["by_decoding"] == run.metrics["by_decoding"]
    assert layline.evaluate(run.folder, part="train", verbose=False).metrics["samples"] == 72
    assert layline.evaluate(run.folder, part="all", verbose=False).metrics["samples"] == 90
    for part in ("validation", "calibration"):
        with pytest.raises(layline.UserError, match=f"no {part} split"):
            layline.evaluate(run.folder, part=part, verbose=False)


def test_calibrating_again_without_other_data_is_refused(command, run):
    before = (run.folder / "best.safetensors").read_bytes()
    found = command("calibrate", run.folder)
    assert found.exit_code == 1
    assert "left-out labels" in found.stderr.splitlines()[-1]
    assert (run.folder / "best.safetensors").read_bytes() == before


def test_data_that_cannot_be_folded_are_trained_on_without_a_calibration(ratings, tmp_path):
    """Each class has one group, which is needed for training."""
    frame = pd.read_csv(ratings)
    groups = np.where(np.arange(90) < 60, frame["grade"], 100 + np.arange(90))
    parts = np.where(np.arange(90) < 60, "train", "test")
    frame.assign(patient=groups, split=parts).to_csv(tmp_path / "table.csv", index=False)
    options = {**SMALL, **QUIET, "group": "patient"}
    run = layline.train(tmp_path / "table.csv", **options, out=tmp_path / "run")
    assert run.metrics["samples"] == 30
    assert run.metrics["ranges"] == []
    assert run.model.description.calibration.temperature == 1


def test_one_fold_is_refused(ratings, tmp_path):
    with pytest.raises(layline.UserError, match="folds"):
        layline.train(ratings, **{**SMALL, **QUIET, "folds": 1}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_further_epochs_of_a_resumed_run_are_used(ratings, tmp_path):
    settings = {"training": {"schedule": "none", "warmup_epochs": 0, "patience": 2}}
    short = {**SMALL, **QUIET, "epochs": 2, "settings": settings}
    run = layline.train(ratings, **short, out=tmp_path / "run")
    before = (run.folder / "best.safetensors").read_bytes()
    resumed = layline.train(resume=run.folder, epochs=6, verbose=False)
    assert [record["epoch"] for record in resumed.history] == [1, 2, 3, 4, 5, 6]
    assert resumed.metrics["epoch"] == 6
    whole = layline.train(ratings, **{**short, "epochs": 6}, out=tmp_path / "whole")
    assert (run.folder / "best.safetensors").read_bytes() != before
    assert resumed.metrics == whole.metrics


def test_groups_are_in_one_fold(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(30), 3)
    frame = pd.DataFrame({"x": rng.normal(size=90), "grade": rng.integers(0, 3, 90)})
    frame.assign(patient=patient).to_csv(tmp_path / "table.csv", index=False)
    folds = []

    def watched(ranks, *args):
        folds.append((args[-1], assign_folds(ranks, *args)))
        return folds[-1][1]

    monkeypatch.setattr(prepare, "assign_folds", watched)
    options = {**SMALL, **QUIET, "epochs": 1, "group": "patient"}
    layline.train(tmp_path / "table.csv", **options, out=tmp_path / "run")
    ((groups, fold_of),) = folds
    assert len(groups) == len(fold_of) > 60
    assert len({*zip(groups, fold_of, strict=True)}) == len({*groups})


@pytest.mark.parametrize(
    ("settings", "folds"), [({}, splits.FOLDS), ({"folds": 0}, 0), ({"folds": 2}, 2)]
)
def test_small_tables_have_folds_unless_they_are_switched_off(ratings, settings, folds):
    assert plan(ratings, **settings).training.folds == folds


def test_large_tables_and_prescribed_validation_splits_have_no_folds(ratings, tmp_path):
    frame = pd.read_csv(ratings)
    prescribed = frame.assign(split=np.repeat(["train", "val", "test"], 30))
    prescribed.to_csv(tmp_path / "prescribed.csv", index=False)
    assert plan(tmp_path / "prescribed.csv").training.folds == 0
    assert plan(tmp_path / "prescribed.csv", folds=3).training.folds == 3
    for times, folds in ((13, splits.FOLDS), (15, 0)):  # 936 and 1080 labels outside the test split
        pd.concat([frame] * times).to_csv(tmp_path / "large.csv", index=False)
        assert plan(tmp_path / "large.csv").training.folds == folds
    assert plan(ratings, recipe="paper").training.folds == 0


def plan(path, **settings):
    """Return the complete configuration of a run, without training it."""
    tree = combine({"data": {"source": "table"}}, tree_of({"root": path, "label": "grade"}))
    tree = combine(tree, tree_of(settings))
    log = Reporter(Console(quiet=True))
    made = runs.prepare_run(tree, make_accelerator(draft_config(tree)), log)
    assert (len(made.dataset.splits.validation) == 0) == (made.config.training.folds > 0)
    return made.config
