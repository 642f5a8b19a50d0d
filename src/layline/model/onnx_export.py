"""Models for other runtimes: one flat graph in a file, from prepared samples to ranks and ranges.

The graph is checked against the model that it comes from before it is written. What it takes and
gives is in its metadata, see :class:`layline.model.onnx_runtime.Metadata`.
"""

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from layline.backbones.mlp import MLP
from layline.data.loaders import PreparedBatches
from layline.data.table_encoding import TableEncoding
from layline.heads import HEADS
from layline.heads.base import probabilities
from layline.model.calibration import samples_needed, tempered
from layline.model.description import KEY
from layline.model.exact_operations import ExactOperations
from layline.model.model import OrdinalModel, normalised
from layline.model.model_file import load
from layline.model.onnx_runtime import LARGEST, Metadata, decide, signed
from layline.training.run_folder import RunFolder
from layline.utils.errors import UserError
from layline.utils.files import atomic_write
from layline.utils.optional import require
from layline.utils.plugins import PluginError
from layline.utils.validation import check_known

if TYPE_CHECKING:
    from layline.training.api import Run

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-3
"""Largest difference of a probability that is put down to the order of additions."""
CHECKED = 64  # samples
_DEFAULT_COVERAGE = 0.9


@dataclass(frozen=True)
class Exported:
    """A model that was written for other runtimes.

    Attributes:
        path: The file.
        outputs: What the graph gives.
        samples: How many samples it was checked on.
        checked_on: What they are.
        difference: The largest difference of a probability.
        other_ranks: How many samples lie so near to a bound that their rank or range differs.
        coverage: That of ``low`` and ``high``, if the graph has them.
        why_no_range: Why it has not.
    """

    path: Path
    outputs: tuple[str, ...]
    samples: int
    checked_on: str
    difference: float
    other_ranks: int
    coverage: float | None
    why_no_range: str = ""


def export(
    run: "str | Path | Run | OrdinalModel",
    out: str | Path,
    format: str = "onnx",  # noqa: A002 – as everyone calls it
    coverage: float | None = None,
    opset: int | None = None,
    samples: Any = None,
    plugins: Sequence[str | Path] = (),
) -> Exported:
    """Write a model as one graph that runs elsewhere, after a check that it computes the same.

    Args:
        run: Folder of a run, a ``.safetensors`` file, or a model.
        out: The file: ``.onnx``, or ``.pt2`` for torch.
        format: ``"onnx"``, or ``"torch"`` for a program of ``torch.export``.
        coverage: Of the range between ``low`` and ``high``. If it is not given, the usual one, and
            no range where the model was not calibrated for it.
        opset: Version of ONNX's operators; what the exporter takes if not given.
        samples: What to check it on, as for :meth:`OrdinalModel.predict`. If not given, test
            samples of the run where they can be reached, and random ones otherwise.
        plugins: Files, packages or modules with the method, the features or the source of the run.
    """
    out = Path(out)
    check_known("format", format, SUFFIXES)
    if out.suffix.lower() != SUFFIXES[format]:
        raise UserError(
            f"out must end in {SUFFIXES[format]} for the format {format}, got {out}: "
            "--format says which"
        )
    if format == "onnx":
        for library in ("onnx", "onnxscript", "onnxruntime"):
            require(library, extra="export", needed_by="export")
    elif opset is not None:
        raise UserError(f"opset must be left out with the format torch, got {opset}: it is ONNX's")
    folder, model = _model(run, plugins)
    known = HEADS.get(model.spec.method)
    if known is not None and "export" in known.unsupported:
        raise UserError(
            f"method must be one that can be exported, got {model.spec.method}: layline methods "
            "says why it cannot"
        )
    covered, why_not = _coverage(model, coverage)
    graph = Graph(model, covered).eval()
    given, checked_on = _samples(model, folder, samples, plugins)
    metadata = Metadata.of_export(model.spec, covered)
    program = traced(graph, given, exact=format == "onnx")
    if format == "torch":
        content = _torch_file(program, metadata)
        outputs = _run_torch(content, given)
    else:
        content = _onnx_file(program, metadata, opset)
        outputs = _run_onnx(content, given)
    found = dict(zip(metadata.outputs, outputs, strict=True))
    difference, others = _compare(model, given, found, covered)
    with atomic_write(out) as part:
        part.write_bytes(content)
    return Exported(
        out, metadata.outputs, len(given), checked_on, difference, others, covered, why_not
    )


class Graph(nn.Module):
    """All of a model from a prepared sample on: features, head, temperature, decision and range.

    Args:
        model: What is exported.
        coverage: Of the range; None for none.
    """

    def __init__(self, model: OrdinalModel, coverage: float | None) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(model.backbone).cpu().eval()
        self.head = copy.deepcopy(model.head).cpu().eval().for_export()
        self.is_table = model.is_table
        self.temperature = model.spec.calibration.temperature
        self.decode = model.spec.decode
        scores = np.sort(model.spec.calibration.scores)
        self.bound = None if coverage is None else _largest_misfit(scores, coverage)
        self.requires_grad_(False)  # or a program of torch would keep track of gradients

    def forward(self, x: Shaped[Tensor, "n ..."]) -> tuple[Tensor, ...]:
        """Give log probabilities, probabilities and ranks.

        Args:
            x: Encoded rows, (n, columns), or squares of bytes as images are stored,
                (n, size, size, 3).
        """
        return self.answers(self.backbone(x if self.is_table else x.permute(0, 3, 1, 2)))

    def answers(self, vectors: Float[Tensor, "n d"]) -> tuple[Tensor, ...]:
        """Give the same from the features on."""
        log_probs = tempered(self.head.log_probs(vectors), self.temperature)
        # nothing is known of a feature that overflowed; zero times it is no number
        log_probs = log_probs + (0 * vectors).sum(dim=-1, keepdim=True)
        rank = self.head.decision(vectors, log_probs, self.decode)
        exact = probabilities(log_probs)
        ends = () if self.bound is None else _ranges(exact, rank, self.bound)
        return log_probs, exact.to(log_probs.dtype), rank, *ends


def _largest_misfit(ordered: NDArray[np.float64], coverage: float) -> float:
    """Give the largest misfit of a rank that is possible, see :mod:`layline.model.calibration`.

    :math:`p > 1 - c` holds as long as no more than some number q of calibration scores are smaller,
    that is up to the score at place q.
    """
    count = len(ordered)
    shares = (count - np.arange(count + 1) + 1) / (count + 1)  # by how many are smaller
    most = int(np.flatnonzero(shares > 1 - coverage + 1e-12).max())
    return float(ordered[most]) if most < count else float("inf")


def _ranges(proba: Tensor, rank: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Give the lowest and the highest possible rank, as :meth:`Calibration.ranges` does."""
    below = proba.cumsum(dim=1)[:, :-1]
    lowest = (below - 1).square().sum(dim=1, keepdim=True)
    misfits = torch.cat([lowest, lowest + (2 * below - 1).cumsum(dim=1)], dim=1)
    ranks = torch.arange(proba.shape[1], device=proba.device)
    possible = (misfits <= bound) | (ranks == rank[:, None])
    low = possible.int().argmax(dim=1)
    high = proba.shape[1] - 1 - possible.flip(1).int().argmax(dim=1)
    return low, high


# --- what is exported, and what it is checked on


def _model(run: Any, plugins: Sequence[str | Path]) -> tuple[Path | None, OrdinalModel]:
    """Find the model, and the folder of its run if there is one."""
    if isinstance(run, OrdinalModel):
        return None, run
    place = Path(getattr(run, "folder", run)).expanduser()
    if place.is_dir() and not (place / "best.safetensors").is_file():
        raise FileNotFoundError(
            f"run must be the folder of a trained run, got {place}: it has no best.safetensors"
        )
    if not (place / "config.toml").is_file():
        return None, load(place, plugins=plugins)
    missing: Exception | None = None
    try:
        RunFolder(place).read_config(plugins)  # imports what this user trained it with
    except (ValueError, OSError) as error:
        missing = error
    try:
        return place, load(place, plugins=plugins)
    except PluginError as error:  # of a run it is known where the plug-in was
        raise (missing if isinstance(missing, PluginError) else error) from None


def _coverage(model: OrdinalModel, coverage: float | None) -> tuple[float | None, str]:
    """Choose the coverage of the range; what was asked for is refused where it cannot be kept."""
    calibration, num_classes = model.spec.calibration, len(model.classes)
    if coverage is not None:
        calibration.check(coverage, num_classes)
        return coverage, ""
    count, needed = len(calibration.scores), samples_needed(_DEFAULT_COVERAGE)
    if count >= needed:
        return _DEFAULT_COVERAGE, ""
    return None, f"{count} calibration samples, {needed} are needed at {_DEFAULT_COVERAGE:.0%}"


def _samples(
    model: OrdinalModel, folder: Path | None, samples: Any, plugins: Sequence[str | Path]
) -> tuple[Tensor, str]:
    """Give prepared samples as the graph takes them, and say what they are."""
    batches, what = None, ""
    if samples is not None:
        batches, what = model.batches(model.read(samples)), "samples given"
    elif folder is not None:
        batches, what = _own_samples(model, folder, plugins), "test samples of the run"
    if batches is None or len(batches) == 0:
        return _random_samples(model), "random inputs, as no samples of the run were reached"
    places = np.unique(np.linspace(0, len(batches) - 1, CHECKED).astype(int)).tolist()
    x, _ = batches.__getitems__([(place, 0) for place in places])
    return (x if model.is_table else x.permute(0, 2, 3, 1)).contiguous(), what


def _own_samples(model: OrdinalModel, folder: Path, plugins: Sequence[str | Path]) -> Any:
    """Reach the test samples of a run, or None if its data are no longer there."""
    from rich.console import Console

    from layline.training.assembly import batches_of
    from layline.training.display import Reporter
    from layline.training.finished_run import own_data

    place = RunFolder(folder)
    try:
        config, quiet = place.read_config(plugins), Reporter(Console(quiet=True))
        dataset = own_data(place, config, model, None, quiet)
        return batches_of(dataset.inputs.subset(dataset.splits.test), model.spec)
    except (ValueError, OSError):
        return None


def _random_samples(model: OrdinalModel) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    inputs = model.spec.inputs
    if isinstance(inputs, TableEncoding):
        columns = len(inputs.columns)
        rows = torch.randn((CHECKED, columns), generator=generator, dtype=torch.float64)
        features = model.backbone
        if isinstance(features, MLP):  # as the columns are in training
            rows = rows * features.scale.cpu() + features.mean.cpu()
        return rows
    shape = (CHECKED // 8, inputs.size, inputs.size, 3)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


# --- tracing and writing


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what exporters say of their own workings from a user, who can do nothing about it."""
    names = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


@contextmanager
def _explained(target: str, cure: str) -> Iterator[None]:
    """Say in a sentence that a model cannot be translated; exporters end in pages."""
    try:
        yield
    except Exception as error:  # of any class, also those of libraries behind them
        root: BaseException = error
        while root.__cause__ is not None:
            root = root.__cause__
        why = next((line for line in str(root).splitlines() if line.strip()), type(root).__name__)
        raise UserError(
            f"the model must be one that {target} can express, got: {why.strip()[:200]}; {cure}"
        ) from error


def traced(graph: nn.Module, given: Tensor, exact: bool = True) -> torch.export.ExportedProgram:
    """Trace a graph for batches of any size.

    Args:
        graph: In evaluation mode, on the CPU.
        given: Samples as it takes them.
        exact: Use operations that other runtimes have, see :mod:`layline.model.exact_operations`.
    """
    example = given[:2] if len(given) > 1 else torch.cat([given, given])
    batch = {0: torch.export.Dim("n", min=1)}
    with _quiet(), torch.no_grad():
        graph(example)  # constants are made outside of the trace, where they can be kept
        cause = "its forward has a step that depends on values"
        operations = ExactOperations() if exact else nullcontext()
        with _explained("torch.export", cause), operations:
            program = torch.export.export(graph, (example,), dynamic_shapes=(batch,), strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # names folders of whoever exports, at every node
    return program


def to_onnx(
    program: torch.export.ExportedProgram,
    input_name: str,
    outputs: Sequence[str],
    opset: int | None = None,
) -> Any:
    """Translate a traced graph into a ``ModelProto``.

    Args:
        program: What :func:`traced` gives.
        input_name: What the input is called.
        outputs: What the outputs are called.
        opset: Version of ONNX's operators.
    """
    with _quiet(), _explained("ONNX", "--format torch may know the operation"):
        written: Any = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[input_name],
            output_names=list(outputs),
            opset_version=opset,
            verbose=False,
        )
    proto = written.model_proto
    (used,) = (each.version for each in proto.opset_import if each.domain in ("", "ai.onnx"))
    if opset not in (None, used):
        raise UserError(
            f"opset must be one that torch can write this model in, got {opset}: it wrote {used}"
        )
    graph = proto.graph
    symbol = graph.input[0].type.tensor_type.shape.dim[0].dim_param  # torch's own, such as s77
    for value in (*graph.input, *graph.output, *graph.value_info):
        for side in value.type.tensor_type.shape.dim:
            if side.dim_param == symbol:
                side.dim_param = "n"
    for each in (*graph.node, *graph.value_info, *graph.input, *graph.output, graph):
        del each.metadata_props[:]  # how torch came to it
    return proto


def _torch_file(program: torch.export.ExportedProgram, metadata: Metadata) -> bytes:
    file = io.BytesIO()
    with _quiet():
        torch.export.save(program, file, extra_files={KEY: metadata.model_dump_json()})
    return file.getvalue()


def _onnx_file(
    program: torch.export.ExportedProgram, metadata: Metadata, opset: int | None
) -> bytes:
    size = sum(weight.nbytes for weight in program.state_dict.values())
    if size > LARGEST:
        raise UserError(
            f"a model must be below 2 GB to be one .onnx file, got {size / 1e9:.3g} GB: "
            "--format torch has no such bound"
        )
    return signed(to_onnx(program, metadata.input_name, metadata.outputs, opset), metadata)


def _run_torch(content: bytes, given: Tensor) -> list[NDArray[Any]]:
    with _quiet(), torch.no_grad():
        module = torch.export.load(io.BytesIO(content)).module()
        return _joined([[part.numpy() for part in module(x)] for x in _batches(given)])


def _run_onnx(content: bytes, given: Tensor) -> list[NDArray[Any]]:
    onnxruntime = require("onnxruntime", extra="export", needed_by="export")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return _joined([session.run(None, {name: x.numpy()}) for x in _batches(given)])


def _batches(given: Tensor) -> list[Tensor]:
    """Cut samples so that batches have one sample, and many."""
    return [part for part in (given[:1], given[1:]) if len(part)]


def _joined(parts: list[Any]) -> list[NDArray[Any]]:
    return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]


def _compare(
    model: OrdinalModel, given: Tensor, found: dict[str, NDArray[Any]], coverage: float | None
) -> tuple[float, int]:
    """Compare what a file gives with what the model itself does.

    Returns:
        The largest difference of a probability, and how many samples lie so near to a bound that
        they get another rank or range.
    """
    batches = PreparedBatches(given if model.is_table else given.permute(0, 3, 1, 2))
    answers = list(model.stream_batches(batches))
    expected = {
        "probs": np.concatenate([each.proba for each in answers]),
        "rank": np.concatenate([each.chosen for each in answers]),
    }
    finite = np.isfinite(expected["probs"]).all(axis=1)
    differences = np.abs(expected["probs"] - found["probs"])[finite]
    difference = float(differences.max(initial=0.0))
    if not difference <= TOLERANCE:
        raise UserError(
            f"the exported graph must compute what the model does, got probabilities that differ "
            f"by up to {difference:.2g}: nothing was written, take --format torch"
        )
    # as its own probabilities have it, an answer is right too
    proba = normalised(torch.from_numpy(found["log_probs"]))
    allowed = [expected, {"rank": decide(found["log_probs"], model.spec.decode)}]
    if coverage is not None:
        ranges = model.spec.calibration.ranges
        for answer, shares in zip(allowed, (expected["probs"], proba), strict=True):
            answer["low"], answer["high"] = ranges(shares, answer["rank"], coverage)
    names = [name for name in ("rank", "low", "high") if name in found]
    same = [
        np.all([found[name] == answer[name] for name in names], axis=0) | ~finite
        for answer in allowed
    ]
    wrong = ~(same[0] | same[1])
    if wrong.any():
        raise UserError(
            f"the exported graph must decide as the model does, got {int(wrong.sum())} of "
            f"{len(wrong)} samples otherwise: nothing was written, take --format torch"
        )
    return difference, int((~same[0]).sum())
