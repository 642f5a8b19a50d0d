r"""Fit the last layer and the head in closed form, by Gaussian processes.

With few labels, steps of gradient descent overfit. Here the features of each layout m of a
:class:`layline.heads.joint_layout.JointLayout` are Gaussian processes on the inputs of the last
layer, which do not change: the columns of a table, or the output of a frozen network. The targets
:math:`Z_m` are the proxies of the true ranks, centered and scaled to a variance of one:

.. math::
    C_m = k_m(X, X) + \sigma_m^2 I, \qquad \alpha_m = C_m^{-1} Z_m, \qquad
    -\log p(Z_m) = \tfrac{1}{2} \operatorname{tr}(Z_m^\mathsf{T} C_m^{-1} Z_m) / d_m
        + \tfrac{1}{2} \log\lvert C_m \rvert + \text{const.}

The scales of the kernel and the noise σ maximize this likelihood, with a weak prior. The prediction
of a sample without its own label also has a closed form (Rasmussen and Williams, Gaussian Processes
for Machine Learning, 2006, section 5.4.2). For the samples G of a group, such as a patient:

.. math:: f_m(x_G) = Z_{mG} - \bigl[(C_m^{-1})_{GG}\bigr]^{-1} \alpha_{mG}

The scales of the kernel, the noise, and the center of the targets stay those of all samples.
Samples with the same inputs are a group as well: copies of a sample would tell its label. These
predictions give the scales :math:`s_m` of the layouts, the temperature, the ranges and an estimate
of the error. The scales minimize, with a weak prior, the negative log likelihood and the ranked
probability score:

.. math:: \sum_i \Bigl[ -\log P_{y_i}(f(x_i))
    + 3 \sum_{k} \bigl(P_{\le k}(f(x_i)) - [y_i \le k]\bigr)^2 \Bigr]
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn.functional import nll_loss

from layline.backbones.base import Backbone
from layline.backbones.kernel import KernelLayer, compare, kernel
from layline.evaluation.predictions import Split
from layline.heads.joint_layout import JointLayout
from layline.model.model import Network
from layline.training.cross_validation import Outcomes
from layline.utils.devices import Processes

MOST_ROWS = 500  # of a table; with more, networks trained by gradient are as good
MOST_FEATURES = 2000  # of frozen features
PLAIN = {"hidden": (), "bins": 0, "dropout": 0.0}  # options of a table network without layers
_MOST_FOR_SCALES = 500  # samples that the scales are fitted to
_NOISE = 0.02  # least variance of the noise, relative to that of the targets
_SMALLEST, _LARGEST = -4.0, 3.0  # logarithms of the scales
# log a_0, a_1, a_2, ℓ_1, ℓ_2 and σ: the mean of the prior, and its deviation
_PRIOR = torch.tensor(
    [math.log(0.5), math.log(0.5), math.log(0.5), 0.3, 0.3, math.log(0.5)]
).double()
_DEVIATION = torch.tensor([1.0, 1.0, 1.0, 0.7, 0.7, 1.0], dtype=torch.float64)
_RPS_WEIGHT = 3.0
Groups = Sequence[Hashable] | None


def is_few(count: int, is_table: bool) -> bool:
    """Return whether the closed form is the default for a number of training samples."""
    return count <= (MOST_ROWS if is_table else MOST_FEATURES)


@torch.no_grad()
def fit_closed_form(network: Network, train: Split, groups: Groups = None) -> Outcomes:
    """Fit a network that ends with a kernel layer and a joint layout.

    Returns the log probability of every rank, and the true ranks, where each sample is predicted
    without its label and those of its group.
    """
    backbone, head = network.backbone.eval(), network.head
    layer = backbone.last if isinstance(backbone, Backbone) else backbone
    assert isinstance(layer, KernelLayer)
    assert isinstance(head, JointLayout)
    device = layer.rows.device
    inputs = []
    for x, _ in train.batches(Processes(device), 64):
        moved = x.to(device)
        inputs.append(backbone.body(moved) if isinstance(backbone, Backbone) else moved)
    return fit_layers(layer, head, torch.cat(inputs), train.ranks, train.weight, groups)


@torch.no_grad()
def fit_layers(
    layer: KernelLayer,
    head: JointLayout,
    inputs: Float[Tensor, "n p"],
    ranks: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    groups: Groups = None,
) -> Outcomes:
    """Fit a kernel layer and a joint layout to the inputs of the layer."""
    share = (weight / weight.sum()).double()
    layer.fit_inputs(inputs, share)
    head.place_unseen(ranks.to(head.positions.device))
    x = layer.prepare(inputs).cpu().double()
    layer.rows.copy_(x)
    joined = _join_groups(x, groups)
    parts = compare(x, x, rough=not layer.unit)
    held_out = []
    noise = 1 / (share * len(share))  # more for samples of less weight
    blocks = torch.split(head.positions.cpu().double(), head.widths, dim=1)
    weights, biases = [], []
    for block, scales in zip(blocks, layer.kernels, strict=True):
        targets = block[ranks]
        bias = share @ targets
        deviation = math.sqrt(float((share @ (targets - bias).square()).mean())) or 1.0
        z = (targets - bias) / deviation
        found = _fit_scales(parts, z, noise)
        inverse = torch.linalg.inv(_covariance(found, parts, noise))
        alpha = inverse @ z
        held_out.append(bias + deviation * (z - _residuals(inverse, alpha, joined)))
        scales.copy_(found[:5].exp())
        weights.append(deviation * alpha)
        biases.append(bias)
    _fit_layout_scales(head, held_out, ranks, share)
    sizes = head.log_scales.exp().cpu().double()
    layer.weight.copy_(_scale_blocks(weights, sizes))
    layer.bias.copy_(_scale_blocks(biases, sizes))
    coordinates = _scale_blocks(held_out, sizes).to(head.log_scales)
    return head.log_probs(coordinates).cpu(), ranks


def _covariance(
    scales: Float[Tensor, "6"], parts: list[Float[Tensor, "n n"]], noise: Float[Tensor, " n"]
) -> Float[Tensor, "n n"]:
    variance = scales[5].exp() ** 2 + _NOISE
    return kernel(parts, scales[:5].exp()) + torch.diag(variance * noise)


def _fit_scales(
    parts: list[Float[Tensor, "n n"]], z: Float[Tensor, "n d"], noise: Float[Tensor, " n"]
) -> Float[Tensor, "6"]:
    """Find the logarithms of the scales and of the noise with the highest posterior density."""
    if len(z) > _MOST_FOR_SCALES:
        some = np.random.default_rng(0).choice(len(z), _MOST_FOR_SCALES, replace=False)
        parts, z, noise = [each[np.ix_(some, some)] for each in parts], z[some], noise[some]

    @torch.enable_grad()
    def loss(values: Float[np.ndarray, "6"]) -> tuple[float, Float[np.ndarray, "6"]]:
        scales = torch.tensor(values, requires_grad=True)
        root = torch.linalg.cholesky(_covariance(scales, parts, noise))
        fit = (z * torch.cholesky_solve(z, root)).sum() / (2 * z.shape[1])
        prior = ((scales - _PRIOR) / _DEVIATION).square().sum() / 2
        value = fit + root.diagonal().log().sum() + prior
        value.backward()
        return value.item(), np.asarray(scales.grad)

    bounds = [(_SMALLEST, _LARGEST)] * len(_PRIOR)
    settings = {"maxiter": 60, "ftol": 1e-6}
    found = minimize(loss, _PRIOR.numpy(), jac=True, bounds=bounds, options=settings)
    return torch.tensor(found.x)


def _residuals(
    inverse: Float[Tensor, "n n"], alpha: Float[Tensor, "n d"], groups: Int[np.ndarray, " n"]
) -> Float[Tensor, "n d"]:
    """Compute the error of each sample when its group is left out."""
    left = alpha / inverse.diagonal()[:, None]
    for group in np.flatnonzero(np.bincount(groups) > 1):
        index = np.flatnonzero(groups == group)
        left[index] = torch.linalg.solve(inverse[np.ix_(index, index)], alpha[index])
    return left


def _join_groups(x: Float[Tensor, "n p"], groups: Groups) -> Int[np.ndarray, " n"]:
    """Number the groups of the samples; those that share the same inputs are joined."""
    same: Int[np.ndarray, " n"] = np.unique(x.numpy(), axis=0, return_inverse=True)[1].reshape(-1)
    if groups is None:
        return same
    number = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    own = len(same) + np.array([number[group] for group in groups])
    links = coo_array((np.ones(len(same)), (same, own)), shape=[len(same) + len(number)] * 2)
    joined: Int[np.ndarray, " n"] = connected_components(links, directed=False)[1][same]
    return joined


def _fit_layout_scales(
    head: JointLayout,
    held_out: Sequence[Float[Tensor, "n d"]],
    ranks: Int[Tensor, " n"],
    share: Float[Tensor, " n"],
) -> None:
    """Fit the scale of each layout to held-out coordinates."""
    blocks = torch.split(head.positions.cpu().double(), head.widths, dim=1)
    pairs = list(zip(held_out, blocks, strict=True))
    # half of the squared distance to each proxy, without the square of the coordinates
    far = torch.stack([p.square().sum(dim=1) / 2 - own @ p.T for own, p in pairs])
    below = ranks[:, None] <= torch.arange(head.num_classes - 1)
    errors = [(share @ (own - p[ranks]).square()).mean() for own, p in pairs]
    start = -torch.stack(errors).clamp_min(1e-6).log() - math.log(len(pairs))

    @torch.enable_grad()
    def loss(values: Float[np.ndarray, " m"]) -> tuple[float, Float[np.ndarray, " m"]]:
        squares = torch.tensor(values, requires_grad=True)
        log_probs = (-squares.exp()[:, None, None] * far).sum(dim=0).log_softmax(dim=1)
        scores = (log_probs.exp().cumsum(dim=1)[:, :-1] - below.double()).square().sum(dim=1)
        each = nll_loss(log_probs, ranks, reduction="none") + _RPS_WEIGHT * scores
        value = len(share) * (share @ each) + (squares - start).square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value.item(), np.asarray(squares.grad)

    found = minimize(loss, start.numpy(), jac=True)
    head.log_scales.copy_(torch.from_numpy(found.x) / 2)


def _scale_blocks(blocks: Sequence[Tensor], scales: Float[Tensor, " m"]) -> Tensor:
    """Multiply the coordinates of each layout by its scale, and join the layouts."""
    return torch.cat([s * block for s, block in zip(scales, blocks, strict=True)], dim=-1)
