"""Exported models: an ``.onnx`` file that predicts with onnxruntime, without PyTorch.

The graph takes prepared samples. Its metadata contain the description of the model, including how
they are prepared: images with Pillow, tables with pandas.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from layline.data.dataset import Images, Pixels
from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import Rows, TableEncoding
from layline.geometry import decoding
from layline.geometry.decoding import Decode, check_decode
from layline.model.description import KEY, ModelDescription
from layline.model.predictor import Prediction, Predictor
from layline.utils.validation import UserError, require


def graph_input(description: ModelDescription) -> tuple[str, list[int]]:
    """Return the name of the graph's input, and its shape without the batch dimension."""
    inputs = description.inputs
    if isinstance(inputs, TableEncoding):
        return "row", [len(inputs.columns)]
    return "image", [inputs.size, inputs.size, 3]


def graph_outputs(description: ModelDescription) -> tuple[str, ...]:
    """Return the names of the graph's outputs."""
    ends = () if description.coverage is None else ("low", "high")
    return ("log_probs", "probs", "rank", *ends)


def describe_preparation(inputs: ImagePreprocessing | TableEncoding) -> str:
    """Explain how a sample becomes the input of the graph, for users of other runtimes."""
    if isinstance(inputs, TableEncoding):
        return (
            "row: float64 (n, columns), the encoded columns in this order: "
            + json.dumps(list(inputs.columns), ensure_ascii=False)
            + ". Numbers are not scaled; a missing number becomes the median of its column, and "
            "the column '… missing' is 1 where it was missing. A column 'name=category' is 1 "
            "where the cell is that category and 0 elsewhere."
        )
    steps = ["RGB, rotated as EXIF says, transparent pixels on white"]
    if inputs.shrink:
        steps.append(
            f"if the shorter side is longer than {inputs.at_least} pixels, resized to that "
            "(Lanczos, aspect ratio kept)"
        )
    what, kept = ("shorter side", "kept") if inputs.keep_ratio else ("both sides", "not kept")
    how = f"({inputs.interpolation}, antialiased), aspect ratio {kept}"
    steps.append(f"{what} resized to {inputs.resize} pixels {how}")
    size = inputs.size
    return (
        f"image: uint8 (n, {size}, {size}, 3), values 0 to 255: {'; '.join(steps)}; center crop of "
        f"{size}×{size} pixels. The graph normalizes the values."
    )


class OnnxModel(Predictor):
    """A model that was exported to an ``.onnx`` file."""

    def __init__(self, path: str | Path) -> None:
        onnxruntime = require("onnxruntime", extra="export", needed_by="an .onnx model")
        self.path = Path(path).expanduser()
        if not self.path.is_file():
            raise FileNotFoundError(f"There is no model file {self.path}.")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised as exceptions
        options.intra_op_num_threads = joblib.cpu_count()  # respects limits of containers
        try:
            self._session = onnxruntime.InferenceSession(
                str(self.path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no common class
            why = str(error).partition("\n")[0]
            raise UserError(f"{self.path} is not an .onnx file, or is damaged: {why}") from error
        text = self._session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise UserError(f"{self.path} was not exported by Layline.")
        try:
            self.description = ModelDescription.from_json(text)
            self._check_graph()
        except ValueError as error:
            raise UserError(f"{self.path} does not describe a valid model: {error}") from error

    def stream(
        self,
        samples: Images | Rows,
        batch_size: int = 64,
        workers: int | None = None,
        decode: Decode | None = None,
        keep_going: bool = False,
    ) -> Iterator[Prediction]:
        """Predict samples batch by batch; workers are threads, by default one per processor."""
        own = self.description.decode
        wanted = own if decode is None else check_decode(decode, len(self.classes))
        name = graph_input(self.description)[0]
        for x, index in self._batches(samples, batch_size, workers, keep_going):
            log_probs, chosen = self._session.run(["log_probs", "rank"], {name: x})
            proba: NDArray[np.float64] = softmax(log_probs.astype(np.float64), axis=1)
            if wanted != own:
                chosen = decoding.decide(proba, wanted)
            yield Prediction(index, proba, chosen)

    def _batches(
        self, samples: Images | Rows, size: int, workers: int | None, keep_going: bool
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        if isinstance(samples, Rows):
            for start in range(0, len(samples), size):
                rows = np.ascontiguousarray(samples.values[start : start + size], dtype=np.float64)
                yield rows, np.arange(start, start + len(rows))
            return
        from layline.data.images import thread_map  # needs Pillow

        preparation = self.description.inputs
        assert isinstance(preparation, ImagePreprocessing)
        side, threads = preparation.size, None if workers is None else max(workers, 1)

        def prepare(index: int) -> Pixels | None:
            try:
                return preparation.square(preparation.load(samples, index))
            except Exception:  # a damaged file makes Pillow raise almost anything
                if not keep_going:
                    raise
                return None

        batch, index = [], []
        with closing(thread_map(prepare, len(samples), threads)) as squares:
            for place, square in enumerate(squares):
                batch.append(np.zeros((side, side, 3), np.uint8) if square is None else square)
                index.append(~place if square is None else place)
                if len(batch) == size or place == len(samples) - 1:
                    yield np.stack(batch), np.array(index)
                    batch, index = [], []

    def _check_graph(self) -> None:
        """Refuse a graph whose input or outputs differ from its description."""
        name, shape = graph_input(self.description)
        inputs = {each.name: each.shape[1:] for each in self._session.get_inputs()}
        outputs = {each.name: each.shape[1:] for each in self._session.get_outputs()}
        if inputs != {name: shape} or not {*graph_outputs(self.description)} <= {*outputs}:
            raise UserError(f"the graph has the inputs {inputs} and the outputs {outputs}")
        if outputs["log_probs"] != [len(self.classes)]:
            raise UserError(f"there are {len(self.classes)} classes, but {outputs['log_probs']}")

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.path)!r})"
