"""``layline serve``: serve a trained model as a page and a JSON interface."""

import ipaddress
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layline.cli.options import Decode, Device, Plugins, read_decode
from layline.serve import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

EXAMPLES = """
layline serve runs/photos
layline serve runs/photos --port 8080 --coverage 0.95 --review 0.1
curl -F file=@photo.jpg http://127.0.0.1:8000/predict
"""
_CONNECTIONS = 100  # further ones are answered with 503


def serve(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a .safetensors model.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name of this server, such as that of a proxy; repeatable."),
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage of the ranges, such as 0.9.")
    ] = None,
    decode: Decode = None,
    review: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of samples that a person should check."),
    ] = None,
    max_mb: Annotated[float, typer.Option(help="Maximum megabytes of a request.")] = Limits.max_mb,
    max_pixels: Annotated[
        int, typer.Option(max=89_478_485, help="Maximum pixels of an image.")
    ] = Limits.max_pixels,
    max_files: Annotated[int, typer.Option(help="Maximum images of a request.")] = Limits.max_files,
    max_rows: Annotated[int, typer.Option(help="Maximum rows of a table.")] = Limits.max_rows,
    timeout: Annotated[
        float, typer.Option(help="Timeout of a request in seconds.")
    ] = Limits.timeout,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Serve a model: a page to drop images on, and JSON for programs.

    There is no login, so the server listens on this machine only, unless --host is given.
    Ctrl-C or SIGTERM stops it after the requests under way are answered.
    """
    from layline.serve import create_app
    from layline.utils.registry import load_plugins

    load_plugins(plugins or ())
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        app = create_app(
            run,
            coverage=coverage,
            decode=decode and read_decode(decode),
            review=review,
            device=device,
            limits=Limits(max_mb, max_pixels, max_files, max_rows, timeout),
            allowed_hosts=[*_find_hosts(host), *(allow_host or ())],
        )
        address, port = listening.getsockname()[:2]
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            typer.echo(f"There is no login: everyone who can reach {host} can use it.", err=True)
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
        names, url = app.state.classes, f"http://{_bracket(shown)}:{port}"
        typer.echo(
            f"Serving {run} at {url}: {names[0]} to {names[-1]}, {len(names)} classes. "
            "Press Ctrl-C to stop."
        )
        _run_server(app, listening, timeout)
        typer.echo("Stopped.")


def _find_hosts(host: str) -> list[str]:
    """List the names by which clients may reach a server that listens on ``host``."""
    hosts = {host, "localhost", "127.0.0.1", "::1"}
    if host in ("0.0.0.0", "::"):
        name = socket.gethostname()
        hosts |= {name, socket.getfqdn()}
        with suppress(OSError):  # the name of this machine may not be in any directory
            hosts |= {str(each[4][0]) for each in socket.getaddrinfo(name, None)}
    return [_bracket(each) for each in sorted(hosts)]


def _bracket(host: str) -> str:
    """Write a host as in a URL."""
    return f"[{host}]" if ":" in host else host


def _run_server(app: "FastAPI", listening: socket.socket, timeout: float) -> None:
    """Serve until SIGTERM or SIGINT, and answer the requests under way before returning."""
    import uvicorn

    config = uvicorn.Config(
        app,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=max(1, round(timeout)),
    )
    # uvicorn raises the signal again after its shutdown; both then end in a KeyboardInterrupt
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)
