"""The training loop for samples in memory: AdamW, a rate for the features and one for the head."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline import metrics
from layline.arguments import check_above, check_at_least, check_integer
from layline.geometry import DECODINGS
from layline.heads import OrdinalHead
from layline.registry import check_known
from layline.training.progress import Progress
from layline.training.selection import BestEpoch

Record = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may choose about training.

    Attributes:
        epochs: Passes over the training samples.
        batch_size: Most samples in a step.
        learning_rate: AdamW's rate for the features.
        head_learning_rate: AdamW's rate for the head.
        weight_decay: AdamW's decay, for both.
        decode: How a validation sample's distribution becomes a rank.
        patience: Stop after so many epochs without a better validation MAE.
        verbose: Whether to show progress.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    head_learning_rate: float
    weight_decay: float
    decode: str
    patience: int | None
    verbose: int

    def __post_init__(self) -> None:
        for name, least in {"epochs": 1, "batch_size": 1, "verbose": 0}.items():
            check_integer(name, getattr(self, name), least)
        for name in ("learning_rate", "head_learning_rate"):
            check_above(name, getattr(self, name), 0, "1e-3 is usual")
        check_at_least("weight_decay", self.weight_decay, 0, "0 turns it off")
        check_known("decode", self.decode, DECODINGS)
        if self.patience is not None:
            check_integer("patience", self.patience, 1, "None never stops early")


@dataclass(frozen=True)
class Samples:
    """Samples in memory.

    Attributes:
        x: Inputs of the features module.
        ranks: Labels, 0 for the lowest class.
        weight: How much each sample counts in a mean.
    """

    x: Tensor
    ranks: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.ranks)

    def batches(
        self, size: int, order: Int[Tensor, " n"], device: torch.device
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Cut the samples into nearly equal batches: a rest of one would stop a BatchNorm."""
        count = math.ceil(len(order) / size)
        if size > 1:  # an odd number of samples in pairs ends with three together
            count = max(1, min(count, len(order) // 2))
        for index in order.tensor_split(count):
            x, ranks, weight = self.x[index], self.ranks[index], self.weight[index]
            yield x.to(device), ranks.to(device), weight.to(device)


def train(
    features: nn.Module,
    head: OrdinalHead,
    samples: Samples,
    validation: Samples | None,
    options: Options,
    generator: torch.Generator,
) -> tuple[list[Record], int]:
    """Train until the last epoch or until patience ends, and keep the best epoch.

    Without validation samples the last epoch is kept. Both modules end in evaluation mode.

    Args:
        features: Maps inputs to features, on the device of the head.
        head: The ordinal method.
        samples: What to learn from.
        validation: What to choose the epoch by.
        options: The user's choices.
        generator: Orders the samples, a new order in each epoch.

    Returns:
        The history, one record per epoch, and the number of the epoch kept, counted from 1.
    """
    optimiser = torch.optim.AdamW(
        [
            {"params": _trainable(features), "lr": options.learning_rate},
            {"params": _trainable(head), "lr": options.head_learning_rate},
        ],
        weight_decay=options.weight_decay,
        fused=_device(head).type in ("cpu", "cuda"),  # a quarter faster on small networks
    )
    best = BestEpoch(features, head)
    history: list[Record] = []
    with Progress(options.epochs, options.verbose) as progress:
        for epoch in range(1, options.epochs + 1):
            order = torch.randperm(len(samples), generator=generator)
            loss = train_epoch(features, head, samples, order, optimiser, options.batch_size)
            _check_finite(loss, epoch, features, head, options)
            record: Record = {"epoch": epoch, "train_loss": loss}
            if validation is not None:
                record |= evaluate(features, head, validation, options)
                _check_finite(record["validation_loss"], epoch, features, head, options)
                best.offer(epoch, record["validation_mae"])
            history.append(record)
            progress.show(record, best)
            if options.patience and best.epoch and epoch - best.epoch >= options.patience:
                break
    if validation is not None:
        best.restore()
    features.eval()
    head.eval()
    return history, best.epoch or len(history)


def train_epoch(
    features: nn.Module,
    head: OrdinalHead,
    samples: Samples,
    order: Int[Tensor, " n"],
    optimiser: torch.optim.Optimizer,
    batch_size: int,
) -> float:
    """Make one pass over the samples and return their mean loss on the way."""
    features.train()
    head.train()
    total = 0.0
    usual = samples.weight.mean().item()
    for x, ranks, weight in samples.batches(batch_size, order, _device(head)):
        loss = head.loss(features(x), ranks, weight)
        # the head divides by the batch's own weight; a batch of light samples must stay light
        torch.autograd.backward(loss * (weight.mean() / usual))
        optimiser.step()
        optimiser.zero_grad()
        total += loss.item() * weight.sum().item()
    return total / samples.weight.sum().item()


@torch.no_grad()
def evaluate(features: nn.Module, head: OrdinalHead, samples: Samples, options: Options) -> Record:
    """Measure loss, MAE and accuracy, each weighted by the samples' weights."""
    features.eval()
    head.eval()
    total, predicted = 0.0, []
    order = torch.arange(len(samples))
    for x, ranks, weight in samples.batches(4 * options.batch_size, order, _device(head)):
        outputs = features(x)
        total += head.loss(outputs, ranks, weight).item() * weight.sum().item()
        predicted.append(head.predict(outputs, decode=options.decode).cpu())
    outcome = samples.ranks, torch.cat(predicted)
    return {
        "validation_loss": total / samples.weight.sum().item(),
        "validation_mae": metrics.mean_absolute_error(*outcome, sample_weight=samples.weight),
        "validation_accuracy": metrics.accuracy(*outcome, sample_weight=samples.weight),
    }


def _check_finite(
    loss: float, epoch: int, features: nn.Module, head: nn.Module, options: Options
) -> None:
    weights = [*features.parameters(), *head.parameters()]
    # the last step may spoil the weights after the last loss was taken
    if not (math.isfinite(loss) and all(weight.isfinite().all() for weight in weights)):
        raise FloatingPointError(
            f"training must stay finite, got a loss of {loss} in epoch {epoch}: lower "
            f"learning_rate ({options.learning_rate}) and head_learning_rate "
            f"({options.head_learning_rate}), or standardise X"
        )


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _device(head: nn.Module) -> torch.device:
    return next(head.parameters()).device
