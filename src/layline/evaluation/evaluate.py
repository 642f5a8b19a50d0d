"""Measuring a model on a part of the data: what it predicts, and how far that is from the truth.

A part is gone over once, by one process or several, with the same result. The head decides which
rank a sample gets; no arg max of rounded probabilities is taken here.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader

from layline import metrics
from layline.data.loaders import (
    Batch,
    Batches,
    ImageBatches,
    loader,
    sequential_batches,
    to_device,
)
from layline.data.table_encoding import TableEncoding
from layline.evaluation.diagnostics import REVIEWED, certainty_columns, diagnose
from layline.evaluation.prediction_file import prediction_lines
from layline.geometry.decoding import COST, DECODINGS, Decode, decode_name
from layline.model.calibration import Range, measure_ranges, shown_coverage, tempered
from layline.model.model import ModelSpec, Network, normalised
from layline.utils.devices import Processes

EVALUATION_FACTOR = 4  # without gradients, so much fits where a training batch did
_IMAGES_ON_PROCESSOR = 64  # of more, the outputs of layers leave its caches, and the memory
# What depends on how a distribution becomes a rank.
DECODED = {
    "accuracy": metrics.accuracy,
    "mae": metrics.mean_absolute_error,
    "macro_mae": metrics.macro_mean_absolute_error,
    "maximum_mae": metrics.maximum_mean_absolute_error,
    "within_one": metrics.accuracy_within,
    "qwk": metrics.quadratic_weighted_kappa,
    "spearman": metrics.spearman,
    "kendall": metrics.kendall,
}
# What is measured on the distributions themselves.
DISTRIBUTION = {
    "rps": metrics.ranked_probability_score,
    "nll": metrics.log_loss,
    "ece": metrics.expected_calibration_error,
}


@dataclass(frozen=True)
class Criterion:
    """What a model is trained to be good at.

    Attributes:
        decode: The decoding that does best by it.
        sign: 1 where lower is better, −1 where higher is.
    """

    decode: str
    sign: int


# By metric: the most probable rank is right most often, the median has the least absolute error,
# and the rounded mean the least squared error, which is what quadratic weights ask for.
CRITERIA = {
    "mae": Criterion("median", 1),
    "accuracy": Criterion("mode", -1),
    "qwk": Criterion("mean", -1),
}


def evaluation_batch_size(samples: Batches, batch_size: int, device: torch.device) -> int:
    """Say how many samples a network takes at a time where nothing is learned.

    Args:
        samples: Where batches are fetched from.
        batch_size: Of training.
        device: Of the network.
    """
    size = EVALUATION_FACTOR * batch_size
    if device.type == "cpu" and isinstance(samples, ImageBatches):
        size = min(size, _IMAGES_ON_PROCESSOR)
    return size


@dataclass(frozen=True)
class Part:
    """Samples with their labels.

    Attributes:
        samples: Where batches are fetched from.
        ranks: The class of each sample.
        weight: How much each sample counts.
    """

    samples: Batches
    ranks: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]

    def batches(
        self, processes: Processes, batch_size: int, workers: int | None = None
    ) -> DataLoader[Any]:
        """Fetch the batches of this process, as often as they are asked for, by the same workers.

        Every process takes whole batches, so that each batch has the samples that it would have on
        a single process. Mostly they are larger than a training batch of ``batch_size``.
        """
        size = evaluation_batch_size(self.samples, batch_size, processes.device)
        batches = sequential_batches(len(self.ranks), size, processes.index, processes.count)
        on_gpu = processes.device.type == "cuda"
        return loader(self.samples, batches, workers, on_gpu, ahead=1)  # they are large


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for the samples of a part, in their order.

    Attributes:
        log_probs: Logarithms of the probabilities of the classes.
        decisions: The rank of each sample, by the name of the decoding.
        loss: The weighted mean of the loss.
        features: The vectors of those samples whose vectors were asked for.
    """

    log_probs: Float[Tensor, "n K"]
    decisions: dict[str, Int[Tensor, " n"]]
    loss: float = math.nan
    features: Float[Tensor, "m d"] = field(default_factory=lambda: torch.zeros(0, 0))

    @property
    def proba(self) -> Float[np.ndarray, "n K"]:
        """Probabilities that sum to one in float64."""
        return normalised(self.log_probs)


@torch.no_grad()
def predict_part(
    model: Network,
    part: Part,
    batches: Iterable[Batch],
    processes: Processes,
    *,
    full_precision: bool = False,
    keep: Int[Tensor, " m"] | None = None,
    decode: Decode = "mode",
    temperature: float = 1.0,
) -> Predictions:
    """Go over all samples once. All processes call it together and get the same.

    Args:
        model: As it was before it was prepared for several processes.
        part: The samples.
        batches: What ``part.batches`` gives.
        processes: One or several.
        full_precision: Whatever the precision of training.
        keep: The samples whose features are wanted, in ascending order; none if not given.
        decode: Costs are decided by as well.
        temperature: What the probabilities are brought to.
    """
    model.eval()
    processes.share_buffers(model)
    head, device = model.head, processes.device
    is_kept = torch.zeros(len(part.ranks), dtype=torch.bool)
    is_kept[[] if keep is None else keep] = True
    # a process may have no batch at all, but all of them gather rows of the same width
    places = [torch.zeros(0, dtype=torch.int64)]
    log_probs = [torch.zeros(0, head.num_classes, device=device)]
    names = [*DECODINGS, *([] if isinstance(decode, str) else [COST])]
    decisions = [torch.zeros(0, len(names), dtype=torch.int64, device=device)]
    kept = [torch.zeros(0, head.dim, device=device)]
    loss_sum = 0.0
    for x, index in batches:
        ranks, weight = part.ranks[index].to(device), part.weight[index].to(device)
        with nullcontext() if full_precision else processes.autocast():
            features = model.backbone(to_device(x, device))
        loss_sum += head.loss(features, ranks, weight).item() * weight.sum().item()
        places.append(index)
        log_probs.append(tempered(head.log_probs(features), temperature))
        by_decoding = head.decisions(features, log_probs[-1], decode)
        decisions.append(torch.stack([by_decoding[name] for name in names], dim=1))
        kept.append(features[is_kept[index].to(device)].float())

    def in_order(index: Int[Tensor, " n"], rows: list[Tensor]) -> Tensor:
        """Give the rows of all processes in the order of the samples, on the CPU."""
        index, gathered = processes.gather(index.to(device), torch.cat(rows))
        return gathered[index.argsort()].cpu()

    index = torch.cat(places)
    (total,) = processes.sum([loss_sum])
    return Predictions(
        in_order(index, log_probs),
        dict(zip(names, in_order(index, decisions).unbind(dim=1), strict=True)),
        total / part.weight.double().sum().item(),
        in_order(index[is_kept[index]], kept),
    )


def measure(ranks: Int[Tensor, " n"], predictions: Predictions, decode: Decode) -> dict[str, Any]:
    """Compute all metrics.

    Args:
        ranks: The true classes.
        predictions: Those of a model.
        decode: The decoding that was chosen; the others are given beside it.
    """
    proba, chosen_by = predictions.proba, decode_name(decode)
    by_decoding = {
        name: {metric: _number(function(ranks, chosen)) for metric, function in DECODED.items()}
        for name, chosen in predictions.decisions.items()
    }
    distribution = measure_distributions(ranks, proba)
    distribution["unimodality_rate"] = _number(metrics.unimodality_rate(proba))
    confusion = np.zeros((proba.shape[1], proba.shape[1]), dtype=int)
    np.add.at(confusion, (ranks.numpy(), predictions.decisions[chosen_by].numpy()), 1)
    paid = (
        {} if isinstance(decode, str) else {"cost": float((confusion * decode).sum() / len(ranks))}
    )
    return {
        "samples": len(ranks),
        "decode": chosen_by,
        **paid,
        **by_decoding[chosen_by],
        **distribution,
        "by_decoding": by_decoding,
        "confusion": confusion.tolist(),
    }


def measure_distributions(
    ranks: Int[Tensor, " n"], proba: Float[np.ndarray, "n K"]
) -> dict[str, float | None]:
    """Compute what does not depend on a decoding."""
    return {name: _number(function(ranks, proba)) for name, function in DISTRIBUTION.items()}


def _number(value: float) -> float | None:
    """JSON has no NaN, which a correlation with a constant is."""
    return value if np.isfinite(value) else None


@dataclass(frozen=True)
class Evaluation:
    """A model measured on a part of the data.

    Attributes:
        numbers: All metrics, as in ``test.json``.
        names: What the samples are called.
        classes: Names of the classes, lowest first.
        ranks: The true ones.
        predictions: Those of the model.
        ranges: The lowest and the highest rank that is possible, if the model is calibrated.
        paths: Whether the samples are called by their paths.
        groups: What each sample belongs to, such as a patient, if that is known.
    """

    numbers: dict[str, Any]
    names: Sequence[str]
    classes: Sequence[str]
    ranks: Int[Tensor, " n"]
    predictions: Predictions
    ranges: Range | None = None
    paths: bool = True
    groups: Sequence[Hashable] | None = None

    @property
    def chosen(self) -> Int[Tensor, " n"]:
        """The ranks that were decided for."""
        return self.predictions.decisions[self.numbers["decode"]]

    def write_predictions(self, path: Path) -> None:
        """Write a line per sample to a ``.csv`` or ``.jsonl`` file."""
        proba, chosen = self.predictions.proba, self.chosen.numpy()
        columns = certainty_columns(proba, chosen, self.classes, self.ranges, REVIEWED)
        if self.groups is not None:  # what belongs together stays so when runs are compared
            columns["group"] = [str(group) for group in self.groups]
        truth = [self.classes[rank] for rank in self.ranks.tolist()]
        with prediction_lines(
            path, self.classes, with_truth=True, more=list(columns), paths=self.paths
        ) as write:
            for i, name in enumerate(self.names):
                more = {column: values[i] for column, values in columns.items()}
                write(name, self.classes[chosen[i]], proba[i].tolist(), truth[i], more)


def evaluated(
    part: str,
    ranks: Int[Tensor, " n"],
    names: Sequence[str],
    predictions: Predictions,
    spec: ModelSpec,
    decode: Decode,
    groups: Sequence[Hashable] | None = None,
) -> Evaluation:
    """Measure all there is to measure: errors, probabilities before and after calibration, ranges.

    Args:
        part: What the samples are called together.
        ranks: Their classes.
        names: What each is called.
        predictions: Those of a model, calibrated.
        spec: The model.
        decode: The decoding that was chosen, checked.
        groups: What each sample belongs to, such as a patient, if that is known.
    """
    numbers: dict[str, Any] = {"part": part, **measure(ranks, predictions, decode)}
    calibration, proba = spec.calibration, predictions.proba
    # what a temperature did can be undone
    raw = normalised(predictions.log_probs.double() * calibration.temperature)
    numbers["calibration"] = {
        "temperature": calibration.temperature,
        "samples": len(calibration.scores),
        "before": measure_distributions(ranks, raw),
        "after": measure_distributions(ranks, proba),
    }
    chosen = predictions.decisions[decode_name(decode)].numpy()
    numbers["ranges"] = measure_ranges(calibration, ranks.numpy(), proba, chosen)
    numbers |= diagnose(ranks.numpy(), chosen, proba, spec.classes, groups=groups)
    ranges = None
    if numbers["ranges"]:
        ranges = calibration.ranges(proba, chosen, shown_coverage(len(calibration.scores)))
    paths = not isinstance(spec.inputs, TableEncoding)
    return Evaluation(numbers, names, spec.classes, ranks, predictions, ranges, paths, groups)
