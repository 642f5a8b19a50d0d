"""What is told of a model: ranges, who should look, and where samples lie."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import layline
from layline.evaluation.diagnostics import certainty
from layline.model.calibration import Calibration
from layline.model.model_file import load
from layline.model.predictor import Prediction
from layline.serve.served_model import Layout, ServedModel


def predicted(proba, features=None, chosen=None):
    proba = np.asarray(proba, dtype=np.float64)
    features = np.zeros((len(proba), 4), np.float32) if features is None else features
    chosen = proba.argmax(axis=1) if chosen is None else chosen
    return Prediction(np.arange(len(proba)), proba, chosen, features)


def test_so_many_of_the_test_part_would_be_marked(run):
    with (run / "predictions.csv").open() as file:
        proba = [
            [float(row[f"p_{name}"]) for name in ("low", "mid", "high")]
            for row in csv.DictReader(file)
        ]
    for share in (0.1, 0.2, 0.5):
        served = ServedModel(run, review=share)
        marked = [each["review"] for each in served.answers(predicted(proba))]
        assert sum(marked) == round(share * len(proba))
        sure = certainty(proba, np.argmax(proba, axis=1))
        assert max(sure[marked]) < min(sure[~np.array(marked)])
    assert ServedModel(run).review_share == 0.2
    assert all(each["review"] for each in ServedModel(run, review=1.0).answers(predicted(proba)))
    assert ServedModel(run, review=0.0).answers(predicted(proba))[0]["review"] is None


def test_a_new_temperature_moves_the_threshold(write_served, tmp_path):
    """The predictions of the run were made at the old one."""
    folder = write_served(tmp_path / "run")
    before = ServedModel(folder).review
    model = load(folder)
    calibration = replace(model.description.calibration, temperature=4.0)
    model.description = replace(model.description, calibration=calibration)
    model.save(folder / "best.safetensors")
    assert ServedModel(folder).review < before


def test_without_a_run_nobody_is_sent_to_a_person(run, make_model):
    for source in (run / "best.safetensors", make_model()):
        served = ServedModel(source)
        assert served.describe()["review"] is None
        with pytest.raises(ValueError, match="review must come with the folder of a finished run"):
            ServedModel(source, review=0.2)


def test_ranges_are_what_the_calibration_samples_can_promise(make_model):
    assert ServedModel(make_model()).coverage == 0.9
    assert ServedModel(make_model(), coverage=0.8).coverage == 0.8
    assert ServedModel(make_model(calibrated=False)).coverage is None
    few = make_model()
    few.description = replace(
        few.description, calibration=Calibration(1.0, np.ones(4), np.zeros(4, np.int64))
    )
    assert ServedModel(few).coverage == 0.8
    with pytest.raises(ValueError, match=r"coverage 0\.9 must have at least 9 calibration samples"):
        ServedModel(few, coverage=0.9)


def test_damaged_predictions_are_named(write_served, tmp_path):
    folder = write_served(tmp_path / "run")
    (folder / "predictions.csv").write_text("what\n")
    with pytest.raises(
        ValueError, match=r"predictions.csv must be as the run wrote it.*best\.safe"
    ):
        ServedModel(folder)


@pytest.mark.parametrize("method", layline.names())
def test_every_method_has_a_place_for_its_samples(method):
    """A proxy that is itself a sample is drawn where the proxy is."""
    head = layline.create(method, 5, 6).eval()
    layout = Layout.of(head)
    described = layout.to_json()
    json.dumps(described, allow_nan=False)
    shape = predicted(np.eye(5))
    if layout.kind == "mean":
        places = layout.places(shape)
        np.testing.assert_allclose(places[:, 0], np.arange(5))
        return
    with torch.no_grad():
        vectors = head.proxies().float().numpy()
    places = layout.places(predicted(np.eye(5), features=vectors))
    np.testing.assert_allclose(places, described["proxies"], atol=1e-5)
    assert places[-1, 0] > places[0, 0]  # from left to right
    if "linear" in method:
        assert layout.kind == "line"
        assert (np.diff(places[:, 0]) > 0).all()


def test_only_the_direction_counts_on_a_half_circle():
    head = layline.create("arc", 3, 6).eval()
    layout, vectors = Layout.of(head), np.random.default_rng(0).normal(size=(3, 6))
    near, far = (layout.places(predicted(np.eye(3), features=k * vectors)) for k in (1, 50))
    np.testing.assert_allclose(near, far)
    assert (np.linalg.norm(near, axis=1) <= 1 + 1e-9).all()
