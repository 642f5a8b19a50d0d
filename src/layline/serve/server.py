"""Running the application on this machine: its address, slow clients, and how it stops."""

import asyncio
import errno
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from layline.utils.errors import UserError


def serve(
    app: Starlette,
    address: socket.socket,
    timeout: float,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT comes, and finish what was asked before.

    Args:
        app: What :func:`layline.serve.create_app` gives.
        address: What :func:`bind` gives.
        timeout: Seconds that a client has to send the head of a request; what was begun is given
            as many when the server stops.
        started: Called when clients can connect.
    """
    protocol = type("TimedProtocol", (_TimedProtocol,), {"timeout": timeout})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(timeout)),
    )
    with _stop_quietly():
        _Server(config, started).run(sockets=[address])


def bind(host: str, port: int) -> socket.socket:
    """Take an address, or say in a sentence why it cannot be had.

    Args:
        host: A name or an address of this machine.
        port: 0 takes any that is free.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(f"host must be an address of this machine, got {host!r}") from error
    family, kind, protocol, _, place = found[0]
    address = socket.socket(family, kind, protocol)
    try:
        address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        address.bind(place)
        # a port that another program took, but not yet listens on, is noticed only here
        address.listen(2048)
    except OSError as error:
        address.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port must be free, got {port}: another program has it, take one with --port"
        elif error.errno == errno.EACCES:
            why = f"port must be one that you may use, got {port}: take one above 1023"
        else:
            why = f"host must be an address of this machine, got {host!r}: {error.strerror}"
        raise UserError(why) from error
    return address


def url_of(address: socket.socket) -> str:
    """Write an address as a browser takes it."""
    host, port = address.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host)  # any: this machine as well
    return f"http://{here or (f'[{host}]' if ':' in host else host)}:{port}"


def is_local(address: socket.socket) -> bool:
    """Tell whether only programs of this machine can connect."""
    return ipaddress.ip_address(address.getsockname()[0].partition("%")[0]).is_loopback


class _Server(uvicorn.Server):
    """Says when it has started."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._say_started()


class _TimedProtocol(H11Protocol):
    """Does not wait for ever for the head of a request, nor for what follows an early answer.

    How long the body may take is a matter of the application.
    """

    timeout: float
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            self._unset_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _set_timer(self) -> None:
        self._unset_timer()
        self._timer = self.loop.call_later(self.timeout, self._end)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        if self.transport.is_closing() or self._is_answering:
            return
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            text = b'{"error":"a request must be sent in time, got a part of its head"}'
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(text))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
                h11.Data(data=text),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


@contextmanager
def _stop_quietly() -> Iterator[None]:
    """Have a signal that stopped the server do nothing more: uvicorn raises it again at its end."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.signal(each, lambda *_: None) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
