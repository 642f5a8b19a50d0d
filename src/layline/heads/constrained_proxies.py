r"""Constrained Proxies Learning: a composition of a layout, a similarity and a smoothing.

.. math::
    L_H &= L_\text{basic}                              && \text{(12) hard layouts} \\
    L_S &= L_\text{basic} + \alpha\, L_\text{unimodal} && \text{(13) soft layouts}
"""

import inspect
from collections.abc import Callable, Mapping
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
        given = _share_out(options, build)

        self.layout: Layout = build["layout"](num_classes, dim, **given["layout"])
        self.similarity: Similarity = build["similarity"](**given["similarity"])
        self.smoothing: Smoothing | None = None
        if smoothing is not None:
            self.smoothing = build["smoothing"](**given["smoothing"])
        self.target = target
        self.unimodal_over = unimodal_over
        self.alpha = alpha
        self._q = ConstantTable(num_classes)
        self._u = ConstantTable(num_classes)

        check_at_least("alpha", alpha, 0, "it is the weight of the unimodal loss")
        for name, value, default in (
            ("alpha", alpha, ALPHA),
            ("unimodal_over", unimodal_over, UNIMODAL_OVER),
        ):
            if self.smoothing is None and value != default:
                raise ValueError(
                    f"{name} must be left out where there is no smoothing, got {value!r}: "
                    "it belongs to the unimodal loss"
                )
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
        short = self._fused_losses(features, ranks)
        if short is not None:
            return short
        terms: list[Tensor] = []
        log_p = self._log_probs(features)
        if self.target == "onehot":
            terms.append(F.nll_loss(log_p, ranks, reduction="none"))
        if self.target == "proxies" or self.smoothing is not None:
            rows, of_sample = self._rows(ranks)
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.smoothing is not None):
                log_q = self._log_q(rows)
            if self.target == "proxies":
                terms.append(divergence.basic_loss(log_q[of_sample], log_p))
            if self.smoothing is not None:
                log_u = self._log_u(self.smoothing, rows, log_q.dtype)
                unimodal = divergence.unimodal_loss(log_u, log_q)
                over_classes = self.unimodal_over == "classes"
                terms.append(
                    self.alpha * (unimodal.mean() if over_classes else unimodal[of_sample])
                )
        tension = self.layout.tension()
        if tension is not None:
            terms.append(tension)
        return reduce(add, terms)

    def _fused_losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"] | None:
        """Take the short way, where there is one. A compiler finds its own."""
        form = fused.find(self.layout, self.similarity)
        alone = self.target == "proxies" and self.smoothing is None
        if form is None or not alone or torch.compiler.is_compiling():
            return None
        make = partial(form.constants, self.num_classes, self.similarity)
        constants = self._q.whole((form, self.similarity), make, features.dtype, features.device)
        return form.losses(self.layout, self.similarity, features, ranks, constants)

    def _rows(self, ranks: Int[Tensor, " n"]) -> tuple[Int[Tensor, " m"], Tensor | slice]:
        """Choose which rows of Q and U to make, and which of them belongs to each sample.

        There is one row per class. All of them are made, or one per sample, whichever is fewer.
        """
        all_needed = self.smoothing is not None and self.unimodal_over == "classes"
        fewer = self.num_classes <= len(ranks) and not self.layout.constant
        if all_needed or fewer:
            return torch.arange(self.num_classes, device=ranks.device), ranks
        return ranks, slice(None)

    def _log_q(self, ranks: Int[Tensor, " m"]) -> Float[Tensor, "m K"]:
        make = partial(divergence.log_q, self.layout, self.similarity)
        if not self.layout.constant:
            return make(ranks)
        dtype = torch.promote_types(self.layout.vectors.dtype, torch.float32)
        return self._q.rows(self.similarity, make, ranks, dtype)

    def _log_u(
        self, smoothing: Smoothing, ranks: Int[Tensor, " m"], dtype: torch.dtype
    ) -> Float[Tensor, "m K"]:
        make = partial(smoothing.log_u, num_classes=self.num_classes)
        return self._u.rows(smoothing, make, ranks, dtype)


def _share_out(
    options: Mapping[str, Any], build: Mapping[str, Callable[..., Any]]
) -> dict[str, dict[str, Any]]:
    """Give each part the options that its builder takes by name."""
    takes = {
        part: set(inspect.signature(builder).parameters) - {"num_classes", "dim"}
        for part, builder in build.items()
    }
    known = sorted(set().union(*takes.values()))
    for option, value in options.items():
        if option not in known:
            raise ValueError(
                f"options must be those of the class and, for these parts, "
                f"{', '.join(known) or 'none'}, got {option}={value!r}"
            )
    return {part: {o: options[o] for o in options if o in takes[part]} for part in build}
