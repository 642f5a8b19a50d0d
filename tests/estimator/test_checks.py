"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from layline import heads
from layline.estimator import OrdinalClassifier

# in so few steps the proxies of the others move far enough only at constant learning rates
RECIPES = {"committee": "modern", "classification": "modern", "hard-linear": "paper"}
# How rows, weights and parameters are read does not depend on the method; what is learned does.
LEARNING = (
    *("check_classifiers_train", "check_classifiers_classes", "check_class_weight_classifiers"),
    *("check_fit_idempotent", "check_methods_subset_invariance", "check_transformer_general"),
    *("check_methods_sample_order_invariance", "check_estimators_pickle", "check_dict_unchanged"),
)
WHY = (
    "a sample of weight two is in one batch, or held out, as a whole; the same sample twice may be "
    "in two batches, or in training and held out"
)
FAILURES = {f"check_sample_weight_equivalence_on_{kind}_data": WHY for kind in ("dense", "sparse")}


def make(method, **changes):
    modern = RECIPES[method] == "modern"
    epochs = 20 if modern else 10
    return OrdinalClassifier(
        method,
        dim=16,
        hidden=(32,),
        recipe=RECIPES[method],
        **{"epochs": epochs, "batch_size": 32, "learning_rate": 1e-2, "folds": 0} | changes,
        # a check wants predict to be the arg max of predict_proba, from which the median rarely
        # differs after enough epochs
        decode="median" if modern else "mode",
    )


every = parametrize_with_checks(
    [make(heads.DEFAULT_METHOD, epochs=2, folds=None)],
    expected_failed_checks=lambda _: FAILURES,
)
names, pairs = every.args  # a pair of estimator and check is a tuple, or pytest.param if marked
others = [p for p in pairs if getattr(p, "values", p)[1].func.__name__ not in LEARNING]


@pytest.mark.parametrize(names, others, **every.kwargs)
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("method", RECIPES)
def test_scikit_learn_finds_nothing_wrong_with_what_is_learned(method):
    checks = [
        (estimator, check)
        for estimator, check in estimator_checks_generator(make(method))
        if check.func.__name__ in LEARNING
        # again from memory that is read only and in another precision: how rows are read
        and (method == heads.DEFAULT_METHOD or not check.keywords)
    ]
    assert {check.func.__name__ for _, check in checks} == set(LEARNING)
    for estimator, check in checks:
        check(estimator)
