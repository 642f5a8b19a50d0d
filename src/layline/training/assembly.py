"""From a configuration to the data, the model and the parts of a run."""

import hashlib
import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import nn

from layline import backbones, data, heads
from layline.backbones.base import ImageBackbone, TableBackbone
from layline.backbones.convnet import ConvNet
from layline.backbones.weights import load_weights
from layline.data.dataset import Dataset, Images
from layline.data.labels import weigh_classes
from layline.data.loaders import Batches, ImageBatches, RowBatches
from layline.data.preprocessing import ImagePreprocessing, smallest_part
from layline.data.table_encoding import Rows, TableEncoding
from layline.evaluation.predictions import Split
from layline.model.description import ModelDescription
from layline.model.model import OrdinalModel
from layline.training.config import Config
from layline.training.display import Reporter
from layline.training.start import known_inputs, load_start
from layline.training.trainer import EpochBatches
from layline.utils.devices import choose_device
from layline.utils.errors import UserError
from layline.utils.memory import check_fits, memory_errors

_LARGEST_SMALL_IMAGE = 64  # pixels at a side
_LESS = "lower head.dim, features.options, data.size or training.batch_size"


@dataclass(frozen=True)
class Assembly:
    """The parts of a run.

    Attributes:
        config: What is wanted.
        dataset: The data, decoded where a cache is wanted.
        model: As it is before training, with the weights to begin with.
        accelerator: One process or many.
        say: Tells the user what happens.
    """

    config: Config
    dataset: Dataset
    model: OrdinalModel
    accelerator: Accelerator
    say: Reporter


def assemble(
    config: Config, say: Reporter, accelerator: Accelerator, start: Path | None = None
) -> Assembly:
    """Read the data and make the model of a resolved configuration.

    What does not fit is refused. Nothing is written but the cache of images.

    Args:
        config: What is wanted.
        say: Tells the user what happens.
        accelerator: One process or many.
        start: The model to go on from, if it is not where the configuration says.
    """
    trained = None if config.init_from is None else load_start(config, start)
    known = None if trained is None else known_inputs(config, trained.description)
    dataset = read_data(config, say, accelerator, known)
    count, options = len(dataset.splits.train), config.training.options()
    # both refuse settings that do not fit the data
    class_weights(config, dataset)
    EpochBatches(count, options, processes=accelerator.num_processes)
    if trained is None:
        model = build(config, dataset)
        for note in load_weights(model.backbone, str(config.backbone.weights)):
            say(note)
    else:
        model = trained
        batches_of(dataset.inputs, model.description)  # which refuses data of another kind
    run = Assembly(config, dataset, model, accelerator, say)
    return replace(run, dataset=_cached(run))


def read_data(
    config: Config,
    say: Reporter,
    accelerator: Accelerator | None = None,
    known: data.KnownInputs | None = None,
    whole: bool = False,
) -> Dataset:
    """Read the data, say what was found, and look at every file that is new or changed.

    On each machine one process looks at the files first, and the others find them known.

    Args:
        config: Says where they are.
        say: Tells the user what happens.
        accelerator: One process or many.
        known: The model that they are read for, if it is trained already.
        whole: Draw no parts, since nothing is trained; those that are given are kept.
    """
    options = config.data
    dataset = data.read(options.source, options.root, options.partition, known, **options.options)
    first = nullcontext if accelerator is None else accelerator.local_main_process_first
    with first(), say.progress("Looking at the images", len(dataset.inputs)) as count:
        dataset = data.index_files(dataset, count, options.verify)
    dataset = data.check_files(dataset, options.skip_bad)
    with first():  # which puts the hashes of near duplicates into the index
        dataset = data.group_duplicates(dataset, options.duplicates)
    if not whole:
        dataset = data.draw_splits(dataset, options.partition, options.calibration)
    for note in dataset.notes:
        say(note)
    say("Classes, lowest first: " + " < ".join(dataset.classes))
    if whole:
        return dataset
    dataset.check_complete()
    counts = {name: len(part) for name, part in dataset.splits.by_name().items()}
    say("Samples: " + ", ".join(f"{count} for {name}" for name, count in counts.items()))
    return dataset


def data_fingerprint(dataset: Dataset) -> str:
    """Tell data sets apart: the names of the samples, their ranks and parts."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\n".join([*dataset.classes, ""]).encode(errors="surrogateescape"))
    for name in dataset.inputs.names:
        digest.update(b"\n" + name.encode(errors="surrogateescape"))
    for array in (dataset.ranks, *dataset.splits.by_name().values()):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes() + b"|")
    return digest.hexdigest()


def build(config: Config, dataset: Dataset) -> OrdinalModel:
    """Make the model, with weights that follow from the seed."""
    name = str(config.backbone.name)
    options = dict(config.backbone.options)
    inputs = dataset.inputs
    is_table = isinstance(inputs, Rows)
    if is_table != (backbones.find(name).kind == "table"):
        raise UserError(
            f"backbone.name must be for {'tables' if is_table else 'images'}, got {name}: "
            f"{config.data.source} has {'rows' if is_table else 'images'}"
        )
    if isinstance(inputs, Rows):
        options["in_features"] = inputs.values.shape[1]
    else:
        wanted = {"size": config.data.size, "crop": config.data.crop}
        options |= {
            key: value
            for key, value in wanted.items()
            if value is not None and key in backbones.options_of(backbones.find(name))
        }
    _check_memory(config, dataset, options)
    preparation: ImagePreprocessing | TableEncoding
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        if isinstance(inputs, Rows):
            preparation = inputs.encoding
        else:
            network = backbones.create(name, dim=config.head.dim, **options)
            assert isinstance(network, ImageBackbone)  # its kind was checked
            preparation, options = _preprocessing(config, network, inputs), network.options
        model = ModelDescription(
            backbone=name,
            method=config.head.method,
            dim=config.head.dim,
            classes=dataset.classes,
            inputs=preparation,
            backbone_options=options,
            head_options=config.head.options,
            decode=config.training.decoding,
        ).build()
    if isinstance(inputs, Rows):
        assert isinstance(model.backbone, TableBackbone)  # its kind was checked
        model.backbone.fit_scale(torch.from_numpy(inputs.values[dataset.splits.train]))
    return model


def _check_memory(config: Config, dataset: Dataset, options: dict[str, Any]) -> None:
    """Refuse a model that cannot be trained in the memory that is free, before it is made.

    It is made without values, and shown a batch of images without values. What is counted is needed
    at the same time, so it is less than training takes in the end.
    """
    settings, name = config.training, str(config.backbone.name)
    meta = torch.device("meta")
    with memory_errors(), torch.random.fork_rng(devices=[]), meta:
        network = backbones.create(name, dim=config.head.dim, **options)
        head: nn.Module = nn.Identity()
        if heads.HEADS.plugin_of(config.head.method) is None:
            classes = len(dataset.classes)
            head = heads.create(config.head.method, classes, config.head.dim, **config.head.options)
    if config.backbone.freeze:
        network.train_stages(0)
    tensors = [*network.parameters(), *head.parameters()]
    learning = sum(each.numel() * each.element_size() for each in tensors if each.requires_grad)
    states = 1 if settings.optimiser == "sgd" else 2
    needed = {
        "the weights": sum(each.numel() * each.element_size() for each in tensors),
        "their gradients": learning,
        "the state of the optimiser": states * learning,
        "the average of the weights": learning if settings.ema else 0,
    }
    size = 0
    if isinstance(network, ImageBackbone) and not isinstance(dataset.inputs, Rows):
        size = _preprocessing(config, network, dataset.inputs).size
        count = min(settings.batch_size, len(dataset.splits.train))
        count = math.ceil(count / settings.accumulation)
        # bytes as they are decoded, and the numbers of four bytes that they become
        needed[f"a batch of {count} images of {size} × {size} pixels"] = count * 15 * size * size
    device = choose_device(settings.device, isinstance(dataset.inputs, Rows))
    check_fits("the run", needed, _LESS, device)
    if isinstance(network, ConvNet):
        network.check_size(size, size)


def _preprocessing(config: Config, network: ImageBackbone, images: Images) -> ImagePreprocessing:
    wanted = network.input
    size = wanted.size
    if size is None:  # a small network takes small images as they are
        size = min(*images.load(0).shape[:2], _LARGEST_SMALL_IMAGE)
    cached = keeps_pixels(config, images)
    return ImagePreprocessing(
        size,
        round(size / wanted.crop),
        config.data.keep_ratio,
        wanted.interpolation,
        smallest_part(str(config.data.augmentation), for_cache=cached),
        shrink=cached,
    )


def keeps_pixels(config: Config, images: Images) -> bool:
    """Tell whether decoded images are kept: a frozen body leaves nothing but its features."""
    return config.data.cache and not config.backbone.freeze and not images.decoded


def _cached(run: Assembly) -> Dataset:
    """Decode all images once, into a file that later epochs and runs read, if that is wanted."""
    from layline.data.images import ImageFiles

    dataset, preparation = run.dataset, run.model.description.inputs
    if not isinstance(preparation, ImagePreprocessing) or not preparation.shrink:
        return dataset
    if not isinstance(dataset.inputs, ImageFiles):
        return dataset
    from layline.data.image_cache import cache_images

    with (
        run.accelerator.local_main_process_first(),  # the others of the machine find it ready
        run.say.progress("Decoding the images", len(dataset.inputs)) as count,
    ):
        images = cache_images(dataset.inputs, preparation.at_least, count)
    return replace(dataset, inputs=images)


def class_weights(config: Config, dataset: Dataset) -> NDArray[np.float64]:
    """Give the weight of each class, as the training part has them."""
    wanted = config.training.class_weight
    weights: NDArray[np.float64] = weigh_classes(
        None if wanted == "off" else wanted,
        np.array(dataset.classes),
        dataset.ranks[dataset.splits.train],
        np.ones(len(dataset.splits.train)),
    )
    return weights


def parts_of(config: Config, dataset: Dataset, spec: ModelDescription) -> dict[str, Split]:
    """Give the parts: augmented for training, as they are for the others."""
    weights = class_weights(config, dataset)
    found = {}
    for name, index in dataset.splits.by_name().items():
        augmentation = str(config.data.augmentation) if name == "train" else "none"
        ranks = dataset.ranks[index]
        weight = weights[ranks] if name in ("train", "validation") else np.ones(len(ranks))
        found[name] = Split(
            batches_of(dataset.inputs.subset(index), spec, augmentation, config.training.seed),
            torch.from_numpy(ranks),
            torch.tensor(weight / weight.mean(), dtype=torch.float32),
        )
    return found


def batches_of(
    inputs: Images | Rows, spec: ModelDescription, augmentation: str = "none", seed: int = 0
) -> Batches:
    """Prepare inputs for a model."""
    if isinstance(inputs, Rows) and isinstance(spec.inputs, TableEncoding):
        return RowBatches(inputs.values)
    if isinstance(inputs, Images) and isinstance(spec.inputs, ImagePreprocessing):
        return ImageBatches(inputs, spec.inputs, augmentation, seed)
    takes = "rows" if isinstance(spec.inputs, TableEncoding) else "images"
    raise UserError(f"the data must be {takes}, got others: the model takes nothing else")
