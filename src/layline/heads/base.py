"""The contract of a head: what turns features into a loss, probabilities and ranks."""

from abc import ABC, abstractmethod
from typing import Any, Literal, Protocol, final, get_args, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.decoding import (
    COST,
    DECODINGS,
    Decode,
    checked_decode,
    decide,
)
from layline.geometry.precision import in_full_precision
from layline.utils.devices import can_check_values
from layline.utils.errors import UserError
from layline.utils.validation import check_integer, check_known

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = get_args(Reduction)


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

    def _batch_loss(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        weights: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, ""] | None:
        """Compute the term that compares samples of a batch, for a head that has one."""

    def for_export(self) -> "OrdinalHead":
        """Give a head with the same probabilities whose parameters are known to be final.

        What depends on them alone can be computed beforehand. A method needs this if a step of it,
        such as a factorisation, is unknown to other runtimes.
        """
        return self

    def no_weight_decay(self) -> set[str]:
        """Name the parameters that weight decay must leave alone, as timm's networks do.

        Those are numbers with a meaning of their own, such as places and scales, which a pull
        towards zero would falsify.
        """
        return set()

    def _mode(
        self, features: Float[Tensor, "n d"], log_probs: Float[Tensor, "n K"] | None
    ) -> Int[Tensor, " n"]:
        """Find the most probable rank. A head with a shorter way does not need ``log_probs``."""
        return DECODINGS["mode"](self._log_probs(features) if log_probs is None else log_probs)

    @final
    def loss(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        sample_weight: Float[Tensor, " n"] | None = None,
        reduction: Reduction = "mean",
    ) -> Float[Tensor, "..."]:
        """Compute the loss of a batch; it is not finite where a feature is not.

        Args:
            features: One row per sample.
            ranks: The labels as integers, 0 for the lowest class, K − 1 for the highest.
            sample_weight: Non-negative weights w of the samples.
            reduction: ``"mean"`` is Σ w·loss / Σ w, ``"sum"`` is Σ w·loss, ``"none"`` gives w·loss
                for each sample. What a method adds by comparing samples counts for each alike.
        """
        check_known("reduction", reduction, REDUCTIONS)
        features = self._checked_features(features)
        ranks = self._checked_ranks(ranks, features)
        with in_full_precision(features.device):
            losses = self._losses(features, ranks)
            # a bounded or saturated loss hides an infinite feature; zero times it is no number
            losses = losses + (0 * features.detach()).sum(dim=-1)
            weights = None
            if sample_weight is not None:
                weights = self._checked_weights(sample_weight, losses)
            of_batch = self._batch_loss(features, ranks, weights)
            if reduction == "mean":
                mean = losses.mean() if weights is None else _weighted_mean(losses, weights)
                return mean if of_batch is None else mean + of_batch
            losses = losses if of_batch is None else losses + of_batch
            losses = losses if weights is None else weights * losses
            return losses.sum() if reduction == "sum" else losses

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
    def predict(self, features: Float[Tensor, "n d"], decode: Decode = "mode") -> Int[Tensor, " n"]:
        """Choose one rank for each sample: this is the decision that everyone else takes too.

        Args:
            features: One row per sample.
            decode: ``"mode"`` (the paper's, most accurate), ``"median"`` (least absolute error),
                ``"mean"`` or ``"quadratic"`` (least squared error), or a (K, K) matrix of what
                each decision costs, a row for each true class.
        """
        decode = checked_decode(decode, self.num_classes)
        features = self._checked_features(features)
        with in_full_precision(features.device):
            if decode == "mode":
                return self._mode(features, None)
            return decide(probabilities(self._log_probs(features)), decode)

    @final
    def decisions(
        self,
        features: Float[Tensor, "n d"],
        log_probs: Float[Tensor, "n K"] | None = None,
        decode: Decode = "mode",
    ) -> dict[str, Int[Tensor, " n"]]:
        """Choose one rank for each sample by every decoding, as :meth:`predict` does.

        Args:
            features: One row per sample.
            log_probs: Their log probabilities, if they are at hand, perhaps calibrated.
            decode: Costs are decided by as well, under the name ``"cost"``.
        """
        features = self._checked_features(features)
        with in_full_precision(features.device):
            log_probs = self._log_probs(features) if log_probs is None else log_probs
            probs = probabilities(log_probs)
            found = {name: by_name(probs) for name, by_name in DECODINGS.items() if name != "mode"}
            if not isinstance(decode, str):
                found[COST] = decide(probs, checked_decode(decode, self.num_classes))
            return {"mode": self._mode(features, log_probs), **found}

    @final
    def decision(
        self, features: Float[Tensor, "n d"], log_probs: Float[Tensor, "n K"], decode: Decode
    ) -> Int[Tensor, " n"]:
        """Choose one rank for each sample by one decoding, as :meth:`decisions` does.

        Args:
            features: One row per sample.
            log_probs: Their log probabilities, perhaps calibrated.
            decode: See :meth:`predict`.
        """
        features = self._checked_features(features)
        decode = checked_decode(decode, self.num_classes)
        with in_full_precision(features.device):
            if decode == "mode":
                return self._mode(features, log_probs)
            return decide(probabilities(log_probs), decode)

    def forward(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"] | None = None,
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "..."]:
        """Give the log probabilities, (n, K), or with ranks the mean loss.

        Without ranks a head can end any ``nn.Sequential``; with them it is what wrappers of modules
        such as DDP and FSDP see in training.
        """
        if ranks is not None:
            return self.loss(features, ranks, sample_weight)
        if sample_weight is not None:
            raise UserError("sample_weight must come with ranks, got it alone: it weighs the loss")
        return self.log_probs(features)

    def _checked_features(self, features: Tensor) -> Tensor:
        _check_tensor("backbone", features)
        if features.ndim != 2 or features.shape[1] != self.dim:
            raise UserError(
                f"features must have the shape (n, {self.dim}), got {tuple(features.shape)}: "
                f"this head was made with dim={self.dim}"
            )
        parameter = next(self.parameters())
        _check_device("backbone", features, parameter.device)
        return features.to(torch.promote_types(parameter.dtype, torch.float32))

    def _checked_ranks(self, ranks: Tensor, features: Tensor) -> Tensor:
        samples = len(features)
        if samples == 0:
            raise UserError("features must hold at least one sample, got none")
        _check_tensor("ranks", ranks)
        if ranks.shape != (samples,):
            raise UserError(
                f"ranks must have the shape ({samples},), got {tuple(ranks.shape)}: "
                "one rank for each row of features"
            )
        _check_device("ranks", ranks, features.device)
        if ranks.is_floating_point() or ranks.is_complex() or ranks.dtype == torch.bool:
            raise UserError(f"ranks must be integers, got {ranks.dtype}: convert with .long()")
        ranks = ranks.long()  # a small unsigned type has no minimum in PyTorch
        if can_check_values(ranks):
            lowest, highest = (int(end) for end in ranks.aminmax())
            if lowest < 0 or highest >= self.num_classes:
                first = ranks[(ranks < 0) | (ranks >= self.num_classes)][0]
                raise UserError(
                    f"ranks must be in 0…{self.num_classes - 1}, "
                    f"got {int(first)}: this head was made for "
                    f"num_classes={self.num_classes}"
                )
        return ranks

    def _checked_weights(self, sample_weight: Tensor, losses: Tensor) -> Tensor:
        _check_tensor("sample_weight", sample_weight)
        if sample_weight.shape != losses.shape:
            raise UserError(
                f"sample_weight must have the shape {tuple(losses.shape)}, "
                f"got {tuple(sample_weight.shape)}: one weight for each row of features"
            )
        _check_device("sample_weight", sample_weight, losses.device)
        if can_check_values(sample_weight):
            wrong = ~((sample_weight >= 0) & sample_weight.isfinite())
            if wrong.any():
                raise UserError(
                    "sample_weight must be finite and not negative, "
                    f"got {float(sample_weight[wrong][0])}"
                )
            if not sample_weight.any():
                raise UserError("sample_weight must not be zero throughout: nothing is left")
        return sample_weight.to(losses.dtype)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"num_classes={self.num_classes}, dim={self.dim}"


@runtime_checkable
class HasProxies(Protocol):
    """A head whose classes have proxies."""

    def proxies(self) -> Float[Tensor, "K d"]:
        """Give one proxy per class, lowest first."""


def _check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise UserError(
            f"{name} must be a tensor, got {type(value).__name__}: convert with torch.as_tensor"
        )


def _check_device(name: str, tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise UserError(
            f"{name} must be on the head's device {device}, got {tensor.device}: "
            "move one of them with .to(…)"
        )


def _weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    return (weights * losses).sum() / weights.sum()


def probabilities(log_probs: Tensor) -> Tensor:
    """Make probabilities that sum to one in float64, which Apple's GPU does not have."""
    exact = log_probs if log_probs.device.type == "mps" else log_probs.double()
    return exact.softmax(dim=-1)
