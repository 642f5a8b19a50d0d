"""How a run opens its folder: a new one, or the one of this run and these data."""

import json
import platform
import sys

import numpy as np
import torch
from accelerate import Accelerator

import layline
from layline.data.base import Dataset
from layline.evaluation import write_json
from layline.model import OrdinalModel
from layline.training import assembly
from layline.training.config import Config
from layline.training.frozen import fingerprint
from layline.training.run_folder import RunFolder

_CHANGED = {
    "data": "the data must be those that {} was started with, got others: files were added, "
    "removed or renamed",
    "frozen": "weights must be those that {} was started with, got others: the file has changed",
}


def open_folder(
    folder: RunFolder,
    config: Config,
    dataset: Dataset,
    model: OrdinalModel,
    accelerator: Accelerator,
) -> None:
    """Start the folder, or see that it is the one of this run and these data.

    Args:
        folder: Where the run is written.
        config: What is wanted.
        dataset: The data.
        model: As it is before training.
        accelerator: One process or many.
    """
    prints = {"data": assembly.fingerprint(dataset)}
    if config.features.freeze:
        prints["frozen"] = fingerprint(model.features)
    if folder.environment.exists():
        before = json.loads(folder.environment.read_text(encoding="utf-8"))
        for what, now in prints.items():
            if before.get(what) != now:
                raise ValueError(_CHANGED[what].format(folder.path))
    environment = {
        **prints,
        "counts": {
            name: np.bincount(dataset.ranks[part], minlength=len(dataset.classes)).tolist()
            for name, part in dataset.partition.parts().items()
        },
        "command": sys.argv,
        "layline": layline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processes": accelerator.num_processes,
        "device": str(accelerator.device),
        "threads": torch.get_num_threads(),
    }
    folder.create(config)
    write_json(folder.environment, environment)
