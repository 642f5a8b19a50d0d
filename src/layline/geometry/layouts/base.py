"""The base class of layouts: where the proxies are, and how far features are from them."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.geometry import decoding, pairwise
from layline.geometry.layouts.spacing import Spacing
from layline.geometry.similarities import Measure, Similarity
from layline.utils.errors import UserError
from layline.utils.validation import check_integer


class Layout(nn.Module, ABC):
    """The proxies learner: a few learned vectors, and the K proxies that they generate.

    A subclass says where the proxies are. All that is measured on them has a plain default; a
    layout that has a formula for it, and need not build the (K, d) array, overrides that.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
        num_vectors: N, the number of learned vectors v_0 … v_{N−1}.
    """

    measures: ClassVar[frozenset[Measure]] = frozenset({"squared_distances", "cosines"})
    """The measures that this layout supports."""

    constant: bool = False
    """Whether the similarities between the proxies never change in training."""

    def __init__(self, num_classes: int, dim: int, num_vectors: int) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2, "one class needs no classifier")
        check_integer("dim", dim, 1, "it is the length of a feature")
        self.num_classes = num_classes
        self.dim = dim
        self.vectors = nn.Parameter(torch.empty(num_vectors, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw each vector as a 1 × d matrix, Xavier normal, so that its length starts near √2.

        A spacing goes back to even steps.
        """
        for row in range(len(self.vectors)):
            nn.init.xavier_normal_(self.vectors[row : row + 1])
        for part in self.children():
            if isinstance(part, Spacing):
                part.reset_parameters()

    @abstractmethod
    def proxies(self) -> Float[Tensor, "K d"]:
        """Generate the proxies, in label order."""

    def squared_distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Measure the squared distance from each feature to each proxy."""
        return pairwise.squared_distances(features, self.proxies())

    def cosines(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Measure the cosine between each feature and each proxy."""
        return pairwise.cosines(features, self.proxies())

    def proxy_squared_distances(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Measure the squared distance from the proxies of these ranks to each proxy."""
        proxies = self.proxies()
        return pairwise.squared_distances(proxies.index_select(0, ranks), proxies)

    def proxy_cosines(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Measure the cosine between the proxies of these ranks and each proxy."""
        proxies = self.proxies()
        return pairwise.cosines(proxies.index_select(0, ranks), proxies)

    def nearest(self, measure: Measure, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Find the most similar proxy of each feature."""
        measured = self.measure(measure, features)
        return decoding.mode(measured if measure == "cosines" else -measured)

    def basic_losses(
        self, similarity: Similarity, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"] | None:
        """Compute ``divergence.basic_loss`` in one step, where the layout has worked that out.

        None where it has not: the loss is then put together from P and Q.
        """

    def penalty(self) -> Float[Tensor, ""] | None:
        """Compute what the layout itself adds to the loss, or None if it adds nothing."""

    def measure(self, measure: Measure, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Measure features against proxies, in the way that a similarity asks for."""
        self.check_measure(measure)
        return self.cosines(features) if measure == "cosines" else self.squared_distances(features)

    def measure_proxies(self, measure: Measure, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Measure proxies against proxies, in the way that a similarity asks for."""
        self.check_measure(measure)
        if measure == "cosines":
            return self.proxy_cosines(ranks)
        return self.proxy_squared_distances(ranks)

    def check_measure(self, measure: Measure) -> None:
        """Refuse a similarity that asks for what this layout does not have."""
        if measure not in self.measures:
            raise UserError(
                f"similarity must fit the layout {type(self).__name__}, got one by {measure}: "
                f"it has {' and '.join(sorted(self.measures))}"
            )

    def full_vectors(self) -> Float[Tensor, "N d"]:
        """Give the vectors in single precision or better, also when the module is in half."""
        return self.vectors.to(torch.promote_types(self.vectors.dtype, torch.float32))

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"num_classes={self.num_classes}, dim={self.dim}"
