import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.data import Dataset, Splits
from layline.data.copies import Copies
from layline.data.dataset import groups_of
from layline.data.duplicates import DuplicateReport, find_copies_in, keep_copies_together
from layline.data.images import ImageFiles


def noise(seed):
    """Make a picture that is like no other."""
    small = np.random.default_rng(seed).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    return Image.fromarray(small).resize((48, 48), Image.Resampling.BICUBIC)


def write(folder, seed, **options):
    folder.parent.mkdir(parents=True, exist_ok=True)
    noise(seed).save(folder, **options)


def looked_at(dataset, kept, **options):
    return keep_copies_together(dataset, find_copies_in(dataset.inputs, kept, **options))


def originals_by_part(dataset):
    return [
        {dataset.inputs.names[i].split("/")[-1].split("-")[0] for i in part}
        for part in dataset.splits.by_name().values()
    ]


@pytest.fixture
def four_times(tmp_path):
    """Thirty pictures, four times each."""
    for original in range(30):
        folder = tmp_path / "photos" / ("low", "mid", "high")[original % 3]
        write(folder / f"{original}-0.png", original)
        for copy in range(1, 4):
            shutil.copy(folder / f"{original}-0.png", folder / f"{original}-{copy}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("calibration", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_no_original_is_in_two_parts(four_times, tmp_path, seed, calibration):
    before = data.read("folder", four_times, seed, calibration)
    parts = originals_by_part(before)
    assert any(one & other for one in parts for other in parts if one is not other)
    dataset = looked_at(before, tmp_path)
    parts = originals_by_part(dataset)
    assert sum(map(len, parts)) == 30 == len(set.union(*parts))
    counts = [len(part) for part in dataset.splits.by_name().values()]
    assert counts == ([84, 12, 24] if calibration == 0 else [72, 12, 24, 12])
    assert dataset.duplicates.facts() == {
        "copies": 90,
        "identical": 90,
        "groups": 30,
        "contradicting": 0,
        "with_copy_in_training": dict.fromkeys(list(dataset.splits.by_name())[1:], 0),
    }
    assert "90 images are copies of others (30 groups): copies stay in one part" in dataset.notes


@pytest.mark.parametrize("calibration", [0.0, 0.2])
def test_no_original_is_in_two_parts_after_samples_were_left_out(four_times, tmp_path, calibration):
    known = data.KnownInputs(("low", "high"), skip_unknown=True)
    for seed in range(4):
        before = data.read("folder", four_times, seed, calibration, known)
        dataset = looked_at(before.drop([0, 5]), tmp_path)  # bad files, say
        parts = originals_by_part(dataset)
        assert sum(map(len, parts)) == 20 == len(set.union(*parts))
        assert sum(map(len, dataset.splits.by_name().values())) == 78
        for part in dataset.splits.by_name().values():
            assert {*dataset.ranks[part].tolist()} == {0, 1}
        assert any(note.endswith("copies stay in one part") for note in dataset.notes)


def test_groups_stay_in_one_part_after_samples_were_left_out(tmp_path):
    rows = ["path,label,group"]
    for picture in range(60):
        write(tmp_path / f"{picture}.png", picture)
        rows.append(f"{picture}.png,{('low', 'mid', 'high')[picture % 3]},{picture // 3}")
    shutil.copy(tmp_path / "0.png", tmp_path / "5.png")  # of group 0, and now of group 1
    (tmp_path / "photos.csv").write_text("\n".join(rows))
    known = data.KnownInputs(("low", "high"), skip_unknown=True)
    for seed in range(10):
        dataset = looked_at(data.read("csv", tmp_path / "photos.csv", seed, 0.0, known), tmp_path)
        assert len(dataset.inputs) == 40
        parts_of = {}
        for part, index in dataset.splits.by_name().items():
            for group in groups_of(dataset, index):
                parts_of.setdefault("0 or 1" if group in "01" else group, set()).add(part)
        assert all(len(found) == 1 for found in parts_of.values())


def test_the_notes_of_the_first_drawing_are_replaced(four_times, tmp_path):
    before = data.read("folder", four_times, 0, 0.2)
    after = looked_at(before, tmp_path)
    drawn = [note for note in after.notes if "for calibration" in note.lower()]
    assert drawn == [
        f"For calibration {len(after.splits.calibration)} of the 84 training samples are kept "
        "apart (--calibration 0 for none)"
    ]


def test_copies_in_two_classes_are_listed_with_both_labels(tmp_path):
    for picture in range(25):
        for name in ("low", "high"):
            write(tmp_path / "photos" / name / f"{picture}.png", picture)
    dataset = looked_at(data.read("folder", tmp_path / "photos"), tmp_path)
    count, listed = dataset.notes[-2:]
    assert count.startswith("25 images are copies of others (25 groups; 25 with different labels)")
    assert "  high/0.png (high) and low/0.png (low)" in listed.splitlines()
    assert len(listed.splitlines()) == 1 + 20 + 1
    assert listed.endswith("… and 5 more")
    report = dataset.duplicates.report()
    assert report["contradicting"][3] == [
        {"name": "high/3.png", "label": "high"},
        {"name": "low/3.png", "label": "low"},
    ]
    assert len(report["contradicting"]) == 25


def test_without_copies_the_partition_is_what_it_was(tmp_path):
    for picture in range(40):
        write(tmp_path / "photos" / ("low", "high")[picture % 2] / f"{picture}.png", picture)
    before = data.read("folder", tmp_path / "photos", 3, 0.3)
    after = looked_at(before, tmp_path)
    assert after.notes == before.notes
    for name, part in before.splits.by_name().items():
        assert np.array_equal(part, after.splits.by_name()[name])


@pytest.fixture
def split_photos(tmp_path):
    """A split that was given, with two test images that training has too, one of them smaller."""
    for number, part in enumerate(("train", "val", "test")):
        for picture in range(12):
            place = tmp_path / "photos" / part / ("low", "high")[picture % 2] / f"{picture}.png"
            write(place, 100 * number + picture)
    test = tmp_path / "photos" / "test"
    write(test / "low" / "again.png", 4)
    noise(7).resize((32, 32)).save(test / "low" / "smaller.jpg", quality=60)
    return tmp_path / "photos"


def test_a_split_that_was_given_is_reported_and_not_changed(split_photos, tmp_path):
    before = data.read("folder", split_photos)
    after = looked_at(before, tmp_path)
    for name, part in before.splits.by_name().items():
        assert np.array_equal(part, after.splits.by_name()[name])
    assert after.duplicates.with_copy_in_training == {"validation": 0, "test": 2}
    assert any("the split that was given stays as it is" in note for note in after.notes)
    assert (
        "Of 14 test images 2 have a copy in training: numbers on them are too good" in after.notes
    )
    assert "test/low/smaller.jpg (low) and train/high/7.png (high)" in after.notes[-1]


def test_copies_in_two_parts_beside_training_are_counted_and_not_said_to_stay_in_one(
    split_photos, tmp_path
):
    for again in ("again.png", "smaller.jpg"):
        (split_photos / "test" / "low" / again).unlink()
    shutil.copy(split_photos / "test" / "low" / "0.png", split_photos / "test" / "low" / "a.png")
    inside = looked_at(data.read("folder", split_photos), tmp_path)
    assert inside.notes[-1] == "1 image is a copy of another (1 group): copies stay in one part"
    shutil.copy(split_photos / "val" / "low" / "2.png", split_photos / "test" / "low" / "b.png")
    shutil.copy(split_photos / "val" / "low" / "4.png", split_photos / "test" / "low" / "c.png")
    before = data.read("folder", split_photos)
    across = looked_at(before, tmp_path)
    assert across.notes[-2:] == (
        "3 images are copies of others (3 groups): the split that was given stays as it is",
        "Of 15 test images 2 have a copy in validation",
    )
    for name, part in before.splits.by_name().items():
        assert np.array_equal(part, across.splits.by_name()[name])


def test_only_identical_files_are_copies_if_that_is_wanted(split_photos, tmp_path):
    after = looked_at(data.read("folder", split_photos), tmp_path, exact=True)
    assert after.duplicates.with_copy_in_training == {"validation": 0, "test": 1}


def test_a_part_drawn_out_of_a_given_one_has_no_copies_of_its_rest(four_times, tmp_path):
    for name in ("low", "mid", "high"):
        (four_times / "train").mkdir(exist_ok=True)
        shutil.move(four_times / name, four_times / "train" / name)
        write(four_times / "test" / name / f"{name}test-0.png", 1000 + len(name) * ord(name[0]))
    shutil.copy(four_times / "train" / "low" / "0-0.png", four_times / "test" / "low" / "0-4.png")
    dataset = looked_at(data.read("folder", four_times, 1, 0.2), tmp_path)
    train, validation, test, calibration = originals_by_part(dataset)
    assert not train & validation | train & calibration | validation & calibration
    assert "0" in test & (train | validation | calibration)  # which was given


def test_groups_of_the_user_that_share_copies_are_one(tmp_path):
    rows = ["path,label,group"]
    for picture in range(40):
        write(tmp_path / f"{picture}.png", picture)
        rows.append(f"{picture}.png,{('low', 'high')[picture % 2]},{picture // 2}")
    shutil.copy(tmp_path / "0.png", tmp_path / "2.png")  # of group 0, and now of group 1
    shutil.copy(tmp_path / "3.png", tmp_path / "38.png")  # of group 1, and now of group 19
    (tmp_path / "photos.csv").write_text("\n".join(rows))
    for seed in range(10):
        dataset = looked_at(data.read("csv", tmp_path / "photos.csv", seed), tmp_path)
        part_of = {
            name: part
            for part, index in dataset.splits.by_name().items()
            for name in np.array(dataset.inputs.names)[index]
        }
        assert len({part_of[f"{i}.png"] for i in (0, 1, 2, 3, 38, 39)}) == 1


def test_too_few_different_images_are_said_and_not_refused(tmp_path):
    for name in ("low", "high"):
        for picture in range(10):
            write(tmp_path / "photos" / name / f"{picture}.png", 0)
    before = data.read("folder", tmp_path / "photos")
    after = looked_at(before, tmp_path)
    assert np.array_equal(after.splits.test, before.splits.test)
    assert any(
        "could not be kept in one part, since different images must" in note for note in after.notes
    )
    assert after.duplicates.with_copy_in_training["test"] == 4


def test_arrays_are_compared_and_their_split_is_reported(tmp_path):
    train = np.stack([np.array(noise(i).resize((28, 28))) for i in range(12)])
    test = np.stack([train[3], train[4][:, ::-1], np.array(noise(50).resize((28, 28)))])
    labels = np.arange(12) % 2
    np.savez(
        tmp_path / "photos.npz",
        train_images=train,
        train_labels=labels,
        val_images=np.stack([np.array(noise(60 + i).resize((28, 28))) for i in range(2)]),
        val_labels=np.array([0, 1]),
        test_images=test,
        test_labels=np.array([1, 1, 0]),
    )
    dataset = looked_at(data.read("npz", tmp_path / "photos.npz"), tmp_path)
    assert dataset.duplicates.with_copy_in_training == {"validation": 0, "test": 2}
    assert [[each[0] for each in group] for group in dataset.duplicates.contradicting] == [
        ["train/4", "test/1"]
    ]


def test_files_that_cannot_be_read_are_left_out_as_before(four_times, tmp_path):
    (four_times / "low" / "0-0.png").write_bytes(b"damaged")
    (four_times / "low" / "0-1.png").write_bytes(b"damaged")
    dataset = looked_at(data.read("folder", four_times), tmp_path)
    assert dataset.duplicates.copies == 88
    assert len(dataset.drop([0, 1]).inputs) == 118


def test_one_copy_is_said_in_the_singular():
    images = ImageFiles("photos", ["a.png", "b.png", "c.png", "d.png"])
    places = np.arange(4)
    dataset = Dataset(
        images,
        np.array([0, 1, 0, 1]),
        ("low", "high"),
        Splits(places[:2], places[2:3], places[3:]),
    )
    copies = Copies(np.array([0, -1, -1, 0]), np.array([False, False, False, True]))
    notes = DuplicateReport.of(dataset, copies).notes()
    assert notes[0].startswith("1 image is a copy of another (1 group; 1 with different labels)")
    assert notes[1] == "Of 1 test images 1 has a copy in training: numbers on them are too good"
    alone = replace(copies, group=np.full(4, -1))
    assert DuplicateReport.of(dataset, alone).notes() == ()
