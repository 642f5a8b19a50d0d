"""A multilayer perceptron for tables, on standardized columns."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layline.backbones.base import (
    TableBackbone,
    check_dropout,
    last_layer_options,
    make_linear,
)
from layline.utils.errors import UserError
from layline.utils.validation import check_integer


class MLP(TableBackbone):
    """Map the columns of a table to features.

    The columns are standardized first, in the dtype of the input, and then cast to the dtype of
    the weights: a float64 time stamp keeps its seconds, which float32 would round to minutes.

    Args:
        in_features: Number of columns.
        dim: Dimension d of the features.
        hidden: Widths of the hidden layers; empty for a linear map.
        dropout: Dropout rate after each hidden layer.
    """

    name = "mlp"
    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        in_features: int,
        dim: int,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(hidden, Sequence):
            raise UserError(f"hidden must be a sequence, got {hidden!r}: write (128, 128)")
        for name, width in {"in_features": in_features, "dim": dim}.items():
            check_integer(name, width, 1, "a layer has units")
        for width in hidden:
            check_integer("hidden", width, 1, "it is the width of a layer", most=10_000)
        check_dropout("dropout", dropout)
        # float64, so that loading saved statistics keeps their digits
        self.register_buffer("mean", torch.zeros(in_features, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(in_features, dtype=torch.float64))
        layers: list[nn.Module] = []
        for place, (before, after) in enumerate(pairwise([in_features, *hidden])):
            # dropout in front of every layer except the first
            layers += [make_linear(before, after, dropout if place else 0.0), nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.last = make_linear([in_features, *hidden][-1], dim, dropout if hidden else 0.0)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        hidden = [layer.out_features for layer in self.hidden if isinstance(layer, nn.Linear)]
        return {"in_features": len(self.mean), "hidden": hidden} | last_layer_options(self.last)

    @torch.no_grad()
    def fit_scale(
        self,
        x: Float[Tensor, "n columns"] | Iterable[Float[Tensor, "n some"]],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> Self:
        """Learn the mean and the standard deviation of each column from the training rows.

        A constant column is shifted to zero and not scaled.
        """
        blocks = [x] if isinstance(x, Tensor) else x
        statistics = [_mean_and_scale(block, sample_weight) for block in blocks]
        self.mean, self.scale = (torch.cat(parts) for parts in zip(*statistics, strict=True))
        return self

    def body(self, x: Float[Tensor, "n columns"]) -> Float[Tensor, "n width"]:
        """Standardize the columns and pass them through the hidden layers."""
        standard = (x - self.mean) / self.scale
        hidden: Tensor = self.hidden(standard.to(self.dtype))
        return hidden

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast the module, but never cast the statistics, which would lose digits."""
        mean, scale = self.mean, self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.mean.dtype != mean.dtype:
            self.mean, self.scale = mean.to(self.mean.device), scale.to(self.scale.device)
        return self


def _mean_and_scale(
    x: Float[Tensor, "n columns"], sample_weight: Float[Tensor, " n"] | None
) -> tuple[Float[Tensor, " columns"], Float[Tensor, " columns"]]:
    rows = x.double()
    weight = torch.ones(len(x)) if sample_weight is None else sample_weight
    share = (weight.double() / weight.double().sum()).to(rows.device)
    mean = share @ rows
    scale = (share @ (rows - mean).square()).sqrt()
    # if one row has nearly all of the weight, the others must not become enormous
    scale = scale.maximum(1e-6 * (rows.amax(dim=0) - rows.amin(dim=0)))
    # compared by value: rounding gives a constant 0.1 a deviation above zero
    constant = (rows.amax(dim=0) == rows.amin(dim=0)) | (scale == 0)
    return (
        torch.where(constant, rows[0], mean).to(x.dtype),
        torch.where(constant, 1.0, scale).to(x.dtype),
    )
