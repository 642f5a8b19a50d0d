r"""Whether two images are the same picture, by a network that was trained on ImageNet.

Compared are the maps :math:`m` of a late stage, place by place. What all images of a data set have
in common, such as the outline of a face or of a retina, must not count, so the mean map
:math:`\bar m` of some of its images is taken out. Two images are the same picture if

.. math:: \cos(m_1 - \bar m,\; m_2 - \bar m) \ge t
"""

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from layline import backbones
from layline.backbones.timm import WEIGHT_PACKAGES, TimmBackbone
from layline.backbones.weights import BUNDLED, load_weights
from layline.data.copies import SamePicture
from layline.data.dataset import Pixels
from layline.data.decoding import Image

_SIDE = 128  # pixels at a side that the network sees
_STAGE = 3  # the last but one: maps of 8 × 8
_BATCH = 32
SAME = 0.72  # cosine; how it was chosen: docs/decisions/copies.md
_T = TypeVar("_T")


def comparison_at_hand() -> SamePicture | None:
    """Give the comparison by the bundled network, or None where its weights are not installed."""
    return same_picture if find_spec(WEIGHT_PACKAGES[BUNDLED][0]) else None


def same_picture(
    pairs: Iterable[tuple[Pixels, Pixels]], others: Sequence[Pixels]
) -> Bool[np.ndarray, " n"]:
    """Tell for each pair of images whether they are the same picture.

    Args:
        pairs: Images that should have the same place for the same thing.
        others: Some images of the data set.
    """
    network = backbones.create(BUNDLED, dim=1, size=_SIDE)
    assert isinstance(network, TimmBackbone)  # it is one of timm's
    load_weights(network, "bundled")
    network.eval()
    sums = [maps.sum(dim=0) for maps in _maps(network, others)]
    mean = torch.stack(sums).sum(dim=0) / max(len(others), 1) if sums else 0.0
    verdicts = [np.zeros(0, dtype=np.bool_)]
    for some in _batches(pairs):
        both = [image for pair in some for image in pair]
        maps = torch.cat(list(_maps(network, both))) - mean
        verdicts.append((cosine_similarity(maps[::2], maps[1::2]) >= SAME).numpy())
    return np.concatenate(verdicts)


@torch.inference_mode()
def _maps(network: TimmBackbone, images: Sequence[Pixels]) -> Iterator[Float[Tensor, "n width"]]:
    for some in _batches(images):
        resized = [
            Image.fromarray(image).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
            for image in some
        ]
        x = torch.from_numpy(np.stack([np.asarray(image) for image in resized]))
        _, stages = network.network.forward_intermediates(network.normalised(x.permute(0, 3, 1, 2)))
        yield stages[_STAGE].flatten(1)


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(items)
    while some := list(islice(remaining, _BATCH)):
        yield some
