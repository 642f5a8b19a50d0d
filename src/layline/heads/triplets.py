r"""The mean hinge over all triplets of a batch, without making them.

.. math::
    \operatorname{mean}_{(a, p, q):\, |k_a - k_p| < |k_a - k_q|} \max(0,\, m + D_{ap} - D_{aq})

A batch has n³ triplets. The hinge is piecewise linear in D: it is enough to know for each pair in
how many active triplets it is the near one, less in how many the far one. With the distances from
an anchor sorted, that is one look into a table of (distance, gap in ranks), of size n·K.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGEST_TABLE = 2**24
"""So many numbers are made at once; a larger batch is counted in blocks of anchors."""


def mean_triplet_hinge(
    distances: Float[Tensor, "n n"],
    ranks: Int[Tensor, " n"],
    weights: Float[Tensor, " n"] | None,
    margin: float,
    num_classes: int,
) -> Float[Tensor, ""]:
    """Average the hinge over the triplets; zero if there is none.

    Args:
        distances: D, between all samples of the batch.
        ranks: Their labels.
        weights: Of the samples; a triplet has the product of its three.
        margin: m.
        num_classes: K.
    """
    if weights is None:
        weights = distances.new_ones(len(distances))
    gaps = (ranks[:, None] - ranks).abs()
    block = max(1, LARGEST_TABLE // ((len(ranks) + 1) * (num_classes + 1)))
    with torch.no_grad():
        counted = [
            _count(d, g, weights, margin, num_classes)
            for d, g in zip(torch.split(distances, block), torch.split(gaps, block), strict=True)
        ]
        slope, active, everyone = (torch.cat(parts) for parts in zip(*counted, strict=True))
        total = weights @ everyone
        share = weights / torch.where(total > 0, total, 1)  # of the anchors
    return (share[:, None] * slope * distances).sum() + margin * (share @ active)


def _count(
    distances: Float[Tensor, "a n"],
    gaps: Int[Tensor, "a n"],
    weights: Float[Tensor, " n"],
    margin: float,
    num_classes: int,
) -> tuple[Float[Tensor, "a n"], Float[Tensor, " a"], Float[Tensor, " a"]]:
    """Give each anchor's slopes in its distances, and the weight of its active and all triplets."""
    anchors, n = distances.shape
    distances, order = distances.sort(dim=-1)
    gaps, of_sample = gaps.gather(1, order), weights[order]
    # below[a, j, g]: the weight of the j samples closest to a, as far as their gap is less than g
    below = distances.new_zeros(anchors, n + 1, num_classes + 1)
    below[:, 1:].scatter_(2, gaps[..., None] + 1, of_sample[..., None])
    below = below.cumsum(dim=1).cumsum(dim=2).flatten(1)

    def look_up(count: Tensor | int, gap: Tensor | int) -> Tensor:
        where = torch.as_tensor(count * (num_classes + 1) + gap, device=gaps.device)
        return below.gather(1, where.expand(anchors, n))

    # a pair (p, q) can be active if q is among the first closer[p] samples: D_aq < D_ap + m
    closer = torch.searchsorted(distances, distances + margin)
    starts = closer.new_zeros(anchors, n + 1)
    not_reaching = starts.scatter_add_(1, closer, torch.ones_like(closer)).cumsum(dim=1)[:, :-1]
    as_near = look_up(closer, num_classes) - look_up(closer, gaps + 1)
    as_far = look_up(n, gaps) - look_up(not_reaching, gaps)
    everyone = look_up(n, num_classes) - look_up(n, gaps + 1)
    slope = torch.zeros_like(distances).scatter_(1, order, of_sample * (as_near - as_far))
    return slope, (of_sample * as_near).sum(dim=1), (of_sample * everyone).sum(dim=1)


def symmetric_kl(
    mean: Float[Tensor, "n d"], log_variance: Float[Tensor, "n d"]
) -> Float[Tensor, "n n"]:
    r"""Compute KL(i‖j) + KL(j‖i) of all pairs of diagonal Gaussians by matrix products.

    The logarithms cancel. What is left is the sum over dimensions of
    :math:`\tfrac12 (\sigma_i^2 + (\mu_i - \mu_j)^2) / \sigma_j^2 - \tfrac12`, in both directions.
    """
    mean = mean - mean.mean(dim=0).detach()  # a shift changes no distance, and saves digits
    variance, precision = log_variance.exp(), (-log_variance).exp()
    scaled = mean * precision
    one_way = (
        (variance + mean.square()) @ precision.T
        - 2 * mean @ scaled.T
        + (mean * scaled).sum(dim=-1)
        - mean.shape[-1]
    )
    to_itself = torch.eye(len(mean), dtype=torch.bool, device=mean.device)
    return (0.5 * (one_way + one_way.T)).masked_fill(to_itself, 0)
