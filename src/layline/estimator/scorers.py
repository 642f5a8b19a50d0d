"""Scorers for scikit-learn that measure in ranks: the rank of a label is its place in ``classes_``.

scikit-learn's own scorers know labels only. Those that read the columns of ``predict_proba`` take
them to be sorted, which the classes of an ordinal problem rarely are: ``"high"`` comes before
``"low"`` in the alphabet. The scorers here turn labels into ranks first, by ``classes_`` of the
estimator, pipeline or search that they are given, and then compute :mod:`layline.metrics`.

They are objects of scikit-learn's own kind: ``scoring=layline.scorers.neg_mean_absolute_error``, or
several in a dict, with sample weights and metadata routing. Names that begin with ``neg_`` are
errors with their sign turned, so that higher is better for all of them.
"""

import copy
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics._scorer import _BaseScorer

from layline import metrics
from layline.data.class_order import known_order
from layline.data.labels import check_order, ranks_of
from layline.utils.errors import UserError
from layline.utils.validation import find_known

__all__ = [
    "OrdinalScorer",
    "accuracy",
    "accuracy_within_one",
    "get",
    "kendall",
    "make_scorer",
    "names",
    "neg_expected_calibration_error",
    "neg_log_loss",
    "neg_macro_mean_absolute_error",
    "neg_maximum_mean_absolute_error",
    "neg_mean_absolute_error",
    "neg_ranked_probability_score",
    "quadratic_weighted_kappa",
    "spearman",
]

_Metric = Callable[..., float]


class OrdinalScorer(_BaseScorer):
    """A scorer that computes a metric on ranks; :func:`make_scorer` and :func:`get` make one.

    The estimator may be this library's or any other classifier, a pipeline, or a search.

    Args:
        metric: Computes the score from true ranks, and predicted ranks or probabilities.
        sign: 1 if higher is better, else −1.
        options: Further options of the metric.
        response_method: ``"predict"`` or ``"predict_proba"``: what the metric takes.
        classes: The labels from lowest to highest; ``classes_`` of the estimator if not given.
    """

    def __init__(
        self,
        metric: _Metric,
        sign: int,
        options: dict[str, Any],
        response_method: str = "predict",
        classes: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(metric, sign, options, response_method)
        self._classes = None if classes is None else check_order(classes)

    def set_score_request(self, **requests: Any) -> Self:
        """Give a scorer that asks for metadata; this one stays as it is, since all share it.

        Args:
            **requests: As in scikit-learn, such as ``sample_weight=True``.
        """
        asking = copy.copy(self)
        super(OrdinalScorer, asking).set_score_request(**requests)
        return asking

    def __call__(
        self,
        estimator: Any,
        X: ArrayLike,
        y_true: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **metadata: Any,
    ) -> float:
        """Score an estimator; higher is better.

        Args:
            estimator: Fitted, with ``classes_``.
            X: Samples to predict.
            y_true: Their labels.
            sample_weight: How much each sample counts.
            **metadata: What else the metric takes.
        """
        if sample_weight is not None:
            metadata["sample_weight"] = sample_weight
        return self._score(_call, estimator, X, y_true, **metadata)

    def _score(
        self, method_caller: Any, estimator: Any, X: ArrayLike, y_true: ArrayLike, **kwargs: Any
    ) -> float:
        known: NDArray[Any] = np.asarray(estimator.classes_)
        if self._classes is None:
            _warn_of_the_alphabet(known.tolist())
        classes = known if self._classes is None else self._classes
        truth = ranks_of(y_true, classes)
        response = self._respond(method_caller, estimator, X)
        if self._response_method == "predict":
            response = ranks_of(response, classes)
        elif classes is not known:
            response = _rearranged(response, known, classes)
        options = {**self._kwargs, **kwargs}
        score: float = self._sign * self._score_func(truth, response, **options)
        return score

    def _respond(self, method_caller: Any, estimator: Any, X: ArrayLike) -> NDArray[Any]:
        """Predict, or take what another scorer of the same call has predicted."""
        method = self._response_method
        if method == "predict_proba" and len(estimator.classes_) == 2:
            method_caller = _call  # scikit-learn hands on one of two columns, and not which
        return np.asarray(method_caller(estimator, method, X))


def _call(estimator: Any, method: str, X: ArrayLike) -> Any:
    return getattr(estimator, method)(X)


def _warn_of_the_alphabet(labels: list[Any]) -> None:
    """Warn of classes in the order of the alphabet, where another order of them is known."""
    if len(labels) < 3 or not all(isinstance(label, str) for label in labels):
        return
    known = known_order(labels) if labels == sorted(labels) else None
    if known is not None and known[0] != labels:
        warnings.warn(
            f"classes_ must be in the order of {known[1]}, got {' < '.join(labels)}, by the "
            "alphabet: the estimator has sorted its labels, so give "
            f"layline.estimator.scorers.get(…, classes={known[0]!r})",
            stacklevel=4,
        )


def _rearranged(
    proba: NDArray[Any], known: NDArray[Any], classes: NDArray[Any]
) -> NDArray[np.float64]:
    """Bring columns into the order of the classes; one that the estimator never saw has zeros."""
    columns = np.zeros((len(proba), len(classes)))
    columns[:, ranks_of(known, classes)] = proba
    return columns


def make_scorer(
    metric: _Metric,
    *,
    greater_is_better: bool = True,
    response_method: str = "predict",
    classes: Sequence[Any] | None = None,
    **options: Any,
) -> OrdinalScorer:
    """Make a scorer of any metric that takes ranks, scikit-learn's own too.

    Args:
        metric: ``metric(true_ranks, predicted)``; with ``sample_weight`` among its arguments it
            gets weights.
        greater_is_better: False turns the sign of an error.
        response_method: ``"predict"`` gives the metric predicted ranks, ``"predict_proba"`` the
            probabilities, (n, K) with columns in rank order.
        classes: The labels from lowest to highest; ``classes_`` of the estimator if not given. It
            is needed for estimators that sort labels, and where a fold may lack a class.
        **options: Further options of the metric.

    Example:
        >>> from sklearn.metrics import mean_squared_error
        >>> make_scorer(mean_squared_error, greater_is_better=False)
        make_scorer(mean_squared_error, greater_is_better=False, response_method='predict')
    """
    if response_method not in ("predict", "predict_proba"):
        raise UserError(
            f"response_method must be 'predict' or 'predict_proba', got {response_method!r}: "
            "a metric takes ranks or probabilities"
        )
    sign = 1 if greater_is_better else -1
    return OrdinalScorer(metric, sign, options, response_method, classes)


neg_mean_absolute_error = make_scorer(metrics.mean_absolute_error, greater_is_better=False)
neg_macro_mean_absolute_error = make_scorer(
    metrics.macro_mean_absolute_error, greater_is_better=False
)
neg_maximum_mean_absolute_error = make_scorer(
    metrics.maximum_mean_absolute_error, greater_is_better=False
)
accuracy = make_scorer(metrics.accuracy)
accuracy_within_one = make_scorer(metrics.accuracy_within)
quadratic_weighted_kappa = make_scorer(metrics.quadratic_weighted_kappa)
spearman = make_scorer(metrics.spearman)
kendall = make_scorer(metrics.kendall)
neg_ranked_probability_score = make_scorer(
    metrics.ranked_probability_score, greater_is_better=False, response_method="predict_proba"
)
neg_log_loss = make_scorer(
    metrics.log_loss, greater_is_better=False, response_method="predict_proba"
)
neg_expected_calibration_error = make_scorer(
    metrics.expected_calibration_error, greater_is_better=False, response_method="predict_proba"
)

_SCORERS: dict[str, OrdinalScorer] = {
    name: value for name, value in list(globals().items()) if isinstance(value, OrdinalScorer)
}


def names() -> tuple[str, ...]:
    """List the scorers by name."""
    return tuple(_SCORERS)


def get(name: str, *, classes: Sequence[Any] | None = None) -> OrdinalScorer:
    """Give a scorer by its name, one of its own.

    Args:
        name: One of :func:`names`.
        classes: See :func:`make_scorer`.

    Example:
        >>> get("neg_mean_absolute_error", classes=["low", "mid", "high"])
        make_scorer(mean_absolute_error, greater_is_better=False, response_method='predict')
    """
    found = copy.copy(find_known("scorer", name, _SCORERS))
    if classes is not None:
        found._classes = check_order(classes)
    return found


# Where scikit-learn adds up columns of several estimators, or puts them into one array, by place.
_READERS = {
    ("sklearn.ensemble._bagging", "_parallel_predict_proba"): "BaggingClassifier",
    ("sklearn.ensemble._voting", "_collect_probas"): "VotingClassifier",
    ("sklearn.model_selection._validation", "_fit_and_predict"): "cross_val_predict",
}


def warn_of_sorted_columns(classes: NDArray[Any]) -> None:
    """Warn where scikit-learn reads probabilities in an order that is not that of the classes.

    Who reads them can be told by the calls that led here alone. A warning in ``fit`` would come to
    everybody who gives an order, and most of them never meet the trap.

    Args:
        classes: In the order of the columns.
    """
    if (classes[:-1] < classes[1:]).all():
        return
    found = _reader_of_sorted_columns()
    if found is not None:
        reader, cure = found
        order = ", ".join(map(str, classes.tolist()))
        warnings.warn(
            f"{reader} of scikit-learn takes the columns of predict_proba to be in sorted order, "
            f"got them in the order of classes, {order}, so that its result is wrong: {cure}",
            stacklevel=3,  # where predict_proba was called
        )


def _reader_of_sorted_columns() -> tuple[str, str] | None:
    """Name who takes columns to be sorted among the callers, and what to do about it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        reader = _READERS.get((module, frame.f_code.co_name))
        if reader is not None:
            return reader, "give ranks as y, and no classes"
        if module == "sklearn.metrics._scorer":
            scorer = frame.f_locals.get("self")
            for each in getattr(scorer, "_scorers", {"": scorer}).values():
                if _sorts(each):
                    name = each._score_func.__name__
                    ours = f"neg_{name}" if f"neg_{name}" in _SCORERS else "make_scorer(…)"
                    return name, f"score with layline.estimator.scorers.{ours}"
        frame = frame.f_back
    return None


def _sorts(scorer: Any) -> bool:
    """Tell a scorer of scikit-learn's own metrics on columns; one's own metric may know better."""
    if isinstance(scorer, OrdinalScorer) or not isinstance(scorer, _BaseScorer):
        return False
    reads = "predict_proba" in scorer._response_method  # one name, or several
    return reads and str(scorer._score_func.__module__).startswith("sklearn.")
