"""Training of the estimator: check its parameters, build its network, and run the trainer."""

import copy
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from layline import backbones, heads
from layline.estimator.inputs import FitData, Rows, Samples, to_tensor
from layline.evaluation.predictions import EVALUATION_FACTOR, Predictions
from layline.model.model import Network
from layline.training.optim import MODERN, Options, default_head_rate, default_warmup
from layline.training.trainer import Callback, Trainer, TrainingState, describe_epoch
from layline.utils.devices import Processes, has_double
from layline.utils.errors import UserError
from layline.utils.validation import check_integer, check_known

if TYPE_CHECKING:
    from layline.estimator.classifier import OrdinalClassifier

STRUCTURE = ("method", "backbone", "dim", "hidden", "head_options")
"""The parameters that a network is built from; warm_start cannot change them."""
_BLOCK = 1 << 22  # cells of a sparse matrix that are dense at the same time: 32 MB
_FIT_LOCK = threading.RLock()


def make_options(estimator: "OrdinalClassifier", *, has_validation: bool) -> Options:
    """Check the parameters, and return those of the trainer."""
    if isinstance(estimator.backbone, str):
        check_known("backbone", estimator.backbone, backbones.names("table"))
    elif not callable(estimator.backbone):  # a module is callable
        raise UserError(
            "backbone must be a name, an nn.Module or a function that makes one, got "
            f"{estimator.backbone!r}"
        )
    elif estimator.hidden is not None:
        raise UserError(
            f"hidden must be None if backbone is not a name, got {estimator.hidden!r}: the module "
            "has its own layers"
        )
    _, method = heads.find(estimator.method)
    check_integer("dim", estimator.dim, 1)
    for name in ("validation_fraction", "calibration_fraction"):
        share = getattr(estimator, name)
        optional = share is None and name == "calibration_fraction"
        if not optional and not (isinstance(share, float | int) and 0 <= share < 1):
            raise UserError(f"{name} must be a number in [0, 1), got {share!r}")
    if estimator.patience is not None and not (estimator.validation_fraction or has_validation):
        raise UserError(
            f"patience must be None if validation_fraction is 0, got {estimator.patience!r}: "
            "stopping early needs validation samples"
        )
    if not isinstance(estimator.head_options, Mapping | None):
        raise UserError(f"head_options must be a dict, got {estimator.head_options!r}")
    check_known("recipe", estimator.recipe, ("modern", "paper"))
    check_integer("epochs", estimator.epochs, 1)
    modern = MODERN | {"warmup_epochs": default_warmup(estimator.epochs)}
    head_rate = estimator.head_learning_rate
    if head_rate is None:
        head_rate = default_head_rate(method, estimator.recipe)
    return Options(
        **(modern if estimator.recipe == "modern" else {}),
        epochs=estimator.epochs,
        batch_size=estimator.batch_size,
        learning_rate=estimator.learning_rate,
        head_learning_rate=head_rate,
        weight_decay=estimator.weight_decay,
        decode=estimator.decode,
        patience=estimator.patience,
    )


def takes_table(backbone: Any) -> bool:
    """Return whether a backbone takes the rows of a table, which are encoded and standardized."""
    is_class = isinstance(backbone, type) and issubclass(backbone, backbones.TableBackbone)
    return isinstance(backbone, str) or is_class


def batch_dtype(estimator: "OrdinalClassifier", rows: Rows, device: torch.device) -> Any:
    """Return the dtype of batches: that of the rows for a table, float32 for a module."""
    return rows.dtype if estimator._takes_table and has_double(device) else np.float32


def train_network(
    estimator: "OrdinalClassifier",
    network: Network | None,
    data: FitData,
    options: Options,
    device: torch.device,
    seed: int,
) -> tuple[Network, TrainingState]:
    """Train a network, a new one if None is given, and return it in its best epoch."""
    # PyTorch's generators are shared by all threads, so one fit at a time
    with _FIT_LOCK, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        if network is None:
            network = _build_network(estimator, data.train, len(data.classes), device)
        dtype = batch_dtype(estimator, data.train.rows, device)
        train = data.train.to_split(data.class_factors, dtype)
        validation = None
        if len(data.validation):
            validation = data.validation.to_split(data.class_factors, dtype)
        options = replace(options, generator=torch.Generator().manual_seed(seed))
        best = _BestWeights()
        callbacks = [best, _Log()] if estimator.verbose else [best]
        trainer = Trainer(network, train, validation, options, Processes(device), callbacks)
        state = trainer.fit()
        if best.state:
            network.load_state_dict(best.state)
    return network.eval(), state


class _BestWeights(Callback):
    """Keep the weights of the best epoch, on the CPU."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Copy the weights if the epoch is the best so far."""
        if is_best:
            self.state = {
                name: value.detach().to("cpu", copy=True)
                if isinstance(value, Tensor)
                else copy.deepcopy(value)
                for name, value in trainer.network.state_dict().items()
            }


class _Log(Callback):
    """Write a line to stderr per epoch."""

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Write the results of the epoch."""
        sys.stderr.write(describe_epoch(trainer) + "\n")


def _build_network(
    estimator: "OrdinalClassifier", samples: Samples, num_classes: int, device: torch.device
) -> Network:
    make, x = estimator.backbone, samples.rows
    backbone: nn.Module
    if isinstance(make, str):
        options = {} if estimator.hidden is None else {"hidden": estimator.hidden}
        backbone = backbones.create(make, dim=estimator.dim, in_features=x.shape[1], **options)
    elif isinstance(make, nn.Module):
        backbone = copy.deepcopy(make)
    else:
        backbone = _call_with_known(make, dim=estimator.dim, in_features=x.shape[1])
    backbone = backbone.float()
    if isinstance(backbone, backbones.TableBackbone) and estimator._takes_table:
        _fit_scale(backbone, samples, batch_dtype(estimator, x, device))
        backbone = backbone.to(device)
    else:
        backbone = backbone.to(device)
        _check_output(backbone, x, estimator.dim, device)
    options = dict(estimator.head_options or {})
    head = heads.create(estimator.method, num_classes=num_classes, dim=estimator.dim, **options)
    return Network(backbone, head.float().to(device))


def _call_with_known(make: Callable[..., nn.Module], **known: Any) -> nn.Module:
    """Call a function or a class with those of the known arguments that it takes."""
    parameters = inspect.signature(make).parameters.values()
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    names = {each.name for each in parameters}
    module = make(**{name: value for name, value in known.items() if takes_any or name in names})
    if not isinstance(module, nn.Module):
        raise UserError(f"backbone must make an nn.Module, got {type(module).__name__}")
    return module


def _fit_scale(backbone: backbones.TableBackbone, samples: Samples, dtype: Any) -> None:
    """Learn the scale of the columns; a sparse matrix is read in blocks of columns."""
    x, weight = samples.rows, torch.from_numpy(samples.weight)
    if not sparse.issparse(x):
        backbone.fit_scale(to_tensor(x, dtype), weight)
        return
    by_column, width = x.tocsc(), max(1, _BLOCK // x.shape[0])
    starts = range(0, x.shape[1], width)
    blocks = (to_tensor(by_column[:, start : start + width], dtype) for start in starts)
    backbone.fit_scale(blocks, weight)


def _check_output(backbone: nn.Module, x: Rows, dim: int, device: torch.device) -> None:
    """Raise an error unless a module takes X and returns vectors of the right dimension."""
    try:
        with torch.no_grad():
            output = backbone.eval()(to_tensor(x[:2], np.float32).to(device))
    except RuntimeError as error:
        raise UserError(
            f"backbone must take X of shape (n, {', '.join(map(str, x.shape[1:]))}), "
            f"got an error for two rows: {error}"
        ) from error
    shape = tuple(output.shape) if isinstance(output, Tensor) else ()
    if shape != (2, dim):
        got = shape if isinstance(output, Tensor) else type(output).__name__
        cure = f"pass dim={shape[1]}" if len(shape) == 2 else "end it with nn.Flatten()"
        raise UserError(f"backbone must return (n, dim), here (2, {dim}), got {got}: {cure}")


@contextmanager
def inference_network(estimator: "OrdinalClassifier") -> Iterator[Network]:
    """Yield a copy of the network in float64, where the device has it, without gradients.

    In float32 the last digits of a sample's result would depend on the rest of its batch.
    """
    backbone, head = estimator.backbone_, estimator.head_
    if has_double(next(head.parameters()).device):
        head = copy.deepcopy(head).double()
        backbone = copy.deepcopy(backbone).double() if estimator._takes_table else backbone
    with torch.no_grad():
        yield Network(backbone, head)


def extract_features(
    estimator: "OrdinalClassifier", network: Network, rows: Rows
) -> Iterator[Tensor]:
    """Yield the features of rows, batch by batch."""
    device = next(network.head.parameters()).device
    dtype = batch_dtype(estimator, rows, device)
    size = EVALUATION_FACTOR * estimator.batch_size
    for start in range(0, rows.shape[0], size):
        features = network.backbone(to_tensor(rows[start : start + size], dtype).to(device))
        wrong = ~features.isfinite().all(dim=1)
        if wrong.any():
            raise UserError(
                f"The features of row {start + int(wrong.int().argmax())} of X are not finite. Its "
                "values may be far from those of training."
            )
        yield features
