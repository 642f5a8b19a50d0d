r"""What a run records for its report: layouts, the proxies, the worst mistakes, what to review.

A layout is drawn in a plane that the proxies choose, so that it shows what they do. With :math:`B`
the two axes as rows, a feature :math:`f` is drawn at :math:`B f`. The axes are those of the best
plane through the proxies; what the proxies leave open, as on a straight line, is chosen by where
the features vary most. In two dimensions nothing is chosen: the picture is exact.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor

from layline.data.dataset import Images, Inputs, Pixels
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import Rows
from layline.evaluation.diagnostics import certainty
from layline.evaluation.evaluate import Evaluation
from layline.geometry import losses
from layline.geometry.layouts import Linear
from layline.heads import ConstrainedProxies, OrdinalHead
from layline.heads.base import HasProxies
from layline.model.model import OrdinalModel
from layline.training.config import ReportConfig
from layline.training.run_folder import RunFolder
from layline.utils.files import atomic_write, write_text

_Floats = NDArray[np.float64]
LONGER_SIDE = 96  # pixels of a thumbnail
_JPEG_QUALITY = 80
_CONTRADICTORY = 0.05  # of the probability of the prediction: the true class has no more
_COLLAPSED = 0.1  # a learned ‖v0‖ starts near 1.4
_EXACT_DIMENSIONS = 512
_FEW_ROWS = 32
_PASSES = 8  # over the features
_NEGLIGIBLE = 1e-6  # of the largest spread: below it there is no direction, only rounding


@torch.no_grad()
def proxies_of(head: OrdinalHead) -> Float[np.ndarray, "K d"] | None:
    """Give the proxies of a head that has them."""
    if not isinstance(head, HasProxies):
        return None
    proxies: np.ndarray[Any, np.dtype[np.float32]] = head.proxies().float().cpu().numpy()
    return proxies


def describe_collapse(head: OrdinalHead) -> str | None:
    """Warn of proxies on a line that have come together.

    They make every distribution flat, their own and those of the samples, so the loss is small and
    nothing is learned.
    """
    layout = head.layout if isinstance(head, ConstrainedProxies) else None
    if not isinstance(layout, Linear) or layout.norm is not None:
        return None
    proxies = layout.proxies()
    step = (proxies[-1] - proxies[0]).norm().item() / (len(proxies) - 1)
    if step >= _COLLAPSED:
        return None
    return (
        f"The proxies have come together, {step:.2g} apart, before the features could tell the "
        "classes apart: fix their distance with --set head.options.norm=3, or take a larger --dim"
    )


@dataclass(frozen=True)
class Snapshot:
    """A layout at one moment: where features and proxies lie in a plane.

    Attributes:
        points: Where the samples lie in the plane.
        ranks: Their classes.
        predicted: What the model takes them for.
        explained: Share of the variance of the features that the plane shows.
        proxies: Where the proxies of the classes lie, for a head that has them.
        index: Which samples of their part they are, if that is kept.
    """

    points: Float[np.ndarray, "m 2"]
    ranks: Int[np.ndarray, " m"]
    predicted: Int[np.ndarray, " m"]
    explained: float
    proxies: Float[np.ndarray, "K 2"] | None = None
    index: Int[np.ndarray, " m"] | None = None

    def save(self, path: Path) -> None:
        """Write it as ``.npz``, whole or not at all."""
        _write_arrays(path, {k: value for k, value in vars(self).items() if value is not None})

    @classmethod
    def load(cls, path: Path) -> "Snapshot":
        """Read it; nothing in the file is run."""
        with np.load(path, allow_pickle=False) as arrays:
            found: dict[str, Any] = dict(arrays)
        return cls(**{**found, "explained": float(found["explained"])})


def choose_samples(count: int, most: int, seed: int) -> Int[Tensor, " m"]:
    """Choose which of so many samples are drawn, in their order: all, or as many as fit."""
    if count <= most:
        return torch.arange(count)
    drawn = np.random.default_rng(seed).permutation(count)[:most]
    return torch.from_numpy(np.sort(drawn))


def take_snapshot(
    features: Float[Tensor, "m d"],
    ranks: Int[Tensor, " m"],
    predicted: Int[Tensor, " m"],
    head: OrdinalHead,
    index: Int[Tensor, " m"] | None = None,
) -> Snapshot:
    """Project the features of the samples that are drawn, and the proxies, onto their plane."""
    vectors, proxies = features.numpy(), proxies_of(head)
    axes = plane_of(vectors, ranks.numpy(), proxies)
    smallest = np.min_scalar_type(head.num_classes - 1)
    return Snapshot(
        points=_projected(vectors, axes),
        ranks=ranks.numpy().astype(smallest),
        predicted=predicted.numpy().astype(smallest),
        explained=explained_variance(vectors, axes),
        proxies=None if proxies is None else _projected(proxies, axes),
        index=None if index is None else index.numpy(),
    )


def plane_of(
    features: Float[np.ndarray, "m d"],
    ranks: Int[np.ndarray, " m"],
    proxies: Float[np.ndarray, "K d"] | None,
) -> Float[np.ndarray, "2 d"]:
    """Choose two orthonormal axes, the classes rising along the first one.

    The axes are rows. In one dimension the second is zero, in two they are the coordinates.
    Backbone may be none, and a head need not have proxies.
    """
    dim = features.shape[1]
    if dim <= 2:
        return np.eye(2, dim)
    features = _centred(features)
    if proxies is None:
        axes = _principal_directions(features, 2)
        rising, bulging = features.T @ _centred(ranks), np.zeros(dim)
    else:
        proxies = proxies.astype(np.float64)
        axes = _plane_through(_centred(proxies), features)
        rising = proxies[-1] - proxies[0]
        bulging = proxies.mean(axis=0) - (proxies[-1] + proxies[0]) / 2
    return np.stack([_oriented(axes[0], rising), _oriented(axes[1], bulging)])


def explained_variance(features: Float[np.ndarray, "m d"], axes: Float[np.ndarray, "2 d"]) -> float:
    """Give the share of the features' variance, around their mean, that lies in the plane."""
    if features.shape[1] <= 2 or len(features) == 0:
        return 1.0
    centred = _centred(features)
    total = float((centred**2).sum())
    return float(((centred @ axes.T) ** 2).sum()) / total if total > 0 else 1.0


def _projected(vectors: NDArray[np.float32], axes: _Floats) -> NDArray[np.float32]:
    points: NDArray[np.float32] = (vectors.astype(np.float64) @ axes.T).astype(np.float32)
    return points


def _centred(values: NDArray[np.generic]) -> _Floats:
    numbers: _Floats = values.astype(np.float64)
    return numbers - numbers.mean(axis=0) if len(numbers) else numbers


def _plane_through(proxies: _Floats, features: _Floats) -> _Floats:
    """Fit a plane to centred proxies; what they leave open is chosen by the features."""
    _, spread, directions = np.linalg.svd(proxies, full_matrices=False)
    smallest = _NEGLIGIBLE * max(spread[0], np.finfo(float).tiny)
    fixed: _Floats = directions[:2][spread[:2] > smallest]
    if len(fixed) == 2:
        return fixed
    rest = features - (features @ fixed.T) @ fixed
    free = _principal_directions(rest, 2 - len(fixed))
    free -= (free @ fixed.T) @ fixed  # where the features vary nowhere, any direction came out
    return np.linalg.qr(np.concatenate([fixed, free]).T)[0].T


def _principal_directions(centred: _Floats, count: int) -> _Floats:
    """Find the directions in which rows vary most, the widest first.

    In many dimensions they are approximated, at a cost that does not hold up training.
    """
    rows, dim = centred.shape
    found: _Floats
    if dim <= _EXACT_DIMENSIONS:
        _, vectors = eigh(centred.T @ centred, subset_by_index=[dim - count, dim - 1])
        found = vectors.T[::-1].copy()
    elif rows > _FEW_ROWS:
        # here: scikit-learn is half of the time that a run takes to start
        from sklearn.utils.extmath import randomized_svd

        _, _, found = randomized_svd(centred, count, n_iter=_PASSES, random_state=0)
    else:  # rows of zeros, so that there are enough directions
        enough = np.concatenate([centred, np.zeros((count, dim))])
        found = np.linalg.svd(enough, full_matrices=False)[2][:count]
    return found


def _oriented(axis: _Floats, towards: _Floats) -> _Floats:
    """Fix the sign of an axis, which a decomposition leaves open."""
    along = float(axis @ towards)
    if abs(along) <= _NEGLIGIBLE * float(np.linalg.norm(towards)):
        along = float(axis[np.abs(axis).argmax()])
    return -axis if along < 0 else axis


@torch.no_grad()
def write_proxies(path: Path, head: OrdinalHead) -> None:
    """Write the proxies (K, d), Q (K, K) and, where the head has a smoothing, U (K, K).

    Nothing is written for a head without proxies.
    """
    proxies = proxies_of(head)
    if proxies is None:
        return
    arrays: dict[str, Any] = {"proxies": proxies}
    if isinstance(head, ConstrainedProxies):
        ranks = torch.arange(head.num_classes, device=head.layout.vectors.device)
        tables = {"q": losses.log_q(head.layout, head.similarity, ranks)}
        if head.smoothing is not None:
            tables["u"] = head.smoothing.log_u(ranks, head.num_classes)
        arrays |= {name: table.exp().float().cpu().numpy() for name, table in tables.items()}
    _write_arrays(path, arrays)


def _write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez(file, **arrays)


def write_pictures(
    folder: RunFolder,
    evaluation: Evaluation,
    inputs: Inputs,
    snapshot: Snapshot,
    model: OrdinalModel,
    report: ReportConfig,
) -> None:
    """Write what only the report shows: layout, proxies, mistakes and samples to review.

    The last two are JSON lists: name, true and predicted class, probabilities, and the file of the
    thumbnail or the cells of a row; for a review also the reason and the range.

    Args:
        folder: Where the files are written.
        evaluation: The model, evaluated on the samples.
        inputs: The samples.
        snapshot: Where they are in the plane.
        model: The model.
        report: How many samples to write.
    """
    snapshot.save(folder.layout("test"))
    write_proxies(folder.proxies, model.head)
    ranks, predicted = evaluation.ranks.numpy(), evaluation.chosen.numpy()
    proba, classes = evaluation.predictions.proba, evaluation.classes
    preparation = model.description.inputs
    at_least = preparation.at_least if isinstance(preparation, ImagePreprocessing) else None

    def describe(index: int) -> dict[str, Any]:
        record: dict[str, Any] = {
            "name": evaluation.names[index],
            "true": classes[ranks[index]],
            "predicted": classes[predicted[index]],
            "probabilities": [float(f"{share:.6g}") for share in proba[index]],
        }
        if isinstance(inputs, Images):
            record["image"] = f"{index:06}.jpg"
            _write_thumbnail(folder.thumbnails / record["image"], inputs.load(index, at_least))
        elif isinstance(inputs, Rows):
            record["values"] = cells_of(inputs, index)
        return record

    mistakes = worst_mistakes(ranks, predicted, proba, report.mistakes).tolist()
    reasons = samples_to_review(ranks, predicted, proba, report.review)
    records = {index: describe(index) for index in {*mistakes, *reasons}}
    reviewed = []
    for index, reason in reasons.items():
        record = records[index] | {"reason": reason}
        if evaluation.ranges is not None:
            low, high = (int(end[index]) for end in evaluation.ranges)
            record |= {"low": classes[low], "high": classes[high]}
        reviewed.append(record)
    lists = {folder.mistakes: [records[index] for index in mistakes], folder.review: reviewed}
    for path, listed in lists.items():
        # ASCII: a path that is not UTF-8 can only be written as an escape
        write_text(path, json.dumps(listed, indent=1) + "\n")
    kept = {record.get("image") for record in records.values()}
    for old in folder.thumbnails.glob("*.jpg"):  # of an earlier test
        if old.name not in kept:
            old.unlink()


def worst_mistakes(
    ranks: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    proba: Float[np.ndarray, "n K"],
    most: int,
) -> Int[np.ndarray, " m"]:
    """Find the samples that are furthest off, the least probable truth first among equals."""
    error = np.abs(predicted - ranks)
    truth = proba[np.arange(len(ranks)), ranks]
    order = np.lexsort((np.arange(len(ranks)), truth, -error))
    wrong: Int[np.ndarray, " m"] = order[error[order] > 0][:most]
    return wrong


def samples_to_review(
    ranks: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    proba: Float[np.ndarray, "n K"],
    most: int,
) -> dict[int, str]:
    """Find the samples that a person should look at first, each with the reason.

    Those that contradict their labels come first, at most half of them: the prediction is another
    class, at least twenty times as probable as the label, which is likely to be wrong. The others
    are those that the model is least certain of.
    """
    each = np.arange(len(ranks))
    truth, said = proba[each, ranks], proba[each, predicted]
    ratio = truth / np.maximum(said, np.finfo(float).tiny)
    order = np.lexsort((each, -said, ratio))
    against = (predicted != ranks) & (ratio <= _CONTRADICTORY)
    contradictory = order[against[order]][: most // 2]
    least = np.lexsort((each, certainty(proba, predicted)))
    uncertain = least[~np.isin(least, contradictory)][: most - len(contradictory)]
    return dict.fromkeys(contradictory.tolist(), "contradicts its label") | dict.fromkeys(
        uncertain.tolist(), "uncertain"
    )


def cells_of(rows: Rows, index: int) -> dict[str, float | str | None]:
    """Give the cells of a row as they stood in the table; None for a missing or unknown one."""
    encoded = iter(rows.values[index].tolist())
    found: dict[str, float | str | None] = {}
    for number in rows.encoding.numeric:
        value = next(encoded)
        missing = number.indicator and next(encoded)
        found[number.name] = None if missing else float(f"{value:.6g}")
    for column in rows.encoding.categorical:
        flags = [next(encoded) for _ in column.categories]
        found[column.name] = column.categories[flags.index(1)] if 1 in flags else None
    return found


def _write_thumbnail(path: Path, pixels: Pixels) -> None:
    from layline.data.decoding import Image

    image = Image.fromarray(pixels)
    image.thumbnail((LONGER_SIDE, LONGER_SIDE))
    with atomic_write(path) as part:
        image.save(part, format="JPEG", quality=_JPEG_QUALITY)
