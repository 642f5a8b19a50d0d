"""Constrained Proxies Learning as one writes it down from the paper, to measure ours against.

All K proxies are built as an array, every distance or cosine is taken between vectors, the whole
K × K matrix Q is made, and a sample looks up its row.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TextbookLine(nn.Module):
    """Equations (7), (5), (1), (2), (3)."""

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.v0 = nn.Parameter(torch.randn(dim) / math.sqrt(dim))

    def proxies(self) -> Tensor:
        """Multiply v_0 by every rank."""
        return torch.arange(self.num_classes)[:, None] * self.v0

    def loss(self, features: Tensor, ranks: Tensor) -> Tensor:
        """Average the divergence of P from the rows of Q."""
        proxies = self.proxies()
        log_p = (-torch.log1p(torch.cdist(features, proxies) ** 2)).log_softmax(dim=1)
        with torch.no_grad():
            q = (-torch.log1p(torch.cdist(proxies, proxies) ** 2)).softmax(dim=1)
        return F.kl_div(log_p, q[ranks], reduction="batchmean")

    def predict(self, features: Tensor) -> Tensor:
        """Search all proxies."""
        return torch.cdist(features, self.proxies()).argmin(dim=1)


class TextbookArc(nn.Module):
    """Equations (8), (6), (1), (2), (3)."""

    def __init__(self, num_classes: int, dim: int, scale: float = 6.0) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(2, dim) / math.sqrt(dim))
        self.angles = torch.arange(num_classes) * (math.pi / (num_classes - 1))
        self.scale = scale

    def proxies(self) -> Tensor:
        """Interpolate between the two unit vectors and past the second, to half a turn."""
        v0, v1 = F.normalize(self.vectors)
        gamma = torch.arccos(v0 @ v1)
        from_v0, from_v1 = torch.sin(gamma - self.angles), torch.sin(self.angles)
        return (from_v0[:, None] * v0 + from_v1[:, None] * v1) / torch.sin(gamma)

    def loss(self, features: Tensor, ranks: Tensor) -> Tensor:
        """Average the divergence of P from the rows of Q."""
        proxies = F.normalize(self.proxies())
        log_p = (self.scale * F.normalize(features) @ proxies.T).log_softmax(dim=1)
        with torch.no_grad():
            q = (self.scale * proxies @ proxies.T).softmax(dim=1)
        return F.kl_div(log_p, q[ranks], reduction="batchmean")

    def predict(self, features: Tensor) -> Tensor:
        """Search all proxies."""
        return (F.normalize(features) @ F.normalize(self.proxies()).T).argmax(dim=1)
