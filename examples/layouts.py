"""Draw where the classes lie: features and proxies of four methods, in two dimensions.

The data are twenty noisy, nonlinear measurements of a hidden score with eight ordered classes. Each
method learns two-dimensional features; the picture shows test samples.

    python examples/layouts.py layouts.png

![four methods, in two dimensions](../docs/images/layouts.png)
"""

import sys

import matplotlib
import numpy as np
import torch

from layline import OrdinalClassifier, metrics
from layline.reports.paper_figures import draw_plane

matplotlib.use("Agg")  # write the picture to a file, open no window
import matplotlib.pyplot as plt

METHODS = {
    "hard-linear": "a straight line",
    "hard-semicircular": "a semicircle",
    "soft-binomial": "free, unimodal",
    "unconstrained": "free",
}
NUM_CLASSES = 8


def hidden_score(samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Generate measurements of hidden scores, and the classes of the scores."""
    score = rng.uniform(size=samples)
    waves, phases = np.linspace(0.5, 3, 20), np.linspace(0, 9, 20)
    X = np.sin(np.pi * score[:, None] * waves + phases) + 0.25 * rng.normal(size=(samples, 20))
    return X, (score * NUM_CLASSES).astype(int)


def main(path: str = "layouts.png", samples: int = 3000) -> None:
    """Train each method and draw its plane."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    (train_x, train_y), (test_x, test_y) = hidden_score(samples, rng), hidden_score(800, rng)
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.9), layout="constrained")
    for axis, (method, what) in zip(axes, METHODS.items(), strict=True):
        model = OrdinalClassifier(method, dim=2, epochs=30, random_state=0).fit(train_x, train_y)
        error = metrics.mean_absolute_error(test_y, model.predict(test_x))
        draw_plane(axis, model.transform(test_x), test_y, model.proxies_, NUM_CLASSES)
        axis.set_title(f"{method}: {what}\nMAE {error:.2f}", fontsize=11)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
