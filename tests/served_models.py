"""Folders of runs that were never trained, with models that can be served, and images for them."""

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from PIL import Image

from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import TableEncoding
from layline.evaluation.prediction_file import write_predictions
from layline.model.calibration import Calibration
from layline.model.description import ModelDescription
from layline.training.run_folder import RunFolder

CLASSES = ("low", "mid", "high")
FRAME = pd.DataFrame({"size": [1.5, 2.0, None, 3.0], "colour": ["red", "blue", "red", "blue"]})


def encode_image(seed=0, form="PNG", height=20, width=26):
    """The file of an image of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def make_model(kind="images", method="arc", classes=CLASSES, calibrated=True, dim=4):
    """A model with random weights and made-up calibration samples."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    if kind == "images":
        inputs, name, options = ImagePreprocessing(16, 18), "convnet", {"channels": 4, "depth": 1}
    else:
        inputs, name = TableEncoding.fit(FRAME, np.arange(len(FRAME))), "mlp"
        options = {"in_features": len(inputs.columns), "hidden": [8], "encoded": [0], "bins": 3}
    calibration = Calibration()
    if calibrated:
        scores, ranks = rng.random(40) * 0.5, rng.integers(0, len(classes), 40)
        calibration = Calibration(1.3, scores, ranks)
    description = ModelDescription(name, method, dim, classes, inputs, options)
    model = replace(description, calibration=calibration).build()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor += 0.3 * torch.rand(tensor.shape)
    return model.eval()


def write_served(path, samples=50, **options):
    """Write the folder of a run: the model, its predictions for the test part, some numbers."""
    model = make_model(**options)
    path.mkdir(parents=True)
    folder, rng, classes = RunFolder(path), np.random.default_rng(1), model.classes
    model.save(folder.best)
    proba = rng.dirichlet(np.full(len(classes), 0.6), samples)
    columns = {
        "path": [f"{i}.png" for i in range(samples)],
        "true": [classes[i % len(classes)] for i in range(samples)],
        "predicted": [classes[rank] for rank in proba.argmax(axis=1)],
    }
    write_predictions(folder.predictions, columns, classes, proba, paths=True)
    numbers = {"samples": samples, "decode": "mode", "mae": 0.5, "accuracy": 0.625}
    numbers["calibration"] = {"temperature": 1.3}
    folder.test.write_text(json.dumps(numbers))
    counts = {"train": [10 * (rank + 1) for rank in range(len(classes))]}
    folder.environment.write_text(json.dumps({"data": "", "counts": counts}))
    return path
