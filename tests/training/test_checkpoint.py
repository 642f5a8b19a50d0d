"""The state of a run on disk."""

import pickle
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from layline.training.callbacks import Checkpoints
from layline.training.distributed import SeveralProcesses
from layline.training.optim import WeightAverage
from layline.training.trainer import TrainingState

HISTORY = [{"epoch": 1, "train_loss": 0.1 + 0.2}]


class Trained:
    """A layer that has made a few steps, and its checkpoints."""

    def __init__(self, folder, steps=0):
        self.layer = nn.Linear(3, 2)
        accelerator = Accelerator(cpu=True)
        self.wrapped, self.optimizer = accelerator.prepare(
            self.layer, torch.optim.AdamW(self.layer.parameters())
        )
        self.messages, run = [], SimpleNamespace(state=folder)
        self.checkpoints = Checkpoints(
            run, SeveralProcesses(accelerator), self.messages.append, minutes=5
        )
        for _ in range(steps):
            self.step()

    def step(self):
        self.wrapped(torch.ones(1, 3)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, state, average=None):
        self.checkpoints.save_checkpoint(SimpleNamespace(state=state, average=average))

    def state(self):
        moments = self.optimizer.state_dict()["state"].values()
        return [*self.layer.parameters(), *(each for one in moments for each in one.values())]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_restores_every_bit(tmp_path):
    trained, fresh = Trained(tmp_path, steps=3), Trained(tmp_path)
    shared = nn.Linear(3, 2)  # a layer under two names
    averages = [WeightAverage(nn.Sequential(shared, nn.Sequential(shared)), 0.9) for _ in "ab"]
    for _ in range(2):
        averages[0].update()
        nn.init.normal_(shared.weight)
    saved = TrainingState(2, 3, 0.1 + 0.2, 7.0, 1, 1 / 3, 0.7, HISTORY)
    trained.save(saved, averages[0])
    assert fresh.checkpoints.restore(averages[1]) == saved
    assert len(fresh.state()) == len(trained.state()) == 8
    assert all(map(torch.equal, fresh.state(), trained.state()))
    states = [average.state_dict() for average in averages]
    assert states[0]["steps"] == states[1]["steps"] == 2
    assert len(states[0]["mean"]) == 2
    assert all(map(torch.equal, states[0]["mean"], states[1]["mean"]))


def test_the_last_two_are_kept(tmp_path):
    trained = Trained(tmp_path)
    assert trained.checkpoints.restore() is None
    before = []
    for epoch, step in [(1, 9), (1, 10), (2, 0), (100_000, 0), (1_000_000, 0)]:
        (tmp_path / ".saving").mkdir()  # of a run that was killed
        (tmp_path / ".saving" / "model.safetensors").write_bytes(b"half")
        trained.save(TrainingState(epoch, step))
        place = f"epoch-{epoch:05}-step-{step:07}"
        assert names(tmp_path) == sorted([*before, place])
        before = [place]
        assert Trained(tmp_path).checkpoints.restore() == TrainingState(epoch, step)


class Hostile:
    def __reduce__(self):
        return pytest.fail, ("code in a checkpoint was executed",)


FILES = ("model.safetensors", "optimizer.bin", "progress.bin")
DAMAGE = [
    *((name, lambda path: path.write_bytes(path.read_bytes()[:-7])) for name in FILES),
    *((name, lambda path: path.write_bytes(pickle.dumps(Hostile()))) for name in FILES),
    *((name, lambda path: path.unlink()) for name in FILES),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, name, damage):
    trained = Trained(tmp_path, steps=1)
    trained.save(TrainingState(1, 1))
    state = [tensor.detach().clone() for tensor in trained.state()]
    trained.step()
    trained.save(TrainingState(1, 2))
    newer = tmp_path / "epoch-00001-step-0000002"
    damage(newer / name)
    fresh = Trained(tmp_path)
    assert fresh.checkpoints.restore() == TrainingState(1, 1)
    assert all(map(torch.equal, fresh.state(), state))
    (message,) = fresh.messages
    assert str(newer) in message
    fresh.step()
    fresh.save(TrainingState(1, 2))  # it replaces the damaged one
    assert len(names(tmp_path)) == 2
    assert Trained(tmp_path).checkpoints.restore() == TrainingState(1, 2)
    for place in tmp_path.iterdir():
        damage(place / name)
    with pytest.raises(ValueError, match=r"No checkpoint in .* can be read: .*damaged") as error:
        Trained(tmp_path).checkpoints.restore()
    assert "\n" not in str(error.value)
