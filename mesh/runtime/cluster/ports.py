"""Free ports for processes that take a while to open them.

A port that is merely found free is soon found free by somebody else as well. So ports are promised: a file that all
processes of this user share holds what was promised lately, under a lock. They lie outside the range from which the kernel
serves outgoing connections.
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

#: How long a promise holds: longer than a cluster takes to open its ports.
PROMISE_S = 180.0
_FIRST, _LAST = 20_000, 65_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def promise_ports(count: int) -> tuple[int, ...]:
    """Ports of 127.0.0.1 that nobody uses, and that no other caller on this machine is given for a while.

    Raises:
        OSError: There are not that many.
    """
    with Path(tempfile.gettempdir(), f"schedulemesh-ports-{os.getuid()}.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # Let go by the close.
        file.seek(0)
        promised = _still_promised(file.read())
        ports = []
        for port in _candidates():
            if port not in promised and _is_free(port):
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
    except ValueError:  # A writer was killed half-way; its promises are lost, and the check for use still holds.
        return {}
    return {int(port): until for port, until in kept.items() if until > time.time()}


def _candidates() -> Iterator[int]:
    low, high = map(int, _EPHEMERAL.read_text().split()) if _EPHEMERAL.exists() else (49_152, 65_535)
    return (port for port in range(_FIRST, _LAST) if not low <= port <= high)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
