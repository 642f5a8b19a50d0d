from itertools import combinations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from layline import data
from layline.data.sources.degradation import degrade
from layline.data.sources.photo_quality import plan, read_photo_quality

SMALL = {"per_class": 6, "validation_per_class": 2, "test_per_class": 4}


def pixels_of(dataset):
    return np.stack([dataset.inputs.load(i) for i in range(len(dataset.inputs))])


def test_six_levels_of_equal_size_in_every_part():
    dataset = data.read("photo-quality")
    assert dataset.classes[0] == "very poor"
    assert dataset.classes[5] == "excellent"
    assert dataset.inputs.load(0).shape == (48, 48, 3)
    for part, each in {"train": 200, "validation": 50, "test": 100}.items():
        indices = dataset.partition.parts()[part]
        assert np.bincount(dataset.ranks[indices]).tolist() == [each] * 6
    dataset.check_complete()


def test_the_seed_decides_every_pixel():
    first, again, other = (read_photo_quality(partition=p, **SMALL) for p in (1, 1, 2))
    assert (pixels_of(first) == pixels_of(again)).all()
    assert first.inputs.names == again.inputs.names
    assert (pixels_of(first) != pixels_of(other)).any()


def test_names_are_different_and_tell_the_photograph_the_part_and_the_level():
    dataset = read_photo_quality(**SMALL)
    assert len(set(dataset.inputs.names)) == len(dataset.inputs)
    for part, indices in dataset.partition.parts().items():
        for i in indices:
            photograph, its_part, level, _ = dataset.inputs.names[i].split("/")
            assert photograph in ("china", "flower")
            assert (its_part, level) == (part, dataset.classes[dataset.ranks[i]])


@pytest.mark.parametrize("size", [8, 48, 98])
@pytest.mark.parametrize("seed", range(3))
def test_no_pixel_of_a_photograph_is_in_two_parts(size, seed):
    counts = {"train": 100, "validation": 40, "test": 60}
    seen = {part: np.zeros((2, 427, 640), dtype=bool) for part in counts}
    for crop in plan((427, 640), counts, size, np.random.default_rng(seed)):
        assert 0 <= crop.top <= 427 - size
        assert 0 <= crop.left <= 640 - size
        place = slice(crop.top, crop.top + size), slice(crop.left, crop.left + size)
        seen[crop.part][crop.photograph][place] = True
    for one, other in combinations(seen.values(), 2):
        assert not (one & other).any()
    assert all(part[photograph].any() for part in seen.values() for photograph in range(2))


def test_stronger_degradation_is_further_from_the_original():
    rng = np.random.default_rng(0)
    ramp = np.add.outer(np.arange(48), np.arange(48))[..., None].repeat(3, axis=2)
    image = ((ramp % 16 > 7) * 200).astype(np.uint8)
    for kind in range(3):
        errors = []
        for strength in (0, 0.2, 0.5, 1.0):
            strengths = [0.0, 0.0, 0.0]
            strengths[kind] = strength
            worse = degrade(image, *strengths, rng).astype(float)
            errors.append(np.abs(worse - image).mean())
        assert errors == sorted(errors)
        assert errors[-1] > 2 * errors[0]


def features(images):
    grey = images.astype(float).mean(axis=3)
    columns = []
    for step in (1, 2, 4, 8):
        for axis in (1, 2):
            difference = np.abs(
                np.diff(grey, step, axis=axis) if step < 3 else _far(grey, axis, step)
            )
            columns += [difference.mean(axis=(1, 2)), np.median(difference, axis=(1, 2))]
    seams = np.abs(np.diff(grey, axis=2))
    columns.append(seams[:, :, 7::8].mean(axis=(1, 2)) / (seams.mean(axis=(1, 2)) + 1))
    return np.stack(columns, axis=1)


def _far(grey, axis, step):
    return np.take(grey, range(step, 48), axis) - np.take(grey, range(48 - step), axis)


def test_levels_can_be_told_apart_though_not_perfectly_and_errors_are_mostly_by_one():
    dataset = read_photo_quality()
    train, test = dataset.partition.train, dataset.partition.test
    columns = features(pixels_of(dataset))
    forest = RandomForestClassifier(n_estimators=100, random_state=0)
    forest.fit(columns[train], dataset.ranks[train])
    off = np.abs(forest.predict(columns[test]) - dataset.ranks[test])
    assert 0.4 < (off == 0).mean() < 0.95
    assert (off <= 1).mean() > 0.85


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 99}, "size must be at most 98, got 99"),
        ({"size": 7}, "size must be an integer, at least 8, got 7"),
        ({"per_class": 0}, "per_class must be an integer, at least 1, got 0"),
        ({"test_per_class": "few"}, "test_per_class must be an integer, at least 1, got 'few'"),
        ({"partition": -1}, "partition must be an integer, at least 0, got -1"),
        ({"root": "here"}, "root must be left out for photo-quality, got here"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        data.read("photo-quality", **options)
