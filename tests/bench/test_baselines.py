"""Baselines are fitted, tuned and calibrated on the same splits as our methods."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

from layline import metrics
from layline.bench import baselines
from layline.bench.grid import Grid
from layline.bench.statistics import select_runs
from layline.bench.store import Store
from layline.evaluation.diagnostics import measure_ranges
from layline.geometry.decoding import decide
from layline.model.calibration import Calibration, apply_temperature, fit_temperature

SURE = {  # without a penalty it is overconfident
    "name": "sure",
    "estimator": "sklearn.linear_model:LogisticRegression",
    "options": {"C": 1000.0},
}


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    """A table with four grades, large enough for ranges with a coverage of 90 %."""
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 12))
    rank = np.digitize(x[:, 0] + x[:, 1] + rng.normal(size=400), [-1.2, 0, 1.2])
    names = ",".join([*(f"c{i}" for i in range(12)), "grade"])
    np.savetxt(path, np.column_stack([x, rank]), "%.4f," * 12 + "%d", header=names, comments="")
    return path


def grid_of(root, *given, calibrate=True, calibration=0.15, **more):
    entry = {"name": "t", "source": "table", "root": str(root), "options": {"label": "grade"}}
    return Grid.model_validate(
        {
            "data": [entry],
            "methods": [],
            "recipes": ["paper"],
            "decodings": ["mode", "median"],
            "settings": {
                "data": {"calibration": calibration},
                "training": {"epochs": 1, "device": "cpu", "calibrate": calibrate},
            },
            "baselines": list(given),
            **more,
        }
    )


@pytest.fixture
def fit(tmp_path, go, monkeypatch):
    """Run a grid; give the numbers by setting, and a function that gives the rows of a split."""
    seen = {}
    prepare_run = baselines.prepare_run

    def record(*arguments, **options):
        seen["run"] = prepare_run(*arguments, **options)
        return seen["run"]

    monkeypatch.setattr(baselines, "prepare_run", record)

    def call(grid):
        assert go(grid, tmp_path)[0] == []
        store, dataset = Store(tmp_path), seen["run"].dataset
        found = {
            cell.labels["setting"]: json.loads(store.run_folder(cell).test.read_text())
            for cell in grid.cells()
        }

        def split(name):
            index = getattr(dataset.splits, name)
            return dataset.inputs.values[index], dataset.ranks[index]

        return found, split

    return call


def log_proba(model, x):
    return torch.from_numpy(model.predict_proba(x)).log()


def test_probabilities_are_calibrated_on_the_same_splits_as_ours(scores, fit):
    numbers, split = fit(grid_of(scores, SURE))
    (found,) = numbers.values()
    model = LogisticRegression(C=1000.0).fit(*split("train"))
    (x, ranks), (other, others) = split("validation"), split("calibration")
    temperature = fit_temperature(log_proba(model, x), torch.from_numpy(ranks))
    assert temperature > 1.05
    assert found["calibration"]["temperature"] == pytest.approx(temperature)
    rows, truth = split("test")
    proba = apply_temperature(log_proba(model, rows), temperature).exp().numpy()
    assert found["nll"] == pytest.approx(metrics.log_loss(truth, proba))
    assert found["nll"] < found["calibration"]["before"]["nll"]
    decoded = decide(torch.from_numpy(proba), "median").numpy()
    assert found["by_decoding"]["median"]["mae"] == pytest.approx(np.abs(decoded - truth).mean())
    unseen = apply_temperature(log_proba(model, other), temperature), torch.from_numpy(others)
    expected = measure_ranges(Calibration.fit(None, unseen), truth, proba.argmax(axis=1), proba)
    assert 0.9 in {each["coverage"] for each in expected}
    for each, known in zip(found["ranges"], expected, strict=True):
        for name in ("coverage", "measured", "width"):
            assert each[name] == pytest.approx(known[name])


def test_predictions_without_probabilities_are_rounded(scores, fit):
    numbers, split = fit(grid_of(scores, "sklearn.linear_model:Ridge(alpha=2.0)"))
    (found,) = numbers.values()
    rows, truth = split("test")
    ranks = np.round(Ridge(alpha=2.0).fit(*split("train")).predict(rows)).clip(0, 3)
    assert found["mae"] == pytest.approx(np.abs(ranks - truth).mean())
    assert found["ranges"] == []
    assert "calibration" not in found
    assert [found[name] for name in ("nll", "ece", "rps")] == [None] * 3


def test_a_probability_of_zero_does_not_choose_the_temperature(scores, fit):
    name = "sklearn.tree:DecisionTreeClassifier(max_depth=4, min_samples_leaf=5)"
    numbers, split = fit(grid_of(scores, name))
    (found,) = numbers.values()
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=5, random_state=0)
    tree.fit(*split("train"))
    x, ranks = split("validation")
    log_probs, truth = log_proba(tree, x), torch.from_numpy(ranks)
    possible = log_probs[torch.arange(len(truth)), truth].isfinite()
    assert not possible.all()
    wanted = fit_temperature(log_probs[possible], truth[possible])
    assert found["calibration"]["temperature"] == pytest.approx(wanted)


def test_validation_chooses_the_tuned_value(scores, fit, tmp_path, results):
    tuned = {**SURE, "name": "tuned", "options": {}, "tune": {"C": [1e-4, 0.1, 1000.0]}}
    grid = grid_of(scores, tuned)
    _, split = fit(grid)
    frame = results(grid, tmp_path)
    x, ranks = split("validation")
    for setting, rows in frame.groupby("setting"):
        model = LogisticRegression(C=float(setting[2:])).fit(*split("train"))
        assert rows["criterion"].iloc[0] == pytest.approx(np.abs(model.predict(x) - ranks).mean())
    (criterion,) = select_runs(frame)["criterion"].unique()
    assert criterion == frame["criterion"].min()
    plain = grid_of(scores, SURE).cells()[0]
    assert plain.key in {cell.key for cell in grid.cells()}  # the same estimator


def test_runs_of_a_baseline_do_not_depend_on_settings_of_ours(scores):
    tune = {"training.learning_rate": [0.01, 0.001]}
    cells = grid_of(scores, SURE, methods=["classification"], tune=tune).cells()
    assert [cell.baseline is None for cell in cells] == [True, True, False]
    other = {"training": {"learning_rate": 0.5, "epochs": 9}, "data": {"calibration": 0.15}}
    other["training"] |= {"device": "cpu", "calibrate": True}
    assert grid_of(scores, SURE, settings=other).cells()[0].key == cells[2].key


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sklearn", "MODULE:NAME"),
        ("sklearn.nothing:A", "sklearn.nothing"),
        ("sklearn.svm:Svc", "sklearn.svm:Svc does not exist"),
        ("sklearn.svm:SVC(1)", "arguments need names"),
        ("sklearn.svm:SVC(c=1)", "unexpected keyword"),
        ("sklearn.preprocessing:StandardScaler", "must have fit and predict_proba or predict"),
        ("math:pi", "not callable"),
        ({**SURE, "tune": {"c": [1.0]}}, "unexpected keyword"),
        ({**SURE, "tune": {"C": []}}, "at least 1 item"),
    ],
)
def test_a_wrong_baseline_is_refused_before_any_run(scores, given, message):
    with pytest.raises(ValueError, match=message):
        grid_of(scores, given).cells()


def test_a_baseline_needs_a_table_or_frozen_features():
    entry = {"name": "photos", "source": "photo-quality"}
    grid = Grid(data=[entry], methods=["sord"], baselines=["sklearn.svm:SVC"])
    with pytest.raises(ValueError, match="photos, SVC: Baselines need a table or frozen features"):
        grid.cells()
