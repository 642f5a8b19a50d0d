"""Layline: deep ordinal classification by controlling where the classes lie.

``layline.train`` trains and tests a model in one call. ``layline.heads`` contains the methods as
PyTorch modules, ``OrdinalClassifier`` is the scikit-learn estimator, ``layline.geometry`` the
mathematics, ``layline.metrics`` the ordinal metrics, and ``layline.scorers`` the same metrics as
scorers for scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layline import geometry, heads, metrics
    from layline.estimator import OrdinalClassifier, scorers
    from layline.heads import ConstrainedProxies, OrdinalHead, create, names
    from layline.model.model_file import load
    from layline.model.onnx_export import export
    from layline.reports.comparison import compare
    from layline.training.evaluate import Evaluated, evaluate
    from layline.training.run import Run, train
    from layline.utils.validation import UserError

__version__ = "0.2.0"  # the only place: the package's metadata are read from here

# Imported on first use: an exported model predicts without PyTorch, and a PyTorch loop does not
# wait for scikit-learn.
_LAZY = {
    "geometry": "layline.geometry",
    "heads": "layline.heads",
    "ConstrainedProxies": "layline.heads",
    "OrdinalHead": "layline.heads",
    "create": "layline.heads",
    "names": "layline.heads",
    "train": "layline.training.run",
    "evaluate": "layline.training.evaluate",
    "compare": "layline.reports.comparison",
    "Run": "layline.training.run",
    "Evaluated": "layline.training.evaluate",
    "load": "layline.model.model_file",
    "export": "layline.model.onnx_export",
    "OrdinalClassifier": "layline.estimator",
    "UserError": "layline.utils.validation",
    "metrics": "layline.metrics",
    "scorers": "layline.estimator.scorers",
}

__all__ = [
    "ConstrainedProxies",
    "Evaluated",
    "OrdinalClassifier",
    "OrdinalHead",
    "Run",
    "UserError",
    "__version__",
    "compare",
    "create",
    "evaluate",
    "export",
    "geometry",
    "heads",
    "load",
    "metrics",
    "names",
    "scorers",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'layline' has no attribute {name!r}")
    try:
        module = import_module(_LAZY[name])
    except ModuleNotFoundError as error:
        raise ImportError(
            f"layline.{name} needs {error.name}: pip install layline[images]"
        ) from error
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return sorted(__all__)
