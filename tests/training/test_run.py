"""A run as a whole: repeatable, and clear about what is in its way."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from layline import backbones, load
from layline.reports.run import write_run_report
from layline.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def options(table):
    return ("table", "--root", table, "--dim", 4, "--epochs", 2)


@pytest.fixture(scope="module")
def whole(command, options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert command("train", *options, "--out", folder).exit_code == 0
    return folder


def test_another_seed_is_another_run(command, options, whole, outcome, tmp_path):
    assert command("train", *options, "--seed", 1, "--out", tmp_path / "run").exit_code == 0
    ours, others = outcome(tmp_path / "run"), outcome(whole)
    assert all(ours[name] != others[name] for name in ours)


def test_the_same_run_twice_is_the_same_whatever_was_random_before(
    command, options, whole, outcome, tmp_path
):
    torch.manual_seed(99)  # what was random before does not matter
    assert command("train", *options, "--out", tmp_path / "run").exit_code == 0
    assert outcome(tmp_path / "run") == outcome(whole)


def test_a_finished_run_is_tested_again_when_it_is_resumed(command, whole, outcome, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    for name in ("test.json", "predictions.csv"):
        (folder / name).unlink()
    result = command("train", "--resume", folder)
    assert result.exit_code == 0
    assert "54 samples" in result.stdout
    assert outcome(folder) == outcome(whole)


def test_the_folder_has_all_that_is_promised(whole):
    names = {path.name for path in whole.iterdir()} - {".lock"}
    assert names == {
        *("config.toml", "environment.json", "history.jsonl", "best.safetensors", "state"),
        *("test.json", "predictions.csv", "layouts", "proxies.npz", "mistakes.json"),
        *("review.json", "report.html"),
    }
    numbers = json.loads((whole / "test.json").read_text())
    assert (numbers["samples"], numbers["decode"]) == (54, "median")
    header, first, *_ = (whole / "predictions.csv").read_text().splitlines()
    assert header == "path,true,predicted,low,high,confidence,review,p_0,p_1,p_2,p_3"
    assert first.startswith("row 218,")


def test_of_groups_the_intervals_are_over_groups(command, table, tmp_path):
    header, *lines = table.read_text().splitlines()
    grouped = [f"{header},group", *(f"{line},patient {i // 3}" for i, line in enumerate(lines))]
    (tmp_path / "table.csv").write_text("\n".join(grouped))
    options = ("--root", tmp_path / "table.csv", "--dim", 4, "--epochs", 1, "--no-report")
    assert command("train", "table", *options, "--out", tmp_path / "run").exit_code == 0
    numbers = json.loads((tmp_path / "run" / "test.json").read_text())
    assert numbers["intervals"]["over"] == "groups"


@pytest.fixture
def photographs_of_my_own(photographs, tmp_path):
    return shutil.copytree(photographs, tmp_path / "photographs")


def test_data_that_changed_are_refused(command, photographs_of_my_own, tmp_path):
    root, folder = photographs_of_my_own, tmp_path / "run"
    small = ("--backbone", "convnet", "--dim", 4, "--epochs", 1, "--workers", 0)
    assert command("train", "folder", "--root", root, *small, "--out", folder).exit_code == 0
    shutil.copy(next((root / "train" / "0").iterdir()), root / "train" / "0" / "one-more.png")
    result = command("train", "--resume", folder)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"layline: the data must be those that {folder} was started with, got others: "
        "files were added, removed or renamed"
    )


def test_data_may_be_moved(command, table, whole, outcome, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    moved = shutil.copy(table, tmp_path / "moved.csv")
    assert command("train", "--resume", folder, "--root", moved).exit_code == 0
    assert outcome(folder) == outcome(whole)


def no_room(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def once(function, name, failure):
    """Fail when a file of this name is to be written."""

    def fail(path, *args, **kwargs):
        return failure() if name in str(path) else function(path, *args, **kwargs)

    return fail


@pytest.mark.parametrize(
    "name", ["best.safetensors", "history.jsonl", "test.json", "predictions.csv", "config.toml"]
)
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(
    monkeypatch, command, options, whole, outcome, tmp_path, name
):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", once(Path.replace, name, no_room))
        result = command("train", *options, "--out", folder)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"layline: {folder / name}: No space left on device; nothing was left half-written"
    )
    assert not (folder / name).exists()
    assert not list(folder.rglob("*.part"))
    again = ("--resume", folder) if name != "config.toml" else (*options, "--out", folder)
    assert command("train", *again).exit_code == 0
    assert outcome(folder) == outcome(whole)


@pytest.mark.slow
def test_files_that_may_not_grow(attempt, crops, outcome, tmp_path):
    """The limit is met by the state of the optimiser, or by that of the model already."""
    assert attempt("train", *crops, "--out", tmp_path / "whole").codes == [0]
    folder, sizes = tmp_path / "run", (500_000, 300_000)
    arguments = ("train", *crops, "--out", folder)
    step = {"target": "layline.training.loop:Loop._step", "number": 2}
    assert attempt(*arguments, harm=[step]).codes == [-9]
    before = {path: path.read_bytes() for path in (folder / "state").glob("*/*")}
    assert len(before) == 6  # one is the average of the weights
    for size in sizes:
        made = attempt("train", "--resume", folder, largest_file=size)
        assert made.codes == [1]
        *_, last = made.stderr.splitlines()
        assert last.startswith(f"layline: {folder}/state/epoch-00001-step-0000002: could not be")
        assert last.endswith("; nothing was left half-written")
        assert {path: path.read_bytes() for path in before} == before
        assert {path.name for path in folder.rglob(".*")} <= {".lock"}
    assert attempt("train", "--resume", folder).codes == [0]
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_tensorboard_gets_the_history(command, options, whole, outcome, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    assert command("train", *options, "--track", "tensorboard", "--out", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)
    events = EventAccumulator(str(folder / "layline")).Reload()
    assert {"train_loss", "validation_mae", "validation_accuracy"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("validation_mae")] == [1, 2]


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_is_named(monkeypatch, command, options, tmp_path, name):
    installed = "layline.training.distributed.get_available_trackers"
    monkeypatch.setattr(installed, lambda: ["tensorboard"])
    result = command("train", *options, "--track", name, "--out", tmp_path / "run")
    assert result.exit_code == 1
    said = result.stderr.splitlines()[-1]
    assert said == f"layline: --track {name} needs {name}: pip install {name}"
    assert not (tmp_path / "run").exists()


@pytest.fixture
def frozen(crops, tmp_path):
    file = tmp_path / "weights.safetensors"
    save_file(backbones.create("convnet", 4).state_dict(), file)
    return (*crops, "--weights", file, "--freeze")


def test_a_frozen_body_stays_as_it_was(command, frozen, tmp_path):
    folder = tmp_path / "run"
    assert command("train", *frozen, "--out", folder).exit_code == 0
    before = load_file(tmp_path / "weights.safetensors")
    after = load(folder).features.state_dict()
    body = {name for name in before if not name.startswith("last.")}
    assert all(torch.equal(before[name], after[name]) for name in body)
    # the last layers are made anew, with a hidden one
    assert after["last.hidden.weight"].shape[1] == before["last.weight"].shape[1]
    assert (folder / "frozen" / "rows.npy").exists()


def test_weights_that_changed_are_refused_where_they_are_frozen(command, frozen, tmp_path):
    folder, file = tmp_path / "run", tmp_path / "weights.safetensors"
    assert command("train", *frozen, "--out", folder).exit_code == 0
    tensors = load_file(file)
    save_file(tensors | {"layers.0.weight": tensors["layers.0.weight"] + 1}, file)
    result = command("train", "--resume", folder)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"layline: weights must be those that {folder} was started with, got others: "
        "the file has changed"
    )


@pytest.mark.slow
def test_neither_workers_nor_the_cache_change_anything(attempt, photographs, outcome, tmp_path):
    options = ("folder", "--root", photographs, "--backbone", "convnet", "--dim", 4)
    options += ("--epochs", 2, "--batch-size", 12)
    ways = {
        "plain": ("--workers", 0),
        "again": ("--workers", 0),
        "workers": ("--workers", 2),
        "cache": ("--workers", 0, "--cache"),
        "cached": ("--workers", 2, "--cache"),
    }
    for name, way in ways.items():
        made = attempt(
            *("train", *options, *way, "--out", tmp_path / name),
            environment={"LAYLINE_CACHE": str(tmp_path / "pixels")},
        )
        assert (made.codes, made.left) == ([0], []), made.stderr
        assert ("Decoding the images: 60 of 60" in made.stderr) == (name == "cache")
        found, wanted = outcome(tmp_path / name), outcome(tmp_path / "plain")
        if "--cache" in way:  # these images are small; the model says how larger ones are prepared
            assert found.pop("best.safetensors") != wanted.pop("best.safetensors")
        assert found == wanted
    assert outcome(tmp_path / "cached") == outcome(tmp_path / "cache")


def test_a_second_start_reads_no_file_but_those_that_changed(command, photographs, tmp_path):
    from layline.data import file_digests
    from layline.data.images import index as index_module

    root = Path(shutil.copytree(photographs, tmp_path / "photographs"))
    options = ("folder", "--root", root, "--backbone", "convnet", "--dim", 4, "--epochs", 1)
    read, look = [], index_module._look

    def counting(path, size):
        read.append(path.name)
        return look(path, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_digests, "_SETTLED", 0)
        patch.setattr(index_module, "_look", counting)
        for number, (extra, expected) in enumerate([((), 60), ((), 0), (("--verify",), 60)]):
            read.clear()
            made = command(
                "train", *options, *extra, "--workers", 0, "--out", tmp_path / f"{number}"
            )
            assert (made.exit_code, len(read)) == (0, expected)


def test_a_frozen_run_with_a_cache_leaves_features_and_no_pixels(
    command, photographs, tmp_path, monkeypatch
):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))
    network = backbones.create("convnet", 4, channels=4)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    options = ("folder", "--root", photographs, "--backbone", "convnet", "--dim", 4, "--epochs", 1)
    options += ("--set", "backbone.options.channels=4", "--freeze", "--cache", "--workers", 0)
    options += ("--weights", tmp_path / "weights.safetensors")
    for number in range(2):
        made = command("train", *options, "--out", tmp_path / f"{number}")
        assert made.exit_code == 0, made.stderr
        assert ("Extracting frozen features" in made.stderr) == (number == 0)
    kinds = sorted(path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir())
    assert [kind for kind in kinds if not kind.endswith(".copies")] == ["backbone", "files"]
    file = next((tmp_path / "cache").glob("features-*/rows.npy"))
    data = bytearray(file.read_bytes())
    data[300] ^= 1
    file.write_bytes(data)
    made = command("train", *options, "--out", tmp_path / "damaged")
    assert made.exit_code == 0
    assert "are not as they were written: some of them changed; they are extracted again" in (
        " ".join(made.stderr.split())
    )


CHANGED = "got others: the samples have the same names, but other cells, pixels or bytes"


@pytest.mark.parametrize("kind", ["table", "npz", "folder"])
def test_a_run_is_not_resumed_on_other_content_under_the_same_names(
    command, photographs, table, tmp_path, kind
):
    if kind == "table":
        root = Path(shutil.copy(table, tmp_path))
        options = ("table", "--root", root, "--dim", 4)
    elif kind == "folder":
        root = Path(shutil.copytree(photographs, tmp_path / "photographs"))
        options = ("folder", "--root", root, "--backbone", "convnet", "--dim", 4, "--workers", 0)
    else:
        root, rng = tmp_path / "images.npz", np.random.default_rng(0)
        arrays = {"images": rng.integers(0, 256, (60, 8, 8), dtype=np.uint8)}
        np.savez(root, **arrays, labels=np.arange(60) % 2)
        options = ("npz", "--root", root, "--dim", 4)
    folder = tmp_path / "run"
    made = command("train", *options, "--epochs", 1, "--no-report", "--out", folder)
    assert made.exit_code == 0, made.stderr
    assert command("train", "--resume", folder).exit_code == 0
    if kind == "table":
        text = root.read_text().splitlines()
        text[1] = "9" + text[1].lstrip("-")
        root.write_text("\n".join(text))
    elif kind == "folder":
        next(root.rglob("*.png")).write_bytes(sorted(root.rglob("*.png"))[-1].read_bytes())
    else:
        arrays["images"][7, 3, 3] ^= 1
        np.savez(root, **arrays, labels=np.arange(60) % 2)
    refused = command("train", "--resume", folder)
    assert refused.exit_code == 1
    assert CHANGED in " ".join(refused.stderr.split())
    environment = json.loads((folder / "environment.json").read_text())
    del environment["content"]  # as an earlier version wrote it
    (folder / "environment.json").write_text(json.dumps(environment))
    assert command("train", "--resume", folder).exit_code == 0


@pytest.fixture(scope="module")
def several_moments(command, table, tmp_path_factory):
    """A run that saved after every step, and so has two moments to go back to."""
    folder = tmp_path_factory.mktemp("runs") / "moments"
    options = ("--dim", 4, "--epochs", 3, "--set", "training.checkpoint_minutes=0", "--no-report")
    assert command("train", "table", "--root", table, *options, "--out", folder).exit_code == 0
    assert len(list((folder / "state").iterdir())) == 2
    return folder


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def weights_and_numbers(folder):
    names = ("best.safetensors", "history.jsonl", "test.json", "predictions.csv")
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.bin", "progress.json"])
def test_a_flipped_byte_in_the_newer_moment_changes_nothing(
    command, several_moments, tmp_path, name
):
    folder = tmp_path / "run"
    shutil.copytree(several_moments, folder)
    before, after = sorted((folder / "state").iterdir())
    flip(after / name)
    result = command("train", "--resume", folder)
    said = "".join(result.stderr.split())  # lines are broken anywhere
    assert result.exit_code == 0
    assert f"Goingonfromthecheckpointbefore:{before}" in said
    assert str(after / name) in said
    assert weights_and_numbers(folder) == weights_and_numbers(several_moments)
    assert sorted((folder / "state").iterdir()) == [before, after]


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_best_model_is_made_again_or_named(command, several_moments, tmp_path, damage):
    folder = tmp_path / "run"
    shutil.copytree(several_moments, folder)
    damage(folder / "best.safetensors")
    result = command("train", "--resume", folder)
    best = json.loads((several_moments / "test.json").read_text())["epoch"]
    if best < 3:  # the moments are in the last epoch and after it
        assert result.exit_code == 1
        *_, last = result.stderr.splitlines()
        assert str(folder / "best.safetensors") in last
        assert last.endswith("without the folder state, --resume trains from the beginning")
        shutil.rmtree(folder / "state")
        result = command("train", "--resume", folder)
    assert result.exit_code == 0
    assert weights_and_numbers(folder) == weights_and_numbers(several_moments)


DAMAGED = [b"", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000, b'{"data": 3}']


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_of_a_run_is_named_with_the_cure(tmp_path, whole, content):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole, folder.path)
    for path, read in (
        (folder.config, folder.read_config),
        (folder.environment, folder.read_environment),
        (folder.test, folder.read_numbers),
        (folder.predictions, lambda: write_run_report(folder.path, tmp_path / "page.html")),
    ):
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(ValueError, match="must be as the run wrote it, got something") as error:
            read()
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
        path.write_bytes(before)
    write_run_report(folder.path, tmp_path / "page.html")


def test_a_damaged_environment_stops_a_resumed_run_by_a_sentence(command, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "environment.json").write_text("[]")
    result = command("train", "--resume", folder)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"layline: {folder / 'environment.json'} must")


def test_damaged_results_are_written_anew(command, whole, outcome, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "history.jsonl").write_text("[]\n")
    (folder / "test.json").write_text("{}")
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)
