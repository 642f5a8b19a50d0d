"""The page of the server in a browser: drop, look, download; on a phone and in the dark too."""

import csv
import io
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from PIL import Image

from layline.evaluation.prediction_file import write_csv
from layline.serve import create_app
from served_models import encode_image, write_served

pytestmark = pytest.mark.slow
CLASSES = ("very poor", "=fair", "</script><b>good")
NAMES = ("=cmd.png", "ordinary.png", "with, comma.png", "@home.png", '"quoted".png')


@pytest.fixture(scope="module")
def serve():
    """Serve folders from threads, and give their addresses."""
    running = []

    def start(folder):
        config = uvicorn.Config(create_app(folder), port=0, log_level="warning", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def url(serve, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "photos"
    return serve(write_served(folder, classes=CLASSES))


@pytest.fixture
def opened(visit):
    """Open the page of a server, which asks nobody else for anything."""

    def open_page(url, **options):
        page = visit(url, own=(url, f"blob:{url}", "data:"), offline=False, **options)
        page.locator("#scale li").first.wait_for()
        return page

    return open_page


def files(*names):
    return [
        {"name": name, "mimeType": "image/png", "buffer": encode_image(seed)}
        for seed, name in enumerate(names)
    ]


def choose(page, chosen):
    page.locator("#files").set_input_files(chosen)
    page.locator("#results:not([hidden])").wait_for()
    page.locator("#status:not(.busy)").wait_for()


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_images_are_graded_on_any_screen(opened, url, width, scheme):
    page = opened(url, width=width, scheme=scheme)
    assert page.locator("h1").text_content() == "photos"
    assert [text.strip() for text in page.locator("#scale li").all_text_contents()] == [*CLASSES]
    assert overflow(page) <= 0
    bad = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"}
    choose(page, [*files(*NAMES), bad])
    assert overflow(page) <= 0
    cards = page.locator(".card")
    assert cards.count() == 6
    assert "notes.txt cannot be read: not an image" in cards.nth(5).text_content()
    first = cards.nth(0)
    assert first.locator(".grade").text_content().startswith(CLASSES)
    assert first.locator(".shares .bar").count() == 3
    assert "Range at 90" in first.text_content()
    assert page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
    assert "5 images graded" in page.locator("#status").text_content()
    shades = Image.open(io.BytesIO(page.screenshot())).convert("L")
    assert (np.median(np.asarray(shades)) < 80) == (scheme == "dark")


def test_what_is_downloaded_is_what_predict_would_write(opened, url):
    page = opened(url)
    choose(page, files(*NAMES))
    with page.expect_download() as download:
        page.locator("#download").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["path"] for row in rows] == ["./=cmd.png", *NAMES[1:3], "./@home.png", NAMES[4]]
    written = io.StringIO()
    columns = {"path": NAMES}
    for key in ("predicted", "low", "high"):
        columns[key] = [row[key].removeprefix("'") for row in rows]
    columns["confidence"] = [float(row["confidence"]) for row in rows]
    columns["review"] = [row["review"] == "true" for row in rows]
    proba = np.array([[float(row[f"p_{each}"]) for each in CLASSES] for row in rows])
    write_csv(written, columns, CLASSES, proba)
    assert [*csv.reader(io.StringIO(text))] == [*csv.reader(io.StringIO(written.getvalue()))]


def test_files_can_be_dropped_anywhere(opened, url):
    page = opened(url)
    transfer = page.evaluate_handle(
        """(contents) => {
          const transfer = new DataTransfer();
          for (const [name, bytes] of contents) {
            transfer.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
          }
          return transfer;
        }""",
        [[f"{seed}.png", list(encode_image(seed))] for seed in range(3)],
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    assert "over" in page.locator("#drop").get_attribute("class")
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    page.locator(".card").nth(2).wait_for()
    assert page.locator(".card").count() == 3
    assert "over" not in page.locator("#drop").get_attribute("class")


def test_many_images_are_sent_in_several_requests(opened, url):
    page = opened(url)
    requests = []
    page.on("request", lambda each: each.url.endswith("/predict") and requests.append(each))
    choose(page, files(*(f"{i}.png" for i in range(40))))
    assert len(requests) == 3
    assert page.locator(".card").count() == 24
    page.locator("#more").click()
    assert page.locator(".card").count() == 40
    page.locator("#clear").click()
    assert page.locator("#results").is_hidden()


def test_a_table_is_graded_row_by_row(serve, opened, tmp_path):
    page = opened(serve(write_served(tmp_path / "grades", kind="table")))
    assert "size, colour" in page.locator("#limits").text_content()
    assert page.locator("#camera").is_hidden()
    table = b"size,colour\n1,red\n2.5,blue\n,green\n"
    choose(page, [{"name": "rows.csv", "mimeType": "text/csv", "buffer": table}])
    names = page.locator(".card .name").all_text_contents()
    assert names == ["row 2", "row 3", "row 4"]
    bad = {"name": "bad.csv", "mimeType": "text/csv", "buffer": b"size\n1\n"}
    page.locator("#files").set_input_files(bad)
    page.locator(".card.failed").wait_for()
    assert "colour" in page.locator(".card.failed").text_content()


def test_a_stopped_server_is_reported(opened, serve, tmp_path):
    page = opened(serve(write_served(tmp_path / "photos")))
    page.route("**/predict", lambda route: route.fulfill(status=200, body="no JSON"))
    choose(page, files("a.png"))
    assert "The server does not answer" in page.locator(".card").text_content()
