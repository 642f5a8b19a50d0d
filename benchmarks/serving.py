"""What serving a model costs: throughput against ``predict``, and how long one image takes.

The server runs in a process of its own, as ``layline serve`` starts it. Throughput: all images in
forms of 32, four on their way at once, against the loop of ``layline predict`` on the same files;
the two take turns, and the ratio of their medians is given. The processor time per image is there
as well, since other programs on the machine change it little. Latency: requests of one image each
from 1, 4 and 16 clients at once, against one image in Python without a server.

    python benchmarks/serving.py runs/cars-arc photos
"""

import argparse
import http.client
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

import layline
from layline.data.images import list_images
from layline.utils.allocator import keep_freed_memory

CLIENTS = (1, 4, 16)
IN_A_FORM = 32
AT_ONCE = 4
BOUNDARY = b"3f0c9d1be7"


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a run on images")
    parser.add_argument("photos", type=Path, help="folder of images")
    parser.add_argument("--images", type=int, default=256, help="how many of them")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each side takes")
    parser.add_argument("--requests", type=int, default=160, help="of one image, per kind")
    return parser.parse_args()


def form(paths: Sequence[Path]) -> bytes:
    """Put files into the body of a form."""
    parts = []
    for path in paths:
        place = f'Content-Disposition: form-data; name="files"; filename="{path.name}"'
        parts += [b"--" + BOUNDARY, place.encode(), b"", path.read_bytes()]
    return b"\r\n".join([*parts, b"--" + BOUNDARY + b"--", b""])


class Client:
    """A client that keeps its connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, body: bytes) -> float:
        """Send a form, and give the seconds until its answer is there."""
        kind = f"multipart/form-data; boundary={BOUNDARY.decode()}"
        start = time.perf_counter()
        self._connection.request("POST", "/predict", body, {"Content-Type": kind})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"the server answered {answer.status}: {content[:300]!r}")
        return time.perf_counter() - start


def shared_out(port: int, count: int, bodies: Sequence[bytes]) -> list[float]:
    """Have new clients send all bodies, each the next that is left; give the seconds of each."""
    clients = [Client(port) for _ in range(count)]
    left, lock = iter(bodies), threading.Lock()

    def work(client: Client) -> list[float]:
        seconds = []
        while True:
            with lock:
                body = next(left, None)
            if body is None:
                return seconds
            seconds.append(client.ask(body))

    with ThreadPoolExecutor(len(clients)) as threads:
        return [each for found in threads.map(work, clients) for each in found]


def timed(task: Any, *arguments: Any) -> float:
    """Give the seconds that a task takes."""
    start = time.perf_counter()
    task(*arguments)
    return time.perf_counter() - start


def processor_time(process: psutil.Process) -> float:
    """Give the seconds that a process and its children that have ended took of the processors."""
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Measure, and print what came out."""
    given = options()
    keep_freed_memory()  # as the command does
    paths = list_images(given.photos)[: given.images]
    model = layline.load(given.run)

    def predict() -> None:
        """Do what ``layline predict`` does once it has started."""
        for _ in model.stream(model.read(paths), batch_size=64, workers=None):
            pass

    command = [sys.executable, "-m", "layline", "serve", str(given.run), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said = [server.stdout.readline() for _ in range(2)]
        port = int(re.search(r":(\d+)", said[1])[1])
        forms = [form(paths[i : i + IN_A_FORM]) for i in range(0, len(paths), IN_A_FORM)]
        predict()
        shared_out(port, AT_ONCE, forms)  # both are warm
        tasks = {
            "predict": (psutil.Process(), predict, ()),
            "serve": (psutil.Process(server.pid), shared_out, (port, AT_ONCE, forms)),
        }
        seconds: dict[str, list[float]] = {name: [] for name in tasks}
        busy = dict.fromkeys(tasks, 0.0)
        for _ in range(given.rounds):
            for name, (process, task, arguments) in tasks.items():
                before = processor_time(process)
                seconds[name].append(timed(task, *arguments))
                busy[name] += processor_time(process) - before
        rates = {name: len(paths) / statistics.median(found) for name, found in seconds.items()}
        print(f"{len(paths)} images, {given.run.name}, {given.rounds} rounds in turns")
        for name, rate in rates.items():
            cost = 1000 * busy[name] / (given.rounds * len(paths))
            print(f"{name:8} {rate:7.1f} images/s {cost:7.1f} ms of a processor per image")
        print(
            f"ratio    {rates['serve'] / rates['predict']:7.2f}          "
            f"{busy['serve'] / busy['predict']:7.2f}"
        )
        ones = [form([paths[i % len(paths)]]) for i in range(given.requests)]
        contents = [paths[i % len(paths)].read_bytes() for i in range(given.requests)]
        alone = statistics.median([timed(model.predict_proba, [each]) for each in contents])
        print(f"\none image in Python, no server   {1000 * alone:7.1f} ms")
        print("clients   median ms   95 % ms   against Python   images/s")
        for count in CLIENTS:
            start = time.perf_counter()
            found = sorted(shared_out(port, count, ones))
            rate = len(found) / (time.perf_counter() - start)
            middle, late = statistics.median(found), found[int(0.95 * len(found))]
            print(
                f"{count:7} {1000 * middle:11.1f} {1000 * late:9.1f} "
                f"{middle / alone:16.2f} {rate:10.1f}"
            )
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
