"""The network of an estimator: built as its parameters ask for it, and applied to rows."""

import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from layline import backbones, heads
from layline.data.labels import Array
from layline.estimator.inputs import Rows, as_tensor, check_rows, column_blocks, dense, tensor_dtype
from layline.estimator.parts import Samples
from layline.evaluation.predictions import EVALUATION_FACTOR
from layline.model.model import Network
from layline.utils.devices import has_double
from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.estimator.classifier import OrdinalClassifier


def takes_table(features: Any) -> bool:
    """Tell features that take a table, by name or as a class, from those that take X as it is."""
    is_class = isinstance(features, type) and issubclass(features, backbones.TableBackbone)
    return isinstance(features, str) or is_class


def new_network(
    estimator: "OrdinalClassifier", samples: Samples, num_classes: int, device: torch.device
) -> Network:
    """Build the features and the head, with random weights or those of a given module.

    Args:
        estimator: Its parameters say what is built.
        samples: Those to train on; features of a table learn the scale of their columns.
        num_classes: Number of classes.
        device: Where to put it.
    """
    make, x = estimator.backbone, samples.rows
    features: nn.Module
    if isinstance(make, str):
        options = {} if estimator.hidden is None else {"hidden": estimator.hidden}
        features = backbones.create(make, dim=estimator.dim, in_features=x.shape[1], **options)
    elif isinstance(make, nn.Module):
        features = copy.deepcopy(make)
    else:
        features = _called_with_known(make, dim=estimator.dim, in_features=x.shape[1])
    features = features.float()
    if takes_table(make):
        _fit_scale(features, samples, keeps_dtype=has_double(device))
        features = features.to(device)
    else:
        features = features.to(device)
        _check_output(features, x, estimator.dim, device)
    head = heads.create(
        estimator.method,
        num_classes=num_classes,
        dim=estimator.dim,
        **(estimator.head_options or {}),
    )
    return Network(features, head.float().to(device))


def _called_with_known(make: Callable[..., nn.Module], **known: Any) -> nn.Module:
    """Call what makes a module with as much of what is known as it takes."""
    try:
        takes = [*inspect.signature(make).parameters.values()]
    except ValueError:  # a class of Python itself, which is none
        takes = []
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes)
    names = {each.name for each in takes}
    given = {name: value for name, value in known.items() if takes_any or name in names}
    module = make(**given)
    if not isinstance(module, nn.Module):
        raise UserError(
            f"features must make an nn.Module, got {type(module).__name__} from {make!r}"
        )
    return module


def _fit_scale(features: nn.Module, samples: Samples, *, keeps_dtype: bool) -> None:
    """Let features of a table learn the scale of the columns."""
    if not isinstance(features, backbones.TableBackbone):
        raise UserError(
            f"features must be for tables, got {type(features).__name__}: names are "
            f"{', '.join(backbones.names('table'))}"
        )
    x, weight = samples.rows, torch.from_numpy(samples.weight)
    if sparse.issparse(x):
        features.fit_scale(column_blocks(x, tensor_dtype(x, keeps_dtype)), weight)
    else:
        features.fit_scale(as_tensor(x, keeps_dtype=keeps_dtype), weight)


def _check_output(features: nn.Module, x: Rows, dim: int, device: torch.device) -> None:
    """Refuse a module that does not take X, or does not give vectors of the dimension wanted."""
    try:
        with torch.no_grad():
            output = features.eval()(as_tensor(dense(x[:2]), keeps_dtype=False).to(device))
    except RuntimeError as error:
        raise UserError(
            f"features must take X of shape (n, {', '.join(map(str, x.shape[1:]))}), "
            f"got an error for two rows: {error}"
        ) from error
    shape = tuple(output.shape) if isinstance(output, Tensor) else ()
    if shape != (2, dim):
        got = shape if isinstance(output, Tensor) else type(output).__name__
        cure = f"pass dim={shape[1]}" if len(shape) == 2 else "end it with nn.Flatten()"
        raise UserError(f"features must give (n, dim), here (2, {dim}), got {got}: {cure}")


@torch.no_grad()
def apply_in_batches(
    estimator: "OrdinalClassifier",
    rows: Rows,
    function: Callable[[heads.OrdinalHead, Tensor], Tensor],
) -> Array:
    """Apply a function of the head and the features to rows, batch by batch."""
    features, head = estimator.backbone_, estimator.head_
    device = next(head.parameters()).device
    keeps_dtype = estimator._takes_table and has_double(device)
    if has_double(device):
        # in float32 the last digits of a sample's result would depend on its batch
        head = copy.deepcopy(head).double()
        features = copy.deepcopy(features).double() if estimator._takes_table else features
    size = EVALUATION_FACTOR * estimator.batch_size
    outputs = []
    for start in range(0, rows.shape[0], size):
        # copied: a module that works in place must not change X
        x = as_tensor(dense(rows[start : start + size]), keeps_dtype=keeps_dtype).to(device)
        vectors = features(x)
        check_rows("backbone", vectors, start)
        outputs.append(function(head, vectors).cpu().numpy())
    return np.concatenate(outputs)
