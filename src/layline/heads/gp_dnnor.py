r"""GP-DNNOR (Liu et al., ICCV 2019): a sparse Gaussian process with an ordinal likelihood.

.. math::
    f \sim \mathrm{GP}(0, k), \qquad
    P(y = k \mid f) = \Phi\Big(\frac{b_k - f}{s}\Big) - \Phi\Big(\frac{b_{k-1} - f}{s}\Big),
    \qquad -\infty = b_{-1} < b_0 < \dots < b_{K-1} = \infty

.. math:: L = -\mathrm{E}_{q(f)}[\log P(k^* \mid f)] + \mathrm{KL}\big(q(u) \,\|\, p(u)\big) / N

What is certain: the process on top of deep features, the likelihood with learned ordered cut points
and noise, inducing points, and the variational bound in mini-batches. Our reading: a linear layer
first takes the features to a few dimensions, where a radial kernel and inducing points drawn from a
standard normal make sense; the cut points start where all ranks are equally probable.

The expectation under the normal q(f) is by Gauss-Hermite quadrature. Predictions need none: with
mean m and variance v of f, P(y ≤ k) is Φ((b_k − m)/√(s² + v)) exactly.
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline.arguments import check_integer
from layline.heads.linear import LinearHead
from layline.heads.normal_cells import log_normal_cells, with_tails
from layline.heads.sparse_process import SparseProcess

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
NARROWEST = 1e-5
"""Least distance of two cut points, and least noise."""


class GPDNNOR(LinearHead):
    """A Gaussian process on the features; needs gpytorch.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        num_data: N, how many samples the training set has: what the divergence from the prior is
            divided by. A smaller number means more trust in the prior.
        inducing_points: How many points carry the process.
        latent_dim: Dimension of the space in which they lie; no more than ``dim`` is used.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        num_data: int = 1000,
        inducing_points: int = 64,
        latent_dim: int = 8,
    ) -> None:
        options = {
            "num_data": num_data,
            "inducing_points": inducing_points,
            "latent_dim": latent_dim,
        }
        for name, value in options.items():
            check_integer(name, value, 1)
        outputs = min(latent_dim, max(dim, 1))  # a wrong dim is for the base class to name
        super().__init__(num_classes, dim, outputs=outputs)
        self.num_data = num_data
        self.process = SparseProcess(inducing_points, outputs)
        self.first_cut = nn.Parameter(torch.empty(1))
        self.raw_gaps = nn.Parameter(torch.empty(num_classes - 2))
        self.raw_noise = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start the cut points at the quantiles of f plus noise: equal prior probabilities."""
        noise = 0.5
        shares = torch.arange(1, self.num_classes, dtype=torch.float64) / self.num_classes
        cuts = torch.special.ndtri(shares) * math.hypot(1, noise)
        self.first_cut.copy_(cuts[:1])
        self.raw_gaps.copy_(_raw(cuts.diff()))
        self.raw_noise.copy_(_raw(torch.tensor(noise)))

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        mean, variance, _ = self._posterior(features)
        cuts, noise = self._likelihood()
        spread = (variance + noise.square()).sqrt()
        edges = (cuts - mean[:, None]) / spread[:, None]
        return log_normal_cells(with_tails(edges)).to(features.dtype)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        mean, variance, divergence = self._posterior(features)
        cuts, noise = self._likelihood()
        nodes, node_weights = mean.new_tensor(NODES), mean.new_tensor(NODE_WEIGHTS)
        f = mean[:, None] + variance.sqrt()[:, None] * nodes  # (n, nodes)
        edges = with_tails((cuts - f[..., None]) / noise)  # (n, nodes, K + 1)
        own = (ranks[:, None] + torch.arange(2, device=ranks.device))[:, None].expand(*f.shape, 2)
        log_likelihood = log_normal_cells(edges.gather(-1, own))[..., 0]
        expected = log_likelihood @ (node_weights / node_weights.sum())
        return (divergence / self.num_data - expected).to(features.dtype)

    def _posterior(
        self, features: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, ""]]:
        """Give mean and variance of f, and KL(q‖p), in float64: the kernel is near singular."""
        exact = {name: value.double() for name, value in self.process.named_parameters()}
        latent = self._scores(features).double()
        result: tuple[Tensor, Tensor, Tensor]
        result = torch.func.functional_call(self.process, exact, (latent,))
        return result

    def _likelihood(self) -> tuple[Float[Tensor, " K-1"], Float[Tensor, ""]]:
        """Give the ordered cut points and the noise."""
        gaps = _positive(self.raw_gaps)
        cuts = torch.cat([self.first_cut.double(), gaps]).cumsum(dim=0)
        return cuts, _positive(self.raw_noise)

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return f"{super().extra_repr()}, num_data={self.num_data}"


def _positive(raw: Tensor) -> Tensor:
    """Turn a parameter into a positive number, in float64."""
    return F.softplus(raw.double()) + NARROWEST


def _raw(positive: Tensor) -> Tensor:
    """Find the parameter that :func:`_positive` turns into this, or into the least there is."""
    above = (positive - NARROWEST).clamp(min=NARROWEST)
    return above + torch.log(-torch.expm1(-above))
