"""The trainer, its optimizer and its batches: on samples in memory, and as a run on a table."""

import copy
import math
from contextlib import suppress
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from layline import heads
from layline.backbones import MLP
from layline.data.loaders import RowBatches
from layline.evaluation.predictions import Split
from layline.model.model import Network, OrdinalModel
from layline.training.callbacks import Checkpoints
from layline.training.config import TrainingConfig
from layline.training.optim import (
    WeightAverage,
    choose_batch_size,
    choose_epochs,
    choose_learning_rate,
    make_optimizer,
    rate_factor,
    set_learning_rates,
)
from layline.training.recipes import RECIPES
from layline.training.run_folder import RunFolder
from layline.training.trainer import Callback, EpochBatches, Trainer
from layline.utils.devices import Processes

CPU = torch.device("cpu")
STEPS = 5  # of an epoch: 150 rows in batches of 32
HEAD = heads.create("classification", num_classes=4, dim=3)


def make_options(generator=None, **training):
    return replace(TrainingConfig(**training).options(), generator=generator)


@pytest.fixture
def train(command, options, tmp_path):
    """Train on the table; returns the folder and the result of the command."""

    def run(*settings):
        own = [part for setting in settings for part in ("--set", setting)]
        return tmp_path / "run", command("train", *options, *own, "--out", tmp_path / "run")

    return run


def read_history(folder):
    return RunFolder(folder).read_history()


def change_result(monkeypatch, owner, name, number, change):
    """Change the result of a certain call of a function."""
    function, calls = getattr(owner, name), []

    def changed(*args, **kwargs):
        calls.append(1)
        result = function(*args, **kwargs)
        return change(result, *args) if len(calls) == number else result

    monkeypatch.setattr(owner, name, changed)


def test_a_loss_that_is_not_finite_stops_the_run_with_the_last_good_state(
    monkeypatch, train, command, outcome, whole
):
    with monkeypatch.context() as patch:
        spoil = lambda loss, *_: loss * math.nan  # noqa: E731
        change_result(patch, OrdinalModel, "forward", STEPS + 3, spoil)
        folder, result = train("training.checkpoint_minutes=0")
    assert result.exit_code == 1
    assert "not finite at step 3 of epoch 2. Lower the learning rates" in result.stderr
    states = (folder / "state").glob("*")
    assert max(state.name for state in states) == "epoch-00002-step-0000002"
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize("step", [2, STEPS])
def test_infinite_weights_are_never_saved(monkeypatch, train, command, outcome, whole, step):
    def spoil(result, optimizer, *args):
        optimizer.param_groups[0]["params"][1].data[0] = -math.inf  # below a ReLU: no loss shows it
        return result

    with monkeypatch.context() as patch:
        change_result(patch, torch.optim.AdamW, "step", step, spoil)
        folder, result = train("training.checkpoint_minutes=0")
    assert f"not finite at step {step} of epoch 1" in result.stderr
    assert not (folder / "best.safetensors").exists()
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)


def test_short_epochs_are_saved_at_the_end_only_and_saving_changes_nothing(
    monkeypatch, train, outcome, whole
):
    save = Mock(side_effect=Checkpoints.save_checkpoint, autospec=True)
    monkeypatch.setattr(Checkpoints, "save_checkpoint", lambda *given: save(*given))
    folder, _ = train()
    save.assert_called_once()
    assert outcome(folder) == outcome(whole)


def test_patience_ends_a_run_also_when_it_is_resumed(train, command, outcome):
    slow = ("training.learning_rate=1e-9", "training.head_learning_rate=1e-9")
    folder, _ = train(*slow, "training.patience=1", "training.ties=first")
    assert len(read_history(folder)) == 2  # the first was the best, the second did not help
    before = outcome(folder)
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == before
    assert command("train", "--resume", folder, "--patience", 2).exit_code == 0
    assert len(read_history(folder)) == 3


def test_half_precision_on_a_cpu(train, whole):
    half, _ = train("training.precision=bf16")
    losses = [[record["train_loss"] for record in read_history(folder)] for folder in (whole, half)]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


# Batches


def indices(batches: EpochBatches, epoch: int, first_step: int = 0) -> list[list[int]]:
    batches.epoch, batches.first_step = epoch, first_step
    return [[index for index, _ in part] for part in batches]


@given(
    count=st.integers(12, 200),
    batch_size=st.integers(12, 40),
    processes=st.integers(1, 3),
    accumulation=st.integers(1, 2),
)
def test_an_epoch_takes_every_sample_once_in_steps_that_do_not_depend_on_the_processes(
    count, batch_size, processes, accumulation
):
    options = make_options(batch_size=batch_size, accumulation=accumulation)
    shares = [EpochBatches(count, options, process, processes) for process in range(processes)]
    parts = [indices(share, epoch=2) for share in shares]
    assert sorted(i for share in parts for part in share for i in part) == list(range(count))
    assert all(part for share in parts for part in share)
    assert max(shares[0].sizes) - min(shares[0].sizes) <= 1
    assert indices(shares[0], 2, first_step=1) == parts[0][accumulation:]
    assert indices(shares[0], 3) != parts[0]
    whole = EpochBatches(count, make_options(batch_size=batch_size))
    for step, batch in enumerate(indices(whole, epoch=2)):
        mine = slice(step * accumulation, (step + 1) * accumulation)
        assert [i for share in parts for part in share[mine] for i in part] == batch


@pytest.mark.parametrize(
    ("options", "processes", "message"),
    [
        ({"batch_size": 3, "accumulation": 2}, 2, "a batch has only 2"),
        ({"batch_size": 64, "drop_last": True}, 1, "drop_last must be false for 40 training"),
        ({"batch_size": 64, "accumulation": 41}, 1, "a batch has only 40"),
    ],
)
def test_impossible_sizes_are_explained(options, processes, message):
    with pytest.raises(ValueError, match=message):
        EpochBatches(40, make_options(**options), 0, processes)


# Training in memory, as the estimator does


def samples(n=90, noise=1.0, seed=0):
    """Three classes along a line, blurred."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.arange(n) % 3
    x = ranks[:, None] * torch.ones(4) + noise * torch.randn(n, 4, generator=generator)
    return Split(RowBatches(x.numpy()), ranks, torch.ones(n))


def network(method="hard-linear", backbone=None, dim=8):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        usual = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, dim))
        return Network(backbone or usual, heads.create(method, num_classes=3, dim=dim))


def fit(model, split, validation=None, callbacks=(), **changes):
    options = make_options(**{"epochs": 6, "batch_size": 16, "learning_rate": 1e-2} | changes)
    return Trainer(model, split, validation, options, Processes(CPU), callbacks).fit()


def test_a_network_that_overflows_only_at_validation_diverged():
    split = replace(samples(60), samples=RowBatches(torch.full((60, 4), 3e38)))
    with pytest.raises(FloatingPointError, match="Training diverged"):
        fit(network("classification"), samples(), split)


@pytest.mark.parametrize(("metric", "better"), [("mae", min), ("accuracy", max), ("qwk", max)])
def test_the_metric_selects_the_epoch(metric, better):
    state = fit(network("classification"), samples(), samples(60, seed=1), metric=metric)
    scores = [record[f"validation_{metric}"] for record in state.history]
    assert state.best_score == better(scores)
    assert state.best_epoch == 1 + scores.index(better(scores))
    assert all(type(value) in (int, float) for record in state.history for value in record.values())


def test_a_lower_loss_breaks_a_tie():
    few = samples(4, seed=1)  # soon predicted without a mistake
    first, by_loss = (
        fit(network(), samples(), few, ties=ties, epochs=30) for ties in ("first", "loss")
    )
    least = min(record["validation_mae"] for record in first.history)
    equal = [record for record in first.history if record["validation_mae"] == least]
    assert first.best_epoch == equal[0]["epoch"] < by_loss.best_epoch
    assert by_loss.best_loss == min(record["validation_loss"] for record in equal)


class Weights(Callback):
    """Remember the weights at the end of each epoch, as they are validated and kept."""

    def __init__(self, model):
        self.model, self.seen = model, []

    def on_epoch_end(self, trainer, validation, is_best):
        self.seen.append([weight.detach().clone() for weight in self.model.parameters()])


def test_the_average_of_the_weights_is_validated_and_kept(monkeypatch):
    """The oracle is the formula, over the weights after every step."""
    steps, update, model = [], WeightAverage.update, network()

    def watched(self):
        update(self)
        steps.append([weight.detach().clone() for weight in model.parameters()])

    monkeypatch.setattr(WeightAverage, "update", watched)
    weights = Weights(model)
    fit(model, samples(64), samples(64), [weights], epochs=3, ema=0.9, learning_rate=0.05)
    mean = steps[0]
    for count, after_step in enumerate(steps[1:], start=1):
        share = min(0.9, (1 + count) / (10 + count))
        pairs = zip(mean, after_step, strict=True)
        mean = [share * one + (1 - share) * other for one, other in pairs]
    for kept, own, expected in zip(weights.seen[-1], steps[-1], mean, strict=True):
        torch.testing.assert_close(kept, expected)
        assert not torch.equal(kept, own)
    assert all(map(torch.equal, model.parameters(), steps[-1]))  # training continues with its own


def test_buffers_are_not_averaged():
    """An infinite buffer would become NaN, as in gp-dnnor."""
    model = nn.BatchNorm1d(2)
    model.register_buffer("edges", torch.tensor([-math.inf, 0.0, math.inf]))
    average = WeightAverage(model, 0.9)
    for _ in range(3):
        model(torch.randn(8, 2))
        average.update()
    statistics = model.running_mean.clone()
    with average.applied():
        assert model.edges.tolist() == [-math.inf, 0.0, math.inf]
        assert torch.equal(model.running_mean, statistics)


def moved_linear(steps=3):
    """A layer whose weights moved in some steps, and their average."""
    model = nn.Linear(3, 2)
    average = WeightAverage(model, 0.9)
    for _ in range(steps):
        with torch.no_grad():
            model.weight.add_(1.0)
        average.update()
    return model, average


def test_the_network_has_its_own_weights_again_even_after_an_error():
    model, average = moved_linear()
    own = model.weight.detach().clone()
    with suppress(ZeroDivisionError), average.applied():
        assert not torch.equal(model.weight, own)
        raise ZeroDivisionError
    assert torch.equal(model.weight, own)


def test_the_average_continues_from_its_state():
    model, average = moved_linear()
    other, again = moved_linear(steps=1)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(copy.deepcopy(average.state_dict()))
    for each, mean in ((model, average), (other, again)):
        with torch.no_grad():
            each.weight.mul_(2.0)
        mean.update()
    with average.applied(), again.applied():
        assert torch.equal(model.weight, other.weight)


def test_the_head_learns_first_and_then_all():
    backbone = MLP(in_features=4, dim=3, hidden=(5,))
    model = Network(backbone, heads.create("classification", num_classes=4, dim=3))
    before = [weight.detach().clone() for weight in backbone.hidden.parameters()]
    weights = Weights(backbone.hidden)
    fit(model, samples(40), None, [weights], epochs=3, head_epochs=1.0, weight_decay=0.5)
    waiting, second, _ = weights.seen
    assert all(map(torch.equal, waiting, before))
    assert not any(map(torch.equal, second, before))


def test_gradients_are_clipped(monkeypatch):
    norms, step = [], torch.optim.AdamW.step

    def watched(self, *args, **kwargs):
        grads = [w.grad.flatten() for group in self.param_groups for w in group["params"]]
        norms.append(torch.cat(grads).norm().item())
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    fit(network(), samples(), clip=0.01)
    assert max(norms) == pytest.approx(0.01, rel=1e-3)


def test_a_network_learns_also_without_validation():
    model = network("gp-dnnor")
    fit(model, samples(48), epochs=1)
    assert model.head.num_data == 48
    state = fit(network(), samples())
    assert (state.best_epoch, len(state.history)) == (6, 6)
    assert set(state.history[0]) == {"epoch", "train_loss"}
    assert state.history[-1]["train_loss"] < 0.6 * state.history[0]["train_loss"]


def test_accumulated_parts_make_the_same_steps():
    models = [network("classification") for _ in range(2)]
    for model, parts in zip(models, (1, 3), strict=True):
        fit(model, samples(), epochs=2, batch_size=15, accumulation=parts)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_a_batch_of_light_samples_moves_the_weights_little():
    split = samples(8)
    light = replace(split, weight=torch.tensor([1.0] + [1e-6] * 7))
    alone = Split(RowBatches(split.samples.rows[:1]), split.ranks[:1], torch.ones(1))
    moved = []
    # the mean weight of the eight is an eighth, so the one sample that counts steps eightfold
    for chosen_split, rate in [(light, 0.01), (alone, 0.08)]:
        model = network("classification")
        before = model.backbone[0].weight.detach().clone()
        rates = {"learning_rate": rate, "head_learning_rate": rate, "weight_decay": 0.0}
        fit(model, chosen_split, epochs=1, batch_size=1, optimiser="sgd", momentum=0.0, **rates)
        moved.append(model.backbone[0].weight.detach() - before)
    assert moved[1].abs().max() > 1e-3
    torch.testing.assert_close(*moved, atol=1e-6, rtol=1e-3)


# The optimizer


@given(count=st.integers(1, 10**6))
def test_a_batch_is_a_power_of_two_from_16_to_512_near_an_eighth_of_all(count):
    size = choose_batch_size(count, "features")
    assert size in {16, 32, 64, 128, 256, 512}
    if 16 < size < 256:  # few or many samples have the smallest or the largest batches
        assert count / 8 / 2**0.5 <= size <= count / 8 * 2**0.5
    assert size <= choose_batch_size(count + 1, "features")
    if count < 4000 or count >= 50_000:
        assert choose_batch_size(count, "table") == size


@given(count=st.integers(1, 10**6))
def test_only_large_tables_have_a_lower_learning_rate(count):
    assert choose_learning_rate(count, "features") == 4e-3
    assert choose_learning_rate(count, "table") == (4e-3 if count < 4000 else 3e-3)


@given(count=st.integers(1, 10**6), batch_size=st.integers(1, 2000))
def test_frozen_features_have_20_epochs_and_more_if_100_steps_need_them(count, batch_size):
    epochs, per_epoch = choose_epochs(count, batch_size, "features"), math.ceil(count / batch_size)
    assert epochs * per_epoch >= 100
    assert epochs == 20 or (epochs > 20 and (epochs - 1) * per_epoch < 100)


@given(count=st.integers(1, 10**6), batch_size=st.integers(1, 2000))
def test_tables_have_20_to_60_epochs_and_at_least_100_steps(count, batch_size):
    epochs, per_epoch = choose_epochs(count, batch_size, "table"), math.ceil(count / batch_size)
    assert epochs >= choose_epochs(count, batch_size, "features")
    assert epochs <= 60 or (epochs - 1) * per_epoch < 100
    assert epochs == 60 or count < 800 or (epochs >= 30 and epochs * per_epoch >= 100)


@given(count=st.integers(1, 10**6), batch_size=st.integers(1, 2000))
def test_expensive_epochs_are_30_to_150_and_500_steps_if_possible(count, batch_size):
    epochs = choose_epochs(count, batch_size, "images")
    assert 30 <= epochs <= 150
    per_epoch = math.ceil(count / batch_size)
    assert epochs * per_epoch >= 500 or epochs == 150
    assert epochs == 30 or (epochs - 1) * per_epoch < 500


def test_layers_far_from_the_last_learn_slowly():
    backbone = MLP(in_features=2, dim=3, hidden=(4, 5))
    options = make_options(backbone_learning_rate=1e-4, layer_decay=0.5)
    optimizer = make_optimizer(backbone, HEAD, options)
    rate_of = {id(w): group["lr"] for group in optimizer.param_groups for w in group["params"]}
    for distance, layer in enumerate(reversed(backbone.layer_groups())):
        assert {rate_of.pop(id(weight)) for weight in layer} == {1e-4 * 0.5**distance}
    assert {rate_of.pop(id(weight)) for weight in backbone.last.parameters()} == {1e-3}
    assert {rate_of.pop(id(weight)) for weight in HEAD.parameters()} == {1e-2}
    assert rate_of == {}


def test_frozen_parameters_are_not_optimized_and_decay_spares_vectors_and_proxies():
    frozen = nn.Linear(2, 3).requires_grad_(False)
    optimizer = make_optimizer(frozen, HEAD, make_options(optimiser="sgd", momentum=0.8))
    (group,) = optimizer.param_groups
    assert (group["params"], group["momentum"]) == ([*HEAD.parameters()], 0.8)
    backbone, head = nn.Linear(2, 3), heads.create("soft-poisson", num_classes=4, dim=3)
    optimizer = make_optimizer(backbone, head, make_options(decay_vectors=False, weight_decay=0.1))
    groups = optimizer.param_groups
    decay_of = {id(w): group["weight_decay"] for group in groups for w in group["params"]}
    assert (decay_of[id(backbone.weight)], decay_of[id(backbone.bias)]) == (0.1, 0)
    spared = {name for name, w in head.named_parameters() if decay_of[id(w)] == 0}
    assert spared >= head.no_weight_decay()


def test_schedules():
    assert {rate_factor(make_options(), passed) for passed in (0, 0.5, 47.9)} == {1.0}
    steps = make_options(schedule="steps", warmup_epochs=1)
    factors = [rate_factor(steps, passed) for passed in (0, 0.5, 1, 35.99, 36, 44)]
    assert factors == pytest.approx([1 / 3, 2 / 3, 1, 1, 0.1, 0.01])
    cosine = make_options(schedule="cosine", epochs=10, warmup_epochs=2)
    factors = [rate_factor(cosine, passed) for passed in (2, 4, 6, 10)]
    assert factors == pytest.approx([1, (1 + math.cos(math.pi / 4)) / 2, 0.5, 0])
    optimizer = make_optimizer(nn.Linear(2, 3), HEAD, make_options())
    for _ in range(2):  # not multiplied again and again
        set_learning_rates(optimizer, make_options(schedule="steps", milestones=[1]), 1.5)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-4, 1e-3])


def test_the_released_schedule_never_leaves_its_warm_up():
    """It counts an epoch as one sample, as the authors' code does."""
    options = make_options(**RECIPES["released"].settings["training"])
    for count, last in ((1050, 0.363), (11823, 0.336)):
        factors = [rate_factor(options, epoch / count) for epoch in range(48)]
        assert factors[0] == pytest.approx(1 / 3)
        assert factors[-1] == pytest.approx(last, abs=5e-4)
        assert factors == sorted(factors)
