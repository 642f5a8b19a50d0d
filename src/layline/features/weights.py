"""Weights to begin with: none, timm's download, those of a Python package, or a file."""

from pathlib import Path

from torch import Tensor

from layline.features import FEATURES
from layline.features.base import Features
from layline.features.bundled import PACKAGES, is_bundled, pair_by_position, read_bundled
from layline.features.pretrained import Pretrained
from layline.features.tensor_files import SUFFIXES, read_tensors
from layline.features.tensor_matching import body_of, fill
from layline.registry import check_known

NAMES = ("none", "imagenet", "bundled")


def check_weights(weights: str, features: str) -> None:
    """Refuse weights that cannot be meant, before anything is built.

    Args:
        weights: One of ``NAMES``, or the path of a file that ends in one of ``SUFFIXES``.
        features: Name of the features they are for.
    """
    path = Path(weights).expanduser()
    if weights in NAMES:
        _check_named(weights, features)
    elif path.suffix.lower() in SUFFIXES:
        if not path.is_file():
            raise FileNotFoundError(f"weights must be a file, got {weights}: there is none")
    elif path.exists():
        raise ValueError(
            f"weights must be a file that ends in {', '.join(SUFFIXES)}, got {weights}: "
            "other kinds are not read"
        )
    else:
        check_known("weights", weights, (*NAMES, *(f"FILE{suffix}" for suffix in SUFFIXES)))


def load_weights(features: Features, weights: str) -> list[str]:
    """Fill features with weights.

    The body is filled completely or not at all. The last layer is filled by a file that has one
    of the same shape.

    Args:
        features: The module to fill.
        weights: One of ``NAMES``, or the path of a file.

    Returns:
        What a user should know about the loading, one sentence each.
    """
    check_weights(weights, features.name)
    if weights == "none":
        return []
    if weights == "bundled":
        tensors = read_bundled(features.name)
        body = dict(list(tensors.items())[:-2])  # the last two are the classifier's
        return fill(features, pair_by_position(body, body_of(features)), weights)
    if weights == "imagenet" and isinstance(features, Pretrained):
        body = {
            name: tensor
            for name, tensor in _fetch(features).items()
            if not name.startswith(f"{features.classifier}.")
        }
        return fill(features, body, weights)
    return fill(features, read_tensors(Path(weights).expanduser()), weights)


def _check_named(weights: str, features: str) -> None:
    if weights == "imagenet" and features in FEATURES:
        raise ValueError(
            f"weights must be none or a file for {features}, got 'imagenet': "
            "only networks of timm were trained on it"
        )
    if weights == "bundled" and not is_bundled(features):
        raise ValueError(
            f"weights must be none, imagenet or a file for {features}, got 'bundled': "
            f"only {', '.join(PACKAGES)} have a package"
        )


def _fetch(features: Pretrained) -> dict[str, Tensor]:
    try:
        return features.fetched()
    except Exception as error:  # each library on the way has its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OSError(
            f"weights must be within reach, got 'imagenet': timm could not fetch those of "
            f"{features.name} ({reason.rstrip('.')}); use --weights none, --weights FILE, "
            "or --features tf_efficientnet_lite0 --weights bundled"
        ) from error
