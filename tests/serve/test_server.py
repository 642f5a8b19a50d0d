"""The server as a process: bad and slow clients, many at once, and its end."""

import base64
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import numpy as np
import psutil
import pytest
from PIL import Image

pytestmark = pytest.mark.slow
TIMEOUT = 2  # seconds


@contextmanager
def started(run, *arguments):
    command = [sys.executable, "-m", "layline", "serve", str(run), "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    try:
        said = [process.stdout.readline(), process.stdout.readline()]
        found = re.search(r"http://([\d.]+):(\d+)", said[1])
        if found is None:
            process.kill()
            pytest.fail(process.stderr.read())
        process.host, process.port, process.url = found[1], int(found[2]), found[0]
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(run):
    with started(run, "--timeout", str(TIMEOUT), "--max-mb", "2", "--max-files", "8") as process:
        yield process


def raw(server, *parts, wait=0.0):
    """Send bytes as they are, and give the status of the answer."""
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
            time.sleep(wait)
        answer = b""
        try:
            while b"\r\n" not in answer and (more := connection.recv(4096)):
                answer += more
        except OSError:
            pass
    return int(answer.split()[1]) if answer else None


def saved(form, side=40):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def bombs():
    """Files of a few bytes or kilobytes that say they are large."""
    many = 60_000
    sides = many.to_bytes(4, "big") * 2
    header = len(sides + b"12345").to_bytes(4, "big") + b"IHDR" + sides + b"\x08\x02\0\0\0"
    png = b"\x89PNG\r\n\x1a\n" + header + zlib.crc32(header[4:]).to_bytes(4, "big")
    flat = zlib.compress(bytes(10_000_000))
    data = len(flat).to_bytes(4, "big") + b"IDAT" + flat
    png += data + zlib.crc32(data[4:]).to_bytes(4, "big")
    jpeg = bytearray(saved("JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    gif = bytearray(saved("GIF"))
    gif[6:10] = b"\xff\xff\xff\xff"
    bmp = bytearray(saved("BMP"))
    bmp[18:26] = many.to_bytes(4, "little") * 2
    many_rows = io.BytesIO()
    Image.new("1", (40_000, 2_000)).save(many_rows, "TIFF", compression="group4")
    return [
        png,
        bytes(jpeg),
        bytes(gif),
        bytes(bmp),
        b"P6 60000 60000 255\n" + bytes(1000),
        b"P5 9999999 9999999 255\n",
        many_rows.getvalue(),
    ]


def no_images():
    """What people and programs send that is no image, whole or cut off."""
    texts = [b"", b"hello", b"<svg xmlns='x'/>", b"%PDF-1.7", b"PK\x03\x04" + bytes(60), b"\x7fELF"]
    texts += [b"%!PS-Adobe-3.0 EPSF-3.0\n(/etc/passwd) (r) file", b"GIF89a", b"\xff\xd8\xff", b"BM"]
    texts += [b"<?php ?>", b"\x89PNG\r\n\x1a\n", b"RIFF\x10\0\0\0WEBPVP8 ", bytes(5000)]
    texts += [b"II*\0\x08\0\0\0\xff\xff", b"\0\0\0\x18ftypheic" + bytes(200), b"<!doctype html>"]
    rng = np.random.default_rng(0)
    texts += [rng.bytes(int(size)) for size in rng.integers(1, 3000, 40)]
    for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        whole = saved(form)
        texts += [whole[: int(share * len(whole))] for share in (0.02, 0.1, 0.3, 0.6, 0.8)]
    return texts


def bad_bodies():
    """What is JSON of another kind, or none."""
    data = base64.b64encode(b"no image").decode()
    wrong = [None, 1, "x", [], {}, [1], {"images": {}}, {"images": []}, {"images": "x"}]
    wrong += [
        {"images": [each]} for each in (1, None, [], {}, {"data": 1}, {"name": 1, "data": data})
    ]
    wrong += [
        {"images": [each]} for each in ("", "!!!", "ü", data, data * 1000, "data:,x", "A" * 9)
    ]
    wrong += [{"images": [data] * 9}, {"rows": [{"a": 1}]}, {"Images": [data]}]
    texts = [json.dumps(each).encode() for each in wrong]
    texts += [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"images": [NaN]}',
        b"\xff\xfe",
        b"\0",
        b"'a'",
        b"1" * 5000,
    ]
    return [*texts, b'{"images": ["\\ud800"]}', b'{"images": [' + b"9" * 5000 + b"]}"]


def bad_forms():
    """Forms that are none, and forms without files."""
    kind = "multipart/form-data; boundary=b"
    part = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nx\r\n'
    text = b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n--b--\r\n'
    return [
        ("multipart/form-data", part + b"--b--\r\n"),
        ("multipart/form-data; boundary=" + "x" * 500, part),
        ("multipart/form-data; boundary=", part),
        (kind, part),
        (kind, part[:40]),
        (kind, text),
        (kind, b"--b--\r\n"),
        (kind, b""),
        (kind, b"hello"),
        (kind, part.replace(b'name="f"; ', b"") + b"--b--\r\n"),
        (kind, part.replace(b"\r\n\r\n", b"\r\n") + b"--b--\r\n"),
        (kind, part.replace(b"Content-Disposition", b"\0") + b"--b--\r\n"),
        (kind, part * 9 + b"--b--\r\n"),
        (kind, text[:-7] * 50 + b"--b--\r\n"),
        (kind, b"\r\n--" * 10_000),
    ]


def head(path="/predict", *lines, method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def bad_bytes():
    """What is no HTTP, or asks for what is not there."""
    paths = ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/page.js/../app.py"]
    paths += [
        "/app.py",
        "/page.html",
        "/%00",
        "/..%2f..%2fetc%2fpasswd",
        "/static/../../x",
        "/.git",
    ]
    paths += ["/model/../../x", "/predict/", "/Predict", "/%c0%ae%c0%ae/", "/?" + "a" * 20_000, "*"]
    found = [head(path, method="GET") for path in paths if not path.startswith("/?")]
    found += [
        head("/predict", "Content-Length: 0", method=each)
        for each in ("GET", "PUT", "DELETE", "BREW")
    ]
    found += [head("/model", "Content-Length: 0"), head("/", "Content-Length: 0")]
    length = "Content-Type: application/json"
    found += [
        head("/predict", length, f"Content-Length: {each}")
        for each in ("-1", "x", "9" * 30, "3000000")
    ]
    found += [head("/predict", length, "Content-Length: 1", "Content-Length: 2") + b"xx"]
    chunked = head("/predict", length, "Transfer-Encoding: chunked")
    found += [
        chunked + each for each in (b"zz\r\n", b"-1\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n", b"1\r\nxyz")
    ]
    found += [
        b"\0\0\0\0\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET / HTP/1.1\r\n\r\n",
        b"GET  /\r\n\r\n",
        b"\r\nx\r\n\r\n",
    ]
    found += [
        head("/model", "X: " + "a" * 100_000),
        b"G" * 100_000,
        head("/predict", "Transfer-Encoding: x"),
    ]
    found += [head("/predict", length, "Content-Length: 2", "X\0: 1") + b"{}"]
    for kind in (
        "text/plain",
        "image/png",
        "application/x-www-form-urlencoded",
        "",
        "x" * 5000,
        "a/b/c",
    ):
        found += [head("/predict", f"Content-Type: {kind}", "Content-Length: 2") + b"{}"]
    return found


def ask_all(server):
    """Send all that is bad, and give the statuses of the answers."""
    as_json = {"content-type": "application/json"}
    names = ("../../etc/passwd", "a.png", "..\\..\\x", "a\0b")
    files = [(names[i % 4], each) for i, each in enumerate([*no_images(), *bombs()])]
    bodies = [*bad_bodies(), (bytes(100_000) for _ in range(100))]  # the last without a length
    with httpx.Client(base_url=server.url, timeout=30) as client:
        answers = [
            *(client.post("/predict", files=[("files", file)]) for file in files),
            *(
                client.post("/predict", content=content, headers={"content-type": kind})
                for kind, content in bad_forms()
            ),
            *(client.post("/predict", content=each, headers=as_json) for each in bodies),
            client.post("/predict", files=[("files", ("big.png", bytes(3_000_000)))]),
        ]
    assert all("error" in answer.json() for answer in answers)
    statuses = [answer.status_code for answer in answers]
    statuses += [raw(server, content) for content in bad_bytes()]
    return statuses + slow_clients(server)


def test_two_hundred_bad_requests_are_answered_and_nothing_remains(server, image):
    """Every one by a 4xx; the server is alive, and has no more memory than before."""

    def resident():
        return psutil.Process(server.pid).memory_info().rss

    first = ask_all(server)
    assert len(first) >= 200
    bad = {place: each for place, each in enumerate(first) if each is None or each // 100 != 4}
    assert bad == {}
    before = resident()
    again = ask_all(server)
    assert again == first
    growth = resident() - before
    assert growth < 40_000_000
    assert psutil.Process(server.pid).num_fds() < 60
    answer = httpx.post(f"{server.url}/predict", files=[("files", ("a.png", image()))])
    assert answer.status_code == 200
    assert httpx.get(f"{server.url}/health").json()["waiting"] == 0


def slow_clients(server):
    """Clients that begin and do not go on: with the head, the body, or a byte at a time."""
    json_head = ("/predict", "Content-Type: application/json", "Content-Length: 100")
    form = ("/predict", "Content-Type: multipart/form-data; boundary=b", "Content-Length: 1000")
    beginnings = [
        (b"GET /mod",),
        (head(*json_head)[:-20],),
        (head(*json_head),),
        (head(*json_head), b"{"),
        (head(*form), b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nx'),
        (
            head("/predict", "Content-Type: application/json", "Transfer-Encoding: chunked"),
            b"1\r\n",
        ),
        (head(*json_head), *[b" "] * 30),
        (*(bytes([byte]) for byte in b"POST /predict HTTP/1.1\r\n"), *[b"a"] * 10),
    ]
    with ThreadPoolExecutor(16) as clients:
        return list(clients.map(lambda parts: raw(server, *parts, wait=0.15), 2 * beginnings))


def test_clients_at_once_get_their_own_answers(server, image):
    contents = [image(seed) for seed in range(6)]

    def ask(seed):
        answer = httpx.post(
            f"{server.url}/predict", files=[("files", (f"{seed}.png", contents[seed]))], timeout=30
        )
        return answer.json()["predictions"][0]

    alone = [ask(seed) for seed in range(6)]
    with ThreadPoolExecutor(12) as clients:
        together = list(clients.map(ask, [seed % 6 for seed in range(48)]))
    for place, found in enumerate(together):
        expected = alone[place % 6]
        assert found["name"] == expected["name"]
        for name, share in found["probabilities"].items():
            assert share == pytest.approx(expected["probabilities"][name], abs=1e-5)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_what_it_has(run, image, sent):
    with started(run) as server:
        files = [("files", (f"{i}.png", image(i))) for i in range(80)]
        body = httpx.Request("POST", f"{server.url}/predict", files=files)
        content = body.read()
        answers = []

        def ask():
            with socket.create_connection((server.host, server.port)) as connection:
                lines = [f"{name}: {value}" for name, value in body.headers.items()]
                connection.sendall(("POST /predict HTTP/1.1\r\n" + "\r\n".join(lines)).encode())
                connection.sendall(b"\r\n\r\n" + content[:-100])
                time.sleep(0.5)
                connection.sendall(content[-100:])  # the signal has come by now
                answer = b""
                while more := connection.recv(65536):
                    answer += more
                answers.append(answer)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.25)
        server.send_signal(sent)
        asking.join(30)
        out, err = server.communicate(timeout=30)
        assert server.returncode == 0
        assert err == ""
        assert out == "stopped\n"
        head_of, _, answer = answers[0].partition(b"\r\n\r\n")
        assert head_of.startswith(b"HTTP/1.1 200")
        assert len(json.loads(answer)["predictions"]) == 80
