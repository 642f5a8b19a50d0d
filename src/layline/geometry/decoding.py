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

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from layline.arguments import check_known

Costs = Sequence[Sequence[float | int]] | NDArray[Any]
Decode = str | Costs  # a name, or what each decision costs
COST = "cost"  # what decisions by a matrix are called


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


def least_cost(probs: Float[Tensor, "n K"], costs: Costs) -> Int[Tensor, " n"]:
    """Choose the rank with the least expected cost."""
    matrix = torch.as_tensor(costs, dtype=probs.dtype, device=probs.device)
    return (probs @ matrix).argmin(dim=-1)


DECODINGS: dict[str, Callable[[Tensor], Tensor]] = {"mode": mode, "median": median, "mean": mean}
_OTHER_NAMES = {"quadratic": "mean"}


def checked_decode(decode: Any, num_classes: int | None = None) -> Decode:
    """Give a decoding by its usual name, or its costs as tuples; refuse what is neither.

    Args:
        decode: What a user asks for.
        num_classes: K, if it is known.
    """
    if isinstance(decode, str):
        check_known("decode", decode, (*DECODINGS, *_OTHER_NAMES))
        return _OTHER_NAMES.get(decode, decode)
    try:
        costs = torch.tensor([[float(cost) for cost in row] for row in decode])
    except (TypeError, ValueError):
        raise ValueError(
            f"decode must be a name or a matrix of costs, got {decode!r}: a row for each true "
            "class, a column for each decision"
        ) from None
    sides = num_classes or len(costs)
    if costs.shape != (sides, sides) or sides < 2:
        raise ValueError(
            f"decode must have a row for each true class and a column for each decision, "
            f"{max(sides, 2)} of both, got the shape {tuple(costs.shape)}"
        )
    if not costs.isfinite().all():
        raise ValueError("decode must have finite costs, got others: write a large number instead")
    return tuple(tuple(float(cost) for cost in row) for row in decode)


def decode_name(decode: Decode) -> str:
    """Name a checked decoding, as decisions by it are called."""
    return decode if isinstance(decode, str) else COST


def decide(probs: Float[Tensor, "n K"], decode: Decode) -> Int[Tensor, " n"]:
    """Choose a rank for each distribution by a checked decoding."""
    return DECODINGS[decode](probs) if isinstance(decode, str) else least_cost(probs, decode)
