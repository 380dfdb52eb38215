"""HTTP port that is claimed when it is chosen, so that two stacks that start at once choose different ports.

Serve binds its port seconds after it was found free, and lets several processes bind the same one. So the choice itself is
claimed by a name in the kernel (an abstract Unix socket), which ends with the process and leaves no file.
"""

from __future__ import annotations

import socket
from types import TracebackType

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.ports import is_free

#: Number of ports to try, from the wanted port up.
PORTS_TRIED = 50
PORT_MAX = 65_535


class PortClaim:
    """Port that no other stack on this machine chooses while the claim is held."""

    def __init__(self, port: int, name: socket.socket) -> None:
        self.port = port
        self._name = name

    @classmethod
    def take(cls, host: str, wanted: int) -> PortClaim:
        """Claim the first port from `wanted` up that is neither in use nor claimed.

        Raises:
            RuntimeAdapterError: No port is free.
        """
        end = min(wanted + PORTS_TRIED, PORT_MAX + 1)
        for port in range(wanted, end):
            name = socket.socket(socket.AF_UNIX)
            try:
                name.bind(f"\0schedulemesh-port-{port}")
            except OSError:
                name.close()
                continue
            if _is_unused(host, port):
                return cls(port, name)
            name.close()
        raise RuntimeAdapterError(f"no port between {wanted} and {end - 1} is free on {host}; set root.port in the configuration")

    def release(self) -> None:
        """Release the claim. Safe to repeat."""
        self._name.close()

    def __enter__(self) -> PortClaim:  # noqa: PYI034  `Self` needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def _is_unused(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        if probe.connect_ex((host if host != "0.0.0.0" else "127.0.0.1", port)) == 0:  # noqa: S104  asked for in the configuration
            return False
    return is_free(port, host)
