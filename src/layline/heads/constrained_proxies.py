r"""Constrained Proxies Learning: a layout, a similarity and a smoothing.

.. math::
    L_H &= L_\text{basic}                              && \text{(12) hard layouts} \\
    L_S &= L_\text{basic} + \alpha\, L_\text{unimodal} && \text{(13) soft layouts}

Beyond the paper the target may be the label, or between the label and Q. A ranked probability score
and a prior :math:`b_k` of each class may be added:

.. math::
    L = (1 - t)\,(-\log P_{k^*}) + t\, L_\text{basic}
        + r \textstyle\sum_k (F_k - \mathbb 1\{k \ge k^*\})^2, \qquad
    P_k \propto e^{\mathrm{sim}(f, p_k) + b_k}

``VARIANTS`` lists the combinations that have a name in the registry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from layline.geometry import SIMILARITIES, Cosine, LearnedScale, Similarity
from layline.geometry import losses as geometry
from layline.geometry.layouts import Free, Layout, Linear, Semicircular
from layline.geometry.similarities import Features, PerClass, PerSample, Proxies, Ranks
from layline.geometry.smoothings import Binomial, Exponential, Poisson, Smoothing, Triangular
from layline.heads.base import OrdinalHead
from layline.utils.validation import (
    UserError,
    check_at_least,
    check_boolean,
    check_known,
    find_known,
)

Target = Literal["proxies", "onehot"] | float
UnimodalOver = Literal["batch", "classes"]


class ConstrainedProxies(OrdinalHead):
    """One proxy per class, on a controlled layout.

    ``ConstrainedProxies(Linear(8, 512), StudentT())`` is ``hard-linear`` for eight classes and
    features of length 512.

    Args:
        layout: Places the proxies.
        similarity: Turns a distance or a cosine into a logit.
        smoothing: The distribution that the unimodal loss pulls Q towards; None for no such loss.
        target: What P should match: ``"proxies"`` is Q, ``"onehot"`` is the label, by cross
            entropy, and a number such as 0.2 is the share t of Q in a mixture of both.
        alpha: Weight α of the unimodal loss.
        unimodal_over: Whether the unimodal loss is averaged over the samples of the ``"batch"``,
            as in the paper, or over all ``"classes"``, so that it also reaches rare ones.
        rps: Weight r of the squared differences of the cumulative probabilities from the label's.
        prior: Whether every class has a learned number that is added to its logit. P is then not
            always unimodal, and the prediction not always the nearest proxy.
    """

    def __init__(
        self,
        layout: Layout,
        similarity: Similarity,
        smoothing: Smoothing | None = None,
        *,
        target: Target = "proxies",
        alpha: float = 6.0,
        unimodal_over: UnimodalOver = "batch",
        rps: float = 0.0,
        prior: bool = False,
    ) -> None:
        if not isinstance(layout, Layout) or not isinstance(similarity, Similarity):
            raise UserError(
                "layout and similarity must be objects such as Linear(8, 512) and StudentT(), got "
                f"{layout!r} and {similarity!r}: heads.create makes a head from names"
            )
        if similarity.measure not in layout.measures:
            raise UserError(
                f"similarity must fit the layout {type(layout).__name__}, got one by "
                f"{similarity.measure}: it supports {' and '.join(sorted(layout.measures))}"
            )
        if smoothing is not None and layout.constant:
            raise UserError(
                f"smoothing must be None for this {type(layout).__name__}, got {smoothing}: "
                "its proxies keep their distances, so there is nothing to smooth"
            )
        shares: dict[Any, float] = {"proxies": 1.0, "onehot": 0.0}
        if target not in shares and not (isinstance(target, float | int) and 0 <= target <= 1):
            raise UserError(
                f"target must be 'proxies', 'onehot' or the share of Q from 0 to 1, got {target!r}"
            )
        check_at_least("rps", rps, 0, "it is the weight of the ranked probability score")
        check_boolean("prior", prior)
        check_known("unimodal_over", unimodal_over, ("batch", "classes"))
        check_at_least("alpha", alpha, 0, "it is the weight of the unimodal loss")
        super().__init__(layout.num_classes, layout.dim)
        self.layout, self.similarity, self.smoothing = layout, similarity, smoothing
        self.target, self.alpha, self.rps = target, alpha, rps
        self.unimodal_over = unimodal_over
        self._share_of_q = float(shares.get(target, target))
        self.prior = nn.Parameter(torch.zeros(layout.num_classes)) if prior else None

    def proxies(self) -> Proxies:
        """Return the proxies, in label order."""
        return self.layout.proxies()

    def _log_probs(self, features: Features) -> PerClass:
        return geometry.log_p(self.layout, self.similarity, features, self.prior)

    def _mode(self, features: Features, log_probs: PerClass | None) -> Ranks:
        if self.prior is not None:
            return super()._mode(features, log_probs)
        return self.layout.nearest(self.similarity.measure, features)

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        """Compute equation (12), or equation (13) with a smoothing, and the layout's penalty."""
        log_p, share = self._log_probs(features), self._share_of_q
        if share < 1:
            losses = F.nll_loss(log_p, ranks, reduction="none")
        if share > 0 or self.smoothing is not None:
            # rows for all classes, or for the samples one by one, whichever are fewer
            by_class = self.num_classes <= len(ranks) or self.unimodal_over == "classes"
            rows = torch.arange(self.num_classes, device=ranks.device) if by_class else ranks
            # without a unimodal loss Q needs no gradient
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.smoothing is not None):
                log_q = geometry.log_q(self.layout, self.similarity, rows)
        if share > 0:
            target = log_q.index_select(0, ranks) if by_class else log_q
            basic = geometry.basic_loss(target, log_p)
            losses = torch.lerp(losses, basic, share) if share < 1 else basic
        if self.rps:
            losses = losses + self.rps * geometry.squared_emd(log_p.exp(), ranks)
        if self.smoothing is not None:
            # terms below e^-60 are negligible, and arithmetic with denormal numbers is slow
            log_u = self.smoothing.log_u(rows, self.num_classes).clamp(min=-60).to(log_q.dtype)
            unimodal = geometry.kl(log_u, log_q)  # equation (11)
            if self.unimodal_over == "classes":
                unimodal = unimodal.mean()
            elif by_class:
                unimodal = unimodal.index_select(0, ranks)
            losses = losses + self.alpha * unimodal
        return losses + self.layout.penalty()


@dataclass(frozen=True)
class Variant:
    """A named combination of layout, similarity and smoothing; calling it makes the head.

    ``options`` are those that the method takes, with their defaults.
    """

    family: str
    layout: type[Layout]
    options: Mapping[str, Any]
    summary: str
    smoothing: type[Smoothing] | None = None

    def __call__(self, num_classes: int, dim: int = 512, **options: Any) -> ConstrainedProxies:
        """Make the head."""
        chosen = {**self.options, **options}

        def pick(*names: str) -> dict[str, Any]:
            return {name: chosen[name] for name in names if chosen.get(name) is not None}

        similarity: Any = find_known("similarity", chosen["similarity"], SIMILARITIES)
        if similarity is not Cosine and chosen.get("scale") is not None:
            raise UserError("scale must be left out unless the similarity is cosine")
        similarity = similarity(**pick("scale"))
        check_boolean("learn_scale", chosen.get("learn_scale", False))
        layout: Any = self.layout
        return ConstrainedProxies(
            layout(num_classes, dim, **pick("norm", "stiffness")),
            LearnedScale(similarity) if chosen.get("learn_scale") else similarity,
            None if self.smoothing is None else self.smoothing(**pick("tau", "a", "b")),
            **pick("target", "alpha", "unimodal_over", "rps", "prior"),
        )

    @property
    def __signature__(self) -> Signature:
        """The options as keyword arguments, for ``inspect.signature``."""
        sizes = list(signature(self.__call__).parameters.values())[:2]
        options = self.options.items()
        own = [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in options]
        return Signature([*sizes, *own])


_LINE: dict[str, Any] = {"similarity": "student-t", "norm": None}
_COSINE = {"similarity": "cosine", "scale": None}
_HARD: dict[str, Any] = {"target": "proxies"}
_ELASTIC = {**_HARD, "learn_scale": False, "rps": 0.0, "prior": False}
_LEARNED = {"learn_scale": True, "stiffness": 0.3, "target": 0.2, "rps": 0.5, "prior": True}
_FREE = {"similarity": "student-t", "scale": None, "target": "onehot"}
_SOFT = {**_FREE, "target": "proxies", "alpha": 6.0, "unimodal_over": "batch"}
_TAU = {**_SOFT, "tau": None}
_TRIANGLE = {**_SOFT, "a": Triangular.a, "b": Triangular.b}

_hard, _elastic = partial(Variant, "hard layout"), partial(Variant, "elastic layout")
_soft, _unconstrained = partial(Variant, "soft layout", Free), partial(Variant, "no layout", Free)

VARIANTS: dict[str, Variant] = {
    "hard-linear": _hard(Linear, _LINE | _HARD, "proxies on a straight line, Student-t similarity"),
    "hard-semicircular": _hard(
        Semicircular, _COSINE | _HARD, "proxies on a semicircle, cosine similarity"
    ),
    "elastic-linear": _elastic(
        Linear, _LINE | {"stiffness": 0.1} | _ELASTIC, "a straight line with learned spacing"
    ),
    "elastic-semicircular": _elastic(
        Semicircular, _COSINE | {"stiffness": 1.0} | _ELASTIC, "a semicircle with learned spacing"
    ),
    # docs/method.md derives it, docs/decisions/elastic-spring.md explains its defaults
    "arc": _elastic(
        Semicircular,
        _COSINE | _LEARNED,
        "a semicircle with learned spacing and sharpness, trained by likelihood",
    ),
    "soft-poisson": _soft(_TAU, "free proxies fitted to a Poisson shape", Poisson),
    "soft-binomial": _soft(_TAU, "free proxies fitted to a Binomial shape", Binomial),
    "soft-exponential": _soft(_TAU, "free proxies fitted to an exponential shape", Exponential),
    "soft-triangular": _soft(_TRIANGLE, "free proxies fitted to a triangular shape", Triangular),
    "soft-poisson-cosine": _soft(_TAU | _COSINE, "soft-poisson, by cosine", Poisson),
    "soft-binomial-cosine": _soft(_TAU | _COSINE, "soft-binomial, by cosine", Binomial),
    "soft-exponential-cosine": _soft(_TAU | _COSINE, "soft-exponential, by cosine", Exponential),
    "soft-triangular-cosine": _soft(_TRIANGLE | _COSINE, "soft-triangular, by cosine", Triangular),
    "unconstrained": _unconstrained(_FREE, "free proxies, cross entropy, Student-t similarity"),
    "unconstrained-cosine": _unconstrained(
        _FREE | _COSINE, "free proxies, cross entropy, cosine similarity"
    ),
}
