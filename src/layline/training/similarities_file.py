"""How similar the proxies of a trained head are to each other, beside what they are held to."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from layline.files import whole_file
from layline.geometry import divergence
from layline.heads.constrained_proxies import ConstrainedProxies
from layline.training.snapshot import proxies_of


def write_proxies(path: Path, head: Any) -> None:
    """Write the proxies (K, d), Q (K, K) and, where the head has a smoothing, U (K, K).

    Args:
        path: A ``.npz`` file; not written for a head without proxies.
        head: The ordinal method.
    """
    proxies = proxies_of(head)
    if proxies is None:
        return
    arrays: dict[str, Any] = {"proxies": proxies}
    if isinstance(head, ConstrainedProxies):
        arrays |= _between(head)
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(file, **arrays)


@torch.no_grad()
def _between(head: ConstrainedProxies) -> dict[str, Any]:
    ranks = torch.arange(head.num_classes, device=head.layout.vectors.device)
    found = {"q": divergence.log_q(head.layout, head.similarity, ranks)}
    if head.smoothing is not None:
        found["u"] = head.smoothing.log_u(ranks, head.num_classes)
    return {name: table.exp().float().cpu().numpy() for name, table in found.items()}
