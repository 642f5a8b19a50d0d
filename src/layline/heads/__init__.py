"""The ordinal methods by name. To add one: write its file, and one line in ``HEADS``.

Plug-ins add others, see :mod:`layline.utils.plugins`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from layline.geometry.smoothings import Binomial, Exponential, Poisson
from layline.heads import constrained_proxies as cpl
from layline.heads.base import OrdinalHead
from layline.heads.baselines import Classification, Regression
from layline.heads.cnnpor import CNNPOR
from layline.heads.constrained_proxies import ConstrainedProxies
from layline.heads.cumulative import Coral, Corn, ProportionalOdds, Ranking, StickBreaking
from layline.heads.gp_dnnor import GPDNNOR
from layline.heads.label_distribution import Cdw, DldlV2, Emd, MeanVariance, Sord
from layline.heads.linear import LinearHead
from layline.heads.metric_learning import ProxyAnchor, SoftTriple
from layline.heads.poe import POE
from layline.heads.unimodal import UnimodalBinomial, UnimodalPoisson, UnimodalPOM
from layline.utils.errors import UserError
from layline.utils.registry import Registry, first_line
from layline.utils.validation import check_integer


@dataclass(frozen=True)
class HeadSpec:
    """An entry of the registry.

    Attributes:
        build: Makes the head from ``num_classes``, ``dim`` and the method's own options.
        family: What kind of method it is.
        summary: What it is, in one line.
        reference: Where it comes from, with the year.
        decode: The decoding that is the method's own decision rule.
        unsupported: What its library lacks: ``"compile"`` without breaks, the ``"meta"`` device,
            ``"export"`` to other runtimes.
        released: Options with which the authors' code differs from their paper.
        rate_factor: What the recipe's learning rate of the head is multiplied by, where the recipe
            is ``modern`` and nobody names a rate.
    """

    build: Callable[..., OrdinalHead]
    family: str
    summary: str
    reference: str
    decode: str = "mode"
    unsupported: frozenset[str] = frozenset()
    released: tuple[tuple[str, Any], ...] = ()
    rate_factor: float = 1.0


_CPL = "Wang et al., Constrained Proxies Learning, AAAI 2023"
_hard = partial(HeadSpec, family="hard layout", reference=_CPL)
_elastic = partial(
    HeadSpec, family="elastic layout", reference="Layline, after Wang et al., AAAI 2023"
)
_RELEASED_SOFT = (("target", "onehot"), ("unimodal_over", "classes"), ("alpha", 5.0))
_soft = partial(
    HeadSpec,
    family="soft layout",
    reference=_CPL,
    released=_RELEASED_SOFT,
)
_free = partial(HeadSpec, family="no layout", reference=_CPL)
# their code has one temperature; the paper 0.13 for the Binomial and 30 for the exponential
_ONE_TAU = (*_RELEASED_SOFT, ("tau", Poisson.tau))
_FAR = 10.0  # one score and its thresholds have a long way to go: docs/recipes.md, rates on tables
_soft_poisson = partial(cpl.soft, Poisson)
_soft_binomial = partial(cpl.soft, Binomial)
_soft_exponential = partial(cpl.soft, Exponential)


def _by_cosine(build: Callable[..., OrdinalHead]) -> Callable[..., OrdinalHead]:
    return partial(build, similarity="cosine")


_BUILT_IN: dict[str, HeadSpec] = {
    "hard-linear": _hard(
        cpl.hard_linear, summary="proxies on a straight line, Student-t similarity"
    ),
    "hard-semicircular": _hard(
        cpl.hard_semicircular, summary="proxies on half a circle, cosine similarity"
    ),
    "elastic-linear": _elastic(cpl.elastic_linear, summary="a straight line with learned spacing"),
    "elastic-semicircular": _elastic(
        cpl.elastic_semicircular, summary="half a circle with learned spacing"
    ),
    "arc": _elastic(
        cpl.arc,
        summary="half a circle by likelihood, spacing and sharpness learned",
        reference="Layline, from the semicircle of Wang et al., AAAI 2023",
    ),
    "soft-poisson": _soft(_soft_poisson, summary="free proxies held to a Poisson shape"),
    "soft-binomial": _soft(
        _soft_binomial,
        summary="free proxies held to a Binomial shape",
        released=_ONE_TAU,
    ),
    "soft-exponential": _soft(
        _soft_exponential,
        summary="free proxies held to an exponential shape",
        released=_ONE_TAU,
    ),
    "soft-triangular": _soft(
        cpl.soft_triangular, summary="free proxies held to a triangular shape"
    ),
    "soft-poisson-cosine": _soft(_by_cosine(_soft_poisson), summary="soft-poisson, by cosine"),
    "soft-binomial-cosine": _soft(
        _by_cosine(_soft_binomial), summary="soft-binomial, by cosine", released=_ONE_TAU
    ),
    "soft-exponential-cosine": _soft(
        _by_cosine(_soft_exponential), summary="soft-exponential, by cosine", released=_ONE_TAU
    ),
    "soft-triangular-cosine": _soft(
        _by_cosine(cpl.soft_triangular), summary="soft-triangular, by cosine"
    ),
    "unconstrained": _free(
        cpl.unconstrained, summary="free proxies, cross entropy, Student-t similarity"
    ),
    "unconstrained-cosine": _free(
        _by_cosine(cpl.unconstrained), summary="free proxies, cross entropy, cosine similarity"
    ),
    "classification": HeadSpec(
        Classification, "baseline", "a linear layer and cross entropy", "the usual baseline"
    ),
    "regression": HeadSpec(
        Regression,
        "baseline",
        "the rank as a number, with a Laplace or Gaussian around it",
        "the usual baseline",
        decode="median",
    ),
    "sord": HeadSpec(
        Sord,
        "label distribution",
        "cross entropy with labels softened by rank distance",
        "Díaz and Marathe, Soft Labels for Ordinal Regression, CVPR 2019",
    ),
    "dldl-v2": HeadSpec(
        DldlV2,
        "label distribution",
        "a Gaussian label distribution, and the mean at the label",
        "Gao et al., Age Estimation Using Expectation of Label Distribution Learning, IJCAI 2018",
        decode="mean",
    ),
    "mean-variance": HeadSpec(
        MeanVariance,
        "label distribution",
        "cross entropy, the mean at the label, a small variance",
        "Pan et al., Mean-Variance Loss for Deep Age Estimation from a Face, CVPR 2018",
        decode="mean",
    ),
    "emd": HeadSpec(
        Emd,
        "label distribution",
        "squared differences of cumulative probabilities",
        "Hou et al., Squared Earth Mover's Distance-based Loss, arXiv 2016",
    ),
    "cdw": HeadSpec(
        Cdw,
        "label distribution",
        "wrong classes cost by their distance (CDW-CE, OLL)",
        "Polat et al., Class Distance Weighted Cross-Entropy Loss, MIUA 2022",
    ),
    "ranking": HeadSpec(
        Ranking,
        "cumulative",
        "a binary classifier for each threshold",
        "Niu et al., Ordinal Regression with Multiple Output CNN for Age Estimation, CVPR 2016",
        decode="median",
    ),
    "coral": HeadSpec(
        Coral,
        "cumulative",
        "binary classifiers that share one weight vector",
        "Cao et al., Rank Consistent Ordinal Regression for Neural Networks, "
        "Pattern Recognition Letters 2020",
        decode="median",
        rate_factor=_FAR,
    ),
    "corn": HeadSpec(
        Corn,
        "cumulative",
        "a chain of conditional binary classifiers",
        "Shi et al., Deep Neural Networks for Rank-Consistent Ordinal Regression Based on "
        "Conditional Probabilities, arXiv 2021",
        decode="median",
    ),
    "proportional-odds": HeadSpec(
        ProportionalOdds,
        "cumulative",
        "one score, learned ordered cut points, logistic noise",
        "McCullagh, Regression Models for Ordinal Data, "
        "Journal of the Royal Statistical Society B 1980",
        rate_factor=_FAR,
    ),
    "stick-breaking": HeadSpec(
        StickBreaking,
        "cumulative",
        "each rank in turn takes its share of what is left",
        "Liu et al., Unimodal Regularized Neuron Stick-Breaking for Ordinal Classification, "
        "Neurocomputing 2020",
    ),
    "unimodal-poisson": HeadSpec(
        UnimodalPoisson,
        "unimodal",
        "one number places a Poisson with a learned temperature",
        "Beckham & Pal, Unimodal Probability Distributions for Deep Ordinal Classification, "
        "ICML 2017",
    ),
    "unimodal-binomial": HeadSpec(
        UnimodalBinomial,
        "unimodal",
        "one number places a Binomial with a learned temperature",
        "Beckham & Pal, Unimodal Probability Distributions for Deep Ordinal Classification, "
        "ICML 2017",
    ),
    "unimodal-pom": HeadSpec(
        UnimodalPOM,
        "unimodal",
        "a normal distribution over equal cells, optimal transport loss",
        "Shaham et al., Deep Ordinal Regression using Optimal Transport Loss and Unimodal Output "
        "Probabilities, arXiv 2020",
    ),
    "poe": HeadSpec(
        POE,
        "embedding",
        "a Gaussian embedding of each sample, ordered by triplets",
        "Li et al., Learning Probabilistic Ordinal Embeddings for Uncertainty-Aware Regression, "
        "CVPR 2021",
    ),
    "cnnpor": HeadSpec(
        CNNPOR,
        "embedding",
        "cross entropy with a pairwise hinge between adjacent classes",
        "Liu et al., A Constrained Deep Neural Network for Ordinal Regression, CVPR 2018",
    ),
    "gp-dnnor": HeadSpec(
        GPDNNOR,
        "Gaussian process",
        "a sparse Gaussian process with an ordinal likelihood",
        "Liu et al., Probabilistic Deep Ordinal Regression Based on Gaussian Processes, ICCV 2019",
        unsupported=frozenset({"compile", "meta"}),
    ),
    "proxy-anchor": HeadSpec(
        ProxyAnchor,
        "embedding",
        "one free proxy per class, Proxy-Anchor loss",
        "Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020",
        unsupported=frozenset({"meta"}),
    ),
    "soft-triple": HeadSpec(
        SoftTriple,
        "embedding",
        "several free proxies per class, SoftTriple loss",
        "Qian et al., SoftTriple Loss: Deep Metric Learning Without Triplet Sampling, ICCV 2019",
    ),
}


PLUGIN_FAMILY = "plug-in"


def _adopt(name: str, found: Any) -> HeadSpec:
    """Make an entry from what a plug-in has: an entry, a class of heads, or a function."""
    if isinstance(found, HeadSpec):
        return found
    is_head = isinstance(found, type) and issubclass(found, OrdinalHead)
    if is_head and inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise TypeError(f"a subclass of OrdinalHead that has {missing}")
    if not is_head and (isinstance(found, type) or not callable(found)):
        raise TypeError("a subclass of OrdinalHead, a HeadSpec or a function that gives a head")
    return HeadSpec(found, PLUGIN_FAMILY, first_line(found), "a plug-in")


HEADS: Registry[HeadSpec] = Registry(
    "heads", "method", _BUILT_IN, _adopt, reserved=("num_classes", "dim")
)

DEFAULT_METHOD = "arc"
"""What the command, a configuration and the estimator take if the user does not say."""


def names() -> tuple[str, ...]:
    """List the methods: those that are built in, and those of plug-ins."""
    return tuple(HEADS)


def options_of(name: str) -> tuple[str, ...]:
    """List the options that a method takes by name."""
    return HEADS.options_of(name)


def create(
    name: str | type[OrdinalHead] | HeadSpec | Callable[..., OrdinalHead],
    num_classes: int,
    dim: int = 512,
    **options: Any,
) -> OrdinalHead:
    """Make a head by name.

    Args:
        name: One of :func:`names`, or a class, a spec or a function that makes a head from
            ``num_classes`` and ``dim``.
        num_classes: K.
        dim: Dimension d of the features.
        **options: The method's own options, such as ``alpha`` or ``norm``.
    """
    called, spec = find(name)
    check_integer("num_classes", num_classes, 2, "one class needs no classifier")
    check_integer("dim", dim, 1, "it is the length of a feature")
    HEADS.check_options(called, spec, options)
    if called in HEADS.builtin:
        return spec.build(num_classes, dim, **options)
    return _built_outside(called, spec, num_classes, dim, options)


def find(
    name: str | type[OrdinalHead] | HeadSpec | Callable[..., OrdinalHead],
) -> tuple[str, HeadSpec]:
    """Give what a method is called, and its entry, from its name or from the method itself."""
    if isinstance(name, str):
        return name, HEADS.find(name)
    called = getattr(name, "__name__", type(name).__name__)
    try:
        return called, _adopt(called, name)
    except TypeError as error:
        raise UserError(f"method must be a name, or {error}, got {name!r}") from None


def _built_outside(
    called: str, spec: HeadSpec, num_classes: int, dim: int, options: dict[str, Any]
) -> OrdinalHead:
    """Make a head of a plug-in, and see that it is one."""
    try:
        head: Any = spec.build(num_classes, dim, **options)
    except TypeError as error:
        raise UserError(
            f"{called} must take num_classes, dim and its options, got an error ({error})"
        ) from error
    except (RuntimeError, NotImplementedError) as error:
        if torch.get_default_device().type != "meta":
            raise
        raise UserError(
            f"{called} must be made without looking at values, got an error ({error}): if it has "
            'to, give a HeadSpec with unsupported=frozenset({"meta"})'
        ) from error
    if not isinstance(head, OrdinalHead):
        raise UserError(
            f"{called} must give an OrdinalHead, got {type(head).__name__}: derive it from "
            "layline.OrdinalHead"
        )
    if (head.num_classes, head.dim) != (num_classes, dim):
        raise UserError(
            f"{called} must be made for {num_classes} classes and dim={dim}, got "
            f"{head.num_classes} and {head.dim}: pass both on"
        )
    return head


__all__ = [
    "DEFAULT_METHOD",
    "HEADS",
    "Classification",
    "ConstrainedProxies",
    "HeadSpec",
    "LinearHead",
    "OrdinalHead",
    "create",
    "find",
    "names",
    "options_of",
]
