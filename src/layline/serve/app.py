"""The application: a page for people, and the same for programs.

========================  =======================================================
``GET /``                 the page, which needs nothing from elsewhere
``POST /predict``         images or rows, many at once; see ``openapi.json``
``GET /model``            classes, what it takes, what it knows of its certainty
``GET /health``           whether it works, and how much it has to do
``GET /openapi.json``     a description of all this for programs
========================  =======================================================

Whatever is wrong with a request is one sentence under ``error``, with a status from 400 on. Of
several images that come together each has its own.
"""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from torch import Tensor

import layline
from layline.data.decoding import BadImageError, Image
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import TableEncoding
from layline.geometry.decoding import Decode
from layline.model.model import OrdinalModel
from layline.model.predictor import Prediction
from layline.reports.pages import TEMPLATES
from layline.serve.batching import Batcher
from layline.serve.openapi import describe_api
from layline.serve.reading import (
    HOW,
    Limits,
    Load,
    busy,
    check_list,
    clean_name,
    form_files,
    guarded,
    image_of,
    parse_json,
    rows_of,
    table_of,
)
from layline.serve.served_model import ServedModel

_T = TypeVar("_T")
_IMAGES, _ROWS = 64, 4096  # in a batch
_HERE = Path(__file__).parent
_ASSETS = {
    "/": (_HERE / "page.html", "text/html"),
    "/page.js": (_HERE / "page.js", "text/javascript"),
    "/page.css": (_HERE / "page.css", "text/css"),
    "/report.css": (TEMPLATES / "report.css", "text/css"),  # the look of the reports
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob: data:; media-src blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_NOT_FOUND = "the path must be one of /, /predict, /model, /health and /openapi.json"
_log = logging.getLogger("layline.serve")


def create_app(
    model: OrdinalModel | str | Path,
    *,
    coverage: float | None = None,
    decode: Decode | None = None,
    review: float | None = None,
    device: str | None = None,
    limits: Limits | None = None,
) -> Starlette:
    """Make an application for any ASGI server.

    Args:
        model: What to serve: the folder of a run, a ``.safetensors`` file, or a loaded model.
        coverage: Share of the samples whose truth a range shall hold; if not given, 90 % or what
            the calibration samples can promise, and no ranges for a model that has none.
        decode: How a distribution becomes a class; as in training if not given.
        review: Share of the samples that a person should look at, the least certain. It is known
            from the test part of a run, so the model has to be its folder.
        device: Where to compute; ``auto`` takes a GPU if there is one. A loaded model stays where
            it is if this is not given.
        limits: What a request may ask for.
    """
    served = ServedModel(model, coverage, decode, review, device)
    service = _Service(served, Limits() if limits is None else limits)
    routes = [Route(path, service.asset, name=path) for path in _ASSETS]
    routes += [
        Route("/predict", service.predict, methods=["POST"]),
        Route("/model", service.model),
        Route("/health", service.health),
        Route("/openapi.json", service.openapi),
    ]
    app = Starlette(
        routes=routes,
        lifespan=service.lifespan,
        exception_handlers={
            HTTPException: _refuse,
            ClientDisconnect: _gone,
            Exception: _fail,
        },
    )
    app.router.redirect_slashes = False  # a path that is not there is said to be so
    app.state.service = service
    return app


class _Service:
    """Answers the requests.

    Args:
        served: The model.
        limits: What a request may ask for.
    """

    def __init__(self, served: ServedModel, limits: Limits) -> None:
        self.served, self.limits, self._load = served, limits, Load(limits)
        size = _ROWS if served.is_table else _IMAGES
        self.batcher = Batcher(served.model, served.decode, size)
        self._about = {**served.describe(), "limits": self._described_limits()}

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Answer once before anyone asks, which loads what is needed; at the end finish all."""
        await asyncio.wrap_future(self.batcher.submit(self._example()))
        self.batcher.answered = 0
        yield
        await asyncio.to_thread(self.batcher.close)

    async def asset(self, request: Request) -> Response:
        """Give a file of the page."""
        path, kind = _ASSETS[request.scope["path"].removeprefix(request.scope["root_path"]) or "/"]
        return Response(path.read_bytes(), media_type=kind, headers=_HEADERS)

    async def model(self, request: Request) -> Response:
        """Describe the model."""
        return _json(self._about)

    async def health(self, request: Request) -> Response:
        """Tell that it works."""
        return _json(
            {
                "status": "ok",
                "model": self.served.name,
                "version": layline.__version__,
                "waiting": self.batcher.waiting,
                "answered": self.batcher.answered,
            }
        )

    async def openapi(self, request: Request) -> Response:
        """Describe the interface."""
        return _json(describe_api(self._about))

    async def predict(self, request: Request) -> Response:
        """Predict what was sent."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("multipart/form-data", "application/json"):
            got = clean_name(kind, "none")
            raise HTTPException(415, f"the content type must be a known one, got {got}: {HOW}")
        async with guarded(request, self.limits, self._load) as within:
            inputs = self.served.model.description.inputs
            if isinstance(inputs, TableEncoding):
                return _json({"predictions": await self._predict_table(within, kind, inputs)})
            found = await self._predict_images(within, kind, inputs)
        wrong = [each["error"] for each in found if "error" in each]
        if len(wrong) < len(found):
            return _json({"predictions": found})
        error = wrong[0] if len(wrong) == 1 else f"no image can be read, the first: {wrong[0]}"
        return _json({"error": error, "predictions": found}, 422)

    async def _predict_images(
        self, request: Request, kind: str, inputs: ImagePreprocessing
    ) -> list[dict[str, Any]]:
        most = self.limits.max_files
        if kind == "application/json":
            given = await self._in_thread(_parsed(await request.body()))
            samples = [
                _json_image(each, place)
                for place, each in enumerate(check_list(given, "images", most), 1)
            ]
            return await self._images([(n, image_of(c, inputs, self.limits)) for n, c in samples])
        async with form_files(request, most, "images") as files:
            if not files:
                raise HTTPException(400, f"the form must have files, got none: {HOW}")
            return await self._images([(n, image_of(c, inputs, self.limits)) for n, c in files])

    async def _images(
        self, samples: Sequence[tuple[str, Callable[[], Tensor]]]
    ) -> list[dict[str, Any]]:
        # so many at a time, so that one who asks for many does not keep others waiting
        turn = asyncio.Semaphore(self.batcher.batch_size)

        async def answer(name: str, prepare: Callable[[], Tensor]) -> dict[str, Any]:
            async with turn:
                try:
                    predicted = await asyncio.wrap_future(self.batcher.submit(prepare))
                except BadImageError as error:
                    return {"error": f"image must be readable, got {name}: {error.why}"}
            (found,) = self.served.answers(predicted)
            return found

        answers = await self._all([answer(*sample) for sample in samples])
        return [{"name": name} | found for (name, _), found in zip(samples, answers, strict=True)]

    async def _predict_table(
        self, request: Request, kind: str, encoding: TableEncoding
    ) -> list[dict[str, Any]]:
        content: bytes | list[Any]
        if kind == "application/json":
            given = await self._in_thread(_parsed(await request.body()))
            content = check_list(given, "rows", self.limits.max_rows)
        else:
            async with form_files(request, 1, "tables") as files:
                if not files:
                    raise HTTPException(400, f"the form must have a CSV file, got none: {HOW}")
                content = files[0][1].read()
        try:
            rows = await self._in_thread(lambda: table_of(content, encoding, self.limits))
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        size = self.batcher.batch_size
        blocks = [rows.values[start : start + size] for start in range(0, len(rows), size)]
        futures = [asyncio.wrap_future(self.batcher.submit(rows_of(block))) for block in blocks]
        found: list[Prediction] = await self._all(futures)
        answers = [answer for each in found for answer in self.served.answers(each)]
        return [{"name": n} | answer for n, answer in zip(rows.names, answers, strict=True)]

    async def _all(self, waiting: Sequence[Any]) -> list[Any]:
        """Wait for all answers, but not for ever."""
        try:
            async with asyncio.timeout(self.limits.timeout):
                return await asyncio.gather(*waiting)
        except TimeoutError:
            why = f"it had no answer within {self.limits.timeout:g} seconds"
            raise busy(why) from None

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        done: Future[Any] = self.batcher.run(work)
        result: _T = await asyncio.wrap_future(done)
        return result

    def _example(self) -> Callable[[], Tensor]:
        inputs = self.served.model.description.inputs
        if isinstance(inputs, TableEncoding):
            return rows_of(np.zeros((1, len(inputs.columns))))
        file = io.BytesIO()
        Image.new("RGB", (inputs.size, inputs.size)).save(file, "PNG")
        return image_of(file, inputs, self.limits)

    def _described_limits(self) -> dict[str, Any]:
        limits = self.limits
        number = (
            {"rows": limits.max_rows}
            if self.served.is_table
            else {"files": limits.max_files, "pixels": limits.max_pixels}
        )
        return {"bytes": limits.max_bytes, **number, "seconds": limits.timeout}


def _parsed(content: bytes) -> Callable[[], Any]:
    return lambda: parse_json(content)


def _json_image(each: Any, place: int) -> tuple[str, str]:
    """Give the name and the base64 of an image in JSON, which may come without a name."""
    name, data = (each.get("name"), each.get("data")) if isinstance(each, dict) else (None, each)
    if not isinstance(data, str) or not isinstance(name, str | None):
        raise HTTPException(
            400,
            f"image {place} must be base64, or an object with its name and data, got "
            f"{type(each).__name__}: see /openapi.json",
        )
    return clean_name(name or "", str(place)), data


def _json(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Answer with JSON in ASCII, which can be sent whatever the names in it."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    return Response(text, status, {**_HEADERS, **(headers or {})}, "application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = error.detail
    if error.status_code == 404:
        sentence = f"{_NOT_FOUND}, got another"
    elif error.status_code == 405:
        sentence = f"the method must be another one here, got {request.method}"
    return _json({"error": sentence}, error.status_code, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    """Answer a client that hung up: nobody will read it."""
    return _json({"error": "the request must be sent to its end, got it cut off"}, 400)


async def _fail(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return _json({"error": "the server failed at this request, and goes on with others"}, 500)
