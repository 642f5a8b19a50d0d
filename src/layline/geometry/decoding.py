r"""From a distribution over ranks to one rank. Ties go to the lower rank.

=========  ==========================================  ==============================
mode       :math:`\arg\max_k P_k`, (4)                 fewest errors (accuracy)
median     the least k with :math:`F_k \ge ½`          least mean absolute error
mean       :math:`\sum_k k\,P_k`, rounded              least mean squared error
a matrix   :math:`\arg\min_k \sum_j P_j\,C_{jk}`       least expected cost
=========  ==========================================  ==============================

``quadratic`` asks for the least expected squared error, which is the mean. In a matrix of costs
:math:`C_{jk}` is what it costs to decide for k where j is true.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from layline.geometry.shapes import PerClass, Ranks
from layline.utils.validation import COST, Costs, Decode, checked_decode, decode_name

__all__ = [
    "COST",
    "DECODINGS",
    "Costs",
    "Decode",
    "checked_decode",
    "decide",
    "decode_name",
    "least_cost",
    "mean",
    "median",
    "mode",
]


def mode(probs: PerClass) -> Ranks:
    """Choose the most probable rank, equation (4). Takes logits or log probabilities as well."""
    return probs.argmax(dim=-1)


def median(probs: PerClass) -> Ranks:
    """Choose the first rank at which half of the probability is reached."""
    return (probs.cumsum(dim=-1) >= 0.5).int().argmax(dim=-1)


def mean(probs: PerClass) -> Ranks:
    """Choose the rank nearest to the expected rank."""
    ranks = torch.arange(probs.shape[-1], dtype=probs.dtype, device=probs.device)
    nearest = torch.ceil(probs @ ranks - 0.5)
    return nearest.nan_to_num(nan=0.0).long()  # NaN goes to 0, as by arg max


def least_cost(probs: PerClass, costs: Costs) -> Ranks:
    """Choose the rank with the least expected cost."""
    matrix = torch.as_tensor(costs, dtype=probs.dtype, device=probs.device)
    return (probs @ matrix).argmin(dim=-1)


DECODINGS: dict[str, Callable[[Tensor], Tensor]] = {"mode": mode, "median": median, "mean": mean}


def decide(probs: PerClass, decode: Decode) -> Ranks:
    """Choose a rank for each distribution by a checked decoding."""
    return DECODINGS[decode](probs) if isinstance(decode, str) else least_cost(probs, decode)
