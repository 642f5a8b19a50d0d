"""A table, and scikit-learn.

`OrdinalClassifier` is an estimator like any other: it goes into pipelines, searches and
cross-validation. The table of this page ships with scikit-learn: 442 patients, ten measurements
each, and how far their diabetes had progressed a year later, cut here into five grades of equal
size.
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)

from layline import OrdinalClassifier, metrics, scorers

X, progression = load_diabetes(return_X_y=True, as_frame=True)
GRADES = ["very slow", "slow", "medium", "fast", "very fast"]
cuts = np.quantile(progression, [0.2, 0.4, 0.6, 0.8])
y = np.array(GRADES)[np.digitize(progression, cuts)]

# ## Fit and predict
# The order of the classes is what the method lives by, and names do not tell it: `classes=` does.
# With whole numbers as labels it is not needed. Columns are standardised; a frame may have
# missing values, texts and categories.

X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
model = OrdinalClassifier(classes=GRADES, random_state=0).fit(X_train, y_train)
print(model.predict(X_test[:4]))
print(model.predict_proba(X_test[:4]).round(2))

# A range holds the true grade of at least 80 % of new patients of the same kind, whatever the
# model is worth. This table says little about the progression, and the ranges are wide: that is
# honest.

low, high = model.predict_range(X_test[:4], coverage=0.8)
print([f"{a} to {b}" for a, b in zip(low, high, strict=True)])

# ## Which method?
# Every method has the same interface. Here four of them predict the same three held-out folds. The
# labels are ranks from 0 to 4, as the metrics want them; few epochs keep this page quick.

ranks = np.array([GRADES.index(grade) for grade in y])
METHODS = ["arc", "hard-linear", "soft-poisson", "classification"]
SCORES = {
    "accuracy": metrics.accuracy,
    "MAE": metrics.mean_absolute_error,
    "within one": metrics.accuracy_within,
    "QWK": metrics.quadratic_weighted_kappa,
}

print(f"{'method':20}" + "".join(f"{name:>12}" for name in SCORES))
folds = StratifiedKFold(3, shuffle=True, random_state=0)
for method in METHODS:
    quick = OrdinalClassifier(method, dim=16, epochs=20, random_state=0)
    predicted = cross_val_predict(quick, X, ranks, cv=folds)
    row = "".join(f"{score(ranks, predicted):12.3f}" for score in SCORES.values())
    print(f"{method:20}{row}")

# Differences of this size on 442 patients may be chance: [comparing methods](../docs/bench.md)
# tells how to find out.

# ## Searching
# `scorers.neg_mean_absolute_error` scores by the distance in ranks, in the order of the classes.

search = GridSearchCV(
    OrdinalClassifier(classes=GRADES, dim=16, epochs=20, random_state=0),
    {"method": ["arc", "soft-poisson"]},
    scoring=scorers.neg_mean_absolute_error,
    cv=3,
).fit(X_train, y_train)
print(search.best_params_, f"MAE {-search.score(X_test, y_test):.3f}")
