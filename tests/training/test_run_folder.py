"""The folder of a run."""

import json
import subprocess
import sys

import pytest

from layline.training import run_folder
from layline.training.recipes import resolve_config
from layline.training.run_folder import RunFolder, new_folder

CONFIG = resolve_config({"data": {"source": "photo-quality", "options": {"per_class": 3}}})


def test_the_configuration_comes_back(tmp_path):
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.create(CONFIG)
    assert folder.read_config() == CONFIG


def test_a_folder_without_a_configuration_is_none_of_a_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run must be the folder of a run, got .*config"):
        RunFolder(tmp_path).read_config()


def test_a_new_run_takes_a_new_or_an_empty_folder(tmp_path):
    RunFolder(tmp_path / "new").check_new()
    RunFolder(tmp_path).check_new()


def test_a_folder_with_something_in_it_is_not_touched(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(ValueError, match=r"out must be new or empty, got .*: take another name"):
        RunFolder(tmp_path).check_new()
    with pytest.raises(ValueError, match="take another name"):
        RunFolder(tmp_path / "holiday.jpg").check_new()


def test_a_folder_with_a_run_can_be_gone_on_with(tmp_path):
    RunFolder(tmp_path).create(CONFIG)
    with pytest.raises(ValueError, match=f"go on with layline train --resume {tmp_path}"):
        RunFolder(tmp_path).check_new()


def test_what_was_half_written_is_cleared_away(tmp_path):
    """Killed while it was written, before there was a run or later."""
    (tmp_path / "frozen").mkdir()
    halves = [tmp_path / ".config.toml.x1.part", tmp_path / "frozen" / ".rows.npy.x2.part"]
    halves[0].touch()
    folder = RunFolder(tmp_path)
    halves[1].touch()
    folder.create(CONFIG)
    assert not any(half.exists() for half in halves)


def test_half_a_configuration_does_not_fill_a_folder(tmp_path):
    (tmp_path / ".config.toml.x1.part").touch()
    RunFolder(tmp_path).check_new()


def test_a_run_that_goes_on_keeps_the_command_that_it_was_started_with(tmp_path):
    folder, started = RunFolder(tmp_path), {"data": "x", "command": ["layline", "train", "photos"]}
    folder.open(CONFIG, started | {"torch": "2.6"})
    folder.open(CONFIG, {"data": "x", "command": ["layline", "train", "--resume"], "torch": "2.7"})
    assert folder.read_environment() == started | {"torch": "2.7"}


ALONE = r"run must be used by one process at a time, got .*: another one is writing into it"


def test_a_folder_is_written_by_one_process_at_a_time(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        with pytest.raises(ValueError, match=ALONE), RunFolder(tmp_path / "run").lock():
            pass
        with RunFolder(tmp_path / "another").lock():
            pass
    with folder.lock():
        folder.check_new()  # a lock is nothing that would be lost


@pytest.mark.slow
def test_a_lock_ends_with_its_process(tmp_path):
    program = (
        "import sys; from pathlib import Path; from layline.training.run_folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock(): print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        with pytest.raises(ValueError, match=ALONE), RunFolder(tmp_path).lock():
            pass
        process.kill()
    with RunFolder(tmp_path).lock():
        pass


def test_a_new_run_is_refused_where_another_one_came_first(tmp_path):
    folder = RunFolder(tmp_path)
    folder.open(CONFIG, {"data": "x", "command": []}, goes_on=False)
    with pytest.raises(ValueError, match="out must be new or empty"):
        folder.open(CONFIG, {"data": "x", "command": []}, goes_on=False)


def test_a_run_that_is_being_written_can_neither_go_on_nor_start(command, table, tmp_path):
    options = ("table", "--root", table, "--dim", 4, "--epochs", 1, "--no-report")
    with RunFolder(tmp_path / "new").lock():
        refused = command("train", *options, "--out", tmp_path / "new")
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (
        1,
        f"layline: run must be used by one process at a time, got {tmp_path / 'new'}: another one "
        "is writing into it, wait for its end",
    )
    assert not RunFolder(tmp_path / "new").config.exists()
    assert command("train", *options, "--out", tmp_path / "new").exit_code == 0
    before = (tmp_path / "new" / "environment.json").read_bytes()
    with RunFolder(tmp_path / "new").lock():
        refused = command("train", "--resume", tmp_path / "new")
    assert refused.exit_code == 1
    assert "run must be used by one process at a time" in refused.stderr
    assert (tmp_path / "new" / "environment.json").read_bytes() == before
    assert command("train", "--resume", tmp_path / "new").exit_code == 0


def test_where_there_are_no_locks_that_is_said(command, table, tmp_path, monkeypatch):
    def no_locks(*_, **__):
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(run_folder.FileLock, "acquire", no_locks)
    options = ("table", "--root", table, "--dim", 4, "--epochs", 1, "--no-report")
    trained = command("train", *options, "--out", tmp_path / "run")
    assert trained.exit_code == 0
    assert "has no locks: no other process may use it now." in trained.stderr


def test_the_history_is_a_line_of_json_per_epoch(tmp_path):
    records = [{"epoch": 1, "train_loss": 1 / 3}, {"epoch": 2, "train_loss": 0.25}]
    folder = RunFolder(tmp_path)
    folder.write_history(records)
    lines = folder.history.read_text().splitlines()
    assert [json.loads(line) for line in lines] == records


def test_names_that_are_taken_get_a_number(tmp_path):
    assert new_folder("a", tmp_path) == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert new_folder("a", tmp_path) == tmp_path / "a-3"
