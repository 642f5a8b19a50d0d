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
        log_probs, ranks = unseen[0], unseen[1].numpy()
        proba = probabilities(apply_temperature(log_probs, temperature)).numpy()
        return cls(temperature, nonconformity_scores(proba)[np.arange(len(ranks)), ranks], ranks)

    @property
    def usual_coverages(self) -> list[float]:
        """The coverages of ``COVERAGES`` that the calibration samples can guarantee."""
        return [each for each in COVERAGES if len(self.scores) >= samples_needed(each)]

    @property
    def default_coverage(self) -> float | None:
        """90 %, or what fewer calibration samples can guarantee; None without any."""
        count = len(self.scores)
        return min(DEFAULT_COVERAGE, count / (count + 1)) if count else None

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
        num_classes = proba.shape[1]
        self.check(coverage, num_classes, by_class)
        ranks = range(num_classes) if by_class else [None]
        return find_ranges(proba, chosen, np.array([self.bound(coverage, rank) for rank in ranks]))

    def bound(self, coverage: float, rank: int | None = None) -> float:
        """Compute the largest s with p(s) > 1 - coverage: one of the scores, or infinity."""
        scores = np.sort(self.scores if rank is None else self.scores[self.ranks == rank])
        place = math.ceil((len(scores) + 1) * (coverage - 1e-12))  # of the bound, from 1
        return float(scores[place - 1]) if place <= len(scores) else math.inf

    @classmethod
    def from_json(cls, values: Any) -> "Calibration":
        """Read what :meth:`to_json` wrote; a wrong value is a ValueError."""
        try:
            temperature = float(values["temperature"])
            scores = np.array(values["scores"], dtype=np.float64)
            ranks = np.array(values["ranks"], dtype=np.int64)
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
    ``bounds`` is one number for all ranks, or one for each.
    """
    xp, num_classes = array_namespace(proba), proba.shape[1]
    ranks = xp.arange(num_classes)
    inside = (nonconformity_scores(proba) <= bounds) | (ranks == chosen[:, None])
    low = xp.amin(xp.where(inside, ranks, num_classes), axis=1)
    return low, xp.amax(xp.where(inside, ranks, -1), axis=1)
