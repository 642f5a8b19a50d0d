r"""POE (Li et al., CVPR 2021): every feature becomes a Gaussian in an embedding space.

.. math::
    \mu = W_\mu f + b_\mu, \quad \log\sigma^2 = W_\sigma f + b_\sigma, \quad
    z_t = \mu + \sigma \odot \varepsilon_t, \; \varepsilon_t \sim N(0, I), \quad
    P(f) = \tfrac1T \sum_t \operatorname{softmax}(W z_t + b)

.. math::
    L = -\tfrac1T \sum_t \log \operatorname{softmax}(W z_t + b)_{k^*}
        + \alpha\, \mathrm{KL}\big(N(\mu, \sigma^2) \,\|\, N(0, I)\big)
        + \beta\, \operatorname{mean}_{|k_a - k_p| < |k_a - k_q|} \max(0,\, m + D_{ap} - D_{aq})

:math:`D` is the symmetric KL divergence of two samples' Gaussians, the sum of both directions. The
sampling, the three terms and D are the paper's. Our reading: the triplets (a, p, q) are all that
the batch has, where the authors take one for each sample, and p may be a itself, so that a weight
counts like a repetition; log σ² is kept within ±10, where the authors normalise it over the batch.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline.arguments import check_at_least, check_integer
from layline.heads.fixed_draws import FixedDraws
from layline.heads.linear import LinearHead
from layline.heads.triplets import mean_triplet_hinge, symmetric_kl

LARGEST_LOG_VARIANCE = 10.0


class POE(LinearHead):
    """Probabilistic ordinal embeddings: classification of a Gaussian, ordered by triplets.

    Only the loss in training mode draws random numbers. In evaluation mode, and for predictions in
    any mode, the draws are the same for every sample and at every call.

    Args:
        num_classes: K.
        dim: Dimension d of the features, and of the embedding.
        samples: T, how many draws from each Gaussian.
        alpha: Weight α of the divergence from the standard normal.
        beta: Weight β of the triplet term.
        margin: m, how much farther q must be from a than p is.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        samples: int = 50,
        alpha: float = 1e-4,
        beta: float = 1e-4,
        margin: float = 5.0,
    ) -> None:
        super().__init__(num_classes, dim, outputs=2 * dim)
        check_integer("samples", samples, 1, "the loss averages them")
        for name, value in (("alpha", alpha), ("beta", beta), ("margin", margin)):
            check_at_least(name, value, 0)
        self.classifier = nn.Linear(dim, num_classes)
        self.samples = samples
        self.alpha = alpha
        self.beta = beta
        self.margin = margin
        self._draws = FixedDraws(samples, dim)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        mean, log_variance = self._gaussians(features)
        log_p = self._sampled_log_probs(mean, log_variance, self._draws.get(features))
        return torch.logsumexp(log_p, dim=0) - math.log(self.samples)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        mean, log_variance = self._gaussians(features)
        if self.training:
            draws = torch.randn(
                self.samples, *mean.shape, dtype=mean.dtype, device=mean.device
            )  # (T, n, d)
        else:
            draws = self._draws.get(features)
        log_p = self._sampled_log_probs(mean, log_variance, draws).mean(dim=0)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=-1)
        return F.nll_loss(log_p, ranks, reduction="none") + self.alpha * divergence

    def _loss_between(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        weights: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, ""]:
        distances = symmetric_kl(*self._gaussians(features))
        hinge = mean_triplet_hinge(distances, ranks, weights, self.margin, self.num_classes)
        return self.beta * hinge

    def _gaussians(
        self, features: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
        mean, raw = self._scores(features).chunk(2, dim=-1)
        return mean, LARGEST_LOG_VARIANCE * torch.tanh(raw / LARGEST_LOG_VARIANCE)

    def _sampled_log_probs(
        self,
        mean: Float[Tensor, "n d"],
        log_variance: Float[Tensor, "n d"],
        draws: Float[Tensor, "T ... d"],
    ) -> Float[Tensor, "T n K"]:
        embedded = mean + (0.5 * log_variance).exp() * draws
        weight, bias = self.classifier.weight, self.classifier.bias
        logits = F.linear(embedded, weight.to(mean.dtype), bias.to(mean.dtype))
        return torch.log_softmax(logits, dim=-1)

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        options = f"samples={self.samples}, alpha={self.alpha}, beta={self.beta}"
        return f"{super().extra_repr()}, {options}, margin={self.margin}"
