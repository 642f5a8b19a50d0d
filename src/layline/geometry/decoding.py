r"""From a distribution over ranks to one rank. Ties go to the lower rank.

=========  ==========================================  ==============================
mode       :math:`\arg\max_k P_k`, (4)                 fewest errors (accuracy)
median     the least k with :math:`F_k \ge ½`          least mean absolute error
mean       :math:`\sum_k k\,P_k`, rounded              least mean squared error
=========  ==========================================  ==============================
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor


def mode(probs: Float[Tensor, "n K"]) -> Int[Tensor, " n"]:
    """Choose the most probable rank, equation (4). Takes logits or log probabilities as well."""
    return probs.argmax(dim=-1)


def median(probs: Float[Tensor, "n K"]) -> Int[Tensor, " n"]:
    """Choose the first rank at which half of the probability is reached."""
    return (probs.cumsum(dim=-1) >= 0.5).int().argmax(dim=-1)


def mean(probs: Float[Tensor, "n K"]) -> Int[Tensor, " n"]:
    """Choose the rank nearest to the expected rank."""
    ranks = torch.arange(probs.shape[-1], dtype=probs.dtype, device=probs.device)
    nearest = torch.ceil(probs @ ranks - 0.5)
    return nearest.nan_to_num(nan=0.0).long()  # NaN goes to 0, as by arg max


DECODINGS: dict[str, Callable[[Tensor], Tensor]] = {"mode": mode, "median": median, "mean": mean}
