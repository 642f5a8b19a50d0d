"""A small grid that runs in seconds."""

from pathlib import Path

import numpy as np
import pytest

from layline.experiments.grid import Grid


@pytest.fixture(scope="session")
def ratings(tmp_path_factory) -> Path:
    """A table with three grades that follow from its two columns."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    rank = np.digitize(x.sum(axis=1) + 0.3 * rng.normal(size=90), [-0.7, 0.7])
    lines = [f"{a:.4f},{b:.4f},{grade}" for (a, b), grade in zip(x, rank, strict=True)]
    path.write_text("a,b,grade\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def tree(ratings) -> dict:
    """The grid as a file would have it: two methods, two seeds."""
    return {
        "data": [
            {
                "name": "ratings",
                "source": "table",
                "root": str(ratings),
                "options": {"label": "grade"},
            }
        ],
        "methods": ["hard-linear", "classification"],
        "seeds": [0, 1],
        "decodings": ["mode", "median"],
        "settings": {
            "head": {"dim": 8},
            "training": {"epochs": 3, "batch_size": 16, "device": "cpu"},
        },
    }


@pytest.fixture
def grid(tree) -> Grid:
    return Grid.model_validate(tree)
