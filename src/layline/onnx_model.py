"""An exported model: an ``.onnx`` file that predicts through onnxruntime, without PyTorch.

The graph takes prepared samples, and its metadata say how they are prepared. Here that is done by
Pillow, NumPy and pandas; nothing imports torch.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import joblib
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic import ValidationError as _ValidationError

from layline import __version__
from layline.arguments import Decode, checked_decode
from layline.calibration import Calibration
from layline.data.base import Pixels, listed
from layline.data.images.preprocessing import ImagePreprocessing
from layline.data.samples import UserImages, as_images, as_rows
from layline.data.table import Rows, TableEncoding
from layline.optional import require
from layline.prediction_file import WHY_NO_PROBABILITIES

if TYPE_CHECKING:
    from layline.model import ModelSpec

FORMAT = 1
KEY = "layline"  # of the metadata
_DIGEST = "layline_blake2b"
_DIGITS = 40  # of the digest
_MOST_PIXELS = 8192  # at a side
LARGEST = 2**31 - 1
"""Bytes that a protocol buffer can have."""


class _Calibration(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    temperature: PositiveFloat = 1.0
    scores: list[float] = []
    ranks: list[NonNegativeInt] = []


class Metadata(BaseModel):
    """What an exported model says of itself, as JSON under the key ``layline``.

    Attributes:
        format: Of this description.
        version: Of Layline.
        method: The ordinal method.
        features: The network.
        classes: Their names, lowest first; a rank is a place in it.
        kind: What the samples are.
        inputs: How they are prepared, for a program.
        preparation: The same for a person.
        decode: How ``rank`` is decided on.
        coverage: Of the range between ``low`` and ``high``, where the graph has one.
        calibration: The temperature, which the graph has inside, and what ranges at other coverages
            are made from.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    format: PositiveInt
    version: str
    method: str
    features: str
    classes: list[str]
    kind: Literal["images", "table"]
    inputs: dict[str, Any]
    preparation: str
    decode: str | list[list[float]]
    coverage: float | None = None
    calibration: _Calibration

    @classmethod
    def of(cls, spec: "ModelSpec", coverage: float | None) -> "Metadata":
        """Describe a model.

        Args:
            spec: What it was made from.
            coverage: Of the range that the graph gives; None if it gives none.
        """
        from dataclasses import asdict

        is_table = isinstance(spec.inputs, TableEncoding)
        return cls(
            format=FORMAT,
            version=__version__,
            method=spec.method,
            features=spec.features,
            classes=list(spec.classes),
            kind="table" if is_table else "images",
            inputs=json.loads(json.dumps(asdict(spec.inputs))),
            preparation=describe_preparation(spec.inputs),
            decode=spec.decode if isinstance(spec.decode, str) else [list(r) for r in spec.decode],
            coverage=coverage,
            calibration=_Calibration(**spec.calibration.to_json()),
        )

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


@dataclass(frozen=True)
class Predicted:
    """What an exported model predicts for a batch.

    Attributes:
        index: Which samples they are; ``~i`` if sample i could not be decoded.
        log_probs: Logarithms of the probabilities of the classes, calibrated.
        chosen: The rank that is decided for.
    """

    index: Int[np.ndarray, " n"]
    log_probs: Float[np.ndarray, "n K"]
    chosen: Int[np.ndarray, " n"]

    @property
    def has_probabilities(self) -> Bool[np.ndarray, " n"]:
        """Whether numbers came out: a value that overflows gives none."""
        return np.asarray(~np.isnan(self.log_probs).any(axis=1))

    @property
    def proba(self) -> Float[np.ndarray, "n K"]:
        """Probabilities that sum to one in float64."""
        return _softmax(self.log_probs)


class OnnxModel:
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
            raise ValueError(
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
            raise ValueError(f"{self.path} must be a whole .onnx file, got: {why}") from error
        text = self._session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise ValueError(
                f"{self.path} must be a model that layline export wrote, got another .onnx file: "
                "nothing says how its samples are prepared"
            )
        try:
            self.metadata = _parse(text)
            self.inputs = _inputs(self.metadata)
            self.decode = checked_decode(self.metadata.decode, len(self.classes))
            self.calibration = _calibration(self.metadata)
            self._check_graph()
        except ValueError as error:
            raise ValueError(f"{self.path} must describe its model: {error}") from error

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, lowest first."""
        return tuple(self.metadata.classes)

    @property
    def is_table(self) -> bool:
        """Whether its samples are rows of a table."""
        return isinstance(self.inputs, TableEncoding)

    def predict(self, samples: Any, decode: Decode | None = None) -> NDArray[np.str_]:
        """Name the class of each sample, see :meth:`layline.model.OrdinalModel.predict`."""
        ranks = [rank for each in self._answers(samples, decode) for rank in each.chosen.tolist()]
        return self._named(ranks)

    def predict_proba(self, samples: Any) -> NDArray[np.float64]:
        """Give the probability of each class, a column each in the order of ``classes``."""
        parts = [each.proba for each in self._answers(samples)]
        return np.concatenate([np.zeros((0, len(self.classes))), *parts])

    def predict_range(
        self,
        samples: Any,
        coverage: float = 0.9,
        by_class: bool = False,
        decode: Decode | None = None,
    ) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
        """Name the lowest and the highest class that is possible for each sample.

        See :meth:`layline.model.OrdinalModel.predict_range`.
        """
        self.calibration.check(coverage, len(self.classes), by_class)
        parts = [
            self.calibration.ranges(each.proba, each.chosen, coverage, by_class)
            for each in self._answers(samples, decode)
        ]
        low, high = ([rank for part in parts for rank in part[end].tolist()] for end in (0, 1))
        return self._named(low), self._named(high)

    def _named(self, ranks: Sequence[int]) -> NDArray[np.str_]:
        return np.array([self.classes[rank] for rank in ranks], dtype=np.str_)

    def _answers(self, samples: Any, decode: Decode | None = None) -> Iterator[Predicted]:
        """Predict samples; those that give no probabilities are refused, all by their names."""
        found = self.read(samples)
        without: list[int] = []
        for answer in self.stream(found, decode=decode):
            without += answer.index[~answer.has_probabilities].tolist()
            if not without:
                yield answer
        if without:
            raise ValueError(
                "samples must give probabilities, got none for "
                f"{listed(found.names[i] for i in without)}: {WHY_NO_PROBABILITIES}"
            )

    def read(self, samples: Any) -> UserImages | Rows:
        """Find out what a user's samples are, see :meth:`layline.model.OrdinalModel.predict`."""
        if isinstance(self.inputs, TableEncoding):
            return as_rows(samples, self.inputs)
        return as_images(samples)

    def stream(
        self,
        samples: UserImages | Rows,
        batch_size: int = 64,
        workers: int | None = None,
        decode: Decode | None = None,
        keep_going: bool = False,
    ) -> Iterator[Predicted]:
        """Predict samples batch by batch, with memory for a few batches only.

        Args:
            samples: What :meth:`read` gives.
            batch_size: Samples at a time.
            workers: Threads that decode images; as many as there are processors if not given.
            decode: How a rank is decided on, if not as in the export.
            keep_going: Mark an image that cannot be decoded instead of stopping.
        """
        wanted = self.decode if decode is None else checked_decode(decode, len(self.classes))
        names = ["log_probs", "rank"]
        for x, index in self._batches(samples, batch_size, workers, keep_going):
            log_probs, chosen = self._session.run(names, {self.metadata.input_name: x})
            if wanted != self.decode:
                chosen = decide(log_probs, wanted)
            yield Predicted(index, log_probs, chosen)

    def _batches(
        self, samples: UserImages | Rows, size: int, workers: int | None, keep_going: bool
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        if isinstance(samples, Rows):
            for start in range(0, len(samples), size):
                rows = np.ascontiguousarray(samples.values[start : start + size], dtype=np.float64)
                yield rows, np.arange(start, start + len(rows))
            return
        from layline.data.images.threads import thread_map  # which may decode

        preparation = self.inputs
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
        inputs, kind = self._session.get_inputs(), self.metadata.input_name
        if isinstance(self.inputs, TableEncoding):
            shape: list[int] = [len(self.inputs.columns)]
        else:
            shape = [self.inputs.size, self.inputs.size, 3]
        found = {each.name: each.shape[1:] for each in inputs}
        if found != {kind: shape}:
            raise ValueError(f"the graph must take {kind} with {shape}, got {found}")
        outputs = {each.name: each.shape[1:] for each in self._session.get_outputs()}
        if missing := [name for name in self.metadata.outputs if name not in outputs]:
            raise ValueError(f"the graph must give {missing[0]}, got {', '.join(outputs)}")
        if outputs["log_probs"] != [len(self.classes)]:
            raise ValueError(
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


# --- the metadata, which may be anyone's and say anything


def _parse(text: str) -> Metadata:
    try:
        values = json.loads(text)
        written, version = values["format"], values.get("version", "?")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("format must be there, got none: the metadata are damaged") from None
    if isinstance(written, int) and written > FORMAT:
        raise ValueError(
            f"format must be at most {FORMAT}, got {written}, of layline {version}: this is "
            f"{__version__}, upgrade it"
        )
    try:
        metadata = Metadata.model_validate(values)
    except _ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ValueError(f"{name} must be right, got: {first['msg']}") from None
    if len(set(metadata.classes)) < max(len(metadata.classes), 2):
        raise ValueError(f"classes must have different names, got {metadata.classes}")
    return metadata


def _inputs(metadata: Metadata) -> ImagePreprocessing | TableEncoding:
    if metadata.kind == "table":
        return TableEncoding.from_json(metadata.inputs)
    try:
        images = ImagePreprocessing(**metadata.inputs)
    except TypeError as error:
        raise ValueError(f"inputs must be how images are prepared, got: {error}") from None
    if images.resize > _MOST_PIXELS:
        raise ValueError(f"size must be at most {_MOST_PIXELS} pixels, got {images.resize}")
    return images


def _calibration(metadata: Metadata) -> Calibration:
    found = metadata.calibration
    if len(found.scores) != len(found.ranks) or max(found.ranks, default=0) >= len(
        metadata.classes
    ):
        raise ValueError("calibration must have a rank of the classes for each score, got others")
    return Calibration(
        found.temperature, np.array(found.scores), np.array(found.ranks, dtype=np.int64)
    )
