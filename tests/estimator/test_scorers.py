"""Scorers measure ranks; scikit-learn's metrics on ranks are the oracle."""

import pickle
import re

import numpy as np
import pytest
from scipy import stats
from sklearn import config_context
from sklearn import metrics as oracle
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from layline import scorers

ORDER = ["low", "mid", "high", "top"]  # not the alphabetical one
ORDERS = [ORDER, [3, 1, 2, 0], [0.5, 1.5, 2.5, 3.5], ["worse", "better"], [1, 0]]


class Fixed(ClassifierMixin, BaseEstimator):
    """Takes X for its probabilities, in the order of its classes."""

    def __init__(self, classes=None):
        self.classes = classes

    def fit(self, X, y):
        self.classes_ = np.unique(y) if self.classes is None else np.array(self.classes)
        return self

    def predict_proba(self, X):
        return np.asarray(X)

    def predict(self, X):
        return self.classes_[np.asarray(X).argmax(axis=1)]


def sample(order=ORDER, n=60):
    """Probabilities, labels, weights, and the ranks of the labels."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(len(order)), size=n)
    ranks = rng.choice(len(order), size=n)
    return proba, np.array(order)[ranks], rng.uniform(0.1, 2, size=n), ranks


def ranked_probability_score(ranks, proba, **weight):
    below = proba.cumsum(axis=1)[:, :-1].clip(0, 1)
    return np.mean(
        [
            oracle.brier_score_loss(ranks <= k, below[:, k], pos_label=True, **weight)
            for k in range(below.shape[1])
        ]
    )


def by_class(ranks, predicted, sample_weight=None):
    weight = np.ones(len(ranks)) if sample_weight is None else sample_weight
    errors = np.abs(ranks - predicted)
    return [np.average(errors[ranks == k], weights=weight[ranks == k]) for k in np.unique(ranks)]


RANKS = {
    "neg_mean_absolute_error": lambda *a, **w: -oracle.mean_absolute_error(*a, **w),
    "neg_macro_mean_absolute_error": lambda *a, **w: -np.mean(by_class(*a, **w)),
    "neg_maximum_mean_absolute_error": lambda *a, **w: -np.max(by_class(*a, **w)),
    "accuracy": oracle.accuracy_score,
    "accuracy_within_one": lambda t, p, **w: oracle.accuracy_score(
        np.ones(len(t), dtype=bool), np.abs(t - p) <= 1, **w
    ),
    "quadratic_weighted_kappa": lambda *a, **w: oracle.cohen_kappa_score(
        *a, weights="quadratic", labels=range(4), **w
    ),
}
UNWEIGHTED = {
    "spearman": lambda t, p: stats.spearmanr(t, p).statistic,
    "kendall": lambda t, p: stats.kendalltau(t, p).statistic,
}
DISTRIBUTION = {
    "neg_ranked_probability_score": lambda *a, **w: -ranked_probability_score(*a, **w),
    "neg_log_loss": lambda t, p, **w: -oracle.log_loss(t, p, labels=range(p.shape[1]), **w),
}


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", [*RANKS, *UNWEIGHTED, *DISTRIBUTION])
def test_a_scorer_is_the_metric_of_scikit_learn_on_ranks(name, order):
    proba, y, weight, ranks = sample(order)
    model = Fixed(order).fit(proba, y)
    expected = {**RANKS, **UNWEIGHTED, **DISTRIBUTION}[name]
    taken = proba if name in DISTRIBUTION else proba.argmax(axis=1)
    scorer = getattr(scorers, name)
    assert scorer(model, proba, y) == pytest.approx(expected(ranks, taken), rel=1e-9)
    if name not in UNWEIGHTED:
        weighted = scorer(model, proba, y, sample_weight=weight)
        assert weighted == pytest.approx(expected(ranks, taken, sample_weight=weight), rel=1e-9)


def test_every_scorer_has_a_name_and_higher_is_better():
    _, y, _, ranks = sample()
    right, wrong = (np.eye(4)[(ranks + shift) % 4] * 0.9 + 0.025 for shift in (0, 2))
    assert set(scorers.names()) < set(scorers.__all__)
    assert len(scorers.names()) == 11
    for name in scorers.names():
        good, bad = (scorers.get(name)(Fixed(ORDER).fit(p, y), p, y) for p in (right, wrong))
        assert good > bad, name


def test_a_pipeline_and_a_search_are_scored_by_their_classes():
    proba, y, _, _ = sample()
    pipeline = make_pipeline(FunctionTransformer(), Fixed(ORDER))
    alone = scorers.neg_log_loss(Fixed(ORDER).fit(proba, y), proba, y)
    assert scorers.neg_log_loss(pipeline.fit(proba, y), proba, y) == alone
    search = GridSearchCV(
        pipeline,
        {"fixed__classes": [ORDER, ORDER[::-1]]},
        scoring={"nll": scorers.neg_log_loss, "mae": scorers.neg_mean_absolute_error},
        refit="nll",
        cv=KFold(2),
        error_score="raise",
    ).fit(proba, y)
    assert scorers.neg_log_loss(search, proba, y) >= alone
    assert np.isfinite(search.cv_results_["mean_test_mae"]).all()
    assert pickle.loads(pickle.dumps(scorers.neg_log_loss))(pipeline, proba, y) == alone


def test_weights_are_routed_where_they_are_requested():
    proba, y, weight, _ = sample()
    model, mae, nll = Fixed(ORDER), scorers.neg_mean_absolute_error, scorers.get("neg_log_loss")
    options = {"cv": KFold(2), "params": {"sample_weight": weight}, "error_score": "raise"}
    with config_context(enable_metadata_routing=True):
        scoring = {
            "weighted": mae.set_score_request(sample_weight=True),
            "plain": nll.set_score_request(sample_weight=False),
        }
        found = cross_validate(model, proba, y, scoring=scoring, **options)
        with pytest.raises(ValueError, match="sample_weight"):  # neither requested nor not
            cross_validate(model, proba, y, scoring={"mae": mae}, **options)
    model.fit(proba, y)
    for fold, (_, test) in enumerate(KFold(2).split(proba)):
        weighted = mae(model, proba[test], y[test], sample_weight=weight[test])
        assert found["test_weighted"][fold] == weighted
        assert found["test_plain"][fold] == nll(model, proba[test], y[test])


def test_the_order_can_be_given_for_an_estimator_that_sorts_its_labels():
    order = ["low", "mid", "high"]
    proba, y, _, ranks = sample(order)
    model = Fixed().fit(proba, y)  # high, low, mid
    with pytest.warns(UserWarning, match=re.escape("classes=['low', 'mid', 'high']")):
        wrong = scorers.neg_mean_absolute_error(model, proba, y)
    predicted = np.array([2, 0, 1])[proba.argmax(axis=1)]
    mae = scorers.get("neg_mean_absolute_error", classes=order)(model, proba, y)
    assert mae == -oracle.mean_absolute_error(ranks, predicted) != wrong
    rps = scorers.get("neg_ranked_probability_score", classes=order)(model, proba, y)
    assert rps == pytest.approx(-ranked_probability_score(ranks, proba[:, [1, 2, 0]]))
