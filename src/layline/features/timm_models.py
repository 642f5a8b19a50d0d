"""What we ask of timm: its names, the input of a model, and the network itself."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from layline.features.base import InputSpec
from layline.torchvision_import import import_timm


def check_model(name: str, beside: Collection[str] = ()) -> None:
    """Refuse a name that timm does not know.

    Args:
        name: The name that is wanted, with or without a tag.
        beside: Further names that the user could have meant.
    """
    if not isinstance(name, str):
        raise ValueError(f"features must be a name, got {name!r}: such as vgg16")
    if ":" in name or "/" in name:
        raise ValueError(
            f"features must be a name without ':' or '/', got {name!r}: "
            "give the architecture's name, and weights from a file"
        )
    timm = import_timm(name)
    if "." not in name and timm.is_model(name):
        return  # the lists below take long, and a grid asks often
    tagged = timm.list_models(include_tags=True)
    known = [*beside, *timm.list_models()]
    if name not in known and name not in tagged:
        near = get_close_matches(name, tagged if "." in name else known, n=3, cutoff=0.5)
        cure = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them"
        raise ValueError(f"features must be a known name, got {name!r}: {cure}")


def own_input(model: str) -> InputSpec:
    """Give the input that a model was made for."""
    config = import_timm(model).get_pretrained_cfg(model)
    channels, height, width = config.input_size
    if channels != 3 or height != width:
        raise ValueError(
            f"features must take square RGB images, got {model!r}: "
            f"it takes {channels} channels of {height}×{width}"
        )
    return InputSpec(height, config.mean, config.std, config.interpolation)


def build_network(model: str, size: int | None, **arguments: Any) -> Any:
    """Make a network.

    Args:
        model: timm's name.
        size: Height and width of the images.
        **arguments: What ``timm.create_model`` takes.
    """
    timm = import_timm(model)
    config = timm.get_pretrained_cfg(model)
    if config.fixed_input_size and size != config.input_size[-1]:
        arguments["img_size"] = size
    try:
        return timm.create_model(model, **arguments)
    except (AssertionError, RuntimeError) as error:
        if "img_size" not in arguments or arguments.get("pretrained"):
            raise
        raise unsuited(model, size, error) from error


def unsuited(model: str, size: int | None, error: Exception) -> ValueError:
    """Turn what timm or torch say about a size into an error of ours."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ValueError(f"size must suit {model}, got {size}: {reason}")
