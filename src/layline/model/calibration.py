r"""How sure a model is: probabilities that mean what they say, and ranges that keep a promise.

**Temperature.** :math:`P_k^{1/T}`, normalised; one number T, by the likelihood of held-out samples.
It keeps the mode and the one peak of a distribution, and only says how sure the model may be.

**Ranges** are conformal predictions. How ill a rank y fits a distribution is its ranked probability
score, with F the cumulative distribution:

.. math:: s(y) = \sum_{k=0}^{K-2} \big(F_k - [y \le k]\big)^2, \qquad s(y + 1) - s(y) = 2 F_y - 1

The difference rises with y, so s is convex, least at the median, and the ranks below any bound are
neighbours: a range, for any head. Of n calibration samples, which chose nothing, count those whose
own rank fits no better:

.. math:: p(y) = \frac{1 + \#\{i : s_i(y_i) \ge s(y)\}}{n + 1}

A range at coverage c holds the ranks with :math:`p(y) > 1 - c`. For a new sample of the same kind
it holds the truth with a probability of at least c, whatever the model is worth. By class only the
samples of rank y count for y; this holds for each class alone, and the range is the hull.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from layline.metrics import rank_scores
from layline.utils.errors import UserError
from layline.utils.validation import check_integer

if TYPE_CHECKING:  # an exported model makes ranges without torch
    from torch import Tensor

Range = tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]
COVERAGES = (0.8, 0.9, 0.95)  # what a report shows
FEWEST = 20  # samples for a temperature; with fewer it would be an accident
_HOTTEST = 10.0  # temperatures are sought from 1/10 to 10
_CHANCE = 0.01  # measured coverage below this quantile of its law is no accident


@dataclass(frozen=True)
class Calibration:
    """What a model knows about its own certainty.

    Attributes:
        temperature: T; 1 leaves the probabilities as the head gives them.
        scores: How ill the true rank fits, for each calibration sample, calibrated.
        ranks: The classes of those samples.
    """

    temperature: float = 1.0
    scores: Float[np.ndarray, " m"] = field(default_factory=lambda: np.zeros(0))
    ranks: Int[np.ndarray, " m"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def fit(
        cls,
        held_out: "tuple[Tensor, Tensor] | None",
        unseen: "tuple[Tensor, Tensor] | None",
    ) -> "Calibration":
        """Calibrate on log probabilities and ranks that training did not learn from.

        Args:
            held_out: For the temperature; samples that chose the epoch will do.
            unseen: For the ranges; samples that chose nothing, the temperature neither.
        """
        temperature = 1.0 if held_out is None else fit_temperature(*held_out)
        if unseen is None:
            return cls(temperature)
        from layline.heads.base import probabilities

        log_probs, ranks = unseen
        proba = probabilities(tempered(log_probs, temperature)).numpy()
        truth = ranks.numpy()
        return cls(temperature, rank_scores(proba)[np.arange(len(truth)), truth], truth)

    def check(self, coverage: float, num_classes: int, by_class: bool = False) -> None:
        """Refuse a coverage that is none, or that the calibration samples cannot promise."""
        check_coverage(coverage)
        if len(self.scores) == 0:
            raise UserError(
                "the model must have been calibrated for ranges, got one without calibration "
                "samples: train with --calibration 0.1 (calibration_fraction=0.1 of the "
                "estimator), or run layline calibrate on labelled data that it has not seen"
            )
        needed = samples_needed(coverage)
        counts = np.bincount(self.ranks, minlength=num_classes) if by_class else [len(self.scores)]
        if min(counts) < needed:
            what = " of every class" if by_class else ""
            raise UserError(
                f"coverage {coverage:g} must have at least {needed} calibration samples{what}, "
                f"got {min(counts)}: ask for less, or calibrate on more with layline calibrate"
            )

    def ranges(
        self,
        proba: Float[np.ndarray, "n K"],
        decided: Int[np.ndarray, " n"],
        coverage: float = 0.9,
        by_class: bool = False,
    ) -> Range:
        """Give the lowest and the highest rank that is possible for each sample.

        Args:
            proba: Calibrated probabilities.
            decided: The rank that was chosen for each; the range always has it.
            coverage: Share of the samples whose truth the range shall hold.
            by_class: Keep the promise in every class; ranges are wider.
        """
        num_classes = proba.shape[1]
        self.check(coverage, num_classes, by_class)
        possible = self.p_values(proba, by_class) > 1 - coverage + 1e-12
        possible[np.arange(len(decided)), decided] = True
        low = possible.argmax(axis=1)
        high = num_classes - 1 - possible[:, ::-1].argmax(axis=1)
        return low, high

    def p_values(
        self, proba: Float[np.ndarray, "n K"], by_class: bool = False
    ) -> Float[np.ndarray, "n K"]:
        """Tell for every rank how many calibration samples fit no better, as a share."""
        scores = rank_scores(proba)
        if not by_class:
            return _shares(self.scores, scores)
        columns = [
            _shares(self.scores[self.ranks == k], scores[:, k]) for k in range(proba.shape[1])
        ]
        return np.stack(columns, axis=1)

    def to_json(self) -> dict[str, Any]:
        """Write it down for the file of a model."""
        return {
            "temperature": self.temperature,
            "scores": self.scores.tolist(),
            "ranks": self.ranks.tolist(),
        }


def check_coverage(coverage: float) -> None:
    """Refuse what is no share between nothing and all."""
    if not (isinstance(coverage, int | float) and 0 < coverage < 1):
        raise UserError(
            f"coverage must be a number between 0 and 1, got {coverage!r}: 0.9 is usual, and only "
            "all grades together are always right"
        )


def samples_needed(coverage: float) -> int:
    """Count the samples without which a range at this coverage would have to hold all ranks."""
    return max(math.ceil(coverage / (1 - coverage) - 1e-9), 1)


def shown_coverage(samples: int) -> float:
    """Choose the coverage of ranges if nobody says: 90 %, or what so many samples can promise."""
    return 0.9 if samples >= samples_needed(0.9) else samples / (samples + 1)


def tempered(log_probs: "Tensor", temperature: float) -> "Tensor":
    """Bring log probabilities, (n, K), to a temperature."""
    return log_probs if temperature == 1 else (log_probs / temperature).log_softmax(dim=-1)


def fit_temperature(log_probs: "Tensor", ranks: "Tensor") -> float:
    """Find the temperature of the highest likelihood; 1 for fewer than 20 samples.

    Args:
        log_probs: Of the classes, (n, K).
        ranks: The true ones, (n,).
    """
    import torch
    from scipy.optimize import minimize_scalar

    if len(ranks) < FEWEST:
        return 1.0
    # a probability of zero cannot be warmed up
    floor = torch.finfo(torch.float32).min / (2 * _HOTTEST)
    exact, rows = log_probs.double().clamp_min(floor), torch.arange(len(ranks))

    def loss(log_temperature: float) -> float:
        scaled = exact / math.exp(log_temperature)
        return float(scaled.logsumexp(dim=1).mean() - scaled[rows, ranks].mean())

    bound = math.log(_HOTTEST)
    return math.exp(minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x)


def _shares(calibration: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give (1 + the calibration scores that are at least as large) / (1 + their number)."""
    ordered = np.sort(calibration)
    smaller = np.searchsorted(ordered, scores, side="left")
    shares: NDArray[np.float64] = (len(ordered) - smaller + 1) / (len(ordered) + 1)
    return shares


def expected_coverage(coverage: float, calibrated: int, tested: int) -> tuple[float, float]:
    """Tell between which shares coverage measured on so many samples lies by chance alone.

    Over the draw of both parts the number of samples that are covered follows a beta-binomial law;
    the bounds are its 1 % and 99 % quantiles.
    """
    from scipy.stats import betabinom  # takes a second, which a prediction need not wait

    check_integer("tested", tested, 1)
    missed = max(math.floor((calibrated + 1) * (1 - coverage) + 1e-9), 1)
    law = betabinom(tested, calibrated + 1 - missed, missed)
    return float(law.ppf(_CHANCE)) / tested, float(law.ppf(1 - _CHANCE)) / tested


def measure_ranges(
    calibration: Calibration,
    ranks: Int[np.ndarray, " n"],
    proba: Float[np.ndarray, "n K"],
    decided: Int[np.ndarray, " n"],
) -> list[dict[str, Any]]:
    """Measure the ranges at the usual coverages, as far as they can be promised.

    Of each: the coverage that was measured, what chance allows, the mean number of grades in a
    range, and how many ranks the missed truths are outside of it on average.
    """
    found = []
    count = len(calibration.scores)
    for coverage in COVERAGES:
        if count < samples_needed(coverage):
            continue
        low, high = calibration.ranges(proba, decided, coverage)
        outside = np.maximum(low - ranks, ranks - high).clip(min=0)
        missed = outside > 0
        found.append(
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
    return found
