"""Features and proxies in one array, so that both are compared with the proxies at once."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def stack(
    features: Float[Tensor, "n d"], proxies: Float[Tensor, "K d"], rows: Int[Tensor, " m"] | None
) -> Float[Tensor, "both d"]:
    """Put the proxies of these ranks below the features; None is all of them."""
    return torch.cat([features, proxies if rows is None else proxies.index_select(0, rows)])


def add_up(
    to_compared: Float[Tensor, "both d"],
    to_proxies: Float[Tensor, "K d"],
    rows: Int[Tensor, " m"] | None,
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "K d"]]:
    """Give the gradients of features and proxies, of a proxy in both its roles."""
    m = len(to_proxies) if rows is None else len(rows)
    n = len(to_compared) - m
    if rows is None:
        return to_compared[:n], to_proxies.add_(to_compared[n:])
    return to_compared[:n], to_proxies.index_add_(0, rows, to_compared[n:])
