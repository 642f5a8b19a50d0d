"""The linear layer that most heads begin with."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.heads.base import OrdinalHead


class LinearHead(OrdinalHead):
    """A head that sees a feature only through a linear layer of its own.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        outputs: How many numbers the layer gives; the method knows, not its user.
        bias: Whether the layer adds a constant to each.
    """

    def __init__(self, num_classes: int, dim: int, outputs: int, bias: bool = True) -> None:
        super().__init__(num_classes, dim)
        self.linear = nn.Linear(dim, outputs, bias=bias)

    def _scores(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n outputs"]:
        """Apply the layer in the precision of the features, also when the module is in half."""
        weight, bias = self.linear.weight, self.linear.bias
        cast = None if bias is None else bias.to(features.dtype)
        return F.linear(features, weight.to(features.dtype), cast)
