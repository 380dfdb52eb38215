"""Free ports for processes that take a while to open them.

A port that a process finds free is soon found free by another process as well. So ports are reserved: a file that all processes of this
user share lists the recent reservations, under a lock. Ports lie outside the range from which the kernel serves outgoing connections.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: Lifetime of a reservation; seconds. Longer than a cluster takes to open its ports.
PROMISE_S = 180.0
_FIRST, _LAST = 20_000, 65_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def promise_ports(count: int) -> tuple[int, ...]:
    """Reserve free ports of 127.0.0.1; no other caller on this machine gets them for `PROMISE_S`.

    Raises:
        OSError: There are fewer free ports.
    """
    with Path(tempfile.gettempdir(), f"schedulemesh-ports-{os.getuid()}.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # Released by the close.
        file.seek(0)
        promised = _still_promised(file.read())
        ports = []
        for port in _candidates():
            if port not in promised and is_free(port):
                ports.append(port)
                if len(ports) == count:
                    break
        else:
            raise OSError(f"{count} free ports are needed, {len(ports)} were found between {_FIRST} and {_LAST}")
        until = time.time() + PROMISE_S
        file.truncate(0)
        file.write(json.dumps({**promised, **dict.fromkeys(ports, until)}))
    return tuple(ports)


def _still_promised(text: str) -> dict[int, float]:
    try:
        kept = json.loads(text or "{}")
    except ValueError:  # A writer was killed half-way. Its reservations are lost, and the check for use still holds.
        return {}
    return {int(port): until for port, until in kept.items() if until > time.time()}


def _candidates() -> Iterator[int]:
    low, high = map(int, _EPHEMERAL.read_text().split()) if _EPHEMERAL.exists() else (49_152, 65_535)
    return (port for port in range(_FIRST, _LAST) if not low <= port <= high)


def is_free(port: int, host: str = "") -> bool:
    """Return whether a process can listen on the port now. Connections that are closing do not block it, as for servers."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
