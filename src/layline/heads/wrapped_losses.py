"""The losses of pytorch-metric-learning, in the form in which heads use them.

The proxies stay as they are, where the library converts them in place, for good, to the dtype of
the features; a copy is converted for each call. Two of the library's steps are replaced by cheaper
ones that give the same numbers: the cosines, and the softmax among the centers of a class. Import
this module only when it is needed: it imports the library.
"""

from typing import Any

import torch
from jaxtyping import Float
from pytorch_metric_learning import distances, losses
from torch import Tensor

from layline.geometry import pairwise


class Cosines(distances.DotProductSimilarity):
    """Cosines from products of raw vectors, without a normalised copy of each."""

    def __init__(self) -> None:
        super().__init__(normalize_embeddings=False)

    def compute_mat(
        self, query_emb: Float[Tensor, "n d"], ref_emb: Float[Tensor, "m d"]
    ) -> Float[Tensor, "n m"]:
        """Compare every query with every reference."""
        return pairwise.cosines(query_emb, ref_emb.to(query_emb.dtype))


class _KeepsProxies:
    """What both losses override, so that the proxies keep their dtype."""

    def get_default_distance(self) -> Cosines:
        """Say how samples and proxies are compared."""
        return Cosines()

    def cast_types(self, *_: Any) -> None:
        """Leave the proxies alone."""


class ProxyAnchorLoss(_KeepsProxies, losses.ProxyAnchorLoss):
    """Proxy-Anchor, with proxies that keep their precision."""


class SoftTripleLoss(_KeepsProxies, losses.SoftTripleLoss):
    """SoftTriple, with centers that keep their precision."""

    def get_logits(self, embeddings: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Give the softly largest cosine of each class.

        The classes are put last: a softmax along a last axis of a few numbers costs more than the
        products themselves.
        """
        centers = self.fc.view(-1, self.num_classes, self.centers_per_class).permute(2, 1, 0)
        cosines: Tensor = self.distance(embeddings, centers.flatten(0, 1))
        cosines = cosines.view(-1, self.centers_per_class, self.num_classes)
        return (torch.softmax(cosines * self.gamma, dim=1) * cosines).sum(dim=1)
