"""What follows from the choices of a user: which features, which weights, and where files are."""

from pathlib import Path
from typing import Any

from layline import data, features
from layline.features.weights import NAMES, check_weights
from layline.registry import find
from layline.training.config import Config


def resolved(config: Config) -> Config:
    """Fill in what follows from other choices, so that the configuration stands by itself."""
    source = find("data.source", config.data.source, data.SOURCES)
    name = config.features.name or source.features
    spec = features.find(name)
    weights = config.features.weights or spec.weights
    check_weights(weights, name)
    if weights not in NAMES:
        weights = str(Path(weights).expanduser().resolve())
    if config.features.freeze and weights == "none":
        raise ValueError(
            f"freeze must come with weights, got none for {name}: frozen, it would stay as random "
            "as it was made"
        )
    return config.model_copy(
        update={
            "data": config.data.model_copy(
                update={
                    "root": config.data.root and config.data.root.expanduser().resolve(),
                    "options": {
                        key: _full(value) if key in source.places else value
                        for key, value in config.data.options.items()
                    },
                    "augmentation": config.data.augmentation or spec.augmentation,
                }
            ),
            "features": config.features.model_copy(update={"name": name, "weights": weights}),
        }
    )


def _full(path: Any) -> Any:
    """Name a place so that the run can go on from another folder."""
    return str(Path(path).expanduser().resolve()) if isinstance(path, str) else path
