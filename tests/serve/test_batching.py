"""Samples that come one by one are predicted in batches, each with its own answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from layline.serve.batching import Batcher


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("table")


@pytest.fixture
def batcher(model):
    made = Batcher(model, "median", batch_size=8)
    yield made
    made.close()


def rows(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 4)))


def test_everyone_gets_the_answer_to_their_own_samples(batcher, model):
    x = rows(200)
    with ThreadPoolExecutor(8) as callers:
        futures = list(callers.map(lambda i: batcher.submit(lambda: x[i : i + 1]), range(200)))
    found = np.concatenate([future.result().proba for future in futures])
    expected = Batcher(model, "median", 200)._predict(x).proba
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert batcher.answered == 200
    assert batcher.waiting == 0


def test_what_waits_while_the_model_is_busy_is_one_batch(batcher, monkeypatch):
    started, go_on, sizes = threading.Event(), threading.Event(), []
    predict = batcher._predict

    def slow(x):
        sizes.append(len(x))
        started.set()
        assert go_on.wait(10)
        return predict(x)

    monkeypatch.setattr(batcher, "_predict", slow)
    first = batcher.submit(lambda: rows(1))
    assert started.wait(10)
    others = [batcher.submit(lambda: rows(2)) for _ in range(5)]
    while batcher._preparing:
        pass
    go_on.set()
    assert [len(each.result(10).chosen) for each in (first, *others)] == [1, 2, 2, 2, 2, 2]
    assert sizes == [1, 8, 2]  # never more than a batch, and nobody's samples in two


def test_a_sample_that_cannot_be_prepared_is_its_own_problem(batcher):
    def bad():
        raise ValueError("no")

    good, wrong = batcher.submit(lambda: rows(1)), batcher.submit(bad)
    with pytest.raises(ValueError, match="no"):
        wrong.result(10)
    assert len(good.result(10).chosen) == 1


def test_what_nobody_waits_for_is_not_prepared(batcher):
    hold, prepared = threading.Event(), []
    busy = [batcher.run(lambda: hold.wait(10)) for _ in range(64)]
    unwanted = batcher.submit(lambda: prepared.append(1) or rows(1))
    assert unwanted.cancel()
    hold.set()
    for each in busy:
        each.result(10)
    batcher.submit(lambda: rows(1)).result(10)
    assert prepared == []


def test_closing_answers_what_was_asked_before(model):
    batcher = Batcher(model, "median", 4)
    futures = [batcher.submit(lambda: rows(1)) for _ in range(20)]
    batcher.close()
    assert all(future.done() for future in futures)
    assert all(len(future.result().chosen) == 1 for future in futures)
    with pytest.raises(RuntimeError, match="stopped"):
        batcher.submit(lambda: rows(1))
