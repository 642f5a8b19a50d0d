"""The server as a process: bad clients and signals."""

import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import numpy as np
import psutil
import pytest

from served_models import encode_image

pytestmark = pytest.mark.slow


@contextmanager
def start(run, *arguments):
    command = [sys.executable, "-m", "layline", "serve", str(run), "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        found = re.search(r"http://([\d.]+):(\d+)", process.stdout.readline())
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
    with start(run, "--max-mb", "2", "--max-files", "8") as process:
        yield process


def send_raw(server, content):
    """Send bytes unchanged, and return the status of the response."""
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        answer = b""
        try:
            connection.sendall(content)
            while b"\r\n" not in answer and (more := connection.recv(4096)):
                answer += more
        except OSError:
            pass
    return int(answer.split()[1]) if answer else None


def bad_files():
    """Files that are no images, are cut off, or claim to be huge."""
    files = [b"", b"hello", b"<svg xmlns='x'/>", b"%PDF-1.7", b"PK\x03\x04" + bytes(60), b"\x7fELF"]
    files += [b"%!PS-Adobe-3.0 EPSF-3.0\n(/etc/passwd) (r) file", b"GIF89a", b"\xff\xd8\xff", b"BM"]
    files += [b"\x89PNG\r\n\x1a\n", b"RIFF\x10\0\0\0WEBPVP8 ", bytes(5000), b"II*\0\x08\0\0\0\xff"]
    files += [b"\0\0\0\x18ftypheic" + bytes(200), b"P6 60000 60000 255\n" + bytes(1000)]
    rng = np.random.default_rng(0)
    files += [rng.bytes(int(size)) for size in rng.integers(1, 3000, 20)]
    for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        whole = encode_image(form=form)
        files += [whole[: int(share * len(whole))] for share in (0.02, 0.3, 0.8)]
    jpeg = bytearray(encode_image(form="JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    bmp = bytearray(encode_image(form="BMP"))
    bmp[18:26] = (60_000).to_bytes(4, "little") * 2
    return [*files, bytes(jpeg), bytes(bmp)]


def bad_forms():
    """Forms that are invalid or contain no file."""
    kind = "multipart/form-data; boundary=b"
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n'
    text = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n'
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
        (kind, part.replace(b'name="file"; ', b"") + b"--b--\r\n"),
        (kind, part.replace(b"\r\n\r\n", b"\r\n") + b"--b--\r\n"),
        (kind, part.replace(b"Content-Disposition", b"\0") + b"--b--\r\n"),
        (kind, part * 9 + b"--b--\r\n"),
        (kind, part * 2000 + b"--b--\r\n"),
        (kind, b"\r\n--" * 10_000),
        ("text/plain", b"{}"),
        ("", b"{}"),
    ]


def bad_bytes():
    """Requests that are not HTTP, or ask for something that does not exist."""

    def head(path="/predict/json", *lines, method="POST"):
        return "\r\n".join(
            [f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]
        ).encode()

    paths = ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/page.js/../app.py"]
    paths += ["/app.py", "/%00", "/..%2f..%2fetc%2fpasswd", "/.git", "/predict/", "/%c0%ae/", "*"]
    found = [head(path, method="GET") for path in paths]
    found += [head("/predict", "Content-Length: 0", method=each) for each in ("PUT", "BREW")]
    kind = "Content-Type: application/json"
    lengths = ("-1", "x", "9" * 30, "3000000")
    found += [head("/predict/json", kind, f"Content-Length: {each}") for each in lengths]
    chunked = head("/predict/json", kind, "Transfer-Encoding: chunked")
    found += [chunked + each for each in (b"zz\r\n", b"-1\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n")]
    found += [b"\0\0\0\0\r\n\r\n", b"HELLO\r\n\r\n", b"GET / HTP/1.1\r\n\r\n", b"\r\nx\r\n\r\n"]
    return [*found, b"G" * 100_000, b"GET /model HTTP/1.1\r\nHost: evil.example\r\n\r\n"]


def send_all(server):
    """Send all bad requests, and return the statuses of the responses."""
    names = ("../../etc/passwd", "a.png", "..\\..\\x", "a\0b")
    files = [(names[i % 4], each) for i, each in enumerate(bad_files())]
    with httpx.Client(base_url=server.url, timeout=60) as client:
        answers = [client.post("/predict", files=[("file", file)]) for file in files]
        for kind, content in bad_forms():
            headers = {"content-type": kind}
            answers.append(client.post("/predict", content=content, headers=headers))
        answers.append(client.post("/predict", files=[("file", ("big.png", bytes(3_000_000)))]))
    assert all(answer.json()["detail"] for answer in answers)
    statuses = [answer.status_code for answer in answers]
    return statuses + [send_raw(server, content) for content in bad_bytes()]


def test_bad_requests_are_refused_and_leak_no_memory(server):
    first = send_all(server)
    assert {
        i: status for i, status in enumerate(first) if status is None or status // 100 != 4
    } == {}
    before = psutil.Process(server.pid).memory_info().rss
    assert send_all(server) == first
    assert psutil.Process(server.pid).memory_info().rss - before < 40_000_000
    assert psutil.Process(server.pid).num_fds() < 60
    answer = httpx.post(f"{server.url}/predict", files=[("file", ("a.png", encode_image()))])
    assert answer.status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_finish(run, number):
    with start(run) as server:
        files = [("file", (f"{i}.png", encode_image(i))) for i in range(40)]
        request = httpx.Request("POST", f"{server.url}/predict", files=files)
        content = request.read()
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        head = "\r\n".join(["POST /predict HTTP/1.1", *lines, "", ""]).encode()
        with socket.create_connection((server.host, server.port), timeout=60) as connection:
            connection.sendall(head + content[:-100])
            httpx.get(f"{server.url}/health")  # answered after the other request has begun
            server.send_signal(number)
            listening = True
            while listening:  # until the server has noticed the signal
                try:
                    socket.create_connection((server.host, server.port), timeout=60).close()
                except OSError:
                    listening = False
            connection.sendall(content[-100:])
            answer = b""
            while more := connection.recv(65536):
                answer += more
        _, errors = server.communicate(timeout=60)
        assert server.returncode == 0
        assert "Traceback" not in errors
        status, _, body = answer.partition(b"\r\n\r\n")
        assert status.startswith(b"HTTP/1.1 200")
        assert len(json.loads(body)["predictions"]) == 40
