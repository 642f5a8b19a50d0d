"""Duplicates of images: which are found, and that a split never divides them."""

import io
import shutil

import numpy as np
import pytest
from PIL import Image, ImageOps

from layline import data
from layline.data.duplicates import find_duplicates
from layline.data.images import ImageArrays, ImageFiles


def picture(seed, size=96):
    """Noise with the spectrum of photographs, which survives compression as they do."""
    rng = np.random.default_rng(seed)
    gray = np.zeros((size, size))
    for side in (2, 4, 8, 16, 32):
        layer = Image.fromarray(rng.normal(0, 1 / side, (side, side)).astype(np.float32))
        gray += np.asarray(layer.resize((size, size), Image.Resampling.BICUBIC))
    gray = 255 * (gray - gray.min()) / (gray.max() - gray.min())
    return Image.fromarray(gray.astype(np.uint8)).convert("RGB")


@pytest.fixture
def photos(tmp_path):
    """A folder per class with ten different pictures each."""
    for k, name in enumerate(("low", "mid", "high")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            picture(100 * k + i).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def read(root, mode="exact", **options):
    dataset = data.read("folder", root, **options)
    return data.group_duplicates(data.check_files(data.index_files(dataset)), mode)


def changed(image, change):
    stream = io.BytesIO()
    match change:
        case "resized":
            image.resize((60, 60)).save(stream, "PNG")
        case "recompressed":
            image.save(stream, "JPEG", quality=40)
        case "mirrored":
            ImageOps.mirror(image).save(stream, "PNG")
        case "brighter":
            image.point(lambda value: min(255, value + 12)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("change", ["resized", "recompressed", "mirrored", "brighter"])
def test_near_duplicates_are_found_in_files_and_arrays_and_only_if_asked_for(tmp_path, change):
    names = [f"{i}.png" for i in range(12)]
    for i, name in enumerate(names):
        picture(i).save(tmp_path / name)
    (tmp_path / "again.img").write_bytes(changed(picture(7), change))
    files = ImageFiles(tmp_path, [*names, "again.img"])
    near = find_duplicates(files, "near")
    assert near[7] == near[12]
    assert len(set(near)) == 12
    assert len(set(find_duplicates(files, "exact"))) == 13
    if change != "resized":  # an array has images of one size
        arrays = ImageArrays(np.stack([files.load(i) for i in range(13)]))
        assert len(set(find_duplicates(arrays, "near"))) == 12


def test_similar_pictures_blank_pages_and_damaged_files_are_not_duplicates(tmp_path):
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    base = np.broadcast_to(ramp[:, None, None], (64, 64, 3)).astype(int)
    rng = np.random.default_rng(0)
    noise = [np.kron(rng.normal(0, 40, (8, 8, 1)), np.ones((8, 8, 1))) for _ in range(20)]
    alike = np.stack([np.clip(base + each, 0, 255).astype(np.uint8) for each in noise])
    assert len(set(find_duplicates(ImageArrays(alike), "near"))) == 20
    blank = np.stack([np.full((32, 32, 3), 200 + i, dtype=np.uint8) for i in range(5)])
    assert len(set(find_duplicates(ImageArrays(blank), "near"))) == 5
    assert len(set(find_duplicates(ImageArrays(blank[[0, 1, 0]]), "near"))) == 2
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"not an image")
    assert len(set(find_duplicates(ImageFiles(tmp_path, ["a.png", "b.png"])))) == 2


def test_perceptual_hashes_are_kept_in_the_index(photos, monkeypatch):
    read(photos, "near")
    monkeypatch.setattr("layline.data.image_cache.examine", None)  # nothing is decoded again
    assert read(photos, "near").duplicates.duplicates == 0


@pytest.mark.parametrize("mode", ["exact", "near"])
@pytest.mark.parametrize("seed", range(4))
def test_duplicates_are_in_one_split(photos, mode, seed):
    for i in range(5):
        source = photos / "low" / f"{i}.png"
        for copy in range(3):
            shutil.copy(source, photos / "low" / f"copy{copy} of {i}.png")
    dataset = data.draw_splits(read(photos, mode), seed)
    assert dataset.duplicates.duplicates == 15
    assert dataset.duplicates.groups == 5
    groups = np.array(dataset.groups)
    found = [{*groups[index]} for index in dataset.splits.by_name().values()]
    assert sum(map(len, found)) == len({*dataset.groups}) == 30
    dataset.check_complete()


def test_without_duplicates_the_split_does_not_depend_on_the_mode(photos):
    splits = [data.draw_splits(read(photos, mode), 3).splits for mode in ("off", "exact", "near")]
    for other in splits[1:]:
        for name, index in splits[0].by_name().items():
            assert index.tolist() == other.by_name()[name].tolist()


def test_groups_that_share_a_duplicate_are_merged(photos):
    shutil.copy(photos / "low" / "0.png", photos / "high" / "7.png")
    dataset = read(photos, group_by=r"(\w+/\d)\.png")
    groups = dict(zip(dataset.inputs.names, dataset.groups, strict=True))
    assert groups["low/0.png"] == groups["high/7.png"]
    assert len(set(groups.values())) == 29
    (group,) = dataset.duplicates.contradicting
    assert sorted(group.split(", ")) == ["high/7.png (high)", "low/0.png (low)"]
    assert any("different labels" in note for note in dataset.notes)


def test_a_given_split_is_reported_and_not_changed(tmp_path, photos):
    root = tmp_path / "split"
    for split, start in (("train", 0), ("val", 6), ("test", 8)):
        for name in ("low", "mid", "high"):
            (root / split / name).mkdir(parents=True)
            for i in range(start, start + (6 if split == "train" else 2)):
                shutil.copy(photos / name / f"{i}.png", root / split / name)
    shutil.copy(root / "train" / "low" / "0.png", root / "test" / "low" / "again.png")
    shutil.copy(root / "val" / "mid" / "6.png", root / "test" / "mid" / "again.png")
    before = data.draw_splits(data.read("folder", root), 0)
    after = data.draw_splits(read(root), 0)
    for name, index in before.splits.by_name().items():
        assert index.tolist() == after.splits.by_name()[name].tolist()
    report = after.duplicates
    assert report.facts()["in_training"] == {"validation": 0, "test": 1}
    assert any("1 of the 8 test images" in note and "too good" in note for note in after.notes)
