"""scikit-learn's own judgement of the estimator."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from layline import heads
from layline.estimator import OrdinalClassifier

EPOCHS = {"modern": 20, "paper": 10}
# in so few steps the proxies of the others move far enough at constant rates only
RECIPES = {
    "arc": "modern",
    "classification": "modern",
    "hard-linear": "paper",
    "hard-semicircular": "paper",
    "soft-binomial": "paper",
    "unconstrained-cosine": "paper",
}


WHY = (
    "a sample of weight two is in one batch, or held out, as a whole; the same sample twice may be "
    "in two batches, or in training and held out at once"
)


def expected_failures(_: OrdinalClassifier) -> dict[str, str]:
    kinds = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": WHY for kind in kinds}


def estimators(*methods: str) -> list[OrdinalClassifier]:
    return [
        OrdinalClassifier(
            method,
            dim=16,
            hidden=(32,),
            recipe=RECIPES[method],
            epochs=EPOCHS[RECIPES[method]],
            learning_rate=1e-2,
        )
        for method in methods
    ]


@parametrize_with_checks(estimators(heads.DEFAULT_METHOD), expected_failed_checks=expected_failures)
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


# How rows, weights and parameters are read does not depend on the method; what is learned does.
LEARNING = (
    *("check_classifiers_train", "check_classifiers_classes", "check_class_weight_classifiers"),
    *("check_fit_idempotent", "check_methods_subset_invariance", "check_transformer_general"),
    *("check_methods_sample_order_invariance", "check_estimators_pickle", "check_dict_unchanged"),
)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", estimators(*list(RECIPES)[1:]), ids=lambda each: each.method)
def test_scikit_learn_finds_nothing_wrong_with_other_methods(estimator):
    checks = [
        (own, check)
        for own, check in estimator_checks_generator(estimator)
        if check.func.__name__ in LEARNING
    ]
    assert {check.func.__name__ for _, check in checks} == set(LEARNING)
    for own, check in checks:
        check(own)
