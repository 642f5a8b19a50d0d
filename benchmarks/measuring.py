"""How cost is measured: medians of tasks that take turns, and the peak of live memory."""

import random
import time
import weakref
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Task = Callable[[], None]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def training_step(model: Any, features: Tensor, ranks: Tensor) -> Task:
    """Prepare one forward and backward pass on ready features."""
    features = features.detach().requires_grad_()  # the same memory for every competitor

    def step() -> None:
        model.zero_grad()
        features.grad = None  # as that of a network's output, it is not added up
        model.loss(features, ranks).backward()

    return step


def prediction(model: Any, features: Tensor) -> Task:
    """Prepare one prediction of ready features."""

    @torch.inference_mode()
    def predict() -> None:
        model.predict(features)

    return predict


def medians(
    tasks: dict[Any, Task], repetitions: int, clock: str = "wall", steps: int = 1, warm_up: int = 5
) -> dict[Any, float]:
    """Time the tasks in turns, after a warm-up, and give the median seconds of each.

    The order of the tasks is another in every round, so that none always follows the same one. With
    one step at a turn a task finds nothing of its own in the caches, as in training, where a
    network comes between two steps of a head; with several it does.
    """
    # any network has had arrays of this size, after which malloc no longer gives memory back
    torch.empty(30 << 18)
    now, seconds = CLOCKS[clock], {name: [] for name in tasks}
    order, chance = list(tasks), random.Random(0)
    for turn in range(warm_up + repetitions):
        chance.shuffle(order)
        for name in order:
            for _ in range(steps):
                start = now()
                tasks[name]()
                if turn >= warm_up:
                    seconds[name].append(now() - start)
    return {name: median(values) for name, values in seconds.items()}


class _Alive(TorchDispatchMode):
    """Counts the bytes of every storage that an operation makes, until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._watched: dict[int, Any] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for tensor in _tensors((args, kwargs)):
            self._watch(tensor.untyped_storage(), count=False)
        result = function(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._watch(tensor.untyped_storage(), count=True)
        return result

    def _watch(self, storage: torch.UntypedStorage, count: bool) -> None:
        """Count a storage that was not seen before, or note that it was there before us."""
        key, size = storage._cdata, storage.nbytes() if count else 0
        if key in self._watched:
            return
        self.now += size
        self.peak = max(self.peak, self.now)

        def released(_: Any) -> None:
            self.now -= size
            del self._watched[key]

        self._watched[key] = weakref.ref(storage, released)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def peak_bytes(task: Task) -> int:
    """Give the most bytes that were alive at once of what the task made itself.

    Every operation of the forward and the backward pass is seen, with what autograd keeps between
    them; scratch space within an operation is not.
    """
    task()  # gradients exist by now, and constants are made
    with _Alive() as alive:
        task()
    return alive.peak
