"""Ranges, samples to review, and shared batches."""

import asyncio
import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from layline.model.calibration import Calibration
from layline.model.model_file import load
from layline.model.predictor import Prediction
from layline.serve.served_model import Batcher, ServedModel
from served_models import make_model, write_served


def predict_reviews(served, proba):
    proba = np.asarray(proba, dtype=np.float64)
    names = [str(i) for i in range(len(proba))]
    prediction = Prediction(np.arange(len(proba)), proba, proba.argmax(axis=1))
    return [each.review for each in served.describe_samples(names, prediction)]


def test_the_least_certain_share_is_marked(run):
    with (run / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    proba = np.array([[float(row[f"p_{name}"]) for name in ("low", "mid", "high")] for row in rows])
    for share in (0.1, 0.2, 0.5):
        marked = np.array(predict_reviews(ServedModel(run, decode="mode", review=share), proba))
        assert marked.sum() == round(share * len(proba))
        assert proba.max(axis=1)[marked].max() < proba.max(axis=1)[~marked].min()
    assert ServedModel(run).review == 0.2
    assert all(predict_reviews(ServedModel(run, review=1.0), proba))
    assert predict_reviews(ServedModel(run, review=0.0), proba)[0] is None


def test_a_new_temperature_changes_the_threshold(tmp_path):
    folder = write_served(tmp_path / "run")
    before = ServedModel(folder).review_at_most
    model = load(folder)
    calibration = replace(model.description.calibration, temperature=4.0)
    model.description = replace(model.description, calibration=calibration)
    model.save(folder / "best.safetensors")
    assert ServedModel(folder).review_at_most < before


def test_review_needs_a_run(run):
    for source in (run / "best.safetensors", make_model()):
        assert ServedModel(source).review is None
        with pytest.raises(ValueError, match="review needs the folder of a finished run"):
            ServedModel(source, review=0.2)


def test_ranges_have_the_coverage_that_the_calibration_samples_guarantee():
    assert ServedModel(make_model()).coverage == 0.9
    assert ServedModel(make_model(), coverage=0.8).coverage == 0.8
    assert ServedModel(make_model(calibrated=False)).coverage is None
    few = make_model()
    few.description = replace(
        few.description, calibration=Calibration(1.0, np.ones(4), np.zeros(4, np.int64))
    )
    assert ServedModel(few).coverage == 0.8
    with pytest.raises(ValueError, match="at least 9 calibration samples"):
        ServedModel(few, coverage=0.9)


def test_concurrent_samples_share_batches():
    served, sizes = ServedModel(make_model("table")), []
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 4)))

    def predict(batch):
        sizes.append(len(batch))
        if len(batch) == 3:
            raise RuntimeError("bad batch")
        return served.predict(batch)

    async def run():
        batcher = Batcher(predict, batch_size=8)
        task = asyncio.create_task(batcher.run())
        found = await asyncio.gather(*(batcher.predict(x[i : i + 1]) for i in range(40)))
        with pytest.raises(RuntimeError, match="bad batch"):
            await batcher.predict(x[:3])
        again = await batcher.predict(x[:1])  # an error does not stop the batcher
        task.cancel()
        return found, again

    found, again = asyncio.run(run())
    expected = served.predict(x).proba
    np.testing.assert_allclose(np.concatenate([each.proba for each in found]), expected, atol=1e-6)
    np.testing.assert_allclose(again.proba, expected[:1], atol=1e-6)
    assert max(sizes) <= 8
    assert len(sizes) < 40
