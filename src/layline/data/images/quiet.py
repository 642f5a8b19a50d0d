"""A library's warnings kept from the user, also in threads."""

import threading
import warnings


class Quiet:
    """Ignores the warnings of a library while inside, except one kind that becomes an error.

    The filters of warnings belong to the process: threads that each set and restored them would
    restore one another's. So the first thread in sets them, and the last one out restores them.

    Args:
        module: The modules to keep quiet, as a regular expression of how their names begin.
        fatal: The warning to raise.
    """

    def __init__(self, module: str, fatal: type[Warning]) -> None:
        self._module = module
        self._fatal = fatal
        self._lock = threading.Lock()
        self._inside = 0
        self._before = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
                warnings.filterwarnings("ignore", module=self._module)
                warnings.simplefilter("error", self._fatal)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._before.__exit__(None, None, None)
