"""An exported model computes what the model computes."""

import numpy as np
import onnxruntime
import pytest
import torch

import layline
from layline.data.table_encoding import NumericColumn, TableEncoding
from layline.geometry.decoding import DECODINGS, least_cost
from layline.heads import HEADS
from layline.heads.base import probabilities
from layline.model import onnx_export
from layline.model.calibration import Calibration
from layline.model.description import ModelDescription
from layline.model.onnx_export import export
from layline.model.onnx_runtime import OnnxModel, decide
from layline.utils.errors import UserError

CLASSES = tuple("abcde")
COLUMNS = TableEncoding(tuple(NumericColumn(f"x{i}", 0.0, False) for i in range(3)), ())
COSTS = ((0, 1, 5, 5, 9), (1, 0, 1, 2, 9), (2, 1, 0, 1, 2), (9, 2, 1, 0, 1), (9, 9, 9, 1, 0))


def small_model(method="arc", **given):
    """Build a model with reproducible random weights."""
    torch.manual_seed(1)
    options = {"in_features": 3, "hidden": [8]}
    description = ModelDescription(
        "mlp", method, 6, CLASSES, COLUMNS, backbone_options=options, **given
    )
    model = description.build().eval()
    with torch.no_grad():
        for parameter in model.head.parameters():  # some are initialized symmetrically
            parameter.add_(0.1 * torch.rand_like(parameter))
    return model


def calibrated(count=200):
    rng = np.random.default_rng(0)
    return Calibration(1.3, rng.random(count), rng.integers(0, len(CLASSES), count))


@pytest.mark.slow
@pytest.mark.parametrize("method", layline.names())
def test_every_head_is_exported_or_refused(tmp_path, method):
    model = small_model(method, calibration=calibrated())
    if not HEADS.find(method).exports:
        with pytest.raises(UserError, match="cannot be exported"):
            export(model, tmp_path / "model.onnx")
    else:
        assert export(model, tmp_path / "model.onnx").difference < 1e-5
        frame = {f"x{i}": np.random.default_rng(i).normal(size=60) for i in range(3)}
        opened = OnnxModel(tmp_path / "model.onnx")
        np.testing.assert_allclose(
            opened.predict_proba(frame), model.predict_proba(frame), rtol=0, atol=1e-5
        )


def test_numpy_decides_as_torch_does():
    log_probs = torch.randn(500, 5).log_softmax(dim=1)
    log_probs[0] = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0]).log()  # a tie
    exact = probabilities(log_probs)
    for name, function in DECODINGS.items():
        expected = function(log_probs if name == "mode" else exact)
        np.testing.assert_array_equal(decide(log_probs.numpy(), name), expected.numpy())
    expected = least_cost(exact, COSTS).numpy()
    np.testing.assert_array_equal(decide(log_probs.numpy(), COSTS), expected)


@pytest.fixture(scope="module")
def by_costs(tmp_path_factory):
    """A model that decides by costs, and its file."""
    model = small_model("coral", decode=COSTS, calibration=calibrated())
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    return model, path, export(model, path, coverage=0.8)


@pytest.mark.slow
def test_inputs_and_outputs_have_names_and_shapes(by_costs):
    _, path, made = by_costs
    assert made.difference < 1e-5
    assert (made.path, made.coverage) == (path, 0.8)
    assert made.outputs == ("log_probs", "probs", "rank", "low", "high")
    session = onnxruntime.InferenceSession(path)
    shapes = {each.name: each.shape for each in (*session.get_inputs(), *session.get_outputs())}
    ends = {name: ["n"] for name in ("rank", "low", "high")}
    assert shapes == {"row": ["n", 3], "log_probs": ["n", 5], "probs": ["n", 5], **ends}


@pytest.mark.slow
def test_costs_temperature_and_any_coverage_are_kept(by_costs):
    model, path, _ = by_costs
    opened = OnnxModel(path)
    frame = {f"x{i}": np.random.default_rng(i).normal(size=60) for i in range(3)}
    for decode in (None, "mode", "quadratic"):
        assert (opened.predict(frame, decode) == model.predict(frame, decode)).all()
    for options in ({"coverage": 0.95}, {"coverage": 0.9, "by_class": True}):
        found, expected = (each.predict_range(frame, **options) for each in (opened, model))
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
def test_a_row_that_overflows_gives_no_probabilities(by_costs):
    _, path, _ = by_costs
    frame = {"x0": [0.0, 1e300], "x1": [0.0, 0.0], "x2": [0.0, 0.0]}
    with pytest.raises(UserError, match="row 1"):
        OnnxModel(path).predict(frame)


@pytest.mark.slow
def test_a_graph_that_computes_something_else_is_not_written(monkeypatch, tmp_path):
    class Wrong(onnx_export.Graph):
        def forward(self, x):
            log_probs, probs, *others = super().forward(x)
            return log_probs, probs + 0.1, *others

    monkeypatch.setattr(onnx_export, "Graph", Wrong)
    with pytest.raises(UserError):
        export(small_model(calibration=calibrated()), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run", [torch.nn.Linear(2, 3), 3])
def test_what_is_no_model_is_refused(tmp_path, run):
    with pytest.raises(UserError, match="model"):
        layline.export(run, tmp_path / "model.onnx")
