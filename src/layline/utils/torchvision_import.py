"""The one way to torchvision and timm, so that they import next to a CPU-only torch too.

A torchvision that was built for another torch cannot load its compiled operators. We use none of
them, but its import stops where two have no schema. So these are declared first, without an
implementation, if and only if the operators do not load.
"""

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, PathFinder
from pathlib import Path
from threading import RLock
from typing import Any

import torch

from layline.utils.optional import require

_LOCK = RLock()
_DECLARED: list[torch.library.Library] = []  # a declaration lasts as long as its object
_OPERATORS: Any = torch.ops  # without types

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision(needed_by: str = "work on images") -> Any:
    """Import torchvision. From then on ``import torchvision`` works everywhere.

    Args:
        needed_by: Who needs it, for the error if it is not installed.
    """
    with _LOCK:
        if sys.modules.get("torchvision") is None:
            declare_missing()
        return require("torchvision", extra="images", needed_by=needed_by)


def import_timm(needed_by: str = "work on images") -> Any:
    """Import timm, which imports torchvision.

    Args:
        needed_by: Who needs it, for the error if it is not installed.
    """
    with _LOCK:
        import_torchvision(needed_by)
        return require("timm", extra="images", needed_by=needed_by)


def declare_missing() -> None:
    """Declare the operators that stop the import, if the compiled ones do not load."""
    spec = PathFinder.find_spec("torchvision")  # asks no hook, which could ask us again
    if spec is None or not spec.submodule_search_locations or _operators_load(spec):
        return
    missing = [name for name in _SCHEMAS if not hasattr(_OPERATORS.torchvision, name)]
    if not missing:
        return
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in missing:
        library.define(_SCHEMAS[name])
    _DECLARED.append(library)


def _operators_load(spec: Any) -> bool:
    """Load the compiled operators as torchvision's own import will; a second time is harmless."""
    folder = Path(spec.submodule_search_locations[0])
    finder = FileFinder(str(folder), (ExtensionFileLoader, EXTENSION_SUFFIXES))
    extension = finder.find_spec("_C")
    if extension is None or extension.origin is None:
        return False
    try:
        _OPERATORS.load_library(extension.origin)
    except OSError:  # built for another torch
        return False
    return True
