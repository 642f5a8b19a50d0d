"""What the tests of the server share: small models, images, and a client."""

import io
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from layline.serve import create_app

_MADE = runpy.run_path(str(Path(__file__).parents[1] / "served_models.py"))


@pytest.fixture(scope="session")
def make_model():
    return _MADE["make_model"]


@pytest.fixture(scope="session")
def write_served():
    return _MADE["write_served"]


@pytest.fixture(scope="session")
def image():
    """The bytes of an image file."""

    def made(seed=0, form="PNG", height=20, width=26):
        rng = np.random.default_rng(seed)
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, form)
        return file.getvalue()

    return made


@pytest.fixture(scope="module")
def run(write_served, tmp_path_factory):
    return write_served(tmp_path_factory.mktemp("runs") / "photos-arc")


@pytest.fixture(scope="module")
def table_run(write_served, tmp_path_factory):
    return write_served(tmp_path_factory.mktemp("runs") / "grades", kind="table")


@pytest.fixture(scope="module")
def client(run):
    with TestClient(create_app(run), raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def table_client(table_run):
    with TestClient(create_app(table_run), raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture(scope="session")
def send():
    """Send files as a form, and give the status and the answer."""

    def sent(client, *files):
        answer = client.post("/predict", files=[("files", file) for file in files])
        return SimpleNamespace(status=answer.status_code, **answer.json())

    return sent
