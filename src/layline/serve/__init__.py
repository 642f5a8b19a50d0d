"""A model as a page and an interface for programs: ``layline serve``, or any ASGI server.

>>> from layline.serve import create_app
>>> app = create_app("runs/cars-arc")  # doctest: +SKIP
"""

from layline.utils.optional import require

for _library in ("starlette", "python_multipart", "uvicorn"):  # before they are imported below
    require(_library, extra="serve", needed_by="serving a model")

from layline.serve.app import create_app  # noqa: E402
from layline.serve.reading import Limits  # noqa: E402
from layline.serve.server import serve  # noqa: E402

__all__ = ["Limits", "create_app", "serve"]
