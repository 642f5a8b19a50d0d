"""The state of a run on disk."""

import errno
import json
import pickle

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import nn

from layline.training import checkpoint
from layline.training.checkpoint import Checkpoints
from layline.training.distributed import SeveralProcesses
from layline.training.loop import TrainingState
from layline.training.optim import WeightAverage

HISTORY = [{"epoch": 1, "train_loss": 0.1 + 0.2}]


class Trained:
    """A layer that has made a few steps, and where its state is saved."""

    def __init__(self, folder, steps=0):
        self.layer = nn.Linear(3, 2)
        accelerator = Accelerator(cpu=True)
        self.wrapped, self.optimiser = accelerator.prepare(
            self.layer, torch.optim.AdamW(self.layer.parameters())
        )
        self.said = []
        self.checkpoints = Checkpoints(folder, SeveralProcesses(accelerator), self.said.append)
        for _ in range(steps):
            self.step()

    def step(self):
        self.wrapped(torch.ones(1, 3)).sum().backward()
        self.optimiser.step()
        self.optimiser.zero_grad()

    def state(self):
        moments = self.optimiser.state_dict()["state"].values()
        return [*self.layer.parameters(), *(each for one in moments for each in one.values())]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back_bit_by_bit(tmp_path):
    trained, fresh = Trained(tmp_path, steps=3), Trained(tmp_path)
    saved = TrainingState(2, 3, 0.1 + 0.2, 7.0, 1, 1 / 3, 0.7, HISTORY)
    trained.checkpoints.save(saved)
    assert fresh.checkpoints.restore() == saved
    assert len(fresh.state()) == len(trained.state()) == 8
    for mine, other in zip(fresh.state(), trained.state(), strict=True):
        assert torch.equal(mine, other)


def test_a_layer_under_two_names_is_no_obstacle_to_its_average(tmp_path):
    layer = nn.Linear(3, 2)
    average = WeightAverage(nn.Sequential(layer, nn.Sequential(layer)), decay=0.9)
    checkpoint._write_average(average, tmp_path / "average.safetensors")
    found = load_file(tmp_path / "average.safetensors")
    assert torch.equal(found["module.0.weight"], layer.weight)
    assert torch.equal(found["module.1.0.weight"], layer.weight)


def test_before_anything_was_saved_there_is_nothing_to_go_back_to(tmp_path):
    assert Trained(tmp_path / "none").checkpoints.restore() is None


def test_the_last_two_moments_are_kept(tmp_path):
    trained = Trained(tmp_path)
    before = []
    for epoch, step in [(1, 9), (1, 10), (2, 0), (100_000, 0), (100_000, 1), (1_000_000, 0)]:
        trained.checkpoints.save(TrainingState(epoch, step))
        place = f"epoch-{epoch:05}-step-{step:07}"
        assert names(tmp_path) == sorted([*before, place])
        before = [place]
        assert Trained(tmp_path).checkpoints.restore() == TrainingState(epoch, step)


def test_what_a_kill_left_behind_is_removed_at_the_next_moment(tmp_path, monkeypatch):
    trained = Trained(tmp_path)
    trained.checkpoints.save(TrainingState(1, 5))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.shutil, "rmtree", lambda *args, **kwargs: None)  # killed before it
        trained.checkpoints.save(TrainingState(2, 0))
        trained.checkpoints.save(TrainingState(2, 1))
    assert len(names(tmp_path)) == 3
    resumed = Trained(tmp_path)
    assert resumed.checkpoints.restore() == TrainingState(2, 1)
    resumed.checkpoints.save(TrainingState(2, 2))
    assert names(tmp_path) == ["epoch-00002-step-0000001", "epoch-00002-step-0000002"]


def test_what_was_left_half_saved_is_never_read(tmp_path):
    trained = Trained(tmp_path)
    trained.checkpoints.save(TrainingState(1, 1))
    (tmp_path / ".saving").mkdir()
    (tmp_path / ".saving" / "model.safetensors").write_bytes(b"half")
    assert trained.checkpoints.restore() == TrainingState(1, 1)
    trained.checkpoints.save(TrainingState(1, 2))
    assert names(tmp_path) == ["epoch-00001-step-0000001", "epoch-00001-step-0000002"]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def hostile(path):
    """A pickle that would run code if it were loaded."""
    path.write_bytes(pickle.dumps(Hostile()))


class Hostile:
    def __reduce__(self):
        return pytest.fail, ("code in a checkpoint was run",)


def signed(damage):
    """Do damage, and write the manifest anew, as an attacker would."""

    def done(path):
        damage(path)
        digests = checkpoint._digests(path.parent)
        (path.parent / "manifest.json").write_text(json.dumps({"blake2b": digests}))

    return done


def progress(**values):
    def write(path):
        path = path.parent / "progress.json"
        before = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in (before | values).items() if v != "out"}))

    return signed(write)


FILES = ("model.safetensors", "optimizer.bin", "progress.json", "manifest.json")
DAMAGE = [
    *((name, done) for name in FILES for done in (flip, truncate, hostile)),
    *((name, lambda path: path.unlink()) for name in FILES[:3]),
    *((name, signed(hostile)) for name in FILES[:3]),
    *((name, signed(truncate)) for name in FILES[:3]),
    ("progress.json", progress(epoch="2")),
    ("progress.json", progress(epoch=2.5)),
    ("progress.json", progress(history={})),
    ("progress.json", progress(history=[3])),
    ("progress.json", progress(unheard="of")),
    ("progress.json", progress(step="out")),
    ("progress.json", signed(lambda path: path.write_text("[]"))),
    ("progress.json", signed(lambda path: path.write_text("[" * 100_000))),
    ("manifest.json", lambda path: path.write_text("[]")),
    ("manifest.json", lambda path: path.write_text('{"blake2b": 3}')),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_a_damaged_moment_is_passed_over_for_the_one_before(tmp_path, name, damage):
    trained = Trained(tmp_path, steps=1)
    trained.checkpoints.save(TrainingState(1, 1))
    state = [tensor.detach().clone() for tensor in trained.state()]
    trained.step()
    trained.checkpoints.save(TrainingState(1, 2))
    newer = tmp_path / "epoch-00001-step-0000002"
    damage(newer / name)
    fresh = Trained(tmp_path)
    assert fresh.checkpoints.restore() == TrainingState(1, 1)
    assert all(torch.equal(*pair) for pair in zip(fresh.state(), state, strict=True))
    (said,) = fresh.said
    assert str(newer) in said
    assert "Going on from the checkpoint before" in said
    fresh.step()
    fresh.checkpoints.save(TrainingState(1, 2))  # in the place of the damaged one
    assert len(names(tmp_path)) == 2
    assert Trained(tmp_path).checkpoints.restore() == TrainingState(1, 2)
    damage(newer / name)
    damage(tmp_path / "epoch-00001-step-0000001" / name)
    with pytest.raises(ValueError, match="must have a checkpoint to go on from, got none") as error:
        Trained(tmp_path).checkpoints.restore()
    assert "\n" not in str(error.value)
    assert str(newer) in str(error.value)
    assert "trains from the beginning" in str(error.value)


def test_a_damaged_moment_goes_once_a_newer_one_is_there(tmp_path):
    trained = Trained(tmp_path)
    for step in (1, 9):
        trained.checkpoints.save(TrainingState(1, step))
    flip(tmp_path / "epoch-00001-step-0000009" / "optimizer.bin")
    fresh = Trained(tmp_path)
    fresh.checkpoints.restore()
    fresh.checkpoints.save(TrainingState(1, 5))  # earlier than the damaged one
    assert names(tmp_path) == ["epoch-00001-step-0000001", "epoch-00001-step-0000005"]


def test_a_moment_from_before_there_were_checksums_is_read(tmp_path):
    Trained(tmp_path, steps=1).checkpoints.save(TrainingState(1, 1))
    (tmp_path / "epoch-00001-step-0000001" / "manifest.json").unlink()
    assert Trained(tmp_path).checkpoints.restore() == TrainingState(1, 1)


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
