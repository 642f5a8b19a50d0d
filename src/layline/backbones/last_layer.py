"""The last layer: what is trained of the features even if their body is frozen.

It is a Linear to ``dim``, or a hidden layer and a Linear. Dropout in front of it belongs to it, not
to the body: the output of a frozen body is computed once, without dropout, and what is dropped of
it changes from step to step.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from layline.utils.errors import UserError
from layline.utils.validation import check_at_least, check_integer


class DropoutLinear(nn.Linear):
    """A Linear with dropout in front, whose tensors are called as those of any Linear.

    Args:
        in_features: Number of units that it gets.
        out_features: Number of units that it gives.
        dropout: Share of the units that it gets which are set to zero in training.
    """

    def __init__(self, in_features: int, out_features: int, dropout: float) -> None:
        super().__init__(in_features, out_features)
        self.dropout = dropout

    def forward(self, x: Float[Tensor, "n width"]) -> Float[Tensor, "n d"]:
        """Drop units, and map the others."""
        return super().forward(drop(x, self.dropout, self.training))

    def extra_repr(self) -> str:
        """Describe it, as PyTorch prints modules."""
        return f"{super().extra_repr()}, dropout={self.dropout}"


class HiddenLayer(nn.Module):
    """Dropout, Linear, GELU, dropout, Linear.

    Args:
        in_features: Number of units that it gets.
        hidden: Number of units between.
        out_features: Number of units that it gives.
        dropout: Share of the units that are set to zero in training, in front of either Linear.
    """

    def __init__(self, in_features: int, hidden: int, out_features: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden = DropoutLinear(in_features, hidden, dropout)
        self.activation = nn.GELU()
        self.out = DropoutLinear(hidden, out_features, dropout)

    @property
    def in_features(self) -> int:
        """Number of units that it gets."""
        return self.hidden.in_features

    @property
    def out_features(self) -> int:
        """Number of units that it gives."""
        return self.out.out_features

    def forward(self, x: Float[Tensor, "n width"]) -> Float[Tensor, "n d"]:
        """Map the output of the body to features."""
        features: Tensor = self.out(self.activation(self.hidden(x)))
        return features


def make_last_layer(
    width: int, dim: int, hidden: int = 0, dropout: float = 0.0
) -> nn.Linear | HiddenLayer:
    """Make the last layer, with random weights.

    Args:
        width: Number of units that the body gives.
        dim: Dimension d of the features.
        hidden: Units of a hidden layer; zero for none.
        dropout: Share of the units in front of each Linear that are set to zero in training.
    """
    check_integer("hidden", hidden, 0, "it is a number of units, and 0 is no hidden layer")
    check_share("dropout", dropout)
    if hidden:
        return HiddenLayer(width, hidden, dim, dropout)
    return make_linear(width, dim, dropout)


def make_linear(before: int, after: int, dropout: float) -> nn.Linear:
    """Make a Linear, with dropout in front if there is any."""
    return DropoutLinear(before, after, dropout) if dropout else nn.Linear(before, after)


def last_layer_options(last: nn.Linear | HiddenLayer) -> dict[str, Any]:
    """Give the options that a last layer was made with, but for those that were zero."""
    hidden = last.hidden.out_features if isinstance(last, HiddenLayer) else 0
    options = {"hidden": hidden, "dropout": getattr(last, "dropout", 0.0)}
    return {name: value for name, value in options.items() if value}


def check_share(name: str, value: float) -> None:
    """Refuse what is not a share of units to drop."""
    check_at_least(name, value, 0, "it is a share of units")
    if value >= 1:
        raise UserError(f"{name} must be below 1, got {value!r}: nothing would be left")
