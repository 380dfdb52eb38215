"""Check that a process listens at an address. The check distinguishes a dead Ray cluster from a busy one."""

from __future__ import annotations

import socket


def can_connect(address: str, limit_s: float) -> None:
    """Connect to `HOST:PORT`, then disconnect. A busy or frozen service counts as reachable: the kernel accepts the connection.

    Raises:
        OSError: No process listens there, or the network path is cut.
        ValueError: The address is invalid.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s).close()
    except OverflowError as beyond:
        raise ValueError(f"{port} is not a port: {beyond}") from None
