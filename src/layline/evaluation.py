"""The numbers of a model on a set of samples, each with the decoding that it was measured with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline import metrics
from layline.files import whole_file, write_text
from layline.geometry.decoding import DECODINGS
from layline.predictions import FORMATS, open_for_lines
from layline.registry import find

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
    "ece": metrics.expected_calibration_error,
}


def measure(
    ranks: Int[Tensor, " n"], log_probs: Float[Tensor, "n K"], decode: str
) -> dict[str, Any]:
    """Compute all metrics.

    Args:
        ranks: The true classes.
        log_probs: What a model says.
        decode: The decoding that was chosen; the others are given beside it.
    """
    proba = normalised(log_probs)
    predicted = {name: choose(torch.from_numpy(proba)) for name, choose in DECODINGS.items()}
    by_decoding = {
        name: {metric: _number(function(ranks, chosen)) for metric, function in DECODED.items()}
        for name, chosen in predicted.items()
    }
    distribution = {
        name: _number(function(ranks, proba)) for name, function in DISTRIBUTION.items()
    }
    distribution["unimodality_rate"] = _number(metrics.unimodality_rate(proba))
    confusion = np.zeros((proba.shape[1], proba.shape[1]), dtype=int)
    np.add.at(confusion, (ranks.numpy(), predicted[decode].numpy()), 1)
    return {
        "samples": len(ranks),
        "decode": decode,
        **by_decoding[decode],
        **distribution,
        "by_decoding": by_decoding,
        "confusion": confusion.tolist(),
    }


def normalised(log_probs: Float[Tensor, "n K"]) -> Float[np.ndarray, "n K"]:
    """Turn log probabilities into rows that sum to one in float64."""
    proba: np.ndarray[Any, np.dtype[np.float64]] = log_probs.double().softmax(dim=-1).numpy()
    return proba


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write numbers as JSON, whole or not at all."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def write_predictions(
    path: Path,
    names: Sequence[str],
    classes: Sequence[str],
    log_probs: Float[Tensor, "n K"],
    decode: str,
    ranks: Int[Tensor, " n"],
) -> None:
    """Write one line per sample: path, true class, predicted class, probabilities.

    Args:
        path: A ``.csv`` or ``.jsonl`` file.
        names: What the samples are called.
        classes: Names of the classes, lowest first.
        log_probs: What a model says.
        decode: How the predicted class is chosen.
        ranks: The true classes.
    """
    proba = normalised(log_probs)
    chosen = DECODINGS[decode](torch.from_numpy(proba)).tolist()
    with whole_file(path) as part, open_for_lines(part) as file:
        write = find("the ending of predictions", path.suffix, FORMATS)(
            file, classes, with_truth=True
        )
        for name, rank, shares, true in zip(names, chosen, proba, ranks.tolist(), strict=True):
            write(name, classes[rank], shares.tolist(), classes[true])


def _number(value: float) -> float | None:
    """JSON has no NaN, which a correlation with a constant is."""
    return value if np.isfinite(value) else None
