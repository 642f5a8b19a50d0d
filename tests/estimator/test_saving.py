"""An estimator in a file, which opens as a model and as an estimator."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import layline
from layline import OrdinalClassifier
from layline.data.preprocessing import ImagePreprocessing
from layline.model.description import ModelDescription
from layline.model.model import OrdinalModel

RANKS = np.arange(120) % 3
X, NEW = (
    RANKS[:, None] + 0.6 * np.random.default_rng(seed).normal(size=(120, 3)) for seed in (0, 1)
)
WORDS = np.array(["low", "mid", "high"])
LABELS = {
    "strings": WORDS[RANKS],
    "objects": np.array(["1st", "2nd", "3rd"], dtype=object)[RANKS],
    "integers": np.array([30, 10, 20], dtype=np.int16)[RANKS],
    "floats": np.array([1, 2, 4], dtype=np.float32)[RANKS],
    "booleans": RANKS > 0,
}


def frame_of(x):
    frame = pd.DataFrame(x, columns=["age", "size", "dose"])
    frame.loc[::7, "age"] = np.nan
    return frame.assign(ward=["u", "v", None, "w"] * 30, empty=np.nan)


def with_missing(x):
    return np.where(np.arange(360).reshape(120, 3) % 11 == 0, np.nan, x)


def fit(labels, x=X, **changes):
    small = {"dim": 4, "hidden": (8,), "epochs": 3, "learning_rate": 1e-2, "folds": 0}
    small |= {"batch_size": 32, "random_state": 0}
    order = {"strings": WORDS.tolist(), "integers": [30, 10, 20]}.get(labels)
    parameters = {**small, "calibration_fraction": 0.3, "classes": order, **changes}
    return OrdinalClassifier(**parameters).fit(x, LABELS[labels])


def named(x):
    """The input of a model of columns without names."""
    return x if hasattr(x, "ward") else pd.DataFrame(np.asarray(x), columns=["x0", "x1", "x2"])


@pytest.mark.parametrize(
    ("labels", "kind", "changes"),
    [
        ("strings", frame_of, {"decode": "mode"}),
        ("strings", np.float32, {"class_weight": {"low": 2.0}}),
        ("objects", with_missing, {"method": "soft-poisson", "head_options": {"alpha": 2.0}}),
        ("integers", frame_of, {"decode": np.ones((3, 3)) - np.eye(3)}),
        ("floats", pd.DataFrame, {"class_weight": {1.0: 3.0, 2: 1}}),
        ("booleans", np.array, {"recipe": "paper", "random_state": np.random.RandomState(0)}),
    ],
)
def test_a_saved_estimator_opens_as_a_model_and_as_an_estimator(tmp_path, labels, kind, changes):
    path = tmp_path / "model.safetensors"
    estimator = fit(labels, kind(X), **changes)
    estimator.save(path)
    x = kind(NEW)
    again = OrdinalClassifier.load(path)
    for method in ("predict", "predict_proba", "transform"):
        ours, theirs = getattr(estimator, method)(x), getattr(again, method)(x)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(
        estimator.predict_range(x, coverage=0.8), again.predict_range(x, coverage=0.8)
    )
    for name in ("history_", "best_epoch_", "n_iter_", "n_features_in_", "encoding_"):
        assert getattr(again, name) == getattr(estimator, name)

    model = layline.load(path)
    np.testing.assert_allclose(
        model.predict_proba(named(x)), estimator.predict_proba(x), rtol=1e-4, atol=1e-5
    )
    text_of = dict(zip(estimator.classes_.tolist(), model.classes, strict=True))
    texts = [text_of[label] for label in estimator.predict(x).tolist()]
    np.testing.assert_array_equal(model.predict(named(x)), texts)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    estimator = fit("integers", class_weight={10: 2.0}, decode=np.ones((3, 3)) - np.eye(3))
    estimator.save(path)
    return estimator, path


def test_a_loaded_estimator_can_be_fitted_again_and_continued(saved):
    estimator, path = saved
    again = clone(OrdinalClassifier.load(path)).fit(X, LABELS["integers"])
    np.testing.assert_array_equal(again.predict_proba(X), estimator.predict_proba(X))
    again = OrdinalClassifier.load(path).set_params(warm_start=True).fit(X, LABELS["integers"])
    assert again.history_[:3] == estimator.history_
    assert len(again.history_) == 6


def test_a_model_without_column_names_takes_an_array(saved):
    model = layline.load(saved[1])
    assert model.classes == ("30", "10", "20")
    np.testing.assert_array_equal(model.predict(X), model.predict(named(X)))
    missing = named(X[:1]).assign(x1=np.nan)
    filled = named(X[:1]).assign(x1=saved[0].encoding_.numeric[1].median)
    np.testing.assert_array_equal(model.predict_proba(missing), model.predict_proba(filled))


def test_code_and_unfitted_estimators_are_not_saved(tmp_path):
    estimator = fit("booleans", backbone=nn.Linear(3, 4), hidden=None, epochs=1)
    with pytest.raises(ValueError, match="Only an estimator with a named backbone"):
        estimator.save(tmp_path / "model.safetensors")
    with pytest.raises(NotFittedError):
        OrdinalClassifier().save(tmp_path / "model.safetensors")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"labels": [30, 10, 2**70]},
        {"labels_dtype": "V8"},
        {"parameters": {"callback": "os.system"}},
        {"parameters": {"class_weight": [1]}},
        {"n_features": 2},
        {"columns": ["a", "b", "c"]},
        {"history": [{"loss": "low"}]},
    ],
)
def test_a_wrong_description_is_refused(saved, tmp_path, change):
    model = layline.load(saved[1])
    estimator = {**model.description.estimator, **change}
    description = replace(model.description, estimator=estimator)
    OrdinalModel(description, model.backbone, model.head).save(tmp_path / "odd.safetensors")
    with pytest.raises(layline.UserError, match="does not describe a valid estimator"):
        OrdinalClassifier.load(tmp_path / "odd.safetensors")
    layline.load(tmp_path / "odd.safetensors")  # the model in it is valid


def test_a_model_without_an_estimator_is_refused(tmp_path):
    path = tmp_path / "best.safetensors"
    images = ImagePreprocessing(resize=8, size=8)
    ModelDescription("convnet", "arc", 4, ("low", "high"), images).build().save(path)
    with pytest.raises(ValueError, match="is not the file of an estimator"):
        OrdinalClassifier.load(path)
