"""The JSON interface: its responses, and how it refuses bad requests."""

import base64
import threading
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

import layline
from layline.serve import Limits
from layline.serve import app as app_module
from served_models import encode_image

JSON = {"content-type": "application/json"}


def png(width, height):
    """A small file that claims to be a large image."""
    content = bytearray(encode_image())
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


def send(client, *files):
    """Send files as a form, and return the status and the response."""
    answer = client.post("/predict", files=[("file", file) for file in files])
    return SimpleNamespace(status=answer.status_code, **answer.json())


def test_predictions_equal_those_of_the_model(client, run):
    model, names = layline.load(run), [f"{seed}.png" for seed in range(5)]
    contents = [encode_image(seed) for seed in range(5)]
    found = send(client, *zip(names, contents, strict=True))
    assert found.status == 200
    assert [each["name"] for each in found.predictions] == names
    shares = [list(each["probabilities"].values()) for each in found.predictions]
    np.testing.assert_allclose(shares, model.predict_proba(contents), atol=1e-6)
    assert [each["predicted"] for each in found.predictions] == model.predict(contents).tolist()
    low, high = model.predict_range(contents, coverage=0.9)
    assert [each["low"] for each in found.predictions] == low.tolist()
    assert [each["high"] for each in found.predictions] == high.tolist()
    for each in found.predictions:
        assert each["confidence"] == each["probabilities"][each["predicted"]]
        assert each["predicted"] == model.classes[each["rank"]]


def test_json_gives_the_same_as_a_form(client):
    content = encode_image(3)
    data = base64.b64encode(content).decode()
    body = {"images": [{"data": data}, {"name": "a/b.png", "data": data}]}
    found = client.post("/predict/json", json=body).json()["predictions"]
    (formed,) = send(client, ("b.png", content)).predictions
    assert [each["name"] for each in found] == ["1", "b.png"]
    for each in found:  # the size of the batch changes the last digits
        assert each["probabilities"] == pytest.approx(formed["probabilities"], abs=1e-6)
        assert each.keys() == formed.keys()


def test_rows_as_a_file_and_as_json_give_the_same(table_client, table_run):
    file = b"size,colour,other\n1.5,red,x\n,blue,y\n"
    found = send(table_client, ("rows.csv", file))
    assert found.status == 200
    rows = [{"size": 1.5, "colour": "red"}, {"colour": "blue"}]
    answer = table_client.post("/predict/json", json={"rows": rows}).json()["predictions"]
    assert [each | {"name": ""} for each in answer] == [
        each | {"name": ""} for each in found.predictions
    ]
    shares = [list(each["probabilities"].values()) for each in answer]
    np.testing.assert_allclose(shares, layline.load(table_run).predict_proba(file), atol=1e-6)


def test_each_unreadable_image_has_its_own_error(client):
    content = encode_image()
    found = send(client, ("a.png", content), ("b.txt", b"hello"), ("c.png", content[:60]))
    assert found.status == 200
    assert "predicted" in found.predictions[0]
    assert found.predictions[1] == {"name": "b.txt", "error": "b.txt cannot be read: not an image"}
    assert "c.png cannot be read" in found.predictions[2]["error"]
    alone = send(client, ("b.txt", b"hello"))
    assert (alone.status, alone.detail) == (422, found.predictions[1]["error"])


def test_file_names_are_only_shown(client):
    names = ["../../etc/passwd", "C:\\photos\\a.png", "=1+1.png", "x" * 999, "ü.png"]
    found = send(client, *((name, encode_image()) for name in names))
    shown = [each["name"] for each in found.predictions]
    assert shown == ["passwd", "a.png", "=1+1.png", "x" * 200, "ü.png"]


@pytest.mark.parametrize("sides", [(60_000, 60_000), (9_000, 9_000), (1, 60_000_000)])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(client, sides):
    found = send(client, ("bomb.png", png(*sides)))
    assert found.status == 422
    assert "too large" in found.detail


@pytest.mark.parametrize(
    ("limits", "files", "status", "message"),
    [
        ({"max_files": 2}, 3, 413, "at most 2 images, got 3"),
        ({"max_mb": 0.001}, 1, 413, r"at most 0.001 MB"),
        ({"max_pixels": 500}, 1, 422, "too large"),
    ],
)
def test_limits(run, open_client, limits, files, status, message):
    client = open_client(run, limits=Limits(**limits))
    found = send(client, *((f"{i}.png", encode_image(i)) for i in range(files)))
    assert found.status == status
    assert message in found.detail


@pytest.mark.parametrize("length", [{}, {"Content-Length": "2"}])
def test_a_body_of_unknown_length_is_refused(client, length):
    parts = (b" " * 10_000 for _ in range(1000))
    headers = JSON | {"Transfer-Encoding": "chunked"} | length
    assert client.post("/predict/json", content=parts, headers=headers).status_code == 411


def test_rows_are_limited(table_run, open_client):
    client = open_client(table_run, limits=Limits(max_rows=2))
    many = b"size,colour\n" + 3 * b"1,red\n"
    assert send(client, ("a.csv", many + b"1,red\n")).status == 413
    assert client.post("/predict/json", json={"rows": [{"size": 1}] * 3}).status_code == 413
    assert send(client, ("a.csv", many[:-6])).status == 200


@pytest.mark.parametrize("content", [b"\n" * 20_000_000, b"\r" * 20_000_000, b"\r\n" * 10_000_000])
def test_a_csv_of_newlines_is_refused_without_parsing(table_client, monkeypatch, content):
    def parse(*_):
        pytest.fail("the file was parsed")

    monkeypatch.setattr(app_module, "as_rows", parse)
    found = send(table_client, ("a.csv", content))
    assert found.status == 413
    assert "at most 10,000 rows" in found.detail


def test_the_timeout_covers_parsing(table_run, open_client, monkeypatch):
    stop = threading.Event()
    monkeypatch.setattr(app_module, "as_rows", lambda *_: stop.wait(60))
    client = open_client(table_run, limits=Limits(timeout=0.2))
    try:
        found = send(client, ("a.csv", b"size,colour\n1,red\n"))
    finally:
        stop.set()
    assert found.status == 503
    assert "busy" in found.detail


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"size\n1\n",
        b"size,colour\nbig,red\n",
        b"PK\x03\x04rest",
        b"," * 20_000 + b"\n1",
        b"size,colour\n1,2,3,4\n",
        b'size,colour\n"1,red\n',
        b"\xff\xfe\x00\xd8",
        bytes(range(256)) * 4,
        b'size,colour\n"' + b"x" * 200_000 + b'",red\n',
    ],
)
def test_a_bad_table_is_refused_with_a_message(table_client, content):
    found = send(table_client, ("a.csv", content))
    assert found.status in (413, 422)
    assert 10 < len(found.detail) < 500


@pytest.mark.parametrize(
    "rows",
    [
        [1],
        [{"size": [1], "colour": "red"}],
        [{}],
        [{"size": "1e999", "colour": "red"}],
        [{"size": 10**400, "colour": "red"}],
        [],
        "size",
        None,
        [{f"c{i}": 1 for i in range(20_000)}],
    ],
)
def test_bad_rows_are_refused_with_a_message(table_client, rows):
    answer = table_client.post("/predict/json", json={"rows": rows})
    assert answer.status_code in (413, 422)
    assert 10 < len(answer.json()["detail"]) < 500


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"images": [NaN]}',
        b'{"images": ["\\ud800"]}',
        b'{"images": [{"data": "\\ud800"}]}',
        b'{"images": [{"data": "!!!"}]}',
        b'{"images": [{"data": "aGVsbG8="}]}',
        b'{"images": [' + b"9" * 5000 + b"]}",
    ],
)
def test_a_bad_body_is_refused_with_a_message(client, content):
    answer = client.post("/predict/json", content=content, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", ""]
)
def test_requests_with_a_foreign_host_are_refused(client, host):
    """A web page whose name was rebound to 127.0.0.1 sends its own name as the host."""
    assert client.get("/model", headers={"host": host}).status_code == 400


def test_the_model_is_described(client, table_client, run):
    about = client.get("/model").json()
    assert (about["name"], about["kind"]) == (run.name, "images")
    assert about["classes"] == ["low", "mid", "high"]
    assert about["trained_on"] == {"low": 10, "mid": 20, "high": 30}
    assert about["tested"] == {"samples": 50, "accuracy": 0.625, "mae": 0.5}
    assert about["limits"]["max_files"] == Limits().max_files
    assert table_client.get("/model").json()["columns"] == ["size", "colour"]
    for each in (client, table_client):
        paths = each.get("/openapi.json").json()["paths"]
        assert set(paths) == {"/predict", "/predict/json", "/model", "/health"}


def test_the_page_loads_nothing_from_other_servers(client):
    for path in ("/", "/page.js", "/page.css"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert client.get("/model").headers["x-content-type-options"] == "nosniff"
