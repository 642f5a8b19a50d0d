"""Properties of a fitted estimator."""

import copy
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from layline.backbones import MLP
from layline.estimator import OrdinalClassifier
from layline.training.optim import choose_batch_size, choose_epochs


def quick(method="hard-linear", **changes):
    small = {"dim": 8, "hidden": (16,), "epochs": 3, "learning_rate": 1e-2, "folds": 0}
    small |= {"batch_size": 32, "random_state": 0}
    if not isinstance(changes.get("backbone", "mlp"), str):
        del small["hidden"]  # a module has its own layers
    return OrdinalClassifier(method, **{**small, **changes})


def samples(n=120, num_classes=4, noise=0.4, seed=0):
    """Classes along a line, blurred."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % num_classes
    return y[:, None] * np.ones(3) + noise * rng.normal(size=(n, 3)), y


def same(a, b):
    def weights(model):
        return [*model.backbone_.state_dict().values(), *model.head_.state_dict().values()]

    pairs = zip(weights(a), weights(b), strict=True)
    return a.history_ == b.history_ and all(torch.equal(p, q) for p, q in pairs)


@pytest.mark.parametrize("method", ["hard-linear", "classification"])
def test_the_fitted_estimator_has_the_documented_attributes(method):
    X, y = samples()
    model = quick(method, epochs=20, patience=None).fit(X, y)
    assert (model.classes_.tolist(), model.n_features_in_) == ([0, 1, 2, 3], 3)
    assert model.transform(X).shape == (120, 8)
    assert hasattr(model, "proxies_") == (method != "classification")
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize("changes", [{}, {"decode": "mode"}, {"decode": "mean"}])
def test_a_label_is_decoded_from_the_probabilities_by_default_as_their_median(changes):
    X, y = samples(600, noise=1.5)
    model = quick("classification", **changes).fit(X, y)
    assert model.calibration_.temperature != 1
    proba = model.predict_proba(X)
    expected = {
        "mode": proba.argmax(axis=1),
        "median": (proba.cumsum(axis=1) < 0.5).sum(axis=1),
        "mean": np.rint(proba @ np.arange(4)),
    }
    np.testing.assert_array_equal(model.predict(X), expected[changes.get("decode", "median")])


def test_the_weights_are_those_of_the_epoch_with_the_lowest_validation_mae():
    X, y = samples(noise=2.0)
    model = quick(epochs=20, recipe="paper", patience=None).fit(X, y)
    maes = [record["validation_mae"] for record in model.history_]
    assert len(maes) == 20
    assert 1 < model.best_epoch_ == 1 + maes.index(min(maes)) < 20
    shorter = quick(epochs=model.best_epoch_, recipe="paper").fit(X, y)
    assert shorter.history_ == model.history_[: model.best_epoch_]
    np.testing.assert_array_equal(shorter.predict_proba(X), model.predict_proba(X))


def test_without_validation_the_last_epoch_is_kept():
    model = quick(validation_fraction=0).fit(*samples())
    assert model.best_epoch_ == len(model.history_) == 3
    assert set(model.history_[0]) == {"epoch", "train_loss"}
    with pytest.warns(UserWarning, match="the last epoch is kept"):
        assert quick().fit(*samples(n=4)).best_epoch_ == 3


@pytest.mark.parametrize("method", ["coral", "arc"])
def test_a_head_has_its_own_learning_rate_in_the_modern_recipe(method):
    X, y = samples()
    own = 0.01 if method == "arc" else 0.1
    assert same(quick(method).fit(X, y), quick(method, head_learning_rate=own).fit(X, y))
    paper = {"recipe": "paper", "method": method}
    assert same(quick(**paper).fit(X, y), quick(**paper, head_learning_rate=0.01).fit(X, y))


def test_classes_have_the_given_order_or_that_of_a_categorical_or_are_sorted_with_a_warning():
    X, y = samples(num_classes=3)
    words = ["low", "mid", "high"]
    labels, plain = np.array(words)[y], quick().fit(X, y)
    model = quick(classes=words).fit(X, labels)
    assert model.classes_.tolist() == words
    np.testing.assert_array_equal(model.predict(X), np.array(words)[plain.predict(X)])
    series = pd.Series(pd.Categorical(labels, categories=words, ordered=True))
    assert same(model, plain)
    assert same(quick().fit(X, series), plain)
    with pytest.warns(UserWarning, match=re.escape(f"classes={words}")) as record:
        assert quick().fit(X, labels).classes_.tolist() == sorted(words)
    assert record[0].filename == __file__


# weights


def test_only_ratios_of_weights_matter_and_a_sample_of_weight_zero_is_ignored():
    X, y = samples()
    plain = quick().fit(X, y, sample_weight=1.0 + y)
    assert same(plain, quick().fit(X, y, sample_weight=2.0**1021 * (1.0 + y)))
    few = np.arange(len(y)) < 8  # most batches have light samples only
    light = quick(batch_size=4).fit(X, y, sample_weight=np.where(few, 1.0, 1e-300))
    assert np.isfinite(light.history_[-1]["train_loss"])
    weight = np.random.default_rng(1).integers(0, 3, size=len(y)) * 1.0
    there = weight > 0
    zeros = quick().fit(X, y, sample_weight=weight)
    assert same(zeros, quick().fit(X[there], y[there], sample_weight=weight[there]))


class Plain(MLP):
    """A perceptron without dropout."""

    def __init__(self, **known):
        super().__init__(**known, hidden=(16,), dropout=0.0)


def test_an_integer_weight_is_that_many_samples():
    # exact only without batches, dropout and validation
    X, y = samples(n=40)
    weight = np.random.default_rng(0).integers(0, 4, size=len(y))
    settings = {"validation_fraction": 0, "batch_size": 1000, "epochs": 4, "backbone": Plain}
    weighted = quick(**settings).fit(X, y, sample_weight=weight)
    repeated = quick(**settings).fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-3, atol=1e-5
    )


def test_class_weights_are_sample_weights_in_training_and_in_validation():
    X, y = samples(noise=1.0)
    settings = {"backbone": nn.Linear(3, 8)}
    by_class = quick(**settings, class_weight={1: 3.0, 2: 0.5}).fit(X, y)
    by_sample = quick(**settings).fit(X, y, sample_weight=np.array([1, 3, 0.5, 1])[y])
    assert same(by_class, by_sample)
    assert not same(by_class, quick(**settings).fit(X, y))


# randomness


DROPPING = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5))


@pytest.mark.parametrize("backbone", ["mlp", DROPPING])
def test_a_seed_decides_everything_and_leaves_global_generators_alone(backbone):
    X, y = samples()
    before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    first = quick(backbone=backbone).fit(X, y)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_equal(np.random.get_state(), numpy_before)  # noqa: NPY002
    torch.rand(3)
    assert same(first, quick(backbone=backbone).fit(X, y))
    assert not same(first, quick(backbone=backbone, random_state=2).fit(X, y))


def test_fits_in_threads_do_not_disturb_each_other():
    X, y = samples()
    before = torch.get_rng_state()
    models = [quick(backbone=DROPPING, random_state=seed) for seed in (1, 2, 1, 2)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda model: model.fit(X, y), models))
    assert torch.equal(torch.get_rng_state(), before)
    assert same(models[0], models[2])
    assert same(models[1], quick(backbone=DROPPING, random_state=2).fit(X, y))


# modules as backbones


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_a_module_takes_images_and_is_not_changed(dtype):
    y = np.arange(66) % 3
    noise = np.random.default_rng(0).uniform(0, 40, size=(66, 3, 8, 8))
    X = (40 * y[:, None, None, None] + noise).astype(dtype)
    convolution = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    given = nn.Sequential(*convolution, nn.Flatten(), nn.Linear(4, 8))
    before = copy.deepcopy(given.state_dict())
    model = quick(backbone=given, epochs=15, decode="mode").fit(X, y)
    assert model.transform(X).shape == (66, 8)
    assert model.score(X, y) > 0.7
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())
    assert given.training


class Counting(nn.Linear):
    calls = 0

    def forward(self, x):
        Counting.calls += 1
        return super().forward(x)


def test_a_function_makes_a_new_module_that_a_range_runs_once():
    X, y = samples()
    model = quick(
        backbone=lambda **known: Counting(3, known["dim"]),
        batch_size=1000,
        calibration_fraction=0.3,
    ).fit(X, y)
    assert same(model, clone(model).fit(X, y))
    Counting.calls = 0
    model.predict_range(X, coverage=0.5)
    assert Counting.calls == 1


# calibration


@pytest.mark.parametrize("by_class", [False, True])
def test_ranges_contain_the_truth_as_often_as_they_promise(by_class):
    X, y = samples(4000, num_classes=3, noise=1.0)
    names = np.array(["low", "mid", "top"])
    model = quick("arc", epochs=2, calibration_fraction=0.5, classes=names)
    model.fit(X[:2000], names[y[:2000]])
    bounds = model.predict_range(X[2000:], coverage=0.8, by_class=by_class)
    low, high = (np.searchsorted(names, bound) for bound in bounds)
    chosen = np.searchsorted(names, model.predict(X[2000:]))
    assert ((low <= chosen) & (chosen <= high)).all()
    held = (low <= y[2000:]) & (y[2000:] <= high)
    shares = [held[y[2000:] == k].mean() for k in range(3)] if by_class else [held.mean()]
    assert min(shares) >= 0.72  # 0.8, up to the noise of 300 samples of a class
    assert (high - low).mean() < 2


# small data


def small(n=60, **changes):
    """Fit to few samples as a user does, except for fewer epochs."""
    X, y = samples(n, num_classes=3, noise=0.8)
    parameters = {"folds": None, "batch_size": None, "epochs": 8, **changes}
    return quick("committee", **parameters).fit(X, y)


def test_all_of_small_data_is_trained_on_and_a_cross_validation_calibrates():
    X, _ = samples(60, num_classes=3, noise=0.8)
    model = small()
    assert [set(record) for record in model.history_] == [{"epoch", "train_loss"}] * 8
    assert model.best_epoch_ == model.n_iter_ == 8
    assert len(model.calibration_.scores) == 60
    assert model.calibration_.temperature != 1
    low, high = model.predict_range(X, coverage=0.9)
    chosen = model.predict(X)
    assert ((low <= chosen) & (chosen <= high)).all()
    assert same(model, small())
    again = small()
    np.testing.assert_array_equal(again.calibration_.scores, model.calibration_.scores)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    other = small(random_state=1).calibration_
    assert other.temperature != model.calibration_.temperature


@pytest.mark.parametrize(
    "changes",
    [
        {"folds": 0},
        {"n": 1000, "epochs": 1},
        {"recipe": "paper"},
    ],
)
def test_otherwise_samples_are_held_out(changes):
    model = small(**changes)
    assert "validation_mae" in model.history_[0]
    assert len(model.calibration_.scores) < 200


def test_given_validation_samples_are_used_instead_of_folds():
    X, y = samples()
    model = quick(folds=None).fit(X[40:], y[40:], X_val=X[:40], y_val=y[:40])
    assert "validation_mae" in model.history_[0]


def test_without_a_validation_fraction_there_are_folds_only_if_they_are_wanted():
    assert len(small(validation_fraction=0, calibration_fraction=0).calibration_.scores) == 0
    assert len(small(validation_fraction=0, folds=2).calibration_.scores) == 60


def test_the_only_sample_of_a_class_is_in_no_fold():
    X, y = samples(61, num_classes=3, noise=0.8)
    model = quick(folds=None).fit(X, np.append(y[:60], 3))
    assert len(model.calibration_.scores) == 60
    assert set(model.calibration_.ranks) == {0, 1, 2}


def test_epochs_and_batch_size_follow_from_the_number_of_samples():
    size = choose_batch_size(30, "table")
    few = {"n": 30, "folds": 0, "validation_fraction": 0, "dim": 4}
    assert small(epochs=None, **few).n_iter_ == choose_epochs(30, size, kind="table")
    assert same(small(**few), small(**few, batch_size=size))
    paper = {**few, "recipe": "paper"}
    assert small(epochs=None, **paper).n_iter_ == 48
    assert same(small(**paper), small(**paper, batch_size=32))


def test_a_warm_start_keeps_the_calibration_by_folds():
    X, y = samples(60, num_classes=3, noise=0.8)
    model = small(warm_start=True)
    before = model.calibration_
    model.fit(X, y)
    assert model.calibration_ is before
    assert len(model.history_) == 16


# warm starts


def test_a_warm_start_continues_from_the_fitted_weights():
    X, y = samples()
    model = quick(warm_start=True).fit(X, y)
    before, mean = model.backbone_, model.backbone_.mean.clone()
    model.set_params(learning_rate=1e-12, head_learning_rate=1e-12, weight_decay=0).fit(X, y)
    for old, new in zip(before.parameters(), model.backbone_.parameters(), strict=True):
        torch.testing.assert_close(old, new)
    assert torch.equal(model.backbone_.mean, mean)
    assert [record["epoch"] for record in model.history_] == [1, 2, 3, 4, 5, 6]
    assert model.n_iter_ == 3
    assert model.best_epoch_ > 3
    cold = quick().fit(X, y)
    assert cold.history_ == model.history_[:3]
    assert same(cold.fit(X, y), quick().fit(X, y))  # without it a fit starts again


def test_a_failed_fit_leaves_the_fitted_model_as_it_was():
    X, y = samples()
    model = quick(warm_start=True, validation_fraction=0).fit(X, y)
    with pytest.warns(UserWarning, match="never occur in y: 3"):
        model.fit(X[y < 3], y[y < 3])  # new rows of some classes are enough
    before = model.predict_proba(X)
    for change, labels, message in [
        ({}, y + 1, "y must hold labels of classes only, got 4"),
        ({"classes": [3, 2, 1, 0]}, y, "classes must be [0, 1, 2, 3] as before"),
        ({"method": "corn"}, y, "method must be 'hard-linear' as before"),
        ({"learning_rate": 1e30}, y, "finite"),
        ({"decode": "max"}, y, "decode must be"),
        ({"warm_start": False}, 0 * y, "at least two classes"),
        ({"warm_start": False, "backbone": nn.Linear(3, 5), "hidden": None}, y, "pass dim=5"),
    ]:
        kept = model.get_params()
        with pytest.raises((ValueError, FloatingPointError), match=re.escape(message)):
            model.set_params(**change).fit(X, labels)
        np.testing.assert_array_equal(model.set_params(**kept).predict_proba(X), before)
