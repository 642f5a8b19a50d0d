"""Prediction of samples in the formats that users have, shared by all kinds of models.

A model predicts batches as arrays; this module adds class names, ranges and checks. It does not
import torch.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from layline.data.dataset import Images, format_list
from layline.data.detect import describe_skipped, is_image
from layline.data.images import as_images
from layline.data.tables import Rows, TableEncoding, as_rows
from layline.geometry.decoding import Decode
from layline.utils.validation import UserError

if TYPE_CHECKING:
    from layline.model.description import ModelDescription

WHY_NO_PROBABILITIES = "a value is too large for float32, or far outside the training data"


@dataclass(frozen=True)
class Prediction:
    """The predictions for a batch."""

    index: Int[np.ndarray, " n"]  # ~i if sample i could not be decoded
    proba: Float[np.ndarray, "n K"]  # calibrated; rows sum to one in float64
    chosen: Int[np.ndarray, " n"]  # the predicted ranks
    features: Float[np.ndarray, "n d"] | None = None

    @property
    def has_probabilities(self) -> Bool[np.ndarray, " n"]:
        """Whether each sample has finite probabilities; an overflow gives none."""
        known: NDArray[np.bool_] = ~np.isnan(self.proba).any(axis=1)
        if self.features is not None:
            known &= np.isfinite(self.features).all(axis=1)
        return known

    def subset(self, rows: slice) -> Self:
        """Return the predictions for some of the samples."""
        features = None if self.features is None else self.features[rows]
        return type(self)(self.index[rows], self.proba[rows], self.chosen[rows], features)


class Predictor(ABC):
    """Predicts samples in the formats that users have."""

    description: "ModelDescription"

    @abstractmethod
    def stream(
        self,
        samples: Images | Rows,
        batch_size: int = 64,
        workers: int | None = None,
        decode: Decode | None = None,
        keep_going: bool = False,
    ) -> Iterator[Prediction]:
        """Predict the result of :meth:`read` batch by batch; only a few are in memory at a time.

        ``workers`` are processes or threads that decode images; None chooses a number. With
        ``keep_going`` an image that cannot be decoded is marked instead of raising an error.
        """

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, lowest first."""
        return self.description.classes

    @property
    def is_table(self) -> bool:
        """Whether samples are rows of a table; otherwise they are images."""
        return self.description.is_table

    def predict(self, samples: Any, decode: Decode | None = None) -> NDArray[np.str_]:
        """Predict the class name of each sample.

        Args:
            samples: Images as paths, bytes, arrays (height, width, 3) or Pillow images, one or a
                sequence of them, or a folder. For a table a data frame, or a CSV file as a path or
                bytes.
            decode: ``"mode"``, ``"median"``, ``"mean"``, ``"quadratic"``, or a matrix of the cost
                of each decision with a row for each true class; None for that of training.
        """
        return self._name_ranks([each.chosen for each in self._predict_batches(samples, decode)])

    def predict_range(
        self,
        samples: Any,
        coverage: float = 0.9,
        by_class: bool = False,
        decode: Decode | None = None,
    ) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
        """Predict the lowest and the highest plausible class of each sample.

        Args:
            samples: See :meth:`predict`.
            coverage: Share of new samples whose true class lies between the two, if they are
                similar to the calibration samples.
            by_class: Guarantee the coverage in every class; ranges are wider, and more calibration
                samples are needed.
            decode: See :meth:`predict`; the range always contains the predicted class.
        """
        calibration = self.description.calibration
        calibration.check(coverage, len(self.classes), by_class)
        parts = [
            calibration.ranges(each.proba, each.chosen, coverage, by_class)
            for each in self._predict_batches(samples, decode)
        ]
        return self._name_ranks([low for low, _ in parts]), self._name_ranks([h for _, h in parts])

    def predict_proba(self, samples: Any) -> NDArray[np.float64]:
        """Predict the probabilities of the classes, one column for each of ``classes``."""
        parts = [each.proba for each in self._predict_batches(samples)]
        return np.concatenate([np.zeros((0, len(self.classes))), *parts])

    def read(self, samples: Any) -> Images | Rows:
        """Convert samples as in :meth:`predict` to images, which are not decoded yet, or rows."""
        inputs = self.description.inputs
        return as_rows(samples, inputs) if isinstance(inputs, TableEncoding) else as_images(samples)

    def _name_ranks(self, batches: list[NDArray[np.int64]]) -> NDArray[np.str_]:
        return np.array([self.classes[rank] for batch in batches for rank in batch], dtype=np.str_)

    def _predict_batches(self, samples: Any, decode: Decode | None = None) -> Iterator[Prediction]:
        """Predict samples; those without probabilities are an error that names all of them."""
        images_or_rows = self.read(samples)
        skipped = getattr(images_or_rows, "skipped", ())  # files in a folder of images
        if unread := [file for file in skipped if is_image(file.name)]:
            warnings.warn(describe_skipped(unread), stacklevel=4)  # the caller of predict
        failed: list[int] = []
        for batch in self.stream(images_or_rows, decode=decode):
            failed += batch.index[~batch.has_probabilities].tolist()
            if not failed:
                yield batch
        if failed:
            names = format_list(images_or_rows.names[i] for i in failed)
            raise UserError(f"The model gives no probabilities for {names}: {WHY_NO_PROBABILITIES}")
