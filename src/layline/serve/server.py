"""Run the application with uvicorn."""

import errno
import ipaddress
import signal
import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from layline.serve.app import LOCAL_HOSTS
from layline.utils.errors import UserError

_CONNECTIONS = 100  # further ones are answered with 503


def bind(host: str, port: int) -> socket.socket:
    """Open the socket that the server listens on.

    Args:
        host: A name or an address of this machine.
        port: The port; 0 for any free one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        code = getattr(error, "errno", None)
        if code == errno.EADDRINUSE:
            why = f"Port {port} is already in use. Choose another port."
        elif code == errno.EACCES:
            why = f"Port {port} needs administrator rights. Choose a port above 1023."
        else:
            why = f"{host!r} is not an address of this machine."
        raise UserError(why) from error


def find_hosts(host: str) -> list[str]:
    """List the names by which clients may reach a server that listens on ``host``."""
    hosts = {host}
    if host in ("0.0.0.0", "::"):
        name = socket.gethostname()
        hosts |= {name, socket.getfqdn()}
        with suppress(OSError):  # the name of this machine may not be in any directory
            hosts |= {str(each[4][0]) for each in socket.getaddrinfo(name, None)}
    return [*LOCAL_HOSTS, *(f"[{each}]" if ":" in each else each for each in sorted(hosts))]


def format_url(address: socket.socket) -> str:
    """Format the URL of a socket for a browser on this machine."""
    host, port = address.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_local(address: socket.socket) -> bool:
    """Return whether only programs on this machine can connect."""
    return ipaddress.ip_address(address.getsockname()[0].partition("%")[0]).is_loopback


def run_server(app: FastAPI, address: socket.socket, timeout: float) -> None:
    """Serve until SIGTERM or SIGINT, and answer the requests under way before returning.

    Args:
        app: The application of :func:`layline.serve.create_app`.
        address: The socket of :func:`bind`.
        timeout: Seconds that requests have to finish.
    """
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
            uvicorn.Server(config).run(sockets=[address])
    finally:
        signal.signal(signal.SIGTERM, before)
