"""The application: a page for people and a JSON interface for programs.

========================  =====================================================
``GET /``                 the page, which loads nothing from other servers
``POST /predict``         images, or a CSV file, as ``multipart/form-data``
``POST /predict/json``    images in base64, or rows, as JSON
``GET /model``            classes, inputs, coverage, limits
``GET /health``           for monitoring
``GET /openapi.json``     the interface as OpenAPI
========================  =====================================================

A bad request gets a status from 400 on and one sentence as ``detail``. Of several images, those
that cannot be read have an ``error`` in their place.
"""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import torch
from fastapi import FastAPI, File, HTTPException, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import Base64Bytes, BaseModel, Field, FiniteFloat
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from torch import Tensor

import layline
from layline.data.images import BadImageError, UserImages, decode
from layline.data.loaders import ImageBatches
from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import Rows, TableEncoding, as_rows
from layline.geometry.decoding import Decode
from layline.model.model import OrdinalModel
from layline.serve import Limits
from layline.serve.served_model import Batcher, Failure, Model, SamplePrediction, ServedModel
from layline.utils.validation import UserError

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_BATCH = {"images": 64, "table": 4096}
_MAX_COLUMNS = 10_000
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def create_app(
    model: OrdinalModel | str | Path,
    *,
    coverage: float | None = None,
    decode: Decode | None = None,
    review: float | None = None,
    device: str | None = None,
    limits: Limits | None = None,
    allowed_hosts: Sequence[str] = LOCAL_HOSTS,
) -> FastAPI:
    """Create an application for any ASGI server.

    Args:
        model: Folder of a run, a ``.safetensors`` file, or a loaded model.
        coverage: Coverage of the ranges; None for 0.9, or what the calibration samples guarantee.
            A model without calibration samples has no ranges.
        decode: The decoding; None for that of the model.
        review: Share of samples that a person should check, the least certain; needs a run folder.
        device: The device for the model; None leaves it where it is.
        limits: Limits of a request.
        allowed_hosts: Host names and addresses by which clients may reach the server. Others are
            refused, so that a web page of someone else cannot use it (DNS rebinding).
    """
    served = ServedModel(model, coverage, decode, review, device)
    service = _Service(served, limits or Limits())
    app = FastAPI(
        title=f"Layline: {served.name}",
        version=layline.__version__,
        lifespan=service.lifespan,
        docs_url=None,  # they would load scripts from another server
        redoc_url=None,
        exception_handlers={RequestValidationError: _refuse_invalid},
    )
    app.state.classes = served.classes
    app.middleware("http")(service.guard)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*allowed_hosts], www_redirect=False)
    is_table = served.model.is_table
    errors: dict[int | str, Any] = {code: {"model": Error} for code in (400, 411, 413, 422, 503)}
    post = app.post("/predict", responses=errors)
    post(service.predict_csv if is_table else service.predict_files)
    post = app.post("/predict/json", responses=errors)
    post(service.predict_rows if is_table else service.predict_images)
    app.get("/model")(service.describe_model)
    app.get("/health")(service.report_health)
    app.mount("/", StaticFiles(directory=Path(__file__).parent / "page", html=True))
    return app


class EncodedImage(BaseModel):
    """An image in a JSON request."""

    data: Base64Bytes = Field(description="The image file in base64.")
    name: str = Field(default="", max_length=200)


class ImagesRequest(BaseModel):
    """A JSON request with images."""

    images: list[EncodedImage] = Field(min_length=1)


class RowsRequest(BaseModel):
    """A JSON request with rows of a table."""

    rows: list[dict[str, str | bool | int | FiniteFloat | None]] = Field(min_length=1)


class Predictions(BaseModel):
    """The predictions for all samples of a request, in their order."""

    predictions: list[SamplePrediction | Failure]


class Error(BaseModel):
    """The reason why a request was refused."""

    detail: str


class _Service:
    """The handlers of the requests."""

    def __init__(self, served: ServedModel, limits: Limits) -> None:
        self.served, self.limits = served, limits
        self.about = served.describe(limits)
        self.batcher: Batcher

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Run the batcher as long as the server."""
        self.batcher = Batcher(self.served.predict, _BATCH[self.about.kind])
        task = asyncio.create_task(self.batcher.run())
        yield
        task.cancel()

    async def guard(self, request: Request, respond: RequestResponseEndpoint) -> Response:
        """Refuse requests that are too large, and set the headers of the response."""
        length, max_mb = request.headers.get("content-length", ""), self.limits.max_mb
        response: Response
        if length and int(length) > 1_000_000 * max_mb:
            detail = f"A request may have at most {max_mb:g} MB. Send fewer samples at once."
            response = JSONResponse({"detail": detail}, 413)
        elif request.method == "POST" and (not length or "transfer-encoding" in request.headers):
            detail = "Send the header Content-Length, and the body not in chunks."
            response = JSONResponse({"detail": detail}, 411)  # chunks have no known length
        else:
            response = await respond(request)
        response.headers.update(_HEADERS)
        return response

    async def describe_model(self) -> Model:
        """Describe the model."""
        return self.about

    async def report_health(self) -> dict[str, str]:
        """Report that the server works."""
        return {"status": "ok", "model": self.served.name, "version": layline.__version__}

    async def predict_files(self, file: Annotated[list[UploadFile], File()]) -> Predictions:
        """Predict image files."""
        return await self._predict_images([(each.filename or "", each.file) for each in file])

    async def predict_images(self, request: ImagesRequest) -> Predictions:
        """Predict images in base64."""
        files = [(each.name, io.BytesIO(each.data)) for each in request.images]
        return await self._predict_images(files)

    async def predict_csv(self, file: UploadFile) -> Predictions:
        """Predict the rows of a CSV file."""
        return await self._respond(self._predict_table(await file.read()))

    async def predict_rows(self, request: RowsRequest) -> Predictions:
        """Predict rows; an absent cell is a missing value."""
        _check_count("rows", len(request.rows), self.limits.max_rows)
        names = dict.fromkeys(name for row in request.rows for name in row)
        _check_count("columns", len(names), _MAX_COLUMNS)
        columns = {name: [row.get(name) for row in request.rows] for name in names}
        return await self._respond(self._predict_table(columns))

    async def _predict_images(self, files: Sequence[tuple[str, BinaryIO]]) -> Predictions:
        _check_count("images", len(files), self.limits.max_files)
        inputs, max_pixels = self.served.model.description.inputs, self.limits.max_pixels

        async def predict(name: str, file: BinaryIO) -> SamplePrediction | Failure:
            try:
                x = await self.batcher.in_thread(_prepare_image, file, inputs, max_pixels)
            except BadImageError as error:
                return Failure(name=name, error=f"{name} cannot be read: {error.why}")
            (answer,) = self.served.describe_samples([name], await self.batcher.predict(x))
            return answer

        tasks = (
            predict(_clean_name(name) or str(i), file) for i, (name, file) in enumerate(files, 1)
        )
        return await self._respond(asyncio.gather(*tasks))

    async def _predict_table(
        self, table: bytes | dict[str, list[Any]]
    ) -> list[SamplePrediction | Failure]:
        inputs = self.served.model.description.inputs
        rows = await self.batcher.in_thread(_read_rows, table, inputs, self.limits.max_rows)
        predicted = await self.batcher.predict(torch.from_numpy(rows.values))
        return self.served.describe_samples(list(rows.names), predicted)

    async def _respond(self, work: Awaitable[list[SamplePrediction | Failure]]) -> Predictions:
        """Wait for predictions; refuse a request that takes too long or has none."""
        timeout = self.limits.timeout
        try:
            predictions = await asyncio.wait_for(work, timeout)
        except TimeoutError:
            detail = f"The server is busy: there was no answer within {timeout:g} seconds."
            raise HTTPException(503, detail, {"Retry-After": "5"}) from None
        failures = [each for each in predictions if isinstance(each, Failure)]
        if len(failures) == len(predictions):
            raise HTTPException(422, failures[0].error)
        return Predictions(predictions=predictions)


def _check_count(noun: str, count: int, most: int) -> None:
    if count > most:
        raise HTTPException(413, f"A request may have at most {most:,} {noun}, got {count:,}.")


def _clean_name(name: str) -> str:
    """Keep the last component of a file name, which is only shown and opens nothing."""
    return re.sub(r"[\x00-\x1f\x7f]", "", re.split(r"[/\\]", name)[-1]).strip()[:200]


def _prepare_image(file: BinaryIO, inputs: ImagePreprocessing, max_pixels: int) -> Tensor:
    """Decode and resize an image: (1, 3, size, size)."""
    pixels = decode(file, inputs.at_least, max_pixels)
    x, _ = ImageBatches(UserImages((pixels,), ("",)), inputs).__getitems__([(0, 0)])
    return x


def _read_rows(table: bytes | dict[str, list[Any]], encoding: TableEncoding, max_rows: int) -> Rows:
    """Encode a CSV file or columns. What a file would allocate is bounded before it is parsed."""
    if isinstance(table, bytes):
        if table.startswith(b"PK\x03\x04"):  # a small workbook can be of any size when unpacked
            raise HTTPException(422, "The file is an Excel workbook. Save it as CSV.")
        _check_count("rows", max(table.count(b"\n"), table.count(b"\r")) - 1, max_rows)
        columns = (line.count(mark) for line in table.splitlines() for mark in b",;\t")
        _check_count("columns", max(columns, default=0), _MAX_COLUMNS)
    try:
        return as_rows(table, encoding)
    except Exception as error:  # pandas raises almost any exception for invalid files
        why = str(error).partition("\n")[0][:300] or type(error).__name__
        known = isinstance(error, UserError)
        raise HTTPException(422, why if known else f"The table cannot be read: {why}") from error


async def _refuse_invalid(request: Request, error: Any) -> JSONResponse:
    """Name the first invalid field; FastAPI's own response would repeat the whole request."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"][1:]))[:100]
    detail = f"{place or 'request'}: {first['msg']}".encode("ascii", "backslashreplace").decode()
    return JSONResponse({"detail": f"{detail}. See /openapi.json."}, 422)
