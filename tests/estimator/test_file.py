"""An estimator in one file, which opens as a model and as an estimator."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from sklearn.base import clone
from torch import nn

import layline
from layline import OrdinalClassifier
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import NumericColumn, TableEncoding
from layline.model.description import ModelDescription

RANKS = np.arange(120) % 3
X, NEW = (
    RANKS[:, None] + 0.6 * np.random.default_rng(seed).normal(size=(120, 3)) for seed in (0, 1)
)


def frame_of(x):
    frame = pd.DataFrame(x, columns=["age", "size", "dose"])
    frame.loc[::7, "age"] = np.nan
    return frame.assign(ward=["u", "v", None, "w"] * 30, empty=np.nan)


WORDS = np.array(["low", "mid", "high"])
LABELS = {
    "strings": WORDS[RANKS],
    "objects": np.array(["1st", "2nd", "3rd"], dtype=object)[RANKS],
    "integers": np.array([30, 10, 20], dtype=np.int16)[RANKS],
    "floats": np.array([1, 2, 4], dtype=np.float32)[RANKS],
    "booleans": RANKS > 0,
}


def quick(**changes):
    small = {"dim": 4, "hidden": (8,), "epochs": 3, "learning_rate": 1e-2, "random_state": 0}
    if isinstance(changes.get("backbone"), nn.Module):
        del small["hidden"]
    return OrdinalClassifier(**{**small, "calibration_fraction": 0.3, **changes})


def fitted(labels, x=X, **changes):
    given = {"strings": WORDS.tolist(), "integers": [30, 10, 20]}.get(labels)
    return quick(classes=given, **changes).fit(x, LABELS[labels])


def named(x):
    """What a model of columns without names takes."""
    return x if hasattr(x, "ward") else pd.DataFrame(np.asarray(x), columns=["x0", "x1", "x2"])


CASES = [
    ("strings", frame_of, {"decode": "median"}),
    ("strings", np.float32, {"class_weight": {"low": 2.0}}),
    ("objects", np.array, {"method": "soft-poisson", "head_options": {"alpha": 2.0}}),
    ("integers", frame_of, {"decode": np.ones((3, 3)) - np.eye(3)}),
    ("floats", pd.DataFrame, {"class_weight": {1.0: 3.0, 2: 1}}),
    ("booleans", np.array, {"recipe": "paper", "random_state": np.random.RandomState(0)}),
]


@pytest.mark.parametrize(("labels", "kind", "changes"), CASES)
def test_a_saved_estimator_opens_as_a_model_and_as_an_estimator(tmp_path, labels, kind, changes):
    path = tmp_path / "model.safetensors"
    estimator = fitted(labels, kind(X), **changes)
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
    assert again.classes_.dtype == estimator.classes_.dtype
    assert again.history_ == estimator.history_
    for name in ("best_epoch_", "n_iter_", "n_features_in_", "encoding_"):
        assert getattr(again, name) == getattr(estimator, name)
    np.testing.assert_array_equal(again.proxies_, estimator.proxies_)

    model = layline.load(path)
    np.testing.assert_allclose(
        model.predict_proba(named(x)), estimator.predict_proba(x), rtol=1e-4, atol=1e-5
    )
    text_of = dict(zip(estimator.classes_.tolist(), model.classes, strict=True))
    texts = [text_of[label] for label in estimator.predict(x).tolist()]
    np.testing.assert_array_equal(model.predict(named(x)), texts)
    low, _ = estimator.predict_range(x, coverage=0.8)
    expected = [text_of[label] for label in low.tolist()]
    np.testing.assert_array_equal(model.predict_range(named(x), coverage=0.8)[0], expected)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    estimator = fitted("integers", class_weight={10: 2.0}, decode=np.ones((3, 3)) - np.eye(3))
    estimator.save(path)
    return estimator, path


def test_a_loaded_estimator_is_fitted_again_with_the_same_parameters(saved):
    estimator, path = saved
    again = clone(OrdinalClassifier.load(path)).fit(X, LABELS["integers"])
    np.testing.assert_array_equal(again.predict_proba(X), estimator.predict_proba(X))


def test_a_loaded_estimator_goes_on(saved):
    estimator, path = saved
    again = OrdinalClassifier.load(path).set_params(warm_start=True).fit(X, LABELS["integers"])
    assert again.history_[:3] == estimator.history_
    assert len(again.history_) == 6


def test_classes_are_named_as_a_table_would_name_them(saved):
    assert layline.load(saved[1]).classes == ("30", "10", "20")


def test_a_model_of_numbers_takes_an_array_and_fills_what_is_missing_by_the_mean(saved):
    model = layline.load(saved[1])
    np.testing.assert_array_equal(model.predict(X), model.predict(named(X)))
    with pytest.raises(ValueError, match=r"samples must have 3 columns, got 2: .* x0, x1, x2"):
        model.predict(X[:, :2])
    missing = named(X[:1]).assign(x1=np.nan)
    filled = named(X[:1]).assign(x1=float(saved[0].features_.mean[1]))
    np.testing.assert_array_equal(model.predict_proba(missing), model.predict_proba(filled))


def test_the_same_estimator_gives_the_same_file(saved, tmp_path):
    saved[0].save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved[1].read_bytes()
    OrdinalClassifier.load(saved[1]).save(tmp_path / "third.safetensors")
    third, first = (
        OrdinalClassifier.load(path) for path in (tmp_path / "third.safetensors", saved[1])
    )
    np.testing.assert_array_equal(third.predict_proba(X), first.predict_proba(X))


def test_a_model_of_a_run_becomes_an_estimator(tmp_path):
    columns = TableEncoding(tuple(NumericColumn(name, 0.0, False) for name in "abc"), ())
    spec = ModelDescription("mlp", "arc", 4, ("low", "mid", "high"), columns, {"in_features": 3})
    torch.manual_seed(0)
    model = spec.build().eval()
    model.save(tmp_path / "best.safetensors")
    estimator = OrdinalClassifier.load(tmp_path)
    frame = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(estimator.predict(frame), model.predict(frame))
    assert estimator.feature_names_in_.tolist() == list("abc")
    before = estimator.predict_proba(frame)
    estimator.set_params(warm_start=True, epochs=2).fit(frame, WORDS[RANKS])
    assert not np.array_equal(estimator.predict_proba(frame), before)


def test_code_is_not_saved(tmp_path):
    estimator = quick(features=nn.Linear(3, 4), epochs=1).fit(X, RANKS)
    with pytest.raises(ValueError, match="features must be a name of layline"):
        estimator.save(tmp_path / "model.safetensors")
    assert not any(tmp_path.iterdir())


def test_an_estimator_that_is_not_fitted_is_not_saved(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1, 2]}, "labels [1, 2] of the classes 30, 10, 20"),
        ({"labels": [30, 10, "x"]}, "invalid literal"),
        ({"labels": [30, 10, 2**70]}, "labels of int64"),
        ({"kind": "O"}, "kind: Input should be"),
        ({"parameters": {"callback": "os.system"}}, "the parameter 'callback', which is none"),
        ({"parameters": {"class_weight": [1]}}, "class_weight that is no list of pairs"),
        ({"count": 4}, "4 columns, 3 of them inputs, that differ"),
        ({"columns": ["a", "b", "c"]}, "3 columns, 3 of them inputs, that differ"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"history": [{"loss": "low"}]}, "history.0.loss"),
    ],
)
def test_a_file_that_says_something_wrong_is_refused(saved, tmp_path, change, message):
    from dataclasses import replace

    from layline.model.model import OrdinalModel

    model = layline.load(saved[1])
    spec = replace(model.description, estimator={**model.description.estimator, **change})
    OrdinalModel(spec, model.backbone, model.head).save(tmp_path / "odd.safetensors")
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        OrdinalClassifier.load(tmp_path / "odd.safetensors")
    assert "odd.safetensors must describe its estimator" in str(refused.value)
    layline.load(tmp_path / "odd.safetensors")  # the model in it is sound


def test_models_of_images_are_no_estimators_and_others_say_nothing_of_one(tmp_path):
    path = tmp_path / "best.safetensors"
    spec = ModelDescription(
        "convnet", "arc", 4, ("low", "high"), ImagePreprocessing(resize=8, size=8)
    )
    spec.build().save(path)
    with pytest.raises(ValueError, match="must be a model of a table, got one of images"):
        OrdinalClassifier.load(path)
    with safe_open(path, framework="pt") as file:
        assert "estimator" not in json.loads(file.metadata()["layline"])
