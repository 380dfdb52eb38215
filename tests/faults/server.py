"""Real Redis of the bed: started, killed, frozen, filled up, and with its append-only file cut."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import psutil
import redis
from patience import eventually

from federation.store.redis.client import connect
from federation.store.redis.embedded import version_of
from federation.store.redis.fixtures import servers
from mesh.ray.cluster.process import bound_to_parent

#: Timeout of the test's own calls, long enough for a busy machine.
PATIENT_MS = 60_000
#: Below the ephemeral ports of the kernel, so none takes the port of an absent server; the cluster bus port, ten
#: thousand higher, stays below them too. Above the ports of `promise_ports`.
PORTS = range(21_200, 22_700)
BESIDE = 10_000
_claimed: set[int] = set()  #: Ports of this process; a process's own locks do not exclude it.
#: Byte n is locked by the process that has claimed port n, for its lifetime.
_CLAIMS = os.open(Path(tempfile.gettempdir(), f"schedulemesh-test-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT, 0o600)


class Server:
    """One server on its own port; its data stays in `folder` between starts.

    Args:
        binary: The program; None: the one on the PATH, else that of the wheel.
        file_bytes_max: Maximum size of the server's files, like a full disk. None: unlimited.
        has_own_clock: `shift_clock` changes its time of day; see `clocks_can_be_shifted`.
        settings: Configuration lines that override the defaults.
    """

    def __init__(
        self, folder: Path, *, binary: str | None = None, file_bytes_max: int | None = None, has_own_clock: bool = False, **settings: str
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.binary = binary or servers().get("path") or servers()["wheel"]
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.file_bytes_max = file_bytes_max  #: From the next start on.
        self._settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",
            "logfile": str(folder / "redis.log"),
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        if self.has_functions:
            self._settings.setdefault("enable-debug-command", "local")
        self._clock = folder.with_name(f"{folder.name}.clock") if has_own_clock else None
        self._process: psutil.Popen | None = None
        self.client = connect(self.url, timeout_ms=PATIENT_MS)  #: Stack of the test, around every proxy.
        self.start()

    @property
    def has_functions(self) -> bool:
        """Return whether the server has version 7 or later."""
        return (version_of(Path(self.binary)) or (0, 0)) >= (7, 0)

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return int(self._process.pid)

    def start(self) -> None:
        """Start it on the folder's data and wait until it answers."""
        (self.folder / "redis.conf").write_text("".join(f"{name} {value}\n" for name, value in self._settings.items()))
        blocks = "unlimited" if self.file_bytes_max is None else self.file_bytes_max // 512
        # A process that exceeds its limit is killed unless it ignores the signal; then it gets an error, as on a full disk.
        command = f'trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$1"'
        whole = ["/bin/sh", "-c", command, self.binary, str(self.folder / "redis.conf")]
        self._process = psutil.Popen(bound_to_parent(whole), stdout=subprocess.DEVNULL, env={**os.environ, **self._time()})
        try:
            eventually(self._answers)
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.info("server")["process_id"] == self.pid)
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "redis.log").read_text()[-2000:]
        return False

    def _time(self) -> dict[str, str]:
        """Environment in which a process reads the time of day from a file; monotonic time is unchanged."""
        if self._clock is None:
            return {}
        self.shift_clock(0)
        said = {"FAKETIME_TIMESTAMP_FILE": str(self._clock), "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return {"LD_PRELOAD": _false_clock(), **said}

    def shift_clock(self, by_ms: int) -> None:
        """Set the server's clock this far ahead of the machine's (negative: behind)."""
        assert self._clock is not None
        pending = self._clock.with_suffix(".pending")
        pending.write_text(f"{by_ms / 1000:+.3f}")
        pending.replace(self._clock)  # Atomically: it is read all the time.

    def kill(self) -> None:
        """Kill it, as a crash would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait(PATIENT_MS / 1000)

    def freeze(self) -> None:
        """Suspend it."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it."""
        os.kill(self.pid, signal.SIGCONT)

    def log_file(self) -> Path:
        """Return the growing part of the append-only file."""
        pieces = sorted((self.folder / "appendonlydir").glob("*.incr.aof")) if self.has_functions else [self.folder / "appendonly.aof"]
        return pieces[-1]

    def cut(self, to_bytes: int) -> None:
        """Cut the end of the append-only file; the server must not run."""
        with self.log_file().open("r+b") as file:
            file.truncate(to_bytes)

    def kept_copy(self, to: Path) -> Path:
        """Return a copy of the current data."""
        shutil.copytree(self.folder, to)
        return to

    def restore(self, copy: Path) -> None:
        """Replace the data with a copy; the server must not run."""
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)

    def close(self) -> None:
        """End it; the folder stays."""
        self.client.close()
        if self._process is not None and self._process.poll() is None:
            self.kill()


def clocks_can_be_shifted() -> bool:
    """Return whether the library that shifts clocks is installed; its package supports Linux on x86-64 only."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and Path(_false_clock()).exists()


def _false_clock() -> str:
    """Return the path of the library, which has no Python code of use here."""
    return str(Path(sysconfig.get_path("platlib"), "libfaketime", "vendor", "libfaketime", "src", "libfaketime.so.1"))


def free_port() -> int:
    """Return a free port whose cluster bus port is free too; no other test process gets it."""
    for port in random.sample(PORTS, len(PORTS)):
        if port in _claimed:
            continue
        with contextlib.suppress(OSError), socket.socket() as probe, socket.socket() as beside:
            fcntl.lockf(_CLAIMS, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.bind(("127.0.0.1", port))
            beside.bind(("127.0.0.1", port + BESIDE))
            _claimed.add(port)
            return port
    raise AssertionError(f"none of the ports {PORTS} is free")
