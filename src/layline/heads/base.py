"""The contract of a head: what turns features into a loss, probabilities and ranks."""

from abc import ABC, abstractmethod
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline.arguments import check_integer
from layline.geometry.decoding import DECODINGS
from layline.geometry.precision import in_full_precision
from layline.registry import check_known


class OrdinalHead(nn.Module, ABC):
    """An ordinal method on top of features.

    A subclass says how a feature becomes log probabilities and, if it is not their likelihood, what
    each sample's loss is. This class checks the input, and computes in single precision or better
    whatever autocast says: probabilities of many classes do not survive in half precision. Results
    have the precision of the module's parameters, float32 if those are in half.

    Values are checked where it is free, on the CPU; on an accelerator only shapes are, so that no
    step waits for the device.

    Args:
        num_classes: K, at least 2.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2, "one class needs no classifier")
        check_integer("dim", dim, 1, "it is the length of a feature")
        self.num_classes = num_classes
        self.dim = dim

    @abstractmethod
    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Turn checked features into log probabilities."""

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        """Compute the loss of each sample: by maximum likelihood, unless the method has another."""
        return F.nll_loss(self._log_probs(features), ranks, reduction="none")

    def _loss_between(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        weights: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, ""] | None:
        """Compute what compares samples of the batch with each other, for a head that does so."""

    def _mode(self, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Find the most probable rank. A head that knows a shorter way refines this."""
        return DECODINGS["mode"](self._log_probs(features))

    @final
    def loss(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        """Average the samples' losses over the batch.

        Args:
            features: One row per sample.
            ranks: The labels as integers, 0 for the lowest class, K − 1 for the highest.
            sample_weight: Non-negative weights; the average is then Σ w·loss / Σ w.
        """
        features = self._checked_features(features)
        ranks = self._checked_ranks(ranks, features)
        with in_full_precision(features.device):
            losses = self._losses(features, ranks)
            if sample_weight is None:
                loss, weights = losses.mean(), None
            else:
                weights = self._checked_weights(sample_weight, losses)
                loss = (weights * losses).sum() / weights.sum()
            between = self._loss_between(features, ranks, weights)
        return loss if between is None else loss + between

    @final
    def log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Give the log probability of every rank."""
        features = self._checked_features(features)
        with in_full_precision(features.device):
            return self._log_probs(features)

    @final
    def predict_proba(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Give the probability of every rank; each row sums to one."""
        return self.log_probs(features).exp()

    @final
    def predict(self, features: Float[Tensor, "n d"], decode: str = "mode") -> Int[Tensor, " n"]:
        """Choose one rank for each sample.

        Args:
            features: One row per sample.
            decode: ``"mode"`` (the paper's, most accurate), ``"median"`` (least absolute error)
                or ``"mean"`` (least squared error).
        """
        check_known("decode", decode, DECODINGS)
        if decode != "mode":
            return DECODINGS[decode](self.predict_proba(features))
        features = self._checked_features(features)
        with in_full_precision(features.device):
            return self._mode(features)

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Give the log probabilities, so that a head can end any ``nn.Sequential``."""
        return self.log_probs(features)

    def _checked_features(self, features: Tensor) -> Tensor:
        _check_tensor("features", features)
        if features.ndim != 2 or features.shape[1] != self.dim:
            raise ValueError(
                f"features must have the shape (n, {self.dim}), got {tuple(features.shape)}: "
                f"this head was made with dim={self.dim}"
            )
        parameter = next(self.parameters())
        _check_device("features", features, parameter.device)
        return features.to(torch.promote_types(parameter.dtype, torch.float32))

    def _checked_ranks(self, ranks: Tensor, features: Tensor) -> Tensor:
        samples = len(features)
        if samples == 0:
            raise ValueError("features must hold at least one sample, got none")
        _check_tensor("ranks", ranks)
        if ranks.shape != (samples,):
            raise ValueError(
                f"ranks must have the shape ({samples},), got {tuple(ranks.shape)}: "
                "one rank for each row of features"
            )
        _check_device("ranks", ranks, features.device)
        if ranks.is_floating_point() or ranks.is_complex() or ranks.dtype == torch.bool:
            raise ValueError(f"ranks must be integers, got {ranks.dtype}: convert with .long()")
        if _values_are_free(ranks):
            lowest, highest = (int(end) for end in ranks.aminmax())
            if lowest < 0 or highest >= self.num_classes:
                first = ranks[(ranks < 0) | (ranks >= self.num_classes)][0]
                raise ValueError(
                    f"ranks must be in 0…{self.num_classes - 1}, "
                    f"got {int(first)}: this head was made for "
                    f"num_classes={self.num_classes}"
                )
        return ranks.long()

    def _checked_weights(self, sample_weight: Tensor, losses: Tensor) -> Tensor:
        _check_tensor("sample_weight", sample_weight)
        if sample_weight.shape != losses.shape:
            raise ValueError(
                f"sample_weight must have the shape {tuple(losses.shape)}, "
                f"got {tuple(sample_weight.shape)}: one weight for each row of features"
            )
        _check_device("sample_weight", sample_weight, losses.device)
        if _values_are_free(sample_weight):
            wrong = ~((sample_weight >= 0) & sample_weight.isfinite())
            if wrong.any():
                raise ValueError(
                    "sample_weight must be finite and not negative, "
                    f"got {float(sample_weight[wrong][0])}"
                )
            if not sample_weight.any():
                raise ValueError("sample_weight must not be zero throughout: nothing is left")
        return sample_weight.to(losses.dtype)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"num_classes={self.num_classes}, dim={self.dim}"


def _check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{name} must be a tensor, got {type(value).__name__}: convert with torch.as_tensor"
        )


def _check_device(name: str, tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise ValueError(
            f"{name} must be on the head's device {device}, got {tensor.device}: "
            "move one of them with .to(…)"
        )


def _values_are_free(tensor: Tensor) -> bool:
    """Tell whether looking at values costs no synchronisation and breaks no compiled graph."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
