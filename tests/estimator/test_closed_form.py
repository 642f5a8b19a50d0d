"""The default of few samples: a model that is fitted in closed form."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import layline
from layline.estimator import OrdinalClassifier
from layline.training.gaussian_process import MOST_ROWS

RNG = np.random.default_rng(0)
Y = np.arange(90) % 3
X = Y[:, None] + 0.8 * RNG.normal(size=(90, 3))
NEW_Y = RNG.integers(0, 3, size=300)
NEW = NEW_Y[:, None] + 0.8 * RNG.normal(size=(300, 3))


def fit(x=X, y=Y, groups=None, sample_weight=None, **parameters):
    model = OrdinalClassifier(**{"random_state": 0, **parameters})
    return model.fit(x, y, sample_weight, groups=groups)


def test_the_fitted_estimator_has_the_documented_attributes():
    model = fit()
    assert (model.method_, model.n_iter_, model.best_epoch_) == ("joint-layout", 1, 1)
    assert model.score(NEW, NEW_Y) > 0.7
    assert model.transform(NEW).shape == (300, model.proxies_.shape[1])
    # features are near the proxies of their ranks
    nearest = np.linalg.norm(model.transform(NEW)[:, None] - model.proxies_, axis=2).argmin(axis=1)
    assert (nearest == NEW_Y).mean() > 0.7
    np.testing.assert_array_equal(fit(random_state=1).predict_proba(NEW), model.predict_proba(NEW))


@pytest.mark.parametrize(
    ("changes", "method"),
    [
        ({"hidden": (8,)}, "committee"),
        ({"folds": 2, "epochs": 1}, "committee"),
        ({"batch_size": 8, "epochs": 1}, "committee"),
        ({"learning_rate": 1e-3, "epochs": 1}, "committee"),
        ({"head_options": {"members": ["ranking", "sord"]}, "epochs": 1}, "committee"),
        ({"epochs": 2}, "committee"),
        ({"recipe": "paper", "epochs": 2}, "committee"),
        ({"method": "ranking", "epochs": 2}, "ranking"),
        ({"method": "joint-layout", "epochs": 2}, "joint-layout"),
    ],
)
def test_settings_of_a_training_by_gradient_descent_are_used(changes, method):
    model = fit(**changes)
    assert model.method_ == method
    assert model.n_iter_ == changes.get("epochs", model.n_iter_)
    assert model.transform(NEW).shape == (300, 128)


def test_many_samples_and_sparse_rows_are_trained_by_gradient_descent():
    many = np.resize(np.arange(len(X)), MOST_ROWS + 1)
    assert fit(X[many], Y[many], patience=1).method_ == "committee"
    assert fit(X[many[:-1]], Y[many[:-1]]).method_ == "joint-layout"
    assert fit(sparse.csr_matrix(X)).method_ == "committee"


def test_every_label_calibrates_without_having_been_seen():
    """The labels are random: a model that had seen them would be certain."""
    random = np.random.default_rng(1).permutation(Y)
    model = fit(y=random)
    assert len(model.calibration_.scores) == 90
    low, high = model.predict_range(NEW, coverage=0.9)
    assert (high - low).mean() > 1.5
    assert model.predict_proba(X).max() < 0.6


def test_ranges_contain_the_truth_as_often_as_they_promise():
    covered = []
    for draw in range(8):
        rng = np.random.default_rng(draw)
        y = np.arange(60) % 4
        x = y[:, None] + rng.normal(size=(60, 2))
        new_y = rng.integers(0, 4, size=400)
        low, high = fit(x, y).predict_range(new_y[:, None] + rng.normal(size=(400, 2)), 0.8)
        covered.append(((low <= new_y) & (new_y <= high)).mean())
    assert np.mean(covered) > 0.8


def log_loss(model):
    return -model.predict_log_proba(NEW)[np.arange(300), NEW_Y].mean()


def test_copies_of_a_sample_do_not_tell_its_label():
    once, twice = fit(), fit(np.repeat(X, 2, axis=0), np.repeat(Y, 2))
    assert log_loss(twice) < log_loss(once) + 0.05
    low, high = twice.predict_range(NEW, coverage=0.9)
    assert ((low <= NEW_Y) & (high >= NEW_Y)).mean() > 0.85


def test_a_group_is_left_out_as_a_whole():
    """Nearly the same rows of a patient would otherwise tell their label."""
    x = np.repeat(X, 2, axis=0) + 1e-6 * RNG.normal(size=(180, 3))
    y = np.repeat(np.random.default_rng(1).permutation(Y), 2)
    leaking = fit(x, y).predict_proba(X).max(axis=1).mean()
    grouped = fit(x, y, groups=np.repeat(np.arange(90), 2)).predict_proba(X).max(axis=1).mean()
    assert grouped < leaking


def test_given_validation_samples_calibrate():
    validated = OrdinalClassifier().fit(X[30:], Y[30:], X_val=X[:30], y_val=Y[:30])
    assert (validated.method_, len(validated.calibration_.scores)) == ("joint-layout", 0)
    assert validated.calibration_.temperature != 1


def test_weights_and_class_weights_count():
    heavy = np.where(Y == 2, 20.0, 1.0)
    plain, weighted = (fit(sample_weight=weight).predict_proba(NEW) for weight in (None, heavy))
    assert weighted[:, 2].mean() > plain[:, 2].mean()
    assert fit(class_weight={2: 20.0}).predict_proba(NEW)[:, 2].mean() > plain[:, 2].mean()


def test_tables_with_categories_and_missing_values(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(ward=["u", "v", None] * 30)
    frame.loc[::7, "a"] = np.nan
    model = fit(frame)
    model.save(tmp_path / "model.safetensors")
    again = OrdinalClassifier.load(tmp_path / "model.safetensors")
    assert (again.method, again.method_) == ("auto", "joint-layout")
    for method in ("predict", "predict_proba", "transform"):
        ours, theirs = getattr(model, method)(frame), getattr(again, method)(frame)
        np.testing.assert_array_equal(ours, theirs)
    loaded = layline.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.predict_proba(frame), model.predict_proba(frame), atol=1e-4)
    again.fit(frame, Y)
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_gradients_may_be_switched_off():
    with torch.inference_mode():
        inside = fit()
    np.testing.assert_array_equal(inside.predict_proba(NEW), fit().predict_proba(NEW))


def test_a_warm_start_does_not_change_to_training():
    model = fit(warm_start=True)
    with pytest.raises(ValueError, match="cannot change between a closed form and training"):
        model.set_params(epochs=2).fit(X, Y)


def test_a_warm_start_fits_all_samples_again():
    model = fit(X[:60], Y[:60], warm_start=True)
    model.fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(NEW), fit().predict_proba(NEW))
