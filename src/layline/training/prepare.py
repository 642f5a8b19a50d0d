"""The stages of a run before training: initial model, data, network, splits, frozen features."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from numpy.typing import NDArray

from layline import backbones, data, heads
from layline.backbones import BACKBONES
from layline.backbones.base import Backbone, ImageBackbone, TableBackbone
from layline.backbones.mlp import MLP, choose_layers
from layline.backbones.weights import load_weights
from layline.data.array_cache import ArrayCache
from layline.data.dataset import Dataset, Images, Indices, groups_of
from layline.data.image_cache import cache_images
from layline.data.images import ImageFiles, pillow_version
from layline.data.labels import weigh_classes
from layline.data.loaders import Batches, RowBatches, loader, sequential_batches
from layline.data.preprocessing import SMALLEST_PARTS, ImagePreprocessing
from layline.data.splits import assign_folds
from layline.data.tables import Rows, TableEncoding
from layline.evaluation.predictions import Split, evaluation_batch_size
from layline.heads import JointLayout
from layline.model.calibration import Calibration
from layline.model.description import ModelDescription
from layline.model.model import Network, OrdinalModel, make_batches
from layline.model.model_file import load
from layline.training.callbacks import Reporter
from layline.training.config import Config
from layline.training.distributed import SeveralProcesses
from layline.training.gaussian_process import PLAIN
from layline.training.recipes import find_model
from layline.training.run_folder import fingerprint_body
from layline.utils.files import atomic_write, digest_file
from layline.utils.validation import UserError

_LARGEST_SMALL_IMAGE = 64  # pixels per side
_OF_LAST_LAYER = ("hidden", "dropout", "all_stages")
PIECE = 512  # samples whose features are extracted between two commits


@dataclass(frozen=True)
class PreparedRun:
    """A run before training."""

    config: Config  # complete
    dataset: Dataset  # with splits
    model: OrdinalModel  # with its initial weights
    processes: SeveralProcesses
    log: Reporter


# The initial model


def load_initial_model(config: Config, copy: Path | None = None) -> OrdinalModel | None:
    """Load the model that a run is initialized from, or its copy in the folder of the run."""
    if config.init_from is None:
        return None
    path = copy if copy is not None and copy.is_file() else find_model(config.init_from.model)
    if config.init_from.digest not in (None, digest_file(path)):
        raise UserError(f"{path} changed since the run was configured. Start a new run.")
    model = load(path)
    decode = config.training.decoding
    model.description = replace(model.description, calibration=Calibration(), decode=decode)
    return model.train()


def copy_initial_model(config: Config, copy: Path) -> None:
    """Copy the initial model into the folder of the run, so that it can be resumed without it."""
    if config.init_from is not None and not copy.is_file():
        with atomic_write(copy) as part:
            shutil.copyfile(find_model(config.init_from.model), part)


def known_inputs(config: Config, description: ModelDescription) -> data.KnownInputs:
    """Return what a model knows about its inputs, to read data for it."""
    encoding = description.inputs if isinstance(description.inputs, TableEncoding) else None
    own = data.SOURCES.find(config.data.source).backbone
    is_table = own is not None and backbones.find(own).kind == "table"
    if is_table != (encoding is not None):
        takes, got = ("images", "a table") if is_table else ("a table", "images")
        raise UserError(f"The model takes {takes}, but {config.data.root} is {got}.")
    skip = config.init_from is not None and config.init_from.skip_unknown
    return data.KnownInputs(description.classes, encoding, skip)


# The data


def read_data(
    config: Config,
    log: Reporter,
    accelerator: Accelerator | None = None,
    known: data.KnownInputs | None = None,
    whole: bool = False,
    fewest: float = 0,
) -> Dataset:
    """Read the data, look at files that are new or changed, group duplicates, draw the splits.

    One process per machine looks at the files first. ``known`` is what a trained model knows about
    its inputs. ``whole`` draws no splits, because nothing is trained; ``fewest`` is explained by
    :func:`layline.data.splits.draw_splits`.
    """
    options = config.data
    dataset = data.read(options.source, options.root, options.partition, known, **options.options)
    first = nullcontext if accelerator is None else accelerator.local_main_process_first
    with first(), log.progress("Looking at the images", len(dataset.inputs)) as count:
        dataset = data.index_files(dataset, count, options.verify)
        dataset = data.check_files(dataset, options.skip_bad)
        dataset = data.group_duplicates(dataset, options.duplicates)
    if not whole:
        seed = options.partition
        dataset = data.draw_splits(dataset, seed, options.calibration, fewest, options.per_class)
        if options.stress != "none":
            dataset = data.stress_labels(dataset, options.stress, seed)
    for note in (*dataset.notes, "Classes, lowest first: " + " < ".join(dataset.classes)):
        log(note)
    if not whole:
        dataset.check_complete()
        counts = dataset.splits.by_name().items()
        log("Samples: " + ", ".join(f"{len(index)} for {name}" for name, index in counts))
    return dataset


def cache_pixels(
    dataset: Dataset, description: ModelDescription, log: Reporter, accelerator: Accelerator
) -> Dataset:
    """Decode all image files once into a cache that later epochs and runs read."""
    images, preparation = dataset.inputs, description.inputs
    if not isinstance(images, ImageFiles) or not isinstance(preparation, ImagePreprocessing):
        return dataset
    with (
        accelerator.local_main_process_first(),
        log.progress("Decoding the images", len(images)) as count,
    ):
        return replace(dataset, inputs=cache_images(images, preparation.at_least, count))


# The network


def build_backbone(config: Config, dataset: Dataset) -> Backbone:
    """Build the backbone with random weights that follow from the seed."""
    name, inputs = str(config.backbone.name), dataset.inputs
    spec, options = backbones.find(name), dict(config.backbone.options)
    if isinstance(inputs, Rows) != (spec.kind == "table"):
        has = "a table" if isinstance(inputs, Rows) else "images"
        raise UserError(f"The backbone {name} is for {spec.kind}s, but the data are {has}.")
    if isinstance(inputs, Rows):
        options["in_features"] = inputs.values.shape[1]
        if name == MLP.name:
            layers = choose_layers(len(dataset.splits.train))
            options = (PLAIN if config.training.closed_form else layers) | options
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
    inputs, dim = dataset.inputs, config.head.dim
    with _seeded(config.training.seed + 1):  # not the numbers that the backbone began with
        method, settings = config.head.method, config.head.options
        head = heads.create(method, len(dataset.classes), dim, **settings)
    last = {k: v for k, v in config.backbone.options.items() if k in _OF_LAST_LAYER}
    if config.training.closed_form:
        assert isinstance(head, JointLayout)  # checked when the method was chosen
        kernel = {"rows": len(dataset.splits.train), "widths": list(head.widths)}
        last = {k: v for k, v in last.items() if k == "all_stages"}
        last["kernel"] = {**kernel, "unit": not isinstance(inputs, Rows)}
    if last and (config.backbone.freeze or config.training.closed_form):
        # the planner may have decided to freeze it
        with _seeded(config.training.seed):
            backbone.set_last_layer(dim, **last)
    for note in load_weights(backbone, str(config.backbone.weights)):
        log(note)
    preparation: ImagePreprocessing | TableEncoding
    if isinstance(inputs, Rows):
        assert isinstance(backbone, TableBackbone)  # checked when it was built
        backbone.fit_scale(torch.from_numpy(inputs.values[dataset.splits.train]))
        preparation = inputs.encoding
    else:
        assert isinstance(backbone, ImageBackbone)
        preparation = preprocessing_for(config, backbone, inputs)
    description = ModelDescription(
        backbone=backbone.name,
        method=method,
        dim=dim,
        classes=dataset.classes,
        inputs=preparation,
        backbone_options=backbone.options,
        head_options=settings,
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
    whole = 1.0 if cached else SMALLEST_PARTS["crop"]  # for other augmentations
    return ImagePreprocessing(
        size,
        round(size / wanted.crop),
        config.data.keep_ratio,
        wanted.interpolation,
        SMALLEST_PARTS.get(config.data.augmentation or "none", whole),
        shrink=cached,
    )


def select_trained(model: OrdinalModel, config: Config) -> Network:
    """Freeze what is not trained, and return the network to train."""
    if config.backbone.freeze:
        model.backbone.train_stages(0)
        return Network(model.backbone.last, model.head)
    if config.backbone.stages is not None:
        model.backbone.train_stages(config.backbone.stages)
    return model


# The splits


def weigh(config: Config, dataset: Dataset) -> NDArray[np.float64]:
    """Compute the weight of each class from the training split."""
    wanted, ranks = config.training.class_weight, dataset.ranks[dataset.splits.train]
    names = np.array(dataset.classes)
    return weigh_classes(None if wanted == "off" else wanted, names, ranks, np.ones(len(ranks)))


def assign_train_folds(run: PreparedRun) -> Indices:
    """Assign the training samples to the folds of the cross-validation."""
    dataset, index = run.dataset, run.dataset.splits.train
    folds, groups = int(run.config.training.folds or 0), groups_of(dataset, index)
    return assign_folds(dataset.ranks[index], folds, run.config.data.partition, groups)


def make_splits(run: PreparedRun) -> dict[str, Split]:
    """Make the splits for the trainer; only training images are augmented."""
    config, dataset = run.config, run.dataset
    features = extract_features(run) if config.backbone.freeze else None
    weights, splits = weigh(config, dataset), {}
    for name, index in dataset.splits.by_name().items():
        ranks = dataset.ranks[index]
        weight = weights[ranks] if name in ("train", "validation") else np.ones(len(ranks))
        samples: Batches
        if features is not None:
            samples = RowBatches(features, index)
        else:
            augmentation = str(config.data.augmentation) if name == "train" else "none"
            inputs, seed = dataset.inputs.subset(index), config.training.seed
            samples = make_batches(inputs, run.model.description, augmentation, seed)
        mean_one = torch.tensor(weight / weight.mean(), dtype=torch.float32)
        splits[name] = Split(samples, torch.from_numpy(ranks), mean_one)
    return splits


# Features of a frozen backbone: extracted once, and shared by all runs on the same data


def feature_key(backbone: Backbone, inputs: Images | Rows, preparation: object) -> str:
    """Name the features of a frozen backbone in the cache."""
    about = [inputs.digest(), f"Pillow {pillow_version()}", repr(preparation), backbone.name]
    about += [repr(backbone.body_options), fingerprint_body(backbone)]
    about.append(str(BACKBONES.plugin_of(backbone.name)))
    return "features-" + hashlib.blake2b("\n".join(about).encode(), digest_size=16).hexdigest()


@torch.no_grad()
def extract_features(run: PreparedRun) -> Float[np.ndarray, "n width"]:
    """Compute the output of the frozen body for each sample, or open it if it is in the cache.

    Of several processes, the first one of each machine computes it for the others. An extraction
    that was stopped continues where it was.
    """
    backbone, inputs, description = run.model.backbone, run.dataset.inputs, run.model.description
    device, count, cache = run.processes.device, len(inputs), ArrayCache()
    key = feature_key(backbone, inputs, description.inputs)
    with (
        run.processes.accelerator.local_main_process_first(),
        run.log.progress("Extracting features", count) as progress,
    ):
        if (rows := cache.open(key)) is not None:
            return rows
        shape, about = (count, backbone.width), {"kind": "features", "samples": count}
        about["root"] = str(run.config.data.root or "")
        try:
            writer = cache.writer(key, shape, np.float32, about)
            array, done = writer.array, writer.done
        except OSError as error:
            run.log(f"The features are kept in memory: {error.strerror or error}")
            writer, array, done = None, np.empty(shape, np.float32), 0
        samples = make_batches(inputs, description)
        size = evaluation_batch_size(samples, run.config.training.options().batch_size, device)
        batches = [
            [(index + done, epoch) for index, epoch in batch]
            for batch in sequential_batches(count - done, size)
        ]
        backbone.eval().to(device)
        for x, index in loader(samples, batches, run.config.data.workers):
            array[index.numpy()] = backbone.body(x.to(device)).float().cpu().numpy()
            finished = int(index[-1]) + 1
            if writer is not None and (finished - writer.done >= PIECE or finished == count):
                writer.commit(finished)
            progress(finished)
        return array
