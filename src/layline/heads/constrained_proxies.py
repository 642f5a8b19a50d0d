r"""Constrained Proxies Learning: a composition of a layout, a similarity and a smoothing.

.. math::
    L_H &= L_\text{basic}                              && \text{(12) hard layouts} \\
    L_S &= L_\text{basic} + \alpha\, L_\text{unimodal} && \text{(13) soft layouts}
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.arguments import check_at_least
from layline.geometry import (
    LAYOUTS,
    SIMILARITIES,
    SMOOTHINGS,
    Layout,
    Similarity,
    Smoothing,
    divergence,
    fused,
)
from layline.heads.base import OrdinalHead
from layline.heads.constant_table import ConstantTable
from layline.heads.sharing import check_left_out, share_out
from layline.registry import check_known, find

ALPHA = 6.0
UNIMODAL_OVER: Literal["batch"] = "batch"


class ConstrainedProxies(OrdinalHead):
    """One proxy per class, on a controlled layout.

    The proxy methods of the registry are compositions of this class: ``hard-linear`` is the layout
    ``"linear"`` with the similarity ``"student-t"``; ``soft-poisson`` is the layout ``"free"``
    with the smoothing ``"poisson"``.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
        layout: ``"linear"``, ``"semicircular"``, ``"elastic-linear"``,
            ``"elastic-semicircular"`` or ``"free"``.
        similarity: ``"student-t"``, ``"cosine"`` or ``"negative-euclidean"``.
        smoothing: ``"poisson"``, ``"binomial"``, ``"exponential"`` or ``"triangular"``: what the
            unimodal loss holds the proxies to. Without one there is no unimodal loss.
        target: What P is matched to: ``"proxies"``, their own Q, as in equation (3); or
            ``"onehot"``, the label alone, by cross entropy.
        alpha: Weight α of the unimodal loss.
        unimodal_over: What the unimodal loss is averaged over: the samples of the ``"batch"``, or
            all ``"classes"``, which does not starve the rare ones.
        **options: Options of the parts: ``norm`` of the linear layouts (a fixed ‖v_0‖),
            ``stiffness`` of the elastic ones, ``scale`` of the cosine, ``tau`` of the Poisson,
            Binomial and exponential smoothings, ``a`` and ``b`` of the triangular one.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        layout: str = "linear",
        similarity: str = "student-t",
        smoothing: str | None = None,
        target: Literal["proxies", "onehot"] = "proxies",
        alpha: float = ALPHA,
        unimodal_over: Literal["batch", "classes"] = UNIMODAL_OVER,
        **options: float | None,
    ) -> None:
        super().__init__(num_classes, dim)
        check_known("target", target, ("proxies", "onehot"))
        check_known("unimodal_over", unimodal_over, ("batch", "classes"))
        build: dict[str, Callable[..., Any]] = {
            "layout": find("layout", layout, LAYOUTS),
            "similarity": find("similarity", similarity, SIMILARITIES),
        }
        if smoothing is not None:
            build["smoothing"] = find("smoothing", smoothing, SMOOTHINGS)
        given = share_out(options, build)

        self.layout: Layout = build["layout"](num_classes, dim, **given["layout"])
        self.similarity: Similarity = build["similarity"](**given["similarity"])
        self.smoothing: Smoothing | None = None
        if smoothing is not None:
            self.smoothing = build["smoothing"](**given["smoothing"])
        self.target = target
        self.unimodal_over = unimodal_over
        self.alpha = alpha
        self._constants = ConstantTable(num_classes)  # of the fused form
        self._q = ConstantTable(num_classes)
        self._u = ConstantTable(num_classes)

        check_at_least("alpha", alpha, 0, "it is the weight of the unimodal loss")
        if self.smoothing is None:
            check_left_out("alpha", alpha, ALPHA)
            check_left_out("unimodal_over", unimodal_over, UNIMODAL_OVER)
        if self.similarity.measure not in self.layout.measures:
            raise ValueError(
                f"similarity must fit the layout {layout!r}, got {similarity!r}: "
                f"that layout has no {self.similarity.measure}"
            )
        if self.smoothing is not None and self.layout.constant:
            raise ValueError(
                f"smoothing must be None for this {layout!r} layout, got {smoothing!r}: "
                "its proxies keep their distances, so there is nothing to smooth"
            )

    def proxies(self) -> Float[Tensor, "K d"]:
        """Give the proxies, in label order."""
        return self.layout.proxies()

    def extra_repr(self) -> str:
        """Show the composition when the module is printed."""
        parts = f"{super().extra_repr()}, similarity={self.similarity}, target={self.target!r}"
        if self.smoothing is None:
            return parts
        return f"{parts}, smoothing={self.smoothing}, alpha={self.alpha}"

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return divergence.log_p(self.layout, self.similarity, features)

    def _mode(self, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        return self.layout.nearest(self.similarity.measure, features)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        # a compiler finds its own short ways, and torch.func its own derivatives
        as_it_is = torch.compiler.is_compiling() or fused.is_transformed()
        if self.target == "proxies" and not as_it_is:
            losses = self._fused_losses(features, ranks)
        else:
            losses = self._plain_losses(features, ranks)
        tension = self.layout.tension()
        return losses if tension is None else losses + tension

    def _fused_losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        if self.smoothing is not None:
            rows, of_sample = self._rows(ranks)
            log_u, u, u_log_u = self._of_u(self.smoothing, rows, features)
            over_classes = self.unimodal_over == "classes"
            terms = fused.Terms(log_u, u, u_log_u, of_sample, self.alpha, over_classes)
            return fused.soft_losses(self.layout, self.similarity, features, rows, terms)
        form = fused.find(self.layout, self.similarity)
        if form is None:
            return self._plain_losses(features, ranks)
        make = partial(form.constants, self.num_classes, self.similarity)
        constants = self._constants.whole((form, self.similarity), make, features)
        return form.losses(self.layout, self.similarity, features, ranks, constants)

    def _plain_losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        terms: list[Tensor] = []
        log_p = self._log_probs(features)
        if self.target == "onehot":
            terms.append(F.nll_loss(log_p, ranks, reduction="none"))
        if self.target == "proxies" or self.smoothing is not None:
            rows, of_sample = self._rows(ranks)
            if rows is None:
                rows = torch.arange(self.num_classes, device=ranks.device)
            chosen: Tensor | slice = slice(None) if of_sample is None else of_sample
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.smoothing is not None):
                log_q = self._log_q(rows)
            if self.target == "proxies":
                terms.append(divergence.basic_loss(log_q[chosen], log_p))
            if self.smoothing is not None:
                log_u, *_ = self._of_u(self.smoothing, rows, log_q)
                unimodal = divergence.unimodal_loss(log_u, log_q)
                over_classes = self.unimodal_over == "classes"
                terms.append(self.alpha * (unimodal.mean() if over_classes else unimodal[chosen]))
        return reduce(add, terms)

    def _rows(self, ranks: Int[Tensor, " n"]) -> tuple[Tensor | None, Tensor | None]:
        """Choose which rows of Q and U to make, and which of them belongs to each sample.

        There is one row per class. All of them are made, or one per sample, whichever is fewer;
        None stands for all, and for each in turn.
        """
        all_needed = self.smoothing is not None and self.unimodal_over == "classes"
        fewer = self.num_classes <= len(ranks) and not self.layout.constant
        return (None, ranks) if all_needed or fewer else (ranks, None)

    def _log_q(self, ranks: Int[Tensor, " m"]) -> Float[Tensor, "m K"]:
        make = partial(divergence.log_q, self.layout, self.similarity)
        if not self.layout.constant:
            return make(ranks)
        like = self.layout.full_vectors()
        return self._q.table(self.similarity, make, ranks, like)

    def _of_u(
        self, smoothing: Smoothing, ranks: Int[Tensor, " m"] | None, like: Tensor
    ) -> tuple[Tensor, ...]:
        """Give the rows of log U and of U, and Σ U log U of each."""

        def make(ranks: Tensor) -> tuple[Tensor, ...]:
            log_u = smoothing.log_u(ranks, num_classes=self.num_classes)
            u = log_u.exp()
            return log_u, u, (u * log_u).sum(dim=-1)

        return self._u.rows(smoothing, make, ranks, like)
