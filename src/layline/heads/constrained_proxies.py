r"""Constrained Proxies Learning: a composition of a layout, a similarity and a smoothing.

.. math::
    L_H &= L_\text{basic}                              && \text{(12) hard layouts} \\
    L_S &= L_\text{basic} + \alpha\, L_\text{unimodal} && \text{(13) soft layouts}

Beyond the paper the target may be the label, or between the label and Q; a ranked probability score
and a prior :math:`b_k` of each class may be added:

.. math::
    L = (1 - t)\,(-\log P_{k^*}) + t\, L_\text{basic}
        + r \textstyle\sum_k (F_k - \mathbb 1\{k \ge k^*\})^2, \qquad
    P_k \propto e^{\mathrm{sim}(f, p_k) + b_k}

Below the class stand the compositions that have a name in the registry.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from layline.geometry import SIMILARITIES, Layout, Similarity, Smoothing, divergence
from layline.geometry.constants import ConstantTable
from layline.geometry.layouts import Free, Linear, Semicircular
from layline.geometry.similarities import Cosine, LearnedScale
from layline.geometry.smoothings import Binomial, Exponential, Poisson, Triangular
from layline.heads.base import OrdinalHead
from layline.utils.errors import UserError
from layline.utils.validation import check_at_least, check_boolean, check_known, find_known

Target = Literal["proxies", "onehot"] | float
UnimodalOver = Literal["batch", "classes"]


class ConstrainedProxies(OrdinalHead):
    """One proxy per class, on a controlled layout.

    ``ConstrainedProxies(Linear(8, 512), StudentT())`` is ``hard-linear`` for eight classes and
    features of length 512; ``ConstrainedProxies(Free(8, 512), StudentT(), Poisson())`` is
    ``soft-poisson``.

    Args:
        layout: Where the proxies lie. It has the number of classes and the dimension.
        similarity: What makes a logit of a distance or a cosine.
        smoothing: What the unimodal loss holds the proxies to. Without one there is no such loss.
        target: What P is matched to: ``"proxies"``, their own Q; or ``"onehot"``, the label alone,
            by cross entropy; or the share t of Q between the two, such as 0.2.
        alpha: Weight α of the unimodal loss; 6 if it is left out, as in the paper.
        unimodal_over: What the unimodal loss is averaged over: the samples of the ``"batch"``, as
            in the paper and if it is left out, or all ``"classes"``, which does not starve the
            rare ones.
        rps: Weight r of the squared differences of the cumulative probabilities from the label's.
        prior: Whether every class has a learned number that is added to its logit. P is then no
            longer unimodal for certain, and the prediction no longer the nearest proxy.
    """

    def __init__(
        self,
        layout: Layout,
        similarity: Similarity,
        smoothing: Smoothing | None = None,
        *,
        target: Target = "proxies",
        alpha: float | None = None,
        unimodal_over: UnimodalOver | None = None,
        rps: float = 0.0,
        prior: bool = False,
    ) -> None:
        _check_part("layout", layout, Layout, "Linear(8, 512)")
        _check_part("similarity", similarity, Similarity, "StudentT()")
        if smoothing is None:
            _check_left_out("alpha", alpha)
            _check_left_out("unimodal_over", unimodal_over)
        else:
            _check_part("smoothing", smoothing, Smoothing, "Poisson(0.11)")
            if layout.constant:
                raise UserError(
                    f"smoothing must be None for this {type(layout).__name__}, got {smoothing}: "
                    "its proxies keep their distances, so there is nothing to smooth"
                )
        layout.check_measure(similarity.measure)
        super().__init__(layout.num_classes, layout.dim)
        self.layout = layout
        self.similarity = similarity
        self.smoothing = smoothing
        self.target = target
        self.alpha = 6.0 if alpha is None else alpha
        self.unimodal_over = "batch" if unimodal_over is None else unimodal_over
        self.rps = rps
        self._table_of_u = ConstantTable(layout.num_classes)
        self._share_of_q = _checked_share(target)
        check_at_least("rps", rps, 0, "it is the weight of the ranked probability score")
        check_boolean("prior", prior)
        zeros = torch.zeros(layout.num_classes)
        self.prior: nn.Parameter | None = nn.Parameter(zeros) if prior else None
        check_known("unimodal_over", self.unimodal_over, ("batch", "classes"))
        check_at_least("alpha", self.alpha, 0, "it is the weight of the unimodal loss")

    def reset_parameters(self) -> None:
        """Draw the vectors of the layout anew; all else goes back to where it starts."""
        self.layout.reset_parameters()
        if isinstance(self.similarity, LearnedScale):
            self.similarity.reset_parameters()
        if self.prior is not None:
            nn.init.zeros_(self.prior)

    def no_weight_decay(self) -> set[str]:
        """Name all: places, steps and a scale are what the geometry is, and have no zero."""
        return {name for name, _ in self.named_parameters()}

    def proxies(self) -> Float[Tensor, "K d"]:
        """Give the proxies, in label order."""
        return self.layout.proxies()

    def extra_repr(self) -> str:
        """Show the composition when the module is printed."""
        parts = f"{super().extra_repr()}, target={self.target!r}"
        if not isinstance(self.similarity, nn.Module):  # which is printed as a child
            parts = f"{parts}, similarity={self.similarity}"
        if self.rps:
            parts = f"{parts}, rps={self.rps}"
        if self.smoothing is None:
            return parts
        return f"{parts}, smoothing={self.smoothing}, alpha={self.alpha}"

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        log_p = divergence.log_p(self.layout, self.similarity, features)
        if self.prior is None:
            return log_p
        return torch.log_softmax(log_p + self.prior.to(log_p.dtype), dim=-1)

    def _mode(
        self, features: Float[Tensor, "n d"], log_probs: Float[Tensor, "n K"] | None
    ) -> Int[Tensor, " n"]:
        if self.prior is not None:
            return super()._mode(features, log_probs)
        return self.layout.nearest(self.similarity.measure, features)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        """Compute equation (12), or equation (13) where there is a smoothing.

        The penalty of the layout is added, if it has one.
        """
        losses = self._losses_in_one_step(features, ranks)
        if losses is None:
            log_p, share = self._log_probs(features), self._share_of_q
            if share > 0 or self.smoothing is not None:
                rows, own = self._rows_of_q(ranks)
                log_q = self._log_q(rows)
            if share == 1:
                losses = divergence.basic_loss(log_q[own], log_p)
            else:
                losses = F.nll_loss(log_p, ranks, reduction="none")
                if share > 0:
                    losses = torch.lerp(losses, divergence.basic_loss(log_q[own], log_p), share)
            if self.rps:
                losses = losses + self.rps * divergence.squared_emd(log_p.exp(), ranks)
            if self.smoothing is not None:
                log_u = self._log_u(self.smoothing, rows, log_q)
                unimodal = divergence.unimodal_loss(log_u, log_q)
                over_classes = self.unimodal_over == "classes"
                losses = losses + self.alpha * (unimodal.mean() if over_classes else unimodal[own])
        penalty = self.layout.penalty()
        return losses if penalty is None else losses + penalty

    def _losses_in_one_step(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"] | None:
        """Ask the layout for the basic losses, where they are all there is.

        A compiler finds short ways of its own, and ``torch.func`` its own derivatives.
        """
        plain = self._share_of_q == 1 and not self.rps and self.prior is None
        if not plain or self.smoothing is not None or _is_traced():
            return None
        return self.layout.basic_losses(self.similarity, features, ranks)

    def _rows_of_q(self, ranks: Int[Tensor, " n"]) -> tuple[Int[Tensor, " m"], Tensor | slice]:
        """Choose the classes whose rows of Q and U are made, and which row is each sample's own.

        All classes, or those of the samples one by one, whichever are fewer.
        """
        if self.num_classes <= len(ranks) or self.unimodal_over == "classes":
            return torch.arange(self.num_classes, device=ranks.device), ranks
        return ranks, slice(None)

    def _log_q(self, rows: Int[Tensor, " m"]) -> Float[Tensor, "m K"]:
        """Q learns from the unimodal loss alone: without one it needs no gradient."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.smoothing is not None):
            return divergence.log_q(self.layout, self.similarity, rows)

    def _log_u(
        self, smoothing: Smoothing, rows: Int[Tensor, " m"], like: Tensor
    ) -> Float[Tensor, "m K"]:
        def make(ranks: Tensor) -> Tensor:
            # e^-60 counts for nothing, and arithmetic with numbers that underflow is slow
            return smoothing.log_u(ranks, self.num_classes).clamp(min=-60)

        return self._table_of_u.rows(smoothing, make, rows, like)


def _is_traced() -> bool:
    """Tell whether ``torch.compile``, ``torch.func`` or forward mode is at work."""
    transforms: bool = torch._C._are_functorch_transforms_active()
    return transforms or torch.compiler.is_compiling() or forward_ad._current_level >= 0


def _checked_share(target: Target) -> float:
    """Give the share of Q in the target."""
    if isinstance(target, str):
        return find_known("target", target, {"proxies": 1.0, "onehot": 0.0})
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 <= target <= 1:
        raise UserError(
            f"target must be 'proxies', 'onehot' or a number from 0 to 1, got {target!r}: "
            "a number is the share of Q, the rest is the label's"
        )
    return float(target)


def _check_part(name: str, part: object, kind: type, example: str) -> None:
    if not isinstance(part, kind):
        raise UserError(
            f"{name} must be a {kind.__name__}, such as {example}, got {part!r}: "
            "heads.create makes a head from names"
        )


def _check_left_out(name: str, value: object) -> None:
    if value is not None:
        raise UserError(
            f"{name} must be left out where there is no smoothing, got {value!r}: "
            "it belongs to the unimodal loss"
        )


def hard_linear(
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "student-t",
    norm: float | None = None,
    target: Target = "proxies",
) -> ConstrainedProxies:
    """Put the proxies on a straight line; a given ``norm`` fixes ‖v_0‖."""
    layout = Linear(num_classes, dim, norm=norm)
    return ConstrainedProxies(layout, _similarity(similarity), target=target)


def elastic_linear(
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "student-t",
    norm: float | None = None,
    stiffness: float = 0.1,
    target: Target = "proxies",
    learn_scale: bool = False,
    rps: float = 0.0,
    prior: bool = False,
) -> ConstrainedProxies:
    """Put the proxies on a straight line and learn their steps."""
    check_at_least("stiffness", stiffness, 0, "it is what uneven steps cost")
    layout = Linear(num_classes, dim, norm=norm, stiffness=stiffness)
    compare = _similarity(similarity, learn=learn_scale)
    return ConstrainedProxies(layout, compare, target=target, rps=rps, prior=prior)


def hard_semicircular(
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "cosine",
    scale: float | None = None,
    target: Target = "proxies",
) -> ConstrainedProxies:
    """Put the proxies on half a circle."""
    layout = Semicircular(num_classes, dim)
    return ConstrainedProxies(layout, _similarity(similarity, scale), target=target)


def elastic_semicircular(
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "cosine",
    scale: float | None = None,
    stiffness: float = 1.0,
    target: Target = "proxies",
    learn_scale: bool = False,
    rps: float = 0.0,
    prior: bool = False,
) -> ConstrainedProxies:
    """Put the proxies on half a circle and learn their steps."""
    check_at_least("stiffness", stiffness, 0, "it is what uneven steps cost")
    layout = Semicircular(num_classes, dim, stiffness=stiffness)
    compare = _similarity(similarity, scale, learn=learn_scale)
    return ConstrainedProxies(layout, compare, target=target, rps=rps, prior=prior)


def arc(
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "cosine",
    scale: float | None = None,
    learn_scale: bool = True,
    stiffness: float = 0.3,
    target: Target = 0.2,
    rps: float = 0.5,
    prior: bool = True,
) -> ConstrainedProxies:
    """Put the proxies on half a circle, learn their steps and the scale, train by likelihood.

    ``docs/method.md`` derives it, and ``docs/decisions/elastic-spring.md`` says how its defaults
    were chosen. ``scale`` is where a learned one begins.
    """
    return elastic_semicircular(
        num_classes,
        dim,
        similarity=similarity,
        scale=scale,
        learn_scale=learn_scale,
        stiffness=stiffness,
        target=target,
        rps=rps,
        prior=prior,
    )


def unconstrained(
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "student-t",
    scale: float | None = None,
    target: Target = "onehot",
) -> ConstrainedProxies:
    """Leave the proxies free."""
    layout = Free(num_classes, dim)
    return ConstrainedProxies(layout, _similarity(similarity, scale), target=target)


def soft(
    smoothing: type[Poisson] | type[Binomial] | type[Exponential],
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "student-t",
    scale: float | None = None,
    tau: float | None = None,
    target: Target = "proxies",
    alpha: float | None = None,
    unimodal_over: UnimodalOver | None = None,
) -> ConstrainedProxies:
    """Leave the proxies free, and hold them to a smoothing with a temperature."""
    return ConstrainedProxies(
        Free(num_classes, dim),
        _similarity(similarity, scale),
        smoothing() if tau is None else smoothing(tau),
        target=target,
        alpha=alpha,
        unimodal_over=unimodal_over,
    )


def soft_triangular(
    num_classes: int,
    dim: int = 512,
    *,
    similarity: str = "student-t",
    scale: float | None = None,
    a: float = Triangular.a,
    b: float = Triangular.b,
    target: Target = "proxies",
    alpha: float | None = None,
    unimodal_over: UnimodalOver | None = None,
) -> ConstrainedProxies:
    """Leave the proxies free, and hold them to a triangle."""
    return ConstrainedProxies(
        Free(num_classes, dim),
        _similarity(similarity, scale),
        Triangular(a, b),
        target=target,
        alpha=alpha,
        unimodal_over=unimodal_over,
    )


def _similarity(name: str, scale: float | None = None, *, learn: bool = False) -> Similarity:
    """Make a similarity from its name; the cosine alone has a scale."""
    check_boolean("learn_scale", learn)
    build = find_known("similarity", name, SIMILARITIES)
    if scale is not None and build is not Cosine:
        raise UserError(
            f"scale must be left out for the similarity {name}, got {scale!r}: only cosine has one"
        )
    similarity = build() if scale is None else Cosine(scale)
    return LearnedScale(similarity) if learn else similarity
