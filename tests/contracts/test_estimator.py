"""What is true of the estimator with every head in the registry."""

import numpy as np
import pytest

from layline import OrdinalClassifier, names

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], [30, 20, 6])
X = Y[:, None] + 0.3 * RNG.normal(size=(56, 3))


@pytest.mark.parametrize("name", names())
def test_every_method_fits_with_class_weights_and_needs_no_number_of_outputs(name):
    model = OrdinalClassifier(
        name, dim=8, hidden=(16,), epochs=2, class_weight="balanced", random_state=0
    ).fit(X, Y)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (56, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert set(model.predict(X)) <= {0, 1, 2}
    unweighted = model.set_params(class_weight=None).fit(X, Y).predict_proba(X)
    assert not np.allclose(probabilities, unweighted)
