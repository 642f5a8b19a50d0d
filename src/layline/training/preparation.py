"""What runs on the same images and frozen features share, made once."""

from pathlib import Path

import numpy as np
from accelerate import Accelerator
from jaxtyping import Float
from rich.console import Console

from layline.data.base import Dataset
from layline.features.weights import load_weights
from layline.model import OrdinalModel
from layline.training import assembly
from layline.training.acceleration import make_accelerator
from layline.training.config import Config
from layline.training.frozen import extract, shared_folder
from layline.training.outcomes import EVALUATION_FACTOR
from layline.training.reporter import Reporter


def prepare(config: Config, console: Console) -> None:
    """Decode the images and extract the frozen features of a run, if its cache shares them.

    Args:
        config: Of one of the runs, resolved.
        console: Where to say what happens.
    """
    accelerator, say = make_accelerator(config), Reporter(console)
    dataset = assembly.read_data(config, say)
    model = assembly.build(config, dataset)
    load_weights(model.features, str(config.features.weights))
    dataset = assembly.with_cache(config, dataset, model, say, accelerator)
    place = shared_folder(model.features, dataset.inputs, model.spec.inputs, config.data.cache)
    if config.features.freeze and place is not None:
        frozen_rows(config, dataset, model, place, say, accelerator)


def frozen_rows(
    config: Config,
    dataset: Dataset,
    model: OrdinalModel,
    place: Path,
    say: Reporter,
    accelerator: Accelerator,
) -> Float[np.ndarray, "n width"]:
    """Give what the frozen body says of each sample; it is computed where it is not there yet.

    Args:
        config: Of the run.
        dataset: The samples.
        model: Whose body it is.
        place: The folder of the rows.
        say: Shows how far it is.
        accelerator: One process or many.
    """
    samples = assembly.samples(dataset.inputs, model.spec)
    share = -(-len(samples) // accelerator.num_processes)
    with say.counted("Extracting frozen features", share) as count:
        return extract(
            model.features,
            samples,
            place,
            accelerator,
            batch_size=EVALUATION_FACTOR * config.training.batch_size,
            workers=config.data.workers,
            progress=count,
        )
