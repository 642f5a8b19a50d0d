"""Folders of runs that were never trained: what a report reads, with contents of any size."""

import json
from types import SimpleNamespace

import numpy as np
import torch

from layline import heads
from layline.data.images import ImageArrays
from layline.evaluation.evaluate import evaluate_split
from layline.evaluation.predictions import Predictions
from layline.model.calibration import Calibration
from layline.training.config import ReportConfig, to_toml
from layline.training.recipes import resolve_config
from layline.training.report_data import choose_samples, take_snapshot, write_report_data
from layline.training.run_folder import RunFolder
from layline.utils.files import write_json


class Unloaded:
    """Samples with names and nothing to show, as rows of a table."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def subset(self, keep):
        return Unloaded([self.names[index] for index in keep])


def write_run(
    path,
    *,
    method="soft-poisson",
    classes=("low", "mid", "high"),
    samples=60,
    epochs=3,
    dim=6,
    images=True,
    names=None,
    recorded=True,
    ranges=False,
    never=None,
):
    """Write the folder of a run whose features spread out from epoch to epoch.

    ``recorded=False`` leaves out everything that ``report.enabled = false`` leaves out. With
    ``ranges`` the run is calibrated; the class ``never`` is never predicted.
    """
    rng, count = np.random.default_rng(0), len(classes)
    torch.manual_seed(0)
    head = heads.create(method, count, dim).eval()
    ranks = rng.integers(0, count, samples)
    names = list(names or (f"photos/{index:05}.jpg" for index in range(samples)))
    path.mkdir(parents=True)
    folder = RunFolder(path)
    config = {
        "data": {"source": "folder"},
        "backbone": {"name": "convnet", "weights": "none"},
        "head": {"method": method, "dim": dim},
        "training": {"epochs": epochs},
    }
    folder.config.write_text(to_toml(resolve_config(config)))
    directions, truth = rng.normal(size=(2, dim)), torch.tensor(ranks)

    def features(epoch):
        along = (ranks - (count - 1) / 2)[:, None] * directions[0]
        across = np.cos(ranks)[:, None] * directions[1]
        noise = rng.normal(size=(samples, dim))
        return torch.tensor(epoch * (along + across) / count + noise, dtype=torch.float32)

    best, keep = max(1, epochs - 1), choose_samples(samples, 2000, 0)
    with torch.no_grad():
        for epoch in range(1, epochs + 1):
            found = features(epoch)
            if recorded:
                snapshot = take_snapshot(found[keep], keep, truth, head.predict(found), head)
                snapshot.save(folder.layout(epoch))
        tested = features(best)
        decisions, log_probs = head.decisions(tested), head.log_probs(tested)
    if never is not None:
        for rank in decisions.values():
            rank[rank == never] = never - 1 if never else 1
    fitted = Calibration.fit(None, (log_probs, truth))
    calibration = Calibration(1.7, fitted.scores, fitted.ranks) if ranges else Calibration()
    description = SimpleNamespace(
        calibration=calibration, classes=classes, is_table=False, inputs=None
    )
    counts = np.bincount(ranks, minlength=count).tolist()
    counts = dict.fromkeys(("train", "validation", "test"), counts)
    measured = evaluate_split(
        *(
            "test",
            truth,
            names,
            Predictions(log_probs, decisions, features=tested[keep]),
            description,
            "mode",
        ),
        facts={"epoch": best},
        train_counts=counts["train"],
    )
    write_json(folder.test, measured.numbers)
    measured.write_predictions(folder.predictions)
    folder.write_history(
        [
            {
                "epoch": epoch,
                "train_loss": 2 / epoch,
                "validation_loss": 2.2 / epoch,
                "validation_mae": 1.5 / epoch if epoch <= best else 2.0,
                "validation_accuracy": 1 - 1 / (epoch + 1),
            }
            for epoch in range(1, epochs + 1)
        ]
    )
    environment = {"command": ["layline", "train"], "layline": "0", "torch": "2", "python": "3"}
    environment |= {"counts": counts, "data": "0"}
    folder.environment.write_text(json.dumps(environment))
    if not recorded:
        return path
    pixels = rng.integers(0, 256, (samples, 24, 32), dtype=np.uint8)
    inputs = ImageArrays(pixels, names) if images else Unloaded(names)
    model = SimpleNamespace(head=head, description=description)
    write_report_data(folder, measured, inputs, keep, model, ReportConfig())
    return path
