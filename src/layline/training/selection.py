"""Which epoch to keep: lowest validation MAE, and the first epoch that reaches it wins."""

import copy
import math
from typing import Any

from torch import Tensor, nn


class BestEpoch:
    """Remember the best epoch so far and the state of the modules in it.

    Args:
        *modules: What is being trained.

    Attributes:
        epoch: The best epoch, 0 before any was offered.
        mae: Its validation MAE.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self.epoch = 0
        self.mae = math.inf
        self._modules = modules
        self._states: list[dict[str, Any]] = []

    def offer(self, epoch: int, mae: float) -> bool:
        """Keep the present state if ``mae`` is lower than all before; tell whether it was."""
        if not mae < self.mae:
            return False
        self.epoch, self.mae = epoch, mae
        self._states = [_on_cpu(module.state_dict()) for module in self._modules]
        return True

    def restore(self) -> None:
        """Put the modules back into the state of the best epoch."""
        if not self._states:
            raise RuntimeError("restore() must come after an epoch was offered, got none")
        for module, state in zip(self._modules, self._states, strict=True):
            module.load_state_dict(state)


def _on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Copy a state to the CPU, so that it neither changes with training nor fills the device."""
    return {
        name: value.detach().to("cpu", copy=True)
        if isinstance(value, Tensor)
        else copy.deepcopy(value)
        for name, value in state.items()
    }
