"""Several processes: the same numbers as one, also if the samples do not divide evenly."""

import json
import os
import subprocess
import sys

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from layline import load, metrics
from layline.evaluation.predictions import predict_split
from layline.training.callbacks import Reporter
from layline.training.evaluate import evaluate
from layline.training.prepare import PreparedRun, make_splits, read_data
from layline.training.run_folder import RunFolder
from layline.utils.devices import Processes

pytestmark = pytest.mark.slow

QUIET = Reporter(Console(quiet=True))
LAUNCHERS = {
    "accelerate": [
        *("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines"),
        *("1", "--mixed_precision", "no", "--dynamo_backend", "no"),
    ],
    "torchrun": ["torch.distributed.run", "--nproc_per_node", "2"],
}


@pytest.fixture(scope="module")
def uneven(crops):
    """66 crops to validate and 54 to test, in batches of 64 that two processes share."""
    sizes = ("validation_per_class=11", "test_per_class=9")
    plain = ("--set", "training.ema=0")  # the state has the weights that were validated
    return (*crops, *plain, *(part for size in sizes for part in ("--set", f"data.options.{size}")))


@pytest.fixture(scope="module")
def by_two(attempt, uneven, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    made = attempt("train", *uneven, "--out", folder, processes=2)
    assert made.codes == [0, 0], made.stderr
    for printed in ("2 processes", "Classes, lowest first", "epoch 1/3", "epoch 3/3"):
        assert made.stderr.count(printed) == 1  # by one of them
    return folder


def test_validation_and_test_are_exact(by_two):
    """Each record is what a single process finds on the same weights."""
    folder = by_two
    model, config = load(folder), RunFolder(folder).read_config()
    records = RunFolder(folder).read_history()
    run = PreparedRun(config, read_data(config, QUIET), model, None, QUIET)
    part = make_splits(run)["validation"]
    best = json.loads((folder / "test.json").read_text())["epoch"]
    _, state = sorted((folder / "state").iterdir())
    files = {best: folder / "best.safetensors", 3: state / "model.safetensors"}
    for epoch, file in files.items():
        model.load_state_dict(load_file(file))
        alone = Processes(torch.device("cpu"))
        found = predict_split(model, part, part.batches(alone, 16), alone)
        assert found.log_probs.shape == (66, 6)
        predicted = found.decisions[config.training.decoding]
        found_mae = metrics.mean_absolute_error(part.ranks, predicted)
        assert records[epoch - 1]["validation_mae"] == found_mae
        assert records[epoch - 1]["validation_accuracy"] == metrics.accuracy(part.ranks, predicted)
        assert records[epoch - 1]["validation_loss"] == pytest.approx(found.loss, abs=1e-6)
    tested = json.loads((folder / "test.json").read_text())
    alone = evaluate(folder, verbose=False).metrics
    assert tested["samples"] == alone["samples"] == 54
    for exact in ("decode", "mae", "accuracy", "confusion", "by_decoding"):
        assert tested[exact] == alone[exact]
    assert tested["rps"] == pytest.approx(alone["rps"], abs=1e-6)


def test_a_run_of_two_that_is_killed_is_resumed(attempt, by_two, uneven, outcome, tmp_path):
    folder = tmp_path / "run"
    step = {"target": "layline.training.trainer:Trainer._step", "number": 3, "rank": 1}
    saving = {"target": "torch:save", "number": 2, "when": "half"}
    arguments = ("train", *uneven, "--out", folder)
    for harm in (step, saving):
        assert attempt(*arguments, processes=2, harm=[harm]).codes == [-9, -9]
        arguments = ("train", "--resume", folder)
    made = attempt(*arguments, processes=2)
    assert made.codes == [0, 0], made.stderr
    assert outcome(folder) == outcome(by_two)


@pytest.fixture(scope="module")
def options(options):
    """Without dropout, whose units each process draws for its own samples."""
    return (*options, "--set", "backbone.options.dropout=0")


@pytest.fixture(scope="module")
def rows_by_two(attempt, options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "rows"
    made = attempt("train", *options, "--out", folder, processes=2)
    assert made.codes == [0, 0], made.stderr
    return folder


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers(launcher, options, rows_by_two, tmp_path):
    folder = tmp_path / "run"
    made = subprocess.run(
        [
            *(sys.executable, "-m", *LAUNCHERS[launcher], "-m", "layline", "train"),
            *(*map(str, options), "--out", folder),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "2 processes" in made.stderr
    for name in ("best.safetensors", "history.jsonl", "test.json", "predictions.csv"):
        assert (folder / name).read_bytes() == (rows_by_two / name).read_bytes()


def test_rows_are_learned_from_as_by_one_process(attempt, options, rows_by_two, tmp_path):
    """Without BatchNorm and dropout a step does not depend on how its samples are shared."""
    ways = {"one": (1, 1), "parts": (1, 3), "two in parts": (2, 2)}
    runs = {
        "two": (load_file(rows_by_two / "best.safetensors"), RunFolder(rows_by_two).read_history())
    }
    for name, (processes, parts) in ways.items():
        folder = tmp_path / name
        share = ("--set", f"training.accumulation={parts}")
        made = attempt("train", *options, *share, "--out", folder, processes=processes)
        assert made.codes == [0] * processes, made.stderr
        runs[name] = load_file(folder / "best.safetensors"), RunFolder(folder).read_history()
    weights, records = runs.pop("one")
    for others, other_records in runs.values():
        for name, tensor in weights.items():
            assert (others[name] - tensor).abs().max() < 1e-5, name
        for record, other in zip(records, other_records, strict=True):
            assert other == pytest.approx(record, abs=1e-5)
            assert other["validation_mae"] == record["validation_mae"]


def test_all_stop_where_one_is_interrupted(attempt, uneven, tmp_path):
    harm = {"target": "layline.training.trainer:Trainer._step", "deed": "interrupt", "number": 2}
    folder = tmp_path / "run"
    made = attempt("train", *uneven, "--out", folder, processes=2, harm=[harm | {"rank": 1}])
    assert (made.codes, made.left) == ([130, 130], [])
    assert made.stderr.count(f"layline train --resume {folder}") == 1


def test_all_stop_where_one_is_no_longer_finite(attempt, uneven, tmp_path):
    harm = {"target": "layline.model.model:OrdinalModel.forward", "deed": "nan", "number": 5}
    folder = tmp_path / "run"
    made = attempt("train", *uneven, "--out", folder, processes=2, harm=[harm | {"rank": 1}])
    assert made.codes == [1, 1]
    assert "Traceback" not in made.stderr
    assert "not finite at step 2 of epoch 2" in made.stderr
    kept = sorted(state.name for state in (folder / "state").iterdir())
    assert kept == ["epoch-00002-step-0000000", "epoch-00002-step-0000001"]


def test_a_disk_without_room_stops_all(attempt, uneven, tmp_path):
    harm = {"target": "layline.training.callbacks:publish_folder", "deed": "no room"}
    made = attempt("train", *uneven, "--out", tmp_path / "run", processes=2, harm=[harm])
    assert all(made.codes)
    assert made.left == []
    assert "No space left on device; nothing was left half-written" in made.stderr


def test_a_folder_must_be_named_for_several(attempt, uneven):
    made = attempt("train", *uneven, processes=2)
    assert made.codes[0] == 1
    assert "out is needed with several processes" in made.stderr
