"""An exported model: an ``.onnx`` file that predicts through onnxruntime, without PyTorch.

The graph takes prepared samples, and its metadata say how they are prepared. Here that is done by
Pillow, NumPy and pandas; nothing imports torch.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from layline import __version__
from layline.data.dataset import Pixels
from layline.data.preprocessing import ImagePreprocessing
from layline.data.samples import UserImages
from layline.data.table_encoding import Rows, TableEncoding
from layline.model.description import KEY, DescribedModel, Description
from layline.model.predictor import Prediction, Predictor
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import Decode, checked_decode

if TYPE_CHECKING:
    from layline.model.model import ModelSpec

FORMAT = 1
_DIGEST = "layline_blake2b"
_DIGITS = 40  # of the digest
LARGEST = 2**31 - 1
"""Bytes that a protocol buffer can have."""


class Metadata(Description):
    """What an exported model says of itself, as JSON under the key ``layline``.

    Attributes:
        preparation: How samples are prepared, for a person.
        coverage: Of the range between ``low`` and ``high``, where the graph has one.
        calibration: The temperature, which the graph has inside, and what ranges at other coverages
            are made from.
    """

    preparation: str
    coverage: float | None = None

    @classmethod
    def of_export(cls, spec: "ModelSpec", coverage: float | None) -> "Metadata":
        """Describe a model that is exported.

        Args:
            spec: What it was made from.
            coverage: Of the range that the graph gives; None if it gives none.
        """
        said = describe_preparation(spec.inputs)
        return cls.of(spec, FORMAT, preparation=said, coverage=coverage)

    @property
    def input_name(self) -> str:
        """What the graph calls its input."""
        return "row" if self.kind == "table" else "image"

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the graph calls its outputs."""
        ends = () if self.coverage is None else ("low", "high")
        return ("log_probs", "probs", "rank", *ends)


def describe_preparation(inputs: ImagePreprocessing | TableEncoding) -> str:
    """Say in words how a sample becomes what the graph takes."""
    if isinstance(inputs, TableEncoding):
        return (
            "row: float64 (n, columns), the encoded columns in this order: "
            + json.dumps(list(inputs.columns), ensure_ascii=False)
            + ". A number stays as it is, and a missing one becomes the median; a column "
            "'… missing' is 1 where it was missing. A column 'name=category' is 1 where the cell "
            "is that category. Scaling is inside."
        )
    steps = ["RGB, turned upright as EXIF says, what is transparent put on white"]
    if inputs.shrink:
        steps.append(
            f"if the shorter side has more than {inputs.at_least} pixels, resized to that many "
            "(Lanczos, the ratio kept)"
        )
    side, how = inputs.resize, f"{inputs.interpolation}, antialiased"
    if inputs.keep_ratio:
        steps.append(f"the shorter side resized to {side} pixels ({how}), the ratio kept")
    else:
        steps.append(f"resized to {side}×{side} pixels whatever the ratio ({how})")
    steps.append(f"the {inputs.size}×{inputs.size} in the middle cut out")
    return (
        f"image: uint8 (n, {inputs.size}, {inputs.size}, 3), values 0 to 255: "
        + "; ".join(steps)
        + ". Normalising is inside."
    )


def signed(proto: Any, metadata: Metadata) -> bytes:
    """Write a model with its metadata, and at the end a digest of all that is before it.

    Fields of a protocol buffer may come one after the other in any number: what is appended is one
    more entry of the metadata.

    Args:
        proto: The ``ModelProto``.
        metadata: What it says of itself.
    """
    proto.producer_name, proto.producer_version = "layline", __version__
    del proto.metadata_props[:]
    entry = proto.metadata_props.add()
    entry.key, entry.value = KEY, metadata.model_dump_json()
    content: bytes = proto.SerializeToString()
    return content + _digest_entry(content)


def _digest_entry(content: bytes) -> bytes:
    """Encode the entry of the metadata that has the digest: field 14, of two strings."""
    key = _DIGEST.encode()
    value = hashlib.blake2b(content, digest_size=_DIGITS // 2).hexdigest().encode()
    pair = bytes([0x0A, len(key)]) + key + bytes([0x12, len(value)]) + value
    return bytes([0x72, len(pair)]) + pair


_ENTRY = len(_digest_entry(b""))
_ENTRY_START = _digest_entry(b"")[:-_DIGITS]


class OnnxModel(Predictor):
    """A model that ``layline export`` wrote.

    Args:
        path: The ``.onnx`` file.
    """

    def __init__(self, path: str | Path) -> None:
        onnxruntime = require("onnxruntime", extra="export", needed_by="an .onnx model")
        self.path = Path(path).expanduser()
        if not self.path.is_file():
            raise FileNotFoundError(f"path must be a model file, got {self.path}: it is not there")
        content = self.path.read_bytes()
        start = content[-_ENTRY:-_DIGITS]
        if start == _ENTRY_START and _digest_entry(content[:-_ENTRY]) != content[-_ENTRY:]:
            raise UserError(
                f"{self.path} must be as it was written, got other bytes: it is damaged or was "
                "changed; copy it again, or export again"
            )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is raised, too
        options.intra_op_num_threads = joblib.cpu_count()  # those that it may use, not all
        try:
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors have no common class
            why = str(error).partition("\n")[0]
            raise UserError(f"{self.path} must be a whole .onnx file, got: {why}") from error
        text = self._session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise UserError(
                f"{self.path} must be a model that layline export wrote, got another .onnx file: "
                "nothing says how its samples are prepared"
            )
        try:
            self.metadata = Metadata.parse(text, FORMAT)
            self.spec: DescribedModel = self.metadata.checked()
            self._check_graph()
        except ValueError as error:
            raise UserError(f"{self.path} must describe its model: {error}") from error

    def stream(
        self,
        samples: UserImages | Rows,
        batch_size: int = 64,
        workers: int | None = None,
        decode: Decode | None = None,
        keep_going: bool = False,
    ) -> Iterator[Prediction]:
        """Predict samples batch by batch, see :meth:`layline.model.predictor.Predictor.stream`.

        Workers are threads, as many as there are processors if not given.
        """
        own = self.spec.decode
        wanted = own if decode is None else checked_decode(decode, len(self.classes))
        names = ["log_probs", "rank"]
        for x, index in self._batches(samples, batch_size, workers, keep_going):
            log_probs, chosen = self._session.run(names, {self.metadata.input_name: x})
            if wanted != own:
                chosen = decide(log_probs, wanted)
            yield Prediction(index, _softmax(log_probs), chosen)

    def _batches(
        self, samples: UserImages | Rows, size: int, workers: int | None, keep_going: bool
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        if isinstance(samples, Rows):
            for start in range(0, len(samples), size):
                rows = np.ascontiguousarray(samples.values[start : start + size], dtype=np.float64)
                yield rows, np.arange(start, start + len(rows))
            return
        from layline.data.decoding import thread_map  # which may decode

        preparation = self.spec.inputs
        assert isinstance(preparation, ImagePreprocessing)
        side, threads = preparation.size, None if workers is None else max(workers, 1)

        def prepared(index: int) -> Pixels | None:
            try:
                return preparation.square(preparation.load(samples, index))
            except Exception:  # garbage makes Pillow raise almost anything
                if not keep_going:
                    raise
                return None

        batch, index = [], []
        with closing(thread_map(prepared, len(samples), threads)) as squares:
            for place, square in enumerate(squares):
                batch.append(np.zeros((side, side, 3), np.uint8) if square is None else square)
                index.append(~place if square is None else place)
                if len(batch) == size or place == len(samples) - 1:
                    yield np.stack(batch), np.array(index)
                    batch, index = [], []

    def _check_graph(self) -> None:
        """Refuse a graph whose input or outputs are not those that the metadata speak of."""
        kind, inputs = self.metadata.input_name, self.spec.inputs
        if isinstance(inputs, TableEncoding):
            shape: list[int] = [len(inputs.columns)]
        else:
            shape = [inputs.size, inputs.size, 3]
        found = {each.name: each.shape[1:] for each in self._session.get_inputs()}
        if found != {kind: shape}:
            raise UserError(f"the graph must take {kind} with {shape}, got {found}")
        outputs = {each.name: each.shape[1:] for each in self._session.get_outputs()}
        if missing := [name for name in self.metadata.outputs if name not in outputs]:
            raise UserError(f"the graph must give {missing[0]}, got {', '.join(outputs)}")
        if outputs["log_probs"] != [len(self.classes)]:
            raise UserError(
                f"the graph must have {len(self.classes)} classes, got {outputs['log_probs']}"
            )

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.path)!r})"


def decide(log_probs: Float[np.ndarray, "n K"], decode: Decode) -> Int[np.ndarray, " n"]:
    """Choose a rank for each distribution, as :mod:`layline.geometry.decoding` does."""
    if isinstance(decode, str) and decode == "mode":
        return np.asarray(log_probs.argmax(axis=1))
    proba = _softmax(log_probs)
    if not isinstance(decode, str):
        return np.asarray((proba @ np.asarray(decode, dtype=np.float64)).argmin(axis=1))
    if decode == "median":
        return np.asarray((proba.cumsum(axis=1) >= 0.5).argmax(axis=1))
    nearest = np.ceil(proba @ np.arange(proba.shape[1]) - 0.5)
    return np.nan_to_num(nearest, nan=0.0).astype(np.int64)


def _softmax(log_probs: Float[np.ndarray, "n K"]) -> NDArray[np.float64]:
    exact = log_probs.astype(np.float64)
    powers = np.exp(exact - exact.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares
