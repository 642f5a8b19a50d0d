"""``layline train``: what a run leaves behind, and every mistake as one sentence."""

import json
import re
import shlex
import shutil
import struct
import tomllib
import zlib
from pathlib import Path

import numpy as np
import pytest

from layline.geometry.decoding import DECODINGS
from layline.heads import DEFAULT_METHOD
from layline.metrics import METRICS
from layline.training.recipes import resolve_config

COMMANDS = [(), ("train",), ("evaluate",), ("predict",), ("methods",), ("data",)]
WITH_EXAMPLES = [*COMMANDS[1:6], ("data", "list"), ("data", "check")]
FILES = {
    "config.toml",
    "environment.json",
    "history.jsonl",
    "best.safetensors",
    "state",
    "test.json",
    "predictions.csv",
    "layouts",
    "proxies.npz",
    "mistakes",
    "mistakes.json",
    "review.json",
    "report.html",
}


@pytest.fixture
def train(layline, photos, small, tmp_path):
    """Train on the photographs with some more arguments; gives what was said and the folder."""

    def with_more(*more, out=tmp_path / "run"):
        return layline("train", "folder", "--root", photos, *small, *more, "--out", out), out

    return with_more


def settings_of(folder):
    return tomllib.loads((folder / "config.toml").read_text())


def test_a_run_leaves_all_of_its_files_and_no_others(run):
    assert {path.name for path in run.iterdir()} - {".lock"} == FILES


def test_the_test_numbers_name_their_decoding_and_stand_beside_the_others(run):
    numbers = json.loads((run / "test.json").read_text())
    assert (numbers["part"], numbers["decode"], numbers["samples"]) == ("test", "median", 7)
    assert list(numbers["by_decoding"]) == list(DECODINGS)
    for values in numbers["by_decoding"].values():
        assert set(values) == {name for name, metric in METRICS.items() if metric.kind == "ranks"}
    assert {"rps", "ece", "unimodality_rate", "confusion", "epoch"} <= set(numbers)
    assert np.sum(numbers["confusion"]) == 7


def test_the_test_numbers_have_intervals_rates_referral_and_alarms(run):
    numbers = json.loads((run / "test.json").read_text())
    low, high = numbers["intervals"]["mae"]
    assert low <= numbers["mae"] <= high
    assert numbers["intervals"]["over"] == "samples"
    assert [row["samples"] for row in numbers["by_class"]] == np.sum(
        numbers["confusion"], 1
    ).tolist()
    assert len(numbers["thresholds"]) == len(numbers["by_class"]) - 1
    assert numbers["referral"]["error"] == pytest.approx(1 - numbers["accuracy"])
    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    kept = records[numbers["epoch"] - 1]["validation_mae"]
    assert numbers["validation"]["mae"] == kept
    assert any(text.startswith("Fewer than 20 training samples") for text in numbers["alarms"])


def test_history_has_a_line_for_every_epoch(run):
    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2]
    measured = {"train_loss", "validation_loss", "validation_mae", "validation_accuracy"}
    assert all({"epoch"} | measured <= set(record) for record in records)


def test_what_comes_out_is_shown_on_stdout_and_how_it_goes_on_stderr(train):
    found, out = train()
    assert "accuracy" in found.out
    assert "median (chosen)" in found.out
    assert f"Model, history and predictions are in {out}" in found.out
    assert len(re.findall(r"^epoch \d/2 ", found.err, flags=re.MULTILINE)) == 2
    assert "in the order of the known scale low < mid < high" in found.err
    assert "Classes, lowest first: low < mid < high" in found.err


def test_an_order_that_is_not_known_stops_with_the_line_to_paste(
    layline, refused, make_photos, small, tmp_path
):
    root = make_photos(tmp_path / "photos", names=("mild", "very odd", "severe"))
    arguments = ("train", "folder", "--root", root, *small, "--out", tmp_path / "run")
    sentence = refused(*arguments)
    assert "folder names must have an order that is known, got mild, severe, very odd" in sentence
    option, classes = shlex.split(sentence.split("a guess to be corrected: ")[1])
    assert (option, classes) == ("--classes", "mild,severe,very odd")
    found = layline(*arguments, option, classes)
    assert found.code == 0, found.err
    assert "Classes, lowest first: mild < severe < very odd" in found.err


def test_a_flag_stands_above_set_and_set_above_the_file_and_the_file_above_the_recipe(
    train, tmp_path
):
    (tmp_path / "c.toml").write_text(
        "recipe = 'released'\n[training]\nbatch_size = 8\nseed = 7\nlearning_rate = 0.5\n"
        "[head]\nmethod = 'coral'\n[data]\nsource = 'csv'\n"
    )
    given = ("--config", tmp_path / "c.toml", "--set", "training.seed=8", "--set", "head.dim=9")
    found, out = train(*given, "--set", "training.learning_rate=0.01", "--recipe", "released")
    assert found.code == 0, found.err
    settings = settings_of(out)
    assert settings["data"]["source"] == "folder"  # an argument, above the file
    assert settings["head"]["dim"] == 4  # a flag, above --set
    assert settings["training"]["seed"] == 8  # --set, above the file
    assert settings["training"]["learning_rate"] == 0.01
    assert settings["training"]["batch_size"] == 8  # the file
    assert settings["head"]["method"] == "coral"
    assert settings["training"]["optimiser"] == "sgd"  # the recipe
    assert settings["data"]["keep_ratio"]


@pytest.mark.parametrize("kind", ["run", "frozen_run", "table_run"])
def test_the_configuration_of_a_run_makes_the_same_run_to_the_byte(
    layline, tmp_path, kind, request
):
    run = request.getfixturevalue(kind)
    found = layline("train", "--config", run / "config.toml", "--out", tmp_path / "again")
    assert found.code == 0, found.err
    files = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    assert len(files) >= len(FILES)
    for name in files - {Path("environment.json"), Path("report.html")}:  # they name the command
        if name.parts[0] != "state":
            assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes(), name


def test_relative_paths_are_written_out_in_full(layline, photos, small, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    layline("train", "folder", "--root", "photos", *small, "--out", tmp_path / "run")
    assert settings_of(tmp_path / "run")["data"]["root"] == str(photos)
    monkeypatch.chdir(tmp_path)
    shutil.copy("run/best.safetensors", "start.safetensors")
    arguments = ("--weights", "start.safetensors", "--out", "more")
    found = layline("train", "folder", "--root", photos, *small, *arguments)
    assert found.code == 0, found.err
    assert settings_of(tmp_path / "more")["backbone"]["weights"] == str(
        tmp_path / "start.safetensors"
    )


def test_without_a_name_runs_get_one_each(layline, photos, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert (
            layline("train", "folder", "--root", photos, *small, "--epochs", 1, "--no-report").code
            == 0
        )
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == [f"folder-{DEFAULT_METHOD}", f"folder-{DEFAULT_METHOD}-2"]


def test_a_finished_run_goes_on_with_more_epochs_and_is_the_longer_run(train, layline, tmp_path):
    constant = (
        "--recipe",
        "paper",
        "--no-report",
    )  # a schedule would depend on the number of epochs
    _, short = train(*constant, out=tmp_path / "short")
    _, whole = train(*constant, "--epochs", "3", out=tmp_path / "long")
    found = layline("train", "--resume", short, "--epochs", 3)
    assert found.code == 0, found.err
    assert "epoch 3/3" in found.err
    assert "epoch 2/3" not in found.err
    for name in ("best.safetensors", "history.jsonl", "test.json", "predictions.csv"):
        assert (short / name).read_bytes() == (whole / name).read_bytes(), name


def test_names_in_brackets_are_shown_as_they_are(layline, make_photos, small, tmp_path):
    root = make_photos(tmp_path / "[bold]photos", names=("[red]", "[", "z]"))
    out = tmp_path / "[/run"
    order = ("--classes", "[red],[,z]")
    found = layline("train", "folder", "--root", root, *small, *order, "--out", out)
    assert found.code == 0, found.err
    assert "[red] < [ < z]" in found.err
    assert f"are in {out}" in found.out
    again = layline("evaluate", out)
    assert again.code == 0, again.err
    assert "[red]" in again.err


def test_a_path_is_enough(layline, photos, small, tmp_path):
    order = ("--classes", "mid,low,high")
    found = layline("train", photos, *small, *order, "--no-report", "--out", tmp_path / "run")
    assert found.code == 0, found.err
    assert f"{photos} is taken as folder: there is a folder of images per class" in found.err
    assert "Classes, lowest first: mid < low < high" in found.err
    settings = settings_of(tmp_path / "run")["data"]
    assert (settings["source"], settings["root"]) == ("folder", str(photos))


def test_the_help_says_what_the_recipes_choose(layline, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = layline("train", "--help").out
    for panel in ("Data", "Model", "Training", "Machine", "Output"):
        assert re.search(rf"╭─ {panel} ─+╮", text)
    for name in ("modern", "paper"):
        config = resolve_config({"recipe": name, "data": {"source": "folder"}})
        assert re.search(rf"--epochs .*\b{config.training.epochs}\b", text)
        assert re.search(rf"--method .*[( ]{config.head.method}\b", text)
    for option, default in (("--metric", "mae"), ("--device", "auto"), ("--class-weight", "off")):
        assert re.search(rf"{option} .*\[default: \({default}\)\]", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(layline, command):
    found = layline(*command, "--help")
    assert found.code == 0
    assert "Usage: " in found.out


@pytest.mark.parametrize("command", WITH_EXAMPLES)
def test_the_help_of_every_command_has_examples(layline, command):
    _, _, examples = layline(*command, "--help").out.partition("Examples:")
    assert f"layline {' '.join(command)}" in examples


def test_without_arguments_the_commands_are_listed_and_train_says_what_it_needs(layline, refused):
    found = layline()
    assert found.code == 2  # of typer: nothing was done
    for name in ("train", "evaluate", "predict", "methods", "data"):
        assert name in found.out + found.err
    assert refused("train") == (
        "layline: SOURCE must be given, a path or a name: photo-quality needs no data, "
        "layline data list has all"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--method hard-lines", "got 'hard-lines': did you mean hard-linear"),
        ("--backbone convnets", "got 'convnets': did you mean convnet"),
        ("--backbone local-dir:some/model", "must be a name without ':' or '/'"),
        ("--weights bundle", "weights must be a known name, got 'bundle': did you mean bundled?"),
        ("--weights bundled", "weights must be none, imagenet or a file for convnet"),
        ("--weights imagenet", "weights must be none or a file for convnet"),
        ("--weights no.pth", "weights must be a file, got no.pth: there is none"),
        ("--recipe papers", "recipe must be a known name, got 'papers': did you mean paper?"),
        ("--metric f1", "training.metric: .*got 'f1': known are mae, accuracy, qwk"),
        ("--budget soon", "budget must be a time such as 90s, 10min or 1h, got 'soon'"),
        ("--budget -5min", "budget must be a time such as 90s, 10min or 1h, got '-5min'"),
        ("--budget 0.001s", "budget must allow the 2 epochs that are wanted, got"),
        ("--budget 1h --recipe paper", "budget must be left out for the recipe paper"),
        ("--device abacus", "device must be one that PyTorch finds here, got 'abacus': here is"),
        ("--precision int8", "training.precision: .*'no', 'bf16', 'fp16' or 'auto', got 'int8'"),
        ("--class-weight even", "class_weight must be a known name, got 'even': known are off"),
        ("--lr 0", "training.learning_rate: Input should be greater than 0, got 0.0"),
        ("--patience -1", "training.patience: .* greater than or equal to 0, got -1"),
        ("--label stage", "option of folder must be a known name, got 'label'"),
        ("--track nothing", "track: Input should be 'tensorboard', 'mlflow' or 'wandb'"),
        ("--set training.epoch=3", "training.epoch: is no setting; known are epochs,"),
        ("--set trainin.epochs=3", "trainin: is no setting; known are recipe, data"),
        ("--set training.epochs", "--set must be key=value, got 'training.epochs'"),
        ("--set training.decode=mod", "did you mean mode"),
        ("--set training.learning_rate=-1", "training.learning_rate: .* greater than 0, got -1"),
        ("--set backbone.options=3", "backbone.options must be a section of settings, got 3"),
        ("--set features.options.deep=3", "option of convnet .*'deep': did you mean depth?"),
        (
            "--method hard-linear --set head.options.nrom=3",
            "options must be those of hard-linear, got nrom=3: .*did you mean norm?",
        ),
        (
            "--method hard-linear --set head.options.norm=-1.5",
            "norm must be a finite number above 0, got -1.5",
        ),
        (
            "--method coral --set head.options.x=1",
            "options must be those of coral, got x=1: it has none",
        ),
        ("--set data.options.clases=a,b", "option of folder .*'clases': did you mean classes?"),
        ("--set data.options.classes=3", "classes must be different names, got 3: write a,b,c"),
        ("--set data.options.test=x", "test must be a finite number above 0, got 'x'"),
        ("--set data.size=4", "images must be at least 8×8 pixels, got 4×4"),
        ("--set training.precision=fp16", "training.precision must be no or bf16 on a CPU"),
        ("--set training.class_weight.lo=2", "class_weight must have classes as keys, got 'lo'"),
        ("--set training.accumulation=64", "batch_size must be at least .* = 64, got 32"),
        ("--epochs 0", "training.epochs: Input should be greater than 0, got 0"),
        ("--batch-size 0", "training.batch_size: Input should be greater than 0, got 0"),
        ("--dim 0", "head.dim: Input should be greater than 0, got 0"),
        ("--seed -1", "training.seed: Input should be greater than or equal to 0, got -1"),
        ("--workers -1", "data.workers: Input should be greater than or equal to 0, got -1"),
        ("--dim 1 --method hard-semicircular", "dim must be at least 2"),
        ("--classes low,mid", "folders must be among the classes low, mid, got high"),
        ("--classes low,mid,high,top", "got 'top': there are only high, low, mid"),
        ("--classes low,low", "classes must be different names, got .*'low', 'low'"),
        ("--freeze", "freeze must come with weights, got none for convnet"),
        ("--backbone mlp", "backbone.name must be for images, got mlp: folder has images"),
        ("--config none.toml", "config must be a file, got none.toml: it is not there"),
        ("--config .", "Is a directory"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_folder(
    refused, photos, small, tmp_path, arguments, message
):
    out = tmp_path / "run"
    found = refused("train", "folder", "--root", photos, *small, *arguments.split(), "--out", out)
    assert re.search(message, found)
    assert not out.exists()


def test_costs_with_names_want_the_order_of_the_classes(refused, photos, small, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text(",low,high,mid\nlow,0,1,1\nhigh,1,0,1\nmid,1,1,0\n")
    train = ("train", photos, *small, "--decode", costs)
    assert "classes must be given if the file of --decode names them" in refused(*train)
    wrong = refused(*train, "--classes", "low,mid,high")
    assert "lowest first: low, mid, high, got low, high, mid in" in wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "folders --root .",
            "known name or a path, got 'folders': did you mean fold",
        ),
        ("folder", "root must be given for folder: the folder or file with the data"),
        ("folder --root none", "root must exist, got .*none: check the path"),
        ("folder --root .", "must hold a folder for each of two or more classes, got none"),
        ("photo-quality --root .", "root must be left out for photo-quality"),
        ("adience --root . --partition 7", "partition must be in 0…4, got 7"),
        ("--set data=3", "data must be a section of settings, got 3"),
        ("--set data=abc", "data must be a section of settings, got 'abc'"),
        ("--set data.root=.", "SOURCE must be given"),
        ("--resume .", "run must be the folder of a run, got .*: it has no config.toml"),
        ("--resume none", "run must be the folder of a run, got none: it has no config.toml"),
    ],
)
def test_a_source_or_a_run_that_is_none_is_one_sentence(
    refused, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, refused("train", *arguments.split()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = = 3", "config must be TOML, got .*c.toml: .*line 1"),
        ("recipe = 3", "recipe must be a known name, got 3: known are modern, paper, released"),
        ("head = 3", "head must be a section of settings, got 3"),
        ("[training]\nepoch = 3", "training.epoch: is no setting"),
        ("[data]\nroot = 3", "data.root: .*got 3"),
    ],
)
def test_a_file_of_settings_that_is_wrong_is_one_sentence(refused, photos, tmp_path, text, message):
    (tmp_path / "c.toml").write_text(text)
    found = refused("train", "folder", "--config", tmp_path / "c.toml")
    assert re.search(message, found)


def test_a_number_that_is_none_is_told_by_the_command_line(layline):
    found = layline("train", "folder", "--epochs", "many")
    assert (found.code, found.out) == (2, "")
    assert "--epochs" in found.err
    assert "No such option" in layline("train", "--epoks", "3").err


def test_a_folder_with_something_in_it_is_not_written_to(refused, photos, small, run, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    arguments = ("train", "folder", "--root", photos, *small, "--out")
    assert refused(*arguments, tmp_path).endswith("take another name")
    assert refused(*arguments, tmp_path / "notes.txt").endswith("take another name")
    assert refused(*arguments, run).endswith(f"go on with layline train --resume {run}")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (("--dim", "7"), "head.dim"),
        (("--seed", "7"), "training.seed"),
        (("--method", "coral"), "head.method"),
        (("--set", "training.learning_rate=1"), "training.learning_rate"),
        (("--recipe", "released"), "recipe"),
        (("csv",), "data.source"),
    ],
)
def test_a_run_goes_on_as_it_began(refused, run, change, name):
    found = refused("train", *change, "--resume", run)
    assert found.startswith(f"layline: {name} must stay as it was when a run goes on")


def test_a_run_that_goes_on_has_its_folder(refused, run, tmp_path):
    found = refused("train", "--resume", run, "--out", tmp_path / "x")
    assert "out must be left out with --resume" in found


def test_an_empty_class_is_one_sentence(refused, make_photos, tmp_path):
    root = make_photos(tmp_path / "photos")
    (root / "none").mkdir()
    found = refused("train", "folder", "--root", root, "--backbone", "convnet")
    assert "every class must have images, got none in " in found


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        ("a,low\nb,high\nc,top", ("--classes", "low,high"), "among low, high, got 'top' in row 4"),
        ("a,low,train\nb,high,train\nc,low,tests", (), "split must be one of .*got 'tests'"),
        ("a,low,val\nb,high,test", (), "split must have a train part, got none"),
        ("a,low,train\nb,mid,train\nc,high,test", (), "classes of the train part only, got high"),
        ("a,low,train\na,low,test\nb,mid,train", (), "an image must have one split, got several"),
        ("a,low,train\na,mid,train\nb,mid,train", (), "an image must have one label, got several"),
    ],
)
def test_a_list_of_images_that_is_wrong_is_one_sentence(refused, tmp_path, rows, more, message):
    header = "path,label,split" if rows.count(",") > 3 else "path,label"
    (tmp_path / "list.csv").write_text(f"{header}\n{rows}\n")
    assert re.search(message, refused("train", "csv", "--root", tmp_path / "list.csv", *more))


def test_a_table_takes_no_features_of_images(refused, table):
    found = refused("train", "table", "--root", table, "--backbone", "convnet")
    assert "backbone.name must be for tables, got convnet: table has rows" in found


def test_a_size_that_a_network_cannot_take_is_one_sentence(refused, photos):
    network = ("--backbone", "vit_tiny_patch16_224", "--weights", "none")
    found = refused("train", "folder", "--root", photos, *network, "--set", "data.size=8")
    assert "size must suit vit_tiny_patch16_224, got 8" in found


@pytest.fixture
def spoilt(make_photos, tmp_path):
    """Photographs of which 25 cannot be read, in five different ways."""
    root = make_photos(tmp_path / "photos", each=20)
    whole = (root / "low" / "0.png").read_bytes()
    size = struct.pack(">II", 30000, 30000)  # the head of a file says how large it would be
    head = b"IHDR" + size + whole[24:29]
    huge = whole[:12] + head + struct.pack(">I", zlib.crc32(head)) + whole[33:]
    ways = [b"", b"no image", whole[: len(whole) // 2], huge]
    for i in range(12):
        (root / "low" / f"{i}.png").write_bytes(ways[i % 4])
        (root / "mid" / f"{i}.png").write_bytes(ways[i % 4])
    (root / "mid" / "12.png").unlink()
    (root / "mid" / "12.png").symlink_to(root / "nowhere.png")
    return root


def test_bad_files_are_found_before_training_the_first_twenty_listed_and_all_counted(
    layline, spoilt, small, tmp_path
):
    found = layline("train", "folder", "--root", spoilt, *small, "--out", tmp_path / "run")
    assert (found.code, found.out) == (1, "")
    _, _, report = found.err.partition("layline: ")
    lines = report.splitlines()
    assert lines[0] == "25 images cannot be read:"
    assert len(lines) == 1 + 20 + 2
    for why in ("empty file", "not an image", "truncated or damaged", "too large: 30000×30000"):
        assert report.count(why) == 5
    assert lines[-2] == "  … and 5 more"
    assert lines[-1] == "Mend or remove them, or leave them out with --skip-bad"
    assert "epoch" not in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "run").exists()


def test_bad_files_are_left_out_if_that_is_wanted(layline, spoilt, small, tmp_path):
    out = tmp_path / "run"
    found = layline("train", "folder", "--root", spoilt, *small, "--skip-bad", "--out", out)
    assert found.code == 0, found.err
    assert "Left out: 25 images cannot be read:" in found.err
    counts = re.search(r"Samples: (\d+) for train, (\d+) for val.*, (\d+) for test", found.err)
    assert sum(map(int, counts.groups())) == 60 - 25
    again = layline("evaluate", out, "--json")
    assert json.loads(again.out)["mae"] == json.loads((out / "test.json").read_text())["mae"]


def test_a_class_that_only_has_bad_files_is_one_sentence(refused, make_photos, small, tmp_path):
    root = make_photos(tmp_path / "photos")
    for path in (root / "mid").iterdir():
        path.write_bytes(b"")
    found = refused("train", "folder", "--root", root, *small, "--skip-bad")
    assert "every class must have training samples, got none of mid" in found


def test_a_traceback_is_there_for_those_who_ask(layline, monkeypatch):
    monkeypatch.setenv("LAYLINE_DEBUG", "1")
    with pytest.raises(ValueError, match="SOURCE must be given"):
        layline("train")


def test_without_a_report_nothing_is_recorded_for_it(train):
    found, out = train("--no-report")
    assert found.code == 0, found.err
    recorded = {"layouts", "proxies.npz", "mistakes", "mistakes.json", "review.json", "report.html"}
    assert {path.name for path in out.iterdir()} - {".lock"} == FILES - recorded


def test_a_run_that_goes_on_may_get_a_report(layline, train):
    _, out = train("--no-report", "--recipe", "paper")
    assert layline("train", "--resume", out, "--report", "--epochs", 3).code == 0
    assert {path.name for path in (out / "layouts").iterdir()} == {"epoch-0003.npz", "test.npz"}


def test_only_so_many_samples_are_drawn(train):
    wanted = {"points": 3, "mistakes": 1, "review": 2}
    found, out = train(*(f"--set=report.{name}={count}" for name, count in wanted.items()))
    assert found.code == 0, found.err
    for name in ("epoch-0002", "test"):
        with np.load(out / "layouts" / f"{name}.npz", allow_pickle=False) as arrays:
            assert arrays["points"].shape == (3, 2)
            assert arrays["points"].dtype == np.float32
    assert len(list((out / "mistakes").iterdir())) <= 3
    assert len(json.loads((out / "mistakes.json").read_text())) <= 1
    assert len(json.loads((out / "review.json").read_text())) == 2


def test_a_configuration_of_before_there_were_reports_still_loads(layline, run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    text = (folder / "config.toml").read_text()
    old = re.sub(r"\[report\]\n(?:\w.*\n)*", "", text)
    assert old != text
    (folder / "config.toml").write_text(old)
    assert layline("train", "--resume", folder).code == 0


def test_a_name_that_is_no_unicode_goes_through_training_and_a_root_is_refused(
    layline, refused, make_photos, small, tmp_path
):
    photos = make_photos(tmp_path / "photos")
    for file in (photos / "low").iterdir():
        file.rename(file.with_name(f"caf\udce9 {file.name}"))
    out = tmp_path / "run"
    classes = ("--classes", "low,mid,high")
    found = layline("train", photos, *classes, *small, "--group-by", r"(\d+)\.png", "--out", out)
    assert found.code == 0, found.err
    assert b"\nlow/caf\xe9 " in (out / "predictions.csv").read_bytes()
    assert "12 groups in 36 images, the largest has 3" in found.err
    assert (out / "report.html").is_file()
    photos.rename(tmp_path / "caf\udce9")
    message = refused("train", tmp_path / "caf\udce9", *classes, "--out", tmp_path / "other")
    assert "data.root must be Unicode, got" in message
    assert "rename the folder" in message
