"""Slow connections, for tests of servers that close them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from patience import eventually

CLIENTS = 40


@contextlib.contextmanager
def slow(address: str, beginning: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that have sent this much; close them at the end."""
    where = urlsplit(address)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection((where.hostname, where.port))) for _ in range(CLIENTS)]
        for each in opened:
            each.sendall(beginning)
            each.settimeout(0.01)
        yield opened


def is_closed(client: socket.socket, heard: bytearray) -> bool:
    """Return whether the server has closed the connection; otherwise send one more byte."""
    try:
        while part := client.recv(65_536):
            heard += part
    except TimeoutError:
        with contextlib.suppress(OSError):
            client.sendall(b"a")
        return False
    except OSError:
        pass
    return True


def closed_in_the_end(clients: list[socket.socket]) -> list[bytes]:
    """Return the answer on each connection before it was closed."""
    heard = [bytearray() for _ in clients]
    left = dict(enumerate(clients))

    def look() -> bool:
        for place in [place for place, client in left.items() if is_closed(client, heard[place])]:
            left.pop(place).close()
        return not left

    eventually(look)
    return [bytes(each) for each in heard]


def head(path: str, key: str) -> bytes:
    """Return a request that promises a body, and its first byte."""
    lines = (f"POST {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {key}", "Content-Type: application/json", "Content-Length: 99999")
    return ("\r\n".join(lines) + "\r\n\r\n{").encode()
