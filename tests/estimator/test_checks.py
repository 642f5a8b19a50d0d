"""scikit-learn's own judgement of the estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

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


@parametrize_with_checks(
    [
        OrdinalClassifier(
            method, dim=16, hidden=(32,), recipe=recipe, epochs=EPOCHS[recipe], learning_rate=1e-2
        )
        for method, recipe in RECIPES.items()
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    if "sparse" in check.func.__name__ and estimator.method != heads.DEFAULT_METHOD:
        pytest.skip("how rows are read does not depend on the method, and one takes long enough")
    check(estimator)
