"""A model with its run: predictions, ranges, and which samples a person should check.

A single sample cannot be compared with others, so its confidence is compared with those of the test
split of the run: it is marked if the model is at most as confident as for the least certain share
of the test samples. About the same share of similar new samples is then marked.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layline
from layline.data.loaders import PreparedBatches
from layline.data.table_encoding import TableEncoding
from layline.geometry.decoding import Decode, check_decode, decide, decode_name
from layline.model.calibration import shown_coverage
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.model.predictor import Prediction
from layline.serve.schemas import Failure, Limits, Model, SamplePrediction
from layline.utils.devices import choose_device
from layline.utils.errors import UserError

_REVIEW = 0.2
NO_PROBABILITIES = "A value is too large, or far from all training data."


class ServedModel:
    """A model that answers requests.

    Args:
        source: Folder of a run, a ``.safetensors`` file, or a model.
        coverage: Coverage of the ranges; None for 0.9 or what the calibration samples guarantee.
        decode: The decoding; None for that of the model.
        review: Share of samples that a person should check; needs the folder of a run.
        device: The device for the model; None leaves it where it is.
    """

    def __init__(
        self,
        source: OrdinalModel | str | Path,
        coverage: float | None = None,
        decode: Decode | None = None,
        review: float | None = None,
        device: str | None = None,
    ) -> None:
        path = None if isinstance(source, OrdinalModel) else Path(source).expanduser().resolve()
        self.model = source if isinstance(source, OrdinalModel) else load(source)
        self.run = path if path is not None and path.is_dir() else None
        description = self.model.description
        self.name = description.method if path is None else path.stem
        self.classes = description.classes
        self.decode = check_decode(decode or description.decode, len(self.classes))
        if coverage is not None:
            description.calibration.check(coverage, len(self.classes))
        elif samples := len(description.calibration.scores):
            coverage = shown_coverage(samples)
        self.coverage = coverage
        self.review, self.review_at_most = self._find_review_threshold(review)
        if device is not None:
            self.model.to(choose_device(device, self.model.is_table))

    def predict(self, x: torch.Tensor) -> Prediction:
        """Predict prepared samples as one batch."""
        batches = PreparedBatches(x)
        (predicted,) = self.model.stream_batches(batches, len(x), decode=self.decode)
        return predicted

    def describe_samples(
        self, names: list[str], predicted: Prediction
    ) -> list[SamplePrediction | Failure]:
        """Convert the predictions for some samples to responses."""
        ends = None
        if self.coverage is not None:
            calibration = self.model.description.calibration
            ends = calibration.ranges(predicted.proba, predicted.chosen, self.coverage)
        answers: list[SamplePrediction | Failure] = []
        for i, (name, known) in enumerate(zip(names, predicted.has_probabilities, strict=True)):
            if not known:
                answers.append(Failure(name=name, error=NO_PROBABILITIES))
                continue
            rank = int(predicted.chosen[i])
            shares = [float(f"{share:.8g}") for share in predicted.proba[i]]
            at_most = self.review_at_most
            answers.append(
                SamplePrediction(
                    name=name,
                    predicted=self.classes[rank],
                    rank=rank,
                    confidence=shares[rank],
                    low=None if ends is None else self.classes[ends[0][i]],
                    high=None if ends is None else self.classes[ends[1][i]],
                    review=None if at_most is None else shares[rank] <= at_most,
                    probabilities=dict(zip(self.classes, shares, strict=True)),
                )
            )
        return answers

    def describe(self, limits: Limits) -> Model:
        """Describe the model for ``GET /model``."""
        description = self.model.description
        inputs = description.inputs
        counts = self._read_json("environment.json").get("counts", {}).get("train")
        tested = self._read_json("test.json")
        return Model(
            name=self.name,
            version=layline.__version__,
            method=description.method,
            backbone=description.backbone,
            classes=list(self.classes),
            kind="table" if self.model.is_table else "images",
            columns=list(inputs.names) if isinstance(inputs, TableEncoding) else None,
            decode=decode_name(self.decode),
            coverage=self.coverage,
            review=self.review,
            review_at_most=self.review_at_most,
            trained_on=dict(zip(self.classes, counts, strict=True)) if counts else None,
            tested={key: tested[key] for key in ("samples", "accuracy", "mae")} if tested else None,
            limits=limits,
        )

    def _read_json(self, name: str) -> dict[str, Any]:
        if self.run is None or not (self.run / name).is_file():
            return {}
        values: dict[str, Any] = json.loads((self.run / name).read_text(encoding="utf-8"))
        return values

    def _find_review_threshold(self, share: float | None) -> tuple[float | None, float | None]:
        """Find the share of samples to review, and the confidence up to which they are marked."""
        path = None if self.run is None else self.run / "predictions.csv"
        if path is None or not path.is_file():
            if share is not None:
                raise UserError(
                    "review needs the folder of a finished run: the confidences on its test split "
                    "set the threshold"
                )
            return None, None
        import pandas as pd

        try:
            frame = pd.read_csv(path, usecols=[f"p_{name}" for name in self.classes])
            proba = frame[[f"p_{name}" for name in self.classes]].to_numpy(dtype=np.float64)
        except ValueError as error:  # damaged, or columns are missing
            raise UserError(
                f"{path} cannot be read ({error}). Serve best.safetensors instead of the run."
            ) from None
        # the model may have been calibrated again since
        before = (self._read_json("test.json").get("calibration") or {}).get("temperature", 1.0)
        proba = proba.clip(1e-300) ** (before / self.model.description.calibration.temperature)
        proba = proba / proba.sum(axis=1, keepdims=True)
        chosen = decide(torch.from_numpy(proba), self.decode).numpy()
        confidences = np.sort(proba[np.arange(len(proba)), chosen])
        share = _REVIEW if share is None else share
        marked = round(share * len(confidences))
        if marked == 0:
            return None, None
        return share, 1.0 if share == 1 else float(f"{confidences[marked - 1]:.8g}")
