"""Scorers measure ranks, and what scikit-learn computes on ranks is the judge."""

import pickle
import re

import numpy as np
import pytest
from scipy import stats
from sklearn import config_context
from sklearn import metrics as judge
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

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
            "response_method must be a known name, got 'decision_function'",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_scikit_learn_and_we_agree_on_ranks():
    ranks = np.arange(90) % 3
    x = ranks[:, None] + 0.5 * np.random.default_rng(0).normal(size=(90, 3))
    order = ["low", "mid", "high"]
    small = {"dim": 8, "hidden": (8,), "epochs": 12, "learning_rate": 5e-2, "random_state": 0}
    model = OrdinalClassifier("hard-linear", classes=order, **small).fit(x, np.array(order)[ranks])
    on_ranks = OrdinalClassifier("hard-linear", **small).fit(x, ranks)
    expected = get_scorer("neg_log_loss")(on_ranks, x, ranks)
    found = scorers.neg_log_loss(model, x, np.array(order)[ranks])
    assert found == pytest.approx(expected, rel=1e-12)
    with pytest.raises(AttributeError, match="neg_log_los"):
        scorers.neg_log_los  # noqa: B018


def test_meta_estimators_that_encode_labels_want_ranks():
    order = ["low", "mid", "high"]
    proba, y, _, _ = sample(order)
    with pytest.raises(ValueError, match="y must hold labels of classes only, got 0"):
        BaggingClassifier(OrdinalClassifier(classes=order, epochs=1), 2).fit(proba, y).predict(
            proba
        )
