"""Layline: deep ordinal classification by controlling where the classes lie.

``layline.train`` goes from data to a tested model in one call.
``layline.heads`` has the methods as PyTorch modules, ``OrdinalClassifier`` is the scikit-learn
estimator, ``layline.geometry`` the mathematics, ``layline.metrics`` the ordinal metrics,
``layline.scorers`` the same as scikit-learn's scorers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layline import geometry, heads
from layline.heads import ConstrainedProxies, OrdinalHead, create, names

if TYPE_CHECKING:
    from layline import metrics, scorers
    from layline.api import Evaluated, Run, compare, evaluate, train
    from layline.estimator import OrdinalClassifier, negative_mae
    from layline.model_file import load

__version__ = "0.1.0"

# Loaded when first asked for: they bring libraries that a PyTorch loop need not wait for.
_LAZY = {
    "train": "layline.api",
    "evaluate": "layline.api",
    "compare": "layline.api",
    "Run": "layline.api",
    "Evaluated": "layline.api",
    "load": "layline.model_file",
    "OrdinalClassifier": "layline.estimator",
    "negative_mae": "layline.estimator",
    "metrics": "layline.metrics",
    "scorers": "layline.scorers",
}

__all__ = [
    "ConstrainedProxies",
    "Evaluated",
    "OrdinalClassifier",
    "OrdinalHead",
    "Run",
    "__version__",
    "compare",
    "create",
    "evaluate",
    "geometry",
    "heads",
    "load",
    "metrics",
    "names",
    "negative_mae",
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
    return module if module.__name__ == f"layline.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
