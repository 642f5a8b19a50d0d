"""Every method trains with the default recipe; its model is saved, loaded and predicts."""

import numpy as np
import pandas as pd
import pytest

import layline
from layline.heads import names


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_model_of_the_default_recipe_predicts_after_loading(name, ratings, tmp_path):
    off = {"report": {"enabled": False}}
    run = layline.train(
        ratings, label="grade", method=name, epochs=2, device="cpu", out=tmp_path / "run",
        settings=off, verbose=False,
    )  # fmt: skip
    assert run.metrics["samples"] > 0
    model = layline.load(run.folder)
    assert all(tensor.isfinite().all() for tensor in model.head.state_dict().values())
    model.save(tmp_path / "model.safetensors")
    features = pd.read_csv(ratings)[["a", "b"]].to_numpy()[:19]
    probabilities = layline.load(tmp_path / "model.safetensors").predict_proba(features)
    assert probabilities.shape == (19, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
