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
        reducers = require("pytorch_metric_learning.reducers", extra="metric", needed_by=head)
        from layline.heads import wrapped_losses

        # the terms themselves, so that weights can enter before anything is summed
        reducer = reducers.DoNothingReducer()
        self.loss = getattr(wrapped_losses, name)(**options, reducer=reducer)

    def similarities(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Give the similarity of every sample to every class that the loss itself uses."""
        similarities: Tensor = self._called(features, None)
        return similarities

    def terms(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"], **settings: Any
    ) -> dict[str, dict[str, Any]]:
        """Give the terms of the loss before they are reduced, each with what the library adds.

        Args:
            features: One row per sample.
            ranks: Their labels.
            **settings: Attributes of the loss that have another value in this call.
        """
        usual = {name: getattr(self.loss, name) for name in settings}
        try:
            for name, value in settings.items():
                setattr(self.loss, name, value)
            terms: dict[str, dict[str, Any]] = self._called(features, ranks)
        finally:
            for name, value in usual.items():
                setattr(self.loss, name, value)
        return terms

    def forward(self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"] | None) -> Any:
        """Give the similarities without ranks, the terms of the loss with them."""
        return self.loss.get_logits(features) if ranks is None else self.loss(features, ranks)

    def _called(self, features: Tensor, ranks: Tensor | None) -> Any:
        if all(p.dtype == features.dtype for p in self.parameters()):
            return self(features, ranks)  # the usual case, at half the overhead
        given = {name: value.to(features.dtype) for name, value in self.named_parameters()}
        return torch.func.functional_call(self, given, (features, ranks))
