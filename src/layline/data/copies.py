r"""Copies of images: the same picture again, perhaps resized, compressed anew or mirrored.

**Candidates.** The perceptual hash of a picture g of 64 × 64 greys is the signs of its lowest
cosine coefficients,

.. math:: c_{uv} = \sum_{y,x} g_{yx}\,\cos\frac{\pi u(2y+1)}{128}\,\cos\frac{\pi v(2x+1)}{128},
   \qquad u, v < 16

Mirroring a picture changes the sign of :math:`c_{uv}` for odd v and nothing else, so the hash of
the mirror image follows from the hash. Two images are candidates if few bits differ.

**Confirmation.** Aligned faces and retinas look alike, and so do their hashes. What all images of a
data set have in common must not count: the coefficients, without their length, are standardised by
their mean and deviation over the data set, and two candidates are copies if those correlate. Where
the correlation leaves a doubt, a network may decide (see :mod:`layline.backbones.comparison`).
"""

import hashlib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8
from numpy.typing import NDArray

from layline.data.dataset import Images, Indices, Pixels, linked
from layline.data.decoding import Image, thread_map
from layline.utils.files import atomic_write

_FREQUENCIES = 16
_SIDE = 64  # pixels at a side that the coefficients are computed of
HASH_BYTES = _FREQUENCIES**2 // 8
_COSINES = np.cos(
    np.pi * np.arange(_FREQUENCIES)[:, None] * (2 * np.arange(_SIDE) + 1) / (2 * _SIDE)
)
_ROUNDING = 1e-3  # a coefficient that is zero but for rounding must not depend on the machine
_IS_ODD = np.tile(np.arange(_FREQUENCIES) % 2 == 1, _FREQUENCIES)
_MIRROR_BITS = np.packbits(_IS_ODD)  # what mirroring changes of a hash
_MIRROR_SIGNS = np.where(_IS_ODD, -1.0, 1.0)[1:]  # and of the coefficients but the first, the mean

# how they were chosen and measured: docs/decisions/copies.md
RADIUS = 31  # bits that the hashes of candidates differ in at most
SURE = 0.93  # correlation from which candidates are copies
DOUBTFUL = 0.75  # correlation from which a network may say so

COPIES_FORMAT = 1  # of what is kept, and of how copies are found
_CROWD = 256  # images with the same sixteen bits that one image is compared with
_MOST_CANDIDATES = 32  # of an image, the nearest: more are a crowd that looks alike, not copies
_BLOCK = 1 << 20  # pairs that are compared at once
_SAMPLE = 512  # images that tell what a data set has in common
_PRIOR = 16  # images that the prior counts for, so that few images do not explain one another away
_LEAST_CONTRAST = 1.0  # grey levels: below it there is no picture to compare
_MOST_BRIGHTER = 40.0  # grey levels between the means of copies
_MOST_CONTRAST = 1.6  # ratio of the contrasts of copies
_SAMPLE_OF_NETWORK = 64  # the same for a network, which takes longer
_COMPARED_AT = 128  # pixels at the shorter side that a network gets

# pairs of images, and some others of the data set
SamePicture = Callable[[Iterable[tuple[Pixels, Pixels]], Sequence[Pixels]], Bool[np.ndarray, " n"]]


def picture_hash(pixels: Pixels) -> bytes:
    """Hash an image such that the hashes of copies differ in few bits."""
    return np.packbits(_coefficients(pixels) > _ROUNDING).tobytes()


def _coefficients(pixels: Pixels) -> Float[np.ndarray, "u v"]:
    greys = Image.fromarray(pixels).convert("L")
    small = greys.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS, reducing_gap=3.0)
    coefficients: NDArray[np.float64] = _COSINES @ np.asarray(small, dtype=np.float64) @ _COSINES.T
    return coefficients


@dataclass(frozen=True, eq=False)
class Copies:
    """Which images are copies of one another.

    Attributes:
        group: The number of the group of copies that an image is in; -1 for an image without.
        identical: Whether a file has the very bytes of an earlier one.
    """

    group: Indices
    identical: Bool[np.ndarray, " n"]

    @property
    def num_groups(self) -> int:
        """How many pictures there are more than once."""
        return int(self.group.max(initial=-1)) + 1

    @property
    def num_copies(self) -> int:
        """How many images could be left out without losing a picture."""
        return int((self.group >= 0).sum()) - self.num_groups

    def members(self) -> Iterator[Indices]:
        """Give the images of each group, in their order."""
        order = np.argsort(self.group, kind="stable")[(self.group < 0).sum() :]
        ends = np.cumsum(np.bincount(self.group[order], minlength=self.num_groups))
        return iter(np.split(order, ends[:-1]) if self.num_groups else [])


def find_copies(
    images: Images,
    digests: UInt8[np.ndarray, "n bytes"],
    hashes: Callable[[], UInt8[np.ndarray, "n hash"]] | None,
    bad: Sequence[int] = (),
    same_picture: SamePicture | None = None,
    kept: Path | None = None,
) -> Copies:
    """Find the images that are copies of others.

    Args:
        images: What is compared; only candidates are decoded.
        digests: Of the bytes of each image.
        hashes: Gives the perceptual hashes, if they are needed; None for identical images only.
        bad: Images that cannot be decoded, which are copies of nothing.
        same_picture: Decides in doubt, see :mod:`layline.backbones.comparison`.
        kept: Folder where the result is kept, under a name that follows from the contents.
    """
    first, identical = _first_of_each(digests, bad)
    if hashes is None:
        links = [(np.flatnonzero(identical), first[identical])]
        return Copies(_groups(len(images), links), identical)
    file = None
    if kept is not None:
        file = kept / f"{_key(digests, bad, same_picture is not None)}.copies"
        group = _read(file, len(images))
        if group is not None:
            return Copies(group, identical)
    single = np.setdiff1d(np.flatnonzero(~identical), np.asarray(bad, dtype=np.int64))
    pairs = _candidates(hashes()[single], single)
    confirmed = _confirmed(images, single, pairs, same_picture)
    links = [(np.flatnonzero(identical), first[identical])]
    links.append((pairs.one[confirmed], pairs.other[confirmed]))
    group = _groups(len(images), links)
    if file is not None:
        # without it the next search takes as long as this one
        with suppress(OSError), atomic_write(file) as part, part.open("wb") as stream:
            np.savez(stream, group=group)
    return Copies(group, identical)


def _first_of_each(
    digests: UInt8[np.ndarray, "n bytes"], bad: Sequence[int]
) -> tuple[Indices, Bool[np.ndarray, " n"]]:
    """Give the first image with the bytes of each, and whether that is another one."""
    rows = np.ascontiguousarray(digests)
    _, first, number = np.unique(
        rows.view(np.dtype((np.void, rows.shape[1]))).ravel(),
        return_index=True,
        return_inverse=True,
    )
    place = np.arange(len(rows))
    first_of = np.where(np.isin(place, bad), place, first[number])
    return first_of, first_of != place


def _groups(count: int, links: Sequence[tuple[Indices, Indices]]) -> Indices:
    """Number the groups of linked images by their first members; -1 for an image alone."""
    label = linked(count, links)
    _, first, number, sizes = np.unique(
        label, return_index=True, return_inverse=True, return_counts=True
    )
    several = np.flatnonzero(sizes > 1)
    rank = np.full(len(first), -1)
    rank[several[np.argsort(first[several])]] = np.arange(len(several))
    group: Indices = rank[number]
    return group


def _key(digests: UInt8[np.ndarray, "n bytes"], bad: Sequence[int], network: bool) -> str:
    rule = f"copies {COPIES_FORMAT}, {RADIUS}, {SURE}, {DOUBTFUL}, {network}, {sorted(bad)}"
    key = hashlib.blake2b(rule.encode(), digest_size=16)
    key.update(np.ascontiguousarray(digests).data)
    return key.hexdigest()


def _read(file: Path, count: int) -> Indices | None:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            group: Indices = arrays["group"]
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        return None
    whole = group.shape == (count,) and group.dtype == np.int64
    return group if whole and group.min(initial=0) >= -1 and group.max(initial=-1) < count else None


# Candidates: all pairs within a radius, without comparing all pairs


class Pairs(NamedTuple):
    """Pairs of images, with the bits in which their hashes differ, one of them perhaps mirrored."""

    one: Indices
    other: Indices
    distance: Indices
    mirrored: Bool[np.ndarray, " m"]


def _candidates(hashes: UInt8[np.ndarray, "n hash"], place: Indices) -> Pairs:
    """Pair images with near hashes; of those with the same hash the first speaks for all.

    Many images without a picture, such as blank pages, have the same hash.
    """
    first, same = _first_of_each(hashes, ())
    different = np.flatnonzero(~same)
    near = near_pairs(hashes[different], RADIUS)
    one = np.concatenate([first[same], different[near.one]])
    other = np.concatenate([np.flatnonzero(same), different[near.other]])
    zeros = np.zeros(same.sum(), dtype=np.int64)
    return Pairs(
        place[one],
        place[other],
        np.concatenate([zeros, near.distance]),
        np.concatenate([zeros.astype(np.bool_), near.mirrored]),
    )


def near_pairs(hashes: UInt8[np.ndarray, "n hash"], radius: int) -> Pairs:
    """Find the pairs of hashes that differ in few bits, as they are or mirrored.

    The bits are in sixteen pieces of sixteen. If two hashes differ in fewer than ``16 (e + 1)``
    bits, then some piece differs in at most e. So a hash meets only those with nearly the same
    piece. An image in a crowd meets some of it, and keeps its nearest candidates.

    Args:
        hashes: One for each image.
        radius: The most bits that may differ.
    """
    words = np.ascontiguousarray(hashes).view(np.uint64)
    mirror = _MIRROR_BITS.view(np.uint64)
    pieces, mirror_pieces = _pieces(hashes), _pieces(_MIRROR_BITS[None])[0]
    masks = _masks(radius // _FREQUENCIES)
    found: list[Pairs] = []
    total = 0
    for piece in range(_FREQUENCIES):
        order = np.argsort(pieces[:, piece], kind="stable")
        values, sorted_words = pieces[order, piece], np.ascontiguousarray(words[order].T)
        counts = np.bincount(values, minlength=1 << 16)
        ends = np.cumsum(counts)
        for mirrored in (False, True):
            flip = mirror if mirrored else np.zeros_like(mirror)
            for mask in masks ^ (mirror_pieces[piece] if mirrored else 0):
                for one, other in _joined(values, counts, ends, int(mask)):
                    one, other, distance = _near(sorted_words, flip, one, other, radius)
                    first, second = order[one], order[other]
                    low, high = np.minimum(first, second), np.maximum(first, second)
                    found.append(Pairs(low, high, distance, np.full(len(low), mirrored)))
                    total += len(low)
                    if total > _MOST_CANDIDATES * len(hashes) + _BLOCK:
                        found = [_nearest(found, len(hashes))]
                        total = len(found[0].one)
    return _nearest(found, len(hashes))


def _pieces(hashes: UInt8[np.ndarray, "n hash"]) -> Indices:
    """Cut hashes into pieces of sixteen bits, each with a bit of every row and column."""
    place = np.arange(_FREQUENCIES)
    diagonals = place * _FREQUENCIES + (place + place[:, None]) % _FREQUENCIES  # (piece, bit)
    pieces = np.empty((len(hashes), _FREQUENCIES), dtype=np.int64)
    for start in range(0, len(hashes), _BLOCK // 16):
        bits = np.unpackbits(hashes[start : start + _BLOCK // 16], axis=1)[:, diagonals]
        packed = np.packbits(bits, axis=2).astype(np.int64)
        pieces[start : start + len(bits)] = packed[:, :, 0] << 8 | packed[:, :, 1]
    return pieces


def _masks(errors: int) -> Indices:
    """List the numbers of sixteen bits with at most so many of them set."""
    powers = [1 << bit for bit in range(16)]
    chosen = (some for count in range(errors + 1) for some in combinations(powers, count))
    return np.array([sum(some) for some in chosen], dtype=np.int64)


def _joined(
    values: Indices, counts: Indices, ends: Indices, mask: int
) -> Iterator[tuple[Indices, Indices]]:
    """Pair the places of sorted values that differ by a mask, each pair once, in blocks."""
    if mask == 0:
        place = np.arange(len(values))
        start, several = place + 1, ends[values] - place - 1
    else:
        partner = values ^ mask
        place = np.flatnonzero((values < partner) & (counts[partner] > 0))
        partner = partner[place]
        start, several = ends[partner] - counts[partner], counts[partner]
    several = np.minimum(several, _CROWD)
    until = np.cumsum(several)
    begin = 0
    while begin < len(place):
        done = until[begin] - several[begin]
        end = max(int(np.searchsorted(until, done + _BLOCK, side="right")), begin + 1)
        some = several[begin:end]
        # the partners of a place are one run: start, start + 1, …
        shift = start[begin:end] - (until[begin:end] - some - done)
        yield np.repeat(place[begin:end], some), np.repeat(shift, some) + np.arange(some.sum())
        begin = end


def _near(
    words: NDArray[np.uint64], flip: NDArray[np.uint64], one: Indices, other: Indices, radius: int
) -> tuple[Indices, Indices, Indices]:
    """Keep the pairs within the radius, with their distances; words are (word, place)."""
    half = len(words) // 2  # which is enough to leave most pairs out
    for some in (slice(half), slice(len(words))):
        distance = np.zeros(len(one), dtype=np.int16)
        for row, bits in zip(words[some], flip[some], strict=True):
            distance += np.bitwise_count(row[one] ^ row[other] ^ bits)
        near = np.flatnonzero(distance <= radius)
        one, other = one[near], other[near]
    return one, other, distance[near].astype(np.int64)


def _nearest(found: Sequence[Pairs], count: int) -> Pairs:
    """Put pairs together, each once, and keep the nearest of each image; nearest first."""
    one, other, distance, mirrored = (
        np.concatenate([np.zeros(0, kind), *(pairs[i] for pairs in found)])
        for i, kind in enumerate((np.int64, np.int64, np.int64, np.bool_))
    )
    kept = np.lexsort((mirrored, distance))  # a pair may be near as it is and mirrored
    _, first = np.unique(one[kept] * count + other[kept], return_index=True)
    kept = kept[first]
    kept = kept[np.lexsort((other[kept], one[kept], distance[kept]))]
    keep = np.zeros(len(kept), dtype=np.bool_)
    for end in (one[kept], other[kept]):  # a pair stays if it is among the nearest of either image
        order = np.argsort(end, kind="stable")
        starts = np.searchsorted(end[order], end[order])
        keep[order] |= np.arange(len(order)) - starts < _MOST_CANDIDATES
    kept = kept[keep]
    return Pairs(one[kept], other[kept], distance[kept], mirrored[kept])


# Confirmation: the small pictures themselves, and a network in doubt


class _Pictures(NamedTuple):
    """Small pictures: their coefficients but the mean, of length one, and what was taken out."""

    shape: Float[np.ndarray, "n coefficients"]
    contrast: Float[np.ndarray, " n"]
    brightness: Float[np.ndarray, " n"]


def _confirmed(
    images: Images,
    single: Indices,
    pairs: Pairs,
    same_picture: SamePicture | None,
) -> Bool[np.ndarray, " m"]:
    """Tell which candidates are copies."""
    if len(pairs.one) == 0:
        return np.zeros(0, dtype=np.bool_)
    sample = single[np.linspace(0, len(single) - 1, min(_SAMPLE, len(single))).astype(np.int64)]
    correlation = correlations(images, sample, pairs)
    confirmed: NDArray[np.bool_] = correlation >= SURE
    doubtful = np.flatnonzero(~confirmed & (correlation >= DOUBTFUL))
    if same_picture is not None and len(doubtful):
        others = sample[:: max(len(sample) // _SAMPLE_OF_NETWORK, 1)]
        confirmed[doubtful] = _by_network(images, pairs, doubtful, others, same_picture)
    return confirmed


def correlations(images: Images, sample: Indices, pairs: Pairs) -> Float[np.ndarray, " m"]:
    """Correlate the small pictures of candidates; zero for those in another light.

    Args:
        images: They are decoded for it.
        sample: Images that tell what the data set has in common.
        pairs: The candidates.
    """
    wanted = np.unique(np.concatenate([pairs.one, pairs.other, sample]))
    pictures = _pictures(images, wanted)
    mean, deviation = _common(pictures.shape[np.searchsorted(wanted, sample)])
    one, other = np.searchsorted(wanted, pairs.one), np.searchsorted(wanted, pairs.other)
    signs = np.where(pairs.mirrored[:, None], _MIRROR_SIGNS, 1.0)
    correlation = np.empty(len(one))
    for start in range(0, len(one), _BLOCK // 256):
        some = slice(start, start + _BLOCK // 256)
        first, second = (
            _unit((shape - mean) / deviation)
            for shape in (pictures.shape[one[some]], pictures.shape[other[some]] * signs[some])
        )
        correlation[some] = (first * second).sum(axis=1)
    brighter = np.abs(pictures.brightness[one] - pictures.brightness[other])
    contrasts = np.sort([pictures.contrast[one], pictures.contrast[other]], axis=0)
    possible = brighter <= _MOST_BRIGHTER
    possible &= contrasts[0] >= np.maximum(_LEAST_CONTRAST, contrasts[1] / _MOST_CONTRAST)
    return np.where(possible, correlation, 0.0)


def _pictures(images: Images, wanted: Indices) -> _Pictures:
    def coefficients(place: int) -> Float[np.ndarray, " coefficients"]:
        found: NDArray[np.float64] = _coefficients(images.load(int(wanted[place]), _SIDE)).ravel()
        return found

    rows = np.empty((len(wanted), _FREQUENCIES**2))
    with closing(thread_map(coefficients, len(wanted))) as found:
        for place, row in enumerate(found):
            rows[place] = row
    # c is _SIDE² greys for the mean, and half of that squared is the square of a cosine
    contrast = np.linalg.norm(rows[:, 1:], axis=1) / (_SIDE**2 / 2)
    return _Pictures(_unit(rows[:, 1:]), contrast, rows[:, 0] / _SIDE**2)


def _common(
    shapes: Float[np.ndarray, "n coefficients"],
) -> tuple[Float[np.ndarray, " coefficients"], Float[np.ndarray, " coefficients"]]:
    """Give the mean and the deviation of coefficients over a data set.

    A prior of photographs, whose amplitudes fall with the frequency, counts for some images.
    """
    place = np.arange(_FREQUENCIES)
    prior = (1 / np.maximum(place[:, None] ** 2 + place**2, 1)).ravel()[1:]
    prior /= prior.sum()
    weight = len(shapes) / (len(shapes) + _PRIOR)
    return weight * shapes.mean(axis=0), np.sqrt(weight * shapes.var(axis=0) + (1 - weight) * prior)


def _unit(rows: Float[np.ndarray, "n coefficients"]) -> Float[np.ndarray, "n coefficients"]:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float64] = rows / np.maximum(length, np.finfo(np.float64).tiny)
    return unit


def _by_network(
    images: Images, pairs: Pairs, doubtful: Indices, others: Indices, same_picture: SamePicture
) -> Bool[np.ndarray, " m"]:
    def load(pair: int) -> tuple[Pixels, Pixels]:
        one = images.load(int(pairs.one[pair]), _COMPARED_AT)
        other = images.load(int(pairs.other[pair]), _COMPARED_AT)
        return one, np.ascontiguousarray(other[:, ::-1]) if pairs.mirrored[pair] else other

    sample = [images.load(int(place), _COMPARED_AT) for place in others]
    return same_picture(map(load, doubtful.tolist()), sample)
