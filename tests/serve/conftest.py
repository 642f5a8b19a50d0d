"""Runs and clients for the tests of the server."""

from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient

from layline.serve import create_app
from served_models import write_served


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_served(tmp_path_factory.mktemp("runs") / "photos-arc")


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    return write_served(tmp_path_factory.mktemp("runs") / "grades", kind="table")


@pytest.fixture(scope="module")
def open_client():
    """Open clients of applications."""
    with ExitStack() as clients:

        def start(model, **options):
            app = create_app(model, **options)
            client = TestClient(app, "http://localhost", raise_server_exceptions=False)
            return clients.enter_context(client)

        yield start


@pytest.fixture(scope="module")
def client(open_client, run):
    return open_client(run)


@pytest.fixture(scope="module")
def table_client(open_client, table_run):
    return open_client(table_run)
