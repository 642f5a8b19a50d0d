"""The methods by name, and what is wrong with their options."""

import math

import pytest

from layline import heads


@pytest.mark.parametrize("suffix", ["", "-cosine"])
def test_the_released_code_has_one_temperature_for_both_shapes(suffix):
    poisson, binomial = (heads.HEADS[f"soft-{name}{suffix}"] for name in ("poisson", "binomial"))
    released = heads.create(f"soft-binomial{suffix}", 4, 8, **dict(binomial.released))
    assert released.smoothing.tau == 0.11
    assert dict(binomial.released) == {**dict(poisson.released), "tau": 0.11}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hard-linear", {"similarity": "cos"}),
        ("hard-linear", {"similarity": "cosine"}),
        ("hard-linear", {"norm": 0.0}),
        ("hard-semicircular", {"dim": 1}),
        ("hard-semicircular", {"scale": 1.0}),
        ("elastic-semicircular", {"stiffness": -1.0}),
        ("soft-poisson", {"scale": 3.0}),
        ("soft-triangular", {"a": 0.1}),
        ("sord", {"distance": "square"}),
        ("dldl-v2", {"sigma": math.nan}),
        ("mean-variance", {"mean_weight": -0.1}),
        ("cdw", {"alpha": 0.0}),
        ("regression", {"loss": "l3"}),
        ("unimodal-pom", {"narrowest": 0.0}),
        ("poe", {"samples": 20_000_000}),
        ("proxy-anchor", {"margin": math.inf}),
        ("soft-triple", {"centers_per_class": 10**6}),
        ("gp-dnnor", {"inducing_points": 30_000}),
        ("gp-dnnor", {"latent_dim": 10**6}),
    ],
)
def test_a_wrong_option_is_named(name, options):
    """Also one that would need gigabytes."""
    with pytest.raises(ValueError, match=rf"^{next(iter(options))} must"):
        heads.create(name, 5, **{"dim": 8} | options)
