"""The server of the playground: whom it lets in, what it serves, and that nothing it is sent breaks it."""

import asyncio
import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from curioplan.cli import main
from curioplan.config import ReachConfig
from curioplan.errors import CurioplanError
from curioplan.presets import preset
from curioplan.web import server
from curioplan.web.playground import Playground
from curioplan.web.server import MOST_SESSIONS, Desk, listening, play


@contextmanager
def serving(playground):
    """A server in a thread of its own, by its address."""
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    address: list[str] = []
    up = threading.Event()

    async def serve():
        async with listening(playground, "127.0.0.1", 0) as found:
            address.append(found)
            up.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert up.wait(30)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def playground(trained):
    return Playground.open(trained, preset("smoke", ReachConfig))


@pytest.fixture(scope="module")
def address(playground):
    with serving(playground) as found:
        yield found


def tab(address, **changes):
    """A socket as the page opens it."""
    place = urlsplit(address).netloc
    arguments = {"origin": f"http://{place}", "compression": None} | changes
    return connect(f"ws://{place}/socket", **arguments)


def receive(opened, kind):
    """The next message of a kind."""
    while True:
        message = json.loads(opened.recv(60))
        if message["type"] == kind:
            return message


def exchange(address, request, *, hangs_up=False):
    """What comes back for some bytes until the server hangs up, where the other side may do so first."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), 5) as raw:
        raw.settimeout(20)
        raw.sendall(request)
        if hangs_up:
            raw.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := raw.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def get(address, path="/", *headers, host=None):
    place = urlsplit(address).netloc
    lines = [f"GET {path} HTTP/1.1", f"Host: {host or place}", *headers, "", ""]
    head, _, body = exchange(address, "\r\n".join(lines).encode()).partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


def _until_all_are_closed():
    """Wait until no session is left."""
    end = time.monotonic() + 30
    while any(thread.name.startswith("session") for thread in threading.enumerate()):
        assert time.monotonic() < end, "closed tabs still take up room"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/app.js", "text/javascript"), ("/map.js", "text/javascript"),
     ("/style.css", "text/css"), ("/favicon.svg", "image/svg+xml")],
)  # fmt: skip
def test_the_page_is_served_with_its_parts_and_nothing_from_elsewhere_may_run_on_it(address, path, kind):
    status, head, body = get(address, path)
    assert status == 200
    assert f"Content-Type: {kind}" in head
    assert "Content-Security-Policy: default-src 'none'" in head
    assert "unsafe" not in head
    assert "nosniff" in head
    assert body


@pytest.mark.parametrize("path", ["/nothing", "/../session.py", "/%2e%2e/session.py", "//etc/passwd", "/."])
def test_there_is_nothing_else(address, path):
    assert get(address, path)[0] == 404


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1", "[::1]:8000", "127.0.0.2"])
def test_names_of_this_machine_are_served(address, host):
    assert get(address, host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "192.168.0.7", "[::", "a@localhost.x", "0.0.0.0"]
)
def test_other_names_are_refused_since_they_may_be_rebound(address, host):
    assert get(address, host=host)[0] == 403
    place = urlsplit(address).netloc
    assert get(address, "/", "Host: evil.example")[0] == 403, f"beside {place}"


def test_a_server_for_others_too_is_known_by_addresses_and_its_own_name(playground, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Desk7")
    desk = Desk(playground, "0.0.0.0")
    assert all(map(desk._is_ours, ("192.168.0.7:8000", "desk7", "localhost", "[fe80::1]:1")))
    assert not any(map(desk._is_ours, ("evil.example", "", "[::", "desk7.evil.example")))


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1", "http://localhost:1", "file://"]
)
def test_sockets_of_foreign_pages_are_refused(address, origin):
    with pytest.raises(InvalidStatus) as refused:
        tab(address, origin=origin)
    assert refused.value.response.status_code == 403


def test_the_agent_can_be_sent_to_a_goal(address):
    with tab(address) as page:
        assert receive(page, "hello")["task"] == "maze_umaze"
        page.send('{"type": "controller", "name": "actor"}')
        page.send('{"type": "goal", "goal": [2.8, 0.8]}')
        steps = 0
        while steps < 5:
            steps = receive(page, "state")["steps"]
        page.send('{"type": "pause"}')
        while not receive(page, "state")["paused"]:
            pass
        with pytest.raises(TimeoutError):
            page.recv(0.3)


def test_every_tab_has_a_world_of_its_own(address):
    with tab(address) as one, tab(address) as other:
        for page in (one, other):
            receive(page, "hello")
        one.send('{"type": "move", "to": [2.8, 0.8]}')
        while receive(one, "state")["observation"][0] < 2:
            pass
        other.send('{"type": "pause"}')
        assert receive(other, "state")["observation"][0] < 2


def test_too_many_tabs_are_told_so_and_a_closed_one_makes_room(address):
    _until_all_are_closed()
    with ExitStack() as stack:
        pages = [stack.enter_context(tab(address)) for _ in range(MOST_SESSIONS)]
        for page in pages:
            receive(page, "hello")
        with tab(address) as late:
            assert "close one" in receive(late, "error")["text"]
            with pytest.raises(ConnectionClosed):
                late.recv(10)
        for page in pages:
            page.socket.shutdown(socket.SHUT_RDWR)  # as when a browser is killed
    _until_all_are_closed()


def test_a_tab_closed_in_the_midst_of_planning_frees_its_session(address, monkeypatch):
    closed = threading.Event()
    before = server.Session.close
    monkeypatch.setattr(server.Session, "close", lambda self: (before(self), closed.set()))
    with tab(address) as page:
        page.send('{"type": "goal", "goal": [2.8, 0.8]}')
        while receive(page, "state")["steps"] < 2:
            pass
        page.socket.shutdown(socket.SHUT_RDWR)
        assert closed.wait(30)
    _until_all_are_closed()


def test_the_server_answers_while_an_agent_thinks(playground, monkeypatch):
    thinking, go_on = threading.Event(), threading.Event()
    before = server.Session.handle

    def slow(self, text):
        thinking.set()
        go_on.wait(30)
        return before(self, text)

    monkeypatch.setattr(server.Session, "handle", slow)
    with serving(playground) as address, tab(address) as page:
        page.send('{"type": "play"}')
        assert thinking.wait(30)
        assert get(address)[0] == 200
        go_on.set()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=st.lists(st.text(max_size=300) | st.binary(max_size=300), min_size=1, max_size=8))
def test_each_malformed_message_is_answered_by_an_error(address, messages):
    with tab(address) as page:
        receive(page, "hello")
        for message in messages:
            page.send(message)
            assert receive(page, "error")["text"]
    _until_all_are_closed()


def test_a_message_of_a_megabyte_ends_its_connection_alone(address):
    with tab(address) as page:
        page.send("x" * 1_000_000)
        with pytest.raises(ConnectionClosed):
            receive(page, "farewell")
    assert get(address)[0] == 200


REQUEST = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda method, path, name, value: f"{method} {path} HTTP/1.1\r\n{name}: {value}\r\n\r\n".encode(),
        st.sampled_from(["GET", "POST", "HEAD", "get", "OPTIONS", ""]),
        st.sampled_from(["/", "/socket", "*", "http://[", ""]) | st.text(max_size=30),
        st.sampled_from(["Host", "Origin", "Upgrade", "Content-Length", "X"]) | st.text(max_size=10),
        st.sampled_from(["localhost", "websocket", "[", "-1", "x" * 9000]) | st.text(max_size=30),
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(request=REQUEST)
def test_no_bytes_break_the_server(address, request):
    answer = exchange(address, request, hangs_up=True)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert not answer.startswith(b"HTTP/1.1 5"), answer


def test_the_server_still_works_after_many_at_once(address):
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: get(address)[0], range(40))) == {200}


def test_an_address_that_is_taken_costs_one_sentence(playground, address):
    with pytest.raises(CurioplanError, match=r"Cannot listen on 127\.0\.0\.1, port \d+"):
        play(playground, "127.0.0.1", urlsplit(address).port, pytest.fail)
    with pytest.raises(CurioplanError, match="Cannot listen"):
        play(playground, "127.0.0.1", 70_000, pytest.fail)


def test_the_command_says_where_the_page_is_and_opens_it(trained, capsys, monkeypatch):
    opened = []

    def stop(address):
        opened.append(address)
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", stop)
    assert main(["play", str(trained), "--port", "0", "--preset", "smoke"]) == 0
    assert opened[0] in capsys.readouterr().out
    assert main(["play", str(trained.parent), "--port", "0"]) == 2
    assert "curioplan: " in capsys.readouterr().err


def test_without_the_extra_the_command_says_how_to_get_it(trained, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "curioplan.web.server")
    monkeypatch.setitem(sys.modules, "websockets", None)
    for name in [name for name in sys.modules if name.startswith("websockets.")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["play", str(trained)]) == 2
    assert "pip install 'curioplan[web]'" in capsys.readouterr().err
