"""Serve a model as a page and a JSON interface: ``layline serve``, or any ASGI server.

>>> from layline.serve import create_app
>>> app = create_app("runs/cars")  # doctest: +SKIP
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from layline.utils.validation import check_above, require

if TYPE_CHECKING:
    from layline.serve.app import create_app

__all__ = ["Limits", "create_app"]


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    max_mb: float = 32.0
    max_pixels: int = 50_000_000  # of an image
    max_files: int = 100
    max_rows: int = 10_000
    timeout: float = 60.0  # in seconds

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            check_above(name, value, 0)


def __getattr__(name: str) -> Any:  # the command line reads the limits without loading FastAPI
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for library in ("fastapi", "python_multipart", "uvicorn"):
        require(library, extra="serve", needed_by="serving a model")
    from layline.serve.app import create_app

    return create_app
