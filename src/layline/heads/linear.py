"""Heads that see a feature only through a linear layer of their own."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.heads.base import OrdinalHead


class LinearHead(OrdinalHead):
    """A head that begins with a linear layer.

    Args:
        outputs: How many numbers the layer gives; the method knows, not its user.
        bias: Whether the layer adds a constant to each.
    """

    shown_options: tuple[str, ...] = ()

    def __init__(self, num_classes: int, dim: int, outputs: int, bias: bool = True) -> None:
        super().__init__(num_classes, dim)
        self.linear = nn.Linear(dim, outputs, bias=bias)

    def extra_repr(self) -> str:
        """Show the method's options when the module is printed."""
        options = [f"{name}={getattr(self, name)!r}" for name in self.shown_options]
        return ", ".join([super().extra_repr(), *options])

    def reset_parameters(self) -> None:
        """Start anew, as a head that was just made."""
        self.linear.reset_parameters()
        self._set_start_values()

    def no_weight_decay(self) -> set[str]:
        """Name all but the weights of linear layers: cut points, scales, inducing points."""
        names = [name for name, _ in self.named_parameters()]
        owners = {name: self.get_submodule(name.rpartition(".")[0]) for name in names}
        return {name for name, owner in owners.items() if not isinstance(owner, nn.Linear)}

    def _set_start_values(self) -> None:
        """Set the parameters that do not start at random, for a method that has such.

        Its ``__init__`` calls this too. The layer is drawn once there, by itself.
        """

    def _scores(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n outputs"]:
        """Apply the layer in the precision of the features, also when the module is in half."""
        weight, bias = self.linear.weight, self.linear.bias
        cast = None if bias is None else bias.to(features.dtype)
        return F.linear(features, weight.to(features.dtype), cast)


class SoftmaxHead(LinearHead):
    """A head with one logit per class. Without a loss of its own it is trained by cross entropy."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=num_classes)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self._scores(features), dim=-1)
