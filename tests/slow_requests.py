"""Connections that drip their requests: for tests of servers that close them."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from patience import eventually

CLIENTS = 40


def slow(address: str, beginning: bytes) -> list[socket.socket]:
    """Connections that have sent this much."""
    where = urlsplit(address)
    opened = [socket.create_connection((where.hostname, where.port)) for _ in range(CLIENTS)]
    for each in opened:
        each.settimeout(0.01)
        each.sendall(beginning)
    return opened


def is_closed(client: socket.socket, heard: bytearray) -> bool:
    """Whether the server has closed the connection; else one more byte is dripped."""
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
    """What each was answered before its connection was closed."""
    heard = [bytearray() for _ in clients]
    left = dict(enumerate(clients))

    def look() -> bool:
        for place in [place for place, client in left.items() if is_closed(client, heard[place])]:
            left.pop(place).close()
        return not left

    eventually(look)
    return [bytes(each) for each in heard]


def head(path: str, key: str) -> bytes:
    """A request that promises a body, and its first byte."""
    lines = (f"POST {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {key}", "Content-Type: application/json", "Content-Length: 99999")
    return ("\r\n".join(lines) + "\r\n\r\n{").encode()
