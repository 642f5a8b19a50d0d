"""What is served: a model, and what a person who asks it should know of it.

**Whether a person should look.** ``layline predict`` marks the least certain share of the samples
that it is given. A sample that comes alone has no others beside it, so it is compared with the test
part of the run: it is marked if the model is no more certain of it than it was of the least certain
share there. New samples of the same kind are then marked about as often.

**Where a sample lies.** The proxies are drawn in the plane that fits them best, as in the report,
and the sample where it falls on that plane. A head that compares directions only, as the half
circle does, is drawn by directions: vectors have length one, and a mark in the middle of the half
circle is one whose direction is that of no class.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

import layline
from layline.data.table_encoding import CategoricalColumn, TableEncoding
from layline.evaluation.diagnostics import REVIEW_SHARE, certainty
from layline.evaluation.prediction_file import read_predictions
from layline.geometry.decoding import Decode, checked_decode, decide, decode_name
from layline.heads import ConstrainedProxies, OrdinalHead
from layline.model.calibration import shown_coverage
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.model.predictor import WHY_NO_PROBABILITIES, Prediction
from layline.training.record import plane_of, proxies_of
from layline.training.run_folder import RunFolder, as_written
from layline.utils.devices import choose_device
from layline.utils.errors import UserError

_Floats = NDArray[np.float64]
_FLAT = 1e-6  # of the largest spread: below it proxies lie on a line
_DIGITS = 8


class ServedModel:
    """A model as it answers requests.

    Args:
        source: The folder of a run, a ``.safetensors`` file, or a model.
        coverage: Share of the samples whose truth a range shall hold; what the calibration samples
            can promise if not given, and no ranges if there are none.
        decode: How a distribution becomes a class; as in training if not given.
        review: Share of the samples that a person should look at; needs the folder of a run.
        device: Where to compute; a model that is given stays where it is if this is not given.
    """

    def __init__(
        self,
        source: OrdinalModel | str | Path,
        coverage: float | None = None,
        decode: Decode | None = None,
        review: float | None = None,
        device: str | None = None,
    ) -> None:
        path = None if isinstance(source, OrdinalModel) else Path(source).expanduser()
        self.model = source if isinstance(source, OrdinalModel) else load(source)
        description = self.model.description
        run = RunFolder(path) if path is not None and path.is_dir() else None
        self.name = description.method if path is None else path.resolve().stem
        if run is not None:
            self.name = run.path.resolve().name
        self.classes = description.classes
        self.decode = checked_decode(
            description.decode if decode is None else decode, len(self.classes)
        )
        samples = len(description.calibration.scores)
        if coverage is not None:
            description.calibration.check(coverage, len(self.classes))
        self.coverage = shown_coverage(samples) if coverage is None and samples else coverage
        self.review, self.review_share = _review_threshold(run, self.model, self.decode, review)
        self.layout = Layout.of(self.model.head)
        self.counts, self.tested = (None, None) if run is None else _facts(run, self.classes)
        if device is not None:
            self.model.to(choose_device(device, self.is_table))

    @property
    def is_table(self) -> bool:
        """Whether samples are rows of a table; they are images otherwise."""
        return self.model.is_table

    def answers(self, predicted: Prediction) -> list[dict[str, Any]]:
        """Write down what is predicted for some samples."""
        sure = certainty(predicted.proba, predicted.chosen)
        ends = None
        if self.coverage is not None:
            calibration = self.model.description.calibration
            ends = calibration.ranges(predicted.proba, predicted.chosen, self.coverage)
        places, known = self.layout.places(predicted), predicted.has_probabilities
        found: list[dict[str, Any]] = []
        for i, rank in enumerate(predicted.chosen.tolist()):
            if not known[i]:
                found.append({"error": f"no probabilities came out: {WHY_NO_PROBABILITIES}"})
                continue
            shares = map(_rounded, predicted.proba[i].tolist())
            confidence = _rounded(float(sure[i]))
            found.append(
                {
                    "predicted": self.classes[rank],
                    "rank": rank,
                    "confidence": confidence,
                    "low": None if ends is None else self.classes[ends[0][i]],
                    "high": None if ends is None else self.classes[ends[1][i]],
                    "review": None if self.review is None else confidence <= self.review,
                    "probabilities": dict(zip(self.classes, shares, strict=True)),
                    "place": [_rounded(value) for value in places[i].tolist()],
                }
            )
        return found

    def describe(self) -> dict[str, Any]:
        """Tell what ``GET /model`` tells, but for the limits."""
        description = self.model.description
        review = None
        if self.review is not None:
            review = {"share": self.review_share, "at_most": self.review}
        return {
            "name": self.name,
            "version": layline.__version__,
            "method": description.method,
            "backbone": description.backbone,
            "classes": list(self.classes),
            "inputs": self._inputs(),
            "decode": decode_name(self.decode),
            "calibration": {
                "temperature": description.calibration.temperature,
                "samples": len(description.calibration.scores),
            },
            "coverage": self.coverage,
            "review": review,
            "layout": self.layout.to_json(),
            "trained_on": self.counts,
            "tested": self.tested,
        }

    def _inputs(self) -> dict[str, Any]:
        inputs = self.model.description.inputs
        if isinstance(inputs, TableEncoding):
            columns = [
                {"name": column.name, "values": list(column.categories)}
                if isinstance(column, CategoricalColumn)
                else {"name": column.name, "values": None}
                for column in inputs.inputs
            ]
            return {"kind": "table", "columns": columns, "id": inputs.id_column}
        from layline.data.images import readable_suffixes  # which needs Pillow

        return {"kind": "images", "size": inputs.size, "suffixes": sorted(readable_suffixes())}


@dataclass(frozen=True)
class Layout:
    """Where classes and samples are drawn.

    Attributes:
        kind: ``plane``, ``line``, or ``mean`` for a head without proxies: a sample then is where
            the mean of its distribution is among the ranks.
        by_direction: Whether vectors are drawn with length one.
        proxies: Where the classes are drawn.
        axes: What a vector is projected on.
    """

    kind: str
    by_direction: bool
    proxies: Float[np.ndarray, "K 2"]
    axes: Float[np.ndarray, "2 d"]

    @classmethod
    def of(cls, head: OrdinalHead) -> "Layout":
        """Choose the plane of a head."""
        vectors = proxies_of(head)
        if vectors is None:
            ranks = np.arange(head.num_classes, dtype=np.float64)
            return cls("mean", False, np.stack([ranks, 0 * ranks], axis=1), np.zeros((2, head.dim)))
        by_direction = isinstance(head, ConstrainedProxies) and head.similarity.measure == "cosines"
        proxies = _directions(vectors) if by_direction else vectors.astype(np.float64)
        # what the proxies leave open would be chosen by features, and here are none
        axes = plane_of(np.zeros((0, head.dim), np.float32), np.zeros(0, np.int64), proxies)
        spread = np.linalg.svd(proxies - proxies.mean(axis=0), compute_uv=False)
        kind = "plane" if head.dim == 2 or (spread[1:] > _FLAT * spread[0]).any() else "line"
        if kind == "line":
            axes = axes * [[1], [0]]
        return cls(kind, by_direction, proxies @ axes.T, axes)

    def places(self, predicted: Prediction) -> Float[np.ndarray, "n 2"]:
        """Tell where samples are drawn."""
        if self.kind == "mean":
            mean: _Floats = predicted.proba @ np.arange(predicted.proba.shape[1])
            return np.stack([mean, 0 * mean], axis=1)
        assert predicted.features is not None  # a model with its network gives them
        vectors = predicted.features.astype(np.float64)
        placed: _Floats = (_directions(vectors) if self.by_direction else vectors) @ self.axes.T
        return placed

    def to_json(self) -> dict[str, Any]:
        """Write it down for the page."""
        proxies = [[_rounded(value) for value in row] for row in self.proxies.tolist()]
        return {"kind": self.kind, "by_direction": self.by_direction, "proxies": proxies}


def _directions(vectors: NDArray[Any]) -> _Floats:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float64).tiny))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _review_threshold(
    run: RunFolder | None, model: OrdinalModel, decode: Decode, share: float | None
) -> tuple[float | None, float | None]:
    """Give the confidence up to which a person should look, and the share that stands for."""
    sure = None if run is None else _test_confidences(run, model, decode)
    if sure is None or len(sure) == 0:
        if share is not None:
            raise UserError(
                "review must come with the folder of a finished run, got none with predictions: "
                "how certain the model usually is, is known from its test part"
            )
        return None, None
    share = REVIEW_SHARE if share is None else share
    marked = round(share * len(sure))
    if marked == 0:
        return None, None
    return 1.0 if share == 1 else _rounded(float(np.sort(sure)[marked - 1])), share


def _test_confidences(run: RunFolder, model: OrdinalModel, decode: Decode) -> _Floats | None:
    """Tell how certain the model is of each test sample of its run; None if that is not known."""
    if not run.predictions.is_file():
        return None
    with as_written(run.predictions, f"layline serve {run.best} does without it"):
        known = read_predictions(run.predictions)
        if tuple(known.classes) != model.classes:
            raise UserError("it has other classes than the model")
        proba = known.proba
    if run.test.is_file():  # the model may have been calibrated anew since
        before = run.read_numbers().get("calibration", {}).get("temperature", 1.0)
        proba = np.clip(proba, 1e-300, None) ** (before / model.description.calibration.temperature)
        proba = proba / proba.sum(axis=1, keepdims=True)
    chosen = decide(torch.from_numpy(proba), decode)
    return np.asarray(certainty(proba, chosen.numpy()), dtype=np.float64)


def _facts(
    run: RunFolder, classes: tuple[str, ...]
) -> tuple[dict[str, int] | None, dict[str, Any] | None]:
    """Give the number of training samples of each class, and what the test was like."""
    counts, tested = None, None
    if run.environment.is_file():
        found = run.read_environment().get("counts", {}).get("train")
        if isinstance(found, list) and len(found) == len(classes):
            counts = dict(zip(classes, found, strict=True))
    if run.test.is_file():
        numbers = run.read_numbers()
        tested = {name: numbers[name] for name in ("samples", "accuracy", "mae")}
    return counts, tested
