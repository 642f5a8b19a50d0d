"""Model files that Layline 0.2.0 wrote still load and predict the same."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import layline

DATA = Path(__file__).parent / "data"


def pictures():
    """Four images by a formula."""
    y, x = np.mgrid[:24, :32]
    bands = [((7 * x + 3 * y * i), (x * y + 40 * i), (11 * y + i * x)) for i in range(1, 5)]
    return [np.stack(each, axis=-1).astype(np.uint8) for each in bands]


@pytest.mark.parametrize("kind", ["table", "images"])
def test_a_file_of_version_0_2_0_gives_the_same_predictions(kind, tmp_path):
    expected = json.loads((DATA / "model-0.2.0.json").read_text(encoding="utf-8"))[kind]
    samples = pd.DataFrame(expected["rows"]) if kind == "table" else pictures()
    old = layline.load(DATA / f"model-0.2.0-{kind}.safetensors")
    old.save(tmp_path / "new.safetensors")
    for model in (old, layline.load(tmp_path / "new.safetensors")):
        np.testing.assert_allclose(model.predict_proba(samples), expected["proba"], atol=1e-6)
        assert model.predict(samples).tolist() == expected["predicted"]
        if "range" in expected:
            ends = model.predict_range(samples, coverage=0.8)
            assert [end.tolist() for end in ends] == expected["range"]
