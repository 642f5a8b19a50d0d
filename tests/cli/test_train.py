"""``layline train``: what a run leaves behind, and every mistake as one sentence."""

import json
import re
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
WITH_EXAMPLES = [*COMMANDS[1:5], ("data", "list"), ("data", "check")]
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
    assert "Accuracy" in found.out
    assert "median (chosen)" in found.out
    assert f"are in {out}" in found.out
    assert len(re.findall(r"^epoch \d/2 ", found.err, flags=re.MULTILINE)) == 2
    assert "low < mid < high" in found.err


def test_an_order_that_is_not_known_stops_with_the_line_to_paste(
    layline, refused, make_photos, small, tmp_path
):
    root = make_photos(tmp_path / "photos", names=("mild", "very odd", "severe"))
    arguments = ("train", "folder", "--root", root, *small, "--out", tmp_path / "run")
    sentence = refused(*arguments)
    assert "mild, severe, very odd" in sentence
    found = layline(*arguments, "--classes", "mild,severe,very odd")
    assert found.code == 0, found.err
    assert "mild < severe < very odd" in found.err


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
    assert f"Reading {photos} as folder" in found.err
    assert "mid < low < high" in found.err
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
    assert "data source is needed" in refused("train")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--method hard-lines", "hard-linear"),
        ("--backbone convnets", "convnet"),
        ("--backbone local-dir:some/model", "local-dir:some/model"),
        ("--weights bundle", "bundled"),
        ("--weights bundled", "convnet"),
        ("--weights no.pth", "no.pth"),
        ("--recipe papers", "paper"),
        ("--metric f1", "mae, accuracy, qwk"),
        ("--budget soon", "90s, 10min or 1h"),
        ("--budget 0.001s", "budget"),
        ("--budget 1h --recipe paper", "budget"),
        ("--device abacus", "Device 'abacus' is not available; found: cpu"),
        ("--precision int8", "precision"),
        ("--class-weight even", "class.weight"),
        ("--lr 0", "training.learning_rate"),
        ("--patience -1", "training.patience"),
        ("--label stage", "label"),
        ("--track nothing", "track"),
        ("--set training.epoch=3", "training.epoch: .*epochs"),
        ("--set trainin.epochs=3", "trainin"),
        ("--set training.epochs", "key=value"),
        ("--set training.decode=mod", "mode"),
        ("--set backbone.options=3", "backbone.options"),
        ("--set backbone.options.deep=3", "depth"),
        ("--method hard-linear --set head.options.nrom=3", "norm"),
        ("--method hard-linear --set head.options.norm=-1.5", "norm"),
        ("--method coral --set head.options.x=1", "coral"),
        ("--set data.options.clases=a,b", "classes"),
        ("--set data.options.classes=3", "classes"),
        ("--set data.options.test=x", "test"),
        ("--set data.size=4", "4"),
        ("--set training.precision=fp16", "fp16|bf16"),
        ("--set training.class_weight.lo=2", "lo"),
        ("--set training.accumulation=64", "batch_size"),
        ("--epochs 0", "epochs"),
        ("--batch-size 0", "batch_size|batch-size"),
        ("--seed -1", "seed"),
        ("--workers -1", "workers"),
        ("--dim 1 --method hard-semicircular", "dim"),
        ("--dim 100000000", "dim"),
        ("--classes low,mid", "high"),
        ("--classes low,mid,high,top", "top"),
        ("--classes low,low", "low"),
        ("--freeze", "weights"),
        ("--backbone mlp", "mlp"),
        ("--config none.toml", "none.toml"),
        ("--config .", "directory"),
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
    assert "--classes is needed" in refused(*train)
    assert "low, high, mid" in refused(*train, "--classes", "low,mid,high")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("folders --root .", "'folders'.*folder"),
        ("folder", "root"),
        ("folder --root none", "none"),
        ("folder --root .", "class"),
        ("photo-quality --root .", "photo-quality"),
        ("adience --root . --partition 7", "0…4"),
        ("--set data=3", "data must be a section of settings, got 3"),
        ("--set data.root=.", "data source is needed"),
        ("--resume .", "config.toml"),
        ("--resume none", "none"),
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
        ("epochs = = 3", "c.toml.*line 1"),
        ("recipe = 3", "modern, paper, released"),
        ("head = 3", "head must be a section of settings, got 3"),
        ("[training]\nepoch = 3", "training.epoch"),
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
    for place in (tmp_path, tmp_path / "notes.txt", run):
        assert str(place) in refused(*arguments, place)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (("--dim", "7"), "head.dim"),
        (("--seed", "7"), "training.seed"),
        (("--method", "coral"), "head.method"),
        (("--set", "training.learning_rate=1"), "training.learning_rate"),
        (("--recipe", "released"), "recipe"),
        (("csv",), "source"),
    ],
)
def test_a_run_goes_on_as_it_began(refused, run, change, name):
    found = refused("train", *change, "--resume", run)
    assert name in found


def test_a_run_that_goes_on_has_its_folder(refused, run, tmp_path):
    found = refused("train", "--resume", run, "--out", tmp_path / "x")
    assert "out" in found


def test_an_empty_class_is_one_sentence(refused, make_photos, tmp_path):
    root = make_photos(tmp_path / "photos")
    (root / "none").mkdir()
    found = refused("train", "folder", "--root", root, "--backbone", "convnet")
    assert str(root / "none") in found


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        ("a,low\nb,high\nc,top", ("--classes", "low,high"), "top.*row 4"),
        ("a,low,train\nb,high,train\nc,low,tests", (), "tests"),
        ("a,low,val\nb,high,test", (), "train"),
        ("a,low,train\nb,mid,train\nc,high,test", (), "high"),
        ("a,low,train\na,low,test\nb,mid,train", (), "split"),
        ("a,low,train\na,mid,train\nb,mid,train", (), "label"),
    ],
)
def test_a_list_of_images_that_is_wrong_is_one_sentence(refused, tmp_path, rows, more, message):
    header = "path,label,split" if rows.count(",") > 3 else "path,label"
    (tmp_path / "list.csv").write_text(f"{header}\n{rows}\n")
    assert re.search(message, refused("train", "csv", "--root", tmp_path / "list.csv", *more))


def test_a_table_takes_no_features_of_images(refused, table):
    found = refused("train", "table", "--root", table, "--backbone", "convnet")
    assert "convnet" in found


def test_a_size_that_a_network_cannot_take_is_one_sentence(refused, photos):
    network = ("--backbone", "vit_tiny_patch16_224", "--weights", "none")
    found = refused("train", "folder", "--root", photos, *network, "--set", "data.size=8")
    assert "vit_tiny_patch16_224" in found


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
    assert "25 images" in report
    assert report.count(".png") == 20
    assert "epoch" not in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "run").exists()


def test_bad_files_are_left_out_if_that_is_wanted(layline, spoilt, small, tmp_path):
    out = tmp_path / "run"
    found = layline("train", "folder", "--root", spoilt, *small, "--skip-bad", "--out", out)
    assert found.code == 0, found.err
    assert "25 images" in found.err
    counts = re.search(r"Samples: (\d+) for train, (\d+) for val.*, (\d+) for test", found.err)
    assert sum(map(int, counts.groups())) == 60 - 25
    again = layline("evaluate", out, "--json")
    assert json.loads(again.out)["mae"] == json.loads((out / "test.json").read_text())["mae"]


def test_a_class_that_only_has_bad_files_is_one_sentence(refused, make_photos, small, tmp_path):
    root = make_photos(tmp_path / "photos")
    for path in (root / "mid").iterdir():
        path.write_bytes(b"")
    found = refused("train", "folder", "--root", root, *small, "--skip-bad")
    assert "mid" in found


def test_a_traceback_is_there_for_those_who_ask(layline, monkeypatch):
    monkeypatch.setenv("LAYLINE_DEBUG", "1")
    with pytest.raises(ValueError, match="data source is needed"):
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
    assert "12 groups" in found.err
    assert (out / "report.html").is_file()
    photos.rename(tmp_path / "caf\udce9")
    message = refused("train", tmp_path / "caf\udce9", *classes, "--out", tmp_path / "other")
    assert "Unicode" in message
