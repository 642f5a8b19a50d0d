"""A sparse variational Gaussian process, by gpytorch."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layline.optional import require


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
        self._forget = gpytorch.utils.memoize.clear_cache_hook

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
        self._forget(self.strategy)
        posterior = self.strategy(inputs)
        divergence = self.strategy.kl_divergence()
        self._forget(self.strategy)
        return posterior.mean, posterior.variance, divergence


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
        """Start with lengths at which points of a standard normal feel each other."""
        self.kernel.base_kernel.lengthscale = math.sqrt(self.dim)
        self.kernel.outputscale = 1.0

    def forward(self, inputs: Float[Tensor, "n d"]) -> object:
        return self._normal(inputs.new_zeros(inputs.shape[:-1]), self.kernel(inputs))
