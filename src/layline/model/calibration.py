r"""Calibration: temperature scaling of probabilities, and conformal ranges of ranks.

**Temperature.** Probabilities become :math:`P_k^{1/T}`, normalized. T is a single number that
maximizes the likelihood of held-out samples. It does not change the mode.

**Ranges** are conformal predictions. The nonconformity score of a rank y is its ranked probability
score, with F the cumulative distribution:

.. math:: s(y) = \sum_{k=0}^{K-2} \big(F_k - [y \le k]\big)^2, \qquad s(y + 1) - s(y) = 2 F_y - 1

s is convex with its minimum at the median, so the ranks below any bound are consecutive: they form
a range. With n calibration samples that were used for nothing else, the p-value of a rank is

.. math:: p(y) = \frac{1 + \#\{i : s_i(y_i) \ge s(y)\}}{n + 1}

A range at coverage c contains the ranks with :math:`p(y) > 1 - c`, which are those with s(y) up to
a bound, one of the calibration scores. For a new sample from the same distribution it contains the
true rank with probability at least c. By class, only calibration samples of rank y count for y.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from layline.geometry.decoding import array_namespace
from layline.metrics import rank_scores as nonconformity_scores
from layline.utils.validation import UserError

if TYPE_CHECKING:  # an exported model computes ranges without torch
    from torch import Tensor

Range = tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]
COVERAGES = (0.8, 0.9, 0.95)  # that reports show
DEFAULT_COVERAGE = 0.9
MIN_SAMPLES = 20  # with fewer, no temperature is fitted
_MAX_TEMPERATURE = 10.0  # temperatures are searched from 1/10 to 10


@dataclass(frozen=True)
class Calibration:
    """The temperature of a model, and the scores and true ranks of its calibration samples."""

    temperature: float = 1.0
    scores: Float[np.ndarray, " m"] = field(default_factory=lambda: np.zeros(0))
    ranks: Int[np.ndarray, " m"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def fit(
        cls, held_out: "tuple[Tensor, Tensor] | None", unseen: "tuple[Tensor, Tensor] | None"
    ) -> "Calibration":
        """Calibrate with log probabilities and ranks that were not trained on.

        The validation samples are suitable as ``held_out``, for the temperature. ``unseen`` is for
        the ranges: samples that were used for nothing else.
        """
        from layline.heads.base import probabilities  # needs torch

        temperature = 1.0 if held_out is None else fit_temperature(*held_out)
        if unseen is None:
            return cls(temperature)
        log_probs, ranks = unseen
        proba = probabilities(apply_temperature(log_probs, temperature)).numpy()
        truth = ranks.numpy()
        return cls(temperature, nonconformity_scores(proba)[np.arange(len(truth)), truth], truth)

    def check(self, coverage: float, num_classes: int, by_class: bool = False) -> None:
        """Refuse a coverage that the calibration samples cannot guarantee."""
        if not (isinstance(coverage, int | float) and 0 < coverage < 1):
            raise UserError(f"coverage must be a number between 0 and 1, got {coverage!r}")
        if len(self.scores) == 0:
            raise UserError(
                "The model has no calibration samples, which ranges need. Calibrate it with "
                "labelled samples that it has not seen, or train with a calibration split."
            )
        needed = samples_needed(coverage)
        counts = np.bincount(self.ranks, minlength=num_classes) if by_class else [len(self.scores)]
        if min(counts) < needed:
            what = " in every class" if by_class else ""
            raise UserError(
                f"A coverage of {coverage:g} needs at least {needed} calibration samples{what}, "
                f"got {min(counts)}. Choose a lower coverage or calibrate with more samples."
            )

    def ranges(
        self,
        proba: Float[np.ndarray, "n K"],
        chosen: Int[np.ndarray, " n"],
        coverage: float = DEFAULT_COVERAGE,
        by_class: bool = False,
    ) -> Range:
        """Compute the lowest and the highest plausible rank of each sample.

        A range always contains the chosen rank.
        """
        self.check(coverage, proba.shape[1], by_class)
        bounds: float | NDArray[np.float64] = self.bound(coverage)
        if by_class:
            bounds = np.array([self.bound(coverage, rank) for rank in range(proba.shape[1])])
        return find_ranges(proba, chosen, bounds)

    def bound(self, coverage: float, rank: int | None = None) -> float:
        """Compute the largest s with p(s) > 1 - coverage: one of the scores, or infinity."""
        scores = np.sort(self.scores if rank is None else self.scores[self.ranks == rank])
        p_values = np.arange(len(scores) + 1, 0, -1) / (len(scores) + 1)  # by smaller scores
        smaller = int(np.flatnonzero(p_values > 1 - coverage + 1e-12).max())
        return float(scores[smaller]) if smaller < len(scores) else math.inf

    @classmethod
    def from_json(cls, values: Any) -> "Calibration":
        """Read what :meth:`to_json` wrote; a wrong value is a ValueError."""
        try:
            temperature = float(values["temperature"])
            scores = np.array(values["scores"], dtype=np.float64)
            ranks = np.array(values["ranks"] or [], dtype=np.int64)
        except (TypeError, KeyError, OverflowError) as error:
            raise UserError(f"not a calibration: {error}") from None
        valid = 0 < temperature < math.inf and scores.ndim == 1 and scores.shape == ranks.shape
        if not (valid and np.isfinite(scores).all() and (ranks >= 0).all()):
            raise UserError("temperature must be positive, and each finite score needs a rank")
        return cls(temperature, scores, ranks)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values for a model file."""
        return {
            "temperature": self.temperature,
            "scores": self.scores.tolist(),
            "ranks": self.ranks.tolist(),
        }


def samples_needed(coverage: float) -> int:
    """Count the calibration samples without which every range would contain all ranks."""
    return max(math.ceil(coverage / (1 - coverage) - 1e-9), 1)


def shown_coverage(samples: int) -> float:
    """Choose the default coverage: 90 %, or what this number of samples can guarantee."""
    enough = samples >= samples_needed(DEFAULT_COVERAGE)
    return DEFAULT_COVERAGE if enough else samples / (samples + 1)


def apply_temperature(log_probs: "Tensor", temperature: float) -> "Tensor":
    """Scale log probabilities, (n, K), by a temperature."""
    return log_probs if temperature == 1 else (log_probs / temperature).log_softmax(dim=-1)


def fit_temperature(log_probs: "Tensor", ranks: "Tensor") -> float:
    """Find the temperature with the highest likelihood; 1 for fewer than 20 samples."""
    import torch
    from scipy.optimize import minimize_scalar

    if len(ranks) < MIN_SAMPLES:
        return 1.0
    # a probability of zero would stay zero at any temperature
    floor = torch.finfo(torch.float32).min / (2 * _MAX_TEMPERATURE)
    exact, rows = log_probs.double().clamp_min(floor), torch.arange(len(ranks))

    def loss(log_temperature: float) -> float:
        scaled = exact / math.exp(log_temperature)
        return float(scaled.logsumexp(dim=1).mean() - scaled[rows, ranks].mean())

    limit = math.log(_MAX_TEMPERATURE)
    return math.exp(minimize_scalar(loss, bounds=(-limit, limit), method="bounded").x)


def find_ranges(proba: Any, chosen: Any, bounds: Any) -> tuple[Any, Any]:
    """Find the lowest and the highest rank whose score is within its bound.

    The same code computes the ranges of arrays and, for tensors, those of an exported graph.
    ``bounds`` is one number for all ranks, or one for each, (K,).
    """
    xp, num_classes = array_namespace(proba), proba.shape[1]
    ranks = xp.arange(num_classes)
    inside = (nonconformity_scores(proba) <= bounds) | (ranks == chosen[:, None])
    low = xp.amin(xp.where(inside, ranks, num_classes), axis=1)
    return low, xp.amax(xp.where(inside, ranks, -1), axis=1)


def expected_coverage(coverage: float, calibrated: int, tested: int) -> tuple[float, float]:
    """Compute the 1 % and 99 % quantiles of the coverage measured on a test split.

    Over the draw of both splits the number of covered samples has a beta-binomial distribution.
    """
    from scipy.stats import betabinom  # slow to import

    missed = max(math.floor((calibrated + 1) * (1 - coverage) + 1e-9), 1)
    distribution = betabinom(tested, calibrated + 1 - missed, missed)
    low, high = distribution.ppf([0.01, 0.99])
    return float(low) / tested, float(high) / tested


def measure_ranges(
    calibration: Calibration,
    ranks: Int[np.ndarray, " n"],
    proba: Float[np.ndarray, "n K"],
    chosen: Int[np.ndarray, " n"],
) -> list[dict[str, Any]]:
    """Measure the ranges at the usual coverages, as far as there are enough samples.

    Each entry has the measured coverage and its expected interval, the mean number of classes in a
    range, and the mean distance of the missed ranks from their range.
    """
    entries, count = [], len(calibration.scores)
    for coverage in [each for each in COVERAGES if count >= samples_needed(each)]:
        low, high = calibration.ranges(proba, chosen, coverage)
        outside = np.maximum(low - ranks, ranks - high).clip(min=0)
        missed = outside > 0
        entries.append(
            {
                "coverage": coverage,
                "measured": float(1 - missed.mean()),
                "expected": list(expected_coverage(coverage, count, len(ranks))),
                "width": float((high - low + 1).mean()),
                "missed_by": float(outside[missed].mean()) if missed.any() else None,
                "calibrated_on": count,
                "samples": len(ranks),
            }
        )
    return entries
