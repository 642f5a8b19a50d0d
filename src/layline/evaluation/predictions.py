"""Predictions of a model for the samples of a split.

A split is predicted in one pass, with one or several processes, with the same result. The head
decodes the ranks, so no arg max of rounded probabilities is taken here.
"""

import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.data import loaders
from layline.data.loaders import Batch, Batches, ImageBatches, SelectedBatches
from layline.geometry.decoding import COST, DECODINGS, Decode
from layline.heads.base import probabilities
from layline.model.calibration import apply_temperature
from layline.model.model import Network
from layline.utils.devices import Processes

EVALUATION_FACTOR = 4  # without gradients, larger batches fit into memory
_CPU_IMAGES = 64  # more images per batch do not fit into the CPU's caches


def evaluation_batch_size(samples: Batches, batch_size: int, device: torch.device) -> int:
    """Choose a batch size for prediction from the one of training."""
    size = EVALUATION_FACTOR * batch_size
    if device.type == "cpu" and isinstance(samples, ImageBatches):
        size = min(size, _CPU_IMAGES)
    return size


@dataclass(frozen=True)
class Split:
    """Samples with their labels and weights."""

    samples: Batches
    ranks: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]

    def take(self, index: Int[Tensor, " m"]) -> "Split":
        """Select samples."""
        samples = SelectedBatches(self.samples, index.tolist())
        return Split(samples, self.ranks[index], self.weight[index])

    def batches(
        self, processes: Processes, batch_size: int, workers: int | None = None
    ) -> Iterable[Batch]:
        """Make the loader of the batches of this process.

        Every process takes whole batches, so each batch has the same samples for any number of
        processes. ``batch_size`` is that of training; these batches are mostly larger.
        """
        size = evaluation_batch_size(self.samples, batch_size, processes.device)
        batches = loaders.sequential_batches(
            len(self.ranks), size, processes.index, processes.count
        )
        on_gpu = processes.device.type == "cuda"
        return loaders.loader(self.samples, batches, workers, on_gpu)


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for the samples of a split, in their order."""

    log_probs: Float[Tensor, "n K"]
    decisions: dict[str, Int[Tensor, " n"]]  # predicted ranks, by the name of the decoding
    loss: float = math.nan  # the weighted mean
    features: Float[Tensor, "m d"] = field(default_factory=lambda: torch.zeros(0, 0))

    @property
    def proba(self) -> Float[np.ndarray, "n K"]:
        """Probabilities that sum to one in float64."""
        return probabilities(self.log_probs).numpy()


@torch.no_grad()
def predict_split(
    model: Network,
    split: Split,
    batches: Iterable[Batch],
    processes: Processes,
    *,
    full_precision: bool = False,
    keep: Int[Tensor, " m"] | None = None,
    decode: Decode = "mode",
    temperature: float = 1.0,
) -> Predictions:
    """Predict a split in one pass. All processes call it together and get the same result.

    ``model`` is not wrapped for several processes, ``batches`` is the result of ``split.batches``.
    The features of the samples in ``keep``, which ascends, are returned. If ``decode`` is a matrix
    of costs, decisions by it are returned, too.
    """
    model.eval()
    processes.share_buffers(model)
    head, device = model.head, processes.device
    is_kept = torch.zeros(len(split.ranks), dtype=torch.bool)
    is_kept[[] if keep is None else keep] = True
    # a process may have no batch, but all gather rows of the same width
    places = [torch.zeros(0, dtype=torch.int64)]
    log_probs = [torch.zeros(0, head.num_classes, device=device)]
    names = [*DECODINGS, *([] if isinstance(decode, str) else [COST])]
    decisions = [torch.zeros(0, len(names), dtype=torch.int64, device=device)]
    kept = [torch.zeros(0, head.dim, device=device)]
    loss_sum, overflows = 0.0, 0.0
    for x, index in batches:
        ranks, weight = split.ranks[index].to(device), split.weight[index].to(device)
        with nullcontext() if full_precision else processes.autocast():
            features = model.backbone(loaders.to_device(x, device))
        loss_sum += head.loss(features, ranks, weight).item() * weight.sum().item()
        finite = features.isfinite()
        overflows += float(not finite.all())
        features = features.where(finite, 0)
        places.append(index)
        log_probs.append(apply_temperature(head.log_probs(features), temperature))
        by_decoding = head.decisions(features, log_probs[-1], decode)
        decisions.append(torch.stack([by_decoding[name] for name in names], dim=1))
        kept.append(features[is_kept[index].to(device)].float())

    def in_order(index: Tensor, rows: list[Tensor]) -> Tensor:
        """Gather the rows of all processes in the order of the samples, on the CPU."""
        index, gathered = processes.gather(index.to(device), torch.cat(rows))
        return gathered[index.argsort()].cpu()

    index = torch.cat(places)
    total, overflows = processes.sum([loss_sum, overflows])
    if overflows:  # in all processes together
        raise FloatingPointError("The network computes features that are not finite.")
    return Predictions(
        in_order(index, log_probs),
        dict(zip(names, in_order(index, decisions).unbind(dim=1), strict=True)),
        total / split.weight.double().sum().item(),
        in_order(index[is_kept[index]], kept),
    )
