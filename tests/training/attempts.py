"""Runs ``layline`` as often as it is told to, each time in fresh processes that may come to harm.

Python and the libraries start once; every attempt is a fork of that, in a session of its own. A
line of JSON on stdin asks for one:

- ``arguments``: of the command;
- ``processes``: how many, each told its rank in the environment as ``torchrun`` does it;
- ``environment``: variables;
- ``values``: what to put elsewhere, such as ``{"layline.training.frozen:PIECE": 16}``;
- ``harm``: a list of what befalls the processes, see :func:`befall`;
- ``touches``: die when files in ``folder`` are changed for the so-manieth time;
- ``seconds``: killed from outside after so long;
- ``largest_file``: no file may have more bytes.

A line on stdout says what came of it: the exit codes, what was printed, and which processes were
left behind.
"""

import atexit
import errno
import importlib
import itertools
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Timer

import plotly.offline  # noqa: F401 - imported once, so that attempts need not
import sklearn.metrics  # noqa: F401
import torch
import torchvision.transforms.v2  # noqa: F401
from sklearn.datasets import load_sample_images

import layline.reports.run
import layline.training.api
import layline.training.run  # noqa: F401
from layline.cli import main


def _no_room():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


DEEDS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "interrupt all": lambda: os.killpg(0, signal.SIGINT),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "terminate all": lambda: os.killpg(0, signal.SIGTERM),
    "no room": _no_room,
    "nan": lambda: None,
}
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


def find(target):
    """Find the owner and the name of ``module:name.of.something``."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return owner, name


def befall(target, deed="kill", number=1, when="before", rank=0):
    """Let something happen at a call.

    Args:
        target: The function, as ``module:name.of.it``.
        deed: What happens, one of ``DEEDS``; ``nan`` takes the place of what it gives.
        number: At which call, from 1.
        when: ``before`` or ``after`` it, or ``half``: when half of the file was written.
        rank: In which process.
    """
    if int(os.environ.get("RANK", "0")) != rank:
        return
    owner, name = find(target)
    function, calls = getattr(owner, name), itertools.count(1)

    def harmed(*args, **kwargs):
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

    setattr(owner, name, harmed)


def die_when_touched(folder, number):
    """Die just before the so-manieth change of a file in the folder."""
    calls = itertools.count(1)

    def watch(event, values):
        touched = event in CHANGES or (
            event == "open" and isinstance(values[2], int) and values[2] & os.O_ACCMODE
        )
        # what is removed with its folder is named without it
        inside = touched and str(values[0]).startswith((folder, "model.s", "optimizer", "random_s"))
        if inside and next(calls) == number:
            DEEDS["kill"]()

    sys.addaudithook(watch)


def attempt(wanted, rank, port):
    """Run the command in this process."""
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
        befall(**harm)
    if touches := wanted.get("touches"):
        die_when_touched(wanted["folder"], touches)
    sys.argv = ["layline", *wanted["arguments"]]
    try:
        main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


def fork(wanted, rank, port, out, err):
    """Run the command in a new process, the leader of a new session."""
    if child := os.fork():
        return child
    code = 70
    try:
        os.setsid()
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        code = attempt(wanted, rank, port)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait_for(children):
    """Wait for the end of all, and end the others if one fails, as a launcher does it."""
    codes, timers = {}, []
    while len(codes) < len(children):
        child, status = os.wait()
        codes[child] = os.waitstatus_to_exitcode(status)
        if codes[child]:  # those that end by themselves have the time to do so
            patience = 10 if codes[child] > 0 else 0
            others = set(children) - codes.keys()
            timers.append(Timer(patience, lambda each: [os.kill(c, 9) for c in each], [others]))
            timers[-1].start()
    for timer in timers:
        timer.cancel()
    return [codes[child] for child in children]


def left_behind(children, patience=20):
    """Find living processes of these sessions; orphans may take some seconds to notice it."""
    until = time.monotonic() + patience
    while True:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
                if state != "Z" and int(session) in children:
                    found.append(int(stat.parent.name))
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def answer(wanted):
    """Make an attempt, and tell what came of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        ranks = range(wanted.get("processes", 1))
        children = [fork(wanted, rank, port, out, err) for rank in ranks]
        timer = Timer(wanted.get("seconds", 120), lambda: [os.kill(c, 9) for c in children])
        timer.start()
        result = {"codes": wait_for(children)}
        timer.cancel()
        result["left"] = left_behind(children)
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
