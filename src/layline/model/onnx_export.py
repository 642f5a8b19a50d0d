"""Export a model to ONNX: one graph from prepared samples to probabilities, ranks and ranges.

The graph is compared with the model before the file is written.
"""

import copy
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from layline import __version__
from layline.backbones import MLP
from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import TableEncoding
from layline.geometry.decoding import decide
from layline.heads import HEADS
from layline.heads.base import probabilities
from layline.model.calibration import DEFAULT_COVERAGE, apply_temperature, find_ranges
from layline.model.description import KEY
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.model.onnx_runtime import graph_input, graph_outputs
from layline.utils.files import atomic_write
from layline.utils.validation import UserError, require

if TYPE_CHECKING:
    from layline.training.run import Run

TOLERANCE = 1e-3  # of a probability


@dataclass(frozen=True)
class Exported:
    """An exported model, and how it compares with the original."""

    path: Path
    outputs: tuple[str, ...]
    samples: int  # random inputs on which graph and model were compared
    difference: float  # the largest one of a probability
    coverage: float | None  # of the outputs low and high; None if the graph has no ranges


def export(
    run: "str | Path | Run | OrdinalModel",
    out: str | Path,
    coverage: float | None = None,
    plugins: Sequence[str | Path] = (),
) -> Exported:
    """Write a model as an ONNX graph, after a check that it computes the same.

    Args:
        run: Folder of a run, a ``.safetensors`` file, or a model.
        out: The ``.onnx`` file.
        coverage: Coverage of the range between the outputs ``low`` and ``high``. None means 0.9 if
            the model has enough calibration samples, and no range otherwise.
        plugins: Files, packages or modules with the head or the backbone of the model.
    """
    out = Path(out).expanduser()
    if out.suffix.lower() != ".onnx":
        raise UserError(f"out must end in .onnx, got {out}")
    for library in ("onnx", "onnxscript", "onnxruntime"):
        require(library, extra="export", needed_by="export")
    model = getattr(run, "folder", run)
    if isinstance(model, str | Path):
        model = load(model, plugins=plugins)
    if not isinstance(model, OrdinalModel):
        raise UserError(
            f"run must be a run, a model file or a loaded model, got {type(run).__name__}. Export "
            "your own modules with torch.onnx.export."
        )
    method = model.description.method
    if method in HEADS and not HEADS[method].exports:
        raise UserError(f"The method {method} cannot be exported: ONNX lacks an operation of it.")
    calibration = model.description.calibration
    if coverage is not None:
        calibration.check(coverage, len(model.classes))
    elif DEFAULT_COVERAGE in calibration.usual_coverages:
        coverage = DEFAULT_COVERAGE
    description = replace(model.description, coverage=coverage)
    x = _random_samples(model)
    outputs = graph_outputs(description)
    proto = trace(Graph(model, coverage).eval(), x, graph_input(description)[0], outputs)
    proto.producer_name, proto.producer_version = "layline", __version__
    proto.doc_string = _describe_preparation(description.inputs)
    proto.metadata_props.add(key=KEY, value=description.to_json())
    content = proto.SerializeToString()
    difference = _compare(model, content, x, outputs, coverage)
    with atomic_write(out) as part:
        part.write_bytes(content)
    return Exported(out, outputs, len(x), difference, coverage)


class Graph(nn.Module):
    """A copy of the exported part of a model: backbone, head, temperature, decoding, range."""

    def __init__(self, model: OrdinalModel, coverage: float | None) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(model.backbone).cpu()
        self.head = copy.deepcopy(model.head).cpu()
        self.is_table = model.is_table
        self.decode = model.description.decode
        self.temperature = model.description.calibration.temperature
        self.bound = None if coverage is None else model.description.calibration.bound(coverage)
        self.requires_grad_(False)

    def forward(self, x: Shaped[Tensor, "n ..."]) -> tuple[Tensor, ...]:
        """Compute log probabilities, probabilities, ranks and ranges.

        The input is encoded rows, (n, columns), or images of bytes, (n, size, size, 3).
        """
        features = self.backbone(x if self.is_table else x.permute(0, 3, 1, 2))
        log_probs = apply_temperature(self.head.log_probs(features), self.temperature)
        # NaN for features that overflowed: zero times infinity is NaN
        log_probs = log_probs + (0 * features).sum(dim=-1, keepdim=True)
        exact = probabilities(log_probs)
        rank = decide(log_probs if self.decode == "mode" else exact, self.decode)
        ends = () if self.bound is None else find_ranges(exact, rank, self.bound)
        return log_probs, exact.to(log_probs.dtype), rank, *ends


def _random_samples(model: OrdinalModel) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    _, shape = graph_input(model.description)
    if not model.is_table:
        return torch.randint(0, 256, (8, *shape), generator=generator, dtype=torch.uint8)
    rows = torch.randn((64, *shape), generator=generator, dtype=torch.float64)
    if isinstance(model.backbone, MLP):  # the scale of the training data
        rows = rows * model.backbone.scale.cpu() + model.backbone.mean.cpu()
    return rows


def trace(graph: nn.Module, x: Tensor, input_name: str, outputs: Sequence[str]) -> Any:
    """Translate a graph for batches of any size into a ``ModelProto``."""
    logging.disable(logging.WARNING)  # a user cannot act on the exporter's own messages
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            graph(x[:2])  # fills caches of constants before tracing
            program: Any = torch.onnx.export(
                graph,
                (x[:2],),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
                input_names=[input_name],
                output_names=list(outputs),
                verbose=False,
            )
    except Exception as error:  # the exporter's errors have no common class
        raise UserError(f"The model cannot be exported to ONNX: {error}") from error
    finally:
        logging.disable(logging.NOTSET)
    proto = program.model_proto
    for each in (*proto.graph.node, *proto.graph.value_info, proto.graph):
        del each.metadata_props[:]  # stack traces with paths of this machine
    return proto


def _describe_preparation(inputs: ImagePreprocessing | TableEncoding) -> str:
    """Explain how a sample becomes the input of the graph, for users of other runtimes."""
    if isinstance(inputs, TableEncoding):
        return (
            "row: float64 (n, columns), the encoded columns in this order: "
            + json.dumps(list(inputs.columns), ensure_ascii=False)
            + ". Numbers are not scaled; a missing number becomes the median of its column, and "
            "the column '… missing' is 1 where it was missing. A column 'name=category' is 1 "
            "where the cell is that category and 0 elsewhere."
        )
    size, shrunk = inputs.size, ""
    if inputs.shrink:
        shrunk = f"a shorter side of more than {inputs.at_least} pixels resized to that (Lanczos); "
    what, kept = ("shorter side", "kept") if inputs.keep_ratio else ("both sides", "not kept")
    return (
        f"image: uint8 (n, {size}, {size}, 3), values 0 to 255: RGB, rotated as EXIF says, "
        f"transparent pixels on white; {shrunk}{what} resized to {inputs.resize} pixels "
        f"({inputs.interpolation}, antialiased), aspect ratio {kept}; center crop of "
        f"{size}×{size} pixels. The graph normalizes the values."
    )


def _compare(
    model: OrdinalModel, content: bytes, x: Tensor, outputs: Sequence[str], coverage: float | None
) -> float:
    """Compare a graph with its model, and return the largest difference of a probability."""
    onnxruntime = require("onnxruntime", extra="export", needed_by="export")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    # batches of one sample and of many
    parts = [session.run(None, {name: part.numpy()}) for part in (x[:1], x[1:])]
    computed = dict(zip(outputs, map(np.concatenate, zip(*parts, strict=True)), strict=True))
    answer = model.predict_batch(x if model.is_table else x.permute(0, 3, 1, 2))
    proba, expected = answer.proba, {"rank": answer.chosen}
    if coverage is not None:
        ranges = model.description.calibration.ranges(proba, answer.chosen, coverage)
        expected["low"], expected["high"] = ranges
    finite = np.isfinite(proba).all(axis=1)
    difference = float(np.abs(proba - computed["probs"])[finite].max(initial=0.0))
    same = np.all([computed[each] == expected[each] for each in expected], axis=0)
    wrong = int((finite & ~same).sum())
    # rounding can change the decision of a sample that is almost at a bound
    if not difference <= TOLERANCE or wrong > max(1, len(x) // 20):
        raise UserError(
            "Nothing was written, because the exported graph does not compute what the model does: "
            f"probabilities differ by {difference:.2g}, and {wrong} of {len(x)} decisions differ."
        )
    return difference
