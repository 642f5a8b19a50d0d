"""Samples of many requests in one batch: threads prepare them, and one thread asks the model.

While the model computes, the next samples are prepared, and all that are ready by then are its next
batch. A sample that comes alone waits for nobody: the model waits only while others are on their
way, and not for long. Batches so grow with the load.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import joblib
import torch
from torch import Tensor

from layline.data.loaders import PreparedBatches
from layline.geometry.decoding import Decode
from layline.model.model import OrdinalModel
from layline.model.predictor import Prediction

_WAIT = 0.02  # seconds that a sample which is ready waits for those that are being prepared


Prepare = Callable[[], Tensor]
_Waiting = tuple[Tensor, "Future[Prediction]"]


class Batcher:
    """Predicts samples that come one by one, from any thread, in batches.

    Args:
        model: Predicts them.
        decode: How a distribution becomes a class.
        batch_size: Samples at a time, at most; what one caller prepared together stays together.
    """

    def __init__(self, model: OrdinalModel, decode: Decode, batch_size: int) -> None:
        self._model, self._decode, self.batch_size = model, decode, batch_size
        self._ready: deque[_Waiting] = deque()
        self._preparing = 0
        self._closed = False
        self._change = threading.Condition()
        self._threads: ThreadPoolExecutor | None = None
        self._worker: threading.Thread | None = None
        self._cores = torch.get_num_threads()  # for the model
        self.answered = 0  # samples

    @property
    def waiting(self) -> int:
        """How many are being prepared, or are ready."""
        with self._change:
            return self._preparing + len(self._ready)

    def submit(self, prepare: Prepare) -> "Future[Prediction]":
        """Have samples prepared in a thread, and predicted.

        Args:
            prepare: Gives them as the network takes them, a row each; what it raises is the
                answer.
        """
        answer: Future[Prediction] = Future()
        with self._change:
            if self._closed:
                raise RuntimeError("the server must be running, got one that was stopped")
            threads = self._started()
            self._preparing += 1
        threads.submit(self._prepare, prepare, answer)
        return answer

    def run(self, work: Callable[[], object]) -> "Future[object]":
        """Do something else in a thread that prepares samples."""
        with self._change:
            threads = self._started()
        return threads.submit(work)

    def close(self) -> None:
        """Answer what was submitted, and end the threads."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._threads is not None:
            self._threads.shutdown()
        if self._worker is not None:
            self._worker.join()

    def _started(self) -> ThreadPoolExecutor:
        """Start the threads when they are needed: none would survive a fork."""
        if self._threads is None or self._worker is None:
            # one core for each of them, as torch has it in the workers of a DataLoader
            self._threads = ThreadPoolExecutor(
                joblib.cpu_count(), "layline-prepare", torch.set_num_threads, (1,)
            )
            self._worker = threading.Thread(target=self._work, name="layline-model", daemon=True)
            self._worker.start()
        return self._threads

    def _prepare(self, prepare: Prepare, answer: "Future[Prediction]") -> None:
        ready: list[_Waiting] = []
        try:
            if answer.set_running_or_notify_cancel():  # else nobody waits for it any more
                ready.append((prepare(), answer))
        except BaseException as error:
            answer.set_exception(error)
        finally:
            with self._change:
                self._preparing -= 1
                self._ready.extend(ready)
                self._change.notify_all()

    def _work(self) -> None:
        while batch := self._next_batch():
            answers = [answer for _, answer in batch]
            try:
                predicted = self._predict(torch.cat([x for x, _ in batch]))
            except BaseException as error:
                for answer in answers:
                    answer.set_exception(error)
                continue
            self.answered += len(predicted.chosen)
            start = 0
            for x, answer in batch:
                part = slice(start, start := start + len(x))
                answer.set_result(predicted.part(part))

    def _next_batch(self) -> list[_Waiting]:
        """Wait for samples; none come any more once it is closed and all are answered."""
        batch: list[_Waiting] = []
        with self._change:
            self._change.wait_for(lambda: self._ready or (self._closed and not self._preparing))
            self._change.wait_for(
                lambda: not self._preparing or len(self._ready) >= self.batch_size, timeout=_WAIT
            )
            size = 0
            while self._ready and (not batch or size + len(self._ready[0][0]) <= self.batch_size):
                batch.append(self._ready.popleft())
                size += len(batch[-1][0])
        return batch

    def _predict(self, x: Tensor) -> Prediction:
        torch.set_num_threads(self._cores)  # some of it is the process's, and others have set it
        batches = PreparedBatches(x)
        (answer,) = self._model.stream_batches(batches, batch_size=len(x), decode=self._decode)
        return answer
