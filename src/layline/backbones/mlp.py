r"""The network for tables: a perceptron on columns and their piecewise-linear encoding.

The last layer sees the hidden units and, beside them, the columns themselves: with few labels the
linear part is better than any hidden layer, with many labels the hidden layers take over.

The range of a numeric column is cut at quantiles of the training rows into bins with the edges
:math:`b_0 < b_1 < \dots < b_B`. A value x becomes one number per bin (Gorishniy et al., On
Embeddings for Numerical Features in Tabular Deep Learning, NeurIPS 2022):

.. math:: e_t(x) = \min\Bigl(\max\Bigl(\frac{x - b_{t-1}}{b_t - b_{t-1}}, 0\Bigr), 1\Bigr)

A linear layer on :math:`e(x)` is any piecewise-linear function of x with these knots. Its weights
start at zero, so the network starts as a plain perceptron, and outside of the bins only the linear
part of the column goes on.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.backbones.base import (
    DropoutLinear,
    KernelOptions,
    TableBackbone,
    check_dropout,
    last_layer_options,
    make_last_layer,
)
from layline.utils.validation import UserError, check_integer


def choose_layers(count: int) -> dict[str, Any]:
    """Choose the hidden layers and their dropout by the number of training rows."""
    if count < 1000:
        return {"hidden": (128,), "dropout": 0.2}
    return {"hidden": (128, 128), "dropout": 0.0}


class PiecewiseLinear(nn.Module):
    """Encode columns by bins, and apply a linear layer that starts at zero.

    Args:
        columns: The columns to encode.
        bins: Largest number of bins of a column; one with fewer has bins of slope zero.
        width: Number of outputs.
    """

    left: Tensor
    slope: Tensor
    columns: Tensor

    def __init__(self, columns: Sequence[int], bins: int, width: int) -> None:
        super().__init__()
        self.register_buffer("columns", torch.tensor(columns, dtype=torch.int64), persistent=False)
        self.register_buffer("left", torch.zeros(len(columns), bins))
        self.register_buffer("slope", torch.zeros(len(columns), bins))
        self.weight = nn.Parameter(torch.zeros(width, len(columns) * bins))

    def forward(self, x: Float[Tensor, "n columns"]) -> Float[Tensor, "n width"]:
        """Map standardized columns to the sum of a piecewise-linear function of each of them."""
        encoded = ((x[:, self.columns, None] - self.left) * self.slope).clamp(0, 1)
        return F.linear(encoded.flatten(1), self.weight)


class MLP(TableBackbone):
    """A multilayer perceptron on standardized and piecewise-linearly encoded columns.

    The columns are standardized first, in float64, and then cast to the dtype of the weights: a
    time stamp keeps its seconds, which float32 would round to minutes.

    Args:
        in_features: Number of columns.
        dim: Dimension d of the features.
        hidden: Widths of the hidden layers; empty for a linear map.
        dropout: Dropout rate after each hidden layer.
        bins: Largest number of bins of a column; 0 for no encoding.
        encoded: The columns that are encoded; by default those with more than two values in
            :meth:`fit_scale`.
        linear: Whether the last layer also sees the columns themselves.
        kernel: Options of a :class:`KernelLayer` as the last layer.
    """

    name = "mlp"
    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        in_features: int,
        dim: int,
        hidden: Sequence[int] = (128,),
        dropout: float = 0.2,
        bins: int = 16,
        encoded: Sequence[int] = (),
        linear: bool = True,
        kernel: KernelOptions | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(hidden, Sequence):
            raise UserError(f"hidden must be a sequence, got {hidden!r}: write (128,)")
        check_integer("in_features", in_features, 1)
        check_integer("bins", bins, 0, "0 turns the encoding off", most=1000)
        for column in encoded:
            check_integer("encoded", column, 0, "it is the index of a column", most=in_features - 1)
        for width in hidden:
            check_integer("hidden", width, 1, "it is the width of a layer", most=10_000)
        self.register_buffer("mean", torch.zeros(in_features, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(in_features, dtype=torch.float64))
        self.bins = bins if hidden else 0
        self.encoding: PiecewiseLinear | None
        self.register_module("encoding", None)
        if encoded:
            self.encoding = PiecewiseLinear(encoded, self.bins, hidden[0])
        layers: list[nn.Module] = []
        for before, after in pairwise([in_features, *hidden]):
            # dropout in front of every layer except the first
            layers += [DropoutLinear(before, after, dropout if layers else 0.0), nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        width = [in_features, *hidden][-1]
        check_dropout("dropout", dropout)
        self.dropout = nn.Dropout(dropout)
        self.linear = linear and bool(hidden)
        self.last = make_last_layer(width + self.linear * in_features, dim, kernel=kernel)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        hidden = [layer.out_features for layer in self.hidden if isinstance(layer, nn.Linear)]
        encoded = [] if self.encoding is None else self.encoding.columns.tolist()
        columns = {"in_features": len(self.mean), "encoded": encoded, "bins": self.bins}
        layers = {"hidden": hidden, "dropout": self.dropout.p, "linear": self.linear}
        return columns | layers | last_layer_options(self.last)

    @torch.no_grad()
    def fit_scale(
        self,
        x: Float[Tensor, "n columns"] | Iterable[Float[Tensor, "n some"]],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> Self:
        """Learn mean, deviation and bins of each column; a constant one is shifted to zero only."""
        blocks = [x] if isinstance(x, Tensor) else x
        means, scales, edges = list[Tensor](), list[Tensor](), list[Tensor]()
        for block in blocks:
            mean, scale = _mean_and_scale(block, sample_weight)
            means, scales = [*means, mean], [*scales, scale]
            if self.bins:
                edges += _find_edges((block.double() - mean) / scale, self.bins, sample_weight)
        self.mean, self.scale = torch.cat(means), torch.cat(scales)
        self.encoding = None
        if encoded := [column for column, own in enumerate(edges) if len(own) > 2]:
            first = self.hidden[0]
            assert isinstance(first, nn.Linear)
            encoding = PiecewiseLinear(encoded, self.bins, first.out_features)
            for place, column in enumerate(encoded):
                left, right = edges[column][:-1], edges[column][1:]
                encoding.left[place, : len(left)] = left
                encoding.slope[place, : len(left)] = 1 / (right - left)
            self.encoding = encoding.to(first.weight)
        return self

    def body(self, x: Float[Tensor, "n columns"]) -> Float[Tensor, "n width"]:
        """Standardize the columns, and compute the last hidden units followed by the columns."""
        standard = ((x - self.mean) / self.scale).to(next(self.parameters()).dtype)
        if len(self.hidden) == 0:
            return standard
        first, *others = self.hidden
        hidden = first(standard)
        if self.encoding is not None:
            hidden = hidden + self.encoding(standard)
        for layer in others:
            hidden = layer(hidden)
        hidden = self.dropout(hidden)
        return torch.cat([hidden, standard], dim=1) if self.linear else hidden

    def _groups(self, coarse: bool) -> Iterable[list[nn.Parameter]]:
        """Return the parameters by layer; the encoding belongs to the first one."""
        groups = list(super()._groups(coarse))
        return groups if self.encoding is None else [groups[0] + groups[1], *groups[2:]]

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
    extent = rows.amax(dim=0) - rows.amin(dim=0)
    # if one row has nearly all of the weight, the others must not become enormous
    scale = (share @ (rows - mean).square()).sqrt().maximum(1e-6 * extent)
    # compared by value: rounding gives a constant 0.1 a deviation above zero
    constant = (extent == 0) | (scale == 0)
    return torch.where(constant, rows[0], mean), torch.where(constant, 1.0, scale)


def _find_edges(
    x: Float[Tensor, "n columns"], bins: int, sample_weight: Float[Tensor, " n"] | None
) -> list[Float[Tensor, " edges"]]:
    """Find the different quantiles of each standardized column, in float32 as they are compared."""
    rows = x.float().cpu().numpy()
    weight = None if sample_weight is None else sample_weight.cpu().numpy()
    levels = np.linspace(0, 1, bins + 1)
    quantiles = np.quantile(rows, levels, axis=0, weights=weight, method="inverted_cdf")
    return [torch.from_numpy(np.unique(column)) for column in quantiles.T]
