"""Compare the methods on a table: five grades of diabetes progression.

The table ships with scikit-learn: 442 patients, ten measurements each, and how far the disease
had progressed a year later, cut here into five grades of equal size.
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from layline import OrdinalClassifier, metrics

METHODS = [
    "hard-linear",
    "hard-semicircular",
    "elastic-linear",
    "soft-poisson",
    "soft-binomial",
    "unconstrained",
    "classification",
]
SCORES = {
    "accuracy": metrics.accuracy,
    "MAE": metrics.mean_absolute_error,
    "within one": metrics.accuracy_within,
    "QWK": metrics.quadratic_weighted_kappa,
}


def five_grades() -> tuple[np.ndarray, np.ndarray]:
    """Load the table, with the progression in five grades of equal size."""
    X, progression = load_diabetes(return_X_y=True)
    return X, np.digitize(progression, np.quantile(progression, [0.2, 0.4, 0.6, 0.8]))


def main() -> None:
    """Print how well each method predicts five held-out folds."""
    X, y = five_grades()
    print(f"Diabetes progression in five grades: {len(y)} patients, five held-out folds\n")
    print(f"{'method':20}" + "".join(f"{name:>12}" for name in SCORES))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for method in METHODS:
        model = OrdinalClassifier(method, random_state=0)
        predicted = cross_val_predict(model, X, y, cv=folds, n_jobs=-1)
        row = "".join(f"{score(y, predicted):12.3f}" for score in SCORES.values())
        print(f"{method:20}{row}", flush=True)


if __name__ == "__main__":
    main()
