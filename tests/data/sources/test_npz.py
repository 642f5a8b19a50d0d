"""Images in npz files."""

import pickle

import numpy as np
import pytest

from layline.data import KnownInputs, draw_splits, read


def save(folder, counts=(("train", 30), ("val", 6), ("test", 9)), shape=(4, 4, 3), **changed):
    arrays = {}
    for name, count in counts:
        rng = np.random.default_rng(count)
        arrays[f"{name}_images"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"{name}_labels"] = (np.arange(count) % 3).astype(np.uint8)[:, None]
    arrays |= changed
    np.savez(folder / "x.npz", **{name: a for name, a in arrays.items() if a is not None})
    return folder / "x.npz"


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 4), (4, 4, 1)])
def test_the_arrays_of_medmnist_are_read(tmp_path, shape):
    path = save(tmp_path, shape=shape)
    dataset = read("npz", tmp_path)
    dataset.check_complete()
    assert dataset.classes == ("0", "1", "2")
    splits = dataset.splits.by_name().values()
    assert [len(index) for index in splits] == [30, 6, 9]
    with np.load(path) as archive:
        for name, index in zip(("train", "val", "test"), splits, strict=True):
            assert [dataset.inputs.names[i] for i in index[:2]] == [f"{name}/0", f"{name}/1"]
            assert dataset.ranks[index].tolist() == archive[f"{name}_labels"].ravel().tolist()
            pixels = archive[f"{name}_images"][1].reshape(4, 4, -1)
            assert (dataset.inputs.load(int(index[1])) == pixels).all()


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (("x_train", "y_train"), [35, 5, 10]),
        (("images", "labels"), [35, 5, 10]),
        (("X", "Y"), [35, 5, 10]),
    ],
)
def test_the_names_of_keras_and_plain_names_are_known(tmp_path, names, sizes):
    labels = np.arange(50) % 3
    images = np.zeros((50, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", **dict(zip(names, (images, labels), strict=True)))
    dataset = draw_splits(read("npz", tmp_path / "x.npz", classes="low,mid,high"), 0)
    assert dataset.classes == ("low", "mid", "high")
    assert [len(index) for index in dataset.splits.by_name().values()] == sizes


def test_integers_are_matched_with_the_classes_of_a_model(tmp_path):
    known = KnownInputs(("low", "mid", "high", "top"))
    dataset = read("npz", save(tmp_path), known=known)
    assert dataset.classes == known.classes
    assert dataset.ranks.max() == 2
    other = read("npz", save(tmp_path), known=KnownInputs(("2", "1", "0")))
    assert other.ranks[:3].tolist() == [2, 1, 0]


def test_nothing_in_a_file_is_executed(tmp_path):
    labels = np.array([None] * 30)
    with pytest.raises(ValueError, match="cannot be read as an npz file"):
        read("npz", save(tmp_path, train_labels=labels))


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps([1]), b"PK\x03\x04zip"])
def test_a_file_that_is_no_npz_file_is_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as an npz file"):
        read("npz", tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": np.zeros((30, 4, 4), np.float32)}, "train images must be uint8"),
        ({"train_images": np.zeros((30, 4, 4, 4), np.uint8)}, "train images must be uint8"),
        ({"train_images": np.zeros((30, 5, 5, 3), np.uint8)}, "different sizes"),
        ({"train_labels": np.zeros(29, int)}, "train labels must be integers of shape"),
        ({"train_labels": np.zeros(30)}, "train labels must be integers"),
        ({"train_labels": None}, "Expected arrays: train_images"),
        ({"images": np.zeros((1, 4, 4), np.uint8)}, "Expected arrays"),
        ({"train_labels": np.arange(30) % 3 * 2}, "without a gap"),
    ],
)
def test_arrays_of_another_kind_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read("npz", save(tmp_path, **changed))
    with pytest.raises(ValueError, match="2 names for 3 different labels"):
        read("npz", save(tmp_path), classes="a,b")
