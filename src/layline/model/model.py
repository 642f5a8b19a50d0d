"""A model: backbone, head and class names, from samples to labels."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from layline import heads
from layline.backbones.base import Backbone
from layline.data import loaders
from layline.data.dataset import Images
from layline.data.loaders import Batches, ImageBatches, RowBatches
from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import Rows, TableEncoding
from layline.geometry.decoding import Decode, check_decode
from layline.heads.base import probabilities
from layline.model.calibration import apply_temperature
from layline.model.predictor import Prediction, Predictor
from layline.utils.validation import UserError

if TYPE_CHECKING:  # pydantic is not needed for a head or an estimator
    from layline.model.description import ModelDescription


def make_batches(
    inputs: Images | Rows,
    description: "ModelDescription",
    augmentation: str = "none",
    seed: int = 0,
    keep_going: bool = False,
) -> Batches:
    """Prepare inputs for a model, see :class:`layline.data.loaders.ImageBatches`."""
    preparation = description.inputs
    if isinstance(inputs, Rows) and isinstance(preparation, TableEncoding):
        return RowBatches(inputs.values)
    if isinstance(inputs, Images) and isinstance(preparation, ImagePreprocessing):
        return ImageBatches(inputs, preparation, augmentation, seed, keep_going)
    takes = "rows of a table" if description.is_table else "images"
    raise UserError(f"The model takes {takes}, but the data are of another kind.")


class Network(nn.Module):
    """A backbone and a head, which are trained together."""

    def __init__(self, backbone: nn.Module, head: heads.OrdinalHead) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(
        self,
        x: Tensor,
        ranks: Int[Tensor, " n"] | None = None,
        weight: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "..."]:
        """Compute log probabilities of prepared samples, (n, K); with ranks their mean loss.

        Training calls the module for the loss so that wrappers such as DDP and FSDP work.
        """
        result: Tensor = self.head(self.backbone(x), ranks, weight)
        return result


class OrdinalModel(Network, Predictor):
    """A backbone and a head with their description."""

    backbone: Backbone
    description: "ModelDescription"

    def __init__(
        self, description: "ModelDescription", backbone: Backbone, head: heads.OrdinalHead
    ) -> None:
        super().__init__(backbone, head)
        self.description = description

    def transform(self, samples: Any) -> NDArray[np.float32]:
        """Compute the features, (n, d)."""
        answers = self._predict_batches(samples)
        parts = [each.features for each in answers if each.features is not None]
        return np.concatenate([np.zeros((0, self.description.dim)), *parts], dtype=np.float32)

    def stream(
        self,
        samples: Images | Rows,
        batch_size: int = 64,
        workers: int | None = 0,
        decode: Decode | None = None,
        keep_going: bool = False,
    ) -> Iterator[Prediction]:
        """Predict samples batch by batch, see :meth:`layline.model.predictor.Predictor.stream`."""
        batches = make_batches(samples, self.description, keep_going=keep_going)
        order = loaders.sequential_batches(len(batches), batch_size)
        on_gpu = next(self.parameters()).is_cuda
        for x, index in loaders.loader(batches, order, workers, on_gpu):
            yield replace(self.predict_batch(x, decode), index=index.numpy())

    @torch.no_grad()
    def predict_batch(self, x: Tensor, decode: Decode | None = None) -> Prediction:
        """Predict prepared samples as one batch."""
        description, was_training = self.description, self.training
        wanted = check_decode(description.decode if decode is None else decode, len(self.classes))
        try:
            self.eval()
            vectors = self.backbone(loaders.to_device(x, next(self.parameters()).device))
            # a row that overflowed has no prediction, and must not stop the others
            finite = vectors.isfinite().all(dim=1, keepdim=True)
            features = torch.where(finite, vectors, 0)
            log_probs = self.head.log_probs(features)
            log_probs = apply_temperature(log_probs, description.calibration.temperature)
            chosen = self.head.predict(features, wanted, log_probs).cpu().numpy()
        finally:
            self.train(was_training)
        proba = probabilities(log_probs.cpu()).numpy()
        known = vectors if vectors.dtype == torch.float64 else vectors.float()
        return Prediction(np.arange(len(x)), proba, chosen, known.cpu().numpy())

    def save(self, path: str | Path) -> None:
        """Write the model to one ``.safetensors`` file, see :func:`layline.load`."""
        from layline.model.model_file import save_model  # which needs safetensors

        save_model(self, path)
