"""The ordinal methods by name.

To add one: write its file, one entry in ``_BUILT_IN`` and its source in ``_REFERENCES``. Plug-ins
add others, see :mod:`layline.utils.registry`.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layline.geometry.smoothings import Poisson
from layline.heads.base import Classification, HasProxies, LinearHead, OrdinalHead
from layline.heads.committee import Committee, ProxyCommittee
from layline.heads.constrained_proxies import VARIANTS, ConstrainedProxies, Variant
from layline.heads.cumulative import Coral, Corn, ProportionalOdds, Ranking, StickBreaking
from layline.heads.gp_dnnor import GPDNNOR
from layline.heads.joint_layout import JointLayout, make_joint_layout
from layline.heads.label_distribution import Cdw, DldlV2, Emd, MeanVariance, Sord
from layline.heads.metric_learning import ProxyAnchor, SoftTriple
from layline.heads.pairs import CNNPOR, POE
from layline.heads.unimodal import Regression, UnimodalBinomial, UnimodalPoisson, UnimodalPOM
from layline.utils.registry import Registry, first_line
from layline.utils.validation import UserError


@dataclass(frozen=True)
class HeadSpec:
    """An entry of the registry."""

    build: Callable[..., OrdinalHead]  # takes num_classes, dim and the method's own options
    family: str
    summary: str  # in one line
    reference: str = ""  # its source, with the year
    decode: str = "mode"  # the decoding that is the method's own decision rule
    exports: bool = True  # whether it can be exported to ONNX
    released: tuple[tuple[str, Any], ...] = ()  # options with which the authors' code differs
    rate_factor: float = 1.0  # for the default learning rate of the head in the recipe modern


Method = str | type[OrdinalHead] | HeadSpec | Callable[..., OrdinalHead]


def _describe_variant(name: str, variant: Variant) -> HeadSpec:
    released: tuple[tuple[str, Any], ...] = ()
    if variant.smoothing is not None:
        released = (("target", "onehot"), ("unimodal_over", "classes"), ("alpha", 5.0))
        if "binomial" in name or "exponential" in name:
            released += (("tau", Poisson.tau),)  # the authors' code has one temperature for all
    reference = "Wang et al., Constrained Proxies Learning, AAAI 2023"
    if variant.family == "elastic layout":
        reference = "Layline, after Wang et al., AAAI 2023"
    return HeadSpec(variant, variant.family, variant.summary, reference, released=released)


# a single score and its thresholds start far from their optimum, see docs/recipes.md
_FAR = 10.0
_LABELS, _CUMULATIVE, _UNIMODAL = "label distribution", "cumulative", "unimodal"
_EMBEDDING = "embedding"


def _spec(build: type[OrdinalHead], family: str, **more: Any) -> HeadSpec:
    """Make an entry whose summary is the first line of the class's docstring."""
    summary = first_line(build)
    return HeadSpec(build, family, summary[0].lower() + summary[1:], **more)


def make_committee(
    num_classes: int,
    dim: int = 512,
    members: Sequence[str] = ("ranking", "regression", "hard-semicircular", "classification"),
) -> Committee:
    """Make a committee of methods with their default options, by name."""
    if isinstance(members, str) or len(members) == 0:
        raise UserError(f"members must be a list of methods, got {members!r}")
    heads = [create(name, num_classes, dim) for name in members]
    has_proxies = any(isinstance(head, HasProxies) for head in heads)
    return ProxyCommittee(heads) if has_proxies else Committee(heads)


_BUILT_IN: dict[str, HeadSpec] = {
    "committee": HeadSpec(make_committee, "committee", first_line(Committee).lower()),
    "joint-layout": HeadSpec(
        make_joint_layout,
        "fixed layout",
        "proxies on a fixed line and at the corners of a simplex at once",
    ),
    "classification": _spec(Classification, "baseline"),
    "regression": _spec(Regression, "baseline", decode="median"),
    "sord": _spec(Sord, _LABELS),
    "dldl-v2": _spec(DldlV2, _LABELS, decode="mean"),
    "mean-variance": _spec(MeanVariance, _LABELS, decode="mean"),
    "emd": _spec(Emd, _LABELS),
    "cdw": _spec(Cdw, _LABELS),
    "ranking": _spec(Ranking, _CUMULATIVE, decode="median"),
    "coral": _spec(Coral, _CUMULATIVE, decode="median", rate_factor=_FAR),
    "corn": _spec(Corn, _CUMULATIVE, decode="median"),
    "proportional-odds": _spec(ProportionalOdds, _CUMULATIVE, rate_factor=_FAR),
    "stick-breaking": _spec(StickBreaking, _CUMULATIVE),
    "unimodal-poisson": _spec(UnimodalPoisson, _UNIMODAL, exports=False),
    "unimodal-binomial": _spec(UnimodalBinomial, _UNIMODAL, exports=False),
    "unimodal-pom": _spec(UnimodalPOM, _UNIMODAL, exports=False),
    "poe": _spec(POE, _EMBEDDING),
    "cnnpor": _spec(CNNPOR, _EMBEDDING),
    "proxy-anchor": _spec(ProxyAnchor, _EMBEDDING),
    "soft-triple": _spec(SoftTriple, _EMBEDDING),
    "gp-dnnor": _spec(GPDNNOR, "Gaussian process", exports=False),
}
_BECKHAM = "Beckham and Pal, Unimodal Probability Distributions, ICML 2017"
_REFERENCES = {
    "committee": "Layline; its members are published methods",
    "joint-layout": "Layline, after Wang et al., AAAI 2023",
    "classification": "the usual baseline",
    "regression": "the usual baseline",
    "sord": "Díaz and Marathe, Soft Labels for Ordinal Regression, CVPR 2019",
    "dldl-v2": "Gao et al., Expectation of Label Distribution Learning, IJCAI 2018",
    "mean-variance": "Pan et al., Mean-Variance Loss, CVPR 2018",
    "emd": "Hou et al., Squared Earth Mover's Distance-based Loss, arXiv 2016",
    "cdw": "Polat et al., Class Distance Weighted Cross-Entropy Loss, MIUA 2022",
    "ranking": "Niu et al., Ordinal Regression with Multiple Output CNN, CVPR 2016",
    "coral": "Cao et al., Rank Consistent Ordinal Regression, Pattern Recognition Letters 2020",
    "corn": "Shi et al., Rank-Consistent Ordinal Regression by Conditional Probabilities, "
    "arXiv 2021",
    "proportional-odds": "McCullagh, Regression Models for Ordinal Data, JRSS B 1980",
    "stick-breaking": "Liu et al., Unimodal Regularized Neuron Stick-Breaking, Neurocomputing 2020",
    "unimodal-poisson": _BECKHAM,
    "unimodal-binomial": _BECKHAM,
    "unimodal-pom": "Shaham et al., Deep Ordinal Regression using Optimal Transport Loss, "
    "arXiv 2020",
    "poe": "Li et al., Learning Probabilistic Ordinal Embeddings, CVPR 2021",
    "cnnpor": "Liu et al., A Constrained Deep Neural Network for Ordinal Regression, CVPR 2018",
    "gp-dnnor": "Liu et al., Probabilistic Deep Ordinal Regression Based on Gaussian Processes, "
    "ICCV 2019",
    "proxy-anchor": "Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020",
    "soft-triple": "Qian et al., SoftTriple Loss, ICCV 2019",
}


def _adopt(name: str, found: Any) -> HeadSpec:
    """Make an entry from an object of a plug-in: an entry, a class of heads, or a function."""
    if isinstance(found, HeadSpec):
        return found
    is_head = isinstance(found, type) and issubclass(found, OrdinalHead)
    if is_head and inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise TypeError(f"a subclass of OrdinalHead that has {missing}")
    if not is_head and (isinstance(found, type) or not callable(found)):
        raise TypeError("a subclass of OrdinalHead, a HeadSpec or a function that makes a head")
    return HeadSpec(found, "plug-in", first_line(found), "a plug-in")


HEADS: Registry[HeadSpec] = Registry(
    "heads",
    "method",
    {name: _describe_variant(name, variant) for name, variant in VARIANTS.items()}
    | {name: replace(spec, reference=_REFERENCES[name]) for name, spec in _BUILT_IN.items()},
    _adopt,
    reserved=("num_classes", "dim"),
)
names = HEADS.names
options_of = HEADS.options_of

AUTO = "auto"  # the default of the command line and the estimator: one of the next two
FEW_LABELS_METHOD = "joint-layout"
DEFAULT_METHOD = "committee"


def resolve_auto(name: Any) -> Any:
    """Return the method, or the default one with many labels if it is ``auto``."""
    return DEFAULT_METHOD if isinstance(name, str) and name == AUTO else name


def create(name: Method, num_classes: int, dim: int = 512, **options: Any) -> OrdinalHead:
    """Make a head by name.

    Args:
        name: One of :func:`names`, or a class, a spec or a function that makes a head from
            ``num_classes`` and ``dim``.
        num_classes: K.
        dim: Dimension d of the features.
        **options: The method's own options, such as ``alpha`` or ``norm``.
    """
    method, spec = find(name)
    HEADS.check_options(method, spec, options)
    head: Any = spec.build(num_classes, dim, **options)
    if not isinstance(head, OrdinalHead) or (head.num_classes, head.dim) != (num_classes, dim):
        raise UserError(
            f"{method} must make an OrdinalHead for {num_classes} classes and dim={dim}, "
            f"got {head!r}"
        )
    return head


def find(name: Method) -> tuple[str, HeadSpec]:
    """Return the name and the entry of a method, from its name or from the method itself."""
    if isinstance(name, str):
        return name, HEADS.find(name)
    own_name = getattr(name, "__name__", type(name).__name__)
    try:
        return own_name, _adopt(own_name, name)
    except TypeError as error:
        raise UserError(f"method must be a name, or {error}, got {name!r}") from None


__all__ = [
    "AUTO",
    "DEFAULT_METHOD",
    "FEW_LABELS_METHOD",
    "HEADS",
    "Classification",
    "Committee",
    "ConstrainedProxies",
    "HeadSpec",
    "JointLayout",
    "LinearHead",
    "OrdinalHead",
    "create",
    "find",
    "names",
    "options_of",
    "resolve_auto",
]
