"""A model with its run, its responses, and batches that are shared by concurrent requests.

**Samples to review.** A single sample cannot be compared with others, so its confidence is compared
with those of the test split of the run: it is marked if the model is at most as confident as for
the least certain share of the test samples. About the same share of similar new samples is marked.

**Batches.** Threads prepare samples while the model computes. All samples that are ready when the
model has finished a batch form its next batch, so batches grow with the load and a single sample
does not wait.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

import joblib
import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

import layline
from layline.data.tables import TableEncoding
from layline.evaluation.diagnostics import certainty
from layline.evaluation.prediction_file import REVIEW_SHARE, read_predictions
from layline.geometry.decoding import Decode, check_decode, decide, decode_name
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.model.predictor import WHY_NO_PROBABILITIES, Prediction
from layline.serve import Limits
from layline.training.run_folder import RunFolder, as_written
from layline.utils.devices import choose_device
from layline.utils.validation import UserError

_T = TypeVar("_T")
_Waiting = tuple[Tensor, "asyncio.Future[Prediction]"]


class SamplePrediction(BaseModel):
    """The prediction for one sample."""

    name: str
    predicted: str = Field(description="Name of the predicted class.")
    rank: int = Field(description="Its place among the classes, from 0.")
    confidence: float = Field(description="Its probability.")
    low: str | None = Field(description="Lowest plausible class; null without calibration samples.")
    high: str | None = Field(description="Highest plausible class.")
    review: bool | None = Field(description="Whether a person should check it; null if unknown.")
    probabilities: dict[str, float]


class Failure(BaseModel):
    """The error of one sample."""

    name: str
    error: str


class Model(BaseModel):
    """The served model."""

    name: str
    version: str
    method: str
    backbone: str
    classes: list[str]
    kind: Literal["images", "table"]
    columns: list[str] | None = Field(description="Columns of the table; null for images.")
    decode: str
    coverage: float | None = Field(description="Coverage of the ranges; null if there are none.")
    review: float | None = Field(description="Share of samples that a person should check.")
    review_at_most: float | None = Field(description="Confidence up to which they are marked.")
    trained_on: dict[str, int] | None = Field(description="Training samples of each class.")
    tested: dict[str, float] | None = Field(description="Samples, accuracy and MAE of the test.")
    limits: Limits


class ServedModel:
    """A model that answers requests; for the arguments see :func:`layline.serve.create_app`."""

    def __init__(
        self,
        source: OrdinalModel | str | Path,
        coverage: float | None = None,
        decode: Decode | None = None,
        review: float | None = None,
        device: str | None = None,
    ) -> None:
        self.run: RunFolder | None = None
        if isinstance(source, OrdinalModel):
            self.model, self.name = source, source.description.method
        else:
            path = Path(source).expanduser().resolve()
            self.model, self.name = load(path), path.stem
            self.run = RunFolder(path) if (path / "test.json").is_file() else None
        description = self.model.description
        self.classes = description.classes
        self.decode = check_decode(decode or description.decode, len(self.classes))
        if coverage is not None:
            description.calibration.check(coverage, len(self.classes))
        self.coverage = coverage or description.calibration.default_coverage
        self.review, self.review_at_most = self._find_review_threshold(review)
        if device is not None:
            self.model.to(choose_device(device, self.model.is_table))

    def predict(self, x: Tensor) -> Prediction:
        """Predict prepared samples as one batch."""
        return self.model.predict_batch(x, self.decode)

    def describe_samples(
        self, names: list[str], predicted: Prediction
    ) -> list[SamplePrediction | Failure]:
        """Convert the predictions for some samples to responses."""
        at_most, low, high = self.review_at_most, None, None
        if self.coverage is not None:
            calibration = self.model.description.calibration
            low, high = calibration.ranges(predicted.proba, predicted.chosen, self.coverage)
        answers: list[SamplePrediction | Failure] = []
        for i, name in enumerate(names):
            if not predicted.has_probabilities[i]:
                answers.append(Failure(name=name, error=f"No prediction: {WHY_NO_PROBABILITIES}."))
                continue
            rank = int(predicted.chosen[i])
            shares = [float(f"{share:.8g}") for share in predicted.proba[i]]
            answers.append(
                SamplePrediction(
                    name=name,
                    predicted=self.classes[rank],
                    rank=rank,
                    confidence=shares[rank],
                    low=None if low is None else self.classes[low[i]],
                    high=None if high is None else self.classes[high[i]],
                    review=None if at_most is None else shares[rank] <= at_most,
                    probabilities=dict(zip(self.classes, shares, strict=True)),
                )
            )
        return answers

    def describe(self, limits: Limits) -> Model:
        """Describe the model for ``GET /model``."""
        description, trained_on, tested = self.model.description, None, None
        if self.run is not None:
            numbers, counts = self.run.read_numbers(), self.run.read_environment()["counts"]
            tested = {key: numbers[key] for key in ("samples", "accuracy", "mae")}
            trained_on = dict(zip(self.classes, counts["train"], strict=True))
        inputs = description.inputs
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
            trained_on=trained_on,
            tested=tested,
            limits=limits,
        )

    def _find_review_threshold(self, share: float | None) -> tuple[float | None, float | None]:
        """Find the share of samples to review, and the confidence up to which they are marked."""
        if self.run is None:
            if share is not None:
                raise UserError("review needs the folder of a finished run, with its predictions.")
            return None, None
        with as_written(self.run.predictions, "serve best.safetensors instead of the run"):
            proba = read_predictions(self.run.predictions).proba
            # the model may have been calibrated again since
            before = self.run.read_numbers()["calibration"]["temperature"]
        proba = proba.clip(1e-300) ** (before / self.model.description.calibration.temperature)
        proba = proba / proba.sum(axis=1, keepdims=True)
        confidences = np.sort(certainty(proba, decide(torch.from_numpy(proba), self.decode)))
        share = REVIEW_SHARE if share is None else share
        marked = round(share * len(confidences))
        if marked == 0:
            return None, None
        return share, 1.0 if share == 1 else float(f"{confidences[marked - 1]:.8g}")


class Batcher:
    """Predicts samples of concurrent requests together, one batch at a time, in a thread."""

    def __init__(self, predict: Callable[[Tensor], Prediction], batch_size: int) -> None:
        self._predict, self._batch_size = predict, batch_size
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        # the number of threads also limits how many images are decoded at once
        self._threads = ThreadPoolExecutor(joblib.cpu_count(), "layline-prepare")

    async def in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Call a function in one of the threads that prepare samples."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    async def predict(self, x: Tensor) -> Prediction:
        """Predict prepared samples, (n, …)."""
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((x, answer))
        return await answer

    async def run(self) -> None:
        """Predict batches until the task is cancelled."""
        while True:
            batch = [await self._queue.get()]
            size = len(batch[0][0])
            while size < self._batch_size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
                size += len(batch[-1][0])
            # a request that timed out has cancelled its futures
            if batch := [each for each in batch if not each[1].done()]:
                await self._predict_batch(batch)

    async def _predict_batch(self, batch: list[_Waiting]) -> None:
        try:
            predicted = await asyncio.to_thread(self._predict, torch.cat([x for x, _ in batch]))
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        start = 0
        for x, answer in batch:
            part = predicted.subset(slice(start, start := start + len(x)))
            if not answer.done():
                answer.set_result(part)
