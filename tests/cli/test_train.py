"""``layline train``: what a run leaves behind, and every mistake as one line."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from layline.geometry.decoding import DECODINGS
from layline.metrics import METRICS
from layline.training.recipes import resolve_config

COMMANDS = [*((name,) for name in ("train", "evaluate", "predict", "methods")), ("data", "check")]
RECORDED = {"layouts", "proxies.npz", "mistakes", "mistakes.json", "review.json", "report.html"}
FILES = RECORDED | {
    *("config.toml", "environment.json", "history.jsonl", "best.safetensors", "state"),
    *("test.json", "predictions.csv"),
}


@pytest.fixture
def train(layline, photos, small, tmp_path):
    """Train on the photographs with some more arguments; returns the output and the folder."""

    def with_more(*more, out=tmp_path / "run"):
        return layline("train", "folder", "--root", photos, *small, *more, "--out", out), out

    return with_more


def settings_of(folder):
    return tomllib.loads((folder / "config.toml").read_text())


def test_a_run_leaves_its_files_and_complete_numbers(run):
    assert {path.name for path in run.iterdir()} - {".lock"} == FILES
    numbers = json.loads((run / "test.json").read_text())
    assert (numbers["part"], numbers["decode"], numbers["samples"]) == ("test", "median", 7)
    assert list(numbers["by_decoding"]) == list(DECODINGS)
    for values in numbers["by_decoding"].values():
        assert set(values) == {name for name, metric in METRICS.items() if metric.kind == "ranks"}
    assert {"rps", "ece", "unimodality_rate", "epoch"} <= set(numbers)
    assert np.sum(numbers["confusion"]) == 7
    low, high = numbers["intervals"]["mae"]
    assert low <= numbers["mae"] <= high
    assert len(numbers["thresholds"]) == len(numbers["by_class"]) - 1
    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert numbers["validation"]["mae"] == records[numbers["epoch"] - 1]["validation_mae"]


def test_results_are_on_stdout_and_progress_on_stderr(train):
    found, out = train()
    assert "median (chosen)" in found.out
    assert str(out) in found.out
    assert len(re.findall(r"^epoch \d/2 ", found.err, flags=re.MULTILINE)) == 2
    assert "Classes, lowest first: low < mid < high" in found.err


def test_options_take_precedence_over_set_over_the_file_over_the_recipe(train, tmp_path):
    (tmp_path / "c.toml").write_text(
        "recipe = 'released'\n[training]\nbatch_size = 8\nseed = 7\nlearning_rate = 0.5\n"
        "[head]\nmethod = 'coral'\n[data]\nsource = 'csv'\n"
    )
    given = ("--config", tmp_path / "c.toml", "--set", "training.seed=8", "--set", "head.dim=9")
    found, out = train(*given, "--set", "training.learning_rate=0.01", "--recipe", "released")
    assert found.code == 0, found.err
    settings = settings_of(out)
    assert settings["data"]["source"] == "folder"  # an argument, above the file
    assert settings["head"] == {"method": "coral", "dim": 4, "options": {}}  # an option, above set
    training = settings["training"]
    assert (training["seed"], training["learning_rate"], training["batch_size"]) == (8, 0.01, 8)
    assert training["optimiser"] == "sgd"  # the recipe


@pytest.mark.parametrize("kind", ["run", "frozen_run", "table_run"])
def test_the_configuration_of_a_run_makes_the_same_run_to_the_byte(
    layline, tmp_path, kind, request
):
    run = request.getfixturevalue(kind)
    found = layline("train", "--config", run / "config.toml", "--out", tmp_path / "again")
    assert found.code == 0, found.err
    files = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    for name in files - {Path("environment.json"), Path("report.html")}:  # they name the command
        if name.parts[0] != "state":
            assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes(), name


def test_a_finished_run_is_resumed_with_more_epochs(train, layline, tmp_path):
    constant = ("--recipe", "paper", "--no-report")  # other schedules depend on the epochs
    _, short = train(*constant, out=tmp_path / "short")
    _, whole = train(*constant, "--epochs", "3", out=tmp_path / "long")
    found = layline("train", "--resume", short, "--epochs", 3)
    assert found.code == 0, found.err
    assert "epoch 3/3" in found.err
    assert "epoch 2/3" not in found.err
    for name in ("best.safetensors", "history.jsonl", "test.json", "predictions.csv"):
        assert (short / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_help_has_panels_and_the_defaults_of_the_recipe(layline, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = layline("train", "--help").out
    for panel in ("Data", "Model", "Training", "Machine", "Output"):
        assert re.search(rf"╭─ {panel} ─+╮", text)
    config = resolve_config({"data": {"source": "folder"}})
    assert re.search(rf"--patience .*\b{config.training.patience}\b", text)
    for name in ("epochs", "batch-size", "folds"):  # they follow from the data
        assert re.search(rf"--{name} (.*\(unset: by the number of|.*Folds)", text)
        assert not re.search(rf"--{name} .*default: \(.*\d", text)
    assert re.search(rf"--method .*[( ]{config.head.method}\b", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_has_examples(layline, command):
    found = layline(*command, "--help")
    assert found.code == 0
    assert f"layline {' '.join(command)}" in found.out.partition("Examples:")[2]


MISTAKES = [
    ("--method hard-lines", "'hard-lines'.* hard-linear"),
    ("--backbone convnets", "'convnets'.* convnet"),
    ("--weights bundle", "'bundle'.* bundled"),
    ("--weights bundled", "convnet has no bundled weights"),
    ("--budget 0.001s", "is too short"),
    ("--device abacus", "Device 'abacus' is not available; found: cpu"),
    ("--precision fp16", "precision must be no or bf16 on a CPU"),
    ("--label stage", "option of folder .*'label'"),
    ("--set backbone.options=3", "backbone.options: .*dictionary, got 3"),
    ("--set backbone.options.deep=3", "option of convnet .*'deep'.*depth"),
    ("--set head.options.dim=3", "head.options: must not contain dim"),
    ("--method hard-linear --set head.options.norm=-1.5", "norm .*-1.5"),
    ("--set data.size=4", "images must be at least 8×8 pixels, got 4×4"),
    ("--set training.class_weight.lo=2", "class_weight .*'lo'"),
    ("--set training.accumulation=64", "Use larger batches"),
    ("--dim 1 --method hard-semicircular", "dim must be an integer, at least 2"),
    ("--dim 100000000", "head.dim: Input should be less than or equal to"),
    ("--classes low,mid", "high"),
    ("--lr 1e30 --batch-size 4", "Training diverged: .*Lower the learning rates"),
    ("--backbone mlp", "The backbone mlp is for tables, but the data are images"),
    ("--config none.toml", "none.toml: No such file"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_no_folder(
    refused, photos, small, tmp_path, arguments, message
):
    out = tmp_path / "run"
    found = refused("train", "folder", "--root", photos, *small, *arguments.split(), "--out", out)
    assert re.search(message, found)
    assert not out.exists() or "diverged" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "A data source is needed"),
        ("folders --root .", "'folders'"),
        ("folder", "root"),
        ("folder --root none", "none"),
        ("adience --root . --partition 7", "partitions .*7"),
        ("--set data.root=.", "A data source is needed"),
        ("--resume none", "none is not the folder of a run: no config.toml"),
    ],
)
def test_a_wrong_source_or_run_is_one_line(refused, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, refused("train", *arguments.split()))
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_not_overwritten(refused, photos, small, run):
    arguments = ("train", "folder", "--root", photos, *small, "--out", run)
    assert "exists and is not empty. Choose another folder" in refused(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--dim", "7"), "head.dim cannot change when a run is resumed"),
        (("--seed", "7"), "training.seed cannot change"),
        (("--recipe", "released"), "recipe cannot change"),
        (("csv",), "resume takes neither source nor out"),
        (("--out", "x"), "resume takes neither source nor out"),
    ],
)
def test_a_resumed_run_keeps_its_settings(refused, run, change, message):
    assert message in refused("train", *change, "--resume", run)


def test_without_a_report_nothing_is_recorded_for_it(train, layline):
    found, out = train("--no-report", "--recipe", "paper")
    assert found.code == 0, found.err
    assert {path.name for path in out.iterdir()} - {".lock"} == FILES - RECORDED
    assert layline("train", "--resume", out, "--report", "--epochs", 3).code == 0
    assert {path.name for path in (out / "layouts").iterdir()} == {"epoch-0003.npz", "test.npz"}


def test_file_names_need_not_be_unicode_but_the_folder_must(
    layline, refused, make_photos, small, tmp_path
):
    photos = make_photos(tmp_path / "photos")
    for file in (photos / "low").iterdir():
        file.rename(file.with_name(f"caf\udce9 {file.name}"))
    out, classes = tmp_path / "run", ("--classes", "low,mid,high")
    found = layline("train", photos, *classes, *small, "--out", out)
    assert found.code == 0, found.err
    assert b"\nlow/caf\xe9 " in (out / "predictions.csv").read_bytes()
    assert (out / "report.html").is_file()
    photos.rename(tmp_path / "caf\udce9")
    message = refused("train", tmp_path / "caf\udce9", *classes, "--out", tmp_path / "other")
    assert "is not valid Unicode. Rename the folder." in message


def test_a_bug_keeps_its_traceback_and_asks_for_a_report(tmp_path):
    program = (
        "import sys; from layline.training import run; from layline.cli import main\n"
        "def fail(*args, **kwargs): raise RuntimeError('a bug')\n"
        "run.train = fail; sys.argv = ['layline', 'train', 'photo-quality']; main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "Traceback" in found.stderr
    assert "RuntimeError: a bug" in found.stderr
    assert "Please report it" in found.stderr.splitlines()[-1]


def test_the_traceback_of_a_mistake_is_shown_on_request(layline, monkeypatch):
    monkeypatch.setenv("LAYLINE_DEBUG", "1")
    with pytest.raises(ValueError, match="A data source is needed"):
        layline("train")
