"""Requests and responses of the server, from which FastAPI derives ``/openapi.json``."""

from typing import Annotated, Literal

from pydantic import Base64Bytes, BaseModel, Field

from layline.serve import Limits


class EncodedImage(BaseModel):
    """An image in a JSON request."""

    data: Base64Bytes = Field(description="The image file in base64.")
    name: str = Field(default="", max_length=200)


class ImagesRequest(BaseModel):
    """A JSON request with images."""

    images: list[EncodedImage] = Field(min_length=1)


Cell = str | bool | int | Annotated[float, Field(allow_inf_nan=False)] | None


class RowsRequest(BaseModel):
    """A JSON request with rows of a table."""

    rows: list[dict[str, Cell]] = Field(min_length=1)


class SamplePrediction(BaseModel):
    """The prediction for one sample."""

    name: str
    predicted: str = Field(description="Name of the predicted class.")
    rank: int = Field(description="Its place among the classes, from 0.")
    confidence: float = Field(description="Its probability.")
    low: str | None = Field(description="Lowest plausible class; null without calibration samples.")
    high: str | None = Field(description="Highest plausible class.")
    review: bool | None = Field(description="Whether a person should check it; null if unknown.")
    probabilities: dict[str, float]


class Failure(BaseModel):
    """The error of one sample."""

    name: str
    error: str


class Predictions(BaseModel):
    """The predictions for all samples of a request, in their order."""

    predictions: list[SamplePrediction | Failure]


class Model(BaseModel):
    """The served model."""

    name: str
    version: str
    method: str
    backbone: str
    classes: list[str]
    kind: Literal["images", "table"]
    columns: list[str] | None = Field(description="Columns of the table; null for images.")
    decode: str
    coverage: float | None = Field(description="Coverage of the ranges; null if there are none.")
    review: float | None = Field(description="Share of samples that a person should check.")
    review_at_most: float | None = Field(description="Confidence up to which they are marked.")
    trained_on: dict[str, int] | None = Field(description="Training samples of each class.")
    tested: dict[str, float] | None = Field(description="Samples, accuracy and MAE of the test.")
    limits: Limits


class Health(BaseModel):
    """The state of the server."""

    status: Literal["ok"] = "ok"
    model: str
    version: str


class Error(BaseModel):
    """The reason why a request was refused."""

    detail: str
