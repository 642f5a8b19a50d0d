"""From the body of a request to samples, within limits.

Nothing that a client sends is trusted. A body is counted and timed as it arrives, an image says how
many pixels it has before it is decoded, and the name of a file is a text that is sent back.
"""

import asyncio
import base64
import binascii
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Message, Receive
from torch import Tensor

from layline.data.dataset import Pixels
from layline.data.decoding import BadImageError, Image, decode, why_bad
from layline.data.loaders import ImageBatches
from layline.data.preprocessing import ImagePreprocessing
from layline.data.samples import as_rows
from layline.data.table_encoding import Rows, TableEncoding
from layline.utils.errors import UserError
from layline.utils.validation import check_above, check_integer

MEGABYTE = 1_000_000
_REQUESTS = 8  # of the largest size may be in memory at once
_LONGEST_NAME = 200
_MOST_COLUMNS = 10_000
_WORKBOOK = b"PK\x03\x04"
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BYTES_GIVEN = "the bytes given"  # what reading a table calls them
HOW = "send multipart/form-data with files, or application/json, see /openapi.json"


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Attributes:
        max_mb: Millions of bytes that it may have.
        max_pixels: Pixels of an image.
        max_files: Images.
        max_rows: Rows of a table.
        timeout: Seconds that a client has to send it, and that it waits for its answer.
    """

    max_mb: float = 32.0
    max_pixels: int = 50_000_000
    max_files: int = 100
    max_rows: int = 10_000
    timeout: float = 60.0

    def __post_init__(self) -> None:
        check_above("max_mb", self.max_mb, 0, "nothing could be sent")
        check_above("timeout", self.timeout, 0, "it is in seconds")
        for name in ("max_pixels", "max_files", "max_rows"):
            check_integer(name, getattr(self, name), 1)
        most = Image.MAX_IMAGE_PIXELS
        if most is not None and self.max_pixels > most:
            raise UserError(
                f"max_pixels must be at most {most}, got {self.max_pixels}: Pillow takes a larger "
                "image for an attack"
            )

    @property
    def max_bytes(self) -> int:
        """Bytes that a request may have."""
        return int(self.max_mb * MEGABYTE)


# --- the body


class Load:
    """The bytes of all requests that are in memory.

    Args:
        limits: Of one request.
    """

    def __init__(self, limits: Limits) -> None:
        self.bytes, self.most = 0, _REQUESTS * limits.max_bytes


class _Body:
    """Receives a body, as long as it keeps to the limits."""

    def __init__(self, receive: Receive, limits: Limits, load: Load) -> None:
        self._receive, self._limits, self._load = receive, limits, load
        self._until = asyncio.get_running_loop().time() + limits.timeout
        self.bytes = 0

    async def __call__(self) -> Message:
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408,
                f"a request must be sent within {self._limits.timeout:g} seconds, got "
                f"{self.bytes:,} bytes of it by then: send less at a time",
                {"Connection": "close"},
            ) from None
        arrived = len(message.get("body", b""))
        self.bytes += arrived
        self._load.bytes += arrived
        if self.bytes > self._limits.max_bytes:
            raise too_large(self._limits, "more")
        if self._load.bytes > self._load.most:
            raise busy("too many large requests came at once")
        return message


def too_large(limits: Limits, got: str) -> HTTPException:
    """Refuse a body for its size."""
    return HTTPException(
        413, f"a request must have at most {limits.max_mb:g} MB, got {got}: send less at a time"
    )


def busy(why: str) -> HTTPException:
    """Send a client away for now."""
    return HTTPException(503, f"the server is busy, {why}: try again soon", {"Retry-After": "5"})


@asynccontextmanager
async def guarded(request: Request, limits: Limits, load: Load) -> AsyncIterator[Request]:
    """Give the request with a body that keeps to the limits while it is read."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.max_bytes:
        raise too_large(limits, f"{int(length) / MEGABYTE:,.1f}")
    body = _Body(request.receive, limits, load)
    try:
        yield Request(request.scope, body)
    finally:
        load.bytes -= body.bytes


class _Parser(MultiPartParser):
    """Tells whether the last boundary came: without it a file may be cut off."""

    is_complete = False

    def on_end(self) -> None:
        self.is_complete = True


@asynccontextmanager
async def form_files(
    request: Request, most: int, noun: str
) -> AsyncIterator[list[tuple[str, BinaryIO]]]:
    """Give the names of the files of a form, and the open files, until they are not needed.

    Args:
        request: With the form.
        most: How many files it may have.
        noun: What they are called.
    """
    parser = _Parser(request.headers, request.stream(), max_files=most, max_fields=most)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise HTTPException(
                413,
                f"a request must have at most {most} {noun}, got more: send fewer at a time",
            ) from None
        raise HTTPException(
            400, f"the form must be multipart/form-data, got another ({error.message}): {HOW}"
        ) from None
    try:
        if not parser.is_complete:
            raise HTTPException(400, "the form must end with its boundary, got it cut off")
        files: list[tuple[str, BinaryIO]] = []
        for field, value in form.multi_items():
            if not isinstance(value, UploadFile):
                raise HTTPException(
                    400,
                    f"every part of the form must be a file, got text in the field "
                    f"{clean_name(field, 'without a name')}: {HOW}",
                )
            files.append((clean_name(value.filename or "", f"{len(files) + 1}"), value.file))
        yield files
    finally:
        await form.close()


def clean_name(name: str, otherwise: str) -> str:
    """Keep of a name what stands behind the last slash; it is shown, and opens nothing."""
    last = re.split(r"[/\\]", name)[-1]
    return _CONTROL.sub("", last).strip()[:_LONGEST_NAME] or otherwise


def parse_json(content: bytes) -> Any:
    """Read JSON, and refuse what is none."""

    def refuse(constant: str) -> None:
        raise UserError(f"{constant} is no number of JSON")

    try:
        return json.loads(content, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        why = str(error)[:100] or type(error).__name__
        raise HTTPException(400, f"the body must be JSON, got something else: {why}") from None


def check_list(given: Any, key: str, most: int) -> list[Any]:
    """Give the list that JSON has under a key, and refuse all else.

    Args:
        given: The JSON.
        key: ``images`` or ``rows``.
        most: How many there may be.
    """
    found = given.get(key) if isinstance(given, dict) else None
    if not isinstance(found, list) or not found:
        got = list(given)[:5] if isinstance(given, dict) else type(given).__name__
        raise HTTPException(
            400, f"the body must have a list under {key!r}, got {str(got)[:100]}: see /openapi.json"
        )
    if len(found) > most:
        raise HTTPException(
            413, f"a request must have at most {most} {key}, got {len(found)}: send fewer at a time"
        )
    return found


# --- images


@dataclass(frozen=True)
class _Upload:
    """One image that was sent."""

    file: BinaryIO
    most_pixels: int
    names: tuple[str, ...] = ("0",)

    decoded = False

    def __len__(self) -> int:
        return 1

    def subset(self, keep: Any) -> "_Upload":
        return self

    def digest(self) -> str:
        raise NotImplementedError

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        self.file.seek(0)
        return decode(self.file, at_least, self.most_pixels)


def image_of(
    content: BinaryIO | str, inputs: ImagePreprocessing, limits: Limits
) -> Callable[[], Tensor]:
    """Prepare how an image becomes what the network takes, (1, 3, size, size), as in ``predict``.

    Args:
        content: The open file, or its bytes in base64.
        inputs: How images are prepared.
        limits: Of its pixels.
    """

    def prepare() -> Tensor:
        try:
            file = io.BytesIO(_from_base64(content)) if isinstance(content, str) else content
            x, _ = ImageBatches(_Upload(file, limits.max_pixels), inputs).__getitems__([(0, 0)])
        except BadImageError:
            raise
        except Exception as error:  # garbage makes Pillow raise almost anything
            raise BadImageError(why_bad(error)) from error
        return x

    return prepare


def _from_base64(text: str) -> bytes:
    start = _DATA_URL.match(text)
    try:
        return base64.b64decode(text[start.end() if start else 0 :], validate=True)
    except (binascii.Error, ValueError) as error:  # the second for letters beyond ASCII
        raise BadImageError("its data must be base64") from error


# --- tables


def table_of(content: bytes | list[Any], encoding: TableEncoding, limits: Limits) -> Rows:
    """Encode a CSV file, or rows as JSON has them; what is wrong with it is a ``ValueError``.

    Args:
        content: The bytes of the file, or a list of rows.
        encoding: How cells become numbers.
        limits: Of the rows.
    """
    if isinstance(content, list):
        return as_rows(_columns(content, encoding), encoding)
    if content.startswith(_WORKBOOK):  # a small one can unfold to fill any memory
        raise UserError("the table must be a CSV file, got a workbook: save it as CSV")
    if _widest(content) >= max(_MOST_COLUMNS, 2 * len(encoding.names)):
        raise UserError(f"the table must have fewer than {_MOST_COLUMNS} columns, got more")
    try:
        rows = as_rows(content, encoding)
    except ValueError as error:
        why = str(error).replace(_BYTES_GIVEN, "one")
        raise UserError(re.sub(r"^root must", "the table must", why)) from error
    except Exception as error:  # garbage makes pandas raise almost anything
        why = str(error).partition("\n")[0][:100] or type(error).__name__
        raise UserError(f"the table must be a CSV file, got something else: {why}") from error
    if len(rows) > limits.max_rows:
        raise HTTPException(
            413,
            f"a request must have at most {limits.max_rows} rows, got {len(rows)}: send fewer "
            "at a time",
        )
    return rows


def _widest(content: bytes) -> int:
    """Count the delimiters of the line that has most of them."""
    wide = [mark for mark in (b",", b";", b"\t") if content.count(mark) >= _MOST_COLUMNS]
    return max((line.count(mark) for mark in wide for line in content.splitlines()), default=0)


def _columns(rows: list[Any], encoding: TableEncoding) -> dict[str, list[Any]]:
    """Give the cells of the columns that the model knows; an absent cell is an empty one."""
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise UserError(f"row {place} must be an object of cells, got {type(row).__name__}")
        for name, cell in row.items():
            if not isinstance(cell, str | int | float | None):
                raise UserError(
                    f"column {name!r} must hold texts or numbers, got {type(cell).__name__} in "
                    f"row {place}"
                )
    known = (*encoding.names, *([] if encoding.id_column is None else [encoding.id_column]))
    return {
        name: [row.get(name) for row in rows] for name in known if any(name in row for row in rows)
    }


def rows_of(values: Any) -> Callable[[], Tensor]:
    """Prepare how encoded rows become what the network takes."""
    return lambda: torch.from_numpy(values)
