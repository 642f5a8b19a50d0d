"""A table, and scikit-learn.

`OrdinalClassifier` works in pipelines, searches and cross-validation. The table of this page comes
with scikit-learn: ten measurements of 442 patients, and the progression of their diabetes after a
year, divided into five grades of equal size.
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
# `classes=` lists the labels from lowest to highest. It is not needed if the labels are numbers.
# Columns are scaled; a data frame can have missing values, text and categories.

X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
model = OrdinalClassifier(classes=GRADES, random_state=0).fit(X_train, y_train)
print(model.predict(X_test[:4]))
print(model.predict_proba(X_test[:4]).round(2))

# A range contains the true grade of a new patient of the same kind with a probability of about
# 80 %, however accurate the model is: with so few samples, a cross-validation calibrates the
# ranges. They are wide here, because the measurements predict the progression poorly.

low, high = model.predict_range(X_test[:4], coverage=0.8)
print([f"{a} to {b}" for a, b in zip(low, high, strict=True)])

# ## Comparing methods
# All methods have the same interface. Here four of them predict the same three held-out folds. The
# labels are ranks from 0 to 4, which the metrics take; few epochs keep this page quick.

ranks = np.array([GRADES.index(grade) for grade in y])
METHODS = ["committee", "hard-linear", "soft-poisson", "classification"]
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

# Differences of this size on 442 patients may be chance; see [comparing
# methods](../docs/bench.md).

# ## Searching
# `scorers.neg_mean_absolute_error` scores by the distance in ranks, in the order of the classes.

search = GridSearchCV(
    OrdinalClassifier(classes=GRADES, dim=16, epochs=20, random_state=0),
    {"method": ["committee", "arc"]},
    scoring=scorers.neg_mean_absolute_error,
    cv=3,
).fit(X_train, y_train)
print(search.best_params_, f"MAE {-search.score(X_test, y_test):.3f}")
