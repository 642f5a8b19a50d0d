"""Competitors are tuned and calibrated like methods of ours."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from layline import data, metrics
from layline.bench.baselines import Competitor
from layline.bench.grid import Grid
from layline.bench.results import select_runs
from layline.bench.store import Store
from layline.geometry.decoding import decide
from layline.model.calibration import (
    Calibration,
    apply_temperature,
    fit_temperature,
    measure_ranges,
)

SURE = {  # without a penalty it is too sure of itself
    "name": "sure",
    "estimator": "sklearn.linear_model:LogisticRegression",
    "options": {"C": 1000.0},
}


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    """A table with four grades, large enough for a calibration part that promises 90 %."""
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 12))
    rank = np.digitize(x[:, 0] + x[:, 1] + rng.normal(size=400), [-1.2, 0, 1.2])
    lines = [",".join(f"{v:.4f}" for v in row) for row in x]
    names = ",".join(f"c{i}" for i in range(12))
    rows = "\n".join(f"{line},{grade}" for line, grade in zip(lines, rank, strict=True))
    path.write_text(f"{names},grade\n{rows}\n")
    return path


def grid_of(root, *competitors, calibrate=True, calibration=0.15, **more):
    return Grid.model_validate(
        {
            "data": [
                {"name": "t", "source": "table", "root": str(root), "options": {"label": "grade"}}
            ],
            "methods": ["classification"],
            "recipes": ["paper"],
            "decodings": ["mode", "median"],
            "settings": {
                "head": {"dim": 4},
                "data": {"calibration": calibration},
                "training": {"epochs": 1, "device": "cpu", "calibrate": calibrate},
            },
            "competitors": list(competitors),
            **more,
        }
    )


def measured(grid, folder, method):
    """Read what was measured of a competitor, setting by setting."""
    store = Store(folder)
    cells = [cell for cell in grid.cells() if cell.labels["method"] == method]
    return {
        cell.labels["setting"]: json.loads(store.run_folder(cell).test.read_text())
        for cell in cells
    }


def parts_of(root, calibration=0.15):
    dataset = data.read("table", root, 0, calibration, label="grade")
    rows, ranks, parts = dataset.inputs.values, dataset.ranks, dataset.splits

    def part(name):
        index = getattr(parts, name)
        return rows[index], ranks[index]

    return part


def log_proba(model, x):
    return torch.from_numpy(model.predict_proba(x)).log()


def test_probabilities_are_calibrated_on_the_parts_that_ours_are(scores, tmp_path, go):
    grid = grid_of(scores, SURE)
    assert go(grid, tmp_path)[0] == []
    (found,) = measured(grid, tmp_path, "sure").values()

    part = parts_of(scores)
    model = LogisticRegression(C=1000.0).fit(*part("train"))
    (x, ranks), (other, others) = part("validation"), part("calibration")
    temperature = fit_temperature(log_proba(model, x), torch.from_numpy(ranks))
    assert temperature > 1.05
    assert found["calibration"]["temperature"] == pytest.approx(temperature)
    rows, truth = part("test")
    log_probs = apply_temperature(log_proba(model, rows), temperature)
    proba = log_probs.exp().numpy()
    assert found["nll"] == pytest.approx(metrics.log_loss(truth, proba))
    assert found["nll"] < found["calibration"]["before"]["nll"]
    assert found["ece"] == pytest.approx(metrics.expected_calibration_error(truth, proba))
    decided = decide(torch.from_numpy(proba), "median").numpy()
    assert found["by_decoding"]["median"]["mae"] == pytest.approx(np.abs(decided - truth).mean())

    known = Calibration.fit(None, (apply_temperature(log_proba(model, other), temperature),
                                   torch.from_numpy(others)))  # fmt: skip
    chosen = proba.argmax(axis=1)
    expected = {each["coverage"]: each for each in measure_ranges(known, truth, proba, chosen)}
    assert 0.9 in expected
    assert {each["coverage"] for each in found["ranges"]} == set(expected)
    for each in found["ranges"]:
        for name in ("measured", "width"):
            assert each[name] == pytest.approx(expected[each["coverage"]][name])


def test_without_calibration_probabilities_stay_and_ranges_need_their_part(scores, tmp_path, go):
    grid = grid_of(scores, SURE, calibrate=False, calibration=0.0)
    assert go(grid, tmp_path)[0] == []
    (found,) = measured(grid, tmp_path, "sure").values()
    part = parts_of(scores, 0.0)
    model = LogisticRegression(C=1000.0).fit(*part("train"))
    rows, truth = part("test")
    assert found["calibration"]["temperature"] == 1
    assert found["nll"] == pytest.approx(metrics.log_loss(truth, model.predict_proba(rows)))
    assert found["ranges"] == []


def test_what_has_no_probabilities_has_no_calibration(scores, tmp_path, go):
    grid = grid_of(scores, "sklearn.linear_model:Ridge")
    assert go(grid, tmp_path)[0] == []
    (found,) = measured(grid, tmp_path, "Ridge").values()
    assert found["ranges"] == []
    assert "calibration" not in found
    assert [found[name] for name in ("nll", "ece", "rps")] == [None] * 3


def test_a_probability_of_zero_does_not_choose_the_temperature(scores, tmp_path, go):
    name = "sklearn.tree:DecisionTreeClassifier(max_depth=4, min_samples_leaf=5)"
    grid = grid_of(scores, name)
    assert go(grid, tmp_path)[0] == []
    (found,) = measured(grid, tmp_path, name.partition(":")[2]).values()
    part = parts_of(scores)
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=5, random_state=0)
    tree.fit(*part("train"))
    x, ranks = part("validation")
    log_probs, truth = log_proba(tree, x), torch.from_numpy(ranks)
    possible = log_probs[torch.arange(len(truth)), truth].isfinite()
    assert not possible.all()
    assert fit_temperature(log_probs, truth) > 9.9  # one impossible truth would decide alone
    wanted = fit_temperature(log_probs[possible], truth[possible])
    assert found["calibration"]["temperature"] == pytest.approx(wanted)
    assert wanted < 5


def test_every_value_of_a_competitor_is_a_run_and_validation_chooses(scores, tmp_path, go, results):
    tuned = {**SURE, "name": "tuned", "tune": {"C": [1e-4, 0.1, 1000.0]}}
    grid = grid_of(scores, SURE, tuned, seeds=[0, 1], tune={"head.dim": [4, 8]})
    ours = [cell for cell in grid.cells() if not cell.competitor]
    assert {cell.labels["setting"] for cell in ours} == {"head.dim=4", "head.dim=8"}
    labels = [cell.labels for cell in grid.cells() if cell.competitor]
    assert [each["setting"] for each in labels if each["method"] == "sure"] == ["", ""]
    settings = ["C=0.0001", "C=0.1", "C=1000.0"]
    assert [each["setting"] for each in labels if each["method"] == "tuned"] == [
        name for name in settings for _ in range(2)
    ]
    grid = grid_of(scores, tuned, seeds=[0, 1])
    assert go(grid, tmp_path)[0] == []
    frame = results(grid, tmp_path)
    frame = frame[frame["method"] == "tuned"].reset_index(drop=True)
    tried = frame[(frame["decode"] == "median") & (frame["seed"] == "0")].set_index("setting")
    part = parts_of(scores)
    x, ranks = part("validation")
    for setting in settings:
        model = LogisticRegression(C=float(setting[2:])).fit(*part("train"))
        mae = np.abs(model.predict(x) - ranks).mean()  # the first decoding chooses
        assert tried.loc[setting, "criterion"] == pytest.approx(mae)
    selected = select_runs(frame)
    assert len(selected) == 4  # two seeds, two decodings
    for _, row in selected.iterrows():
        others = frame[(frame["seed"] == row["seed"]) & (frame["decode"] == row["decode"])]
        assert row["criterion"] == others["criterion"].min()
    assert "C=0.0001" not in set(selected["setting"])


def test_a_tuned_value_is_the_run_that_the_option_is(scores):
    plain, tuned = (
        grid_of(scores, {**SURE, **more}).cells()[-1]
        for more in ({}, {"options": {}, "tune": {"C": [1.0, 1000.0]}})
    )
    assert plain.key == tuned.key
    assert tuned.labels["setting"] == "C=1000.0"


def test_tune_is_written_with_the_grid_and_left_out_of_the_key_where_there_is_none(scores):
    tune = {"C": [0.1, 1.0], "fit_intercept": [True, False]}
    grid = grid_of(scores, SURE, {**SURE, "name": "tuned", "tune": tune})
    first, second = grid.competitors
    assert first.model_dump(mode="json", exclude={"name"}) == {
        "estimator": SURE["estimator"],
        "options": SURE["options"],
    }
    assert second.model_dump(mode="json")["tune"] == tune
    assert "tune" in grid.to_toml().partition('name = "tuned"')[2]
    assert [label for label, _ in second.settings()] == [
        "C=0.1, fit_intercept=True",
        "C=0.1, fit_intercept=False",
        "C=1.0, fit_intercept=True",
        "C=1.0, fit_intercept=False",
    ]
    assert all(each.tune == {} for _, each in second.settings())


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({"c": [1.0]}, "made from its options, got an error for sure: .*unexpected keyword"),
        ({"C": []}, "at least 1 item"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_runs(scores, tune, message):
    with pytest.raises(ValueError, match=message):
        grid_of(scores, {**SURE, "tune": tune}).cells()


def test_a_competitor_of_a_command_is_not_tuned():
    assert Competitor(name="a", estimator="b:c").settings() == [
        ("", Competitor(name="a", estimator="b:c"))
    ]
