"""A loss of pytorch-metric-learning as a part of a head."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.optional import require


class MetricLoss(nn.Module):
    """Calls the loss in the precision of the features, and leaves its parameters as they are.

    Args:
        name: Class of the loss.
        head: Who needs it.
        **options: Arguments of the loss.
    """

    def __init__(self, name: str, head: str, **options: Any) -> None:
        super().__init__()
        losses = require("pytorch_metric_learning.losses", extra="metric", needed_by=head)
        reducers = require("pytorch_metric_learning.reducers", extra="metric", needed_by=head)
        # the terms themselves, so that weights can enter before anything is summed
        reducer = reducers.DoNothingReducer()
        self.loss = getattr(losses, name)(**options, reducer=reducer)
        self.loss.cast_types = _leave_alone

    def similarities(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Give the similarity of every sample to every class that the loss itself uses."""
        similarities: Tensor = self._called(features, None, {})
        return similarities

    def terms(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"], **buffers: Tensor
    ) -> dict[str, Tensor]:
        """Give the terms of the loss before they are reduced.

        Args:
            features: One row per sample.
            ranks: Their labels.
            **buffers: Values to use in this call instead of the loss's buffers.
        """
        terms = self._called(features, ranks, buffers)
        return {name: term["losses"] for name, term in terms.items()}

    def forward(self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"] | None) -> Any:
        """Give the similarities without ranks, the terms of the loss with them."""
        return self.loss.get_logits(features) if ranks is None else self.loss(features, ranks)

    def _called(self, features: Tensor, ranks: Tensor | None, buffers: dict[str, Tensor]) -> Any:
        if not buffers and all(p.dtype == features.dtype for p in self.parameters()):
            return self(features, ranks)  # the usual case, at half the overhead
        given = {name: value.to(features.dtype) for name, value in self.named_parameters()}
        given |= {f"loss.{name}": value for name, value in buffers.items()}
        return torch.func.functional_call(self, given, (features, ranks))


def _leave_alone(dtype: torch.dtype, device: torch.device) -> None:
    """Stand in for what would convert the proxies in place, for good, to the features' dtype."""
