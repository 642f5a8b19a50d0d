"""What every model can do with samples as a user has them, however it computes.

A model gives its answers batch by batch, as arrays; all else is here: names of classes, ranges, and
the refusal of samples without probabilities. Nothing here imports torch.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from layline.data.dataset import format_list
from layline.data.samples import UserImages, as_images, as_rows
from layline.data.table_encoding import Rows, TableEncoding
from layline.utils.errors import UserError
from layline.utils.validation import Decode

if TYPE_CHECKING:
    from layline.model.description import ModelDescription

WHY_NO_PROBABILITIES = "a value is too large for float32, or far outside the training data"


@dataclass(frozen=True)
class Prediction:
    """What a model predicts for a batch.

    Attributes:
        index: Which samples they are; ``~i`` if sample i could not be decoded.
        proba: Probabilities of the classes, calibrated; they sum to one in float64.
        chosen: The rank that is decided for.
        features: Their vectors, of a model that gives them.
    """

    index: Int[np.ndarray, " n"]
    proba: Float[np.ndarray, "n K"]
    chosen: Int[np.ndarray, " n"]
    features: Float[np.ndarray, "n d"] | None = None

    @property
    def has_probabilities(self) -> Bool[np.ndarray, " n"]:
        """Whether numbers came out: a value that overflows gives none."""
        known: NDArray[np.bool_] = ~np.isnan(self.proba).any(axis=1)
        if self.features is not None:
            known &= np.isfinite(self.features).all(axis=1)
        return known

    def part(self, rows: slice) -> Self:
        """Give what is predicted for some of the samples."""
        features = None if self.features is None else self.features[rows]
        return type(self)(self.index[rows], self.proba[rows], self.chosen[rows], features)


class Predictor(ABC):
    """Predicts samples as a user has them.

    Attributes:
        description: What the model says of itself.
    """

    description: "ModelDescription"

    @abstractmethod
    def stream(
        self,
        samples: UserImages | Rows,
        batch_size: int = 64,
        workers: int | None = None,
        decode: Decode | None = None,
        keep_going: bool = False,
    ) -> Iterator[Prediction]:
        """Predict samples batch by batch, with memory for a few batches only.

        Args:
            samples: What :meth:`read` gives.
            batch_size: Samples at a time.
            workers: Processes or threads that decode images; as many as help if None.
            decode: See :meth:`predict`.
            keep_going: Mark an image that cannot be decoded instead of stopping.
        """

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, lowest first."""
        return self.description.classes

    @property
    def is_table(self) -> bool:
        """Whether samples are rows of a table; they are images otherwise."""
        return isinstance(self.description.inputs, TableEncoding)

    def predict(self, samples: Any, decode: Decode | None = None) -> NDArray[np.str_]:
        """Name the class of each sample.

        Args:
            samples: Images as paths, bytes, open files, arrays (height, width, 3) or Pillow
                images, one or a list of them (a pandas Series or an array of paths will do), or a
                folder; for a table a data frame, or a CSV file as a path, bytes or an open file.
            decode: ``"mode"``, ``"median"``, ``"mean"``, ``"quadratic"``, or a matrix of what each
                decision costs, a row for each true class; as in training if not given.
        """
        answers = self._answers(samples, decode)
        return self._named([rank for each in answers for rank in each.chosen.tolist()])

    def predict_range(
        self,
        samples: Any,
        coverage: float = 0.9,
        by_class: bool = False,
        decode: Decode | None = None,
    ) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
        """Name the lowest and the highest class that is possible for each sample.

        Of new samples of the kind that the model was calibrated on, at least this share has its
        true class between the two, on average over such samples.

        Args:
            samples: See :meth:`predict`.
            coverage: That share.
            by_class: Keep to it in every class; ranges are wider, and more samples are needed.
            decode: The range always has the class that is decided for.
        """
        calibration = self.description.calibration
        calibration.check(coverage, len(self.classes), by_class)
        parts = [
            calibration.ranges(each.proba, each.chosen, coverage, by_class)
            for each in self._answers(samples, decode)
        ]
        low, high = ([rank for part in parts for rank in part[end].tolist()] for end in (0, 1))
        return self._named(low), self._named(high)

    def predict_proba(self, samples: Any) -> NDArray[np.float64]:
        """Give the probability of each class, a column each in the order of ``classes``."""
        parts = [each.proba for each in self._answers(samples)]
        return np.concatenate([np.zeros((0, len(self.classes))), *parts])

    def read(self, samples: Any) -> UserImages | Rows:
        """Find out what a user's samples are; they are not decoded yet.

        Args:
            samples: See :meth:`predict`.
        """
        inputs = self.description.inputs
        return as_rows(samples, inputs) if isinstance(inputs, TableEncoding) else as_images(samples)

    def _named(self, ranks: Iterable[int]) -> NDArray[np.str_]:
        return np.array([self.classes[rank] for rank in ranks], dtype=np.str_)

    def _answers(self, samples: Any, decode: Decode | None = None) -> Iterator[Prediction]:
        """Predict samples; those that give no probabilities are refused, all by their names."""
        found = self.read(samples)
        if isinstance(found, UserImages):
            _warn_of_unread(found)
        return _with_probabilities(found.names, self.stream(found, decode=decode))


def _with_probabilities(
    names: Iterable[str], answers: Iterator[Prediction]
) -> Iterator[Prediction]:
    without: list[int] = []
    for answer in answers:
        without += answer.index[~answer.has_probabilities].tolist()
        if not without:
            yield answer
    if without:
        called = list(names)
        raise UserError(
            "samples must give probabilities, got none for "
            f"{format_list(called[i] for i in without)}: {WHY_NO_PROBABILITIES}"
        )


def _warn_of_unread(images: UserImages) -> None:
    """Warn of images in a folder that cannot be read here; what is no image is nobody's sample."""
    from layline.data.images import KNOWN_SUFFIXES, describe_skipped, suffix_of  # need Pillow

    unread = [file for file in images.skipped if suffix_of(file.name) in KNOWN_SUFFIXES]
    if unread:
        warnings.warn(describe_skipped(unread), stacklevel=4)  # where predict was called
