r"""GP-DNNOR (Liu et al., ICCV 2019): a sparse Gaussian process with an ordinal likelihood.

.. math::
    f \sim \mathrm{GP}(0, k), \qquad
    P(y = k \mid f) = \Phi\Big(\frac{b_k - f}{s}\Big) - \Phi\Big(\frac{b_{k-1} - f}{s}\Big),
    \qquad -\infty = b_{-1} < b_0 < \dots < b_{K-1} = \infty

.. math:: L = -\mathrm{E}_{q(f)}[\log P(y \mid f)] + \mathrm{KL}\big(q(u) \,\|\, p(u)\big) / N

What is certain: the process on top of deep features, the likelihood with learned ordered cut points
and noise, inducing points, and the variational bound in mini-batches. Our reading: a linear layer
first takes the features to a few dimensions, where a radial kernel and inducing points drawn from a
standard normal make sense; the cut points start where all ranks are equally probable.

The expectation under the normal q(f) is by Gauss-Hermite quadrature. Predictions need none: with
mean m and variance v of f, P(y ≤ k) is Φ((b_k − m)/√(s² + v)) exactly.
"""

import copy
import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline.heads.cells import log_cells
from layline.heads.linear import LinearHead
from layline.utils.optional import require
from layline.utils.validation import check_integer

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
LEAST_GAP = 1e-5
"""Least distance of two cut points, and least noise."""
TAIL = 40.0
"""So many standard deviations from an edge and from zero, nothing is left in float64."""


class GPDNNOR(LinearHead):
    """A Gaussian process on the features; needs gpytorch.

    Args:
        num_data: N, how many samples the training set has: what the divergence from the prior is
            divided by. A smaller number means more trust in the prior.
        inducing_points: How many points carry the process.
        latent_dim: Dimension of the space in which they lie; no more than ``dim`` is used.
    """

    shown_options = ("num_data",)

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        num_data: int = 1000,
        inducing_points: int = 64,
        latent_dim: int = 8,
    ) -> None:
        sizes = (("num_data", num_data), ("inducing_points", inducing_points))
        for name, value in (*sizes, ("latent_dim", latent_dim)):
            check_integer(name, value, 1)
        outputs = min(latent_dim, max(dim, 1))  # a wrong dim is for the base class to name
        super().__init__(num_classes, dim, outputs=outputs)
        self.num_data = num_data
        self.process: nn.Module = SparseProcess(inducing_points, outputs)
        self.first_cut = nn.Parameter(torch.empty(1))
        self.raw_gaps = nn.Parameter(torch.empty(num_classes - 2))
        self.raw_noise = nn.Parameter(torch.empty(()))
        self._set_start_values()

    def reset_parameters(self) -> None:
        """Start anew, as a head that was just made."""
        super().reset_parameters()
        assert isinstance(self.process, SparseProcess)
        self.process.reset_parameters()

    @torch.no_grad()
    def for_export(self) -> "GPDNNOR":
        """Give the same head with all that depends on the inducing points computed beforehand."""
        head = copy.deepcopy(self)
        head.process = FixedProcess(self.process)
        return head

    @torch.no_grad()
    def _set_start_values(self) -> None:
        noise = 0.5
        # the quantiles of f plus noise, where all ranks have the same prior probability
        shares = torch.arange(1, self.num_classes, dtype=torch.float64) / self.num_classes
        cuts = torch.special.ndtri(shares) * math.hypot(1, noise)
        self.first_cut.copy_(cuts[:1])
        self.raw_gaps.copy_(_inverse(cuts.diff()))
        self.raw_noise.copy_(_inverse(torch.tensor(noise)))

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        mean, variance, _ = self._posterior(features)
        cuts, noise = self._likelihood()
        spread = (variance + noise.square()).sqrt()
        edges = (cuts - mean[:, None]) / spread[:, None]
        return log_cells(with_tails(edges)).to(features.dtype)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        mean, variance, divergence = self._posterior(features)
        cuts, noise = self._likelihood()
        nodes, node_weights = mean.new_tensor(NODES), mean.new_tensor(NODE_WEIGHTS)
        f = mean[:, None] + variance.sqrt()[:, None] * nodes  # (n, nodes)
        edges = with_tails((cuts - f[..., None]) / noise)  # (n, nodes, K + 1)
        two = ranks[:, None, None] + torch.arange(2, device=ranks.device)  # those of the label
        log_likelihood = log_cells(edges.gather(-1, two.expand(*f.shape, 2)))[..., 0]
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


def _positive(raw: Tensor) -> Tensor:
    """Turn a parameter into a positive number, in float64."""
    return F.softplus(raw.double()) + LEAST_GAP


def _inverse(positive: Tensor) -> Tensor:
    """Undo :func:`_positive`; what is below its least value becomes that."""
    above = (positive - LEAST_GAP).clamp(min=LEAST_GAP)
    return above + torch.log(-torch.expm1(-above))


def with_tails(edges: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m+2"]:
    """Add an edge on either side that stands for infinity, but has a gradient."""
    first = edges[..., :1].clamp(max=0) - TAIL
    last = edges[..., -1:].clamp(min=0) + TAIL
    return torch.cat([first, edges, last], dim=-1)


class SparseProcess(nn.Module):
    """A Gaussian process through inducing points, by gpytorch.

    Args:
        inducing_points: How many.
        dim: Dimension of the inputs.
    """

    def __init__(self, inducing_points: int, dim: int) -> None:
        super().__init__()
        gpytorch = require("gpytorch", extra="gp", needed_by="gp-dnnor")
        self.prior = _Prior(dim)
        self.strategy = gpytorch.variational.VariationalStrategy(
            self.prior,
            torch.empty(inducing_points, dim),
            gpytorch.variational.CholeskyVariationalDistribution(inducing_points),
        )
        self.reset_parameters()
        # or the first call, even one to predict, would set q with random numbers
        self.strategy.variational_params_initialized.fill_(1)
        self._clear_cache = gpytorch.utils.memoize.clear_cache_hook

    def reset_parameters(self) -> None:
        """Draw the inducing points; begin with the prior as posterior."""
        nn.init.normal_(self.strategy.inducing_points)
        q = self.strategy._variational_distribution
        nn.init.zeros_(q.variational_mean)
        nn.init.eye_(q.chol_variational_covar)
        self.prior.reset_parameters()

    def forward(
        self, inputs: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, ""]]:
        """Give mean and variance of q(f) at the inputs, and KL(q‖p)."""
        # gpytorch keeps factors between calls, also when parameters have changed since
        self._clear_cache(self.strategy)
        posterior = self.strategy(inputs)
        divergence = self.strategy.kl_divergence()
        self._clear_cache(self.strategy)
        return posterior.mean, posterior.variance, divergence


class FixedProcess(nn.Module):
    r"""A process that no longer changes, as its closed form in float64.

    With the Cholesky factor L of the kernel between the inducing points Z, whitened mean m and
    covariance S:

    .. math::
        A = L^{-1} k(Z, x), \qquad \mathrm{E} f = A^\mathsf{T} m, \qquad
        \operatorname{Var} f = k(x, x) + A^\mathsf{T} (S - I) A

    Args:
        process: The process that was trained.
    """

    points: Tensor
    lengths: Tensor
    scale: Tensor
    jitter: Tensor
    whiten: Tensor
    mean: Tensor
    excess: Tensor

    def __init__(self, process: nn.Module) -> None:
        super().__init__()
        exact: Any = copy.deepcopy(process).double()
        strategy, kernel = exact.strategy, exact.prior.kernel
        exact._clear_cache(strategy)
        unit = torch.eye(len(strategy.inducing_points), dtype=torch.float64)
        between = kernel(strategy.inducing_points).to_dense() + strategy.jitter_val * unit
        factor = strategy._cholesky_factor(between).to_dense()
        q = strategy._variational_distribution
        chol = q.chol_variational_covar.tril()
        fixed = {
            "points": strategy.inducing_points / kernel.base_kernel.lengthscale,
            "lengths": kernel.base_kernel.lengthscale,
            "scale": kernel.outputscale,
            "jitter": torch.tensor(strategy.jitter_val, dtype=torch.float64),
            "whiten": torch.linalg.solve_triangular(factor, unit, upper=False),
            "mean": q.variational_mean,
            "excess": chol @ chol.T - unit,
        }
        for name, value in fixed.items():
            self.register_buffer(name, value.detach().clone())

    def forward(
        self, inputs: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, ""]]:
        """Give mean and variance of q(f) at the inputs; the divergence is for training only."""
        differences = (inputs / self.lengths)[:, None] - self.points  # (n, m, d)
        kernel = self.scale * torch.exp(-0.5 * differences.square().sum(dim=-1))
        whitened = kernel @ self.whiten.T  # (n, m)
        variance = self.scale + self.jitter + ((whitened @ self.excess) * whitened).sum(dim=-1)
        return whitened @ self.mean, variance, self.scale.new_zeros(())


class _Prior(nn.Module):
    """Mean zero and a scaled radial kernel with a length for each dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        gpytorch = require("gpytorch", extra="gp", needed_by="gp-dnnor")
        self.dim = dim
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=dim))
        self._normal = gpytorch.distributions.MultivariateNormal
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start with lengths at which points of a standard normal are correlated."""
        self.kernel.base_kernel.lengthscale = math.sqrt(self.dim)
        self.kernel.outputscale = 1.0

    def forward(self, inputs: Float[Tensor, "n d"]) -> object:
        return self._normal(inputs.new_zeros(inputs.shape[:-1]), self.kernel(inputs))
