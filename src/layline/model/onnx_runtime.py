"""Exported models: an ``.onnx`` file that predicts with onnxruntime, without PyTorch.

The graph takes prepared samples. Its metadata contain the description of the model, including how
they are prepared: images with Pillow, tables with pandas.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from layline.data.dataset import Images, Indices
from layline.data.images import thread_map
from layline.data.tables import Rows, TableEncoding
from layline.geometry.decoding import Decode, check_decode, decide
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
        name, _ = graph_input(self.description)
        for start in range(0, len(samples), batch_size):
            index = np.arange(start, min(start + batch_size, len(samples)))
            x = self._prepare(samples, index, workers, keep_going)
            log_probs, chosen = self._session.run(["log_probs", "rank"], {name: x})
            proba: NDArray[np.float64] = softmax(log_probs.astype(np.float64), axis=1)
            if wanted != own:
                chosen = decide(proba, wanted)
            yield Prediction(index, proba, chosen)

    def _prepare(
        self, samples: Images | Rows, index: Indices, workers: int | None, keep_going: bool
    ) -> NDArray[Any]:
        """Prepare a batch; an image that cannot be decoded is black, and its index i becomes ~i."""
        if isinstance(samples, Rows):
            return np.asarray(samples.values[index], dtype=np.float64)
        inputs = self.description.inputs
        if isinstance(inputs, TableEncoding):
            raise UserError("The model takes rows of a table, but the data are images.")
        x = np.zeros((len(index), inputs.size, inputs.size, 3), np.uint8)

        def prepare(place: int) -> None:
            try:
                x[place] = inputs.square(inputs.load(samples, index[place]))
            except Exception:  # a damaged file makes Pillow raise almost anything
                if not keep_going:
                    raise
                index[place] = ~index[place]

        list(thread_map(prepare, len(index), workers))
        return x

    def _check_graph(self) -> None:
        """Refuse a graph whose input or outputs differ from its description."""
        name, shape = graph_input(self.description)
        inputs = {each.name: each.shape[1:] for each in self._session.get_inputs()}
        outputs = {each.name: each.shape[1:] for each in self._session.get_outputs()}
        complete = set(graph_outputs(self.description)) <= set(outputs)
        if inputs != {name: shape} or not complete or outputs["probs"] != [len(self.classes)]:
            raise UserError(f"the graph has the inputs {inputs} and the outputs {outputs}")
