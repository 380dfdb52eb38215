"""The fault proxy itself: it does what it is set to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from faults.proxy import Proxy
from patience import eventually

WAIT_S = 60.0


class Echo:
    """Server that echoes every chunk and keeps the input by connection."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            while said := line.recv(100):
                self.heard.append(said)
                line.sendall(said)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    proxy = Proxy(echo.port)
    yield proxy
    proxy.close()


@pytest.fixture
def line(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as line:
        line.sendall(b"hello")
        assert line.recv(100) == b"hello"
        yield line


def test_dropped_request_never_arrives(proxy: Proxy, line: socket.socket, echo: Echo) -> None:
    proxy.weather.drop_requests = True
    line.sendall(b"lost")
    eventually(lambda: proxy.requests == 2, WAIT_S)
    proxy.weather.drop_requests = False
    line.sendall(b"there")
    assert line.recv(100) == b"there"
    assert echo.heard == [b"hello", b"there"]


def test_a_dropped_reply_was_heard_by_the_server(proxy: Proxy, line: socket.socket, echo: Echo) -> None:
    proxy.weather.drop_replies = True
    line.sendall(b"heard")
    eventually(lambda: echo.heard == [b"hello", b"heard"], WAIT_S)
    line.settimeout(0.1)
    with pytest.raises(TimeoutError):
        line.recv(100)


def test_delayed_request_arrives_after_its_client_has_gone(proxy: Proxy, line: socket.socket, echo: Echo) -> None:
    proxy.weather.request_delay_s = 0.2
    line.sendall(b"late")
    line.close()
    eventually(lambda: proxy.delivered_late == 1, WAIT_S)
    eventually(lambda: echo.heard == [b"hello", b"late"], WAIT_S)


def test_held_request_is_passed_on_when_released(proxy: Proxy, line: socket.socket, echo: Echo) -> None:
    proxy.weather.hold_requests = True
    line.sendall(b"held")
    eventually(lambda: proxy.requests == 2, WAIT_S)
    with socket.create_connection(("127.0.0.1", echo.port), timeout=WAIT_S) as beside:
        beside.sendall(b"before")
        assert beside.recv(100) == b"before"
    proxy.weather.hold_requests = False
    assert line.recv(100) == b"held"
    assert echo.heard == [b"hello", b"before", b"held"]


def test_a_duplicated_request_is_heard_twice_and_answered_once(proxy: Proxy, echo: Echo) -> None:
    proxy.weather.duplicate = True
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as line:
        line.sendall(b"twice")
        assert line.recv(100) == b"twice"
        eventually(lambda: echo.heard == [b"twice", b"twice"], WAIT_S)
        line.settimeout(0.1)
        with pytest.raises(TimeoutError):
            line.recv(100)


def test_a_cut_breaks_what_is_open_and_a_refusal_what_would_be(proxy: Proxy, line: socket.socket) -> None:
    proxy.cut()
    assert line.recv(100) == b""
    proxy.weather.refuse = True
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as refused:
        assert refused.recv(100) == b""
