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


def estimator_of(method: str, epochs: int | None = None) -> OrdinalClassifier:
    recipe = RECIPES[method]
    return OrdinalClassifier(
        method,
        dim=16,
        hidden=(32,),
        recipe=recipe,
        epochs=epochs or EPOCHS[recipe],
        learning_rate=1e-2,
        # a check wants predict to be the arg max of predict_proba, which the median rarely differs
        # from after enough epochs
        decode="median" if recipe == "modern" else "mode",
    )


# How rows, weights and parameters are read does not depend on the method; what is learned does.
LEARNING = (
    *("check_classifiers_train", "check_classifiers_classes", "check_class_weight_classifiers"),
    *("check_fit_idempotent", "check_methods_subset_invariance", "check_transformer_general"),
    *("check_methods_sample_order_invariance", "check_estimators_pickle", "check_dict_unchanged"),
)


every = parametrize_with_checks(
    [estimator_of(heads.DEFAULT_METHOD, epochs=2)], expected_failed_checks=expected_failures
)
arguments, pairs = every.args  # a pair of estimator and check is a tuple, or pytest.param if marked
checks = [getattr(pair, "values", pair)[1].func.__name__ for pair in pairs]
others = [pair for pair, check in zip(pairs, checks, strict=True) if check not in LEARNING]


@pytest.mark.parametrize(arguments, others, **every.kwargs)
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("method", RECIPES)
def test_scikit_learn_finds_nothing_wrong_with_what_is_learned(method):
    checks = [
        (estimator, check)
        for estimator, check in estimator_checks_generator(estimator_of(method))
        if check.func.__name__ in LEARNING
        # again from memory that is read only and in another precision: how rows are read
        and (method == heads.DEFAULT_METHOD or not check.keywords)
    ]
    assert {check.func.__name__ for _, check in checks} == set(LEARNING)
    for estimator, check in checks:
        check(estimator)
