"""Finding the place of each tensor of a file in a features module."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from torch import Tensor

from layline.features.base import Features
from layline.features.pretrained import Pretrained

# what wrappers put before a name: data parallelism, a training loop, torch.compile, and we
_PREFIXES = ("module.", "model.", "_orig_mod.", "features.", "network.")
_SHOWN = 20


def body_of(features: Features) -> dict[str, Tensor]:
    """Give the tensors below the last layer."""
    state = features.state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith("last.")}


def fill(features: Features, tensors: Mapping[str, Tensor], source: str) -> list[str]:
    """Copy tensors into features: all of the body or nothing, the last layer if it fits.

    Args:
        features: The module to fill.
        tensors: What there is, under our names, timm's, or those of the network's authors.
        source: Where they come from, for messages.

    Returns:
        What was left out, in one sentence.
    """
    found, surplus = _named_as_here(features, tensors)
    if _misfits(features, found) and isinstance(features, Pretrained):
        # if it is not a file by the network's authors either, what misfits is said below
        with suppress(Exception):
            found, surplus = _named_as_here(features, features.translated(tensors))
    misfits = _misfits(features, found)
    if misfits:
        raise ValueError(
            f"weights must fit every tensor of {features.name} below its last layer, "
            f"got {source}, where {len(misfits)} do not: {_listed(misfits)}"
        )
    state = features.state_dict()
    for name in ("last.weight", "last.bias"):
        if name in found and found[name].shape != state[name].shape:
            surplus[name] = found.pop(name)
    features.load_state_dict(found, strict=False)
    if not surplus:
        return []
    shown = [f"{name} {tuple(tensor.shape)}" for name, tensor in surplus.items()]
    return [f"{source}: {len(shown)} tensors were left out: {_listed(shown)}"]


def _named_as_here(
    features: Features, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Rename tensors to what they are called here; those without a place come second."""
    here = {name: name for name in features.state_dict()} | features.names_elsewhere()
    found: dict[str, Tensor] = {}
    surplus: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = next((here[short] for short in _shortened(name) if short in here), None)
        if place is None or place in found:
            surplus[name] = tensor
        else:
            found[place] = tensor
    return found, surplus


def _shortened(name: str) -> Iterator[str]:
    """Give a name, then again and again without the prefix that a wrapper has put before it."""
    while name:
        yield name
        prefix = next((p for p in _PREFIXES if name.startswith(p)), name)
        name = name.removeprefix(prefix)


def _misfits(features: Features, found: Mapping[str, Tensor]) -> list[str]:
    """Say which tensors of the body are missing or have another shape."""
    misfits = []
    for name, tensor in body_of(features).items():
        if name not in found:
            # a counter of batches, which older files lack, changes nothing
            if not name.endswith("num_batches_tracked"):
                misfits.append(f"{name} wants {tuple(tensor.shape)}, got none")
        elif found[name].shape != tensor.shape:
            misfits.append(f"{name} wants {tuple(tensor.shape)}, got {tuple(found[name].shape)}")
    return misfits


def _listed(items: list[str]) -> str:
    more = f"; and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return "; ".join(items[:_SHOWN]) + more
