"""Duplicates of images: which images show the same picture, and what that means for a data set.

Exact duplicates have equal bytes. Near duplicates are resized, compressed again or mirrored: their
perceptual hashes (``imagehash.phash``, 256 bits) differ in few bits. All pairs of hashes are
compared, so the search takes a minute for 100,000 images.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layline.data.dataset import Dataset, Images, Indices
from layline.utils.optional import require
from layline.utils.validation import check_known

MODES = {
    "exact": "images with equal bytes",
    "near": "also resized, recompressed or mirrored images",
    "off": "no search",
}
_HASH_SIZE = 16  # 256 bits
_RADIUS = 24  # bits in which near duplicates differ at most, see docs/decisions/duplicates.md
_LEAST_CONTRAST = 2.0  # standard deviation in gray levels; below it there is nothing to compare
_BLOCK = 1 << 22  # pairs that are compared at once
_LISTED = 20


@dataclass(frozen=True)
class DuplicateReport:
    """What duplicates mean for a data set.

    Attributes:
        duplicates: Images that could be removed without losing a picture.
        groups: Pictures that occur more than once.
        contradicting: Groups whose labels differ: name and label of each image.
        in_training: Images of each other prescribed split that have a duplicate in training.
        samples: Images of each other prescribed split.
        shared: Pairs of other prescribed splits, with the number of images of the second that have
            a duplicate in the first.
    """

    duplicates: int
    groups: int
    contradicting: tuple[tuple[tuple[str, str], ...], ...]
    in_training: dict[str, int]
    samples: dict[str, int]
    shared: dict[tuple[str, str], int]

    def notes(self) -> tuple[str, ...]:
        """Describe the duplicates in sentences, with the first contradictions."""
        if self.duplicates == 0:
            return ()
        given = any(self.in_training.values()) or self.shared
        kept = "The given split is not changed" if given else "Duplicates stay in one split"
        notes = [f"{self.duplicates} duplicate images in {self.groups} groups. {kept}."]
        notes += [
            f"{count} of the {self.samples[name]} {name} images have a duplicate in the training "
            "split: results on them are too good."
            for name, count in self.in_training.items()
            if count
        ]
        notes += [
            f"{count} of the {self.samples[other]} {other} images have a duplicate in the {one} "
            "split."
            for (one, other), count in self.shared.items()
        ]
        if self.contradicting:
            lines = [f"{len(self.contradicting)} groups of duplicates have different labels:"]
            for members in self.contradicting[:_LISTED]:
                other = next(each for each in members if each[1] != members[0][1])
                pair = (members[0], other)
                lines.append("  " + " and ".join(f"{name} ({label})" for name, label in pair))
            if len(self.contradicting) > _LISTED:
                lines.append(f"  … and {len(self.contradicting) - _LISTED} more")
            notes.append("\n".join(lines))
        return tuple(notes)

    def facts(self) -> dict[str, Any]:
        """Return the numbers as plain JSON."""
        return {
            "duplicates": self.duplicates,
            "groups": self.groups,
            "contradicting": len(self.contradicting),
            "in_training": self.in_training,
        }

    def report(self) -> dict[str, Any]:
        """Return the numbers and all contradictions as plain JSON."""
        listed = [
            [{"name": name, "label": label} for name, label in members]
            for members in self.contradicting
        ]
        return {**self.facts(), "contradicting": listed}


def group_duplicates(dataset: Dataset, mode: str = "exact") -> Dataset:
    """Find duplicates among images and merge them into groups, which a split keeps together.

    Args:
        dataset: Before its splits are drawn; rows of tables are left as they are.
        mode: One of ``MODES``.

    Returns:
        The data set with ``groups`` and ``duplicates``, and notes about them.
    """
    check_known("duplicates", mode, MODES)
    images = dataset.inputs
    if mode == "off" or not isinstance(images, Images):
        return dataset
    label = find_duplicates(images, mode)
    report = _report(dataset, label)
    groups = dataset.groups
    if report.duplicates:
        groups = _merge(groups, label)
    notes = (*dataset.notes, *report.notes())
    return replace(dataset, groups=groups, notes=notes, duplicates=report)


def find_duplicates(images: Images, mode: str = "exact") -> Indices:
    """Return a number for each image; duplicates have the same.

    Args:
        images: Files are read through their index.
        mode: ``exact`` or ``near``.
    """
    if mode == "near":
        require("imagehash", extra="images", needed_by="the search for near duplicates")
    digests, hashes, bad = _fingerprints(images, mode == "near")
    first: dict[bytes, int] = {}
    links = [
        (first.setdefault(digest, place), place)
        for place, digest in enumerate(digests)
        if place not in bad
    ]
    if mode == "near":
        single = np.array(
            [b for a, b in links if a == b and len(hashes[b]) == 2 * _HASH_SIZE**2 // 8],
            dtype=np.int64,
        )
        links += [
            (int(single[i]), int(single[j])) for i, j in _near_pairs([hashes[i] for i in single])
        ]
    return _link(len(images), links)


def hash_picture(pixels: NDArray[np.uint8]) -> bytes:
    """Hash an image and its mirror image; empty if it shows nothing, such as a blank page."""
    import imagehash
    from PIL import Image, ImageOps

    image = Image.fromarray(pixels).convert("L")
    if np.asarray(image).std() < _LEAST_CONTRAST:
        return b""
    both = (imagehash.phash(each, _HASH_SIZE) for each in (image, ImageOps.mirror(image)))
    return b"".join(np.packbits(each.hash).tobytes() for each in both)


def _fingerprints(images: Images, near: bool) -> tuple[Sequence[bytes], Sequence[bytes], set[int]]:
    """Return the digests and hashes of all images, and the places of those that are damaged."""
    from layline.data.decoding import thread_map
    from layline.data.images import ImageFiles
    from layline.data.index import index_images

    if isinstance(images, ImageFiles):
        index = images.index
        if index is None or near:
            index = index_images(images, hashes=near)
        return index.digests, index.hashes, {*index.faults}

    def look(place: int) -> tuple[bytes, bytes]:
        pixels = images.load(place)
        content = repr(pixels.shape).encode() + pixels.tobytes()
        return hashlib.blake2b(content, digest_size=16).digest(), (
            hash_picture(pixels) if near else b""
        )

    with closing(thread_map(look, len(images))) as rows:
        both = list(rows)
    return [digest for digest, _ in both], [hashed for _, hashed in both], set()


def _near_pairs(hashes: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Find pairs of hashes within the radius, one of them perhaps mirrored."""
    if not hashes:
        return
    words = np.frombuffer(b"".join(hashes), dtype=np.uint64).reshape(len(hashes), 2, -1)
    plain = np.ascontiguousarray(words[:, 0].T)  # (words, n)
    rows = max(_BLOCK // len(hashes), 1)
    for start in range(0, len(hashes), rows):
        for side in (0, 1):
            block = words[start : start + rows, side]
            distance = np.zeros((len(block), len(hashes) - start), dtype=np.uint16)
            for k, word in enumerate(plain[:, start:]):
                distance += np.bitwise_count(block[:, k, None] ^ word)
            for i, j in np.argwhere(distance <= _RADIUS).tolist():
                if i < j:
                    yield start + i, start + j


def _link(count: int, links: Sequence[tuple[int, int]]) -> Indices:
    """Number the connected components."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(count, count))
    label: Indices = connected_components(graph, directed=False)[1].astype(np.int64)
    return label


def _merge(groups: Sequence[Any] | None, label: Indices) -> tuple[int, ...]:
    """Combine the groups that are given with those of duplicates."""
    if groups is None:
        return tuple(label.tolist())
    numbers: dict[Any, int] = {}
    links = [
        (numbers.setdefault(key, place), place)
        for place, keys in enumerate(zip(groups, label.tolist(), strict=True))
        for key in (("group", keys[0]), ("duplicate", keys[1]))
    ]
    return tuple(_link(len(label), links).tolist())


def _report(dataset: Dataset, label: Indices) -> DuplicateReport:
    names, ranks = dataset.inputs.names, dataset.ranks
    sizes = np.bincount(label)
    order = np.argsort(label, kind="stable")
    members = np.split(order, np.cumsum(sizes)[:-1]) if len(label) else []
    contradicting = tuple(
        tuple((names[i], dataset.classes[ranks[i]]) for i in group.tolist())
        for group in members
        if len(group) > 1 and len(np.unique(ranks[group])) > 1
    )

    def count_shared(one: Indices, other: Indices) -> int:
        return int(np.isin(label[other], label[one]).sum())

    others = asdict(dataset.splits)
    train = others.pop("train")
    others = {name: index for name, index in others.items() if len(index)}
    shared = {(a, b): count_shared(others[a], others[b]) for a, b in combinations(others, 2)}
    return DuplicateReport(
        duplicates=len(label) - len(sizes),
        groups=int((sizes > 1).sum()),
        contradicting=contradicting,
        in_training={name: count_shared(train, index) for name, index in others.items()},
        samples={name: len(index) for name, index in others.items()},
        shared={pair: count for pair, count in shared.items() if count},
    )
