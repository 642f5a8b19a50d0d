r"""Heads whose loss also compares the samples of a batch: POE and CNNPOR.

**POE** (Li et al., CVPR 2021): every feature becomes a Gaussian in an embedding space.

.. math::
    \mu = W_\mu f + b_\mu, \quad \log\sigma^2 = W_\sigma f + b_\sigma, \quad
    z_t = \mu + \sigma \odot \varepsilon_t, \; \varepsilon_t \sim N(0, I), \quad
    P(f) = \tfrac1T \sum_t \operatorname{softmax}(W z_t + b)

.. math::
    L = -\tfrac1T \sum_t \log \operatorname{softmax}(W z_t + b)_y
        + \alpha\, \mathrm{KL}\big(N(\mu, \sigma^2) \,\|\, N(0, I)\big)
        + \beta\, \operatorname{mean}_{|k_a - k_p| < |k_a - k_q|} \max(0,\, m + D_{ap} - D_{aq})

:math:`D` is the symmetric KL divergence of two samples' Gaussians, the sum of both directions. The
triplets (a, p, q) are all of the batch; p may be a itself, so a weight counts like a repetition.

**CNNPOR** (Liu et al., CVPR 2018): classification whose features also rank neighboring classes.

.. math::
    L = -\log \operatorname{softmax}(W f + b)_y + \lambda\,
    \operatorname{mean}_{(i, j):\, y_i = y_j + 1} \max\big(0,\, m - (g(f_i) - g(f_j))\big)

The ordered quantity is one more linear output, :math:`g(f) = w \cdot f`. docs/methods.md says where
we differ from the papers.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.similarities import Features, PerClass, PerSample, Ranks, Scalar
from layline.heads.base import LinearHead, apply_linear
from layline.utils.validation import check_at_least, check_integer

LARGEST_LOG_VARIANCE = 10.0
LARGEST_BLOCK = 2**22  # triplets; those of larger batches are computed in blocks of anchors


class POE(LinearHead):
    """A Gaussian embedding of each sample, ordered by triplets.

    Only the loss in training mode draws random numbers. Otherwise the draws are the same for every
    sample and at every call.

    Args:
        samples: T, the number of draws from each Gaussian.
        alpha: Weight α of the divergence from the standard normal.
        beta: Weight β of the triplet term.
        margin: m, by which q must be farther from a than p is.
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
        check_integer("samples", samples, 1, "the loss averages them", most=1000)
        for name, value in (("alpha", alpha), ("beta", beta), ("margin", margin)):
            check_at_least(name, value, 0)
        self.classifier = nn.Linear(dim, num_classes)
        self.samples, self.alpha, self.beta, self.margin = samples, alpha, beta, margin
        generator, size = torch.Generator("cpu").manual_seed(0), (samples, 1, dim)
        draws = torch.randn(size, generator=generator, dtype=torch.float64, device="cpu")
        self._draws = draws.numpy()  # a buffer would lose digits in float32 and back

    def _log_probs(self, features: Features) -> PerClass:
        mean, log_variance = self._gaussians(features)
        log_p = self._sampled_log_probs(mean, log_variance, self._fixed_draws(mean))
        return torch.logsumexp(log_p, dim=0) - math.log(self.samples)

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        mean, log_variance = self._gaussians(features)
        draws = self._fixed_draws(mean)
        if self.training:
            draws = torch.randn(self.samples, *mean.shape, dtype=mean.dtype, device=mean.device)
        log_p = self._sampled_log_probs(mean, log_variance, draws).mean(dim=0)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=-1)
        return F.nll_loss(log_p, ranks, reduction="none") + self.alpha * divergence

    def _batch_loss(self, features: Features, ranks: Ranks, weights: PerSample | None) -> Scalar:
        distances = symmetric_kl(*self._gaussians(features))
        return self.beta * mean_triplet_hinge(distances, ranks, weights, self.margin)

    def _gaussians(self, features: Features) -> tuple[Features, Features]:
        mean, raw = self._scores(features).chunk(2, dim=-1)
        return mean, LARGEST_LOG_VARIANCE * torch.tanh(raw / LARGEST_LOG_VARIANCE)

    def _fixed_draws(self, like: Tensor) -> Float[Tensor, "T 1 d"]:
        """Return the draws for all samples outside training."""
        return torch.from_numpy(self._draws).to(like.dtype).to(like.device)

    def _sampled_log_probs(
        self, mean: Features, log_variance: Features, draws: Float[Tensor, "T ... d"]
    ) -> Float[Tensor, "T n K"]:
        embedded = mean + (0.5 * log_variance).exp() * draws
        return torch.log_softmax(apply_linear(self.classifier, embedded), dim=-1)


class CNNPOR(LinearHead):
    """Cross entropy with a pairwise hinge between adjacent classes.

    Args:
        lam: Weight λ of the pairwise term.
        margin: By how much the higher class of a pair must score above the lower one.
    """

    def __init__(
        self, num_classes: int, dim: int = 512, *, lam: float = 1.0, margin: float = 1.0
    ) -> None:
        super().__init__(num_classes, dim, outputs=num_classes + 1)
        check_at_least("lam", lam, 0)
        check_at_least("margin", margin, 0)
        self.lam, self.margin = lam, margin

    def _log_probs(self, features: Features) -> PerClass:
        return torch.log_softmax(self._scores(features)[:, :-1], dim=-1)

    def _batch_loss(self, features: Features, ranks: Ranks, weights: PerSample | None) -> Scalar:
        # the bias of g cancels in every pair
        score = features @ self.linear.weight[-1].to(features.dtype)
        hinge = F.relu(self.margin - (score[:, None] - score))  # (n, n): row above, column below
        pairs = (ranks[:, None] == ranks + 1).to(features.dtype)
        if weights is not None:
            pairs = pairs * weights[:, None] * weights
        total = pairs.sum()
        return self.lam * (pairs * hinge).sum() / torch.where(total > 0, total, 1)


def mean_triplet_hinge(
    distances: Float[Tensor, "n n"], ranks: Ranks, weights: PerSample | None, margin: float
) -> Scalar:
    """Average the hinge over the triplets; zero if there is none.

    The hinge is piecewise linear in D. For each anchor a, its slope in D_ab is the weight of the
    active triplets in which b is the near sample, minus that of those in which b is the far one.
    """
    n = len(ranks)
    if weights is None:
        weights = distances.new_ones(n)
    slopes, active_weight, total = [], distances.new_zeros(()), distances.new_zeros(())
    with torch.no_grad():
        for block in torch.arange(n, device=ranks.device).tensor_split(-(-(n**3) // LARGEST_BLOCK)):
            gaps, d = (ranks[block, None] - ranks).abs(), distances[block]  # (anchors, n)
            farther = gaps[:, :, None] < gaps[:, None, :]  # (anchors, p, q)
            active = (farther & (d[:, None, :] < d[:, :, None] + margin)).to(d.dtype)
            near = weights[block, None] * weights * (active @ weights)
            far = weights[block, None] * weights * (weights @ active)
            slopes.append(near - far)
            active_weight += near.sum()
            total += weights[block] @ ((farther.to(d.dtype) @ weights) @ weights)
    hinge = (torch.cat(slopes) * distances).sum() + margin * active_weight
    return hinge / torch.where(total > 0, total, 1)


def symmetric_kl(mean: Features, log_variance: Features) -> Float[Tensor, "n n"]:
    r"""Compute KL(i‖j) + KL(j‖i) of all pairs of diagonal Gaussians by matrix products.

    The logarithms cancel. The result is the sum over dimensions of
    :math:`\tfrac12 (\sigma_i^2 + (\mu_i - \mu_j)^2) / \sigma_j^2 - \tfrac12`, in both directions.
    """
    mean = mean - mean.mean(dim=0).detach()  # a shift changes no distance, and saves digits
    variance, precision = log_variance.exp(), (-log_variance).exp()
    scaled = mean * precision
    one_way = (variance + mean.square()) @ precision.T - 2 * mean @ scaled.T
    one_way = one_way + (mean * scaled).sum(dim=-1) - mean.shape[-1]
    to_itself = torch.eye(len(mean), dtype=torch.bool, device=mean.device)
    return (0.5 * (one_way + one_way.T)).masked_fill(to_itself, 0)
