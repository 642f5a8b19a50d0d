r"""Free layout: every class has a proxy of its own. Equation (9).

.. math:: p_k = v_k

What keeps free proxies in order, if anything, is the unimodal loss; see ``divergence.py``.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.geometry import decoding, pairwise
from layline.geometry.layouts.base import Layout
from layline.geometry.similarities import Measure


class Free(Layout):
    """Proxies that go wherever the loss takes them, for any similarity.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
    """

    measures = frozenset({"squared_distances", "cosines"})
    constant = False

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__(num_classes, dim, num_vectors=num_classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all proxies as one K × d matrix."""
        nn.init.xavier_normal_(self.vectors)

    def proxies(self) -> Float[Tensor, "K d"]:
        """Give the vectors themselves."""
        return self.full_vectors()

    def squared_distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Compare each feature with each proxy."""
        return pairwise.squared_distances(features, self.proxies())

    def cosines(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Compare the direction of each feature with that of each proxy."""
        return pairwise.cosines(features, self.proxies())

    def proxy_squared_distances(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Compare only the proxies that are asked for with all proxies."""
        return self.squared_distances(self.proxies()[ranks])

    def proxy_cosines(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Compare only the directions that are asked for with all directions."""
        return self.cosines(self.proxies()[ranks])

    def nearest(self, measure: Measure, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Search all proxies."""
        measured = self.measure(measure, features)
        return decoding.mode(measured if measure == "cosines" else -measured)

    def tension(self) -> None:
        """Add nothing: free proxies owe nothing to their layout."""
