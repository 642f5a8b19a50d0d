"""Samples as a user passes them to a model."""

import io
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from layline.data.image_cache import find_bad
from layline.data.images import as_images
from layline.data.tables import TableEncoding, as_rows

FRAME = {"size": ["1", "2", "3"], "colour": ["red", "blue", "red"]}
ENCODING = TableEncoding.fit(pd.DataFrame(FRAME), np.arange(3))


def pixels(seed=0, height=6, width=5):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(seed=0):
    file = io.BytesIO()
    Image.fromarray(pixels(seed)).save(file, "PNG")
    return file


@pytest.fixture
def files(tmp_path):
    for name in ("10.png", "9.png", "sub/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels(len(name))).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def test_paths_folders_arrays_and_pillow_images_may_stand_together(files):
    one = as_images(str(files / "9.png"))
    assert (one.names, one.decoded) == ((str(files / "9.png"),), False)
    found = as_images(files)
    assert found.names == tuple(str(files / name) for name in ("9.png", "10.png", "sub/1.png"))
    assert [path.name for path in found.skipped] == ["notes.txt"]
    found = as_images([files / "9.png", files / "sub", pixels(1), Image.fromarray(pixels(2))])
    assert found.names == (str(files / "9.png"), str(files / "sub/1.png"), "2", "3")
    for index, seed in enumerate((5, 9, 1, 2)):
        np.testing.assert_array_equal(found.load(index), pixels(seed))
    few = found.subset(np.array([3, 0]))
    assert few.names == ("3", str(files / "9.png"))
    assert len(as_images([])) == 0


@pytest.mark.parametrize(
    "listing",
    [
        np.array,
        lambda paths: np.array(paths, dtype=np.dtypes.StringDType()),
        lambda paths: pd.Series(paths, index=[7, 3]),
    ],
)
def test_paths_in_an_array_or_a_column_are_those_in_a_list(files, listing):
    paths = [str(files / "9.png"), str(files / "10.png")]
    assert as_images(listing(paths)).names == tuple(paths)


def test_one_array_is_one_image_and_four_dimensions_are_many():
    assert len(as_images(pixels())) == 1
    many = as_images(torch.from_numpy(np.stack([pixels(0), pixels(1)])))
    assert (len(many), many.decoded) == (2, True)
    np.testing.assert_array_equal(many.load(1), pixels(1))
    gray = as_images([pixels()[..., 0], Image.fromarray(pixels()).convert("LA")])
    assert [gray.load(i).shape for i in range(2)] == [(6, 5, 3)] * 2


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (pixels().astype(float), r"got float64 of shape \(6, 5, 3\)"),
        ([pixels(), pixels().transpose(2, 0, 1)], r"got uint8 of shape \(3, 6, 5\) at place 1"),
        (np.zeros((0, 5, 3), np.uint8), r"got uint8 of shape \(0, 5, 3\)"),
        (None, r"got object of shape \(\)"),
        ([[1, 2], [3, 4]], r"got int64 of shape \(2,\) at place 0"),
    ],
)
def test_what_is_no_image_is_refused_with_its_type_and_shape(samples, message):
    with pytest.raises(ValueError, match="Images must be uint8 arrays.*" + message):
        as_images(samples)


def test_a_missing_path_and_a_folder_without_images_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.png does not exist"):
        as_images(tmp_path / "no.png")
    (tmp_path / "a.dcm").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has no images\. .*1 \.dcm\. Save"):
        as_images(tmp_path)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, io.BytesIO])
def test_the_content_of_a_file_is_an_image(files, make):
    content = png().getvalue()
    many = as_images([make(content), pixels(1), make(content)])
    assert (many.names, many.decoded) == (("0", "1", "2"), False)
    for index, seed in enumerate((0, 1, 0)):
        np.testing.assert_array_equal(many.load(index), pixels(seed))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(many)).load(2), pixels(0))
    with (files / "9.png").open("rb") as file:
        file.read(10)
        found = as_images(file)  # from its beginning
    assert found.names == (str(files / "9.png"),)
    np.testing.assert_array_equal(found.load(0), pixels(5))
    with (files / "notes.txt").open() as file, pytest.raises(ValueError, match="Open it with 'rb'"):
        as_images([pixels(), file])


def test_damaged_files_and_bytes_are_named_with_the_reason(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    found = as_images([png(), tmp_path / "empty.png", png().getvalue()[:60], b"text"])
    bad = find_bad(found)
    assert (bad[1], bad[2][:9], bad[3]) == ("empty file", "truncated", "not an image")
    with pytest.raises(ValueError, match=r"empty\.png cannot be read: empty file"):
        found.load(1)
    with pytest.raises(ValueError, match="The image 2 cannot be read: truncated or damaged"):
        found.load(2)


@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_columns_become_rows(make):
    rows = as_rows(make({"colour": ["blue", "green"], "size": [5, 6], "more": [0, 0]}), ENCODING)
    assert rows.names == ["row 0", "row 1"]
    np.testing.assert_array_equal(rows.values, [[5, 1, 0], [6, 0, 0]])
    columns = {"colour": pd.Series(["red", "blue"], index=[5, 6]), "size": pd.Series([1, 2])}
    assert as_rows(columns, ENCODING).values[:, 0].tolist() == [1, 2]  # together by place


def test_arrays_are_rows_of_a_model_with_numbers_only():
    encoding = replace(ENCODING, categorical=())
    assert as_rows(np.array([[4.0], [5.0]]), encoding).values.tolist() == [[4], [5]]
    with pytest.raises(ValueError, match="with the columns size"):
        as_rows(np.zeros((2, 2)), encoding)


@pytest.mark.parametrize("make", [bytes, io.BytesIO, None])
def test_a_file_becomes_rows_named_by_their_id_or_number(tmp_path, make):
    pd.DataFrame({"colour": ["red"], "size": [7], "who": ["x"]}).to_excel(
        tmp_path / "a.xlsx", index=False
    )
    (tmp_path / "a.csv").write_text("colour;size;who\n\nred;7;007\nblue;5;\n")
    encoding = replace(ENCODING, id_column="who")
    for name, names in (("a.csv", ["007", "row 4"]), ("a.xlsx", ["x"])):
        path = tmp_path / name
        rows = as_rows(path if make is None else make(path.read_bytes()), encoding)
        assert rows.names == names
        assert rows.values[0].tolist() == [7, 0, 1]
    with pytest.raises(FileNotFoundError, match=r"no\.csv does not exist"):
        as_rows(tmp_path / "no.csv", ENCODING)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"size": [1]}, "no column 'colour', which"),
        ({"size": ["x"], "colour": ["red"]}, "size.*'x'"),
        ([1, 2], "must be a data frame or the path of a CSV file.* got list"),
        (np.zeros((2, 2)), "must be a data frame .* got ndarray"),
        ({"size": 1, "colour": "red"}, "with the columns size, colour"),
        ({"size": [1, 2], "colour": ["red"]}, "with the columns size, colour"),
    ],
)
def test_what_is_no_table_of_the_model_is_refused(samples, message):
    with pytest.raises(ValueError, match=message):
        as_rows(samples, ENCODING)
