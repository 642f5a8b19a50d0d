"""Batches that are shared by concurrent requests.

Threads prepare samples while the model computes. All samples that are ready when the model has
finished a batch form its next batch, so batches grow with the load and a single sample does not
wait.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import joblib
import torch
from torch import Tensor

from layline.model.predictor import Prediction

_T = TypeVar("_T")
_Waiting = tuple[Tensor, "asyncio.Future[Prediction]"]


class Batcher:
    """Predicts samples of concurrent requests together.

    Args:
        predict: Predicts a batch; called in a thread, one batch at a time.
        batch_size: A batch is not enlarged beyond this size.
    """

    def __init__(self, predict: Callable[[Tensor], Prediction], batch_size: int) -> None:
        self._predict, self._batch_size = predict, batch_size
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        # the number of threads also limits how many images are decoded at once
        self._threads = ThreadPoolExecutor(joblib.cpu_count(), "layline-prepare")

    async def in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Call a function in one of the threads that prepare samples."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    async def predict(self, x: Tensor) -> Prediction:
        """Predict prepared samples, (n, …)."""
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((x, answer))
        return await answer

    async def run(self) -> None:
        """Predict batches until the task is cancelled."""
        while True:
            batch = [await self._queue.get()]
            size = len(batch[0][0])
            while size < self._batch_size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
                size += len(batch[-1][0])
            # a request that timed out has cancelled its futures
            batch = [each for each in batch if not each[1].done()]
            if batch:
                await self._predict_batch(batch)

    async def _predict_batch(self, batch: list[_Waiting]) -> None:
        try:
            x = torch.cat([x for x, _ in batch])
            predicted = await asyncio.to_thread(self._predict, x)
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        start = 0
        for x, answer in batch:
            part = predicted.part(slice(start, start := start + len(x)))
            if not answer.done():
                answer.set_result(part)
