"""A model: features, head and class names, from samples as a user has them to labels."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from layline import features as feature_registry
from layline import heads
from layline.calibration import Calibration, tempered
from layline.data.base import listed
from layline.data.images.preprocessing import ImagePreprocessing
from layline.data.loading import (
    Batches,
    ImageBatches,
    RowBatches,
    loader,
    sequential_batches,
    to_device,
)
from layline.data.samples import UserImages, as_images, as_rows
from layline.data.table import TableEncoding
from layline.features.base import Features
from layline.geometry.decoding import Decode, checked_decode, decode_name
from layline.heads.base import probabilities
from layline.prediction_file import WHY_NO_PROBABILITIES


@dataclass(frozen=True)
class ModelSpec:
    """A description of a model, from which it is rebuilt except for its tensors.

    Attributes:
        features: Name of the features.
        method: Name of the head.
        dim: Dimension d of the features.
        classes: Names of the classes, lowest first.
        inputs: How samples are prepared: images, or the columns of a table.
        features_options: The features' own options.
        head_options: The method's own options.
        decode: How a distribution becomes a class if the caller does not say.
        calibration: What is known about the certainty of its answers.
        estimator: What is needed beside it to get an estimator back, if one wrote it.
    """

    features: str
    method: str
    dim: int
    classes: tuple[str, ...]
    inputs: ImagePreprocessing | TableEncoding
    features_options: dict[str, Any] = field(default_factory=dict)
    head_options: dict[str, Any] = field(default_factory=dict)
    decode: Decode = "mode"
    calibration: Calibration = field(default_factory=Calibration, compare=False)
    estimator: dict[str, Any] = field(default_factory=dict, compare=False)

    def build(self) -> "OrdinalModel":
        """Make the model, with weights as they are before training."""
        features = feature_registry.create(self.features, dim=self.dim, **self.features_options)
        head = heads.create(self.method, len(self.classes), self.dim, **self.head_options)
        return OrdinalModel(self, features, head)


@dataclass(frozen=True)
class Answer:
    """What a model predicts for a batch, on the CPU.

    Attributes:
        index: Which samples they are; ``~i`` if sample i could not be decoded.
        features: Their vectors.
        log_probs: Logarithms of the probabilities of the classes, calibrated.
        chosen: The rank that is decided for.
    """

    index: Int[Tensor, " n"]
    features: Float[Tensor, "n d"]
    log_probs: Float[Tensor, "n K"]
    chosen: Int[Tensor, " n"]

    @property
    def proba(self) -> NDArray[np.float64]:
        """Probabilities that sum to one in float64."""
        return normalised(self.log_probs)

    @property
    def has_probabilities(self) -> Bool[Tensor, " n"]:
        """Whether numbers came out: a value that overflows gives none."""
        return self.features.isfinite().all(dim=1) & ~self.log_probs.isnan().any(dim=1)


def _warn_of_unread(images: UserImages) -> None:
    """Warn of images in a folder that cannot be read here; what is no image is nobody's sample."""
    from layline.data.images.files import describe_skipped, how_to_read  # which need Pillow

    unread = [file for file in images.skipped if how_to_read([file])]
    if unread:
        warnings.warn(describe_skipped(unread), stacklevel=5)  # where predict was called


def normalised(log_probs: Float[Tensor, "n K"]) -> NDArray[np.float64]:
    """Turn log probabilities into rows that sum to one in float64."""
    proba: NDArray[np.float64] = probabilities(log_probs).numpy()
    return proba


class Network(nn.Module):
    """Features and a head: what is trained.

    Args:
        features: Maps prepared samples to vectors.
        head: The ordinal method.
    """

    def __init__(self, features: nn.Module, head: heads.OrdinalHead) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(
        self,
        x: Tensor,
        ranks: Int[Tensor, " n"] | None = None,
        weight: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "..."]:
        """Give the log probabilities of prepared samples, (n, K), or with ranks their mean loss.

        The second is what wrappers of modules such as DDP and FSDP see in training.
        """
        result: Tensor = self.head(self.features(x), ranks, weight)
        return result


class OrdinalModel(Network):
    """Features and a head, with the names of the classes.

    Args:
        spec: What it was made from.
        features: Maps prepared samples to vectors.
        head: The ordinal method.
    """

    features: Features

    def __init__(self, spec: ModelSpec, features: Features, head: heads.OrdinalHead) -> None:
        super().__init__(features, head)
        self.spec = spec

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, lowest first."""
        return self.spec.classes

    def predict(self, samples: Any, decode: Decode | None = None) -> NDArray[np.str_]:
        """Name the class of each sample.

        Args:
            samples: Images as paths, bytes, open files, arrays (height, width, 3) or Pillow
                images, one or a list of them, or a folder; for a table a data frame, or a CSV
                file as a path, bytes or an open file.
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
        self.spec.calibration.check(coverage, len(self.classes), by_class)
        parts = [
            self.spec.calibration.ranges(
                normalised(each.log_probs), each.chosen.numpy(), coverage, by_class
            )
            for each in self._answers(samples, decode)
        ]
        low, high = ([rank for part in parts for rank in part[end].tolist()] for end in (0, 1))
        return self._named(low), self._named(high)

    def _named(self, ranks: Iterable[int]) -> NDArray[np.str_]:
        return np.array([self.classes[rank] for rank in ranks], dtype=np.str_)

    def _answers(self, samples: Any, decode: Decode | None = None) -> Iterator["Answer"]:
        """Predict samples; those that give no probabilities are refused, all by their names."""
        names, found = self.read(samples)
        if isinstance(found, ImageBatches) and isinstance(found.images, UserImages):
            _warn_of_unread(found.images)
        without: list[int] = []
        for answer in self.stream(found, decode=decode):
            without += answer.index[~answer.has_probabilities].tolist()
            if not without:
                yield answer
        if without:
            raise ValueError(
                f"samples must give probabilities, got none for {listed(names[i] for i in without)}"
                f": {WHY_NO_PROBABILITIES}"
            )

    def predict_proba(self, samples: Any) -> NDArray[np.float64]:
        """Give the probability of each class, a column each in the order of ``classes``."""
        parts = [normalised(each.log_probs) for each in self._answers(samples)]
        return np.concatenate([np.zeros((0, len(self.classes))), *parts])

    def transform(self, samples: Any) -> NDArray[np.float32]:
        """Compute the features, (n, d)."""
        parts = [each.features.float().numpy() for each in self._answers(samples)]
        return np.concatenate([np.zeros((0, self.spec.dim), dtype=np.float32), *parts])

    def read(self, samples: Any, keep_going: bool = False) -> tuple[Sequence[str], Batches]:
        """Find out what a user's samples are: their names, and where batches are fetched from.

        Args:
            samples: See :meth:`predict`.
            keep_going: Mark an image that cannot be decoded instead of stopping.
        """
        if isinstance(self.spec.inputs, TableEncoding):
            rows = as_rows(samples, self.spec.inputs)
            return rows.names, RowBatches(rows.values)
        images = as_images(samples)
        return images.names, ImageBatches(images, self.spec.inputs, keep_going=keep_going)

    @torch.no_grad()
    def stream(
        self,
        samples: Batches,
        batch_size: int = 64,
        workers: int | None = 0,
        decode: Decode | None = None,
    ) -> Iterator[Answer]:
        """Predict samples batch by batch, with memory for a few batches only.

        Args:
            samples: Where batches are fetched from.
            batch_size: Samples at a time.
            workers: Processes that fetch batches.
            decode: See :meth:`predict`.
        """
        wanted = checked_decode(self.spec.decode if decode is None else decode, len(self.classes))
        temperature = self.spec.calibration.temperature
        was_training = self.training
        self.eval()
        device = next(self.parameters()).device
        try:
            batches = sequential_batches(len(samples), batch_size)
            for x, index in loader(samples, batches, workers, device.type == "cuda"):
                vectors = self.features(to_device(x, device))
                log_probs = tempered(self.head.log_probs(vectors), temperature)
                decisions = self.head.decisions(vectors, log_probs, wanted)
                chosen = decisions[decode_name(wanted)].cpu()
                yield Answer(index, vectors.cpu(), log_probs.cpu(), chosen)
        finally:
            self.train(was_training)

    def save(self, path: str | Path) -> None:
        """Write the model to one ``.safetensors`` file, see :func:`layline.load`."""
        from layline.model_file import save_model  # which needs safetensors

        save_model(self, Path(path))
