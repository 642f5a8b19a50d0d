"""Serve a model as a page and a JSON interface: ``layline serve``, or any ASGI server.

>>> from layline.serve import create_app
>>> app = create_app("runs/cars-arc")  # doctest: +SKIP
"""

from layline.utils.validation import require

for _library in ("fastapi", "python_multipart", "uvicorn"):  # before they are imported below
    require(_library, extra="serve", needed_by="serving a model")

from layline.serve.app import create_app  # noqa: E402
from layline.serve.schemas import Limits  # noqa: E402

__all__ = ["Limits", "create_app"]
