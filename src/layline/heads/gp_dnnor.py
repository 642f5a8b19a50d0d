r"""GP-DNNOR (Liu et al., ICCV 2019): a sparse Gaussian process with an ordinal likelihood.

.. math::
    f \sim \mathrm{GP}(0, k), \qquad
    P(y = k \mid f) = \Phi\Big(\frac{b_k - f}{s}\Big) - \Phi\Big(\frac{b_{k-1} - f}{s}\Big),
    \qquad -\infty = b_{-1} < b_0 < \dots < b_{K-1} = \infty

.. math:: L = -\mathrm{E}_{q(f)}[\log P(y \mid f)] + \mathrm{KL}\big(q(u) \,\|\, p(u)\big) / N

With the Cholesky factor L of the kernel between the inducing points Z, the whitened variational
mean m and covariance S (Hensman et al., 2015), and a small jitter ε on the diagonals:

.. math::
    A = L^{-1} k(Z, x), \qquad \mathrm{E} f = A^\mathsf{T} m, \qquad
    \operatorname{Var} f = k(x, x) + \varepsilon + A^\mathsf{T} (S - I) A, \qquad
    \mathrm{KL} = \tfrac12 \bigl(\operatorname{tr} S + m^\mathsf{T} m - M - \log\det S\bigr)

A linear layer maps the features to a few dimensions first, where a radial kernel makes sense. The
expectation under the normal q(f) uses Gauss-Hermite quadrature. Predictions need none: with
mean m and variance v of f, P(y ≤ k) is Φ((b_k − m)/√(s² + v)). Everything after the linear layer is
computed in float64 (float32 on a device without it), because the kernel matrix is nearly singular.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.layouts import squared_distances
from layline.geometry.similarities import Features, PerClass, PerSample, Ranks, Scalar
from layline.heads.base import LinearHead
from layline.heads.unimodal import log_cells
from layline.utils.devices import widest_float
from layline.utils.validation import check_integer

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
LEAST_GAP = 1e-5  # least distance of two cut points, and least noise
TAIL = 40.0  # at so many standard deviations from an edge and from zero, no probability is left
JITTER = {torch.float64: 1e-6, torch.float32: 1e-4}


class GPDNNOR(LinearHead):
    """A sparse Gaussian process with an ordinal likelihood.

    Args:
        num_data: N, the number of training samples, which divides the divergence from the prior.
            If it is None, the trainer sets it with :meth:`set_num_data`.
        inducing_points: Number of points that represent the process.
        latent_dim: Dimension of the space that contains them; at most ``dim`` is used.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        num_data: int | None = None,
        inducing_points: int = 64,
        latent_dim: int = 8,
    ) -> None:
        if num_data is not None:
            check_integer("num_data", num_data, 1)
        check_integer("inducing_points", inducing_points, 1, most=2000)
        check_integer("latent_dim", latent_dim, 1, most=2000)
        outputs = min(latent_dim, max(dim, 1))  # the base class checks dim
        super().__init__(num_classes, dim, outputs=outputs)
        self.num_data = 1000 if num_data is None else num_data
        self._num_data_is_fixed = num_data is not None
        self.points = nn.Parameter(torch.empty(inducing_points, outputs))
        self.mean = nn.Parameter(torch.empty(inducing_points))
        self.factor = nn.Parameter(torch.empty(inducing_points, inducing_points))  # of S
        self.raw_lengths = nn.Parameter(torch.empty(outputs))  # of the kernel, one per dimension
        self.raw_variance = nn.Parameter(torch.empty(()))  # of the kernel
        self.first_cut = nn.Parameter(torch.empty(1))
        self.raw_gaps = nn.Parameter(torch.empty(num_classes - 2))
        self.raw_noise = nn.Parameter(torch.empty(()))
        self._set_start_values()

    @torch.no_grad()
    def _set_start_values(self) -> None:
        nn.init.normal_(self.points)
        nn.init.zeros_(self.mean)  # q starts as the prior
        nn.init.eye_(self.factor)
        # points of a standard normal are correlated at this length
        self.raw_lengths.fill_(_inverse_softplus(math.sqrt(len(self.raw_lengths))))
        self.raw_variance.fill_(_inverse_softplus(1.0))
        noise = 0.5
        # the quantiles of f plus noise, where all ranks have the same prior probability
        shares = torch.arange(1, self.num_classes, dtype=torch.float64, device="cpu")
        cuts = torch.special.ndtri(shares / self.num_classes) * math.hypot(1, noise)
        self.first_cut.copy_(cuts[:1])
        gaps = [_inverse_softplus(max(gap - LEAST_GAP, LEAST_GAP)) for gap in cuts.diff().tolist()]
        self.raw_gaps.copy_(torch.tensor(gaps))
        self.raw_noise.fill_(_inverse_softplus(noise - LEAST_GAP))

    def set_num_data(self, num_data: int) -> None:
        """Set N, unless it was given as an option."""
        if not self._num_data_is_fixed:
            self.num_data = num_data

    def _log_probs(self, features: Features) -> PerClass:
        mean, variance = self._posterior(features)
        cuts, noise = self._likelihood(mean.dtype)
        spread = (variance + noise.square()).sqrt()
        edges = (cuts - mean[:, None]) / spread[:, None]
        return log_cells(with_tails(edges)).to(features.dtype)

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        mean, variance = self._posterior(features)
        cuts, noise = self._likelihood(mean.dtype)
        nodes, node_weights = mean.new_tensor(NODES), mean.new_tensor(NODE_WEIGHTS)
        f = mean[:, None] + variance.sqrt()[:, None] * nodes  # (n, nodes)
        edges = with_tails((cuts - f[..., None]) / noise)  # (n, nodes, K + 1)
        two = ranks[:, None, None] + torch.arange(2, device=ranks.device)  # those of the label
        log_likelihood = log_cells(edges.gather(-1, two.expand(*f.shape, 2)))[..., 0]
        expected = log_likelihood @ (node_weights / node_weights.sum())
        return (self._divergence(mean.dtype) / self.num_data - expected).to(features.dtype)

    def _posterior(self, features: Features) -> tuple[PerSample, PerSample]:
        """Compute mean and variance of q(f) at the features."""
        dtype = widest_float(features.device)
        lengths = F.softplus(self.raw_lengths.to(dtype))
        variance = F.softplus(self.raw_variance.to(dtype))
        points, inputs = self.points.to(dtype) / lengths, self._scores(features).to(dtype) / lengths

        def kernel(x: Tensor, y: Tensor) -> Tensor:
            return variance * torch.exp(-0.5 * squared_distances(x, y))

        unit = torch.eye(len(points), dtype=dtype, device=points.device)
        cholesky = torch.linalg.cholesky_ex(kernel(points, points) + JITTER[dtype] * unit).L
        a = torch.linalg.solve_triangular(cholesky, kernel(points, inputs), upper=False)  # (M, n)
        spread = self.factor.to(dtype).tril().T @ a  # A' S A is the square of this
        variances = variance + JITTER[dtype] + spread.square().sum(dim=0) - a.square().sum(dim=0)
        return self.mean.to(dtype) @ a, variances

    def _divergence(self, dtype: torch.dtype) -> Scalar:
        """Compute KL(q(u) ‖ p(u))."""
        factor, mean = self.factor.to(dtype).tril(), self.mean.to(dtype)
        log_det = 2 * factor.diagonal().abs().log().sum()
        return 0.5 * (factor.square().sum() + mean.square().sum() - len(mean) - log_det)

    def _likelihood(self, dtype: torch.dtype) -> tuple[Float[Tensor, " K-1"], Scalar]:
        """Return the ordered cut points and the noise."""
        gaps = F.softplus(self.raw_gaps.to(dtype)) + LEAST_GAP
        cuts = torch.cat([self.first_cut.to(dtype), gaps]).cumsum(dim=0)
        return cuts, F.softplus(self.raw_noise.to(dtype)) + LEAST_GAP


def _inverse_softplus(positive: float) -> float:
    return positive + math.log(-math.expm1(-positive))


def with_tails(edges: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m+2"]:
    """Add an edge on either side that represents infinity, but has a gradient."""
    first = edges[..., :1].clamp(max=0) - TAIL
    last = edges[..., -1:].clamp(min=0) + TAIL
    return torch.cat([first, edges, last], dim=-1)
