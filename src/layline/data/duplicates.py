"""What copies of images mean for a data set: parts that share pictures, labels that contradict."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from layline.data.copies import (
    HASH_BYTES,
    Copies,
    SamePicture,
    find_copies,
    picture_hash,
)
from layline.data.dataset import Dataset, Images, Indices
from layline.data.decoding import thread_map
from layline.data.file_digests import DIGEST_BYTES
from layline.data.images import ImageFiles
from layline.data.index import index_images

_LISTED = 20


def find_copies_in(
    images: Images,
    kept: Path,
    exact: bool = False,
    same_picture: SamePicture | None = None,
) -> Copies:
    """Find the copies among the images of a data set.

    Args:
        images: Files, of which the index knows the rest, or arrays.
        kept: Folder where the result is kept.
        exact: Only images with the same bytes.
        same_picture: Decides in doubt, see :mod:`layline.backbones.comparison`.
    """
    if isinstance(images, ImageFiles):
        index = index_images(images) if images.index is None else images.index
        hashes = None if exact else lambda: index.hashes
        return find_copies(images, index.digests, hashes, [*index.faults], same_picture, kept)

    def digest(place: int) -> bytes:
        pixels = images.load(place)
        content = repr(pixels.shape).encode() + pixels.tobytes()
        return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()

    def picture(place: int) -> bytes:
        return picture_hash(images.load(place))

    digests = _rows(digest, len(images), DIGEST_BYTES)
    hashes = None if exact else lambda: _rows(picture, len(images), HASH_BYTES)
    return find_copies(images, digests, hashes, [], same_picture, kept)


def _rows(work: Callable[[int], bytes], count: int, width: int) -> UInt8[np.ndarray, "n bytes"]:
    with closing(thread_map(work, count)) as rows:
        return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(count, width)


@dataclass(frozen=True)
class DuplicateReport:
    """What copies mean for a data set.

    Attributes:
        copies: Images that are copies of others.
        identical: Those among them that have the same bytes.
        groups: Pictures that there are more than once.
        contradicting: The groups whose labels differ: name and label of each image.
        with_copy_in_training: Images of each other part that have a copy in training.
        samples: Images of each other part.
        shared: Two other parts, and how many images of the second have a copy in the first, where
            there are any.
    """

    copies: int
    identical: int
    groups: int
    contradicting: tuple[tuple[tuple[str, str], ...], ...]
    with_copy_in_training: dict[str, int]
    samples: dict[str, int]
    shared: dict[tuple[str, str], int]

    @classmethod
    def of(cls, dataset: Dataset, copies: Copies) -> "DuplicateReport":
        """Count what the copies of a data set mean for its labels and parts."""
        names, ranks, group = dataset.inputs.names, dataset.ranks, copies.group
        contradicting = tuple(
            tuple((names[i], dataset.classes[ranks[i]]) for i in members.tolist())
            for members in copies.members()
            if len(np.unique(ranks[members])) > 1
        )

        def with_copy_in(one: Indices, part: Indices) -> int:
            found = np.zeros(copies.num_groups + 1, dtype=np.bool_)
            found[group[one]] = True
            found[-1] = False  # of images that are copies of nothing
            return int(found[group[part]].sum())

        train = dataset.splits.train
        others = {k: v for k, v in dataset.splits.by_name().items() if k != "train"}
        shared = {
            (one, other): with_copy_in(others[one], others[other])
            for one, other in combinations(others, 2)
        }
        return cls(
            copies.num_copies,
            int(copies.identical.sum()),
            copies.num_groups,
            contradicting,
            {name: with_copy_in(train, part) for name, part in others.items()},
            {name: len(part) for name, part in others.items()},
            {pair: count for pair, count in shared.items() if count},
        )

    def notes(self, obstacle: str = "") -> tuple[str, ...]:
        """Say it in sentences, and list the contradictions, some of them.

        Args:
            obstacle: Why copies could not be kept in one part, if so.
        """
        if self.copies == 0:
            return ()
        leaks = {name: count for name, count in self.with_copy_in_training.items() if count}
        one = self.copies == 1
        are = (
            "1 image is a copy of another" if one else f"{self.copies} images are copies of others"
        )
        groups = f"{self.groups} group{'' if self.groups == 1 else 's'}"
        if self.contradicting:
            groups += f"; {len(self.contradicting)} with different labels"
        done = "copies stay in one part"
        if leaks or self.shared:  # where parts are drawn there are none
            done = "the split that was given stays as it is"
        if obstacle:
            done = f"copies could not be kept in one part, since {obstacle}"
        notes = [f"{are} ({groups}): {done}"]
        notes += [
            f"{self._have_copy(name, count)} in training: numbers on them are too good"
            for name, count in leaks.items()
        ]
        notes += [
            f"{self._have_copy(other, count)} in {one}"
            for (one, other), count in self.shared.items()
        ]
        if self.contradicting:
            notes.append("\n".join(["Copies with different labels:", *self._listed()]))
        return tuple(notes)

    def _have_copy(self, name: str, count: int) -> str:
        has = "has" if count == 1 else "have"
        return f"Of {self.samples[name]} {name} images {count} {has} a copy"

    def _listed(self) -> Sequence[str]:
        lines = []
        for members in self.contradicting[:_LISTED]:
            first = members[0]
            other = next(each for each in members if each[1] != first[1])
            lines.append("  " + " and ".join(f"{name} ({label})" for name, label in (first, other)))
        if len(self.contradicting) > _LISTED:
            lines.append(f"  … and {len(self.contradicting) - _LISTED} more")
        return lines

    def facts(self) -> dict[str, Any]:
        """Give the same as plain JSON, with counts of contradictions only."""
        return {
            "copies": self.copies,
            "identical": self.identical,
            "groups": self.groups,
            "contradicting": len(self.contradicting),
            "with_copy_in_training": self.with_copy_in_training,
        }

    def report(self) -> dict[str, Any]:
        """Give the facts with all contradictions, each image with its label."""
        listed = [
            [{"name": name, "label": label} for name, label in members]
            for members in self.contradicting
        ]
        return {**self.facts(), "contradicting": listed}


def keep_copies_together(dataset: Dataset, copies: Copies) -> Dataset:
    """Draw the partition such that copies are in one part, as far as it was not given.

    The data set gets what copies mean for it, and notes that say so.
    """
    obstacle = ""
    try:
        dataset = dataset.keep_together(copies.group)
    except ValueError as error:  # too few different images; whoever wants to train on them may
        obstacle = str(error)
    leaks = DuplicateReport.of(dataset, copies)
    return replace(dataset, duplicates=leaks, notes=(*dataset.notes, *leaks.notes(obstacle)))
