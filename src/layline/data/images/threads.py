"""The same work for many samples in threads: results in order, few of them in memory at once."""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import joblib

_T = TypeVar("_T")


def thread_map(
    work: Callable[[int], _T], count: int, workers: int | None = None
) -> Generator[_T, None, None]:
    """Give ``work(0)``, ``work(1)``, …, computed ahead by some threads.

    Close the iterator (:func:`contextlib.closing`) where its user may fail or be interrupted: what
    has not been started then never is.

    Args:
        work: What to do; Pillow and hashlib let other threads run meanwhile.
        count: How often.
        workers: How many threads; as many as there are processors if not given.
    """
    workers = workers or joblib.cpu_count()
    waiting: deque[Future[_T]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="layline")
    try:
        for index in range(count):
            waiting.append(pool.submit(work, index))
            if len(waiting) == 2 * workers:  # so that no thread runs out of work
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
