r"""The plane that a layout is drawn in: chosen by the proxies, so that it shows what they do.

With :math:`B` the two axes as rows, a feature :math:`f` is drawn at :math:`B f`. The axes are those
of the best plane through the proxies; what the proxies leave open, as on a straight line, is chosen
by where the features vary most. In two dimensions nothing is chosen: the picture is exact.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.linalg import eigh

Floats = NDArray[np.float64]
_NOTHING = 1e-6  # of the largest spread: below it there is no direction, only rounding


def plane_of(
    features: Float[np.ndarray, "m d"],
    ranks: Int[np.ndarray, " m"],
    proxies: Float[np.ndarray, "K d"] | None,
) -> Float[np.ndarray, "2 d"]:
    """Choose two orthonormal axes, the classes rising along the first one.

    Args:
        features: One row per sample; may be none.
        ranks: The class of each sample.
        proxies: One row per class, for a head that has them.

    Returns:
        The axes as rows. In one dimension the second is zero, in two they are the coordinates.
    """
    dim = features.shape[1]
    if dim <= 2:
        return np.eye(2, dim)
    features = _centred(features)
    if proxies is None:
        axes = _widest(features, 2)
        rising, bulging = features.T @ _centred(ranks), np.zeros(dim)
    else:
        proxies = proxies.astype(np.float64)
        axes = _through(_centred(proxies), features)
        rising = proxies[-1] - proxies[0]
        bulging = proxies.mean(axis=0) - (proxies[-1] + proxies[0]) / 2
    return np.stack([_turned(axes[0], rising), _turned(axes[1], bulging)])


def share_shown(features: Float[np.ndarray, "m d"], axes: Float[np.ndarray, "2 d"]) -> float:
    """Give the share of the features' variance, around their mean, that lies in the plane."""
    if features.shape[1] <= 2 or len(features) == 0:
        return 1.0
    centred = _centred(features)
    total = float((centred**2).sum())
    return float(((centred @ axes.T) ** 2).sum()) / total if total > 0 else 1.0


def _centred(values: NDArray[np.generic]) -> Floats:
    numbers: Floats = values.astype(np.float64)
    return numbers - numbers.mean(axis=0) if len(numbers) else numbers


def _through(proxies: Floats, features: Floats) -> Floats:
    """Fit a plane to centred proxies; what they leave open is chosen by the features."""
    _, spread, directions = np.linalg.svd(proxies, full_matrices=False)
    known: Floats = directions[:2][spread[:2] > _NOTHING * max(spread[0], np.finfo(float).tiny)]
    if len(known) == 2:
        return known
    rest = features - (features @ known.T) @ known
    open_ = _widest(rest, 2 - len(known))
    open_ -= (open_ @ known.T) @ known  # where the features vary nowhere, any direction came out
    return np.linalg.qr(np.concatenate([known, open_]).T)[0].T


def _widest(centred: Floats, count: int) -> Floats:
    """Find the directions in which rows vary most, the widest first."""
    dim = centred.shape[1]
    _, vectors = eigh(centred.T @ centred, subset_by_index=[dim - count, dim - 1])
    found: Floats = vectors.T[::-1].copy()
    return found


def _turned(axis: Floats, towards: Floats) -> Floats:
    """Fix the sign of an axis, which a decomposition leaves open."""
    along = float(axis @ towards)
    if abs(along) <= _NOTHING * float(np.linalg.norm(towards)):
        along = float(axis[np.abs(axis).argmax()])
    return -axis if along < 0 else axis
