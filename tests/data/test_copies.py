import hashlib
import io

import imagehash
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from layline.data.copies import HASH_BYTES, find_copies, near_pairs, picture_hash
from layline.data.images import ImageArrays, copies


def photograph(seed, side=160):
    """Make a picture with the spectrum of photographs, and shapes in it."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side)))
    spectrum = np.fft.fft2(rng.normal(size=(side, side))) / np.maximum(frequency, 1 / side)
    greys = np.real(np.fft.ifft2(spectrum))
    greys = 128 + 45 * (greys - greys.mean()) / greys.std()
    colours = greys[..., None] + rng.normal(scale=12, size=3)
    for _ in range(4):
        top, left, height, width = rng.integers(0, side // 2, 4)
        colours[top : top + height, left : left + width] += rng.normal(scale=30, size=3)
    return np.clip(colours, 0, 255).astype(np.uint8)


def compressed(pixels, quality):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality)
    return np.array(Image.open(stream))


def resized(pixels, side):
    return np.array(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR))


def mirrored(pixels):
    return np.ascontiguousarray(pixels[:, ::-1])


def changed(pixels):
    """Mirror, resize and compress."""
    return compressed(resized(mirrored(pixels), 96), 50)


KINDS = {
    "resized": lambda pixels: resized(pixels, 64),
    "enlarged": lambda pixels: resized(pixels, 300),
    "recompressed": lambda pixels: compressed(pixels, 30),
    "mirrored": mirrored,
    "all of it": changed,
}


class Pictures:
    """Images of any sizes in memory."""

    decoded = True

    def __init__(self, pictures):
        self.pictures, self.names = pictures, tuple(map(str, range(len(pictures))))
        self.loaded = []

    def __len__(self):
        return len(self.pictures)

    def load(self, index, at_least=None):
        self.loaded.append(index)
        return self.pictures[index]


def digests_of(images):
    rows = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), 16)


def hashes_of(images):
    rows = b"".join(picture_hash(image) for image in images)
    return np.frombuffer(rows, np.uint8).reshape(len(images), HASH_BYTES)


def found_in(images, **options):
    return find_copies(Pictures(images), digests_of(images), lambda: hashes_of(images), **options)


def bits(hashed):
    return np.unpackbits(np.frombuffer(hashed, np.uint8))


def test_the_hash_is_that_of_the_library_but_for_its_threshold():
    pixels = photograph(0)
    theirs = imagehash.phash(Image.fromarray(pixels), hash_size=16).hash.ravel()
    # it cuts at the median of the coefficients, which is near to zero
    assert (bits(picture_hash(pixels)) != theirs).sum() < 16


def test_a_hash_has_its_length_whatever_the_image():
    shapes = [(1, 1, 3), (3, 200, 3), (500, 7, 3)]
    assert all(len(picture_hash(np.zeros(shape, np.uint8))) == HASH_BYTES for shape in shapes)


def test_the_mirror_image_differs_in_the_odd_frequencies():
    pixels = photograph(1)
    is_odd = np.tile(np.arange(16) % 2 == 1, 16)
    both = bits(picture_hash(pixels)) ^ bits(picture_hash(mirrored(pixels)))
    assert np.array_equal(both.astype(bool), is_odd)


def by_brute_force(hashes, radius):
    mirror = np.tile(np.arange(16) % 2 == 1, 16)
    rows = np.unpackbits(hashes, axis=1).astype(bool)
    pairs = {}
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            differ = rows[i] ^ rows[j]
            plain, turned = int(differ.sum()), int((differ ^ mirror).sum())
            if min(plain, turned) <= radius:
                pairs[i, j] = (min(plain, turned), turned < plain)
    return pairs


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0, 7, 15, 16, 31]))
def test_near_pairs_are_those_of_a_comparison_with_all(seed, radius):
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 256, (4, HASH_BYTES))
    noise = rng.random((24, 8 * HASH_BYTES)) < rng.choice([0.0, 0.03, 0.08], (24, 1))
    hashes = (centres[rng.integers(0, 4, 24)] ^ np.packbits(noise, axis=1)).astype(np.uint8)
    turned = rng.random(24) < 0.3
    hashes[turned] ^= np.packbits(np.tile(np.arange(16) % 2 == 1, 16))
    found = near_pairs(hashes, radius)
    wanted = by_brute_force(hashes, radius)
    rows = zip(*(column.tolist() for column in found), strict=True)
    assert {(i, j): (distance, flip) for i, j, distance, flip in rows} == wanted


def test_near_pairs_are_found_in_blocks_too(monkeypatch):
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2, (40, HASH_BYTES)).astype(np.uint8)
    wanted = by_brute_force(hashes, 31)
    monkeypatch.setattr(copies, "_BLOCK", 64)
    monkeypatch.setattr(copies, "_MOST_CANDIDATES", 40)
    found = near_pairs(hashes, 31)
    assert set(zip(found.one.tolist(), found.other.tolist(), strict=True)) == set(wanted)


def test_a_crowd_that_looks_alike_does_not_fill_the_memory():
    hashes = np.random.default_rng(0).integers(0, 2, (200, HASH_BYTES)).astype(np.uint8)
    hashes &= 1 << np.arange(HASH_BYTES, dtype=np.uint8) % 8  # all of them are near to all
    found = near_pairs(hashes, 31)
    assert len(found.one) <= 2 * copies._MOST_CANDIDATES * 200


def test_of_many_images_with_one_hash_each_is_compared_once():
    flat = [np.full((8, 8, 3), grey, np.uint8) for grey in range(100)]
    images = Pictures(flat)
    assert find_copies(images, digests_of(flat), lambda: hashes_of(flat)).num_copies == 0
    assert len(images.loaded) == 100


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_found(kind):
    originals = [photograph(seed) for seed in range(12)]
    found = found_in([*originals, *map(KINDS[kind], originals)])
    assert np.array_equal(found.group, np.tile(np.arange(12), 2))
    assert found.num_copies == 12
    assert not found.identical.any()


def test_identical_images_are_found_without_decoding_any():
    originals = [photograph(seed) for seed in range(5)]
    images = Pictures([*originals, *originals[:2], photograph(9)])
    found = find_copies(images, digests_of(images.pictures), None)
    assert found.group.tolist() == [0, 1, -1, -1, -1, 0, 1, -1]
    assert found.identical.tolist() == [False] * 5 + [True, True, False]
    assert images.loaded == []


def test_a_copy_of_a_copy_is_in_the_same_group():
    pixels = photograph(3)
    found = found_in([pixels, compressed(pixels, 40), pixels.copy(), photograph(4)])
    assert found.group.tolist() == [0, 0, 0, -1]
    assert [members.tolist() for members in found.members()] == [[0, 1, 2]]


def test_pictures_of_the_same_composition_are_not_copies():
    common = photograph(0).astype(int)
    images = [
        np.clip(0.7 * common + 0.3 * photograph(1 + seed), 0, 255).astype(np.uint8)
        for seed in range(40)
    ]
    assert found_in(images).num_copies == 0
    again = found_in([*images, *map(changed, images)])  # and are told apart nevertheless
    assert np.array_equal(again.group, np.tile(np.arange(40), 2))


def test_images_without_a_picture_are_copies_only_if_they_are_identical():
    flat = [np.full((32, 32, 3), grey, np.uint8) for grey in (0, 0, 90, 91)]
    assert found_in(flat).group.tolist() == [0, 0, -1, -1]


def test_the_same_shape_in_another_light_is_not_a_copy():
    ramp = np.tile(np.linspace(0, 1, 64), (64, 1))
    images = [
        np.repeat((low + step * ramp)[..., None], 3, axis=2).astype(np.uint8)
        for low, step in ((0, 40), (0, 120), (160, 90))
    ]
    assert found_in(images).num_copies == 0


def test_an_image_that_cannot_be_read_is_a_copy_of_nothing():
    images = [photograph(0)] * 4
    assert found_in(images, bad=[1, 3]).group.tolist() == [0, -1, 0, -1]


@pytest.mark.parametrize("says", [True, False])
def test_in_doubt_the_network_decides(says, monkeypatch):
    monkeypatch.setattr(copies, "SURE", 2.0)  # nothing is certain
    asked = []

    def same_picture(pairs, others):
        pairs = list(pairs)
        asked.extend(pairs)
        assert len(others) > 0
        return np.full(len(pairs), says)

    images = [*(photograph(seed) for seed in range(6)), mirrored(photograph(2))]
    found = found_in(images, same_picture=same_picture)
    assert (found.group[[2, 6]] == 0).all() == says
    ((one, other),) = asked
    assert np.abs(one.astype(int) - other).max() == 0  # the second is turned back


def test_a_second_search_decodes_nothing(tmp_path):
    originals = [photograph(seed) for seed in range(6)]
    images = Pictures([*originals, *map(changed, originals)])
    digests, hashes = digests_of(images.pictures), hashes_of(images.pictures)
    first = find_copies(images, digests, lambda: hashes, kept=tmp_path)
    images.loaded.clear()
    again = find_copies(images, digests, lambda: pytest.fail("it is known"), kept=tmp_path)
    assert np.array_equal(first.group, again.group)
    assert images.loaded == []
    other = digests.copy()
    other[0] ^= 1  # another file
    assert find_copies(images, other, lambda: hashes, kept=tmp_path).num_copies == 6
    assert images.loaded


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_damaged_memory_is_searched_again(content, tmp_path):
    images = Pictures([photograph(0), photograph(1), compressed(photograph(0), 40)])
    arguments = images, digests_of(images.pictures), lambda: hashes_of(images.pictures)
    find_copies(*arguments, kept=tmp_path)
    (file,) = tmp_path.iterdir()
    if content is None:
        with file.open("wb") as stream:
            np.savez(stream, group=np.array([7, 8, 9]))
    else:
        file.write_bytes(content)
    assert find_copies(*arguments, kept=tmp_path).group.tolist() == [0, -1, 0]


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path):
    images = Pictures([photograph(0), compressed(photograph(0), 40)])
    arguments = images, digests_of(images.pictures), lambda: hashes_of(images.pictures)
    place = tmp_path / "file"
    place.write_text("")
    assert find_copies(*arguments, kept=place).num_copies == 1


def test_arrays_of_small_images_are_compared():
    blurred = [
        np.array(Image.fromarray(photograph(s, 28)).filter(ImageFilter.GaussianBlur(1)))
        for s in range(20)
    ]
    arrays = ImageArrays(np.stack([*blurred, *map(mirrored, blurred[:4])]))
    images = [arrays.load(i) for i in range(len(arrays))]
    found = find_copies(arrays, digests_of(images), lambda: hashes_of(images))
    assert found.group.tolist() == [0, 1, 2, 3, *[-1] * 16, 0, 1, 2, 3]
