r"""From a distribution over ranks to one rank. Ties go to the lower rank.

=========  ==========================================  ==============================
mode       :math:`\arg\max_k P_k`, (4)                 fewest errors (accuracy)
median     the least k with :math:`F_k \ge ½`          least mean absolute error
mean       :math:`\sum_k k\,P_k`, rounded              least mean squared error
a matrix   :math:`\arg\min_k \sum_j P_j\,C_{jk}`       least expected cost
=========  ==========================================  ==============================

``quadratic`` asks for the least expected squared error, which is the mean. In a matrix of costs
:math:`C_{jk}` is what it costs to decide for k where j is true.

All functions take PyTorch tensors or NumPy arrays: an exported model decodes without PyTorch.
"""

from collections.abc import Callable
from typing import Any

from layline.utils.optional import array_namespace
from layline.utils.validation import COST, Costs, Decode, check_decode, decode_name

__all__ = [
    "COST",
    "DECODINGS",
    "Costs",
    "Decode",
    "check_decode",
    "decide",
    "decode_name",
    "least_cost",
    "mean",
    "median",
    "mode",
]


def mode(probs: Any) -> Any:
    """Choose the most probable rank, equation (4). Takes logits or log probabilities as well."""
    return probs.argmax(-1)


def median(probs: Any) -> Any:
    """Choose the first rank at which half of the probability is reached."""
    return (probs.cumsum(-1) < 0.5).sum(-1)


def mean(probs: Any) -> Any:
    """Choose the rank nearest to the expected rank."""
    xp = array_namespace(probs)
    ranks = xp.arange(probs.shape[-1], dtype=probs.dtype, device=probs.device)
    return ((probs @ ranks)[..., None] > ranks[:-1] + 0.5).sum(-1)  # NaN goes to 0


def least_cost(probs: Any, costs: Costs) -> Any:
    """Choose the rank with the least expected cost."""
    xp = array_namespace(probs)
    matrix = xp.asarray(costs, dtype=probs.dtype, device=probs.device)
    return (probs @ matrix).argmin(-1)


DECODINGS: dict[str, Callable[[Any], Any]] = {"mode": mode, "median": median, "mean": mean}


def decide(probs: Any, decode: Decode) -> Any:
    """Choose a rank for each distribution by a checked decoding."""
    return DECODINGS[decode](probs) if isinstance(decode, str) else least_cost(probs, decode)
