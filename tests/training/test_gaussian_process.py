"""Models that are fitted in closed form."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch

import layline
from layline.backbones.kernel import KernelLayer, compare, kernel
from layline.heads import create
from layline.model.model import OrdinalModel
from layline.model.onnx_export import export
from layline.model.onnx_runtime import OnnxModel
from layline.training import gaussian_process
from layline.training.gaussian_process import fit_layers

K = 4


def sample(n, p=3, seed=0):
    """Grades that follow the first column, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    score = 2 * x[:, 0] + np.sin(2 * x[:, 1]) + 0.3 * rng.normal(size=n)
    ranks = np.digitize(score, np.quantile(score, [0.25, 0.5, 0.75]))
    return torch.from_numpy(x), torch.from_numpy(ranks)


def fit(x, ranks, weight=None, groups=None, layouts=("line", "simplex"), unit=False):
    widths = [{"line": 1, "semicircle": 2, "simplex": K}[name] for name in layouts]
    layer = KernelLayer(x.shape[1], len(x), widths, unit).double()
    head = create("joint-layout", K, sum(widths), layouts=list(layouts)).double()
    weight = torch.ones(len(x)) if weight is None else weight
    return layer, head, fit_layers(layer, head, x, ranks, weight, groups)[0]


@pytest.fixture
def fixed_scales(monkeypatch):
    """Scales that do not depend on the samples, so that fits to parts of them can be compared."""
    scales = torch.tensor([0.5, 0.7, 0.4, 1.2, 1.5, 0.3]).double().log()
    monkeypatch.setattr(gaussian_process, "_fit_scales", lambda *_: scales)
    return scales


@pytest.mark.parametrize("unit", [False, True])
def test_features_are_the_posterior_mean(fixed_scales, unit):
    """The oracle solves the linear system with NumPy."""
    x, ranks = sample(40)
    layer, head, _ = fit(x, ranks, layouts=["line"], unit=unit)
    a0, a1, a2, length, rough = fixed_scales[:5].exp().tolist()
    new = torch.randn(7, 3).double()
    rows, points = (layer.prepare(m).numpy() for m in (x, new))

    def covariance(a, b):
        (u, v), (own_u, own_v) = ((m[:, :3], m[:, 3:]) for m in (a, b))
        squares = ((u[:, None] - own_u) ** 2).mean(axis=2)
        value = 0.01 + a0**2 * (u @ own_u.T) / 3 + a1**2 * np.exp(-squares / (2 * length**2))
        if unit:
            return value
        return value + a2**2 * np.exp(-np.abs(v[:, None] - own_v).mean(axis=2) / rough)

    targets = np.linspace(-1, 1, K)[ranks.numpy()]
    noise = (fixed_scales[5].exp().item() ** 2 + 0.02) * targets.var()
    gram = covariance(rows, rows) * targets.var() + noise * np.eye(40)
    cross = covariance(points, rows) * targets.var()
    expected = targets.mean() + cross @ np.linalg.solve(gram, targets - targets.mean())
    scale = head.log_scales.exp().item()
    np.testing.assert_allclose(layer(new)[:, 0].detach().numpy(), scale * expected, rtol=1e-5)


def test_columns_are_limited_and_have_normal_scores():
    x = torch.randn(2000, 1, generator=torch.manual_seed(0)).double()
    skewed = torch.cat([x.exp(), torch.ones_like(x)], dim=1)  # and a constant column
    layer = KernelLayer(2, 1, [1]).double()
    layer.fit_inputs(skewed, torch.full((2000,), 1 / 2000).double())
    limited, _, scores, constant = layer.prepare(skewed).T
    assert 0 < limited.min() <= limited.max() < 2
    inner = x[:, 0].abs() < 1.5
    torch.testing.assert_close(scores[inner], x[inner, 0], rtol=0, atol=0.1)
    assert constant.abs().max() < 1e-6
    beyond = layer.prepare(torch.tensor([[-1e9, 1.0], [1e9, 1.0]]).double())[:, 2]
    assert beyond.tolist() == [scores.min().item(), scores.max().item()]


def test_image_features_are_centered_and_have_the_same_length():
    x = torch.randn(50, 3).double()
    layer = KernelLayer(3, 1, [1], unit=True).double()
    layer.fit_inputs(x, torch.full((50,), 1 / 50).double())
    centered = x - x.mean(dim=0)
    expected = centered / centered.norm(dim=1, keepdim=True) * 3**0.5
    torch.testing.assert_close(layer.prepare(x), expected)


def test_a_prediction_without_a_label_is_that_of_a_fit_without_the_sample(fixed_scales):
    """Also for groups; the center and the scale of the targets are those of all samples."""
    x, ranks = sample(30)
    groups = [place // 3 for place in range(15)] + list(range(15, 30))
    layer, head, left_out = fit(x, ranks, groups=groups)
    rows = layer.prepare(x)
    parts = compare(rows, rows, rough=True)
    noise = (fixed_scales[5].exp() ** 2 + 0.02) * torch.eye(30).double()
    gram = kernel(parts, fixed_scales[:5].exp())
    targets = head.proxies().detach().double()[ranks]
    coordinates = torch.empty_like(targets)
    for group in set(groups):
        out = torch.tensor([own == group for own in groups])
        solved = torch.linalg.solve((gram + noise)[~out][:, ~out], (targets - layer.bias)[~out])
        coordinates[out] = (layer.bias + gram[out][:, ~out] @ solved).detach()
    torch.testing.assert_close(left_out, head.log_probs(coordinates).detach(), rtol=0, atol=1e-6)


def test_a_sample_of_weight_two_counts_like_two_samples(fixed_scales):
    x, ranks = sample(30)
    twice = torch.cat([x, x[:5]]), torch.cat([ranks, ranks[:5]])
    weight = torch.ones(30)
    weight[:5] = 2
    weighted, _, _ = fit(x, ranks, weight * 30 / 35)
    doubled, _, _ = fit(*twice)
    # the noise is relative to a mean weight of one
    new = torch.randn(9, 3).double()
    torch.testing.assert_close(weighted(new), doubled(new), rtol=0, atol=0.05)


def test_scales_maximize_the_likelihood_and_labels_without_signal_are_noise():
    x, ranks = sample(120)
    signal, _, held_out = fit(x, ranks)
    random, _, chance = fit(x, ranks[torch.randperm(120, generator=torch.manual_seed(0))])
    right = held_out.argmax(dim=1) == ranks
    assert right.float().mean() > 0.6
    assert signal(x).std() > 2 * random(x).std()
    assert chance.exp().max() < 0.6  # no certainty


def test_the_line_has_a_larger_scale_where_grades_are_ordered():
    x, ranks = sample(100)
    _, head, _ = fit(x, ranks)
    ordered = head.log_scales[0] - head.log_scales[1]
    shuffled = torch.tensor([2, 0, 3, 1])[ranks]  # the order of the grades is lost
    _, head, _ = fit(x, shuffled)
    assert ordered > head.log_scales[0] - head.log_scales[1] + 1


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("ranks", [[0, 1], [2, 2, 2], [0, 0, 3, 3, 3]])
def test_a_few_samples_or_a_single_class_can_be_fitted(ranks, unit):
    x = torch.randn(len(ranks), 2).double()
    x[:, 1] = 0.0  # a constant column
    layer, head, left_out = fit(x, torch.tensor(ranks), unit=unit)
    assert left_out.isfinite().all()
    assert head.log_probs(layer(x)).isfinite().all()


def test_a_class_without_labels_is_predicted_between_its_neighbors():
    x, ranks = sample(200)
    new, truth = sample(400, seed=1)
    known = ranks != 2
    layer, head, _ = fit(x[known], ranks[known])
    predicted = head.predict(layer(new))
    assert (predicted[truth == 2] == 2).float().mean() > 0.5
    assert (predicted - truth).abs().float().mean() < 0.5
    torch.testing.assert_close(head.positions[2, 1:], torch.tensor([0, 0.5, 0, 0.5]).double())


# Runs


@pytest.fixture(scope="module")
def run(ratings, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return layline.train(ratings, label="grade", out=out, verbose=False)


def test_a_run_on_few_labels_takes_the_closed_form(run):
    config = (run.folder / "config.toml").read_text()
    assert 'method = "joint-layout"' in config
    assert "closed_form = true" in config
    assert [set(record) for record in run.history] == [{"epoch", "train_loss"}]
    assert run.metrics["validation"]["samples"] == 72  # all labels outside the test split
    assert run.metrics["mae"] < 0.4
    assert "in closed form" in run.report.read_text(encoding="utf-8")
    assert (run.folder / "layouts" / "test.npz").is_file()


def test_a_run_that_was_stopped_before_its_test_is_resumed_with_the_same_result(run, tmp_path):
    stopped = shutil.copytree(run.folder, tmp_path / "run")
    for name in ("best.safetensors", "history.jsonl", "test.json", "predictions.csv"):
        (stopped / name).unlink()
    again = layline.train(resume=stopped, verbose=False)
    assert again.metrics == run.metrics
    files = [folder / "best.safetensors" for folder in (run.folder, stopped)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_exported_model_computes_the_same(run, tmp_path):
    export(run.model, tmp_path / "model.onnx")
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["a", "b"])
    found = OnnxModel(tmp_path / "model.onnx").predict_proba(rows)
    np.testing.assert_allclose(found, run.model.predict_proba(rows), atol=1e-5)


def test_frozen_features_are_fitted_and_patients_are_left_out_as_a_whole(photographs, tmp_path):
    about = {"backbone": "convnet", "weights": "none", "size": 32, "device": "cpu"}
    first = layline.train(
        photographs, **about, epochs=1, method="ranking", out=tmp_path / "network", report=False,
        verbose=False,
    )  # fmt: skip
    weights = tmp_path / "network.safetensors"
    first.model.save(weights)
    settings = {**about, "weights": weights, "freeze": True}
    run = layline.train(photographs, **settings, out=tmp_path / "run", verbose=False, report=False)
    assert run.model.description.method == "joint-layout"
    assert run.model.backbone.last.unit
    images = sorted((photographs / "test").rglob("*.png"))
    again = layline.load(run.folder).predict_proba(images)
    np.testing.assert_allclose(again.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "method"),
    [
        ({"epochs": 2}, "committee"),
        ({"folds": 2, "epochs": 2}, "committee"),
        ({"head_options": {"members": ["ranking", "sord"]}, "epochs": 2}, "committee"),
        ({"method": "hard-linear", "epochs": 2}, "hard-linear"),
        ({"backbone_options": {"hidden": [8]}, "epochs": 2}, "committee"),
        ({"settings": {"training": {"closed_form": False, "epochs": 2}}}, "committee"),
    ],
)
def test_otherwise_a_run_is_trained_by_gradient_descent(ratings, tmp_path, changes, method):
    settings = {"label": "grade", "out": tmp_path / "run", "verbose": False, "report": False}
    run = layline.train(ratings, **settings, **changes)
    assert run.model.description.method == method


def test_a_budget_does_not_change_the_method(run, ratings, tmp_path):
    settings = {"label": "grade", "out": tmp_path / "run", "verbose": False, "report": False}
    assert layline.train(ratings, budget="1min", **settings).metrics["mae"] == run.metrics["mae"]


def test_the_model_is_moved_to_the_device_of_the_run(ratings, tmp_path, monkeypatch):
    moved = []
    monkeypatch.setattr(OrdinalModel, "to", lambda self, device: moved.append(device))
    layline.train(ratings, label="grade", out=tmp_path / "run", verbose=False, report=False)
    assert [device.type for device in moved] == ["cpu"]


def test_a_closed_form_of_another_method_is_refused(ratings, tmp_path):
    wanted = {"training": {"closed_form": True}}
    with pytest.raises(ValueError, match="closed_form needs the method joint-layout"):
        layline.train(
            ratings, label="grade", method="ranking", settings=wanted, out=tmp_path / "run",
            verbose=False,
        )  # fmt: skip
