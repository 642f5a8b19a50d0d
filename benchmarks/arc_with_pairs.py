"""A plug-in: ``arc`` with the pairwise hinge of ``cnnpor``, which was tried and not taken.

``docs/decisions/elastic-spring.md`` has the results, ``results/recipes/defaults.toml`` the grid.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline import ConstrainedProxies
from layline.geometry.layouts import Semicircular
from layline.geometry.similarities import Cosine, LearnedScale


class ArcWithPairs(ConstrainedProxies):
    """Half a circle by likelihood, and a learned direction that orders adjacent classes.

    Args:
        lam: Weight of the pairwise term.
        rps: Weight of the ranked probability score.
    """

    def __init__(
        self, num_classes: int, dim: int = 512, *, lam: float = 1.0, rps: float = 0.5
    ) -> None:
        layout = Semicircular(num_classes, dim, stiffness=0.3)
        super().__init__(layout, LearnedScale(Cosine()), target=0.2, rps=rps, prior=True)
        self.lam = lam
        self.order = nn.Linear(dim, 1, bias=False)

    def reset_parameters(self) -> None:
        """Begin anew."""
        super().reset_parameters()
        self.order.reset_parameters()

    def _batch_loss(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        weights: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, ""]:
        score = self.order(features)[:, 0]
        hinge = F.relu(1 - (score[:, None] - score))  # (n, n): row above, column below
        pairs = (ranks[:, None] == ranks + 1).to(features.dtype)
        if weights is not None:
            pairs = pairs * weights[:, None] * weights
        total = pairs.sum()
        return self.lam * (pairs * hinge).sum() / torch.where(total > 0, total, 1)
