"""Scorers for scikit-learn that measure in ranks: the rank of a label is its index in ``classes_``.

scikit-learn's own scorers only know labels, and assume that columns of ``predict_proba`` are in
sorted order: ``"high"`` before ``"low"``. There is one scorer for each metric of
:mod:`layline.metrics`. Names that start with ``neg_`` are errors with the sign reversed, so that
higher is better for all of them::

    cross_val_score(model, X, y, scoring=layline.scorers.neg_mean_absolute_error)
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metadata_routing import MetadataRequest

from layline.data.class_order import known_order
from layline.data.labels import check_order, ranks_of
from layline.metrics import METRICS, Metric
from layline.utils.validation import check_known, find_known


@dataclass(frozen=True, eq=False, repr=False)
class OrdinalScorer:
    """A scorer that computes a metric on ranks; :func:`make_scorer` and :func:`get` make one."""

    metric: Callable[..., float]
    sign: int
    response_method: str
    classes: NDArray[Any] | None
    options: dict[str, Any]
    request: bool | str | None = None

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike, **metadata: Any) -> float:
        """Score a fitted estimator with ``classes_``; ``sample_weight`` may be given."""
        known: NDArray[Any] = np.asarray(estimator.classes_)
        if self.classes is None:
            _warn_if_sorted(known.tolist())
        classes = known if self.classes is None else self.classes
        response = np.asarray(getattr(estimator, self.response_method)(X))
        if self.response_method == "predict":
            response = ranks_of(response, classes)
        elif self.classes is not None:
            columns = np.zeros((len(response), len(classes)))  # zeros for classes never seen
            columns[:, ranks_of(known, classes)] = response
            response = columns
        given = {name: value for name, value in metadata.items() if value is not None}
        return self.sign * self.metric(ranks_of(y, classes), response, **self.options, **given)

    def set_score_request(self, *, sample_weight: bool | str | None) -> Self:
        """Return a copy that requests sample weights, for scikit-learn's metadata routing."""
        return replace(self, request=sample_weight)

    def get_metadata_routing(self) -> Any:
        """Return the metadata request, for scikit-learn's metadata routing."""
        request = MetadataRequest(owner=repr(self))
        if "sample_weight" in inspect.signature(self.metric).parameters:
            request.score.add_request(param="sample_weight", alias=self.request)
        return request

    def __repr__(self) -> str:
        name = getattr(self.metric, "__name__", repr(self.metric))
        return f"OrdinalScorer({'-' if self.sign < 0 else ''}{name})"


def _warn_if_sorted(labels: list[Any]) -> None:
    """Warn about classes in alphabetical order if a different order of them is known."""
    if len(labels) < 3 or not all(isinstance(label, str) for label in labels):
        return
    known = known_order(labels) if labels == sorted(labels) else None
    if known is not None and known[0] != labels:
        warnings.warn(
            f"The estimator sorted its labels as {' < '.join(labels)}, but the order of "
            f"{known[1]} is different. Use layline.scorers.get(name, classes={known[0]!r}).",
            stacklevel=3,
        )


def make_scorer(
    metric: Callable[..., float],
    *,
    greater_is_better: bool = True,
    response_method: str = "predict",
    classes: Sequence[Any] | None = None,
    **options: Any,
) -> OrdinalScorer:
    """Make a scorer from any metric on ranks, for example one of scikit-learn.

    Args:
        metric: ``metric(true_ranks, predicted)``, optionally with ``sample_weight``.
        greater_is_better: False reverses the sign of an error.
        response_method: ``"predict"`` passes predicted ranks to the metric, ``"predict_proba"``
            probabilities of shape (n, K) with columns in rank order.
        classes: The labels from lowest to highest, by default ``classes_`` of the estimator. It is
            needed for estimators that sort their labels, and if a fold may lack a class.
        **options: Further options of the metric.

    Example:
        >>> from sklearn.metrics import mean_squared_error
        >>> make_scorer(mean_squared_error, greater_is_better=False)
        OrdinalScorer(-mean_squared_error)
    """
    check_known("response_method", response_method, ("predict", "predict_proba"))
    sign = 1 if greater_is_better else -1
    order = None if classes is None else check_order(classes)
    return OrdinalScorer(metric, sign, response_method, order, options)


def _name(metric: Metric) -> str:
    name = metric.function.__name__
    if metric.name == "within_one":  # its function has a tolerance
        name = "accuracy_within_one"
    return name if metric.higher_is_better else f"neg_{name}"


_SCORERS = {
    _name(metric): make_scorer(
        metric.function,
        greater_is_better=metric.higher_is_better,
        response_method="predict" if metric.kind == "ranks" else "predict_proba",
    )
    for metric in METRICS.values()
    if metric.name != "unimodality_rate"  # it does not compare with the truth
}
__all__ = ["OrdinalScorer", "get", "make_scorer", "names", *_SCORERS]


def __getattr__(name: str) -> OrdinalScorer:
    if name not in _SCORERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _SCORERS[name]


def names() -> tuple[str, ...]:
    """List the names of the scorers."""
    return tuple(_SCORERS)


def get(name: str, *, classes: Sequence[Any] | None = None) -> OrdinalScorer:
    """Return a copy of one of the scorers of :func:`names`; for classes see :func:`make_scorer`.

    Example:
        >>> get("neg_mean_absolute_error", classes=["low", "mid", "high"])
        OrdinalScorer(-mean_absolute_error)
    """
    scorer = find_known("scorer", name, _SCORERS)
    return replace(scorer, classes=None if classes is None else check_order(classes))
