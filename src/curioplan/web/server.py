"""Serves the playground: a page, and a socket behind it that drives a session for every tab."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from curioplan.errors import CurioplanError
from curioplan.web.messages import LARGEST, Message
from curioplan.web.playground import Playground
from curioplan.web.session import Session

log = logging.getLogger(__name__)

MOST_SESSIONS = 4  # tabs at a time; each has an environment and plans of its own
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Connection": "close",
}

Run = Callable[..., Coroutine[Any, Any, Any]]


def play(playground: Playground, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        playground: What is played with.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        ready: Called with the page's address once it is there.

    Raises:
        CurioplanError: The address cannot be listened on.
    """

    async def forever() -> None:
        async with listening(playground, host, port) as address:
            ready(address)
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(forever())


@contextlib.asynccontextmanager
async def listening(playground: Playground, host: str, port: int) -> AsyncIterator[str]:
    """A server that is up within the context, by its address."""
    desk = Desk(playground, host)
    quiet = logging.getLogger(f"{__name__}.protocol")
    quiet.disabled = True  # what strangers send is no news
    try:
        server = await serve(
            desk.talk,
            host,
            port,
            process_request=desk.answer,
            max_size=16 * LARGEST,  # what is larger ends the connection, without being read
            compression=None,
            server_header=None,
            logger=quiet,
        )
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CurioplanError(
            f"Cannot listen on {host}, port {port} ({reason}); choose others with --host and --port."
        ) from None
    async with server:
        taken = next(iter(server.sockets)).getsockname()[1]
        shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
        yield f"http://{f'[{shown}]' if ':' in shown else shown}:{taken}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Desk:
    """Answers requests for the page, and talks with it.

    A page of another site must not get here, neither by its origin nor under a name of its own that leads to
    this machine (DNS rebinding): the name in a request must be ours, and the origin must be this server.

    Args:
        playground: What is played with.
        host: The address that is listened on.
    """

    def __init__(self, playground: Playground, host: str) -> None:
        self.playground, self.host = playground, host.lower()
        self.open = 0
        self._seeds = itertools.count(0, 1_000_000)
        folder = files("curioplan.web") / "static"
        self._pages = {f"/{entry.name}": entry.read_bytes() for entry in folder.iterdir()}
        self._pages["/"] = self._pages["/index.html"]

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """The answer to a request; none for the socket, which is opened."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return _response(HTTPStatus.FORBIDDEN, "This playground is not served under that name.")
        path = request.path.partition("?")[0]
        if path == "/socket":
            if origins not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]):
                return _response(HTTPStatus.FORBIDDEN, "Only the playground's own page may come here.")
            return None
        if path not in self._pages:
            return _response(HTTPStatus.NOT_FOUND, "There is no such page.")
        kind = TYPES[path.rpartition(".")[2] if path != "/" else "html"]
        return _response(HTTPStatus.OK, self._pages[path], kind)

    def _is_ours(self, host: str) -> bool:
        """Whether the name in a request is one of this server's; tunnels may change the port."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self.host):
            return True
        if is_loopback(self.host):
            return is_loopback(name)
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return name == socket.gethostname().lower()

    async def talk(self, connection: ServerConnection) -> None:
        """A session from the opening of a tab to its end."""
        if self.open >= MOST_SESSIONS:
            text = f"There are {MOST_SESSIONS} playgrounds open already; close one of their tabs first."
            with contextlib.suppress(ConnectionClosed):
                await _send(connection, [{"type": "error", "text": text}])
                await connection.close(1013, "too many sessions")
            return
        self.open += 1
        # One thread for each: planning does not hold up the server, and graphics want to stay on a thread.
        worker = ThreadPoolExecutor(1, "session")
        loop = asyncio.get_running_loop()

        async def run(work: Callable[..., Any], *arguments: Any) -> Any:
            return await loop.run_in_executor(worker, work, *arguments)

        session: Session | None = None
        try:
            session = await run(Session, self.playground, next(self._seeds))
            await _converse(connection, session, run)
        except ConnectionClosed:
            pass
        except CurioplanError as error:
            await _send(connection, [{"type": "error", "text": str(error)}])
        finally:
            if session is not None:
                await run(session.close)
            worker.shutdown(wait=False)
            self.open -= 1


async def _converse(connection: ServerConnection, session: Session, run: Run) -> None:
    """Do what the page asks for, while the clock runs."""
    awake = asyncio.Event()
    await _send(connection, await run(session.hello))
    clock = asyncio.create_task(_tick(connection, session, run, awake))
    try:
        async for text in connection:
            await _send(connection, await run(session.handle, text))
            if session.running:
                awake.set()
    finally:
        clock.cancel()
        (end,) = await asyncio.gather(clock, return_exceptions=True)
        if isinstance(end, Exception) and not isinstance(end, ConnectionClosed):
            log.error("The clock of a session broke.", exc_info=end)


async def _tick(connection: ServerConnection, session: Session, run: Run, awake: asyncio.Event) -> None:
    """Let the session's time pass at its pace, or slower if planning takes longer."""
    loop = asyncio.get_running_loop()
    while True:
        await awake.wait()
        due = loop.time() + 1 / session.pace
        await _send(connection, await run(session.advance))
        if not session.running:
            awake.clear()
        await asyncio.sleep(max(0.0, due - loop.time()))


async def _send(connection: ServerConnection, messages: list[Message | bytes]) -> None:
    for message in messages:
        await connection.send(message if isinstance(message, bytes) else json.dumps(message, allow_nan=False))


def _response(status: HTTPStatus, body: str | bytes, kind: str = "text/plain; charset=utf-8") -> Response:
    content = body.encode() if isinstance(body, str) else body
    headers = Headers({**HEADERS, "Content-Type": kind, "Content-Length": str(len(content))})
    return Response(status.value, status.phrase, headers, content)
