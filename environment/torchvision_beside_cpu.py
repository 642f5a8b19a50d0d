"""Makes ``import torchvision`` work beside a CPU-only torch.

The registry's torchvision is built for the CUDA torch. Beside a CPU-only torch its compiled
operators do not load, and the import stops with "operator torchvision::nms does not exist". Layline
uses none of these operators, so the two missing ones are declared without an implementation.

``make`` puts this module on the start-up path of ``.venv``. Nothing happens until torchvision is
imported.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

_declared = []  # a declaration lasts as long as its object


class _BeforeTorchvision(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        """Declare the missing operators; the usual finders then find the package."""
        if name == "torchvision":
            sys.meta_path.remove(self)
            _declare_missing_operators()


def _declare_missing_operators():
    spec = PathFinder.find_spec("torchvision")
    if spec is None:
        return
    import torch

    extensions = list(Path(spec.submodule_search_locations[0]).glob("_C*.so"))
    try:
        for extension in extensions:
            torch.ops.load_library(extension)
        if extensions:
            return
    except OSError:  # built for another torch
        pass
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)


sys.meta_path.insert(0, _BeforeTorchvision())
