"""A model as a user has it: from samples of any kind to labels."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import layline
from layline.geometry.decoding import DECODINGS
from layline.model.calibration import Calibration
from served_models import make_model

CLASSES = ("low", "mid", "high", "top")
FRAME = pd.DataFrame({"size": [1.5, 2.0, None], "colour": ["red", "blue", "red"]})


def pixels(seed=0, height=20, width=26):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def convnet():
    return make_model(method="soft-poisson", classes=CLASSES, calibrated=False)


def table():
    return make_model("table", "hard-semicircular", CLASSES, calibrated=False)


@pytest.fixture
def files(tmp_path):
    for seed in range(3):
        Image.fromarray(pixels(seed)).save(tmp_path / f"{seed}.png")
    return tmp_path


def test_every_way_to_give_images_gives_the_same_probabilities(files):
    model = convnet()
    arrays = [pixels(seed) for seed in range(3)]
    paths = [files / f"{seed}.png" for seed in range(3)]
    expected = model.predict_proba(arrays)
    assert expected.shape == (3, 4)
    np.testing.assert_allclose(expected.sum(axis=1), 1, rtol=1e-12)
    for samples in (
        np.stack(arrays),
        paths,
        [str(path) for path in paths],
        tuple(paths),
        files,
        str(files),
        [Image.open(path) for path in paths],
        [arrays[0], paths[1], Image.fromarray(arrays[2])],
    ):
        np.testing.assert_array_equal(model.predict_proba(samples), expected)
    for samples in (arrays[0], paths[0], str(paths[0]), Image.fromarray(arrays[0])):
        np.testing.assert_allclose(model.predict_proba(samples), expected[:1], atol=1e-6)


def test_every_way_to_give_a_table_gives_the_same_probabilities(tmp_path):
    model = table()
    expected = model.predict_proba(FRAME)
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    for samples in (FRAME.to_dict("list"), tmp_path / "a.csv", str(tmp_path / "a.csv")):
        np.testing.assert_array_equal(model.predict_proba(samples), expected)
    assert len(np.unique(expected, axis=0)) == 3


@pytest.mark.parametrize("decode", DECODINGS)
def test_predict_names_the_class_that_the_decoding_chooses(decode):
    model = convnet()
    images = [pixels(seed) for seed in range(20)]
    ranks = DECODINGS[decode](torch.from_numpy(model.predict_proba(images)))
    assert model.predict(images, decode).tolist() == [CLASSES[rank] for rank in ranks]


def test_an_image_that_cannot_be_decoded_stops_or_is_marked(files):
    (files / "1.png").write_bytes(b"")
    model = convnet()
    with pytest.raises(ValueError, match=r"1\.png.*empty file"):
        model.predict(files)
    samples = model.read(files)
    (answer,) = model.stream(samples, keep_going=True)
    assert answer.index.tolist() == [0, ~1, 2]
    assert len(samples.names) == 3


def test_samples_of_the_other_kind_are_refused():
    with pytest.raises(ValueError, match="The model takes rows of a table"):
        list(table().stream(convnet().read(pixels())))


def test_a_calibrated_model_keeps_its_certainty_in_the_file(tmp_path):
    model = table()
    scores, ranks = np.random.default_rng(0).uniform(0, 3, 40), np.arange(40) % 4
    model.description = dataclasses.replace(
        model.description,
        calibration=Calibration(0.5, scores, ranks),
        decode=((0.0, 1.0, 1.0, 1.0), (1.0, 0.0, 1.0, 1.0), (1.0, 1.0, 0.0, 1.0), (9.0,) * 4),
    )
    model.save(tmp_path / "model.safetensors")
    again = layline.load(tmp_path / "model.safetensors")
    assert again.description.decode == model.description.decode
    assert np.array_equal(again.predict_proba(FRAME), model.predict_proba(FRAME))
    low, high = again.predict_range(FRAME, coverage=0.9)
    chosen = again.predict(FRAME)
    places = [[CLASSES.index(name) for name in names] for names in (low, chosen, high)]
    assert (np.diff(places, axis=0) >= 0).all()
    proba, calibration = model.predict_proba(FRAME), model.description.calibration
    assert np.array_equal(places[::2], calibration.ranges(proba, np.array(places[1]), 0.9))


def test_a_temperature_sharpens_the_probabilities_of_a_model():
    model = table()
    before, mode = model.predict_proba(FRAME), model.predict(FRAME)
    model.description = dataclasses.replace(model.description, calibration=Calibration(0.5))
    expected = before**2 / (before**2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(FRAME), expected, rtol=1e-5)
    assert np.array_equal(model.predict(FRAME), mode)
    median = [CLASSES[rank] for rank in (expected.cumsum(axis=1) >= 0.5).argmax(axis=1)]
    assert model.predict(FRAME, decode="median").tolist() == median
