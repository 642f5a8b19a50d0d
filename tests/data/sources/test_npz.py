import io
import pickle
import zipfile

import numpy as np
import pytest
from numpy.lib.format import write_array_header_1_0

from layline.data import read
from layline.data.sources.npz import read_npz


def part(count, *shape, classes=3):
    pixels = np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)
    return pixels, (np.arange(count) % classes).astype(np.uint8)[:, None]


def save(folder, counts=(("train", 30), ("val", 6), ("test", 9)), shape=(4, 4, 3), **changed):
    arrays = {}
    for name, count in counts:
        arrays[f"{name}_images"], arrays[f"{name}_labels"] = part(count, *shape)
    arrays |= changed
    np.savez(folder / "x.npz", **{name: a for name, a in arrays.items() if a is not None})
    return folder / "x.npz"


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 4)])
def test_the_arrays_of_medmnist_are_read(tmp_path, shape):
    path = save(tmp_path, shape=shape)
    data = read("npz", path)
    data.check_complete()
    assert data.classes == ("0", "1", "2")
    parts = list(data.splits.by_name().values())
    assert [len(p) for p in parts] == [30, 6, 9]
    with np.load(path) as archive:
        for name, indices in zip(("train", "val", "test"), parts, strict=True):
            assert [data.inputs.names[i] for i in indices[:2]] == [f"{name}/0", f"{name}/1"]
            assert data.ranks[indices].tolist() == archive[f"{name}_labels"].ravel().tolist()
            pixels = archive[f"{name}_images"][1].reshape(4, 4, -1)  # grey is the same thrice
            assert (data.inputs.load(int(indices[1])) == pixels).all()


def test_the_classes_may_be_named(tmp_path):
    assert read_npz(save(tmp_path), classes="low,mid,high").classes == ("low", "mid", "high")
    with pytest.raises(ValueError, match="classes must name the 3 labels, got 2: low, high"):
        read_npz(tmp_path, classes="low,high")


def test_without_validation_it_is_taken_from_training(tmp_path):
    data = read_npz(save(tmp_path, counts=[("train", 30), ("test", 9)]))
    assert [len(p) for p in data.splits.by_name().values()] == [27, 3, 9]
    assert any("No validation part was given" in note for note in data.notes)


def test_the_names_of_keras_and_plain_names_are_known(tmp_path):
    (x, y), (x2, y2) = part(30, 4, 4, 1), part(9, 4, 4, 1)
    np.savez(tmp_path / "k.npz", x_train=x, y_train=y[:, 0], X_test=x2, y_test=y2, extra=[1])
    data = read_npz(tmp_path / "k.npz")
    assert (len(data.partition.test), data.inputs.names[-1]) == (9, "test/8")
    np.savez(tmp_path / "p.npz", images=x, labels=y)
    data = read_npz(tmp_path / "p.npz")
    assert [len(p) for p in data.splits.by_name().values()] == [21, 3, 6]
    assert data.inputs.names[7] == "7"


def test_nothing_in_a_file_is_executed(tmp_path):
    objects = np.array([{"a": 1}] * 30, dtype=object)
    with pytest.raises(
        ValueError, match=r"must be an .npz file of plain arrays, got .*allow_pickle"
    ):
        read_npz(save(tmp_path, train_labels=objects))
    (tmp_path / "p.npz").write_bytes(pickle.dumps([1]))
    with pytest.raises(ValueError, match=r"must be an .npz file of plain arrays"):
        read_npz(tmp_path / "p.npz")


def test_what_is_not_an_npz_file_is_refused(tmp_path):
    whole = save(tmp_path).read_bytes()
    np.save(tmp_path / "y.npy", np.zeros(3))
    (tmp_path / "y.npy").rename(tmp_path / "y.npz")
    with pytest.raises(ValueError, match="one array without a name"):
        read_npz(tmp_path / "y.npz")
    for content in (b"", whole[:500], whole[:-400], b"nothing"):
        (tmp_path / "z.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"must be an .npz file of plain arrays"):
            read_npz(tmp_path / "z.npz")


X, Y = part(30, 4, 4, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": X / 255}, r"train images must be uint8 .* got float64 \(30, 4, 4, 3\)"),
        ({"train_images": X[..., :2]}, r"train images must be .* got uint8 \(30, 4, 4, 2\)"),
        ({"train_images": X[:, :, :, :, None]}, r"train images must be .* \(30, 4, 4, 3, 1\)"),
        ({"train_images": X[:, :3]}, r"one size in every part, got \(3, 4, 3\) and \(4, 4, 3\)"),
        ({"train_images": X[:29]}, r"train labels must be integers of the shape \(29,\)"),
        ({"train_labels": Y * 1.0}, r"labels must be integers .* got float64 \(30, 1\)"),
        ({"train_labels": np.hstack([Y, Y])}, r"one rank for each image"),
        ({"train_labels": Y + 1}, "validation part must have classes of the train .* got 0"),
        ({"train_labels": None}, "images and labels of each part, got train_images, val_images"),
        ({"images": X, "labels": Y}, "images and labels of each part, got"),
        ({"x_train": X}, "images and labels of each part, got"),
    ],
)
def test_arrays_of_another_kind_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_npz(save(tmp_path, **changed))


@pytest.mark.parametrize("values", [[0, 2], [1, 2], [-1, 0]])
def test_labels_are_ranks(tmp_path, values):
    labels = np.resize(values, 30)
    np.savez(tmp_path / "x.npz", images=X, labels=labels)
    with pytest.raises(ValueError, match=f"0, 1, … without a gap, got {values[0]}, {values[1]}"):
        read_npz(tmp_path)


def test_a_file_without_images_is_answered_with_what_is_expected(tmp_path):
    np.savez(tmp_path / "x.npz", a=[1])
    with pytest.raises(ValueError, match="got none of them: expected are train_images"):
        read_npz(tmp_path)


def header(shape):
    file = io.BytesIO()
    write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize("shape", [(40_000_000, 32, 32), (10**30,), (0, 10**30, 3), (2**62, 8, 8)])
def test_an_array_that_claims_more_than_it_has_is_refused_by_its_header(tmp_path, shape):
    path = save(tmp_path, train_images=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("train_images.npy", header(shape) + b"few")
    with pytest.raises(ValueError, match=r"train_images claims .*, and has .*: expected are"):
        read_npz(path)
