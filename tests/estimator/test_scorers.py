"""Scorers measure ranks, and what scikit-learn computes on ranks is the judge."""

import pickle
import re
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import config_context
from sklearn import metrics as judge
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import layline
from layline import OrdinalClassifier, metrics, scorers

ORDERS = [
    ["low", "mid", "high", "top"],  # against the alphabet
    [3, 1, 2, 0],
    [0.5, 1.5, 2.5, 3.5],
    ["worse", "better"],
    [1, 0],
]


class Fixed(ClassifierMixin, BaseEstimator):
    """Takes X for its probabilities, in the order of its classes, and counts what it is asked."""

    def __init__(self, classes=None):
        self.classes = classes

    def fit(self, X, y):
        self.classes_ = np.unique(y) if self.classes is None else np.array(self.classes)
        self.asked = []
        return self

    def predict_proba(self, X):
        self.asked.append("predict_proba")
        return np.asarray(X)

    def predict(self, X):
        self.asked.append("predict")
        return self.classes_[np.asarray(X).argmax(axis=1)]


def sample(order, n=60, seed=0, truths=None):
    """Probabilities, labels, weights, and what the labels are as ranks."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(len(order)), size=n)
    truth = rng.choice(len(order) if truths is None else truths, size=n)
    return proba, np.array(order)[truth], rng.uniform(0.1, 2, size=n), truth


def ranked_probability_score(truth, proba, sample_weight=None):
    below = proba.cumsum(axis=1)[:, :-1].clip(0, 1)
    thresholds = [
        judge.brier_score_loss(truth <= k, below[:, k], sample_weight=sample_weight, pos_label=True)
        for k in range(below.shape[1])
        if 0 < (truth <= k).sum() < len(truth)
    ]
    assert len(thresholds) == below.shape[1]
    return np.mean(thresholds)


def by_class(truth, predicted, sample_weight=None):
    return [
        judge.mean_absolute_error(
            truth[truth == k],
            predicted[truth == k],
            sample_weight=None if sample_weight is None else sample_weight[truth == k],
        )
        for k in np.unique(truth)
    ]


DECIDED = {
    "neg_mean_absolute_error": lambda *a, **w: -judge.mean_absolute_error(*a, **w),
    "neg_macro_mean_absolute_error": lambda *a, **w: -np.mean(by_class(*a, **w)),
    "neg_maximum_mean_absolute_error": lambda *a, **w: -np.max(by_class(*a, **w)),
    "accuracy": judge.accuracy_score,
    "accuracy_within_one": lambda t, p, **w: judge.accuracy_score(
        np.ones(len(t), dtype=bool), np.abs(t - p) <= 1, **w
    ),
    "quadratic_weighted_kappa": lambda *a, **w: judge.cohen_kappa_score(
        *a, weights="quadratic", labels=range(4), **w
    ),
}
UNWEIGHTED = {
    "spearman": lambda t, p: stats.spearmanr(t, p).statistic,
    "kendall": lambda t, p: stats.kendalltau(t, p).statistic,
}
DISTRIBUTION = {
    "neg_ranked_probability_score": lambda *a, **w: -ranked_probability_score(*a, **w),
    "neg_log_loss": lambda t, p, **w: -judge.log_loss(t, p, labels=range(p.shape[1]), **w),
}


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", [*DECIDED, *UNWEIGHTED, *DISTRIBUTION])
def test_a_scorer_is_the_metric_of_scikit_learn_on_ranks(name, order):
    proba, y, weight, truth = sample(order)
    model = Fixed(order).fit(proba, y)
    oracle = {**DECIDED, **UNWEIGHTED, **DISTRIBUTION}[name]
    taken = proba if name in DISTRIBUTION else proba.argmax(axis=1)
    scorer = getattr(scorers, name)
    assert scorer(model, proba, y) == pytest.approx(oracle(truth, taken), rel=1e-9)
    if name not in UNWEIGHTED:
        weighted = scorer(model, proba, y, sample_weight=weight)
        assert weighted == pytest.approx(oracle(truth, taken, sample_weight=weight), rel=1e-9)


@pytest.mark.parametrize("name", [*DECIDED, "neg_log_loss"])
def test_a_class_that_a_fold_lacks_keeps_its_rank(name):
    order = ORDERS[0]
    proba, y, _, truth = sample(order, truths=[0, 3])
    model = Fixed(order).fit(proba, y)
    oracle = {**DECIDED, **DISTRIBUTION}[name]
    taken = proba if name in DISTRIBUTION else proba.argmax(axis=1)
    assert getattr(scorers, name)(model, proba, y) == pytest.approx(oracle(truth, taken), rel=1e-9)


def test_every_scorer_has_a_name_and_higher_is_better():
    order = ORDERS[0]
    right, _, _, truth = sample(order)
    right = np.eye(4)[truth] * 0.9 + 0.025
    wrong = np.eye(4)[(truth + 2) % 4] * 0.9 + 0.025
    y = np.array(order)[truth]
    assert set(scorers.names()) < set(scorers.__all__)
    assert len(scorers.names()) == 11
    for name in scorers.names():
        good, bad = (scorers.get(name)(Fixed(order).fit(p, y), p, y) for p in (right, wrong))
        assert good > bad, name


def test_scorers_of_one_call_predict_once():
    proba, y, _, _ = sample(ORDERS[0])
    model = Fixed(ORDERS[0]).fit(proba, y)
    several = judge.check_scoring(model, {name: scorers.get(name) for name in scorers.names()})
    found = several(model, proba, y)
    assert sorted(model.asked) == ["predict", "predict_proba"]
    assert found == {name: scorers.get(name)(model, proba, y) for name in scorers.names()}


def test_a_pipeline_and_a_search_are_scored_by_their_classes():
    order = ORDERS[0]
    proba, y, _, _ = sample(order)
    pipeline = make_pipeline(FunctionTransformer(), Fixed(order))
    alone = scorers.neg_log_loss(Fixed(order).fit(proba, y), proba, y)
    assert scorers.neg_log_loss(pipeline.fit(proba, y), proba, y) == alone
    search = GridSearchCV(
        pipeline,
        {"fixed__classes": [order, order[::-1]]},
        scoring={"nll": scorers.neg_log_loss, "mae": scorers.neg_mean_absolute_error},
        refit="nll",
        cv=KFold(2),
        error_score="raise",
    ).fit(proba, y)
    assert scorers.neg_log_loss(search, proba, y) >= alone
    assert np.isfinite(search.cv_results_["mean_test_mae"]).all()
    again = pickle.loads(pickle.dumps(scorers.neg_log_loss))
    assert again(pipeline, proba, y) == alone


def test_weights_are_routed_where_they_are_asked_for():
    proba, y, weight, _ = sample(ORDERS[0])
    model = Fixed(ORDERS[0])
    with config_context(enable_metadata_routing=True):
        asking = scorers.neg_mean_absolute_error.set_score_request(sample_weight=True)
        assert asking is not scorers.neg_mean_absolute_error
        scoring = {
            "weighted": asking,
            "plain": scorers.get("neg_log_loss").set_score_request(sample_weight=False),
        }
        found = cross_validate(
            model, proba, y, cv=KFold(2), scoring=scoring, params={"sample_weight": weight}
        )
        with pytest.raises(ValueError, match="sample_weight"):  # nobody said what is meant
            cross_validate(
                model,
                proba,
                y,
                cv=KFold(2),
                scoring={"plain": scorers.neg_mean_absolute_error},
                params={"sample_weight": weight},
                error_score="raise",
            )
    for fold, (_, test) in enumerate(KFold(2).split(proba)):
        fitted = model.fit(proba, y)
        assert found["test_weighted"][fold] == scorers.neg_mean_absolute_error(
            fitted, proba[test], y[test], sample_weight=weight[test]
        )
        assert found["test_plain"][fold] == scorers.neg_log_loss(fitted, proba[test], y[test])


def test_an_estimator_that_sorts_its_labels_is_told_their_order():
    order = ["low", "mid", "high"]
    proba, y, _, truth = sample(order)
    model = Fixed().fit(proba, y)  # high, low, mid
    with pytest.warns(UserWarning, match=re.escape("classes=['low', 'mid', 'high']")):
        wrong = scorers.neg_mean_absolute_error(model, proba, y)
    named = scorers.get("neg_mean_absolute_error", classes=order)
    decided = np.array([2, 0, 1])[proba.argmax(axis=1)]
    assert named(model, proba, y) == -judge.mean_absolute_error(truth, decided) != wrong
    in_order = proba[:, [1, 2, 0]]
    expected = -ranked_probability_score(truth, in_order)
    found = scorers.get("neg_ranked_probability_score", classes=order)(model, proba, y)
    assert found == pytest.approx(expected)


def test_a_class_that_training_never_saw_costs_all_of_its_probability():
    order = ["low", "mid", "high"]
    proba, y, _, truth = sample(order[:2])
    model = Fixed().fit(proba, y)
    y = np.where(np.arange(60) < 5, "high", y)
    with pytest.raises(ValueError, match="labels of classes only, got 'high': list it in classes"):
        scorers.neg_mean_absolute_error(model, proba, y)
    truth = np.where(np.arange(60) < 5, 2, truth)
    found = scorers.get("neg_mean_absolute_error", classes=order)(model, proba, y)
    assert found == -judge.mean_absolute_error(truth, proba.argmax(axis=1))
    padded = np.column_stack([proba, np.zeros(60)])
    found = scorers.get("neg_ranked_probability_score", classes=order)(model, proba, y)
    assert found == pytest.approx(-metrics.ranked_probability_score(truth, padded))


def test_any_metric_on_ranks_becomes_a_scorer():
    order = ORDERS[0]
    proba, y, weight, truth = sample(order)
    model = Fixed(order).fit(proba, y)
    squared = scorers.make_scorer(judge.mean_squared_error, greater_is_better=False)
    expected = judge.mean_squared_error(truth, proba.argmax(axis=1), sample_weight=weight)
    assert squared(model, proba, y, sample_weight=weight) == -expected
    within_two = scorers.make_scorer(metrics.accuracy_within, tolerance=2)
    assert within_two(model, proba, y) > scorers.accuracy_within_one(model, proba, y)
    auc = scorers.make_scorer(
        judge.roc_auc_score, response_method="predict_proba", multi_class="ovr"
    )
    assert auc(model, proba, y) == judge.roc_auc_score(truth, proba, multi_class="ovr")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scorers.get("neg_log_los"), "scorer must be a known name, got 'neg_log_los'"),
        (lambda: scorers.get("accuracy", classes=[1, 1]), "classes must be a list of different"),
        (
            lambda: scorers.make_scorer(len, response_method="decision_function"),
            "response_method must be 'predict' or 'predict_proba', got 'decision_function'",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


# the trap: scikit-learn takes columns to be sorted


def quick(**changes):
    small = {"dim": 8, "hidden": (8,), "epochs": 2, "learning_rate": 5e-2, "random_state": 0}
    return OrdinalClassifier("hard-linear", **{**small, **changes})


RANKS = np.arange(90) % 3
X = RANKS[:, None] + 0.5 * np.random.default_rng(0).normal(size=(90, 3))
ORDER = ["low", "mid", "high"]
Y = np.array(ORDER)[RANKS]


@pytest.fixture(scope="module")
def model():
    return quick(classes=ORDER, epochs=12).fit(X, Y)


@pytest.fixture(scope="module")
def on_ranks():
    return quick(epochs=12).fit(X, RANKS)


@pytest.mark.parametrize("name", ["neg_log_loss", "roc_auc_ovr", "roc_auc_ovo_weighted"])
def test_a_scorer_that_takes_columns_to_be_sorted_is_warned_of(model, on_ranks, name):
    with pytest.warns(UserWarning, match=r"sorted order.* low, mid, high.*: score with layline"):
        wrong = get_scorer(name)(model, X, Y)
    assert get_scorer(name)(on_ranks, X, RANKS) != wrong  # sorted, so nothing is said


def test_our_log_loss_is_what_theirs_is_on_ranks(model, on_ranks):
    right = get_scorer("neg_log_loss")(on_ranks, X, RANKS)
    assert scorers.neg_log_loss(model, X, Y) == pytest.approx(right, rel=1e-12)
    with pytest.warns(UserWarning, match=r"layline\.scorers\.neg_log_loss"):
        assert get_scorer("neg_log_loss")(model, X, Y) < right - 0.1


def test_the_trap_is_found_through_pipelines_and_beside_other_scorers(on_ranks):
    pipeline = make_pipeline(StandardScaler(), quick(classes=ORDER))
    scoring = {"ours": scorers.neg_log_loss, "theirs": "neg_log_loss"}
    with pytest.warns(UserWarning, match="log_loss of scikit-learn takes the columns"):
        cross_validate(pipeline, X, Y, cv=2, scoring=scoring, error_score="raise")
    two = quick(classes=["low", "high"]).fit(X, np.where(RANKS > 1, "high", "low"))
    with pytest.warns(UserWarning, match="roc_auc_score of scikit-learn"):
        get_scorer("roc_auc")(two, X, np.where(RANKS > 1, "high", "low"))


def test_nobody_is_warned_who_reads_columns_by_their_classes(model):
    own = judge.make_scorer(lambda y, proba: float(len(y)), response_method="predict_proba")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba(X)
        assert own(model, X, Y) == 90
        get_scorer("accuracy")(model, X, Y)
        scoring = {name: scorers.get(name) for name in scorers.names()}
        judge.check_scoring(model, scoring)(model, X, Y)
        calibrated = CalibratedClassifierCV(quick(classes=ORDER, epochs=12), cv=2).fit(X, Y)
    assert calibrated.classes_.tolist() == sorted(ORDER)
    named = scorers.get("accuracy_within_one", classes=ORDER)
    assert named(calibrated, X, Y) > 0.9


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        (lambda model: BaggingClassifier(model, 2), "BaggingClassifier"),
        (lambda model: VotingClassifier([("a", model)], voting="soft"), "VotingClassifier"),
    ],
)
def test_who_adds_columns_up_by_place_is_warned_of(meta, name):
    backwards = meta(quick(classes=[2, 1, 0])).fit(X, 2 - RANKS)
    with pytest.warns(UserWarning, match=f"{name} of scikit-learn.*give ranks as y"):
        backwards.predict(X)
    forwards = meta(quick(epochs=12)).fit(X, RANKS)
    assert scorers.accuracy_within_one(forwards, X, RANKS) > 0.9


def test_labels_that_were_encoded_are_refused_with_the_cure():
    for meta in (BaggingClassifier(quick(classes=ORDER), 2), quick(classes=ORDER)):
        method = "predict" if isinstance(meta, BaggingClassifier) else "predict_proba"
        with pytest.raises(ValueError, match="want ranks as y"):
            cross_val_predict(meta, X, Y, cv=2, method=method)
    with pytest.warns(UserWarning, match="cross_val_predict of scikit-learn"):
        cross_val_predict(quick(classes=[2, 1, 0]), X, RANKS, cv=2, method="predict_proba")
    proba = cross_val_predict(quick(epochs=12), X, RANKS, cv=2, method="predict_proba")
    assert metrics.mean_absolute_error(RANKS, proba.argmax(axis=1)) < 0.5


def test_the_old_name_is_the_same_scorer():
    assert layline.negative_mae is layline.estimator.scorers.neg_mean_absolute_error
