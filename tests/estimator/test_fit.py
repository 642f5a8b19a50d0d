"""What the estimator learns from: given validation samples, groups, sparse rows, earlier fits."""

import re

import narwhals
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GroupKFold, HalvingGridSearchCV, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from layline.data.splits import stratified_holdout
from layline.estimator import OrdinalClassifier, scorers

Y = np.arange(120) % 4
X = Y[:, None] + 0.6 * np.random.default_rng(0).normal(size=(120, 3))


def quick(**changes):
    small = {"dim": 4, "hidden": (8,), "epochs": 3, "learning_rate": 1e-2, "random_state": 0}
    if isinstance(changes.get("backbone"), nn.Module):
        del small["hidden"]  # a module has its own layers
    return OrdinalClassifier(**{**small, **changes})


def same(a, b):
    states = zip(a.features_.state_dict().values(), b.features_.state_dict().values(), strict=True)
    return a.history_ == b.history_ and all(torch.equal(p, q) for p, q in states)


@pytest.mark.parametrize("method", ["coral", "proportional-odds", "arc"])
def test_a_head_has_its_own_rate_in_modern_unless_one_is_given(method):
    own = 0.01 if method == "arc" else 0.1
    usual = quick(method=method).fit(X, Y)
    assert same(usual, quick(method=method, head_learning_rate=own).fit(X, Y))
    assert not same(usual, quick(method=method, head_learning_rate=0.05).fit(X, Y))
    paper = quick(method=method, recipe="paper")
    named = quick(method=method, recipe="paper", head_learning_rate=0.01)
    assert same(paper.fit(X, Y), named.fit(X, Y))


class Watching(nn.Linear):
    """Remembers the rows it was trained on and the others it saw since, by their last column."""

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


# samples to choose the epoch by


def test_a_given_set_does_what_the_same_rows_held_out_do():
    parameters = {"calibration_fraction": 0, "epochs": 5}
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    rows, held_out = stratified_holdout(Y, 0.25, np.random.default_rng(seed))
    plain = quick(**parameters, validation_fraction=0.25).fit(X, Y)
    given = quick(**parameters).fit(X[rows], Y[rows], eval_set=(X[held_out], Y[held_out]))
    assert same(plain, given)
    assert given.calibration_.temperature == plain.calibration_.temperature != 1
    assert given.best_epoch_ == plain.best_epoch_
    assert given.n_iter_ == 5


@pytest.mark.parametrize(
    "arguments",
    [
        {"eval_set": [(X[:40], Y[:40])]},
        {"eval_set": [X[:40], Y[:40]]},
        {"eval_set": (X[:40], Y[:40], np.full(40, 7.0))},
        {"eval_set": (X[:50], Y[:50], np.arange(50) < 40)},
        {"X_val": X[:40].tolist(), "y_val": Y[:40].tolist()},
        {"X_val": X[:40], "y_val": Y[:40], "sample_weight_val": np.ones(40)},
        {"eval_set": (sparse.csr_array(X[:40]), pd.Series(Y[:40]))},
    ],
)
def test_validation_samples_may_be_given_in_several_ways(arguments):
    expected = quick().fit(X[40:], Y[40:], eval_set=(X[:40], Y[:40]))
    assert same(quick().fit(X[40:], Y[40:], **arguments), expected)


def test_weights_of_validation_samples_count():
    only = np.arange(40) < 8
    model = quick().fit(X[40:], Y[40:], eval_set=(X[:40], Y[:40], np.where(only, 1, 1e-6)))
    few = quick().fit(X[40:], Y[40:], eval_set=(X[:8], Y[:8]))
    assert model.history_[0]["validation_mae"] == pytest.approx(
        few.history_[0]["validation_mae"], abs=1e-3
    )


def test_nothing_is_held_out_beside_a_given_set_and_patience_needs_no_share(watching):
    quick(features=watching, calibration_fraction=0).fit(
        NUMBERED[:100], Y[:100], eval_set=(NUMBERED[100:], Y[100:])
    )
    assert watching.trained == set(range(100))
    assert watching.others == set(range(100, 120))
    model = quick(epochs=30, patience=2, validation_fraction=0, learning_rate=1e-6)
    model.fit(X[40:], Y[40:], eval_set=(X[:40], Y[:40]))
    assert model.n_iter_ < 30


def test_a_frame_is_validated_in_the_encoding_of_its_training_rows():
    frame = pd.DataFrame(X, columns=list("abc")).assign(ward=["u", "v", None] * 40)
    model = quick().fit(frame[40:], Y[40:], eval_set=(frame[:40].assign(ward="new"), Y[:40]))
    assert model.encoding_.categorical[0].categories == ("", "u", "v")
    assert "validation_mae" in model.history_[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_set": X}, "eval_set must be one pair (X_val, y_val), got ndarray"),
        ({"eval_set": (X,)}, "eval_set must be one pair (X_val, y_val), got 1 of them"),
        ({"eval_set": [(X, Y), (X, Y)]}, "one pair (X_val, y_val), got 2 of them: one set"),
        ({"eval_set": (X, Y), "X_val": X}, "eval_set must be None with X_val and y_val"),
        ({"X_val": X}, "y_val must be given with X_val"),
        ({"y_val": Y}, "X_val must be given with y_val"),
        ({"sample_weight_val": Y}, "X_val must be given with sample_weight_val"),
        ({"eval_set": (X, Y + 1)}, "eval_set must have labels of y only, got 4: the classes are 0"),
        ({"eval_set": (X[:, :2], Y)}, "X has 2 features, but OrdinalClassifier is expecting 3"),
        ({"eval_set": (X, Y[:5])}, "inconsistent numbers of samples"),
        ({"groups": [1, 2]}, "groups must have the shape (120,), got (2,)"),
        ({"groups": [None, *range(119)]}, "groups must be there for every row, got None in row 0"),
        ({"groups": np.where(Y > 0, Y, np.nan)}, "for every row, got nan in row 0"),
        ({"groups": np.zeros(120)}, "groups must be enough for 2 parts with every class"),
    ],
)
def test_a_wrong_argument_of_fit_is_named_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quick(epochs=1).fit(X, Y, **arguments)


# groups


@pytest.mark.parametrize("weighted", [False, True])
def test_no_group_is_trained_on_and_held_out(watching, weighted):
    groups = np.random.default_rng(1).integers(0, 25, size=120)
    weight = (np.arange(120) % 5 > 0).astype(float) if weighted else None
    model = quick(features=watching, validation_fraction=0.2)
    model.fit(NUMBERED, Y, sample_weight=weight, groups=[f"patient {group}" for group in groups])
    trained, others = (
        {groups[i] for i in rows} for rows in (Watching.trained, Watching.others - Watching.trained)
    )
    assert trained
    assert others
    assert not trained & others
    assert len(model.calibration_.scores) >= 9


def test_too_few_groups_for_ranges_are_told():
    halves = np.arange(120) // 60
    with pytest.warns(UserWarning, match=r"no ranges: 30% .*groups must be enough") as said:
        model = quick(calibration_fraction=0.3, validation_fraction=0.4).fit(X, Y, groups=halves)
    assert said[0].filename == __file__
    assert len(model.calibration_.scores) == 0


def test_groups_and_validation_samples_are_routed():
    groups = np.repeat(np.arange(30), 4)
    with config_context(enable_metadata_routing=True):
        asking = quick(epochs=1).set_fit_request(groups=True)
        found = cross_validate(
            asking,
            X,
            Y,
            cv=GroupKFold(3),
            scoring=scorers.neg_mean_absolute_error,
            params={"groups": groups},
            error_score="raise",
        )
        assert len(found["test_score"]) == 3
        model = quick().set_fit_request(X_val=True, y_val=True)
        steps = [("scale", StandardScaler()), ("model", model)]
        pipeline = Pipeline(steps, transform_input=["X_val"])
        pipeline.fit(100 * X[40:], Y[40:], X_val=100 * X[:40], y_val=Y[:40])
    scale = StandardScaler().fit(100 * X[40:])
    by_hand = quick().fit(
        scale.transform(100 * X[40:]),
        Y[40:],
        eval_set=(scale.transform(100 * X[:40]), Y[:40]),
    )
    assert same(pipeline[-1], by_hand)


# going on


def test_a_warm_start_goes_on_from_the_fitted_weights():
    model = quick(warm_start=True).fit(X, Y)
    before, mean = model.backbone_, model.backbone_.mean.clone()
    model.set_params(learning_rate=1e-12, head_learning_rate=1e-12, weight_decay=0).fit(X, Y)
    for old, new in zip(before.parameters(), model.backbone_.parameters(), strict=True):
        torch.testing.assert_close(old, new)
    assert torch.equal(model.backbone_.mean, mean)
    assert [record["epoch"] for record in model.history_] == [1, 2, 3, 4, 5, 6]
    assert model.n_iter_ == 3
    assert model.best_epoch_ > 3
    cold = quick().fit(X, Y)
    assert cold.history_ == model.history_[:3]
    assert same(cold.fit(X, Y), quick().fit(X, Y))  # without it a fit begins anew


def test_a_warm_start_makes_a_short_training_longer():
    short = quick(epochs=2, warm_start=True).fit(X, Y)
    first = scorers.neg_mean_absolute_error(short, X, Y)
    for _ in range(4):
        short.fit(X, Y)
    assert scorers.neg_mean_absolute_error(short, X, Y) > first


def test_the_rows_that_were_held_out_stay_so(watching):
    model = quick(features=watching, warm_start=True, random_state=None, validation_fraction=0.2)
    model.fit(NUMBERED, Y)
    first = set(Watching.trained)
    model.fit(NUMBERED, Y)
    assert Watching.trained == first
    assert len(first) < 120


def test_new_rows_of_some_classes_will_do_and_new_classes_will_not():
    model = quick(warm_start=True, validation_fraction=0).fit(X, Y)
    with pytest.warns(UserWarning, match="never occur in y: 3"):
        model.fit(X[Y < 3], Y[Y < 3])
    assert model.classes_.tolist() == [0, 1, 2, 3]
    before = model.predict_proba(X)
    for change, labels, message in [
        ({}, Y + 1, "y must hold labels of classes only, got 4"),
        ({"classes": [3, 2, 1, 0]}, Y, "classes must be [0, 1, 2, 3] as before with warm_start"),
        ({"method": "corn"}, Y, "method must be 'arc' as before with warm_start, got 'corn'"),
        ({"hidden": (9,)}, Y, "hidden must be (8,) as before with warm_start, got (9,)"),
        ({"warm_start": 3}, Y, "warm_start must be True or False, got 3"),
        ({"learning_rate": 1e30, "method": "arc"}, Y, "training must stay finite"),
    ]:
        kept = model.get_params()
        with pytest.raises((ValueError, FloatingPointError), match=re.escape(message)):
            model.set_params(**change).fit(X, labels)
        np.testing.assert_array_equal(model.set_params(**kept).predict_proba(X), before)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.fit(X[:, :2], Y)


def test_a_warm_start_keeps_the_encoding_of_a_frame():
    frame = pd.DataFrame(X, columns=list("abc")).assign(ward=["u", "v", None] * 40)
    model = quick(warm_start=True).fit(frame, Y)
    encoding = model.encoding_
    model.fit(frame.assign(ward="new", a=7.0), Y)
    assert model.encoding_ is encoding


# sparse rows


SPARSE = np.where(X > 1, X, 0)


@pytest.mark.parametrize(
    ("kind", "backbone", "dtype"),
    [
        (sparse.csr_matrix, "mlp", np.float64),
        (sparse.csc_array, "mlp", np.float32),
        (sparse.coo_array, "mlp", np.int64),
        (sparse.csr_array, nn.Linear(3, 4), np.float64),
    ],
)
def test_a_sparse_matrix_is_what_its_array_is(kind, features, dtype):
    array = (10 * SPARSE).astype(dtype)
    plain = quick(features=features, epochs=2).fit(array, Y)
    model = quick(features=features, epochs=2).fit(kind(array), Y)
    np.testing.assert_allclose(
        model.predict_proba(kind(array)), plain.predict_proba(array), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(
        plain.predict_proba(kind(array)),
        plain.predict_proba(array),  # either way
    )
    assert model.predict_range(kind(array[:5]), coverage=0.5)[0].shape == (5,)


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


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "got NaN in row 7, column 2"),
        (-np.inf, "got -inf in row 7, column 2"),
        (1e39, "got 1e+39 in row 7, column 2"),
    ],
)
def test_a_wrong_value_of_a_sparse_matrix_is_found(value, message):
    wrong = SPARSE.copy()
    wrong[7, 2] = value
    with pytest.raises(ValueError, match=re.escape(message)):
        quick(epochs=1).fit(sparse.csr_matrix(wrong), Y)


def test_a_sparse_matrix_without_entries_is_constant():
    model = quick(epochs=1).fit(sparse.csr_matrix((120, 3)), Y)
    assert len(set(model.predict(sparse.csr_matrix((9, 3))).tolist())) == 1


def test_words_through_a_pipeline_of_sparse_columns():
    frame = pd.DataFrame({"size": X[:, 0], "ward": np.array(["A", "b", "c"])[np.arange(120) % 3]})
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["ward"]),
        (StandardScaler(), ["size"]),
        sparse_threshold=1.0,
    )
    pipeline = make_pipeline(columns, quick(epochs=5)).fit(frame, Y)
    assert sparse.issparse(pipeline[:-1].transform(frame))
    assert scorers.accuracy_within_one(pipeline, frame, Y) > 0.5


# company


def test_a_frame_of_another_library_is_read_as_that_of_pandas():
    frame = pd.DataFrame(X, columns=list("abc")).assign(ward=["u", "v", None] * 40)
    model = quick(epochs=1).fit(frame, Y)
    other = quick(epochs=1).fit(narwhals.from_native(frame, eager_only=True), Y)
    assert same(model, other)
    assert other.feature_names_in_.tolist() == list(frame)
    np.testing.assert_array_equal(
        other.predict(narwhals.from_native(frame, eager_only=True)), model.predict(frame)
    )


def test_a_search_by_halving_takes_epochs_for_its_resource():
    search = HalvingGridSearchCV(
        quick(),
        {"method": ["hard-linear", "soft-poisson"]},
        resource="epochs",
        min_resources=1,
        max_resources=2,
        factor=2,
        cv=2,
        scoring=scorers.neg_mean_absolute_error,
        error_score="raise",
    ).fit(X, Y)
    assert search.best_params_["epochs"] == 2
    assert search.best_estimator_.n_iter_ == 2


def test_log_probabilities_are_those_of_the_probabilities():
    model = quick().fit(X, Y)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))


@pytest.mark.parametrize("backbone", ["mlp", nn.Linear(3, 4)])
def test_auto_takes_what_is_there(features):
    torch.manual_seed(0)
    model = quick(features=features, device="auto").fit(X, Y)
    accelerator = torch.accelerator.is_available()
    assert accelerator or same(model, quick(features=features).fit(X, Y))
    assert model.predict(X).shape == (120,)
