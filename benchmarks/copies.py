"""How well copies of images are found: recall and precision by kind, and what it takes.

Of a folder of images every other one is for choosing thresholds, the rest for measuring. Copies are
made of some of the images: identical, resized, compressed anew, mirrored, and all of it at once. A
copy is found if it is in the group of its original, and an image in its group is wrong if it is
neither of this original nor of one that shows the same picture. Such pairs of originals are taken
from the last column, and drawn with ``--sheet``: somebody has to look at them.

    python benchmarks/copies.py --root utkface8 --sheet pairs.png
"""

import argparse
import hashlib
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from layline.backbones.comparison import comparison_at_hand
from layline.data.dataset import linked
from layline.data.images import copies
from layline.data.copies import Copies, find_copies, near_pairs, picture_hash
from layline.data.decoding import decode
from layline.data.images import ImageFiles, list_images
from layline.data.index import index_images
from layline.data.duplicates import find_copies_in

Change = Callable[[Image.Image], Image.Image]


def recompress(image: Image.Image, quality: int) -> Image.Image:
    """Compress as JPEG and open again."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


def resize(image: Image.Image, share: float) -> Image.Image:
    """Make an image smaller."""
    size = (max(round(image.width * share), 1), max(round(image.height * share), 1))
    return image.resize(size, Image.Resampling.BILINEAR)


def mirror(image: Image.Image) -> Image.Image:
    """Turn left to right."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


KINDS: dict[str, Change] = {
    "identical": lambda image: image,
    "resized to a half": lambda image: resize(image, 0.5),
    "resized to a quarter": lambda image: resize(image, 0.25),
    "compressed at quality 30": lambda image: recompress(image, 30),
    "compressed at quality 10": lambda image: recompress(image, 10),
    "mirrored": mirror,
    "mirrored, a half, quality 30": lambda image: recompress(resize(mirror(image), 0.5), 30),
}


class Pictures:
    """Images in memory, with their hashes and digests."""

    decoded = True

    def __init__(self, images: list[Any], names: list[str]) -> None:
        self.images, self.names = images, names
        rows = [picture_hash(image) for image in images]
        self.hashes = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
        contents = [hashlib.blake2b(i.tobytes(), digest_size=16).digest() for i in images]
        self.digests = np.frombuffer(b"".join(contents), np.uint8).reshape(len(rows), 16)

    def __len__(self) -> int:
        return len(self.images)

    def load(self, index: int, at_least: int | None = None) -> Any:
        """Give an image."""
        return self.images[index]


def with_copies(files: list[Path], each: int, seed: int) -> tuple[Pictures, Any, Any]:
    """Read images and make copies; gives the original and the kind of each, -1 for an original."""
    rng = np.random.default_rng(seed)
    images = [decode(file) for file in files]
    original, kind = list(range(len(files))), [-1] * len(files)
    for number, change in enumerate(KINDS.values()):
        for place in rng.choice(len(files), min(each, len(files)), replace=False).tolist():
            images.append(np.array(change(Image.fromarray(images[place]))))
            original.append(place)
            kind.append(number)
    names = [str(file) for file in files] + ["copy"] * (len(images) - len(files))
    return Pictures(images, names), np.array(original), np.array(kind)


def choose(files: list[Path], each: int) -> None:
    """Print what the thresholds were chosen by."""
    pictures, original, kind = with_copies(files, each, seed=0)
    made = np.flatnonzero(kind >= 0)
    words = np.unpackbits(pictures.hashes, axis=1)
    mirror_bits = np.unpackbits(copies._MIRROR_BITS)
    differ = words[made] ^ words[original[made]]
    distance = np.minimum(differ.sum(1), (differ ^ mirror_bits).sum(1))
    turned = (differ ^ mirror_bits).sum(1) < differ.sum(1)
    sample = np.arange(0, len(files), max(len(files) // 512, 1))
    pairs = copies.Pairs(original[made], made, distance, turned)
    correlation = copies.correlations(pictures, sample, pairs)
    print(f"\n{len(files)} images to choose by, {each} copies of each kind")
    print(f"{'kind':32}{'bits: median':>14}{'most':>6}{'correlation: median':>21}{'least':>7}")
    for number, name in enumerate(KINDS):
        of = kind[made] == number
        print(
            f"{name:32}{np.median(distance[of]):14.0f}{distance[of].max():6}"
            f"{np.median(correlation[of]):21.3f}{correlation[of].min():7.3f}"
        )
    single = np.arange(len(files))
    near = near_pairs(pictures.hashes[single], 47)
    found = copies.correlations(pictures, sample, near)
    for low, high in ((0, 15), (16, 31), (32, 47)):
        of = (near.distance >= low) & (near.distance <= high)
        values = np.round(np.sort(found[of]), 2)
        print(f"pairs of the folder, {low}-{high} bits: {of.sum()}, correlation {values[:8]} …")


def groups_by_hash(pictures: Pictures) -> Copies:
    """Take every candidate for a copy."""
    first, identical = copies._first_of_each(pictures.digests, ())
    near = near_pairs(pictures.hashes, copies.RADIUS)
    links = [(np.flatnonzero(identical), first[identical]), (near.one, near.other)]
    return Copies(copies._groups(len(pictures), links), identical)


def measure(files: list[Path], each: int, sheet: Path | None) -> None:
    """Print recall and precision by kind, without and with confirmation."""
    pictures, original, kind = with_copies(files, each, seed=1)
    network = comparison_at_hand()
    ways: dict[str, Callable[[], Copies]] = {
        "hash alone": lambda: groups_by_hash(pictures),
        "small pictures": lambda: find_copies(pictures, pictures.digests, lambda: pictures.hashes),
    }
    if network is not None:
        ways["and a network"] = lambda: find_copies(
            pictures, pictures.digests, lambda: pictures.hashes, same_picture=network
        )
    print(f"\n{len(files)} other images, {each} copies of each kind: recall / precision")
    print(f"{'kind':32}" + "".join(f"{name:>20}" for name in ways))
    found = {name: way() for name, way in ways.items()}
    own = [_own_pairs(result, len(files)) for result in found.values()]
    ends = np.array(own[-1], dtype=np.int64).reshape(-1, 2)
    picture = linked(len(files), [(ends[:, 0], ends[:, 1])])[original]
    for number, name in enumerate(KINDS):
        cells = [_score(result, original, picture, kind == number) for result in found.values()]
        print(f"{name:32}" + "".join(f"{cell:>20}" for cell in cells))
    print(f"{'pairs among the originals':32}" + "".join(f"{len(pairs):20}" for pairs in own))
    if sheet is not None:
        _draw(pictures, own[-1], sheet)
        print(f"the last of them are drawn in {sheet}")


def _score(found: Copies, original: Any, picture: Any, of_kind: Any) -> str:
    """Write recall and precision; two originals that show the same picture count as one."""
    group, hits, right, wrong = found.group, 0, 0, 0
    for copy in np.flatnonzero(of_kind):
        members = np.flatnonzero((group == group[copy]) & (group >= 0))
        members = members[members != copy]
        hits += int(original[copy] in members)
        same = picture[members] == picture[copy]
        right, wrong = right + int(same.sum()), wrong + int((~same).sum())
    precision = f"{right / (right + wrong):.3f}" if right + wrong else "–"
    return f"{hits / of_kind.sum():.3f} / {precision}"


def _own_pairs(found: Copies, count: int) -> list[tuple[int, int]]:
    """Pair the first original of each group with its others."""
    pairs = []
    for members in found.members():
        own = members[members < count].tolist()
        pairs += [(own[0], other) for other in own[1:]]
    return pairs


def _draw(pictures: Pictures, pairs: list[tuple[int, int]], sheet: Path) -> None:
    side, columns = 96, 7
    rows = -(-len(pairs) // columns)
    page = Image.new("RGB", (columns * 2 * (side + 4), max(rows, 1) * (side + 6)), "white")
    draw = ImageDraw.Draw(page)
    for place, pair in enumerate(pairs):
        x, y = place % columns * 2 * (side + 4), place // columns * (side + 6)
        for shift, image in zip((0, side), pair, strict=True):
            small = Image.fromarray(pictures.images[image]).resize((side, side))
            page.paste(small, (x + shift, y))
        draw.rectangle((x, y, x + 2 * side, y + side), outline="black")
    page.save(sheet)


def clock(files: list[Path], root: Path) -> None:
    """Print the time for all images, from nothing and again."""
    images = ImageFiles(root, [file.relative_to(root).as_posix() for file in files])
    with TemporaryDirectory() as cache:
        copies_at = Path(cache)
        os.environ["LAYLINE_CACHE"] = cache
        print(f"\n{len(images)} images")
        for what in ("the first time", "again"):
            start = time.perf_counter()
            index = index_images(images)
            known = time.perf_counter()
            found = find_copies_in(
                ImageFiles(root, images.names, index), copies_at, False, comparison_at_hand()
            )
            end = time.perf_counter()
            print(
                f"{what}: {known - start:.1f} s to know the files, {end - known:.2f} s for copies: "
                f"{found.num_copies} in {found.num_groups} groups"
            )


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="a folder of images, or an .npz")
    parser.add_argument("--each", type=int, default=300, help="copies of each kind")
    parser.add_argument("--sheet", type=Path, help="draw the copies that the folder has itself")
    given = parser.parse_args()
    with TemporaryDirectory() as unpacked:
        root = _unpack(given.root, Path(unpacked)) if given.root.is_file() else given.root
        files = list_images(root)
        choose(files[::2], given.each)
        measure(files[1::2], given.each, given.sheet)
        clock(files, root)


def _unpack(archive: Path, folder: Path) -> Path:
    """Write the images of an .npz as files without loss."""
    with np.load(archive) as arrays:
        for name in (key for key in arrays.files if key.endswith("images")):
            for place, image in enumerate(arrays[name]):
                Image.fromarray(image).convert("RGB").save(folder / f"{name}-{place}.png")
    return folder


if __name__ == "__main__":
    main()
