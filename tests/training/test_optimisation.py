"""The optimiser and its rates."""

import math

import pytest
import torch
from torch import nn

from layline import heads
from layline.backbones import MLP
from layline.training.config import TrainingConfig
from layline.training.optim import Options, make_optimiser, rate_factor, set_rates
from layline.training.recipes import RECIPES

HEAD = heads.create("classification", num_classes=4, dim=3)


def chosen(**training):
    """Give the options of the loop that follow from settings."""
    return TrainingConfig(**training).options()


def test_features_and_head_have_their_own_rates():
    made = make_optimiser(nn.Linear(2, 3), HEAD, chosen())
    assert isinstance(made, torch.optim.AdamW)
    assert [group["lr"] for group in made.param_groups] == [1e-3, 1e-2]
    assert [len(group["params"]) for group in made.param_groups] == [2, 2]
    assert {group["weight_decay"] for group in made.param_groups} == {1e-2}


def test_sgd_has_its_momentum():
    made = make_optimiser(nn.Linear(2, 3), HEAD, chosen(optimiser="sgd", momentum=0.8))
    assert isinstance(made, torch.optim.SGD)
    assert made.param_groups[0]["momentum"] == 0.8


def test_what_is_frozen_is_not_optimised():
    frozen = nn.Linear(2, 3).requires_grad_(False)
    (group,) = make_optimiser(frozen, HEAD, chosen()).param_groups
    assert group["params"] == [*HEAD.parameters()]


def test_rates_stay_without_a_schedule():
    assert {rate_factor(chosen(), passed) for passed in (0, 0.5, 47.9)} == {1.0}


def test_the_authors_rates_warm_up_and_fall_in_two_steps():
    options = chosen(schedule="steps", warmup_epochs=1)
    assert rate_factor(options, 0) == pytest.approx(1 / 3)
    assert rate_factor(options, 0.5) == pytest.approx(2 / 3)
    assert rate_factor(options, 1) == rate_factor(options, 35.99) == 1
    assert rate_factor(options, 36) == pytest.approx(0.1)
    assert rate_factor(options, 44) == pytest.approx(0.01)


def test_cosine_goes_from_one_to_zero_after_the_warm_up():
    options = chosen(schedule="cosine", epochs=10, warmup_epochs=2)
    assert rate_factor(options, 2) == 1
    assert rate_factor(options, 6) == pytest.approx(0.5)
    assert rate_factor(options, 10) == pytest.approx(0)
    assert rate_factor(options, 4) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_rates_are_set_from_what_was_asked_for():
    made = make_optimiser(nn.Linear(2, 3), HEAD, chosen())
    for _ in range(2):  # not multiplied again and again
        set_rates(made, chosen(schedule="steps", milestones=[1]), passed=1.5)
    assert [group["lr"] for group in made.param_groups] == pytest.approx([1e-4, 1e-3])


def test_layers_far_from_the_last_learn_slowly():
    features = MLP(in_features=2, dim=3, hidden=(4, 5))
    options = chosen(backbone_learning_rate=1e-4, layer_decay=0.5)
    made = make_optimiser(features, HEAD, options)
    rate_of = {id(w): group["lr"] for group in made.param_groups for w in group["params"]}
    for distance, layer in enumerate(reversed(features.layer_groups())):
        assert {rate_of.pop(id(weight)) for weight in layer} == {1e-4 * 0.5**distance}
    assert {rate_of.pop(id(weight)) for weight in features.last.parameters()} == {1e-3}
    assert {rate_of.pop(id(weight)) for weight in HEAD.parameters()} == {1e-2}
    assert rate_of == {}


def test_decay_leaves_vectors_and_proxies_alone():
    features, head = nn.Linear(2, 3), heads.create("soft-poisson", num_classes=4, dim=3)
    made = make_optimiser(features, head, chosen(decay_vectors=False, weight_decay=0.1))
    decay_of = {
        id(w): group["weight_decay"] for group in made.param_groups for w in group["params"]
    }
    assert (decay_of[id(features.weight)], decay_of[id(features.bias)]) == (0.1, 0)
    spared = {name for name, w in head.named_parameters() if decay_of[id(w)] == 0}
    assert spared >= head.no_weight_decay()


def test_the_released_schedule_never_leaves_its_warm_up():
    """It counts an epoch as one of so many samples: what the authors' code does, by its numbers."""
    options = chosen(**RECIPES["released"].settings["training"])
    for samples, last in ((1050, 0.363), (11823, 0.336)):
        factors = [rate_factor(options, epoch / samples) for epoch in range(48)]
        assert factors[0] == pytest.approx(1 / 3)
        assert factors[-1] == pytest.approx(last, abs=5e-4)
        assert factors == sorted(factors)


def options(**changes):
    required = {"epochs": 6, "batch_size": 16, "learning_rate": 1e-2, "head_learning_rate": 1e-2}
    rest = {"weight_decay": 1e-2, "decode": "mode", "patience": None}
    return Options(**required | rest | changes)


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
    ],
)
def test_a_wrong_option_is_named_with_its_value(changes, message):
    with pytest.raises(ValueError, match=message):
        options(**changes)
