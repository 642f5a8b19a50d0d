"""Run ``layline`` repeatedly, each time in new processes in which faults can be injected.

Python and the libraries are imported once; every attempt is a fork of this process. A line of JSON
on stdin requests an attempt, see :func:`attempt` and :func:`answer`. A line on stdout has the exit
codes, the output, and the processes that are left.
"""

import atexit
import errno
import functools
import importlib
import itertools
import json
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import plotly.offline  # noqa: F401 - imported once for all attempts
import sklearn.metrics  # noqa: F401
import torch
import torchvision.transforms.v2  # noqa: F401
from sklearn.datasets import load_sample_images

import layline.reports.run
import layline.training.run  # noqa: F401
from layline.cli import main


def fill_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


DEEDS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "terminate all": lambda: os.killpg(0, signal.SIGTERM),
    "no room": fill_disk,
    "nan": lambda: None,
}
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


def find(target):
    """Return the owner and the name of ``module:name.of.attribute``."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    return functools.reduce(getattr, owners, importlib.import_module(module)), name


def inject(target, deed="kill", number=1, when="before", rank=0):
    """Inject a fault into the call ``number`` of the function ``target``, in one process.

    ``when`` is ``before`` or ``after`` the call, or ``half``: the written file is cut in half.
    """
    if int(os.environ.get("RANK", "0")) != rank:
        return
    owner, name = find(target)
    function, calls = getattr(owner, name), itertools.count(1)

    def faulty(*args, **kwargs):
        if next(calls) != number:
            return function(*args, **kwargs)
        if when == "before":
            DEEDS[deed]()
        result = function(*args, **kwargs)
        if when == "half":
            file = next(Path(each) for each in args if isinstance(each, str | Path))
            os.truncate(file, file.stat().st_size // 2)
        if when != "before":
            DEEDS[deed]()
        return result * float("nan") if deed == "nan" else result

    setattr(owner, name, faulty)


def kill_at_change(folder, number):
    """Kill this process just before a certain change of a file in the folder."""
    calls = itertools.count(1)

    def watch(event, values):
        opened = event == "open" and isinstance(values[2], int) and values[2] & os.O_ACCMODE
        # files that are removed with their folder have relative names
        names = (folder, "model.s", "optimizer", "random_s", "progress")
        inside = (opened or event in CHANGES) and str(values[0]).startswith(names)
        if inside and next(calls) == number:
            DEEDS["kill"]()

    sys.addaudithook(watch)


def attempt(wanted, rank, port, out, err):
    """Run the command in this process, which becomes the leader of a new session."""
    os.setsid()
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.environ |= wanted.get("environment", {})
    if (count := wanted.get("processes", 1)) > 1:
        world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in world.items()}
    if limit := wanted.get("largest_file"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for target, value in wanted.get("values", {}).items():
        setattr(*find(target), value)
    for harm in wanted.get("harm", ()):
        inject(**harm)
    if touches := wanted.get("touches"):
        kill_at_change(wanted["folder"], touches)
    sys.argv = ["layline", *wanted["arguments"]]
    try:
        main()
    finally:
        atexit._run_exitfuncs()


def wait_for(children, seconds):
    """Wait for all processes; if one fails, end the others, as a launcher does."""
    end = time.monotonic() + seconds
    while alive := [child for child in children if child.is_alive()]:
        if failed := [child.exitcode for child in children if child.exitcode]:
            patience = 60 if min(failed) > 0 else 0  # of those that were not killed
            end = min(end, time.monotonic() + patience)
        if time.monotonic() >= end:
            for child in alive:
                child.kill()
        time.sleep(0.01)
    return [child.exitcode for child in children]


def find_left(children, patience=60):
    """List living processes of these sessions; orphans may take some seconds to notice it."""
    until = time.monotonic() + patience
    while True:
        left = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
                if state != "Z" and int(session) in children:
                    left.append(int(stat.parent.name))
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def answer(wanted):
    """Make an attempt, and describe its result."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        children = [
            multiprocessing.get_context("fork").Process(
                target=attempt, args=(wanted, rank, port, out, err)
            )
            for rank in range(wanted.get("processes", 1))
        ]
        for child in children:
            child.start()
        result = {"codes": wait_for(children, wanted.get("seconds", 600))}
        result["left"] = find_left([child.pid for child in children])
        for name, file in {"stdout": out, "stderr": err}.items():
            file.seek(0)
            result[name] = file.read().decode()
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    load_sample_images()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
