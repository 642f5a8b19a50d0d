"""Duplicates of images: which images show the same picture, and what that means for a data set.

Exact duplicates have equal bytes. Near duplicates are resized, compressed again or mirrored: their
perceptual hashes (``imagehash.phash``, 256 bits) differ in few bits. All pairs of hashes are
compared, so the search takes a minute for 100,000 images.
"""

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layline.data.dataset import Dataset, Images, Indices, format_lines, format_list
from layline.data.image_cache import index_images
from layline.data.images import ImageFiles, thread_map
from layline.utils.validation import check_known, require

BLANK = b"blank"
_HASH_SIZE = 16  # 256 bits
_RADIUS = 24  # bits in which near duplicates differ at most
_LEAST_CONTRAST = 2.0  # standard deviation in gray levels; below it there is nothing to compare
_BLOCK = 1 << 22  # pairs that are compared at once


@dataclass(frozen=True)
class DuplicateReport:
    """What duplicates mean for a data set."""

    duplicates: int  # images that could be removed without losing a picture
    groups: int  # pictures that occur more than once
    contradicting: tuple[str, ...]  # groups whose labels differ: name and label of each image
    in_training: dict[str, int]  # images of prescribed splits that have a duplicate in training

    def facts(self) -> dict[str, Any]:
        """Return the numbers as plain JSON."""
        return {**asdict(self), "contradicting": len(self.contradicting)}


def group_duplicates(dataset: Dataset, mode: str = "exact") -> Dataset:
    """Find duplicates among images and merge them into groups, which a split keeps together.

    Call it before the splits are drawn. Rows of tables are left as they are.
    """
    check_known("duplicates", mode, ("exact", "near", "off"))
    images = dataset.inputs
    if mode == "off" or not isinstance(images, Images):
        return dataset
    picture = find_duplicates(images, mode)
    report = _report(dataset, picture)
    if report.duplicates == 0:
        return replace(dataset, duplicates=report)
    links = [*_links_to_first(dataset.groups or ()), *_links_to_first(picture.tolist())]
    groups = tuple(_components(len(picture), links).tolist())
    prescribed = bool(report.in_training)
    kept = "The given split is not changed" if prescribed else "Duplicates stay in one split"
    notes = [f"{report.duplicates} duplicate images in {report.groups} groups. {kept}."]
    for name, count in report.in_training.items():
        share = f"{count} of the {len(dataset.splits.by_name()[name])} {name} images"
        if count:
            notes.append(f"{share} have a duplicate in training: results on them are too good.")
    if report.contradicting:
        title = f"{len(report.contradicting)} groups of duplicates have different labels:"
        notes.append(format_lines(title, report.contradicting))
    return replace(dataset, groups=groups, notes=(*dataset.notes, *notes), duplicates=report)


def find_duplicates(images: Images, mode: str = "exact") -> Indices:
    """Return a number for each image; duplicates have the same. Mode is ``exact`` or ``near``."""
    prints = _fingerprints(images, mode == "near")
    links = _links_to_first([digest for digest, _ in prints])
    if mode == "near":
        single = [b for a, b in links if a == b and prints[b][1] not in (b"", BLANK)]
        pairs = _near_pairs([prints[place][1] for place in single])
        links += [(single[i], single[j]) for i, j in pairs]
    return _components(len(images), links)


def hash_picture(pixels: NDArray[np.uint8]) -> bytes:
    """Hash an image and its mirror image; ``BLANK`` if it shows nothing, such as a blank page."""
    from PIL import Image, ImageOps

    imagehash = require("imagehash", extra="images", needed_by="the search for near duplicates")
    image = Image.fromarray(pixels).convert("L")
    if np.asarray(image).std() < _LEAST_CONTRAST:
        return BLANK
    both = (imagehash.phash(each, _HASH_SIZE) for each in (image, ImageOps.mirror(image)))
    return b"".join(np.packbits(each.hash).tobytes() for each in both)


def _fingerprints(images: Images, near: bool) -> list[tuple[Hashable, bytes]]:
    """Return what exact duplicates have in common, and the perceptual hash, of each image."""
    if isinstance(images, ImageFiles):
        rows = enumerate((index_images(images, hashes=True) if near else images).indexed_rows())
        # damaged files are duplicates of nothing
        return [(place if row.fault else row.digest, row.hash) for place, row in rows]

    def look(place: int) -> tuple[Hashable, bytes]:
        pixels = images.load(place)
        content = repr(pixels.shape).encode() + pixels.tobytes()
        hashed = hash_picture(pixels) if near else b""
        return hashlib.blake2b(content, digest_size=16).digest(), hashed

    return list(thread_map(look, len(images)))


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


def _links_to_first(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Link each place to the first one with the same key."""
    first: dict[Hashable, int] = {}
    return [(first.setdefault(key, place), place) for place, key in enumerate(keys)]


def _components(count: int, links: Sequence[tuple[int, int]]) -> Indices:
    """Number the connected components."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(count, count))
    label: Indices = connected_components(graph, directed=False)[1].astype(np.int64)
    return label


def _report(dataset: Dataset, picture: Indices) -> DuplicateReport:
    names, ranks = dataset.inputs.names, dataset.ranks
    sizes = np.bincount(picture)
    members = np.split(np.argsort(picture, kind="stable"), np.cumsum(sizes)[:-1])
    contradicting = tuple(
        format_list(f"{names[i]} ({dataset.classes[ranks[i]]})" for i in group)
        for group in members
        if len(group) > 1 and len(np.unique(ranks[group])) > 1
    )
    trained = picture[dataset.splits.train]
    return DuplicateReport(
        duplicates=len(picture) - len(sizes),
        groups=int((sizes > 1).sum()),
        contradicting=contradicting,
        in_training={
            name: int(np.isin(picture[index], trained).sum())
            for name, index in dataset.splits.by_name().items()
            if name != "train" and len(index) and len(trained)
        },
    )
