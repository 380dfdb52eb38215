"""Whether anybody listens at an address: the least that tells a Ray cluster that is gone from one that is busy."""

from __future__ import annotations

import socket


def can_connect(address: str, limit_s: float) -> None:
    """Connect to `HOST:PORT`, and hang up. A service that is busy, or frozen, is reached: the kernel answers in its place.

    Raises:
        OSError: Nobody listens there, or the way is cut.
        ValueError: It is no address.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s).close()
    except OverflowError as beyond:
        raise ValueError(f"{port} is no port: {beyond}") from None
