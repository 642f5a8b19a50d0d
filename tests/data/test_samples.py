"""Samples as a user hands them over."""

import io
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from layline.data.index import find_bad
from layline.data.samples import as_images, as_rows
from layline.data.table_encoding import TableEncoding

FRAME = {"size": ["1", "2", "3"], "colour": ["red", "blue", "red"]}
ENCODING = TableEncoding.fit(pd.DataFrame(FRAME), np.arange(3))


def pixels(seed=0, height=6, width=5):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def files(tmp_path):
    for name in ("10.png", "9.png", "sub/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels(len(name))).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_path_is_one_image_and_is_decoded_when_asked_for(files, kind):
    found = as_images(kind(files / "9.png"))
    assert (len(found), found.names, found.decoded) == (1, (str(files / "9.png"),), False)
    np.testing.assert_array_equal(found.load(0), pixels(5))


def test_a_folder_is_its_images_in_natural_order(files):
    found = as_images(files)
    assert found.names == tuple(str(files / name) for name in ("9.png", "10.png", "sub/1.png"))


def test_paths_folders_arrays_and_pillow_images_may_stand_together(files):
    found = as_images([files / "9.png", files / "sub", pixels(1), Image.fromarray(pixels(2))])
    assert found.names == (str(files / "9.png"), str(files / "sub/1.png"), "2", "3")
    for index, seed in enumerate((5, 9, 1, 2)):
        np.testing.assert_array_equal(found.load(index), pixels(seed))


@pytest.mark.parametrize(
    "listing",
    [
        np.array,
        lambda paths: np.array(paths, dtype=object),
        lambda paths: np.array(paths, dtype=np.dtypes.StringDType()),
        lambda paths: pd.Series(paths, index=[7, 3]),
        lambda paths: pd.Series(paths, dtype="string"),
        lambda paths: pd.Series(paths, dtype="category"),
        lambda paths: pd.Series(map(Path, paths)),
        pd.Index,
    ],
)
def test_paths_in_an_array_or_a_column_are_those_in_a_list(files, listing):
    paths = [str(files / "9.png"), str(files / "10.png")]
    assert as_images(listing(paths)) == as_images(paths)
    assert as_images(listing(paths)[:0]) == as_images([])


def test_one_array_is_one_image_and_four_dimensions_are_many():
    assert len(as_images(pixels())) == 1
    batch = np.stack([pixels(0), pixels(1)])
    found = as_images(batch)
    assert (len(found), found.decoded) == (2, True)
    np.testing.assert_array_equal(found.load(1), pixels(1))


def test_a_torch_tensor_of_bytes_is_an_array():
    np.testing.assert_array_equal(as_images(torch.from_numpy(pixels())).load(0), pixels())


def test_grey_pixels_become_three_channels_and_every_mode_of_pillow_rgb():
    grey = pixels()[..., 0]
    np.testing.assert_array_equal(as_images(grey).load(0), grey[..., None].repeat(3, axis=2))
    image = Image.fromarray(grey).convert("LA")
    np.testing.assert_array_equal(as_images(image).load(0), grey[..., None].repeat(3, axis=2))


def test_no_samples_are_no_images():
    assert len(as_images([])) == 0


def test_a_subset_keeps_the_order_given(files):
    found = as_images([pixels(1), files / "9.png", pixels(2)]).subset(np.array([2, 1]))
    assert found.names == ("2", str(files / "9.png"))
    np.testing.assert_array_equal(found.load(0), pixels(2))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (pixels().astype(float), r"got float64 of shape \(6, 5, 3\)"),
        (pixels()[..., :2], r"got uint8 of shape \(6, 5, 2\) at place 0"),
        ([pixels(), pixels().transpose(2, 0, 1)], r"got uint8 of shape \(3, 6, 5\) at place 1"),
        (np.zeros((0, 5, 3), np.uint8), r"got uint8 of shape \(0, 5, 3\)"),
        (np.zeros((2, 2, 4, 4, 3), np.uint8), r"got uint8 of shape \(2, 2, 4, 4, 3\)"),
        (3, r"got int64 of shape \(\)"),
        (None, r"got object of shape \(\)"),
        ([[1, 2], [3, 4]], r"got int64 of shape \(2,\) at place 0"),
        (iter([pixels()]), r"got object of shape \(\)"),
    ],
)
def test_what_is_no_image_is_refused_with_its_type_and_shape(samples, message):
    with pytest.raises(ValueError, match="Images must be uint8 arrays.*" + message):
        as_images(samples)


def test_a_path_that_is_not_there_and_a_folder_without_images_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.png does not exist"):
        as_images(tmp_path / "no.png")
    with pytest.raises(ValueError, match="has no images"):
        as_images(tmp_path)


def test_why_a_file_is_bad_is_said_in_a_few_words(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("hello")
    found = as_images([tmp_path / "empty.png", tmp_path / "text.png", pixels()])
    with pytest.raises(ValueError, match=r"empty\.png cannot be read: empty file"):
        found.load(0)
    assert find_bad(found) == {0: "empty file", 1: "not an image"}


@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_columns_become_rows(make):
    rows = as_rows(make({"colour": ["blue", "green"], "size": [5, 6], "more": [0, 0]}), ENCODING)
    assert rows.names == ["row 0", "row 1"]
    np.testing.assert_array_equal(rows.values, [[5, 1, 0], [6, 0, 0]])


def test_a_csv_file_becomes_rows_called_by_their_id(tmp_path):
    (tmp_path / "a.csv").write_text("colour,size,who\nred,7,007\nblue,5,\n")
    encoding = replace(ENCODING, id_column="who")
    assert as_rows(tmp_path / "a.csv", encoding).names == ["007", "row 3"]
    assert as_rows({"colour": ["red"], "size": [7]}, encoding).names == ["row 0"]


def test_a_category_is_compared_as_it_is_written(tmp_path):
    frame = pd.DataFrame({"ward": ["01", "1", "x"]})
    encoding = TableEncoding.fit(frame, np.arange(3))
    (tmp_path / "a.csv").write_text("ward\n01\n1\n")
    assert (
        as_rows(tmp_path / "a.csv", encoding).values.tolist() == encoding.apply(frame[:2]).tolist()
    )


def test_columns_of_a_dict_belong_together_by_their_places():
    columns = {"colour": pd.Series(["red", "blue"], index=[5, 6]), "size": pd.Series([1, 2])}
    assert as_rows(columns, ENCODING).values[:, 0].tolist() == [1, 2]


def test_a_csv_file_becomes_rows_called_by_their_place_in_it(tmp_path):
    (tmp_path / "a.csv").write_text("colour;size\n\nred;7\n")
    rows = as_rows(tmp_path / "a.csv", ENCODING)
    assert rows.names == ["row 3"]
    np.testing.assert_array_equal(rows.values, [[7, 0, 1]])


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"size": [1]}, "no column 'colour', which"),
        ({"size": ["x"], "colour": ["red"]}, "size.*'x'"),
        ([1, 2], "a data frame or the path of a CSV file, not list"),
        (np.zeros((2, 2)), "a data frame or the path of a CSV file, not ndarray"),
        (pd.DataFrame(), "no column 'size'"),
        ({"size": 1, "colour": "red"}, "must be a table with the columns size, colour"),
        ({"size": [1, 2], "colour": ["red"]}, "must be a table with the columns size, colour"),
    ],
)
def test_what_is_no_table_of_the_model_is_refused(samples, message):
    with pytest.raises(ValueError, match=message):
        as_rows(samples, ENCODING)


def test_a_table_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.csv does not exist"):
        as_rows(tmp_path / "no.csv", ENCODING)


def png(seed=0):
    file = io.BytesIO()
    Image.fromarray(pixels(seed)).save(file, "PNG")
    return file


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        io.BytesIO,
        lambda content: io.BufferedReader(io.BytesIO(content)),
    ],
)
def test_what_a_file_holds_is_an_image(make):
    content = png().getvalue()
    one, many = as_images(make(content)), as_images([make(content), pixels(1), make(content)])
    assert (one.names, one.decoded) == (("0",), False)
    assert many.names == ("0", "1", "2")
    for index, seed in enumerate((0, 1, 0)):
        np.testing.assert_array_equal(many.load(index), pixels(seed))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(many)).load(2), pixels(0))


def test_an_open_file_is_read_from_its_beginning_and_called_by_its_name(files):
    with (files / "9.png").open("rb") as file:
        file.read(10)
        found = as_images([file])
    assert found.names == (str(files / "9.png"),)
    np.testing.assert_array_equal(found.load(0), pixels(5))
    written = png()  # which stands at its end
    np.testing.assert_array_equal(as_images(written).load(0), pixels(0))


def test_damaged_bytes_are_called_by_their_place():
    found = as_images([png(), png().getvalue()[:60], b"", b"text"]).subset(np.array([1, 2, 3]))
    for index, why in enumerate(("truncated or damaged", "empty file", "not an image")):
        with pytest.raises(ValueError, match=f"The image {index + 1} cannot be read: {why}"):
            found.load(index)
    assert list(find_bad(found)) == [0, 1, 2]


def test_a_file_of_text_and_one_that_is_closed_are_refused(files):
    with (files / "notes.txt").open() as file, pytest.raises(ValueError, match="Open it with 'rb'"):
        as_images([pixels(), file])
    with pytest.raises(ValueError, match="closed file"):
        as_images(file)


def test_what_a_folder_has_beside_images_is_known(files):
    assert [path.name for path in as_images(files).skipped] == ["notes.txt"]
    (files / "other").mkdir()
    (files / "other" / "a.dcm").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has no images\. .*1 \.dcm\. Save"):
        as_images(files / "other")


@pytest.mark.parametrize("make", [bytes, io.BytesIO])
def test_what_a_csv_file_or_a_workbook_holds_becomes_rows(tmp_path, make):
    content = b"colour;size\nred;7\n"
    assert as_rows(make(content), ENCODING).values.tolist() == [[7, 0, 1]]
    pd.DataFrame({"colour": ["red"], "size": [7]}).to_excel(tmp_path / "a.xlsx", index=False)
    content = (tmp_path / "a.xlsx").read_bytes()
    assert as_rows(make(content), ENCODING).values.tolist() == [[7, 0, 1]]
    assert as_rows(tmp_path / "a.xlsx", ENCODING).names == ["row 2"]
