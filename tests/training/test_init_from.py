"""Initializing a run from a trained model."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import layline
from layline.training.callbacks import Signals
from layline.training.run_folder import RunFolder

SMALL = ("--epochs", 2, "--folds", 0, "--no-report")
RESULTS = ("best.safetensors", "history.jsonl", "test.json", "predictions.csv")


@pytest.fixture(scope="module")
def first(command, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first"
    result = command("train", table, "--dim", 4, *SMALL, "--epochs", 4, "--out", folder)
    assert result.exit_code == 0
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Rows without the highest class, with the columns in another order."""
    rng = np.random.default_rng(5)
    x = rng.normal(0.2, 1.1, size=(90, 3))
    labels = np.digitize(x[:, 0] + 0.3 * x[:, 1], [-1, 0.2])
    path = tmp_path_factory.mktemp("table") / "other.csv"
    frame = pd.DataFrame({"label": labels, "c": x[:, 2], "a": x[:, 0], "b": x[:, 1]})
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def second(command, first, other, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "second"
    result = command("train", other, "--init-from", first, *SMALL, "--out", folder)
    assert result.exit_code == 0
    return folder


def error(result):
    assert result.exit_code == 1
    return result.stderr.splitlines()[-1]


def test_it_has_the_model_the_classes_and_lower_rates(first, second):
    models = [layline.load(folder) for folder in (first, second)]
    assert models[0].description.inputs == models[1].description.inputs
    assert models[0].classes == models[1].classes == ("0", "1", "2", "3")
    configs = [RunFolder(folder).read_config() for folder in (first, second)]
    assert configs[1].head == configs[0].head
    for rate in ("learning_rate", "head_learning_rate"):
        before, after = (getattr(config.training, rate) for config in configs)
        assert after == pytest.approx(0.1 * before)
    environment = json.loads((second / "environment.json").read_text())
    assert environment["init_from"]["digest"] == configs[1].init_from.digest
    copies = (first / "best.safetensors", second / "init_from.safetensors")
    assert copies[0].read_bytes() == copies[1].read_bytes()


def test_without_learning_it_is_the_first_model(command, first, other, tmp_path):
    folder = tmp_path / "run"
    still = ("--lr", 1e-30, "--head-lr", 1e-30, "--no-calibrate", "--out", folder)
    assert command("train", other, "--init-from", first, *SMALL, *still).exit_code == 0
    tensors = [load_file(run / "best.safetensors") for run in (first, folder)]
    assert tensors[0].keys() == tensors[1].keys()
    for name, tensor in tensors[0].items():  # weights of zero move by the learning rate
        torch.testing.assert_close(tensors[1][name], tensor, rtol=0, atol=1e-28)


def test_its_configuration_repeats_it(command, second, tmp_path):
    arguments = ("--config", second / "config.toml", "--out", tmp_path / "run")
    assert command("train", *arguments).exit_code == 0
    for name in (*RESULTS, "config.toml"):
        assert (tmp_path / "run" / name).read_bytes() == (second / name).read_bytes()


def test_it_is_resumed_bit_for_bit_without_the_first_run(
    command, first, second, other, tmp_path, monkeypatch
):
    shutil.copytree(first, tmp_path / "first")
    folder = tmp_path / "run"
    with monkeypatch.context() as context:
        context.setattr(Signals, "stop_requested", lambda self: True)
        arguments = (other, "--init-from", tmp_path / "first", *SMALL, "--out", folder)
        assert command("train", *arguments).exit_code == 130
    assert not (folder / "test.json").exists()
    shutil.rmtree(tmp_path / "first")
    assert command("train", "--resume", folder).exit_code == 0
    for name in RESULTS:
        assert (folder / name).read_bytes() == (second / name).read_bytes()
    assert layline.evaluate(folder, verbose=False).metrics["samples"] == 18


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "coral"), "head.method cannot be set with init_from"),
        (("--dim", 8), "head.dim cannot be set with init_from"),
        (("--backbone", "convnet"), "backbone.name cannot be set with init_from"),
        (("--weights", "bundled"), "backbone.weights cannot be set with init_from"),
        (("--classes", "3,2,1,0"), "classes cannot be changed with init_from"),
        (("--set", "backbone.options.hidden=[4]"), "backbone.options.hidden cannot be set"),
    ],
)
def test_settings_that_contradict_the_model_are_refused(command, first, other, arguments, message):
    assert message in error(command("train", other, "--init-from", first, *arguments))


def test_data_that_do_not_fit_are_refused(command, first, other, photographs, tmp_path):
    text, path = other.read_text(), tmp_path / "data.csv"
    path.write_text(text.replace("label,c,a,b", "label,c,a,d"))
    assert "'b'" in error(command("train", path, "--init-from", first, *SMALL))
    path.write_text(text + "seven,1,2,3")
    assert "seven" in error(command("train", path, "--init-from", first, *SMALL))
    skipped = ("--skip-unknown", *SMALL, "--out", tmp_path / "run")
    assert command("train", path, "--init-from", first, *skipped).exit_code == 0
    message = error(command("train", photographs, "--init-from", first, *SMALL))
    assert "The model takes a table, but" in message


def test_a_missing_or_changed_model_is_refused(command, second, other, tmp_path):
    assert "nowhere does not exist" in error(command("train", other, "--init-from", "nowhere"))
    message = error(command("train", other, "--init-from", tmp_path))
    assert "best.safetensors does not exist" in message
    assert "init_from.model: Field required" in error(command("train", other, "--skip-unknown"))
    text = (second / "config.toml").read_text()
    digest = RunFolder(second).read_config().init_from.digest
    (tmp_path / "config.toml").write_text(text.replace(digest, "0" * len(digest)))
    assert "changed since" in error(command("train", "--config", tmp_path / "config.toml"))
    shutil.copytree(second, tmp_path / "run")
    (tmp_path / "run" / "init_from.safetensors").write_bytes(b"others")
    assert "changed since the run" in error(command("train", "--resume", tmp_path / "run"))
