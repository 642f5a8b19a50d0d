"""The arguments of fit and predict: what is accepted, how it is split, what is refused."""

import re
import warnings

import narwhals
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError
from torch import nn

from layline.data.splits import stratified_holdout
from layline.estimator import OrdinalClassifier
from layline.utils.validation import UserError

Y = np.arange(120) % 4
X = Y[:, None] + 0.6 * np.random.default_rng(0).normal(size=(120, 3))


def quick(**changes):
    small = {"dim": 4, "hidden": (8,), "epochs": 3, "learning_rate": 1e-2, "folds": 0}
    small |= {"batch_size": 32, "random_state": 0}
    if isinstance(changes.get("backbone"), nn.Module):
        del small["hidden"]
    return OrdinalClassifier(**{**small, **changes})


def same(a, b):
    states = zip(a.backbone_.state_dict().values(), b.backbone_.state_dict().values(), strict=True)
    return a.history_ == b.history_ and all(torch.equal(p, q) for p, q in states)


def changed(place, value):
    x = X.copy()
    x[place] = value
    return x


# forms of X and y


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: x[:, ::-1][:, ::-1],
        lambda x: x.astype(">f8"),
        lambda x: x.tolist(),
        pd.DataFrame,
        lambda x: pd.DataFrame(x, columns=["a", "b", "c"]),
    ],
)
def test_the_container_of_x_does_not_matter(kind):
    plain, other = quick().fit(X, Y), quick().fit(kind(X), Y)
    assert same(plain, other)
    np.testing.assert_array_equal(other.predict_proba(kind(X)), plain.predict_proba(X))


FRAME = pd.DataFrame(
    {
        "age": np.where(np.arange(120) % 7 == 3, np.nan, X[:, 0].round(2)),
        "ward": ["A", "b", None, "10"] * 30,
        "code": ["007", "NA", "12"] * 40,  # numbers written as text
        "grade": pd.Categorical(["low", "high"] * 60),
        "sure": pd.array([True, None, False] * 40, dtype="boolean"),
        "empty": np.full(120, np.nan),
        "size": X[:, 1],
    }
)


def test_the_network_takes_the_encoded_frame():
    model = quick(validation_fraction=0).fit(FRAME, Y)
    encoded = model.encoding_.apply(FRAME)
    again = quick(validation_fraction=0).fit(encoded, Y)
    np.testing.assert_array_equal(model.predict_proba(FRAME), again.predict_proba(encoded))
    assert model.feature_names_in_.tolist() == list(FRAME)
    assert "empty" not in model.encoding_.names
    other = narwhals.from_native(FRAME, eager_only=True)  # a frame of a different library
    assert same(quick(validation_fraction=0).fit(other, Y), model)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_missing_values_are_the_same_in_a_frame_and_an_array(dtype):
    array = np.where(np.arange(360).reshape(120, 3) % 11 == 0, np.nan, 10 * X).astype(dtype)
    array[:, 1] = X[:, 1]  # complete in training
    array = np.column_stack([array, np.full(120, np.nan)]).astype(dtype)
    model, plain = quick().fit(pd.DataFrame(array), Y), quick().fit(array, Y)
    assert same(model, plain)
    assert plain.encoding_.columns == ("x0", "x0 missing", "x1", "x2", "x2 missing")
    array[::2, 1] = np.nan  # missing only in prediction: the median
    filled = array.copy()
    filled[::2, 1] = plain.encoding_.numeric[1].median
    expected = plain.predict_proba(filled)
    np.testing.assert_array_equal(plain.predict_proba(array), expected)
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame(array)), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame[frame.columns[::-1]], "must be in the same order as they were in fit"),
        (lambda frame: frame.drop(columns="age"), "yet now missing:\n- age"),
        (lambda frame: frame[:0], "X must have at least one row and one column, got (0, 7)"),
        (lambda frame: np.zeros(frame.shape), "X must be a data frame as in fit"),
        (lambda frame: frame.assign(size="old"), "'size' must hold finite numbers, got 'old' in r"),
    ],
)
def test_a_different_frame_is_refused_in_prediction(change, message):
    model = quick(epochs=1).fit(FRAME, Y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        with pytest.raises(ValueError, match=re.escape(message)):
            model.predict(change(FRAME))


SPARSE = np.where(X > 1, X, 0)


@pytest.mark.parametrize(
    ("kind", "backbone", "dtype"),
    [
        (sparse.csr_matrix, "mlp", np.float64),
        (sparse.csc_array, "mlp", np.float32),
        (sparse.csr_array, nn.Linear(3, 4), np.float64),
    ],
)
def test_a_sparse_matrix_gives_what_its_array_gives(kind, backbone, dtype):
    array = (10 * SPARSE).astype(dtype)
    plain = quick(backbone=backbone, epochs=2).fit(array, Y)
    model = quick(backbone=backbone, epochs=2).fit(kind(array), Y)
    np.testing.assert_allclose(
        model.predict_proba(kind(array)), plain.predict_proba(array), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(plain.predict_proba(kind(array)), plain.predict_proba(array))


def test_a_wide_sparse_matrix_never_becomes_dense(monkeypatch):
    monkeypatch.setattr("layline.estimator.inputs._BLOCK", 1000)
    largest = []

    def watched(self, *arguments, **options):
        largest.append(np.prod(self.shape))
        return whole(self, *arguments, **options)

    rng = np.random.default_rng(0)
    wide = sparse.random_array((120, 5000), density=0.01, rng=rng, format="csr")
    expected = np.average(wide.toarray(), axis=0, weights=1.0 + Y)
    for each in (sparse.csr_array, sparse.csc_array):
        whole = each.toarray
        monkeypatch.setattr(each, "toarray", watched)
    model = quick(epochs=2, hidden=(4,), batch_size=16, validation_fraction=0)
    model.fit(wide, Y, sample_weight=1.0 + Y).predict(wide)
    assert max(largest) <= 64 * 5000 < 120 * 5000  # a batch of evaluation
    np.testing.assert_allclose(model.backbone_.mean, expected)


# validation samples and groups


def test_a_given_set_does_what_the_same_rows_held_out_do():
    parameters = {"calibration_fraction": 0, "epochs": 5}
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    rows, held_out = stratified_holdout(Y, 0.25, np.random.default_rng(seed))
    plain = quick(**parameters, validation_fraction=0.25).fit(X, Y)
    given = quick(**parameters).fit(X[rows], Y[rows], X_val=X[held_out], y_val=Y[held_out])
    assert same(plain, given)
    assert given.calibration_.temperature == plain.calibration_.temperature != 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"X_val": X[:50], "y_val": Y[:50], "sample_weight_val": np.arange(50) < 40},
        {"X_val": X[:40], "y_val": Y[:40], "sample_weight_val": np.full(40, 7.0)},
    ],
)
def test_validation_samples_of_weight_zero_and_the_scale_of_weights_do_not_matter(arguments):
    expected = quick().fit(X[40:], Y[40:], X_val=X[:40], y_val=Y[:40])
    assert same(quick().fit(X[40:], Y[40:], **arguments), expected)


class Watching(nn.Linear):
    """Remembers the rows of training and the others, by their last column."""

    trained: set
    others: set

    def forward(self, x):
        numbers = x[:, -1].round().int().tolist()
        if self.training:
            Watching.trained.update(numbers)
        elif Watching.trained:
            Watching.others.update(numbers)
        return super().forward(x)


@pytest.fixture
def watching():
    Watching.trained, Watching.others = set(), set()
    return Watching(4, 4)


NUMBERED = np.column_stack([X, np.arange(120.0)])


def test_a_warm_start_holds_out_the_same_rows(watching):
    model = quick(backbone=watching, warm_start=True, random_state=None, validation_fraction=0.2)
    model.fit(NUMBERED, Y)
    first = set(Watching.trained)
    model.fit(NUMBERED, Y)
    assert Watching.trained == first
    assert len(first) < 120


@pytest.mark.parametrize("weighted", [False, True])
def test_no_group_is_divided(watching, weighted):
    groups = np.random.default_rng(1).integers(0, 25, size=120)
    weight = (np.arange(120) % 5 > 0).astype(float) if weighted else None
    model = quick(backbone=watching, validation_fraction=0.2)
    model.fit(NUMBERED, Y, sample_weight=weight, groups=[f"patient {group}" for group in groups])
    trained = {groups[i] for i in Watching.trained}
    others = {groups[i] for i in Watching.others - Watching.trained}
    assert trained
    assert others
    assert not trained & others
    assert len(model.calibration_.scores) >= 9


class Logging(nn.Linear):
    """Notes the groups of each pass, and whether it was in training."""

    passes: list

    def forward(self, x):
        Logging.passes.append((self.training, set((x[:, -1] // 3).round().int().tolist())))
        return super().forward(x)


def test_no_group_is_divided_by_the_folds():
    Logging.passes = []
    model = quick(backbone=Logging(4, 4), folds=4, epochs=2, batch_size=60)
    model.fit(NUMBERED, Y, groups=np.arange(120) // 3)
    assert len(model.calibration_.scores) == 120
    start = next(place for place, (training, _) in enumerate(Logging.passes) if training)
    steps = 2 * 2  # of the model itself, which is trained first
    assert set().union(*(groups for _, groups in Logging.passes[start : start + steps])) == set(
        range(40)
    )
    trained, held_out = set(), set()
    folds = []
    for training, groups in [*Logging.passes[start + steps :], (True, ())]:
        if training and held_out:
            folds.append((trained, held_out))
            trained, held_out = set(), set()
        (trained if training else held_out if trained else set()).update(groups)
    assert len(folds) == 4
    for seen, unseen in folds:
        assert seen | unseen == set(range(40))
        assert not seen & unseen
    assert sum(len(unseen) for _, unseen in folds) == 40


@pytest.mark.parametrize(
    ("missing", "dtype"), [(None, object), (np.nan, float), (pd.NA, "Int64"), (pd.NaT, object)]
)
def test_a_missing_group_is_refused(missing, dtype):
    groups = pd.Series([*range(119), missing], dtype=dtype)
    with pytest.raises(UserError, match="groups has no value in row 119"):
        quick().fit(X, Y, groups=groups)


# refusals


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "hard-liner"}, "hard-linear"),
        ({"backbone": "mpl"}, "backbone must be a known name, got 'mpl': did you mean mlp"),
        ({"backbone": 3}, "backbone must be a name or an nn.Module, got 3"),
        ({"dim": 2.0}, "dim must be an integer, at least 1, got 2.0"),
        ({"epochs": "9"}, "epochs must be an integer, at least 1, got '9'"),
        ({"decode": "max"}, "decode must be a known name, got 'max'"),
        ({"validation_fraction": 1}, "validation_fraction must be a number in [0, 1), got 1"),
        ({"patience": 0}, "patience must be an integer, at least 1, got 0"),
        ({"folds": -1}, "folds must be"),
        ({"folds": 1}, "folds must be"),  # nothing would be trained on
        ({"folds": 2.5}, "folds must be an integer"),
        ({"batch_size": 0}, "batch_size must be an integer, at least 1, got 0"),
        ({"class_weight": {7: 1.0}}, "class_weight must have classes as keys, got 7"),
        ({"classes": [0, 1, 1, 2]}, "got [0, 1, 1, 2]"),
        ({"classes": [0, 1, 2]}, "y must hold labels of classes only, got 3"),
        ({"head_options": {"alpha": 3.0}}, "alpha"),
        ({"backbone": nn.Linear(3, 4), "hidden": (9,)}, "hidden must be None"),
        ({"backbone": nn.Linear(3, 5)}, "here (2, 4), got (2, 5): pass dim=5"),
        ({"backbone": nn.LSTM(3, 4)}, "backbone must return (n, dim), here (2, 4), got tuple"),
        ({"device": "abacus"}, "Device 'abacus' is not available"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_value(parameters, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quick(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": changed((4, 1), np.inf)}, "contains infinity"),
        ({"X": sparse.csr_matrix(changed((4, 1), np.nan))}, "contains NaN"),
        ({"X": FRAME.assign(size=np.inf)}, "'size' must hold finite numbers, got 'inf'"),
        ({"X": X[:20]}, "inconsistent numbers of samples"),
        ({"y": np.zeros(120)}, "y must have at least two classes"),
        ({"sample_weight": -1.0 * Y}, "sample_weight must be finite, not negative"),
        ({"X_val": X}, "X_val and y_val must be given together"),
        ({"X_val": X, "y_val": Y + 1}, "labels of classes only, got 4"),
        ({"X_val": X[:, :2], "y_val": Y}, "X has 2 features, but OrdinalClassifier is expecting"),
        ({"groups": [1, 2]}, "groups must have the shape (120,), got (2,)"),
    ],
)
def test_a_wrong_argument_of_fit_is_refused(arguments, message):
    model = quick(epochs=1)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(**{"X": X, "y": Y, **arguments})
    with pytest.raises(NotFittedError):
        model.predict(X)


class Exponential(nn.Linear):
    def forward(self, x):
        return super().forward(x.exp())


def test_features_that_are_not_finite_never_get_a_label():
    model = quick(backbone=Exponential(3, 4)).fit(X, Y)
    with pytest.raises(ValueError, match="features of row 17 of X are not finite"):
        model.predict(changed((17, 0), 1e3))


def test_fitting_works_where_gradients_are_switched_off():
    with torch.no_grad():
        model = quick().fit(X, Y)
    with torch.inference_mode():
        again = quick().fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
