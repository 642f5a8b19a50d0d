"""The training loop: as a run on a small table, and on samples in memory."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from layline import heads, metrics
from layline.backbones import MLP
from layline.data.loaders import RowBatches
from layline.estimator import OrdinalClassifier
from layline.evaluation.evaluate import measure
from layline.evaluation.predictions import Split, predict_split
from layline.model.model import Network, OrdinalModel
from layline.training import run as run_module
from layline.training.checkpoint import Checkpoints
from layline.training.config import TrainingConfig
from layline.training.loop import EpochBatches, Hooks, Loop, TrainingState
from layline.training.optim import WeightAverage
from layline.utils.devices import Processes

CPU = torch.device("cpu")


def chosen(generator=None, **training):
    """Give the options of the loop that follow from settings."""
    return replace(TrainingConfig(**training).options(), generator=generator)


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
    assert max((state.name for state in states), default=None) == kept  # and one before it
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
    states = list((folder / "state").iterdir())
    assert states
    for state in states:
        assert all(
            tensor.isfinite().all() for tensor in load_file(state / "model.safetensors").values()
        )
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == outcome(whole)


def test_a_validation_loss_that_is_no_number_stops_the_run(monkeypatch, train):
    def change(found, loop, part):
        return replace(found, loss=math.nan)

    after(monkeypatch, Loop, "_validate", 2, change)
    monkeypatch.setattr(run_module, "_AFTER_EPOCH", 0.0)
    folder, result = train()
    assert result.exit_code == 1
    assert f"got nan at step {STEPS} of epoch 2" in result.stderr
    assert [state.name for state in (folder / "state").iterdir()] == ["epoch-00002-step-0000000"]


def test_short_epochs_are_saved_at_the_end_only(monkeypatch, train):
    saved = []
    save = Checkpoints.save
    monkeypatch.setattr(
        Checkpoints, "save", lambda *given: saved.append(given[1].epoch) or save(*given)
    )
    train(epochs=3)
    assert saved == [4]
    monkeypatch.setattr(run_module, "_AFTER_EPOCH", 0.0)
    train(epochs=3)
    assert saved == [4, 2, 3, 4]


def test_patience_ends_a_run_and_resuming_does_not_wake_it(train, command, history, outcome):
    slow = ("training.learning_rate=1e-9", "training.head_learning_rate=1e-9")
    folder, result = train(*slow, "training.patience=2", "training.ties=first", epochs=9)
    assert result.exit_code == 0
    assert len(history(folder)) == 3  # the first was the best, two more did not help
    before = outcome(folder)
    assert command("train", "--resume", folder).exit_code == 0
    assert outcome(folder) == before
    more = command("train", "--resume", folder, "--set", "training.patience=4")
    assert more.exit_code == 0
    assert len(history(folder)) == 5


def test_a_run_can_be_given_more_epochs(train, command, outcome):
    constant = ("training.schedule=none", "training.warmup_epochs=1")
    long, _ = train(*constant, epochs=4)
    folder, _ = train(*constant, epochs=2)
    assert command("train", "--resume", folder, "--epochs", 4).exit_code == 0
    assert outcome(folder) == outcome(long)


@pytest.mark.parametrize(
    ("state", "options", "finished"),
    [
        (TrainingState(), {}, False),
        (TrainingState(epoch=4, best_epoch=1), {}, True),
        (TrainingState(epoch=3, best_epoch=1), {"patience": 2}, False),
        (TrainingState(epoch=3, best_epoch=1), {"patience": 1}, True),
        (TrainingState(epoch=3, best_epoch=2), {"patience": 1}, False),
        (TrainingState(epoch=3, best_epoch=0), {"patience": 1}, False),
    ],
)
def test_when_a_run_is_finished(state, options, finished):
    assert state.is_finished(chosen(epochs=3, **options)) == finished


def test_the_schedule_is_followed(monkeypatch, train):
    rates = []
    step = torch.optim.AdamW.step

    def watched(self, *args, **kwargs):
        rates.append(sorted({group["lr"] for group in self.param_groups}))
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
    said = result.stderr.splitlines()[-1]
    assert said == "layline: training.precision must be no or bf16 on a CPU, got 'fp16'"
    assert not folder.exists()


@pytest.mark.parametrize("name", heads.HEADS)
def test_every_loss_reaches_every_weight(name):
    """Else several processes would wait for a gradient that never comes."""
    for count in (1, 6):
        head = heads.create(name, 4, 6).train()
        head.loss(torch.randn(count, 6), torch.arange(count) % 4, torch.ones(count)).backward()
        assert all(weight.grad is not None for weight in head.parameters() if weight.requires_grad)


def indices(batches: EpochBatches, epoch: int, first_step: int = 0) -> list[list[int]]:
    batches.start(epoch, first_step)
    return [[index for index, _ in part] for part in batches]


@given(
    count=st.integers(12, 200),
    batch_size=st.integers(12, 40),
    processes=st.integers(1, 3),
    accumulation=st.integers(1, 2),
)
def test_an_epoch_takes_every_sample_once_over_all_processes(
    count, batch_size, processes, accumulation
):
    options = chosen(batch_size=batch_size, accumulation=accumulation)
    shares = [EpochBatches(count, options, process, processes) for process in range(processes)]
    parts = [part for share in shares for part in indices(share, epoch=2)]
    assert sorted(index for part in parts for index in part) == list(range(count))
    assert all(parts)
    assert {len(share) for share in shares} == {shares[0].steps * accumulation}
    assert sum(shares[0].sizes) == count
    assert max(shares[0].sizes) - min(shares[0].sizes) <= 1


@given(count=st.integers(12, 100), processes=st.integers(1, 3), accumulation=st.integers(1, 2))
def test_a_step_has_the_same_samples_however_it_is_shared(count, processes, accumulation):
    whole = EpochBatches(count, chosen(batch_size=12))
    options = chosen(batch_size=12, accumulation=accumulation)
    shares = [
        indices(EpochBatches(count, options, process, processes), epoch=3)
        for process in range(processes)
    ]
    for step, batch in enumerate(indices(whole, epoch=3)):
        mine = slice(step * accumulation, (step + 1) * accumulation)
        together = [index for share in shares for part in share[mine] for index in part]
        assert together == batch


def test_the_order_changes_with_the_epoch_and_the_seed_only():
    first = EpochBatches(50, chosen(seed=1))
    again, other = EpochBatches(50, chosen(seed=1)), EpochBatches(50, chosen(seed=2))
    assert indices(first, 1) == indices(again, 1) != indices(first, 2)
    assert indices(first, 1) != indices(other, 1)


def test_an_epoch_can_be_entered_in_the_middle():
    batches = EpochBatches(100, chosen(batch_size=10))
    assert indices(batches, 4, first_step=3) == indices(batches, 4)[3:]
    batches.start(4, first_step=3)
    assert len(batches) == 7


def test_keys_carry_the_epoch():
    batches = EpochBatches(10, chosen())
    batches.start(7)
    assert {epoch for part in batches for _, epoch in part} == {7}


def test_no_batch_is_a_single_sample():
    assert EpochBatches(33, chosen(batch_size=32)).sizes == [17, 16]
    assert EpochBatches(5, chosen(batch_size=2)).sizes == [3, 2]


def test_the_rest_is_left_out_if_wanted():
    batches = EpochBatches(70, chosen(batch_size=32, drop_last=True))
    assert batches.sizes == [32, 32]
    assert len({i for epoch in range(1, 9) for part in indices(batches, epoch) for i in part}) == 70


@pytest.mark.parametrize(
    ("options", "processes", "message"),
    [
        ({"batch_size": 3, "accumulation": 2}, 2, r"at least processes × accumulation = 4, got 3"),
        ({"batch_size": 64, "drop_last": True}, 1, "drop_last must be false for 40 training"),
        (
            {"batch_size": 64, "accumulation": 41},
            1,
            "a batch must have at least 41 samples, got 40",
        ),
    ],
)
def test_impossible_sizes_are_explained(options, processes, message):
    with pytest.raises(ValueError, match=message):
        EpochBatches(40, chosen(**options), 0, processes)


def samples(n=90, noise=1.0, seed=0):
    """Three classes along a line, blurred."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.arange(n) % 3
    x = ranks[:, None] * torch.ones(4) + noise * torch.randn(n, 4, generator=generator)
    return Split(RowBatches(x.numpy()), ranks, torch.ones(n))


def network(method="hard-linear", features=None, dim=8):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        usual = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, dim))
        return Network(features or usual, heads.create(method, num_classes=3, dim=dim))


def fit(model, part, validation=None, hooks=None, **changes):
    """Train in memory, without accelerate."""
    options = chosen(**{"epochs": 6, "batch_size": 16, "learning_rate": 1e-2} | changes)
    return Loop(model, part, validation, options, Processes(CPU), hooks or Hooks()).run()


def test_the_loss_falls_and_the_record_is_plain():
    state = fit(network(), samples(), samples(30, seed=1))
    history = state.history
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert [record["epoch"] for record in history] == [1, 2, 3, 4, 5, 6]
    measured = ("validation_loss", "validation_mae", "validation_accuracy", "validation_qwk")
    for record in history:
        assert set(record) == {"epoch", "train_loss", *measured}
        assert all(type(value) in (int, float) for value in record.values())
    maes = [record["validation_mae"] for record in history]
    assert (state.best_score, state.best_epoch) == (min(maes), 1 + maes.index(min(maes)))


@pytest.mark.parametrize(("metric", "better"), [("mae", min), ("accuracy", max), ("qwk", max)])
def test_the_metric_chooses_the_epoch(metric, better):
    state = fit(network("classification"), samples(), samples(60, seed=1), metric=metric)
    scores = [record[f"validation_{metric}"] for record in state.history]
    assert state.best_score == better(scores)
    assert state.best_epoch == 1 + scores.index(better(scores))
    assert len(set(scores)) > 1


def test_a_lower_loss_breaks_a_tie():
    few = samples(4, seed=1)  # a small part is soon predicted without a mistake
    longer = {"epochs": 30}
    kept = {ties: fit(network(), samples(), few, ties=ties, **longer) for ties in ("first", "loss")}
    errors = [record["validation_mae"] for record in kept["loss"].history]
    equal = [i for i, error in enumerate(errors) if error == min(errors)]
    losses = [record["validation_loss"] for record in kept["loss"].history]
    assert kept["first"].best_epoch == 1 + equal[0]
    assert kept["loss"].best_epoch == 1 + min(equal, key=lambda i: losses[i]) > 1 + equal[0]


class Weights(Hooks):
    """Remember the weights at the end of each epoch, as they are validated and kept."""

    def __init__(self, model):
        self.model, self.seen = model, []

    def finish_epoch(self, state, is_best, validated):
        self.seen.append([weight.detach().clone() for weight in self.model.parameters()])


def test_the_average_of_the_weights_is_what_is_validated_and_kept(monkeypatch):
    """The oracle is the formula, over the weights after every step."""
    steps, update = [], WeightAverage.update_parameters

    def watched(self, model):
        update(self, model)
        steps.append([weight.detach().clone() for weight in model.parameters()])

    monkeypatch.setattr(WeightAverage, "update_parameters", watched)
    model = network()
    hooks = Weights(model)
    options = chosen(epochs=3, batch_size=16, ema=0.9, learning_rate=0.05)
    part = samples(64)
    Loop(model, part, part, options, Processes(CPU), hooks).run()
    mean = steps[0]
    for count, after_step in enumerate(steps[1:], start=1):
        share = min(0.9, (1 + count) / (10 + count))
        pairs = zip(mean, after_step, strict=True)
        mean = [share * one + (1 - share) * other for one, other in pairs]
    for kept, own, expected in zip(hooks.seen[-1], steps[-1], mean, strict=True):
        torch.testing.assert_close(kept, expected)
        assert not torch.equal(kept, own)
    for weight, own in zip(model.parameters(), steps[-1], strict=True):
        assert torch.equal(weight, own)  # training goes on with its own


def test_the_head_learns_first_and_then_all():
    features = MLP(in_features=4, dim=3, hidden=(5,))
    model = Network(features, heads.create("classification", num_classes=4, dim=3))
    before = [weight.detach().clone() for weight in features.hidden.parameters()]
    hooks = Weights(features.hidden)
    options = chosen(epochs=3, batch_size=8, head_epochs=1.0, weight_decay=0.5)
    part = samples(40)
    Loop(model, part, None, options, Processes(CPU), hooks).run()
    waiting, second, _ = hooks.seen
    assert all(map(torch.equal, waiting, before))
    assert not any(map(torch.equal, second, before))


def test_a_long_gradient_is_shortened(monkeypatch):
    norms, step = [], torch.optim.AdamW.step

    def watched(self, *args, **kwargs):
        grads = [weight.grad for group in self.param_groups for weight in group["params"]]
        norms.append(torch.cat([grad.flatten() for grad in grads]).norm().item())
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    fit(network(), samples(), clip=0.01)
    assert max(norms) == pytest.approx(0.01, rel=1e-3)


def test_without_validation_no_epoch_is_the_best():
    state = fit(network(), samples())
    assert (state.best_epoch, len(state.history)) == (0, 6)
    assert set(state.history[0]) == {"epoch", "train_loss"}


@pytest.mark.parametrize("patience", [1, 4])
def test_patience_ends_training_that_long_after_the_best_epoch(patience):
    validation = samples(30, noise=3.0, seed=1)
    state = fit(network(), samples(), validation, epochs=200, patience=patience)
    assert len(state.history) == state.best_epoch + patience < 200


def test_a_generator_or_a_seed_decides_the_order():
    def history(**order):
        return fit(network(), samples(), **order).history

    def generated(seed):
        return history(generator=torch.Generator().manual_seed(seed))

    assert generated(0) == generated(0) != generated(1)
    assert history(seed=0) == history(seed=0) != history(seed=1)


def test_validation_does_not_change_training():
    plain, validated = (fit(network(), samples(), v).history for v in (None, samples(30, seed=1)))
    assert [r["train_loss"] for r in plain] == [r["train_loss"] for r in validated]


class Watch(nn.Module):
    """Note the mode and the size of each batch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append((self.training, torch.is_grad_enabled(), len(x)))
        return x


def test_each_part_runs_in_its_own_mode():
    watch = Watch()
    features = nn.Sequential(watch, nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    fit(network(features=features), samples(33), samples(30, seed=1), epochs=2)
    assert watch.seen == ([(True, True, 11)] * 3 + [(False, False, 30)]) * 2


def test_one_sample_left_over_does_not_stop_a_batch_norm():
    features = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    fit(network(features=features), samples(17))


def test_frozen_weights_stay_and_parameter_free_features_will_do():
    model = network()
    model.backbone[0].requires_grad_(False)
    before = model.backbone[0].weight.clone()
    fit(model, samples())
    assert torch.equal(model.backbone[0].weight, before)
    history = fit(network("classification", nn.Identity(), dim=4), samples()).history
    assert history[-1]["train_loss"] < history[0]["train_loss"]


def test_a_batch_of_light_samples_moves_the_weights_little():
    part = samples(8)
    light = replace(part, weight=torch.tensor([1.0] + [1e-6] * 7))
    alone = Split(RowBatches(part.samples._rows[:1]), part.ranks[:1], torch.ones(1))
    moved = []
    # the mean weight of the eight is an eighth, so the one sample that counts steps eightfold
    for chosen_part, rate in [(light, 0.01), (alone, 0.08)]:
        model = network("classification")
        before = model.backbone[0].weight.detach().clone()
        rates = {"learning_rate": rate, "head_learning_rate": rate, "weight_decay": 0.0}
        fit(model, chosen_part, epochs=1, batch_size=1, optimiser="sgd", momentum=0.0, **rates)
        moved.append(model.backbone[0].weight.detach() - before)
    assert moved[1].abs().max() > 1e-3
    torch.testing.assert_close(*moved, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("rate", ["learning_rate", "head_learning_rate"])
def test_a_diverging_run_names_the_epoch_and_the_cure(rate):
    class Advice(Hooks):
        advice = ", or standardise X"

    said = r"at step \d+ of epoch \d+: lower learning_rate .*1e\+30.*\), or standardise X"
    with pytest.raises(FloatingPointError, match=said):
        fit(network("classification"), samples(), hooks=Advice(), **{rate: 1e30})


def test_a_step_that_spoils_the_weights_at_the_very_end_is_noticed():
    with pytest.raises(FloatingPointError, match="got inf at step 1 of epoch 1"):
        fit(
            network("classification"),
            samples(),
            epochs=1,
            batch_size=90,
            learning_rate=math.nextafter(3e38, 0),
        )


@pytest.mark.parametrize("decode", ["mode", "median", "mean"])
def test_long_features_are_decided_as_the_head_decides(decode):
    """Their probabilities round to the same numbers, so that an arg max of them would be wrong."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 8, generator=generator)
    x = 2200 * x / x.norm(dim=1, keepdim=True)
    head = heads.create("hard-linear", num_classes=6, dim=8, norm=3.0)
    decided = head.predict(x, decode)
    if decode == "mode":
        assert (head.log_probs(x).exp().argmax(dim=-1) != decided).any()
    model = Network(nn.Identity(), head)
    ranks = torch.arange(400) % 6
    part = Split(RowBatches(x.numpy()), ranks, torch.ones(400))
    found = predict_split(model, part, part.batches(Processes(CPU), 16), Processes(CPU))
    assert torch.equal(found.decisions[decode], decided)
    assert measure(ranks, found, decode)["mae"] == metrics.mean_absolute_error(ranks, decided)
    tiny = {"learning_rate": 1e-30, "head_learning_rate": 1e-30, "weight_decay": 0.0, "epochs": 1}
    state = fit(model, part, part, decode=decode, **tiny)
    assert state.best_score == metrics.mean_absolute_error(ranks, decided)
    options = {"head_options": {"norm": 3.0}, "decode": decode, "random_state": 0, **tiny}
    fitted = OrdinalClassifier("hard-linear", nn.Identity(), 8, **options).fit(x, ranks)
    assert fitted.predict(x).tolist() == fitted.head_.predict(x, decode).tolist()
