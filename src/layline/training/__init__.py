"""Fitting features and a head together."""

from layline.training.in_memory import Options, Samples, train
from layline.training.progress import Progress
from layline.training.selection import BestEpoch

__all__ = ["BestEpoch", "Options", "Progress", "Samples", "train"]
