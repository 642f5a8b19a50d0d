"""A model as one graph: what it gives is what the model gives."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layline import export_file
from layline.data.table_encoding import NumericColumn, TableEncoding
from layline.geometry.decoding import DECODINGS, least_cost
from layline.heads import HEADS, ConstrainedProxies
from layline.heads.base import probabilities
from layline.heads.linear import SoftmaxHead
from layline.model.calibration import Calibration
from layline.model.description import ModelDescription
from layline.model.onnx_export import Graph, export, to_onnx, traced
from layline.model.onnx_runtime import OnnxModel, decide

FOLDER = str(Path(export_file.__file__).parent).encode()  # nobody's business
CLASSES = tuple("abcde")
COLUMNS = TableEncoding(tuple(NumericColumn(f"x{i}", 0.0, False) for i in range(3)), ())
COSTS = ((0, 1, 5, 5, 9), (1, 0, 1, 2, 9), (2, 1, 0, 1, 2), (9, 2, 1, 0, 1), (9, 9, 9, 1, 0))


def small_model(method="arc", **given):
    """A model with random weights that are always the same."""
    torch.manual_seed(1)
    options = {"in_features": 3, "hidden": [8]}
    description = ModelDescription(
        "mlp", method, 6, CLASSES, COLUMNS, backbone_options=options, **given
    )
    model = description.build().eval()
    with torch.no_grad():
        for parameter in model.head.parameters():  # some start in a symmetric place
            parameter.add_(0.1 * torch.rand_like(parameter))
    return model


def calibrated(count=200):
    rng = np.random.default_rng(0)
    return Calibration(1.3, rng.random(count), rng.integers(0, len(CLASSES), count))


class Several(torch.nn.Module):
    """Many heads on the same features: they share what it costs to begin and to end."""

    def __init__(self, graphs):
        super().__init__()
        self.graphs = torch.nn.ModuleList(graphs)

    def forward(self, x):
        vectors = self.graphs[0].features(x)
        return tuple(output for graph in self.graphs for output in graph.answers(vectors))


def graph_of(head):
    """What tells graphs apart: heads that differ in their loss alone have the same one."""
    if isinstance(head, ConstrainedProxies):
        return repr(head.layout), repr(head.similarity)
    is_softmax = type(head)._log_probs is SoftmaxHead._log_probs
    return SoftmaxHead if is_softmax else type(head)


@pytest.mark.slow
def test_every_head_gives_the_same_in_onnxruntime():
    """``benchmarks/export.py --heads`` shows each, those with the same graph too."""
    assert not [name for name, description in HEADS.items() if "export" in description.unsupported]
    made = {
        name: small_model(name, decode=description.decode, calibration=Calibration(1.3))
        for name, description in HEADS.items()
    }
    different = {
        (graph_of(model.head), model.description.decode): name for name, model in made.items()
    }
    names = list(different.values())
    models = [made[name] for name in names]
    assert 20 < len(names) <= len(HEADS)
    for model in models:
        model.backbone = models[0].features
    rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[100:] *= 30  # far from everything, where small probabilities lose their digits
    program = traced(Several([Graph(model, None).eval() for model in models]), rows)
    kinds = ("log_probs", "probs", "rank")
    proto = to_onnx(program, "row", [f"{name} {kind}" for name in names for kind in kinds])
    found = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"row": rows.numpy()})
    for place, (name, model) in enumerate(zip(names, models, strict=True)):
        outputs = dict(zip(kinds, found[len(kinds) * place :], strict=False))
        difference, others = export_file._compare(model, rows, outputs, None)
        assert difference < 1e-5, name
        assert others <= 1, name
        with torch.no_grad():
            log_probs = model.head.log_probs(model.backbone(rows)) / 1.3
        expected = log_probs.log_softmax(dim=1).numpy()
        # two thresholds that nearly coincide leave little between them, and few digits of it
        np.testing.assert_allclose(outputs["log_probs"], expected, rtol=1e-4, atol=0.1)


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(9, 60),
    coverage=st.sampled_from([0.5, 0.8, 0.9]),
    num_classes=st.integers(2, 12),
)
def test_one_bound_gives_the_ranges_of_the_calibration(seed, count, coverage, num_classes):
    rng = np.random.default_rng(seed)
    calibration = Calibration(1.0, rng.random(count) * num_classes / 3, np.zeros(count, int))
    proba = rng.dirichlet(np.full(num_classes, 0.5), 40)
    chosen = rng.integers(0, num_classes, 40)
    bound = export_file._largest_misfit(np.sort(calibration.scores), coverage)
    ends = export_file._ranges(torch.tensor(proba), torch.tensor(chosen), bound)
    expected = calibration.ranges(proba, chosen, coverage)
    for end, wanted in zip(ends, expected, strict=True):
        np.testing.assert_array_equal(end.numpy(), wanted)


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
def test_a_model_in_memory_is_checked_on_random_rows_and_says_so(by_costs):
    _, path, made = by_costs
    assert "random" in made.checked_on
    assert made.samples == export_file.CHECKED
    assert made.difference < 1e-5
    assert (made.path, made.coverage) == (path, 0.8)
    assert made.outputs == ("log_probs", "probs", "rank", "low", "high")
    session = onnxruntime.InferenceSession(path)
    shapes = {each.name: each.shape for each in (*session.get_inputs(), *session.get_outputs())}
    ends = {name: ["n"] for name in ("rank", "low", "high")}
    assert shapes == {"row": ["n", 3], "log_probs": ["n", 5], "probs": ["n", 5], **ends}
    assert FOLDER not in path.read_bytes()


@pytest.mark.slow
def test_costs_temperature_and_any_coverage_are_kept(by_costs):
    model, path, _ = by_costs
    opened = OnnxModel(path)
    frame = {f"x{i}": np.random.default_rng(i).normal(size=60) for i in range(3)}
    np.testing.assert_allclose(
        opened.predict_proba(frame), model.predict_proba(frame), rtol=0, atol=1e-6
    )
    for decode in (None, "mode", "quadratic"):
        assert (opened.predict(frame, decode) == model.predict(frame, decode)).all()
    for options in ({"coverage": 0.95}, {"coverage": 0.9, "by_class": True}):
        found, expected = (each.predict_range(frame, **options) for each in (opened, model))
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
def test_a_row_that_overflows_gives_no_probabilities(by_costs):
    _, path, _ = by_costs
    frame = {"x0": [0.0, 1e300], "x1": [0.0, 0.0], "x2": [0.0, 0.0]}
    with pytest.raises(ValueError, match="probabilities, got none for row 1"):
        OnnxModel(path).predict(frame)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("probs", "must compute what the model does, got probabilities that differ by up to"),
        ("rank", "must decide as the model does, got 64 of 64 samples otherwise"),
        ("high", "must decide as the model does, got 64 of 64 samples otherwise"),
    ],
)
def test_what_differs_is_not_written(monkeypatch, tmp_path, wrong, sentence):
    model = small_model(calibration=calibrated())

    def run(content, given):
        with torch.no_grad():
            outputs = [part.numpy() for part in Graph(model, 0.9).eval()(given)]
        place = ("log_probs", "probs", "rank", "low", "high").index(wrong)
        outputs[place] = outputs[place] + 1
        return outputs

    monkeypatch.setattr(export_file, "traced", lambda *_, **__: None)
    monkeypatch.setattr(export_file, "_torch_file", lambda *_: b"")
    monkeypatch.setattr(export_file, "_run_torch", run)
    with pytest.raises(ValueError, match=sentence):
        export(model, tmp_path / "model.pt2", "torch")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_program_of_torch_has_the_metadata_beside_it(tmp_path):
    model = small_model("gp-dnnor", calibration=calibrated())
    made = export(model, tmp_path / "model.pt2", "torch")
    assert FOLDER not in made.path.read_bytes()
    extra = {"layline": ""}
    program = torch.export.load(made.path, extra_files=extra)
    assert '"method":"gp-dnnor"' in extra["layline"]
    rows = torch.randn(7, 3, dtype=torch.float64)
    log_probs, probs, rank, low, high = program.module()(rows)
    torch.testing.assert_close(probs.double(), probabilities(log_probs))
    expected = model.predict_proba({f"x{i}": rows[:, i].numpy() for i in range(3)})
    np.testing.assert_allclose(probs.numpy(), expected, atol=1e-5)
    assert ((low <= rank) & (rank <= high)).all()


def test_a_file_of_an_earlier_version_still_gives_the_same_predictions():
    """Exported by layline 0.2.0 from the table of 0.1.0, at a temperature of 0.7."""
    folder = Path(__file__).parent / "model_files"
    known = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["table"]
    opened = OnnxModel(folder / "table-0.2.0.onnx")
    expected = np.array(known["proba"]) ** (1 / 0.7)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(opened.predict_proba(known["rows"]), expected, atol=1e-6)
    assert opened.predict(known["rows"]).tolist() == known["predicted"]
