"""Lets programs that import torchvision by themselves start beside a CPU-only torch.

``make`` puts this module on the start-up path of ``.venv``: ``accelerate launch`` imports timm, and
so torchvision, before any code of ours runs. Nothing happens until torchvision is asked for.
"""

import sys
from importlib.abc import MetaPathFinder


class _BeforeTorchvision(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        """Declare the missing operators first, then let the usual finders go on."""
        if name == "torchvision":
            sys.meta_path.remove(self)
            from layline.utils.torchvision_import import declare_missing

            declare_missing()


sys.meta_path.insert(0, _BeforeTorchvision())
