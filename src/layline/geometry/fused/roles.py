"""The two roles of a proxy: it is compared with the proxies as features are, and they with it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def stack(
    features: Float[Tensor, "n d"], proxies: Float[Tensor, "K d"], rows: Int[Tensor, " m"] | None
) -> Float[Tensor, "both d"]:
    """Put the proxies of these ranks below the features; None is all of them."""
    return torch.cat([features, proxies if rows is None else proxies.index_select(0, rows)])


def together(between: Float[Tensor, "K K"]) -> Float[Tensor, "K K"]:
    """Add what a pair of proxies means to the one and to the other."""
    return between + between.T
