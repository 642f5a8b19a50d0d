"""The training loop, on a small table."""

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from layline import heads
from layline.model import OrdinalModel
from layline.training.checkpoint import Progress
from layline.training.config import Training
from layline.training.loop import Loop, is_finished

STEPS = 5  # of an epoch: 150 rows in batches of 32


@pytest.fixture(scope="module")
def train(command, table, tmp_path_factory):
    """Train on the table and give the folder and what the command did."""

    def run(*settings, root=table, epochs=3):
        folder = tmp_path_factory.mktemp("runs") / "run"
        options = [part for setting in settings for part in ("--set", setting)]
        arguments = ("table", "--root", root, "--dim", 4, "--epochs", epochs, *options)
        return folder, command("train", *arguments, "--out", folder)

    return run


@pytest.fixture(scope="module")
def whole(train):
    """A run that nothing happens to."""
    folder, result = train("training.checkpoint_minutes=0")
    assert result.exit_code == 0
    return folder


def weights(folder):
    return load_file(folder / "best.safetensors")


def test_a_model_learns_and_the_first_epoch_with_the_lowest_error_is_kept(train, history):
    folder, result = train(epochs=12)
    assert result.exit_code == 0
    records = history(folder)
    assert [record["epoch"] for record in records] == [*range(1, 13)]
    assert records[-1]["train_loss"] < 0.6 * records[0]["train_loss"]
    errors = [record["validation_mae"] for record in records]
    assert min(errors) < 0.3
    best = json.loads((folder / "test.json").read_text())["epoch"]
    assert best == errors.index(min(errors)) + 1


def test_saving_changes_nothing(train, outcome, whole):
    rare, _ = train()
    assert outcome(rare) == outcome(whole)


def after(monkeypatch, owner, name, number, change):
    """Change what the so-manieth call of a function gives."""
    function, calls = getattr(owner, name), []

    def changed(*args, **kwargs):
        calls.append(1)
        result = function(*args, **kwargs)
        return change(result, *args) if len(calls) == number else result

    monkeypatch.setattr(owner, name, changed)


@pytest.mark.parametrize(
    ("step", "place", "kept"),
    [
        (1, "step 1 of epoch 1", None),
        (3, "step 3 of epoch 1", "epoch-00001-step-0000002"),
        (STEPS + 1, "step 1 of epoch 2", "epoch-00002-step-0000000"),
        (STEPS + 3, "step 3 of epoch 2", "epoch-00002-step-0000002"),
    ],
)
def test_a_loss_that_is_no_number_stops_the_run_with_the_last_good_state(
    monkeypatch, train, command, outcome, whole, step, place, kept
):
    with monkeypatch.context() as patch:
        after(patch, OrdinalModel, "forward", step, lambda loss, *args: loss * math.nan)
        folder, result = train("training.checkpoint_minutes=0")
    assert result.exit_code == 1
    *_, last = result.stderr.splitlines()
    assert last.startswith(f"layline: training must stay finite, got nan at {place}: lower ")
    assert last.endswith("learning_rate (0.01); the last good state is kept")
    states = (folder / "state").glob("*") if kept else ()
    assert [state.name for state in states] == ([kept] if kept else [])
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)


def spoil(value):
    def change(result, optimiser, *args):
        # below a ReLU: no loss shows it
        optimiser.param_groups[0]["params"][1].data[0] = value
        return result

    return change


@pytest.mark.parametrize("step", [2, STEPS])
def test_weights_that_are_infinite_are_never_saved(
    monkeypatch, train, command, outcome, whole, step
):
    with monkeypatch.context() as patch:
        after(patch, torch.optim.AdamW, "step", step, spoil(-math.inf))
        folder, result = train("training.checkpoint_minutes=0")
    assert result.exit_code == 1
    assert f"got inf at step {step} of epoch 1" in result.stderr
    assert not (folder / "best.safetensors").exists()
    (state,) = (folder / "state").iterdir()
    assert all(
        tensor.isfinite().all() for tensor in load_file(state / "model.safetensors").values()
    )
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)


def test_a_validation_loss_that_is_no_number_stops_the_run(monkeypatch, train):
    def change(found, loop):
        return replace(found, loss=math.nan)

    after(monkeypatch, Loop, "_validate", 2, change)
    folder, result = train()
    assert result.exit_code == 1
    assert f"got nan at step {STEPS} of epoch 2" in result.stderr
    assert [state.name for state in (folder / "state").iterdir()] == ["epoch-00002-step-0000000"]


def test_patience_ends_a_run_and_resuming_does_not_wake_it(train, command, history, outcome):
    slow = ("training.learning_rate=1e-9", "training.head_learning_rate=1e-9")
    folder, result = train(*slow, "training.patience=2", epochs=9)
    assert result.exit_code == 0
    assert len(history(folder)) == 3  # the first was the best, two more did not help
    before = outcome(folder)
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == before
    more = command("train", "--resume", folder, "--set", "training.patience=4")
    assert more.exit_code == 0
    assert len(history(folder)) == 5


def test_a_run_can_be_given_more_epochs(train, command, outcome):
    long, _ = train(epochs=4)
    folder, _ = train(epochs=2)
    assert command("train", "--resume", folder, "--epochs", 4).exit_code == 0
    assert outcome(folder) == outcome(long)


@pytest.mark.parametrize(
    ("progress", "options", "finished"),
    [
        (Progress(), {}, False),
        (Progress(epoch=4, best_epoch=1), {}, True),
        (Progress(epoch=3, best_epoch=1), {"patience": 2}, False),
        (Progress(epoch=3, best_epoch=1), {"patience": 1}, True),
        (Progress(epoch=3, best_epoch=2), {"patience": 1}, False),
        (Progress(epoch=3, best_epoch=0), {"patience": 1}, False),
    ],
)
def test_when_a_run_is_finished(progress, options, finished):
    assert is_finished(progress, Training(epochs=3, **options)) == finished


def test_the_schedule_is_followed(monkeypatch, train):
    rates = []
    step = torch.optim.AdamW.step

    def watched(self, *args, **kwargs):
        rates.append([group["lr"] for group in self.param_groups])
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    settings = ("schedule=steps", "milestones=[2]", "warmup_epochs=1.0", "warmup_start=0.5")
    _, result = train(*(f"training.{setting}" for setting in settings))
    assert result.exit_code == 0
    factors = [0.5 + 0.5 * k / STEPS for k in range(STEPS)] + [1] * STEPS + [0.1] * STEPS
    assert rates == [pytest.approx([1e-3 * f, 1e-2 * f]) for f in factors]


def test_accumulated_parts_make_the_same_steps(train, history, whole):
    parts, result = train("training.accumulation=3")
    assert result.exit_code == 0
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(weights(parts)[name], tensor, atol=1e-5, rtol=0)
    for one, other in zip(history(whole), history(parts), strict=True):
        assert other == pytest.approx(one, abs=1e-5)


def corners(path, counts):
    """Write rows of every combination of signs: mean and deviation do not depend on the counts."""
    signs = [(a, b) for a in (-1, 1) for b in (-1, 1)]
    rows = [f"{a},{b},{k},train" for k, n in enumerate(counts) for _ in range(n) for a, b in signs]
    rows += [f"{a},{b},{k},{part}" for k in range(3) for part in ("val", "test") for a, b in signs]
    path.write_text("\n".join(["a,b,label,split", *rows]))
    return path


def test_a_class_of_weight_two_counts_as_if_it_were_there_twice(train, history, tmp_path):
    settings = ("training.optimiser=sgd", "training.batch_size=100")
    weighted, result = train(
        *settings,
        "training.class_weight={'0' = 4.0, '1' = 2.0, '2' = 2.0}",
        root=corners(tmp_path / "once.csv", [2, 2, 2]),
    )
    assert result.exit_code == 0, result.stderr
    repeated, _ = train(*settings, root=corners(tmp_path / "twice.csv", [4, 2, 2]))
    for one, other in zip(history(weighted), history(repeated), strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], abs=1e-6)


def test_balanced_weights_count_in_the_validation_too(train, history, whole):
    balanced, result = train("training.class_weight=balanced")
    assert result.exit_code == 0
    assert history(whole)[0]["validation_mae"] != history(balanced)[0]["validation_mae"]


def test_the_rest_of_the_last_batch_is_left_out(monkeypatch, train):
    sizes = []
    forward = OrdinalModel.forward

    def watched(self, x, *args):
        sizes.append(len(x))
        return forward(self, x, *args)

    monkeypatch.setattr(OrdinalModel, "forward", watched)
    _, result = train("training.drop_last=true", epochs=1)
    assert result.exit_code == 0
    assert sizes == [32] * 4


def test_half_precision_on_a_cpu(train, history, whole):
    half, result = train("training.precision=bf16")
    assert result.exit_code == 0
    losses = [[record["train_loss"] for record in history(folder)] for folder in (whole, half)]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
    assert {tensor.dtype for name, tensor in weights(half).items() if "last" in name} == {
        torch.float32
    }


def test_fp16_needs_a_gpu(train):
    folder, result = train("training.precision=fp16")
    assert result.exit_code == 1
    assert result.stderr == (
        "layline: training.precision must be no or bf16 on a CPU, got 'fp16'\n"
    )
    assert not folder.exists()


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("name", heads.HEADS)
def test_every_loss_reaches_every_weight(name, count):
    """Else several processes would wait for a gradient that never comes."""
    head = heads.create(name, 4, 6).train()
    head.loss(torch.randn(count, 6), torch.arange(count) % 4, torch.ones(count)).backward()
    assert all(weight.grad is not None for weight in head.parameters() if weight.requires_grad)
