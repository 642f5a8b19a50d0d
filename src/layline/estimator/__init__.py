"""The scikit-learn estimator :class:`OrdinalClassifier`, and scorers on ranks."""

from layline.estimator.classifier import OrdinalClassifier

__all__ = ["OrdinalClassifier"]
