"""Large blocks that are freed are used again, not asked of the system anew."""

import os
import platform
import subprocess
import sys

import pytest

from layline import allocator

BLOCK, TIMES = 1 << 26, 10
ROUNDS = f"""
import resource
import numpy as np
from layline.utils.allocator import keep_freed_memory
print(keep_freed_memory())
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones({BLOCK}, dtype=np.uint8)
before = faults()
for _ in range({TIMES}):
    np.ones({BLOCK}, dtype=np.uint8)
print(faults() - before)
"""

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")


def measured(**environment):
    """Whether memory is kept, and how many pages the system handed out for the later blocks."""
    # a test of Dask's in the same process leaves its own choice
    free = {name: text for name, text in os.environ.items() if name not in allocator._CHOSEN_BY}
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS],
        env={**free, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, pages = done.stdout.split()
    return kept == "True", int(pages)


@needs_glibc
def test_memory_that_is_kept_is_not_handed_out_again():
    kept, pages = measured()
    assert kept
    assert pages < BLOCK // 4096 // 4  # less than a part of a single block


@needs_glibc
def test_an_allocator_that_is_chosen_by_the_environment_stays():
    kept, pages = measured(MALLOC_TRIM_THRESHOLD_="131072")
    assert not kept
    assert pages > TIMES // 2 * BLOCK // 4096 // 512  # huge pages count once for 512
