"""The scikit-learn estimator: :class:`OrdinalClassifier`."""

from layline.estimator.classifier import OrdinalClassifier
from layline.estimator.scorers import (
    neg_mean_absolute_error as negative_mae,  # its name before the others
)

__all__ = ["OrdinalClassifier", "negative_mae"]
