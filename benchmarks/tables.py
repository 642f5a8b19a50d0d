"""Compare the default estimator on tables with its former default, trees and a linear model.

python benchmarks/tables.py DATA/tables results/tables/tables.csv

Each table is divided into 80 % for training and 20 % for test, by class, once for each seed. Trees
and the linear model try four settings on a fifth of the training rows, and are then fitted to all
of them. The estimators are fitted as they are. A second run of each uses 200 random training rows.
Finished lines of the file are not repeated.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from layline import OrdinalClassifier
from layline.backbones import MLP
from layline.metrics import mean_absolute_error, ranked_probability_score

SEEDS = (0, 1)
FEW = 200
RATES = ({"learning_rate": rate} for rate in (0.03, 0.1, 0.2, 0.3))


class PlainMLP(MLP):
    """The table network of version 0.2.0."""

    def __init__(self, in_features: int, dim: int) -> None:
        plain: Any = {"dropout": 0.0, "bins": 0, "linear": False}
        super().__init__(in_features, dim, hidden=(128, 128), **plain)


def default(seed: int) -> OrdinalClassifier:
    """Make the estimator as it is."""
    return OrdinalClassifier(random_state=seed)


def former_default(seed: int) -> OrdinalClassifier:
    """Make the estimator with the defaults of version 0.2.0."""
    before: Any = {
        "epochs": 48,
        "batch_size": 32,
        "learning_rate": 1e-3,
        "patience": None,
        "folds": 0,
    }
    return OrdinalClassifier("arc", backbone=PlainMLP, dim=512, random_state=seed, **before)


def gradient_boosting(seed: int, **options: Any) -> HistGradientBoostingClassifier:
    """Make scikit-learn's gradient boosting."""
    return HistGradientBoostingClassifier(random_state=seed, **options)


def lightgbm(seed: int, **options: Any) -> LGBMClassifier:
    """Make LightGBM's classifier."""
    return LGBMClassifier(random_state=seed, verbose=-1, n_jobs=1, **options)


def linear(seed: int, **options: Any) -> Any:
    """Make a multinomial logistic regression on standardized columns."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, **options))


Make = Callable[..., Any]
MODELS: Mapping[str, tuple[Make, tuple[dict[str, Any], ...]]] = {
    "default": (default, ({},)),
    "former default": (former_default, ({},)),
    "gradient boosting": (gradient_boosting, (rates := tuple(RATES))),
    "LightGBM": (lightgbm, rates),
    "logistic regression": (linear, tuple({"C": c} for c in (0.1, 1.0, 10.0, 100.0))),
}


def measure(model: Any, x: Any, y: Any, classes: int) -> tuple[float, float]:
    """Return the MAE of the median, and the RPS."""
    proba = np.zeros((len(x), classes))
    proba[:, np.asarray(model.classes_, dtype=int)] = model.predict_proba(x)
    proba /= proba.sum(axis=1, keepdims=True)
    median = (proba.cumsum(axis=1) < 0.5).sum(axis=1).clip(max=classes - 1)
    return mean_absolute_error(y, median), ranked_probability_score(y, proba)


def fit_best(make: Make, settings: tuple[dict[str, Any], ...], x: Any, y: Any, seed: int) -> Any:
    """Choose a setting on a fifth of the rows, and fit it to all of them."""
    best = settings[0]
    if len(settings) > 1:
        order = np.random.default_rng(seed).permutation(len(y))
        held_out, rest = order[: len(y) // 5], order[len(y) // 5 :]
        classes = int(y.max()) + 1
        errors = [
            measure(make(seed, **each).fit(x[rest], y[rest]), x[held_out], y[held_out], classes)[0]
            for each in settings
        ]
        best = settings[int(np.argmin(errors))]
    return make(seed, **best).fit(x, y)


def main(folder: Path, file: Path) -> None:
    """Run what the file does not have yet."""
    lines = pd.read_csv(file).to_dict("records") if file.exists() else []
    done = {(line["data"], line["rows"], line["model"], line["seed"]) for line in lines}
    tables = sorted(folder.glob("*.csv"), key=lambda path: path.stat().st_size)
    for seed in SEEDS:
        for path in tables:
            frame = pd.read_csv(path)
            y = pd.factorize(frame["rank"], sort=True)[0]
            x = pd.get_dummies(frame.drop(columns="rank")).to_numpy(dtype=float)
            rare = np.bincount(y)[y] < 2
            train, test = train_test_split(
                np.flatnonzero(~rare), test_size=0.2, random_state=seed, stratify=y[~rare]
            )
            few = np.random.default_rng(seed).permutation(train)[:FEW]
            for rows, part in (("200", few), ("all", train)):
                for name, (make, settings) in MODELS.items():
                    if (path.stem, rows, name, seed) in done:
                        continue
                    begin = time.perf_counter()
                    with threadpool_limits(1):
                        model = fit_best(make, settings, x[part], y[part], seed)
                    seconds = time.perf_counter() - begin
                    mae, rps = measure(model, x[test], y[test], int(y.max()) + 1)
                    line = {"data": path.stem, "rows": rows, "model": name, "seed": seed}
                    lines.append(line | {"mae": mae, "rps": rps, "seconds": round(seconds, 2)})
                    print(*lines[-1].values(), flush=True)
            pd.DataFrame(lines).to_csv(file, index=False, lineterminator="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
