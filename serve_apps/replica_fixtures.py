"""For tests and benchmarks: replicas of production's gateway and its coordinator, each in a process of its own, without Ray Serve.

    python -m serve_apps.replica_fixtures SETTINGS gateway      # prints READY, and serves until its input ends

Replicas share one port, as under Serve. Serve would start another one for one that was killed; here the caller does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

from federation.configured_meshes import NO_CONFIGURED_MESHES
from serve_apps.processes.process import report_ready
from serve_apps.processes.settings import RootSettings
from serve_apps.root.deployments import DRAIN_S, CoordinatorLoop, gateway_app
from serve_apps.root.http_server import HttpServer, listening_socket

HOST = "127.0.0.1"
#: Long, so that no lease ends while a machine is busy.
LEASE_TTL_MS, LEASE_GRACE_MS = 600_000, 10_000
END_S_MAX = 30
Part = Literal["gateway", "coordinator"]


class Replicas:
    """Processes of a root on one Redis, in a folder for its settings and logs.

    Args:
        redis_url: Server with a configured ledger.
    """

    def __init__(self, folder: Path, redis_url: str) -> None:
        self._folder = folder
        self._held = listening_socket(HOST, 0)  # Bound and not listening: the port stays ours, and gets no connection here.
        port = int(self._held.getsockname()[1])
        self.address = f"http://{HOST}:{port}"
        self._processes: list[subprocess.Popen[str]] = []
        settings = RootSettings(
            ray_address="",
            heartbeat_ms=LEASE_TTL_MS // 3,
            storage_url=folder.as_uri(),
            redis_url=redis_url,
            lease_ttl_ms=LEASE_TTL_MS,
            lease_grace_ms=LEASE_GRACE_MS,
            host=HOST,
            port=port,
            gateways=1,
            body_limit_bytes=64 << 20,
            inline_limit_bytes=64 << 10,
            retention_ms=24 * 3_600_000,
            configured_meshes=NO_CONFIGURED_MESHES,
            receipt_keys={},
        )
        settings.write(folder / "root.json")

    def start(self, part: Part) -> subprocess.Popen[str]:
        """Start a process and return it when it is ready.

        Raises:
            RuntimeError: It ended instead; the message holds its log.
        """
        log = self._folder / f"{part}-{len(self._processes)}.log"
        command = [sys.executable, "-m", __name__, str(self._folder / "root.json"), part]
        with log.open("w") as output:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True)
        self._processes.append(process)
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError(f"the {part} did not come up:\n{log.read_text()}")
        return process

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._held.close()


def main(settings_file: str, part: str) -> None:
    """Run one part until the input ends, or its parent is gone."""
    settings = RootSettings.read(settings_file)
    running: HttpServer | CoordinatorLoop
    if part == "gateway":
        running = HttpServer(gateway_app(settings), host=settings.host, port=settings.port, drain_s=DRAIN_S)
    else:
        running = CoordinatorLoop(settings)
    report_ready()
    sys.stdin.read()
    running.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
