"""What a model says of many samples."""

import numpy as np
import pandas as pd
import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st

from layline.data.loading import RowBatches
from layline.data.table import TableEncoding
from layline.model import ModelSpec
from layline.training.outcomes import Task, batches_of, outcomes_of

COUNT = 25
ACCELERATOR = Accelerator(cpu=True)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    encoding = TableEncoding.fit(pd.DataFrame({"a": ["1", "2"], "b": ["3", "5"]}), np.array([0, 1]))
    options = {"in_features": 2, "hidden": [8]}
    return ModelSpec("mlp", "hard-linear", 3, ("x", "y", "z"), encoding, options).build()


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    return Task(
        RowBatches(rng.normal(size=(COUNT, 2)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 3, COUNT)),
        torch.from_numpy(rng.uniform(0.5, 2, COUNT).astype(np.float32)),
    )


def outcomes(model, task, batch_size, **options):
    batches = batches_of(task, ACCELERATOR, batch_size)
    return outcomes_of(model, task, batches, ACCELERATOR, **options)


@given(batch_size=st.integers(1, COUNT + 5))
def test_they_are_in_order_and_the_loss_is_a_weighted_mean(model, task, batch_size):
    found = outcomes(model, task, batch_size)
    x, _ = task.samples.__getitems__([(index, 0) for index in range(COUNT)])
    model.eval()
    with torch.no_grad():
        vectors = model.features(x)
        losses = [model.head.loss(vectors[i : i + 1], task.ranks[i : i + 1]) for i in range(COUNT)]
        log_probs = model.head.log_probs(vectors)
    torch.testing.assert_close(found.log_probs, log_probs)
    mean = (torch.stack(losses) @ task.weight / task.weight.sum()).item()
    assert found.loss == pytest.approx(mean, rel=1e-5)


def test_nothing_is_remembered_for_a_gradient(model, task):
    assert not outcomes_of(
        model, task, batches_of(task, ACCELERATOR, 8), ACCELERATOR
    ).log_probs.requires_grad


def test_the_model_is_asked_as_in_testing(model, task):
    model.train()
    outcomes(model, task, 8)
    assert not model.training


@given(batch_size=st.integers(1, COUNT + 5), keep=st.sets(st.integers(0, COUNT - 1)))
def test_features_are_kept_of_those_that_are_asked_for(model, task, batch_size, keep):
    wanted = torch.tensor(sorted(keep), dtype=torch.int64)
    found = outcomes_of(
        model, task, batches_of(task, ACCELERATOR, batch_size), ACCELERATOR, keep=wanted
    )
    x, _ = task.samples.__getitems__([(index, 0) for index in range(COUNT)])
    with torch.no_grad():
        torch.testing.assert_close(found.features, model.features(x)[wanted])


def test_batches_can_be_gone_over_again(model, task):
    batches = batches_of(task, ACCELERATOR, 2)
    first, second = (outcomes_of(model, task, batches, ACCELERATOR).log_probs for _ in range(2))
    assert torch.equal(first, second)


def test_without_asking_no_features_are_kept(model, task):
    assert outcomes_of(
        model, task, batches_of(task, ACCELERATOR, 8), ACCELERATOR
    ).features.shape == (0, 3)
