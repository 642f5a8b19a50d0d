"""The state of a run on disk."""

import errno
import json

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from layline.training import checkpoint
from layline.training.checkpoint import Checkpoints
from layline.training.distributed import SeveralProcesses
from layline.training.loop import TrainingState

HISTORY = [{"epoch": 1, "train_loss": 0.1 + 0.2}]


class Trained:
    """A layer that has made a few steps, and where its state is saved."""

    def __init__(self, folder, steps=0):
        self.layer = nn.Linear(3, 2)
        accelerator = Accelerator(cpu=True)
        wrapped, self.optimiser = accelerator.prepare(
            self.layer, torch.optim.AdamW(self.layer.parameters())
        )
        self.checkpoints = Checkpoints(folder, SeveralProcesses(accelerator))
        for _ in range(steps):
            wrapped(torch.ones(1, 3)).sum().backward()
            self.optimiser.step()
            self.optimiser.zero_grad()

    def state(self):
        moments = self.optimiser.state_dict()["state"].values()
        return [*self.layer.parameters(), *(each for one in moments for each in one.values())]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back_bit_by_bit(tmp_path):
    trained, fresh = Trained(tmp_path, steps=3), Trained(tmp_path)
    saved = TrainingState(2, 3, 0.1 + 0.2, 7.0, 1, 1 / 3, HISTORY)
    trained.checkpoints.save(saved)
    assert fresh.checkpoints.restore() == saved
    assert len(fresh.state()) == len(trained.state()) == 8
    for mine, other in zip(fresh.state(), trained.state(), strict=True):
        assert torch.equal(mine, other)


def test_before_anything_was_saved_there_is_nothing_to_go_back_to(tmp_path):
    assert Trained(tmp_path / "none").checkpoints.restore() is None


def test_the_last_moment_takes_the_place_of_those_before_it(tmp_path):
    trained = Trained(tmp_path)
    for epoch, step in [(1, 9), (1, 10), (2, 0), (10, 0)]:
        trained.checkpoints.save(TrainingState(epoch, step))
        assert names(tmp_path) == [f"epoch-{epoch:05}-step-{step:07}"]
    assert trained.checkpoints.restore() == TrainingState(10, 0)


def test_the_latest_of_several_checkpoints_is_taken(tmp_path, monkeypatch):
    trained = Trained(tmp_path)
    trained.checkpoints.save(TrainingState(1, 5))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.shutil, "rmtree", lambda *args, **kwargs: None)  # killed before it
        trained.checkpoints.save(TrainingState(2, 0))
    assert names(tmp_path) == ["epoch-00001-step-0000005", "epoch-00002-step-0000000"]
    assert trained.checkpoints.restore() == TrainingState(2, 0)
    trained.checkpoints.save(TrainingState(2, 1))
    assert names(tmp_path) == ["epoch-00002-step-0000001"]


def test_what_was_left_half_saved_is_never_read(tmp_path):
    trained = Trained(tmp_path)
    trained.checkpoints.save(TrainingState(1, 1))
    (tmp_path / ".saving").mkdir()
    (tmp_path / ".saving" / "model.safetensors").write_bytes(b"half")
    assert trained.checkpoints.restore() == TrainingState(1, 1)
    trained.checkpoints.save(TrainingState(1, 2))
    assert names(tmp_path) == ["epoch-00001-step-0000002"]


def test_the_same_moment_can_be_saved_again(tmp_path):
    trained = Trained(tmp_path)
    trained.checkpoints.save(TrainingState(1, 1))
    trained.checkpoints.save(TrainingState(1, 1))
    assert trained.checkpoints.restore() == TrainingState(1, 1)
    assert not (tmp_path / ".saving").exists()


def no_room(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def bad_stream(*args, **kwargs):
    raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0\nmore")


def bad_file(*args, **kwargs):
    from safetensors import SafetensorError

    raise SafetensorError("Error while serializing: I/O error: No space left on device")


@pytest.mark.parametrize(
    ("target", "failure", "said"),
    [
        ("accelerate.Accelerator.save_state", no_room, "No space left on device; nothing"),
        ("accelerate.Accelerator.save_state", bad_file, "disk may be full .*No space left"),
        ("accelerate.Accelerator.save_state", bad_stream, r"disk may be full .*vs 0\); nothing"),
        ("layline.training.checkpoint.publish_folder", no_room, "No space left on device; nothing"),
        ("pathlib.Path.write_text", no_room, "No space left on device; nothing"),
    ],
)
def test_a_full_disk_keeps_the_state_before(tmp_path, monkeypatch, target, failure, said):
    trained = Trained(tmp_path, steps=2)
    trained.checkpoints.save(TrainingState(1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(target, failure)
        with pytest.raises(OSError, match=said) as caught:
            trained.checkpoints.save(TrainingState(1, 3))
    assert caught.value.filename == str(tmp_path / "epoch-00001-step-0000003")
    assert names(tmp_path) == ["epoch-00001-step-0000002"]
    assert trained.checkpoints.restore() == TrainingState(1, 2)
    trained.checkpoints.save(TrainingState(1, 3))
    assert trained.checkpoints.restore() == TrainingState(1, 3)


def test_the_progress_is_plain_json(tmp_path):
    Trained(tmp_path).checkpoints.save(TrainingState(1, 3, history=HISTORY))
    (moment,) = tmp_path.iterdir()
    assert json.loads((moment / "progress.json").read_text())["history"] == HISTORY
