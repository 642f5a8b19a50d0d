"""What every layout answers: where the proxies are, and how far features are from them."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.geometry.similarities import Measure


class Layout(nn.Module, ABC):
    """The proxies learner: a few learned vectors, and the K proxies that they generate.

    A layout is asked for distances or cosines, not for proxies, so that one with a formula for
    them never builds the (K, d) array.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
        num_vectors: N, the number of learned vectors v_0 … v_{N−1}.
    """

    measures: ClassVar[frozenset[Measure]]
    """What can be measured sensibly on this layout."""

    constant: bool
    """Whether the similarities between the proxies never change in training."""

    def __init__(self, num_classes: int, dim: int, num_vectors: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.dim = dim
        self.vectors = nn.Parameter(torch.empty(num_vectors, dim))

    @abstractmethod
    def reset_parameters(self) -> None:
        """Draw the vectors anew, from a Xavier normal distribution."""

    @abstractmethod
    def proxies(self) -> Float[Tensor, "K d"]:
        """Generate the proxies, in label order."""

    @abstractmethod
    def squared_distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Measure the squared distance from each feature to each proxy."""

    @abstractmethod
    def cosines(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Measure the cosine between each feature and each proxy."""

    @abstractmethod
    def proxy_squared_distances(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Measure the squared distance from the proxies of these ranks to each proxy."""

    @abstractmethod
    def proxy_cosines(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Measure the cosine between the proxies of these ranks and each proxy."""

    @abstractmethod
    def nearest(self, measure: Measure, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Find the most similar proxy of each feature, equation (4)."""

    @abstractmethod
    def tension(self) -> Float[Tensor, ""] | None:
        """Give what the layout itself adds to the loss, or None if it adds nothing."""

    def measure(self, measure: Measure, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Measure features against proxies, in the way that a similarity asks for."""
        return self.cosines(features) if measure == "cosines" else self.squared_distances(features)

    def measure_proxies(self, measure: Measure, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Measure proxies against proxies, in the way that a similarity asks for."""
        if measure == "cosines":
            return self.proxy_cosines(ranks)
        return self.proxy_squared_distances(ranks)

    def full_vectors(self) -> Float[Tensor, "N d"]:
        """Give the vectors in single precision or better, also when the module is in half."""
        return self.vectors.to(torch.promote_types(self.vectors.dtype, torch.float32))

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"num_classes={self.num_classes}, dim={self.dim}"
