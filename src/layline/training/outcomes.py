"""What a model says of many samples, the same on one process as on several."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, gather, pad_across_processes
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader

from layline.data.loading import Batch, Batches, in_order, loader, to_device
from layline.model import OrdinalModel
from layline.training.sums import summed

EVALUATION_FACTOR = 4  # without gradients, so much fits where a training batch did


@dataclass(frozen=True)
class Task:
    """Samples with what is known of them.

    Attributes:
        samples: Where batches are fetched from.
        ranks: The class of each sample.
        weight: How much each sample counts.
    """

    samples: Batches
    ranks: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]


@dataclass(frozen=True)
class Outcomes:
    """What a model says of the samples of a task, in their order.

    Attributes:
        log_probs: Logarithms of the probabilities of the classes.
        loss: The weighted mean of the loss.
        features: The vectors of those samples that were to be kept.
    """

    log_probs: Float[Tensor, "n K"]
    loss: float
    features: Float[Tensor, "m d"]


def batches_of(
    task: Task, accelerator: Accelerator, batch_size: int, workers: int | None = None
) -> DataLoader[Any]:
    """Fetch the batches of this process, as often as they are asked for, by the same workers.

    Every process takes whole batches, so that each batch has the samples that it would have on a
    single process.

    Args:
        task: The samples.
        accelerator: One process or many.
        batch_size: Samples of a training batch; without gradients more fit.
        workers: Processes that fetch batches.
    """
    size = EVALUATION_FACTOR * batch_size
    place = accelerator.process_index, accelerator.num_processes
    on_gpu = accelerator.device.type == "cuda"
    batches = in_order(len(task.ranks), size, *place)
    return loader(task.samples, batches, workers, on_gpu, ahead=1)  # they are large


@torch.no_grad()
def outcomes_of(
    model: OrdinalModel,
    task: Task,
    batches: Iterable[Batch],
    accelerator: Accelerator,
    *,
    full_precision: bool = False,
    keep: Int[Tensor, " m"] | None = None,
) -> Outcomes:
    """Go over all samples once. All processes call it together and get the same.

    The results are put back in order: no sample is counted twice or left out.

    Args:
        model: As it was before it was prepared for several processes.
        task: The samples.
        batches: What :func:`batches_of` gives for them.
        accelerator: One process or many.
        full_precision: Whatever the precision of training.
        keep: The samples whose features are wanted, in ascending order; none if not given.
    """
    model.eval()
    if accelerator.num_processes > 1:
        for buffer in model.buffers():  # each process has its own statistics of BatchNorm
            broadcast(buffer)
    device = accelerator.device
    wanted = torch.zeros(len(task.ranks), dtype=torch.bool)
    wanted[[] if keep is None else keep] = True
    found = _Parts(model.head.num_classes, accelerator)
    kept = _Parts(model.head.dim, accelerator)
    loss_sum = 0.0
    for x, index in batches:
        ranks, weight = task.ranks[index].to(device), task.weight[index].to(device)
        with nullcontext() if full_precision else accelerator.autocast():
            features = model.features(to_device(x, device))
        loss = model.head.loss(features, ranks, weight)
        loss_sum += loss.item() * weight.sum().item()
        found.add(index, model.head.log_probs(features))
        here = wanted[index]
        kept.add(index[here], features[here.to(device)].float())
    (total,) = summed([loss_sum], accelerator)
    mean = total / task.weight.double().sum().item()
    return Outcomes(found.in_order(), mean, kept.in_order())


class _Parts:
    """Rows that come batch by batch, on one process or several, and are put in order at the end.

    Args:
        width: Of a row.
        accelerator: One process or many.
    """

    def __init__(self, width: int, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._rows = [torch.zeros(0, width, device=accelerator.device)]
        self._places = [torch.zeros(0, dtype=torch.int64, device=accelerator.device)]

    def add(self, index: Int[Tensor, " n"], rows: Float[Tensor, "n width"]) -> None:
        """Take the rows of these samples."""
        self._places.append(index.to(rows.device))
        self._rows.append(rows)

    def in_order(self) -> Float[Tensor, "n width"]:
        """Give the rows of all processes in the order of the samples, on the CPU."""
        index, rows = torch.cat(self._places), torch.cat(self._rows)
        if self._accelerator.num_processes > 1:
            index = gather(pad_across_processes(index, pad_index=-1))
            rows = gather(pad_across_processes(rows))
            index, rows = index[index >= 0], rows[index >= 0]
        return rows[index.argsort()].cpu()
