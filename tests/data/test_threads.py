import threading
import time
from contextlib import closing

import pytest

from layline.data.decoding import thread_map


@pytest.mark.parametrize("workers", [None, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 5, 50])
def test_results_come_in_order_whoever_is_first(workers, count):
    def slow_at_first(index):
        time.sleep(0.002 * (index % 3 == 0))
        return index**2

    assert list(thread_map(slow_at_first, count, workers)) == [i**2 for i in range(count)]


def test_few_results_wait_at_once():
    done = []
    with closing(thread_map(done.append, 1000, workers=2)) as results:
        next(results)
        time.sleep(0.05)
        assert len(done) <= 4


def test_an_error_is_raised_in_its_place_and_no_thread_is_left():
    before = threading.active_count()
    results = thread_map(lambda index: 1 // (2 - index), 100, workers=2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert threading.active_count() == before
