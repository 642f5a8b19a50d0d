r"""Free layout: every class has a proxy of its own.

.. math:: p_k = v_k \qquad \text{(9)}

What keeps free proxies in order, if anything, is the unimodal loss; see ``divergence.py``.
"""

from jaxtyping import Float
from torch import Tensor, nn

from layline.geometry.layouts.base import Layout


class Free(Layout):
    """Proxies that go wherever the loss takes them, for any similarity.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
    """

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__(num_classes, dim, num_vectors=num_classes)

    def reset_parameters(self) -> None:
        """Draw all proxies as one K × d matrix."""
        nn.init.xavier_normal_(self.vectors)

    def proxies(self) -> Float[Tensor, "K d"]:
        """Give the vectors themselves, equation (9)."""
        return self.full_vectors()
