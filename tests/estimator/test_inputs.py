"""What the estimator refuses, and how it says so."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from layline.data.sources.table import read_table
from layline.estimator import OrdinalClassifier, negative_mae

X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.arange(30) % 3


def quick(**changes):
    small = {"dim": 4, "hidden": (4,), "epochs": 1, "random_state": 0}
    if isinstance(changes.get("backbone"), nn.Module):
        del small["hidden"]  # a module has its own layers
    return OrdinalClassifier(**{**small, **changes})


def changed(place, value, dtype=np.float64):
    x = X.astype(dtype)
    x[place] = value
    return x


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "hard-liner"}, "method must be a known name, got 'hard-liner': did you mean"),
        ({"backbone": "mpl"}, "features must be a known name, got 'mpl': did you mean mlp"),
        ({"backbone": 3}, "features must be a name or an nn.Module, got 3: names are mlp"),
        ({"dim": 0}, "dim must be an integer, at least 1, got 0"),
        ({"dim": 2.0}, "dim must be an integer, at least 1, got 2.0"),
        ({"hidden": (0,)}, "hidden must be an integer, at least 1, got 0"),
        ({"epochs": 0}, "epochs must be an integer, at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be an integer, at least 1, got 0"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0, got 0"),
        ({"head_learning_rate": -1}, "head_learning_rate must be a finite number above 0, got -1"),
        ({"weight_decay": -1}, "weight_decay must be a finite number, at least 0, got -1"),
        ({"decode": "max"}, "decode must be a known name, got 'max'"),
        ({"validation_fraction": 1}, "validation_fraction must be a number in [0, 1), got 1"),
        ({"validation_fraction": -0.1}, "validation_fraction must be a number in [0, 1), got -0.1"),
        ({"validation_fraction": None}, "validation_fraction must be a number in [0, 1), got None"),
        ({"patience": 0}, "patience must be an integer, at least 1, got 0"),
        (
            {"patience": 3, "validation_fraction": 0},
            "patience must be None if validation_fraction is 0, got 3",
        ),
        ({"head_options": {"dim": 3}}, "head_options must be the method's own options, got 'dim'"),
        ({"class_weight": "even"}, "None, 'balanced', 'effective' or a dict, got 'even'"),
        ({"class_weight": [1, 2]}, "None, 'balanced', 'effective' or a dict, got [1, 2]"),
        ({"class_weight": {7: 1.0}}, "class_weight must have classes as keys, got 7"),
        ({"class_weight": {0: 0}}, "class_weight must be finite and above 0, got 0 for 0"),
        ({"class_weight": {0: np.nan}}, "class_weight must be finite and above 0, got nan for 0"),
        ({"classes": [0, 1, 1, 2]}, "classes must be a list of different labels, got [0, 1, 1, 2]"),
        ({"classes": {0, 1, 2}}, "classes must be a list of different labels, got {0, 1, 2}"),
        ({"classes": [0, "1", 2]}, "classes must be labels of one kind, got [0, '1', 2]"),
        ({"hidden": 8}, "hidden must be a sequence, got 8"),
        ({"hidden": (3.5,)}, "hidden must be an integer, at least 1, got 3.5"),
        ({"head_options": [1]}, "head_options must be a dict, got [1]"),
        ({"head_options": {"alpha": 3.0}}, "options must be those of arc, got alpha=3.0"),
        ({"backbone": nn.Linear(3, 4), "hidden": (9,)}, "hidden must be None if features is a mod"),
        ({"backbone": nn.Linear(7, 4)}, "features must take X of shape (n, 3), got an error"),
        (
            {"backbone": nn.LSTM(3, 4), "dim": 4},
            "features must give (n, dim), here (2, 4), got tup",
        ),
        ({"device": None}, "device must be one that PyTorch finds here, got None"),
        ({"classes": [0, 1]}, "y must hold labels of classes only, got 2: list it in classes"),
        ({"classes": list(range(31))}, "got 30 samples for 31 classes"),
        ({"device": "abacus"}, "device must be one that PyTorch finds here, got 'abacus'"),
        ({"verbose": -1}, "verbose must be an integer, at least 0, got -1"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_value(parameters, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quick(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (changed((4, 1), np.nan), "got NaN in row 4, column 1: fill or drop"),
        (changed((4, 1), np.inf), "got inf in row 4, column 1: clip"),
        (changed((0, 0), -np.inf), "got -inf in row 0, column 0: clip"),
        (changed((29, 2), np.nan, np.float32), "got NaN in row 29, column 2"),
        (changed((2, 2), -1e39), "got -1e+39 in row 2, column 2: rescale"),
        (
            pd.DataFrame(changed((4, 1), 1e39), columns=["age", "height", "weight"]),
            "got 1e+39 in row 4, column 1 ('height')",
        ),
        (
            pd.DataFrame(changed((4, 1), np.inf), columns=["age", "height", "weight"]),
            "column 'height' must hold finite numbers, got 'inf'",
        ),
        (X[:0], "Found array with 0 sample(s)"),
        (X[:, :0], "Found array with 0 feature(s)"),
        (X[:20], "inconsistent numbers of samples"),
        (X[:, :, None], "Found array with dim 3"),
    ],
)
def test_a_wrong_x_is_refused_in_fit(x, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quick().fit(x, Y)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform"])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (changed((4, 1), np.nan), "got NaN in row 4, column 1"),
        (changed((4, 1), 1e39), "got 1e+39 in row 4, column 1"),
        (X[:, :2], "X has 2 features, but OrdinalClassifier is expecting 3"),
        (X[:0], "Found array with 0 sample(s)"),
    ],
)
def test_a_wrong_x_is_refused_afterwards(method, x, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(quick().fit(X, Y), method)(x)


def test_a_pixel_that_is_not_finite_is_found():
    images = np.zeros((30, 3, 4, 4))
    images[7, 2, 1, 3] = np.nan
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    with pytest.raises(ValueError, match=re.escape("got NaN in row 7, position (2, 1, 3)")):
        quick(features=module).fit(images, Y)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(3, 5), "features must give (n, dim), here (2, 4), got (2, 5): pass dim=5"),
        (nn.Unflatten(1, (3, 1)), "here (2, 4), got (2, 3, 1): end it with nn.Flatten()"),
    ],
)
def test_a_module_of_another_width_is_told_the_cure(module, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quick(features=module).fit(X, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(30), "y must have at least two classes, got one class, "),
        (np.linspace(0, 1, 30), "continuous"),
        (np.where(Y == 0, np.nan, Y), "NaN"),
        (None, "requires y to be passed"),
    ],
)
def test_a_wrong_y_is_refused(y, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(X, y)


def test_one_class_of_several_listed_is_still_one_class():
    with pytest.raises(ValueError, match="at least two classes, got one class, 'low'"):
        quick(classes=["low", "high"]).fit(X, ["low"] * 30)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.where(Y == 1, -1.0, 1.0), "not negative, got -1.0 in row 1: 0 leaves a sample out"),
        (np.where(Y == 2, np.nan, 1.0), "sample_weight must be finite .*, got nan in row 2"),
        (np.where(Y == 2, np.inf, 1.0), "sample_weight must be finite .*, got inf in row 2"),
        (np.zeros(30), "sample_weight must be above zero somewhere, got only zeros"),
        (np.ones(29), r"sample_weight must have the shape \(30,\), got \(29,\)"),
        (np.ones((30, 1)), r"sample_weight must have the shape \(30,\), got \(30, 1\)"),
        (Y == 1, "at least two classes, got one class, "),
    ],
)
def test_a_wrong_weight_is_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(X, Y, sample_weight=weight)


@pytest.mark.parametrize("rate", ["learning_rate", "head_learning_rate"])
def test_a_diverging_run_names_the_epoch_and_the_cure(rate):
    with pytest.raises(FloatingPointError, match=r"of epoch \d+: lower .* or standardise X"):
        quick(method="classification", epochs=5, **{rate: 1e30}).fit(X, Y)


def test_the_scorer_names_a_label_that_was_never_seen():
    model = quick().fit(X, Y)
    with pytest.raises(ValueError, match="y must hold labels of classes only, got 9"):
        negative_mae(model, X, np.full(30, 9))


def test_a_failed_fit_leaves_the_fitted_model_as_it_was():
    model = quick().fit(X, Y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="decode must be"):
        model.set_params(decode="max").fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("odd", [None, "a"])
def test_labels_of_several_kinds_are_refused(odd):
    with pytest.raises(ValueError, match=r"y must hold labels of one kind|Unknown label type"):
        quick().fit(X, np.array([0, odd, 1] * 10, dtype=object))


def test_images_without_pixels_are_refused():
    with pytest.raises(ValueError, match=r"X must hold values, got the shape \(30, 3, 0, 4\)"):
        quick(features=nn.Flatten()).fit(np.zeros((30, 3, 0, 4)), Y)


def test_a_failed_first_fit_leaves_the_estimator_unfitted():
    model = quick(classes=["a"])
    with pytest.raises(ValueError, match="labels of classes only"):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_failed_refit_leaves_the_fitted_model_as_it_was():
    model = quick().fit(X, Y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="at least two classes"):
        model.fit(X[:, :2], 0 * Y)
    model.set_params(features=nn.Linear(3, 5), hidden=None)
    with pytest.raises(ValueError, match="pass dim=5"):
        model.fit(X, Y)
    assert np.array_equal(model.predict_proba(X), before)


class NaNInEvaluation(nn.Linear):
    """Good in training, and NaN wherever the first column is above a limit."""

    def forward(self, x):
        return super().forward(x).where(x[:, :1] < (9 if self.training else 1.5), np.nan)


def test_features_that_are_not_finite_are_never_given_a_label():
    rows = X.clip(-1, 1)
    model = quick(features=NaNInEvaluation(3, 4)).fit(rows, Y)
    rows[17, 0] = 2
    with pytest.raises(ValueError, match="NaN or infinity for row 17 of X"):
        model.predict(rows)
    with pytest.raises(FloatingPointError, match="got nan at step 1 of epoch 1"):
        quick(features=NaNInEvaluation(3, 4), validation_fraction=0.5).fit(X + 3, Y)


def test_fitting_works_where_gradients_are_switched_off():
    with torch.no_grad():
        model = quick().fit(X, Y)
    with torch.inference_mode():
        again = quick().fit(X, Y)
    assert np.array_equal(model.predict_proba(X), again.predict_proba(X))


def test_one_heavy_sample_does_not_blow_up_the_others():
    weight = np.full(30, 1e-320)
    weight[0] = 1
    assert np.isfinite(quick(epochs=3).fit(X, Y, sample_weight=weight).predict_proba(X)).all()


AGE = X[:, 0].round(2)
FRAME = pd.DataFrame(
    {
        "age": np.where(np.arange(30) % 7 == 3, np.nan, AGE),
        "ward": ["A", "b", None, "10", "9"] * 6,
        "code": ["007", "NA", "12"] * 10,  # numbers written as text
        "ill": np.arange(30) % 2 == 0,
        "grade": pd.Categorical(["low", "high"] * 15),
        "sure": pd.array([True, None, False] * 10, dtype="boolean"),
        "empty": np.full(30, np.nan),
        "size": X[:, 1],
    }
)


def test_a_frame_is_encoded_as_a_table_is(tmp_path):
    table = pd.concat([FRAME, FRAME], ignore_index=True)
    table["label"], table["split"] = np.tile(Y, 2), ["train"] * 30 + ["val"] * 15 + ["test"] * 15
    table.to_csv(tmp_path / "table.csv", index=False)
    rows = read_table(tmp_path / "table.csv").inputs
    model = quick(validation_fraction=0).fit(FRAME, Y)
    assert model.encoding_ == rows.encoding
    assert rows.encoding.names == ("age", "code", "ill", "sure", "size", "ward", "grade")
    np.testing.assert_array_equal(model.encoding_.apply(table), rows.values)
    assert model.feature_names_in_.tolist() == list(FRAME)
    assert model.n_features_in_ == 8


def test_the_network_sees_the_encoded_frame():
    model = quick(validation_fraction=0).fit(FRAME, Y)
    encoded = model.encoding_.apply(FRAME)
    again = quick(validation_fraction=0).fit(encoded, Y)
    assert again.encoding_ is None
    np.testing.assert_array_equal(model.predict_proba(FRAME), again.predict_proba(encoded))


def test_rows_that_are_held_out_teach_the_encoding_nothing():
    frame = FRAME.assign(size=10.0 ** np.arange(30), place=np.arange(30))
    encoding = quick(validation_fraction=0.3).fit(frame, Y).encoding_
    medians = {column.name: column.median for column in encoding.numeric}
    assert medians["size"] != frame["size"].median()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_a_frame_of_numbers_is_what_its_array_is(dtype):
    array = (10 * X).astype(dtype)
    for frame in (pd.DataFrame(array, columns=["a", "b", "c"]), pd.DataFrame(array)):
        model, plain = quick().fit(frame, Y), quick().fit(array, Y)
        expected = plain.predict_proba(array)
        np.testing.assert_array_equal(model.predict_proba(frame), expected)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            np.testing.assert_array_equal(model.predict_proba(array), expected)


def test_what_is_missing_or_unseen_only_in_prediction_is_the_median_or_no_category():
    frame = FRAME.assign(size=np.arange(30.0))
    model = quick(validation_fraction=0).fit(frame, Y)
    other = frame.assign(ward="Z", size=np.nan)
    same = frame.assign(ward="also new", size=14.5)
    np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(same))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame[frame.columns[::-1]], "must be in the same order as they were in fit"),
        (lambda frame: frame.drop(columns="age"), "yet now missing:\n- age"),
        (lambda frame: frame.assign(more=1), "unseen at fit time:\n- more"),
        (lambda frame: frame[:0], "X must hold values, got the shape (0, 15)"),
        (lambda frame: frame.to_numpy(), "could not convert string to float"),
        (lambda frame: np.zeros(frame.shape), "data frame like that of fit, got an array: the col"),
        (lambda frame: frame.assign(size="old"), "'size' must hold finite numbers, got 'old' in r"),
    ],
)
def test_a_frame_of_another_kind_is_refused_in_prediction(change, message):
    model = quick().fit(FRAME, Y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        with pytest.raises(ValueError, match=re.escape(message)):
            model.predict(change(FRAME))


def test_a_frame_of_the_wrong_length_or_with_one_name_twice_is_refused():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        quick().fit(FRAME[:20], Y)
    twice = pd.DataFrame(X, columns=["a", "b", "a"])
    with pytest.raises(ValueError, match=r"'a' (2 times|twice)"):
        quick().fit(twice, Y)


def test_a_row_of_weight_zero_is_counted_in_an_error(monkeypatch):
    frame = FRAME.assign(size=["1"] * 29 + ["inf"])
    drawn = np.arange(20), np.arange(20, 26)  # 26 of 30 have a weight, and the last is held out
    monkeypatch.setattr("layline.estimator.parts.stratified_holdout", lambda *_: drawn)
    with pytest.raises(ValueError, match="'size' must hold finite numbers, got 'inf' in row 29"):
        quick().fit(frame, Y, sample_weight=np.arange(30) > 3)


def test_a_module_takes_a_frame_as_its_array():
    frame = pd.DataFrame(changed((4, 1), np.nan), columns=["age", "height", "weight"])
    with pytest.raises(ValueError, match=re.escape("got NaN in row 4, column 1 ('height')")):
        quick(features=nn.Linear(3, 4)).fit(frame, Y)
