"""The interface for programs: what it answers, and how it refuses."""

import base64
import io
import json
import zlib

import jsonschema
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import layline
from layline.serve import Limits, create_app

JSON = {"content-type": "application/json"}


def png(width, height):
    """A small file that says it is large, and would be."""

    def chunk(kind, content):
        body = kind + content
        return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    sides = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    rows = zlib.compress(bytes(min(height * (width // 8 + 1), 10_000_000)))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", sides + b"\x01\0\0\0\0")
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )


def test_what_is_predicted_is_what_predict_says(client, run, image, send):
    model, names = layline.load(run), [f"{seed}.png" for seed in range(5)]
    contents = [image(seed) for seed in range(5)]
    found = send(client, *zip(names, contents, strict=True))
    assert found.status == 200
    assert [each["name"] for each in found.predictions] == names
    shares = [list(each["probabilities"].values()) for each in found.predictions]
    np.testing.assert_allclose(shares, model.predict_proba(contents), atol=1e-6)
    assert [each["predicted"] for each in found.predictions] == model.predict(contents).tolist()
    low, high = model.predict_range(contents, coverage=0.9)
    assert [(each["low"], each["high"]) for each in found.predictions] == [
        *zip(low.tolist(), high.tolist(), strict=True)
    ]
    for each in found.predictions:
        assert each["confidence"] == each["probabilities"][each["predicted"]]
        assert each["predicted"] == model.classes[each["rank"]]


def test_json_and_form_give_the_same(client, image, send):
    content = image(3)
    text = base64.b64encode(content).decode()
    asked = {"images": [text, {"name": "a/b.png", "data": f"data:image/png;base64,{text}"}]}
    found = client.post("/predict", json=asked).json()["predictions"]
    (formed,) = send(client, ("b.png", content)).predictions
    assert [each["name"] for each in found] == ["1", "b.png"]
    for each in found:  # up to what the size of a batch does to the last digits
        assert each["probabilities"] == pytest.approx(formed["probabilities"], abs=1e-6)
        assert each["place"] == pytest.approx(formed["place"], abs=1e-5)
        assert each.keys() == formed.keys()


def test_rows_as_a_file_and_as_json_give_the_same(table_client, table_run, send):
    file = b"size;colour;other\n1,5;red;x\n;blue;y\n"
    found = send(table_client, ("rows.csv", file))
    assert found.status == 200
    rows = [{"size": 1.5, "colour": "red"}, {"size": None, "colour": "blue"}]
    answer = table_client.post("/predict", json={"rows": rows}).json()["predictions"]
    assert [each | {"name": ""} for each in answer] == [
        each | {"name": ""} for each in found.predictions
    ]
    expected = layline.load(table_run).predict_proba(file)
    shares = [list(each["probabilities"].values()) for each in answer]
    np.testing.assert_allclose(shares, expected, atol=1e-6)


def test_each_of_several_files_has_its_own_error(client, image, send):
    found = send(client, ("a.png", image()), ("b.txt", b"hello"), ("c.png", image()[:60]))
    assert found.status == 200
    assert "predicted" in found.predictions[0]
    assert found.predictions[1] == {
        "name": "b.txt",
        "error": "image must be readable, got b.txt: not an image",
    }
    assert "c.png: truncated or damaged" in found.predictions[2]["error"]
    alone = send(client, ("b.txt", b"hello"))
    assert (alone.status, alone.error) == (422, found.predictions[1]["error"])
    assert send(client, ("b", b""), ("c", b"")).error.startswith("no image can be read, the first:")


@pytest.mark.parametrize("form", ["JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "HEIF"])
def test_formats_are_those_of_predict(client, image, send, form):
    if form == "HEIF":
        from pillow_heif import from_pillow

        file = io.BytesIO()
        from_pillow(Image.open(io.BytesIO(image(height=64, width=64)))).save(file)
        content = file.getvalue()
    else:
        content = image(form=form)
    assert send(client, ("a", content)).status == 200


def test_names_are_only_names(client, image, send):
    names = [
        "../../etc/passwd",
        "C:\\photos\\a.png",
        "=1+1.png",
        "x" * 999,
        "ü.png",
    ]
    found = send(client, *((name, image()) for name in names))
    shown = [each["name"] for each in found.predictions]
    assert shown == ["passwd", "a.png", "=1+1.png", "x" * 200, "ü.png"]
    data = base64.b64encode(image()).decode()
    body = json.dumps({"images": [{"name": "\x07be\nll\ud800.png", "data": data}]})
    answer = client.post("/predict", content=body, headers=JSON)
    assert answer.json()["predictions"][0]["name"] == "bell\ud800.png"


@pytest.mark.parametrize(("sides"), [(60_000, 60_000), (9_000, 9_000), (1, 60_000_000)])
def test_a_bomb_is_refused_before_it_is_decoded(client, send, sides):
    found = send(client, ("bomb.png", png(*sides)))
    assert found.status == 422
    assert "bomb.png: too large: " in found.error
    assert "million" in found.error


@pytest.mark.parametrize(
    ("limits", "files", "status", "sentence"),
    [
        ({"max_files": 2}, 3, 413, "a request must have at most 2 images, got more"),
        ({"max_mb": 0.001}, 1, 413, "a request must have at most 0.001 MB, got 0.0"),
        ({"max_pixels": 500}, 1, 422, "26×20 pixels, more than 0.0005 million"),
    ],
)
def test_limits_are_kept(run, image, send, limits, files, status, sentence):
    client = TestClient(create_app(run, limits=Limits(**limits)))
    found = send(client, *((f"{i}.png", image(i)) for i in range(files)))
    assert found.status == status
    assert sentence in found.error


def test_a_body_without_a_length_is_counted_as_it_comes(run):
    client = TestClient(create_app(run, limits=Limits(max_mb=0.1)))
    parts = (b" " * 10_000 for _ in range(1000))
    answer = client.post("/predict", content=parts, headers=JSON)
    assert answer.status_code == 413


def test_rows_are_limited(table_run, send):
    client = TestClient(create_app(table_run, limits=Limits(max_rows=2)))
    many = b"size,colour\n" + 3 * b"1,red\n"
    for found in (
        send(client, ("a.csv", many)),
        client.post("/predict", json={"rows": [{"size": 1, "colour": "red"}] * 3}),
    ):
        status = getattr(found, "status", None) or found.status_code
        assert status == 413
    assert send(client, ("a.csv", many[:-6])).status == 200


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the table must have a header and rows"),
        (b"size\n1\n", "the table must have the column 'colour', got only size"),
        (b"size,colour\nbig,red\n", "'size' must hold finite numbers, got 'big' in row 2"),
        (b"PK\x03\x04rest", "the table must be a CSV file, got a workbook"),
        (b"," * 20_000 + b"\n1", "fewer than 10000 columns"),
        (b"size,colour\n1,2,3,4\n", "must"),
        (b'size,colour\n"1,red\n', "must"),
        (b"\xff\xfe\x00\xd8", "must"),
        (bytes(range(256)) * 4, "must"),
        (b'size,colour\n"' + b"x" * 200_000 + b'",red\n', "must"),
    ],
)
def test_a_bad_table_gets_its_sentence(table_client, send, content, sentence):
    found = send(table_client, ("a.csv", content))
    assert found.status == 422
    assert sentence in found.error


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([1], 422),
        ([{"size": [1], "colour": "red"}], 422),
        ([{}], 422),
        ([{"size": "1e999", "colour": "red"}], 422),
        ([{"size": 10**400, "colour": "red"}], 422),
        ([], 400),
        ("size", 400),
        (None, 400),
    ],
)
def test_bad_rows_get_their_sentence(table_client, rows, status):
    answer = table_client.post("/predict", json={"rows": rows})
    assert answer.status_code == status
    assert "must" in answer.json()["error"]


def test_a_value_that_gives_no_probabilities_is_said(table_client):
    rows = [{"size": 1e38, "colour": "red"}, {"size": 1, "colour": "red"}]
    first, second = table_client.post("/predict", json={"rows": rows}).json()["predictions"]
    assert "error" in first or sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    assert "predicted" in second


def test_the_description_fits_the_answers(client, table_client, image, send):
    for each in (client, table_client):
        api = each.get("/openapi.json").json()
        assert api["openapi"].startswith("3.1")
        schemas = api["components"]["schemas"]

        def fits(name, value, schemas=schemas):
            jsonschema.Draft202012Validator.check_schema(schemas[name])
            jsonschema.validate(value, schemas[name], jsonschema.Draft202012Validator)

        fits("Model", each.get("/model").json())
        fits("Health", each.get("/health").json())
        refused = each.post("/predict", json={"images": ["?"], "rows": [1]})
        assert str(refused.status_code) in api["paths"]["/predict"]["post"]["responses"]
        fits("Error", refused.json())
        if each is client:
            files = [("files", ("a.png", image())), ("files", ("b", b"?"))]
        else:
            files = [("files", ("a.csv", b"size,colour\n1,red\n"))]
        answer = each.post("/predict", files=files).json()
        fits("Predictions", answer)
        answer["predictions"][0]["rank"] = 99
        with pytest.raises(jsonschema.ValidationError):
            fits("Predictions", answer)
        references = [part.split('"')[0] for part in json.dumps(api).split('"$ref": "')[1:]]
        assert references
        assert all(place.removeprefix("#/components/schemas/") in schemas for place in references)
        assert set(api["paths"]) == {"/predict", "/model", "/health", "/openapi.json"}


def test_the_model_is_described(client, table_client, run):
    about = client.get("/model").json()
    assert about["name"] == run.name
    assert about["classes"] == ["low", "mid", "high"]
    assert about["trained_on"] == {"low": 10, "mid": 20, "high": 30}
    assert about["tested"] == {"samples": 50, "accuracy": 0.625, "mae": 0.5}
    assert about["limits"]["files"] == Limits().max_files
    columns = table_client.get("/model").json()["inputs"]["columns"]
    assert columns == [
        {"name": "size", "values": None},
        {"name": "colour", "values": ["blue", "red"]},
    ]


def test_health_counts_what_was_answered(run, image, send):
    with TestClient(create_app(run)) as client:
        send(client, ("a", image()), ("b", image()))
        health = client.get("/health").json()
    assert (health["status"], health["answered"], health["waiting"]) == ("ok", 2, 0)


def test_an_application_answers_without_the_start_of_a_server(make_model, image, send):
    """As some ASGI servers run it: neither its start nor its end is announced."""
    app = create_app(make_model(calibrated=False))
    (found,) = send(TestClient(app), ("a", image())).predictions
    assert (found["low"], found["high"], found["review"]) == (None, None, None)
    app.state.service.batcher.close()


def test_the_page_and_the_answers_need_nothing_from_elsewhere(client):
    for path in ("/", "/page.js", "/page.css", "/report.css"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text.replace("https://keepachangelog", "")
    assert client.get("/model").headers["x-content-type-options"] == "nosniff"


def test_a_failure_of_the_model_is_no_traceback(run, image, send, monkeypatch):
    app = create_app(run)
    client = TestClient(app, raise_server_exceptions=False)

    def broken(*_):
        raise RuntimeError("secret")

    monkeypatch.setattr(app.state.service.batcher, "_predict", broken)
    found = send(client, ("a", image()))
    assert found.status == 500
    assert "secret" not in found.error
    monkeypatch.undo()
    assert send(client, ("a", image())).status == 200


@pytest.mark.parametrize("name", ["max_mb", "max_pixels", "max_files", "max_rows", "timeout"])
def test_a_limit_must_let_something_through(name):
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})


def test_more_pixels_than_pillow_takes_are_refused_at_once():
    with pytest.raises(ValueError, match="max_pixels must be at most 89478485, got 1000000000"):
        Limits(max_pixels=10**9)
