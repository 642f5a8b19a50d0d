"""A plug-in in one file: a method, a layout, a backbone and a data source.

layline train glow --plugin examples/my_plugin.py --method bump
layline train photo-quality --plugin examples/my_plugin.py --method quarter --backbone stripes
"""

import math

import numpy as np
import torch
from torch import nn

from layline import ConstrainedProxies
from layline.backbones import ImageBackbone, InputSpec
from layline.data import Dataset, SourceSpec, Splits, stratified_holdout
from layline.data.images import ImageArrays
from layline.geometry.layouts import Layout, orthonormal_pair
from layline.geometry.similarities import Cosine
from layline.heads import LinearHead


class Bump(LinearHead):
    """One number per sample, and a bump of learned width around it."""

    def __init__(self, num_classes, dim, width=1.0):
        super().__init__(num_classes, dim, outputs=1)
        self.log_width = nn.Parameter(torch.tensor(math.log(width)))

    def _log_probs(self, features):
        centre = self._scores(features) + (self.num_classes - 1) / 2  # (n, 1)
        ranks = torch.arange(self.num_classes, device=features.device)
        return (-(((ranks - centre) / self.log_width.exp()) ** 2)).log_softmax(dim=1)


class QuarterCircle(Layout):
    """Proxies on a quarter of a circle: the ends are at a right angle, not opposite."""

    constant = True  # training does not change the distances between proxies

    def __init__(self, num_classes, dim):
        super().__init__(num_classes, dim, num_vectors=2)

    def proxies(self):
        """Place the classes at equal angles."""
        plane = self.full_vectors()
        angles = torch.linspace(0, math.pi / 2, self.num_classes).to(plane)
        return torch.stack([angles.cos(), angles.sin()], dim=1) @ orthonormal_pair(plane)


def quarter(num_classes, dim, scale=10.0):
    """Proxies on a quarter of a circle, cosine similarity."""
    return ConstrainedProxies(QuarterCircle(num_classes, dim), Cosine(scale))


class Stripes(ImageBackbone):
    """One layer of tall kernels, and the mean of each channel."""

    def __init__(self, dim, *, channels=16, **prepared):
        super().__init__(InputSpec(**prepared))
        self.layers = nn.Sequential(nn.Conv2d(3, channels, (9, 3), padding=(4, 1)), nn.ReLU())
        self.last = nn.Linear(channels, dim)  # trained even if the rest is frozen

    @property
    def options(self):
        """The options that rebuild it."""
        return {"channels": self.last.in_features} | super().options

    def body(self, x):
        """Compute one number per channel."""
        return self.layers(self.normalize(x)).mean(dim=(-2, -1))


def read_glow(*, partition=0, per_class=40):
    """Generate noisy squares that are brighter from class to class."""
    rng = np.random.default_rng(partition)
    ranks = np.repeat(np.arange(4), per_class)
    light = rng.normal(50 + 50 * ranks[:, None, None, None], 30, (len(ranks), 16, 16, 3))
    rest, test = stratified_holdout(ranks, 0.25, rng)
    train, validation = (rest[part] for part in stratified_holdout(ranks[rest], 0.2, rng))
    return Dataset(
        inputs=ImageArrays(
            light.clip(0, 255).astype(np.uint8), [f"{i:04}" for i in range(len(ranks))]
        ),
        ranks=ranks,
        classes=("dark", "dim", "light", "bright"),
        splits=Splits(train, validation, test),
    )


HEADS = {"bump": Bump, "quarter": quarter}
BACKBONES = {"stripes": Stripes}
SOURCES = {
    "glow": SourceSpec(
        read_glow,
        "noisy squares in four grades of light",
        backbone="stripes",
        needs_root=False,
    )
}
