"""The memory allocator of the C library, set for networks that compute on a processor.

A network frees each layer's output after the next one. Those of a batch of images are tens of
megabytes, and glibc gives blocks of that size back to the system at once. For the next batch the
system hands them out anew, page after page filled with zeros, which can take longer than the
network itself. Blocks that are kept instead are used again as they are; the process has its largest
size from the first batch on, and no larger one.
"""

import ctypes
import os
import platform

# Numbers of glibc's malloc.h, each with the bytes from which blocks are given back.
_PARAMETERS = {"M_MMAP_THRESHOLD": (-3, 1 << 30), "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1)}
# Who sets one of these has chosen already.
_CHOSEN_BY = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let this process keep large blocks of memory that it frees, for its next ones.

    It holds for all of the process, so it is for programs: the command calls it, the library does
    not.

    Returns:
        Whether it does: not where the C library is another than glibc, nor where the environment
        has set its allocator.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _CHOSEN_BY):
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(*parameter) == 1 for parameter in _PARAMETERS.values())
