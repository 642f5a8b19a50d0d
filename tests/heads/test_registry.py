import pytest

from layline import heads

SMOOTHINGS = ["poisson", "binomial", "exponential", "triangular"]
PROMISED = [
    *["hard-linear", "hard-semicircular", "elastic-linear", "elastic-semicircular", "arc"],
    *[f"soft-{smoothing}{suffix}" for smoothing in SMOOTHINGS for suffix in ("", "-cosine")],
    *["unconstrained", "unconstrained-cosine", "classification", "regression", "ranking"],
    *["cnnpor", "gp-dnnor", "sord", "poe", "unimodal-poisson", "unimodal-binomial"],
    *["unimodal-pom", "coral", "corn", "proportional-odds", "stick-breaking", "cdw", "emd"],
    *["mean-variance", "dldl-v2", "proxy-anchor", "soft-triple"],
]


@pytest.mark.parametrize("name", PROMISED)
def test_every_promised_name_is_there(name):
    assert name in heads.names()
    assert isinstance(heads.create(name, 4, 8), heads.OrdinalHead)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("hard-liner", "hard-linear"),
        ("soft_poisson", "soft-poisson"),
        ("UPL", "known are hard-lin"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong, near):
    with pytest.raises(ValueError, match=f"method must be a known name, got {wrong!r}: .*{near}"):
        heads.create(wrong, 5, 8)


@pytest.mark.parametrize("suffix", ["", "-cosine"])
def test_the_released_code_has_one_temperature_for_both_shapes(suffix):
    poisson, binomial = (heads.HEADS[f"soft-{name}{suffix}"] for name in ("poisson", "binomial"))
    released = heads.create(f"soft-binomial{suffix}", 4, 8, **dict(binomial.released))
    assert released.smoothing.tau == 0.11
    assert dict(binomial.released) == {**dict(poisson.released), "tau": 0.11}
