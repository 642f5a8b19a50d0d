"""The optimiser and its rates."""

import math

import pytest
import torch
from torch import nn

from layline.training.config import TrainingConfig
from layline.training.optimisation import Options, make_optimiser, rate_factor, set_rates


def chosen(**training):
    """Give the options of the loop that follow from settings."""
    return TrainingConfig(**training).options()


def test_features_and_head_have_their_own_rates():
    made = make_optimiser(nn.Linear(2, 3), nn.Linear(3, 1), chosen())
    assert isinstance(made, torch.optim.AdamW)
    assert [group["lr"] for group in made.param_groups] == [1e-3, 1e-2]
    assert [len(group["params"]) for group in made.param_groups] == [2, 2]
    assert {group["weight_decay"] for group in made.param_groups} == {1e-2}


def test_sgd_has_its_momentum():
    made = make_optimiser(nn.Linear(2, 3), nn.Linear(3, 1), chosen(optimiser="sgd", momentum=0.8))
    assert isinstance(made, torch.optim.SGD)
    assert made.param_groups[0]["momentum"] == 0.8


def test_what_is_frozen_is_not_optimised():
    frozen = nn.Linear(2, 3).requires_grad_(False)
    assert make_optimiser(frozen, nn.Linear(3, 1), chosen()).param_groups[0]["params"] == []


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
    made = make_optimiser(nn.Linear(2, 3), nn.Linear(3, 1), chosen())
    for _ in range(2):  # not multiplied again and again
        set_rates(made, chosen(schedule="steps", milestones=[1]), passed=1.5)
    assert [group["lr"] for group in made.param_groups] == pytest.approx([1e-4, 1e-3])


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
