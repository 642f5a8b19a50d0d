"""The first stages of a run: read the data, build the model, and make the splits."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray

from layline import backbones, data, heads
from layline.backbones.base import Backbone, ImageBackbone, TableBackbone
from layline.backbones.weights import load_weights
from layline.data.dataset import Dataset, Images
from layline.data.labels import weigh_classes
from layline.data.loaders import Batches, ImageBatches, RowBatches
from layline.data.preprocessing import ImagePreprocessing, smallest_part
from layline.data.table_encoding import Rows, TableEncoding
from layline.evaluation.predictions import Split
from layline.model.description import ModelDescription
from layline.model.model import Network, OrdinalModel
from layline.training.config import Config
from layline.training.display import Reporter
from layline.utils.errors import UserError

_LARGEST_SMALL_IMAGE = 64  # pixels per side
_OF_LAST_LAYER = ("hidden", "dropout", "all_stages")


def read_data(
    config: Config,
    log: Reporter,
    accelerator: Accelerator | None = None,
    known: data.KnownInputs | None = None,
    whole: bool = False,
) -> Dataset:
    """Read the data, look at files that are new or changed, group duplicates, draw the splits.

    Args:
        config: Contains where the data are.
        log: Shows notes about the data.
        accelerator: One or several processes; one per machine looks at the files first.
        known: What a trained model knows about its inputs, if the data are read for one.
        whole: Draw no splits, because nothing is trained; prescribed splits are kept.
    """
    options = config.data
    dataset = data.read(options.source, options.root, options.partition, known, **options.options)
    first = nullcontext if accelerator is None else accelerator.local_main_process_first
    with first(), log.progress("Looking at the images", len(dataset.inputs)) as count:
        dataset = data.index_files(dataset, count, options.verify)
        dataset = data.check_files(dataset, options.skip_bad)
        dataset = data.group_duplicates(dataset, options.duplicates)
    if not whole:
        dataset = data.draw_splits(dataset, options.partition, options.calibration)
    for note in dataset.notes:
        log(note)
    log("Classes, lowest first: " + " < ".join(dataset.classes))
    if not whole:
        dataset.check_complete()
        counts = {name: len(index) for name, index in dataset.splits.by_name().items()}
        log("Samples: " + ", ".join(f"{count} for {name}" for name, count in counts.items()))
    return dataset


def fingerprint_data(dataset: Dataset) -> str:
    """Hash the names of the samples, their ranks and splits."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\n".join([*dataset.classes, ""]).encode(errors="surrogateescape"))
    for name in dataset.inputs.names:
        digest.update(b"\n" + name.encode(errors="surrogateescape"))
    for array in (dataset.ranks, *dataset.splits.by_name().values()):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes() + b"|")
    return digest.hexdigest()


def build_backbone(config: Config, dataset: Dataset) -> Backbone:
    """Build the backbone with random weights that follow from the seed."""
    name, inputs = str(config.backbone.name), dataset.inputs
    spec, options = backbones.find(name), dict(config.backbone.options)
    if isinstance(inputs, Rows) != (spec.kind == "table"):
        has = "a table" if isinstance(inputs, Rows) else "images"
        raise UserError(f"The backbone {name} is for {spec.kind}s, but the data are {has}.")
    if isinstance(inputs, Rows):
        options["in_features"] = inputs.values.shape[1]
    else:
        known = backbones.options_of(spec)
        wanted = {"size": config.data.size, "crop": config.data.crop}
        options |= {k: v for k, v in wanted.items() if v is not None and k in known}
    with _seeded(config.training.seed):
        return backbones.create(name, dim=config.head.dim, **options)


def build_model(
    config: Config, dataset: Dataset, backbone: Backbone, log: Reporter
) -> OrdinalModel:
    """Complete the model: the last layer, initial weights, preprocessing and head."""
    inputs, seed = dataset.inputs, config.training.seed
    last = {k: v for k, v in config.backbone.options.items() if k in _OF_LAST_LAYER}
    if config.backbone.freeze and last:  # the planner may have decided to freeze it
        with _seeded(seed):
            backbone.set_last_layer(config.head.dim, **last)
    for note in load_weights(backbone, str(config.backbone.weights)):
        log(note)
    preparation: ImagePreprocessing | TableEncoding
    if isinstance(inputs, Rows):
        assert isinstance(backbone, TableBackbone)  # checked when it was built
        backbone.fit_scale(torch.from_numpy(inputs.values[dataset.splits.train]))
        preparation, options = inputs.encoding, dict(config.backbone.options)
        options["in_features"] = inputs.values.shape[1]
    else:
        assert isinstance(backbone, ImageBackbone)
        preparation, options = preprocessing_for(config, backbone, inputs), backbone.options
    with _seeded(seed + 1):  # not the numbers that the backbone began with
        classes, dim = dataset.classes, config.head.dim
        head = heads.create(config.head.method, len(classes), dim, **config.head.options)
    description = ModelDescription(
        backbone=backbone.name,
        method=config.head.method,
        dim=dim,
        classes=classes,
        inputs=preparation,
        backbone_options=options,
        head_options=config.head.options,
        decode=config.training.decoding,
    )
    return OrdinalModel(description, backbone, head)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def preprocessing_for(
    config: Config, backbone: ImageBackbone, images: Images
) -> ImagePreprocessing:
    """Describe how images become inputs of a backbone."""
    wanted = backbone.input
    size = wanted.size
    if size is None:  # a small network takes small images as they are
        size = min(*images.load(0).shape[:2], _LARGEST_SMALL_IMAGE)
    # frozen features are cached instead of pixels
    cached = config.data.cache and not config.backbone.freeze and not images.decoded
    return ImagePreprocessing(
        size,
        round(size / wanted.crop),
        config.data.keep_ratio,
        wanted.interpolation,
        smallest_part(config.data.augmentation or "none", for_cache=cached),
        shrink=cached,
    )


def cache_pixels(
    dataset: Dataset, description: ModelDescription, log: Reporter, accelerator: Accelerator
) -> Dataset:
    """Decode all image files once into a cache that later epochs and runs read."""
    from layline.data.image_cache import cache_images
    from layline.data.images import ImageFiles

    images, preparation = dataset.inputs, description.inputs
    if not isinstance(images, ImageFiles) or not isinstance(preparation, ImagePreprocessing):
        return dataset
    with (
        accelerator.local_main_process_first(),
        log.progress("Decoding the images", len(images)) as count,
    ):
        images = cache_images(images, preparation.at_least, count)
    return replace(dataset, inputs=images)


def weigh(config: Config, dataset: Dataset) -> NDArray[np.float64]:
    """Compute the weight of each class from the training split."""
    wanted, train = config.training.class_weight, dataset.splits.train
    weights: NDArray[np.float64] = weigh_classes(
        None if wanted == "off" else wanted,
        np.array(dataset.classes),
        dataset.ranks[train],
        np.ones(len(train)),
    )
    return weights


def make_splits(
    config: Config, dataset: Dataset, description: ModelDescription
) -> dict[str, Split]:
    """Make the splits for the trainer; only training images are augmented."""
    weights = weigh(config, dataset)
    splits = {}
    for name, index in dataset.splits.by_name().items():
        augmentation = str(config.data.augmentation) if name == "train" else "none"
        ranks, inputs = dataset.ranks[index], dataset.inputs.subset(index)
        weight = weights[ranks] if name in ("train", "validation") else np.ones(len(ranks))
        splits[name] = Split(
            make_batches(inputs, description, augmentation, config.training.seed),
            torch.from_numpy(ranks),
            torch.tensor(weight / weight.mean(), dtype=torch.float32),
        )
    return splits


def make_batches(
    inputs: Images | Rows, description: ModelDescription, augmentation: str = "none", seed: int = 0
) -> Batches:
    """Prepare inputs for a model."""
    if isinstance(inputs, Rows) and isinstance(description.inputs, TableEncoding):
        return RowBatches(inputs.values)
    if isinstance(inputs, Images) and isinstance(description.inputs, ImagePreprocessing):
        return ImageBatches(inputs, description.inputs, augmentation, seed)
    takes = "rows of a table" if description.is_table else "images"
    raise UserError(f"The model takes {takes}, but the data are of another kind.")


def select_trained(model: OrdinalModel, config: Config) -> Network:
    """Freeze what is not trained, and return the network to train."""
    if config.backbone.freeze:
        model.backbone.train_stages(0)
        return Network(model.backbone.last, model.head)
    if config.backbone.stages is not None:
        model.backbone.train_stages(config.backbone.stages)
    return model
