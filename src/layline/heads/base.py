"""The contract of a head: it turns features into a loss, probabilities and ranks."""

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol, final, get_args, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.decoding import COST, DECODINGS, Decode, check_decode, decide, median, mode
from layline.geometry.similarities import Features, PerClass, PerSample, Proxies, Ranks, Scalar
from layline.utils.devices import autocast_is_on, can_check_values, widest_float
from layline.utils.validation import UserError, check_integer, check_known

Reduction = Literal["mean", "sum", "none"]
Labels = Ranks | Int[Tensor, "n 2"] | PerClass  # ranks, intervals, or votes


class OrdinalHead(nn.Module, ABC):
    """An ordinal method on top of features.

    A subclass defines ``_log_probs`` and, if it is not trained by maximum likelihood, ``_losses``.
    This class checks the input (values of ranks and weights on the CPU only, so that no training
    step waits for an accelerator). It computes in single precision or better, also under autocast:
    half precision is too coarse for the probabilities of many classes.
    """

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2, "one class needs no classifier")
        check_integer("dim", dim, 1, "it is the length of a feature")
        self.num_classes, self.dim = num_classes, dim

    @abstractmethod
    def _log_probs(self, features: Features) -> PerClass:
        """Turn checked features into log probabilities."""

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        """Compute the loss of each sample."""
        return F.nll_loss(self._log_probs(features), ranks, reduction="none")

    def _batch_loss(
        self, features: Features, ranks: Ranks, weights: PerSample | None
    ) -> Scalar | float:
        """Compute the term that compares the samples of a batch, for a head that has one."""
        return 0.0

    def _mode(self, features: Features, log_probs: PerClass | None) -> Ranks:
        """Find the most probable rank. A head with a closed form does not need ``log_probs``."""
        ranks: Tensor = mode(self._log_probs(features) if log_probs is None else log_probs)
        return ranks

    def set_num_data(self, num_data: int) -> None:
        """Tell the head the number of training samples, for a method whose loss depends on it."""

    def no_weight_decay(self) -> set[str]:
        """Name the parameters without weight decay, such as positions and scales."""
        names = [name for name, _ in self.named_parameters()]
        owners = {name: self.get_submodule(name.rpartition(".")[0]) for name in names}
        return {name for name, owner in owners.items() if not isinstance(owner, nn.Linear)}

    def forward(
        self,
        features: Features,
        labels: Labels | None = None,
        sample_weight: PerSample | None = None,
        reduction: Reduction = "mean",
    ) -> Float[Tensor, "..."]:
        """Return the log probabilities, (n, K); with labels, the same as :meth:`loss`.

        Without labels a head can end any ``nn.Sequential``. Wrappers of modules, such as DDP and
        FSDP, call this method in training.
        """
        if labels is not None:
            return self.loss(features, labels, sample_weight, reduction)
        if sample_weight is not None:
            raise UserError("sample_weight must come with labels: it weights the loss")
        return self.log_probs(features)

    @final
    def loss(
        self,
        features: Features,
        labels: Labels,
        sample_weight: PerSample | None = None,
        reduction: Reduction = "mean",
    ) -> Float[Tensor, "..."]:
        r"""Compute the loss of a batch. It is not finite if a feature is not.

        A distribution :math:`\pi` gives the expected loss :math:`\sum_j \pi_j L(f, j)`. An
        interval is the distribution that the head itself has inside it, :math:`\pi_j \propto
        P_j(f)`, without gradient: for heads that are trained by likelihood the gradient is that of
        :math:`-\log \sum_j P_j(f)` over the interval.

        Args:
            features: One row per sample.
            labels: Ranks, integers (n,): 0 for the lowest class, K − 1 for the highest; or
                intervals, integers (n, 2): the lowest and the highest possible rank; or floats
                (n, K): the probability or the number of votes of each class.
            sample_weight: Non-negative weights w of the samples.
            reduction: ``"mean"`` is Σ w·loss / Σ w, ``"sum"`` is Σ w·loss, ``"none"`` returns
                w·loss for each sample. A term that compares samples is added to each of them.
        """
        check_known("reduction", reduction, get_args(Reduction))
        features = self._check_features(features)
        labels = self._check_labels(labels, features)
        weights = None if sample_weight is None else self._check_weights(sample_weight, features)
        with _full_precision(features.device):
            if labels.ndim == 1:
                ranks, losses = labels, self._losses(features, labels)
            else:
                shares = labels
                if not labels.is_floating_point():
                    with torch.no_grad():
                        shares = share_in_intervals(self._log_probs(features), labels)
                ranks, losses = median(shares), self._expected_losses(features, shares)
            losses = losses + self._batch_loss(features, ranks, weights)
            # a bounded loss would hide an infinite feature; zero times infinity is NaN
            losses = losses + (0 * features.detach()).sum(dim=-1)
            if weights is not None:
                losses = weights * losses
            if reduction == "mean":
                return losses.mean() if weights is None else losses.sum() / weights.sum()
            return losses.sum() if reduction == "sum" else losses

    def _expected_losses(self, features: Features, shares: PerClass) -> PerSample:
        """Compute the loss of each sample, if its rank is drawn from a distribution."""
        rows, ranks = shares.nonzero(as_tuple=True)
        each = shares[rows, ranks] * self._losses(features[rows], ranks)
        return each.new_zeros(len(shares)).index_add(0, rows, each)

    @final
    def log_probs(self, features: Features) -> PerClass:
        """Return the log probability of every rank."""
        features = self._check_features(features)
        with _full_precision(features.device):
            return self._log_probs(features)

    @final
    def predict_proba(self, features: Features) -> PerClass:
        """Return the probability of every rank; each row sums to one."""
        features = self._check_features(features, finite=True)
        with _full_precision(features.device):
            return self._log_probs(features).exp()

    @final
    def predict(
        self, features: Features, decode: Decode = "mode", log_probs: PerClass | None = None
    ) -> Ranks:
        """Choose one rank for each sample.

        Args:
            features: One row per sample.
            decode: ``"mode"`` (the paper's, most accurate), ``"median"`` (least absolute error),
                ``"mean"`` or ``"quadratic"`` (least squared error), or a (K, K) matrix with the
                cost of each decision, a row for each true class.
            log_probs: Their log probabilities if they are known, perhaps calibrated.
        """
        decode = check_decode(decode, self.num_classes)
        features = self._check_features(features, finite=True)
        with _full_precision(features.device):
            if decode == "mode":
                return self._mode(features, log_probs)
            if log_probs is None:
                log_probs = self._log_probs(features)
            ranks: Tensor = decide(probabilities(log_probs), decode)
            return ranks

    @final
    def decisions(
        self, features: Features, log_probs: PerClass | None = None, decode: Decode = "mode"
    ) -> dict[str, Ranks]:
        """Choose one rank for each sample by every decoding.

        The arguments are those of :meth:`predict`; a matrix of costs is added as ``"cost"``.
        """
        if log_probs is None:
            log_probs = self.log_probs(features)
        wanted: dict[str, Decode] = {name: name for name in DECODINGS}
        if not isinstance(decode, str):
            wanted[COST] = decode
        return {name: self.predict(features, each, log_probs) for name, each in wanted.items()}

    def _check_features(self, features: Tensor, finite: bool = False) -> Tensor:
        parameter = next(self.parameters())
        _check_tensor("features", features, (None, self.dim), parameter.device)
        readable = not features.is_meta and not torch.compiler.is_compiling()
        if finite and readable and not features.isfinite().all():
            raise UserError("features must be finite, got NaN or infinity")
        return features.to(torch.promote_types(parameter.dtype, torch.float32))

    def _check_labels(self, labels: Tensor, features: Tensor) -> Tensor:
        """Check labels; a distribution is returned with rows that sum up to one."""
        if len(features) == 0:
            raise UserError("features must have at least one sample, got none")
        is_wide = isinstance(labels, Tensor) and labels.ndim == 2
        if is_wide and labels.is_floating_point():
            return self._check_votes(labels, features)
        shape = (len(features), 2) if is_wide else (len(features),)
        _check_tensor("labels", labels, shape, features.device)
        if labels.is_floating_point() or labels.dtype == torch.bool:
            raise UserError(f"ranks must be integers, got {labels.dtype}: convert with .long()")
        for end in labels.aminmax() if can_check_values(labels) else ():
            if not 0 <= int(end) < self.num_classes:
                raise UserError(f"ranks must be in 0…{self.num_classes - 1}, got {int(end)}")
        if is_wide and can_check_values(labels):
            low, high = labels.T
            if (low > high).any():
                row = int((low > high).int().argmax())
                got = tuple(labels[row].tolist())
                raise UserError(f"intervals must be (lowest, highest), got {got} in row {row}")
        return labels.long()

    def _check_votes(self, votes: Tensor, features: Tensor) -> Tensor:
        _check_tensor("labels", votes, (len(features), self.num_classes), features.device)
        totals = votes.sum(dim=1, keepdim=True)
        if can_check_values(votes):
            wrong = ~(votes >= 0).all(dim=1) | ~totals[:, 0].isfinite() | (totals[:, 0] == 0)
            if wrong.any():
                row = int(wrong.int().argmax())
                raise UserError(
                    "votes must be finite, ≥ 0 and not all zero in a row, got "
                    f"{votes[row].tolist()} in row {row}"
                )
        return votes.to(features.dtype) / totals.to(features.dtype)

    def _check_weights(self, sample_weight: Tensor, features: Tensor) -> Tensor:
        _check_tensor("sample_weight", sample_weight, (len(features),), features.device)
        if can_check_values(sample_weight):
            low, high = (float(end) for end in sample_weight.aminmax())  # NaN if there is one
            if not (low >= 0 and 0 < high < math.inf):
                got = "zeros" if low == high == 0 else high if low >= 0 else low
                raise UserError(f"sample_weight must be finite, ≥ 0 and not all zero, got {got}")
        return sample_weight.to(features.dtype)

    def extra_repr(self) -> str:
        """Show the sizes and the options when the module is printed."""
        shown = {n: v for n, v in vars(self).items() if n[0] != "_" and n != "training"}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def share_in_intervals(log_probs: PerClass, intervals: Int[Tensor, "n 2"]) -> PerClass:
    """Compute the distribution over the ranks of each interval, as a head predicts it."""
    ranks = torch.arange(log_probs.shape[1], device=log_probs.device)
    inside = (ranks >= intervals[:, :1]) & (ranks <= intervals[:, 1:])
    finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min / 2)  # perhaps impossible
    return finite.masked_fill(~inside, -math.inf).softmax(dim=1)


class LinearHead(OrdinalHead):
    """A head that begins with a linear layer."""

    def __init__(self, num_classes: int, dim: int, outputs: int, bias: bool = True) -> None:
        super().__init__(num_classes, dim)
        self.linear = nn.Linear(dim, outputs, bias=bias)

    def _scores(self, features: Features) -> Float[Tensor, "n outputs"]:
        """Apply the layer in the precision of the features, also when the module is in half."""
        return apply_linear(self.linear, features)


class Classification(LinearHead):
    """A linear layer and cross entropy.

    Heads with another loss on the same softmax are its subclasses.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=num_classes)

    def _log_probs(self, features: Features) -> PerClass:
        return torch.log_softmax(self._scores(features), dim=-1)


@runtime_checkable
class HasProxies(Protocol):
    """A head whose classes have proxies."""

    def proxies(self) -> Proxies:
        """Return one proxy per class, lowest first."""


def apply_linear(layer: nn.Linear, features: Tensor) -> Tensor:
    """Apply a layer in the precision of the features."""
    bias = None if layer.bias is None else layer.bias.to(features.dtype)
    return F.linear(features, layer.weight.to(features.dtype), bias)


def probabilities(log_probs: Tensor) -> Tensor:
    """Return probabilities that sum to one in the widest precision of the device."""
    return log_probs.to(widest_float(log_probs.device)).softmax(dim=-1)


def _full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Suspend autocast."""
    return torch.autocast(device.type, enabled=False) if autocast_is_on(device) else nullcontext()


def _check_tensor(
    name: str, value: Any, shape: tuple[int | None, ...], device: torch.device
) -> None:
    if not isinstance(value, Tensor):
        raise UserError(
            f"{name} must be a tensor, got {type(value).__name__}: convert with torch.as_tensor"
        )
    fits = value.ndim == len(shape)
    if not fits or any(b is not None and a != b for a, b in zip(value.shape, shape, strict=True)):
        wanted = str(shape).replace("None", "n")
        raise UserError(f"{name} must have the shape {wanted}, got {tuple(value.shape)}")
    if value.device != device:
        raise UserError(f"{name} must be on the head's device {device}, got {value.device}")
