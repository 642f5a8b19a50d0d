from hashlib import blake2b
from itertools import combinations

import numpy as np
import PIL
import pytest

from layline import data
from layline.data.sources.photo_quality import plan_crops, read_photo_quality

SMALL = {"per_class": 6, "validation_per_class": 2, "test_per_class": 4}


@pytest.fixture(scope="module")
def usual():
    """What there is without any option."""
    return data.read("photo-quality")


def pixels_of(dataset):
    return np.stack([dataset.inputs.load(i) for i in range(len(dataset.inputs))])


def test_six_levels_of_equal_size_in_every_part(usual):
    assert usual.classes[0] == "very poor"
    assert usual.classes[5] == "excellent"
    assert usual.inputs.load(0).shape == (48, 48, 3)
    for part, each in {"train": 200, "validation": 50, "test": 100}.items():
        indices = usual.splits.by_name()[part]
        assert np.bincount(usual.ranks[indices]).tolist() == [each] * 6
    usual.check_complete()


def test_the_seed_decides_every_pixel():
    first, again, other = (read_photo_quality(partition=p, **SMALL) for p in (1, 1, 2))
    assert (pixels_of(first) == pixels_of(again)).all()
    assert (pixels_of(first) != pixels_of(other)).any()
    assert len({*first.inputs.names}) == len(first.inputs)


@pytest.mark.skipif(PIL.__version__ != "13.0.0", reason="another Pillow compresses differently")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "588cccff4012b9f3d3febc99c44eedba"),
        ({"partition": 3, "size": 24, **SMALL}, "e021cbd1af0d5fcabd2618530af80691"),
    ],
)
def test_the_defaults_give_the_pixels_that_they_gave_before_there_were_options(
    usual, options, expected
):
    dataset = read_photo_quality(**options) if options else usual
    digest = blake2b(pixels_of(dataset).tobytes(), digest_size=16)
    digest.update("|".join(dataset.inputs.names).encode() + dataset.ranks.tobytes())
    assert digest.hexdigest() == expected


PER_LEVEL = {"per_class": 40, "validation_per_class": 1, "test_per_class": 1}


def test_each_distortion_alone_makes_other_images_and_better_ones_at_the_top():
    def roughness(images):  # blur lowers it, noise raises it
        return np.abs(np.diff(images.astype(float), axis=2)).mean(axis=(1, 2, 3))

    seen = {}
    for distortion in ("all", "blur", "noise", "compression"):
        dataset = read_photo_quality(distortion=distortion, size=32, levels=4, **PER_LEVEL)
        assert dataset.classes == ("level 1", "level 2", "level 3", "level 4")
        train = dataset.splits.train
        rough, ranks = roughness(pixels_of(dataset)[train]), dataset.ranks[train]
        seen[distortion] = [rough[ranks == rank].mean() for rank in range(4)]
    assert seen["blur"] == sorted(seen["blur"])
    assert seen["noise"] == sorted(seen["noise"], reverse=True)
    assert len({tuple(values) for values in seen.values()}) == 4


@pytest.mark.parametrize("size", [8, 48, 98])
@pytest.mark.parametrize("seed", range(3))
def test_no_pixel_of_a_photograph_is_in_two_parts(size, seed):
    counts = {"train": 100, "validation": 40, "test": 60}
    seen = {part: np.zeros((2, 427, 640), dtype=bool) for part in counts}
    for photograph, split, _, top, left in plan_crops(counts, size, 6, np.random.default_rng(seed)):
        assert 0 <= top <= 427 - size
        assert 0 <= left <= 640 - size
        seen[split][photograph][top : top + size, left : left + size] = True
    for one, other in combinations(seen.values(), 2):
        assert not (one & other).any()
    assert all(part[photograph].any() for part in seen.values() for photograph in range(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 99}, "size must be an integer from 8 to 98, got 99"),
        ({"per_class": 0}, "per_class must be an integer from 1 to 10000, got 0"),
        ({"test_per_class": "few"}, "test_per_class must be an integer from 1 .*, got 'few'"),
        ({"partition": -1}, "partition must be an integer, at least 0, got -1"),
        ({"levels": 1_000_000}, "levels must be an integer from 2 to 256, got 1000000"),
        ({"distortion": "blurr"}, "distortion must be a known name, got 'blurr'"),
        ({"root": "here"}, "photo-quality needs no files"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        data.read("photo-quality", **options)
