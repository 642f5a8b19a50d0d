"""Who is measured: heads of the registry by name, the textbook, and losses of other libraries."""

from collections.abc import Callable
from typing import Any

import torch
from coral_pytorch.dataset import levels_from_labelbatch
from coral_pytorch.layers import CoralLayer
from coral_pytorch.losses import coral_loss
from dlordinal.losses import PoissonCrossEntropyLoss, TriangularCrossEntropyLoss
from textbook import TextbookArc, TextbookLine
from torch import Tensor, nn
from torch.nn import functional as F

from layline.heads import create, names

BASELINE = "classification"
BY_FORMULA = ["hard-linear", "hard-semicircular", "elastic-linear", "elastic-semicircular"]
TEXTBOOK = {"hard-linear": "textbook line", "hard-semicircular": "textbook arc"}
SOFT = ["soft-poisson", "soft-binomial", "soft-poisson-cosine", "soft-binomial-cosine"]
Loss = Callable[[Tensor, Tensor], Tensor]


class OnLogits(nn.Module):
    """A linear layer, and a loss of its logits."""

    def __init__(self, layer: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.layer = layer
        self.of_logits = loss

    def loss(self, features: Tensor, ranks: Tensor) -> Tensor:
        """Compute the logits and their loss."""
        return self.of_logits(self.layer(features), ranks)

    def predict(self, features: Tensor) -> Tensor:
        """Choose the largest logit."""
        return self.layer(features).argmax(dim=1)


class Coral(OnLogits):
    """coral-pytorch as its documentation uses it; labels become levels in every step."""

    def __init__(self, num_classes: int, dim: int) -> None:
        def loss(logits: Tensor, ranks: Tensor) -> Tensor:
            return coral_loss(logits, levels_from_labelbatch(ranks, num_classes))

        super().__init__(CoralLayer(dim, num_classes), loss)

    def predict(self, features: Tensor) -> Tensor:
        """Count the levels that are reached."""
        return (self.layer(features) > 0).sum(dim=1)


def _dlordinal(loss: Callable[..., Any]) -> Callable[[int, int], nn.Module]:
    return lambda k, d: OnLogits(nn.Linear(d, k), loss(num_classes=k))


OUTSIDE: dict[str, Callable[[int, int], nn.Module]] = {
    "nn.Linear, cross entropy": lambda k, d: OnLogits(nn.Linear(d, k), F.cross_entropy),
    "textbook line": TextbookLine,
    "textbook arc": TextbookArc,
    "coral-pytorch": Coral,
    "dlordinal Poisson": _dlordinal(PoissonCrossEntropyLoss),
    "dlordinal triangular": _dlordinal(TriangularCrossEntropyLoss),
}
LARGEST = {name: 1000 for name in OUTSIDE if name != "nn.Linear, cross entropy"}
"""K × K arrays, or minutes to make them: above this K these are left out."""


def chosen(heads: list[str], num_classes: int) -> list[str]:
    """Give the competitors for this K, the baseline first."""
    every = names() if heads == ["all"] else heads
    asked = dict.fromkeys([BASELINE, *every, *OUTSIDE])
    return [name for name in asked if num_classes <= LARGEST.get(name, num_classes)]


def build(name: str, num_classes: int, dim: int) -> Any:
    """Make a competitor: something with ``loss`` and ``predict``."""
    torch.manual_seed(0)
    return OUTSIDE[name](num_classes, dim) if name in OUTSIDE else create(name, num_classes, dim)
