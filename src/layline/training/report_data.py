"""The data of the report: layouts in a plane, proxies, mistakes and samples to review.

A layout is drawn in the best plane through the proxies. With :math:`B` the two axes as rows, a
feature :math:`f` is drawn at :math:`B f`. If the proxies are on a line, the second axis is where
the features vary most. In two dimensions the picture is exact.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor

from layline.data.dataset import Images, Pixels
from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import Rows
from layline.evaluation.diagnostics import certainty
from layline.evaluation.evaluate import Evaluation
from layline.geometry import losses
from layline.heads import ConstrainedProxies, OrdinalHead
from layline.heads.base import HasProxies
from layline.model.model import OrdinalModel
from layline.training.config import ReportConfig
from layline.training.run_folder import RunFolder
from layline.utils.files import atomic_write, json_text, write_text

_Floats = NDArray[np.float64]
LONGER_SIDE = 96  # pixels of a thumbnail
_CONTRADICTION = 0.05  # largest ratio of the label's probability to that of the prediction
_NEGLIGIBLE = 1e-6  # ratio of spreads; smaller ones are rounding errors


@dataclass(frozen=True)
class Snapshot:
    """Features and proxies in a plane."""

    points: Float[np.ndarray, "m 2"]
    ranks: Int[np.ndarray, " m"]
    predicted: Int[np.ndarray, " m"]
    explained: float  # share of the variance of the features that the plane shows
    index: Int[np.ndarray, " m"]  # places of the samples in their split
    proxies: Float[np.ndarray, "K 2"] | None = None

    def save(self, path: Path) -> None:
        """Write it as ``.npz``, atomically."""
        _write_arrays(path, {k: value for k, value in vars(self).items() if value is not None})

    @classmethod
    def load(cls, path: Path) -> "Snapshot":
        """Read a file without executing code from it."""
        with np.load(path, allow_pickle=False) as arrays:
            values: dict[str, Any] = dict(arrays)
        return cls(**{**values, "explained": float(values["explained"])})


def choose_samples(count: int, most: int, seed: int) -> Int[Tensor, " m"]:
    """Choose at most ``most`` of ``count`` samples, in ascending order."""
    if count <= most:
        return torch.arange(count)
    return torch.from_numpy(np.sort(np.random.default_rng(seed).permutation(count)[:most]))


def take_snapshot(
    features: Float[Tensor, "m d"],
    index: Int[Tensor, " m"],
    ranks: Int[Tensor, " n"],
    predicted: Int[Tensor, " n"],
    head: OrdinalHead,
) -> Snapshot:
    """Project the proxies and the features of some samples of a split onto their plane."""
    vectors, proxies = features.numpy(), _proxies_of(head)
    smallest = np.min_scalar_type(head.num_classes - 1)
    shown, chosen = (each[index].numpy().astype(smallest) for each in (ranks, predicted))
    axes, centered = fit_plane(vectors, shown, proxies), _center(vectors)
    total, inside = float((centered**2).sum()), float(((centered @ axes.T) ** 2).sum())
    return Snapshot(
        points=(vectors.astype(np.float64) @ axes.T).astype(np.float32),
        ranks=shown,
        predicted=chosen,
        explained=inside / total if total else 1.0,
        index=index.numpy(),
        proxies=None if proxies is None else (proxies.astype(float) @ axes.T).astype(np.float32),
    )


def fit_plane(
    features: Float[np.ndarray, "m d"],
    ranks: Int[np.ndarray, " m"],
    proxies: Float[np.ndarray, "K d"] | None,
) -> Float[np.ndarray, "2 d"]:
    """Choose two orthonormal axes, so that the ranks increase along the first one.

    In one dimension the second axis is zero, in two the axes are the coordinates.
    """
    dim = features.shape[1]
    if dim <= 2:
        return np.eye(2, dim)
    axes: _Floats = np.zeros((0, dim))
    for points in (features,) if proxies is None else (proxies, features):
        rest = _center(points)
        rest -= (rest @ axes.T) @ axes
        spread, directions = eigh(rest.T @ rest, subset_by_index=[dim - 2, dim - 1])
        varies = spread > _NEGLIGIBLE**2 * max(spread[-1], np.finfo(float).tiny)
        axes = np.concatenate([axes, directions.T[varies][::-1]])[:2]
    # if the features do not vary, the other directions are arbitrary
    axes = np.linalg.qr(np.concatenate([axes, np.eye(2, dim)]).T)[0].T[:2]
    if proxies is None:
        towards = np.stack([_center(features).T @ _center(ranks), np.zeros(dim)])
    else:
        middle = proxies.mean(axis=0) - (proxies[-1] + proxies[0]) / 2
        towards = np.stack([proxies[-1] - proxies[0], middle])
    return np.where((axes * towards).sum(axis=1, keepdims=True) < 0, -axes, axes)


@torch.no_grad()
def _proxies_of(head: OrdinalHead) -> Float[np.ndarray, "K d"] | None:
    return head.proxies().float().cpu().numpy() if isinstance(head, HasProxies) else None


def _center(values: NDArray[np.generic]) -> _Floats:
    numbers: _Floats = values.astype(np.float64)
    return numbers - numbers.mean(axis=0) if len(numbers) else numbers


@torch.no_grad()
def write_proxies(path: Path, head: OrdinalHead) -> None:
    """Write the proxies (K, d), Q (K, K) and U (K, K), as far as the head has them."""
    proxies = _proxies_of(head)
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


def write_report_data(
    folder: RunFolder,
    evaluation: Evaluation,
    inputs: Images | Rows,
    drawn: Int[Tensor, " m"],
    model: OrdinalModel,
    report: ReportConfig,
) -> None:
    """Write what only the report shows; ``drawn`` are the samples whose features were kept."""
    ranks, predicted, classes = evaluation.ranks, evaluation.chosen, evaluation.classes
    features, proba = evaluation.predictions.features, evaluation.predictions.proba
    take_snapshot(features, drawn, ranks, predicted, model.head).save(folder.layout("test"))
    write_proxies(folder.proxies, model.head)
    preparation = model.description.inputs
    at_least = preparation.at_least if isinstance(preparation, ImagePreprocessing) else None

    def describe(index: int) -> dict[str, Any]:
        record: dict[str, Any] = {
            "name": evaluation.names[index],
            "true": classes[int(ranks[index])],
            "predicted": classes[int(predicted[index])],
            "probabilities": [float(f"{share:.6g}") for share in proba[index]],
        }
        if isinstance(inputs, Images):
            record["image"] = f"{index:06}.jpg"
            _write_thumbnail(folder.thumbnails / record["image"], inputs.load(index, at_least))
        elif isinstance(inputs, Rows):
            record["values"] = read_cells(inputs, index)
        return record

    shutil.rmtree(folder.thumbnails, ignore_errors=True)  # of an earlier test
    mistakes = worst_mistakes(evaluation, report.mistakes)
    reasons = samples_to_review(evaluation, report.review)
    records = {index: describe(index) for index in {*mistakes, *reasons}}
    reviewed = []
    for index, reason in reasons.items():
        record = records[index] | {"reason": reason}
        if evaluation.ranges is not None:
            low, high = (int(end[index]) for end in evaluation.ranges)
            record |= {"low": classes[low], "high": classes[high]}
        reviewed.append(record)
    write_text(folder.mistakes, json_text([records[index] for index in mistakes], indent=1))
    write_text(folder.review, json_text(reviewed, indent=1))


def worst_mistakes(evaluation: Evaluation, most: int) -> list[int]:
    """Find the largest errors; of equal ones, the least probable labels come first."""
    ranks, predicted = evaluation.ranks.numpy(), evaluation.chosen.numpy()
    error = np.abs(predicted - ranks)
    order = np.lexsort((certainty(evaluation.predictions.proba, ranks), -error))
    wrong: list[int] = order[error[order] > 0][:most].tolist()
    return wrong


def samples_to_review(evaluation: Evaluation, most: int) -> dict[int, str]:
    """Find the samples that a person should look at first, each with the reason.

    At most half of them contradict their labels: the prediction is at least twenty times as
    probable as the label, which is probably wrong. The others have the least certain predictions.
    """
    ranks, predicted = evaluation.ranks.numpy(), evaluation.chosen.numpy()
    truth, top = (certainty(evaluation.predictions.proba, each) for each in (ranks, predicted))
    ratio = truth / np.maximum(top, np.finfo(float).tiny)
    order = np.lexsort((-top, ratio))
    against = (predicted != ranks) & (ratio <= _CONTRADICTION)
    contradictory = order[against[order]][: most // 2].tolist()
    uncertain = [i for i in np.argsort(top, kind="stable").tolist() if i not in contradictory]
    return dict.fromkeys(contradictory, "contradicts its label") | dict.fromkeys(
        uncertain[: most - len(contradictory)], "uncertain"
    )


def read_cells(rows: Rows, index: int) -> dict[str, float | str | None]:
    """Return the cells of a row as in the table; None for a missing or unknown one."""
    encoded = iter(rows.values[index].tolist())
    cells: dict[str, float | str | None] = {}
    for number in rows.encoding.numeric:
        value = next(encoded)
        missing = number.indicator and next(encoded)
        cells[number.name] = None if missing else float(f"{value:.6g}")
    for column in rows.encoding.categorical:
        flags = [next(encoded) for _ in column.categories]
        cells[column.name] = column.categories[flags.index(1)] if 1 in flags else None
    return cells


def _write_thumbnail(path: Path, pixels: Pixels) -> None:
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((LONGER_SIDE, LONGER_SIDE))
    with atomic_write(path) as part:
        image.save(part, format="JPEG", quality=80)
