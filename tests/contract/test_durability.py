"""Durability levels on real servers; a fake stands for a server that can wait for its disk where none is installed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from faults.server import Server
from patience import eventually

from federation.durability import Durability, check_reachable
from federation.errors import DurabilityUnreachable, StoreUnavailable
from federation.store.memory.durability import MemoryDurability
from federation.store.redis.client import connect
from federation.store.redis.durability import RedisDurability
from federation.store.redis.fixtures import ANSWER_MS_MAX, servers
from federation.store.redis.keys import Keys

KEYS = Keys("contract")


@contextmanager
def set_up(client: "redis.Redis", **settings: str) -> Iterator[None]:
    """Change settings of the server and restore them afterwards."""
    before = {name: client.config_get(name) for name in settings}
    try:
        for name, value in settings.items():
            client.config_set(name, value)
        yield
    finally:
        for values in before.values():
            for name, value in values.items():
                client.config_set(name, value)


def test_a_server_without_an_append_only_file_promises_nothing(redis_server):
    durable = RedisDurability(redis_server, KEYS)
    assert durable.reachable() is Durability.D0
    assert [durable.confirm(wanted) for wanted in (Durability.D0, Durability.D1)] == [Durability.D0, Durability.D0]


def test_server_that_syncs_every_write_reaches_d1(redis_server):
    durable = RedisDurability(redis_server, KEYS)
    with set_up(redis_server, appendonly="yes", appendfsync="always"):
        assert durable.reachable() is Durability.D1
        assert durable.confirm(Durability.D1) is Durability.D1
        redis_server.config_set("appendfsync", "everysec")
        assert durable.confirm(Durability.D1) is Durability.D0
    assert durable.confirm(Durability.D1) is Durability.D0


def test_level_beyond_the_store_is_refused_before_any_write():
    with pytest.raises(DurabilityUnreachable, match="cannot reach D2, only D1"):
        check_reachable(Durability.D2, Durability.D1)
    check_reachable(Durability.D1, Durability.D1)
    check_reachable(Durability.D0, Durability.D1)


@pytest.fixture(params=list(servers()))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A master that syncs every write and waits for its replica, and the replica; a delay does not part them."""
    both = {
        "binary": servers()[request.param],
        "min_replicas_to_write": "1",
        "min_replicas_max_lag": "600",
        "repl_timeout": "600",
        "repl_diskless_sync_delay": "0",
    }
    with ExitStack() as closing:
        master = Server(tmp_path / "master", appendfsync="always", **both)
        closing.callback(master.close)
        replica = Server(tmp_path / "replica", replicaof=f"127.0.0.1 {master.port}", **both)
        closing.callback(replica.close)
        eventually(lambda: master.client.info("replication").get("min_slaves_good_slaves") == 1)
        yield master, replica


@pytest.fixture
def durable(pair: tuple[Server, Server]) -> Iterator[RedisDurability]:
    """Durability of the master, with a wait that suits a busy machine."""
    with connect(pair[0].url, timeout_ms=ANSWER_MS_MAX) as client:
        yield RedisDurability(client, KEYS, wait_ms=ANSWER_MS_MAX // 2)


def test_replicated_write_is_in_a_second_place(pair: tuple[Server, Server], durable: RedisDurability):
    master, replica = pair
    assert durable.reachable() is Durability.D2
    master.client.set("submission", "kept")
    assert [durable.confirm(wanted) for wanted in Durability] == [Durability.D0, Durability.D1, Durability.D2]
    assert replica.client.get("submission") == b"kept"


def test_a_replica_that_falls_silent_makes_it_the_disk_alone(pair: tuple[Server, Server]):
    master, replica = pair
    replica.freeze()
    durable = RedisDurability(master.client, KEYS, wait_ms=200)
    assert durable.confirm(Durability.D2) is Durability.D1
    replica.thaw()
    assert eventually(lambda: durable.confirm(Durability.D2) is Durability.D2)


def test_missing_replica_lowers_the_promise_of_a_waiting_server(pair: tuple[Server, Server], durable: RedisDurability):
    _, replica = pair
    replica.kill()
    eventually(lambda: durable.reachable() is Durability.D1)
    with pytest.raises(StoreUnavailable, match="too few replicas"):
        durable.confirm(Durability.D2)
    replica.start()
    assert eventually(lambda: durable.reachable() is Durability.D2)
    assert durable.confirm(Durability.D2) is Durability.D2


def test_replica_without_waiting_is_no_second_place(pair: tuple[Server, Server], durable: RedisDurability):
    master, _ = pair
    master.client.config_set("min-replicas-to-write", 0)
    assert (durable.reachable(), durable.confirm(Durability.D2)) == (Durability.D1, Durability.D1)


def test_replica_of_an_unsynced_server_replaces_no_disk(pair: tuple[Server, Server], durable: RedisDurability):
    master, _ = pair
    master.client.config_set("appendfsync", "everysec")
    assert (durable.reachable(), durable.confirm(Durability.D2)) == (Durability.D0, Durability.D0)


def test_memory_confirms_no_more_than_it_is_asked_for():
    durable = MemoryDurability(Durability.D1)
    assert [durable.confirm(wanted) for wanted in (Durability.D0, Durability.D1, Durability.D2)] == [
        Durability.D0,
        Durability.D1,
        Durability.D1,
    ]


class Newer:
    """Fake server of version 7.2 whose disk has this many of a connection's writes after a wait."""

    def __init__(self, version: str = "7.2.0", *, synced: Any = 1, copies: int = 0, replicas: int = 0, appendonly: str = "yes") -> None:
        self.version, self.synced, self.appendonly = version, synced, appendonly
        self.copies, self.replicas = copies, replicas
        self.calls: list[tuple[Any, ...]] = []

    def info(self, section: str) -> dict[str, Any]:
        return {"redis_version": self.version} if section == "server" else {"min_slaves_good_slaves": self.replicas}

    def config_get(self, _pattern: str) -> dict[bytes, bytes]:
        return {b"appendonly": self.appendonly.encode(), b"appendfsync": b"everysec"}

    @contextmanager
    def pipeline(self, *, transaction: bool) -> Iterator[SimpleNamespace]:
        assert not transaction  # WAITAOF inside of one would not wait.
        yield SimpleNamespace(
            set=lambda key, _value: self.calls.append(("set", key)),
            waitaof=lambda *arguments: self.calls.append(("waitaof", *arguments)),
            execute=self._execute,
        )

    def _execute(self) -> list[Any]:
        if isinstance(self.synced, Exception):
            raise self.synced
        return [True, [self.synced, self.copies]]


def test_wait_uses_the_connection_that_has_just_written():
    server = Newer()
    durable = RedisDurability(server, KEYS, wait_ms=700)
    assert (durable.reachable(), durable.confirm(Durability.D1)) == (Durability.D1, Durability.D1)
    assert server.calls == [("set", KEYS.touched), ("waitaof", 1, 0, 700)]


def test_disk_timeout_yields_d0():
    assert RedisDurability(Newer(synced=0), KEYS).confirm(Durability.D1) is Durability.D0


@pytest.mark.parametrize(
    ("synced", "copies", "reached"),
    [
        pytest.param(1, 1, Durability.D2, id="both disks have the write"),
        pytest.param(1, 0, Durability.D1, id="the replica's disk timed out"),
        pytest.param(0, 1, Durability.D0, id="its own disk timed out and the replica's did not"),
        pytest.param(0, 0, Durability.D0, id="both disks timed out"),
    ],
)
def test_disk_of_a_replica_is_awaited_too(synced: int, copies: int, reached: Durability):
    server = Newer(synced=synced, copies=copies, replicas=1)
    durable = RedisDurability(server, KEYS, wait_ms=700)
    assert (durable.reachable(), durable.confirm(Durability.D2)) == (Durability.D2, reached)
    assert server.calls == [("set", KEYS.touched), ("waitaof", 1, 1, 700)]


@pytest.mark.parametrize("server", [Newer("7.0.15"), Newer("6.2.14"), Newer(appendonly="no")], ids=["7.0", "6.2", "without a file"])
def test_a_server_that_cannot_wait_is_not_asked_to(server):
    durable = RedisDurability(server, KEYS)
    assert (durable.reachable(), durable.confirm(Durability.D1)) == (Durability.D0, Durability.D0)
    assert server.calls == []


def test_server_lost_while_waiting_promised_nothing():
    durable = RedisDurability(Newer(synced=redis.exceptions.ConnectionError("gone")), KEYS)
    with pytest.raises(StoreUnavailable):
        durable.confirm(Durability.D1)


def test_a_user_who_may_not_read_the_settings_reaches_nothing(redis_server):
    redis_server.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", "-config")
    kwargs = redis_server.connection_pool.connection_kwargs
    try:
        with redis.Redis(unix_socket_path=kwargs["path"], username="narrow", password="pw") as narrow:
            assert RedisDurability(narrow, KEYS).reachable() is Durability.D0
    finally:
        redis_server.execute_command("ACL", "DELUSER", "narrow")
