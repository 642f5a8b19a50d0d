"""Exported graphs compute the same as their model."""

import numpy as np
import onnxruntime
import pytest
import torch

import layline
from layline.data.tables import NumericColumn, TableEncoding
from layline.heads import HEADS, ConstrainedProxies
from layline.model.calibration import Calibration
from layline.model.description import ModelDescription
from layline.model.onnx_export import Graph, export, trace
from layline.model.onnx_runtime import OnnxModel

CLASSES = tuple("abcde")
COLUMNS = TableEncoding(tuple(NumericColumn(f"x{i}", 0.0, False) for i in range(3)), ())
COSTS = ((0, 1, 5, 5, 9), (1, 0, 1, 2, 9), (2, 1, 0, 1, 2), (9, 2, 1, 0, 1), (9, 9, 9, 1, 0))


def small_model(method="arc", encoded=(), **settings):
    torch.manual_seed(1)
    options = {"in_features": 3, "hidden": [8], "encoded": [*encoded], "bins": 4}
    description = ModelDescription(
        "mlp", method, 6, CLASSES, COLUMNS, backbone_options=options, **settings
    )
    model = description.build().eval()
    with torch.no_grad():
        for parameter in model.head.parameters():  # some are initialized symmetrically
            parameter.add_(0.1 * torch.rand_like(parameter))
        if encoded:
            rows = torch.randn(100, 3)
            rows[:, [i for i in range(3) if i not in encoded]] = 1.0  # only others are encoded
            model.backbone.fit_scale(rows)
            model.backbone.encoding.weight.normal_()
            assert model.backbone.options["encoded"] == [*encoded]
    return model


def calibrated(count=200):
    rng = np.random.default_rng(0)
    return Calibration(1.3, rng.random(count), rng.integers(0, len(CLASSES), count))


class Several(torch.nn.Module):
    """Many graphs in one, which is much faster to export."""

    def __init__(self, graphs):
        super().__init__()
        self.graphs = torch.nn.ModuleList(graphs)

    def forward(self, x):
        return tuple(output for graph in self.graphs for output in graph(x))


def graph_key(head):
    """Heads that differ only in their loss have the same graph."""
    if isinstance(head, ConstrainedProxies):
        return repr(head.layout), repr(head.similarity)
    return type(head)._log_probs


@pytest.mark.slow
def test_every_head_computes_the_same_in_onnxruntime():
    models = {
        name: small_model(name, decode=spec.decode, calibration=Calibration(1.3))
        for name, spec in HEADS.items()
        if spec.exports
    }
    different = {graph_key(model.head): name for name, model in models.items()}
    names = list(different.values())
    assert len(names) > 10
    rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    outputs = [f"{name} {kind}" for name in names for kind in ("log_probs", "probs", "rank")]
    graph = Several([Graph(models[name], None).eval() for name in names]).eval()
    proto = trace(graph, rows, "row", outputs)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    found = dict(zip(outputs, session.run(None, {"row": rows.numpy()}), strict=True))
    frame = {f"x{i}": rows[:, i].numpy() for i in range(3)}
    for name in names:
        expected = models[name].predict_proba(frame)
        np.testing.assert_allclose(found[f"{name} probs"], expected, atol=1e-5, err_msg=name)
        same = models[name].predict(frame) == np.array(CLASSES)[found[f"{name} rank"]]
        assert same.mean() > 0.99, name


def test_a_head_that_cannot_be_exported_is_refused(tmp_path):
    (name, *_) = [name for name, spec in HEADS.items() if not spec.exports]
    with pytest.raises(ValueError, match=f"The method {name} cannot be exported"):
        export(small_model(name), tmp_path / "model.onnx")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with encoded columns that decides by costs, and its file."""
    model = small_model("coral", encoded=(0, 2), decode=COSTS, calibration=calibrated())
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    return model, path, export(model, path, coverage=0.8)


@pytest.mark.slow
def test_the_inputs_and_outputs_of_a_graph(exported):
    _, path, made = exported
    assert (made.path, made.coverage) == (path, 0.8)
    assert made.difference < 1e-5
    assert made.outputs == ("log_probs", "probs", "rank", "low", "high")
    session = onnxruntime.InferenceSession(path)
    shapes = {each.name: each.shape for each in (*session.get_inputs(), *session.get_outputs())}
    ends = {name: ["n"] for name in ("rank", "low", "high")}
    assert shapes == {"row": ["n", 3], "log_probs": ["n", 5], "probs": ["n", 5], **ends}
    assert str(layline.__path__[0]).encode() not in path.read_bytes()  # paths of this machine
    assert OnnxModel(path).description.method == "coral"


@pytest.mark.slow
def test_an_exported_model_predicts_the_same(exported):
    model, path, _ = exported
    opened = OnnxModel(path)
    frame = {f"x{i}": np.random.default_rng(i).normal(size=60) for i in range(3)}
    np.testing.assert_allclose(opened.predict_proba(frame), model.predict_proba(frame), atol=1e-6)
    for decode in (None, "mode", "quadratic", "median"):
        assert (opened.predict(frame, decode) == model.predict(frame, decode)).all()
    for options in ({"coverage": 0.95}, {"coverage": 0.9, "by_class": True}):
        found, expected = (each.predict_range(frame, **options) for each in (opened, model))
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
def test_a_row_that_overflows_is_refused(exported):
    _, path, _ = exported
    frame = {"x0": [0.0, 1e300], "x1": [0.0, 0.0], "x2": [0.0, 0.0]}
    with pytest.raises(ValueError, match="row 1"):
        OnnxModel(path).predict(frame)


@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 2, 4])
def test_a_graph_that_differs_is_not_written(monkeypatch, tmp_path, place):
    forward = Graph.forward

    def wrong(self, x):
        outputs = list(forward(self, x))
        outputs[place] = outputs[place] + 1
        return tuple(outputs)

    monkeypatch.setattr(Graph, "forward", wrong)
    with pytest.raises(ValueError, match="does not compute what the model does"):
        export(small_model(calibration=calibrated()), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_plain_module_is_refused(tmp_path):
    with pytest.raises(layline.UserError, match=r"got Linear.*torch\.onnx\.export"):
        layline.export(torch.nn.Linear(2, 2), tmp_path / "m.onnx")
