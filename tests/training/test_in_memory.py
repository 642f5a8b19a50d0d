import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from layline import heads
from layline.training import Options, Samples, train
from layline.training.in_memory import evaluate, train_epoch

CPU = torch.device("cpu")


def options(**changes):
    chosen = {
        "epochs": 6,
        "batch_size": 16,
        "learning_rate": 1e-2,
        "head_learning_rate": 1e-2,
        "weight_decay": 1e-2,
        "decode": "mode",
        "patience": None,
        "verbose": 0,
    }
    return Options(**{**chosen, **changes})


def samples(n=90, noise=1.0, seed=0):
    """Three classes along a line, blurred."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.arange(n) % 3
    x = ranks[:, None] * torch.ones(4) + noise * torch.randn(n, 4, generator=generator)
    return Samples(x, ranks, torch.ones(n))


def modules(method="hard-linear", seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)), heads.create(
            method, num_classes=3, dim=8
        )


def trained(method="hard-linear", validation=None, n=90, seed=0, **changes):
    features, head = modules(method)
    generator = torch.Generator().manual_seed(seed)
    outcome = train(features, head, samples(n), validation, options(**changes), generator)
    return features, head, *outcome


@example(3, 2)
@example(33, 32)
@given(st.integers(1, 200), st.integers(1, 40))
def test_batches_are_nearly_equal_and_none_is_a_single_sample(n, size):
    order = torch.randperm(n)
    lengths, seen = [], []
    for x, ranks, weight in Samples(torch.arange(n), order, torch.ones(n)).batches(
        size, order, CPU
    ):
        assert len(x) == len(ranks) == len(weight)
        lengths.append(len(x))
        seen += x.tolist()
    assert seen == order.tolist()
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) <= max(size, 3 if size == 2 else 1)
    assert 1 not in lengths or size == 1 or n == 1


def test_the_loss_falls_and_the_record_is_plain():
    *_, history, best = trained(validation=samples(30, seed=1))
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert [record["epoch"] for record in history] == [1, 2, 3, 4, 5, 6]
    for record in history:
        assert set(record) == {
            "epoch",
            "train_loss",
            "validation_loss",
            "validation_mae",
            "validation_accuracy",
        }
        assert all(type(value) in (int, float) for value in record.values())
    assert 1 <= best <= 6


@pytest.mark.parametrize("method", ["hard-linear", "soft-poisson", "classification"])
def test_the_state_of_the_first_best_epoch_is_restored(method):
    validation = samples(30, noise=2.0, seed=1)
    features, head, history, best = trained(
        method, validation, epochs=25, learning_rate=0.05, head_learning_rate=0.05
    )
    maes = [record["validation_mae"] for record in history]
    assert best == 1 + maes.index(min(maes))
    assert best < len(history)  # else restoring would prove nothing
    again = evaluate(features, head, validation, options())
    assert again == {name: history[best - 1][name] for name in again}


def test_without_validation_the_last_epoch_is_kept():
    features, head, history, best = trained()
    assert best == len(history) == 6
    assert set(history[0]) == {"epoch", "train_loss"}
    assert not features.training
    assert not head.training


@pytest.mark.parametrize("patience", [1, 4])
def test_patience_ends_training_that_long_after_the_best_epoch(patience):
    *_, history, best = trained(
        validation=samples(30, noise=3.0, seed=1), epochs=200, patience=patience
    )
    assert len(history) == best + patience < 200


def test_the_generator_decides_the_result():
    runs = [trained(seed=seed)[2] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_validation_does_not_change_training():
    plain, validated = trained()[2], trained(validation=samples(30, seed=1))[2]
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
    _, head = modules()
    train(
        features,
        head,
        samples(33),
        samples(30, seed=1),
        options(epochs=2),
        torch.Generator().manual_seed(0),
    )
    assert watch.seen == [(True, True, 11)] * 3 + [(False, False, 30)] + (
        [(True, True, 11)] * 3 + [(False, False, 30)]
    )


def test_one_sample_left_over_does_not_stop_a_batch_norm():
    features = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    _, head = modules()
    train(features, head, samples(17), None, options(), torch.Generator().manual_seed(0))


def test_frozen_weights_stay_and_parameter_free_features_will_do():
    features, head = modules()
    features[0].requires_grad_(False)
    before = features[0].weight.clone()
    train(features, head, samples(), None, options(), torch.Generator().manual_seed(0))
    assert torch.equal(features[0].weight, before)

    identity, head = nn.Identity(), heads.create("hard-linear", num_classes=3, dim=4)
    history, _ = train(identity, head, samples(), None, options(), torch.Generator().manual_seed(0))
    assert history[-1]["train_loss"] < history[0]["train_loss"]


def test_a_batch_of_light_samples_moves_the_weights_little():
    light = Samples(samples(8).x, samples(8).ranks, torch.tensor([1.0] + [1e-6] * 7))
    alone = Samples(light.x[:1], light.ranks[:1], torch.ones(1))
    moved = []
    # the mean weight of the eight is an eighth, so the one sample that counts steps eightfold
    for chosen, rate in [(light, 0.01), (alone, 0.08)]:
        features, head = modules("classification")
        before = features[0].weight.detach().clone()
        optimiser = torch.optim.SGD([*features.parameters(), *head.parameters()], lr=rate)
        train_epoch(features, head, chosen, torch.arange(len(chosen)), optimiser, batch_size=1)
        moved.append(features[0].weight.detach() - before)
    assert moved[1].abs().max() > 1e-3
    torch.testing.assert_close(*moved, atol=1e-6, rtol=1e-3)


def test_measures_are_weighted():
    features, head = modules()
    held_out = samples(30, seed=1)
    doubled = Samples(
        torch.cat([held_out.x, held_out.x[:10]]),
        torch.cat([held_out.ranks, held_out.ranks[:10]]),
        torch.ones(40),
    )
    weight = torch.ones(30)
    weight[:10] = 2
    weighted = evaluate(
        features, head, Samples(held_out.x, held_out.ranks, weight), options(batch_size=3)
    )
    repeated = evaluate(features, head, doubled, options())
    assert weighted == pytest.approx(repeated, rel=1e-5)


@pytest.mark.parametrize("decode", ["mode", "median", "mean"])
def test_validation_decodes_as_told(decode):
    features, head = modules()
    held_out = samples(60, noise=3.0, seed=1)
    mae = evaluate(features, head, held_out, options(decode=decode))["validation_mae"]
    predicted = head.predict(features(held_out.x), decode=decode)
    assert mae == pytest.approx((predicted - held_out.ranks).abs().double().mean().item())


@pytest.mark.parametrize("rate", ["learning_rate", "head_learning_rate"])
def test_a_diverging_run_names_the_epoch_and_the_cure(rate):
    with pytest.raises(FloatingPointError, match=r"in epoch \d+: lower learning_rate .*1e\+30"):
        trained(**{rate: 1e30}, method="classification")


def test_a_step_that_spoils_the_weights_at_the_very_end_is_noticed():
    with pytest.raises(FloatingPointError, match="in epoch 1"):
        trained("classification", epochs=1, batch_size=90, learning_rate=math.nextafter(3e38, 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer, at least 1, got 0"),
        ({"epochs": 2.5}, "epochs must be an integer, at least 1, got 2.5"),
        ({"batch_size": 0}, "batch_size must be an integer, at least 1, got 0"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0, got 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number above 0, got 'fast'"),
        ({"head_learning_rate": -1}, "head_learning_rate must be a finite number above 0, got -1"),
        ({"head_learning_rate": math.nan}, "head_learning_rate must be .* above 0, got nan"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number, at least 0, got -0.1"),
        ({"decode": "max"}, "decode must be a known name, got 'max'"),
        ({"patience": 0}, "patience must be an integer, at least 1, got 0: None never stops"),
        ({"verbose": -1}, "verbose must be an integer, at least 0, got -1"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(changes, message):
    with pytest.raises(ValueError, match=message):
        options(**changes)
