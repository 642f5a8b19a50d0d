"""Draw where the classes lie: features and proxies of four methods, in two dimensions.

Eight ordered classes of a hidden score that only shows, bent and noisy, in twenty measurements.
Each method learns features of two dimensions; the picture shows samples it has not seen.

    python examples/layouts.py layouts.png
"""

import sys

import matplotlib
import numpy as np
import torch

from layline import OrdinalClassifier, metrics

matplotlib.use("Agg")  # no window: the picture goes to a file
import matplotlib.pyplot as plt

METHODS = {
    "hard-linear": "a straight line",
    "hard-semicircular": "half a circle",
    "soft-binomial": "free, held unimodal",
    "unconstrained": "free",
}
NUM_CLASSES = 8


def hidden_score(samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Make measurements that bend around a hidden score, and the class of that score."""
    score = rng.uniform(size=samples)
    waves, phases = np.linspace(0.5, 3, 20), np.linspace(0, 9, 20)
    X = np.sin(np.pi * score[:, None] * waves + phases) + 0.25 * rng.normal(size=(samples, 20))
    return X, (score * NUM_CLASSES).astype(int)


def main(path: str) -> None:
    """Train each method and draw its plane."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    (train_x, train_y), (test_x, test_y) = hidden_score(3000, rng), hidden_score(800, rng)
    colours = plt.get_cmap("viridis")(np.linspace(0, 1, NUM_CLASSES))
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.9), layout="constrained")
    for axis, (method, what) in zip(axes, METHODS.items(), strict=True):
        model = OrdinalClassifier(method, dim=2, epochs=30, random_state=0).fit(train_x, train_y)
        error = metrics.mean_absolute_error(test_y, model.predict(test_x))
        axis.scatter(*model.transform(test_x).T, c=colours[test_y], s=9, linewidths=0)
        axis.plot(*model.proxies_.T, color="0.3", linewidth=0.8, zorder=2)
        axis.scatter(*model.proxies_.T, c=colours, s=170, edgecolors="black", zorder=3)
        for rank, place in enumerate(model.proxies_):
            ink = "white" if rank < NUM_CLASSES / 2 else "black"
            axis.annotate(rank, place, ha="center", va="center", color=ink, fontsize=9, zorder=4)
        axis.set_title(f"{method}: {what}\nMAE {error:.2f}", fontsize=11)
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_xticks([])
        axis.set_yticks([])
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "layouts.png")
