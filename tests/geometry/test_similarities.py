import math

import pytest
import torch

from layline.geometry.similarities import (
    SIMILARITIES,
    Cosine,
    LearnedScale,
    NegativeEuclidean,
    StudentT,
)


def measured(similarity, count=12):
    """Squared distances or cosines, whichever the similarity takes."""
    values = torch.rand(3, count, dtype=torch.float64)
    return values * 2 - 1 if similarity.measure == "cosines" else values * 30


@pytest.mark.parametrize(
    ("similarity", "formula"),
    [
        (StudentT(), lambda d2: -math.log(1 + d2)),
        (NegativeEuclidean(), lambda d2: -math.sqrt(d2)),
        (Cosine(), lambda cos: 6.0 * cos),
        (Cosine(scale=2.5), lambda cos: 2.5 * cos),
    ],
)
def test_values_are_those_of_the_formula(similarity, formula):
    x = measured(similarity)
    expected = torch.tensor([[formula(v) for v in row] for row in x.tolist()], dtype=x.dtype)
    torch.testing.assert_close(similarity(x), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_nearer_is_more_similar(name):
    similarity = SIMILARITIES[name]()
    x = measured(similarity).sort(dim=-1).values
    steps = similarity(x).diff(dim=-1)
    assert (steps > 0).all() if similarity.measure == "cosines" else (steps < 0).all()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_gradients_agree_with_finite_differences(name):
    similarity = SIMILARITIES[name]()
    assert torch.autograd.gradcheck(similarity, (measured(similarity).requires_grad_(),))


@pytest.mark.parametrize("similarity", [StudentT(), NegativeEuclidean()])
@pytest.mark.parametrize("distance", [0.0, 1e-30, 1e10])
def test_values_and_gradients_are_finite_at_the_ends(similarity, distance, gradients):
    x = torch.full((1, 2), distance, requires_grad=True)
    value = similarity(x)
    assert value.isfinite().all()
    assert gradients(value.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.0, -3.0, math.nan, math.inf])
def test_a_scale_that_is_not_above_one_is_refused(scale):
    with pytest.raises(ValueError, match=f"scale must be .* above 1, got {scale}"):
        Cosine(scale=scale)


@pytest.mark.parametrize(("start", "scale"), [(Cosine(3.0), 3.0), (StudentT(), 1.0)])
def test_a_learned_scale_multiplies_the_similarity_that_it_begins_as(start, scale):
    similarity = LearnedScale(start).double()
    x = measured(similarity)
    assert torch.equal(similarity(x), start(x))
    assert similarity.scale == scale
    with torch.no_grad():
        similarity.log_factor.fill_(math.log(2.5))
    torch.testing.assert_close(similarity(x), 2.5 * start(x))
    assert similarity.scale == pytest.approx(2.5 * scale)
    assert torch.autograd.gradcheck(lambda x, _: similarity(x), (x, similarity.log_factor))
