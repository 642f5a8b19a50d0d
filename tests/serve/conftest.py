"""Small models, images, and a client for the tests of the server."""

import io
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from layline.serve import create_app

_HELPERS = runpy.run_path(str(Path(__file__).parents[1] / "served_models.py"))
URL = "http://localhost"


@pytest.fixture(scope="session")
def make_model():
    return _HELPERS["make_model"]


@pytest.fixture(scope="session")
def write_served():
    return _HELPERS["write_served"]


@pytest.fixture(scope="session")
def image():
    """Return the bytes of an image file."""

    def make(seed=0, form="PNG", height=20, width=26):
        rng = np.random.default_rng(seed)
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, form)
        return file.getvalue()

    return make


@pytest.fixture(scope="module")
def run(write_served, tmp_path_factory):
    return write_served(tmp_path_factory.mktemp("runs") / "photos-arc")


@pytest.fixture(scope="module")
def table_run(write_served, tmp_path_factory):
    return write_served(tmp_path_factory.mktemp("runs") / "grades", kind="table")


@pytest.fixture
def open_client():
    """Create clients of applications."""
    clients = []

    def open_(model, **options):
        client = TestClient(create_app(model, **options), URL, raise_server_exceptions=False)
        clients.append(client)
        return client.__enter__()

    yield open_
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture(scope="module")
def client(run):
    with TestClient(create_app(run), URL, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def table_client(table_run):
    with TestClient(create_app(table_run), URL, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture(scope="session")
def send():
    """Send files as a form, and return the status and the response."""

    def send_(client, *files):
        answer = client.post("/predict", files=[("file", file) for file in files])
        return SimpleNamespace(status=answer.status_code, **answer.json())

    return send_
