"""A run as a whole: repeatable, and with clear errors."""

import errno
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch


def test_a_run_depends_on_its_seed_only(command, options, whole, outcome, tmp_path):
    torch.manual_seed(99)  # earlier random numbers do not matter
    assert command("train", *options, "--out", tmp_path / "same").exit_code == 0
    assert outcome(tmp_path / "same") == outcome(whole)
    assert command("train", *options, "--seed", 1, "--out", tmp_path / "other").exit_code == 0
    ours, others = outcome(tmp_path / "other"), outcome(whole)
    assert all(ours[name] != others[name] for name in ours)


def test_a_finished_run_is_tested_again_when_it_is_resumed_also_on_moved_data(
    command, table, whole, outcome, tmp_path
):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "predictions.csv").unlink()
    (folder / "history.jsonl").write_text("[]\n")
    (folder / "test.json").write_text("{}")
    moved = shutil.copy(table, tmp_path / "moved.csv")
    result = command("train", "--resume", folder, "--root", moved)
    assert result.exit_code == 0
    assert "54 samples" in result.stdout
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize(
    "name", ["best.safetensors", "history.jsonl", "test.json", "predictions.csv", "config.toml"]
)
def test_a_full_disk_is_one_line_and_the_run_can_be_resumed(
    monkeypatch, command, options, whole, outcome, tmp_path, name
):
    folder, replace = tmp_path / "run", Path.replace

    def no_room(path, *args):
        if name in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", no_room)
        result = command("train", *options, "--out", folder)
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"layline: {folder / name}: No space left on device")
    assert not (folder / name).exists()
    assert not list(folder.rglob("*.part"))
    again = ("--resume", folder) if name != "config.toml" else (*options, "--out", folder)
    assert command("train", *again).exit_code == 0
    assert outcome(folder) == outcome(whole)


@pytest.mark.slow
def test_files_that_cannot_grow(attempt, crops, outcome, tmp_path):
    """The limit is met by the state of the optimizer, or already by that of the model."""
    assert attempt("train", *crops, "--out", tmp_path / "whole").codes == [0]
    folder = tmp_path / "run"
    step = {"target": "layline.training.trainer:Trainer._step", "number": 2}
    assert attempt("train", *crops, "--out", folder, harm=[step]).codes == [-9]
    before = {path: path.read_bytes() for path in (folder / "state").glob("*/*")}
    for size in (500_000, 300_000):
        made = attempt("train", "--resume", folder, largest_file=size)
        assert made.codes == [1]
        *_, last = made.stderr.splitlines()
        assert last.startswith(f"layline: {folder}/state/epoch-00001-step-0000002: could not be")
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
    assert [event.step for event in events.Scalars("validation_mae")] == [1, 2, 3]


@pytest.mark.slow
def test_the_cache_does_not_change_the_result(attempt, photographs, outcome, tmp_path):
    options = ("folder", "--root", photographs, "--backbone", "convnet", "--dim", 4)
    options += ("--epochs", 2, "--batch-size", 12)
    ways = {"plain": (), "cache": ("--cache", "--workers", 0), "cached": ("--cache",)}
    found = {}
    for name, way in ways.items():
        made = attempt(
            *("train", *options, "--workers", 2, *way, "--out", tmp_path / name),
            environment={"LAYLINE_CACHE": str(tmp_path / "pixels")},
        )
        assert (made.codes, made.left) == ([0], []), made.stderr
        assert ("Decoding the images: 60 of 60" in made.stderr) == (name == "cache")
        found[name] = outcome(tmp_path / name)
    assert found["cached"] == found["cache"]
    # the model describes how larger images are prepared
    assert found["plain"].pop("best.safetensors") != found["cache"].pop("best.safetensors")
    assert found["plain"] == found["cache"]


def change_table(path):
    header, first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, "9" + first.lstrip("-"), *rows]))


def change_pixel(path):
    arrays = dict(np.load(path))
    arrays["images"][7, 3, 3] ^= 1
    np.savez(path, **arrays)


def change_file(root):
    first, *_, last = sorted(root.rglob("*.png"))
    first.write_bytes(last.read_bytes())


@pytest.mark.parametrize("change", [change_table, change_pixel, change_file])
def test_a_run_is_not_resumed_on_changed_data(command, photographs, table, tmp_path, change):
    root = shutil.copytree(photographs, tmp_path / "photographs")
    if change is change_table:
        root = Path(shutil.copy(table, tmp_path))
    elif change is change_pixel:
        root, images = tmp_path / "images.npz", np.arange(60 * 64, dtype=np.uint8)
        np.savez(root, images=images.reshape(60, 8, 8), labels=np.arange(60) % 2)
    network = ("--backbone", "convnet") if change is change_file else ()
    options = (*network, "--dim", 4, "--epochs", 1, "--workers", 0, "--no-report")
    folder = tmp_path / "run"
    made = command("train", root, *options, "--out", folder)
    assert made.exit_code == 0, made.stderr
    assert command("train", "--resume", folder).exit_code == 0
    change(root)
    refused = command("train", "--resume", folder)
    assert refused.exit_code == 1
    assert "The data changed since" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_best_model_is_named(command, whole, tmp_path, damage):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    damage(folder / "best.safetensors")
    result = command("train", "--resume", folder)
    assert result.exit_code == 1
    assert "best.safetensors" in result.stderr.splitlines()[-1]
