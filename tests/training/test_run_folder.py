"""The folder of a run."""

import pytest

from layline.training import run_folder
from layline.training.recipes import resolve_config
from layline.training.run_folder import RunFolder, new_folder

# with all that a run fills in by the number of samples
LENGTH = {"epochs": 3, "batch_size": 8, "folds": 0, "warmup_epochs": 0.3, "head_epochs": 0.0}
DATA = {"source": "photo-quality", "options": {"per_class": 3}}
CONFIG = resolve_config({"data": DATA, "training": LENGTH})
ENVIRONMENT = {"data": "x", "command": ["layline", "train", "photos"]}
BUSY = "Another process is writing into"


def test_a_run_is_opened_twice_with_the_same_data_only(tmp_path):
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.open(CONFIG, ENVIRONMENT | {"torch": "2.6"})
    assert folder.read_config() == CONFIG
    folder.open(CONFIG, ENVIRONMENT | {"torch": "2.7", "command": ["layline", "resume"]})
    assert folder.read_environment() == ENVIRONMENT | {"torch": "2.7"}
    with pytest.raises(ValueError, match=r"The data changed since .*run was started: files were"):
        folder.open(CONFIG, ENVIRONMENT | {"data": "y"})


def test_only_a_new_or_empty_folder_is_new(tmp_path):
    RunFolder(tmp_path / "new").check_new()
    (tmp_path / ".config.toml.x1.part").touch()  # of a process that was killed
    RunFolder(tmp_path).check_new()
    (tmp_path / "holiday.jpg").touch()
    for path in (tmp_path, tmp_path / "holiday.jpg"):
        with pytest.raises(ValueError, match="exists and is not empty"):
            RunFolder(path).check_new()


def test_a_locked_run_is_neither_started_nor_resumed(command, options, tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "new")
    with folder.lock():
        refused = command("train", *options, "--out", folder.path)
    assert refused.exit_code == 1
    assert refused.stderr.endswith(f"layline: {BUSY} {folder.path}.\n")
    assert not folder.config.exists()

    def no_locks(*_, **__):
        raise NotImplementedError("FileSystem does not appear to support flock")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.FileLock, "acquire", no_locks)
        trained = command("train", *options, "--out", folder.path)
    assert trained.exit_code == 0
    assert "has no locks" in trained.stderr
    with folder.lock():
        assert BUSY in command("train", "--resume", folder.path).stderr


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b"3"])
def test_a_damaged_file_is_named(tmp_path, content):
    folder = RunFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"is not the folder of a run: no config\.toml"):
        folder.read_config()
    for path, read in (
        (folder.config, folder.read_config),
        (folder.environment, folder.read_environment),
        (folder.test, folder.read_numbers),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError) as error:  # noqa: PT011
            read()
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_the_home_folder_is_expanded_and_existing_names_get_a_number(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder("~/x").best == tmp_path / "x" / "best.safetensors"
    assert new_folder("a", tmp_path) == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert new_folder("a", tmp_path) == tmp_path / "a-3"
