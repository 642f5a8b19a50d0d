r"""From a distribution over ranks to one rank. Ties go to the lower rank.

=========  ==========================================  ==============================
mode       :math:`\arg\max_k P_k`, (4)                 fewest errors (accuracy)
median     the least k with :math:`F_k \ge ½`          least mean absolute error
mean       :math:`\sum_k k\,P_k`, rounded              least mean squared error
a matrix   :math:`\arg\min_k \sum_j P_j\,C_{jk}`       least expected cost
=========  ==========================================  ==============================

``quadratic`` is another name of the mean. :math:`C_{jk}` is the cost of the decision k where j is
true. All functions take tensors or NumPy arrays: an exported model decodes without PyTorch.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from layline.utils.validation import UserError, check_known

if TYPE_CHECKING:  # the help of the command does not wait for NumPy
    from numpy.typing import NDArray

    Costs = Sequence[Sequence[float | int]] | NDArray[Any]
else:
    Costs = Any

Decode = str | Costs  # the name of a decoding, or the cost of each decision
COST = "cost"  # the name of decoding with a matrix of costs
_LARGEST_COST = 3.4e38  # in float32


def array_namespace(array: Any) -> Any:
    """Return the library of an array: NumPy or PyTorch, which is not imported for NumPy."""
    return import_module("torch" if hasattr(array, "requires_grad") else "numpy")


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
    return ((probs @ ranks)[..., None] > ranks[:-1] + 0.5).sum(-1)


DECODINGS: dict[str, Callable[[Any], Any]] = {"mode": mode, "median": median, "mean": mean}


def decide(probs: Any, decode: Decode) -> Any:
    """Choose a rank for each distribution with a decoding from :func:`check_decode`."""
    if isinstance(decode, str):
        return DECODINGS[decode](probs)
    costs = array_namespace(probs).asarray(decode, dtype=probs.dtype, device=probs.device)
    return (probs @ costs).argmin(-1)


def check_decode(decode: Any, num_classes: int | None = None) -> Decode:
    """Return a decoding by its canonical name, or its costs as tuples, or raise an error."""
    if isinstance(decode, str):
        check_known("decode", decode, (*DECODINGS, "quadratic"))
        return "mean" if decode == "quadratic" else decode
    try:
        costs = tuple(tuple(float(cost) for cost in row) for row in decode)
    except (TypeError, ValueError):
        costs = ()
    sides = max(num_classes or len(costs), 2)
    square = len(costs) == sides and all(len(row) == sides for row in costs)
    if not square or not all(abs(cost) <= _LARGEST_COST for row in costs for cost in row):
        raise UserError(
            "decode must be a name or a matrix of finite costs with a row for each true class and "
            f"a column for each decision, {sides} of both, got {decode!r:.80}"
        )
    return costs


def decode_name(decode: Decode) -> str:
    """Return the name of a decoding, ``"cost"`` for a matrix."""
    return decode if isinstance(decode, str) else COST
