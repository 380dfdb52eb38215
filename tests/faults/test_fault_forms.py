"""Faults of replicated Redis servers: rows 28, 30 and 31 of the fault plan."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis
from faults.bed import LAB, PATIENCE_S, RUN, SLOT, spec_of, tree_of
from faults.parts import FLAVOR, record_of
from faults.server import PATIENT_MS
from faults.table import Row
from patience import eventually
from redis_forms import SERVICE, Cluster, Watched

from dag.errors import UnknownRun
from dag.store.event_feed import RedisEventFeed
from federation.errors import EpochChanged, HoldingsRequired, LedgerUnsafe, SessionLost, StoreUnavailable
from federation.leases import Granted, LeaseTerms
from federation.manual_mesh import ManualMesh
from federation.store.redis.client import connect, connect_async
from federation.store.redis.fixtures import copied, move_time, servers
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from federation.store.redis.safety import check_server
from mesh.core.ids import MeshId

pytestmark = pytest.mark.faults

KEYS = Keys()
#: As in production: the grace covers the lag of a replica. Time is moved by hand.
TERMS = LeaseTerms(ttl_ms=30_000, grace_ms=10_000)
SLOTS, MESHES = 4, 3
#: Writes resume within this after the master's death (the plan allows 15 s).
RESUMED_S_MAX = 15.0


def ledger_on(url: str, timeout_ms: int = 500) -> RedisLedger:
    return RedisLedger(connect(url, timeout_ms=timeout_ms), KEYS, terms=TERMS, uid="forms", founding=True)


class Load:
    """Meshes that join, acquire and release, each in a thread, and that wait when the ledger says so.

    It records the holder of each token, because no two leases or sessions may share one.
    """

    def __init__(self, url: str) -> None:
        self.bearers: dict[int, set[str]] = {}
        self.refused: Counter[str] = Counter()
        self.done = 0  #: Calls that were answered.
        self.broken: list[BaseException] = []
        self._url = url
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(f"mesh-{number}",)) for number in range(MESHES)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)
        if self.broken:
            raise self.broken[0]

    def _run(self, name: str) -> None:
        try:
            ledger, seen, sessions, hand = ledger_on(self._url), 0, 0, None
            while not self._end.is_set():
                try:
                    if hand is not None:
                        hand.leave()
                    hand = ManualMesh(ledger, record_of(name, SLOTS), seen=seen)
                    sessions += 1
                    seen = max(seen, hand.session.incarnation)
                    self._note(hand.session.incarnation, f"session {sessions} of {name}")
                    seen = max(seen, self._take_and_give_back(hand, name))
                except (StoreUnavailable, EpochChanged, HoldingsRequired, SessionLost) as gone:
                    self.refused[type(gone).__name__] += 1
                    self._end.wait(0.02)
        except BaseException as broken:
            self.broken.append(broken)
            raise

    def _take_and_give_back(self, hand: ManualMesh, name: str) -> int:
        seen = 0
        for _ in range(5):
            if isinstance(hand.acquire(LAB, FLAVOR, SLOT), Granted):
                lease = hand.lease(LAB, FLAVOR)
                seen = max(seen, lease.token, lease.version)
                self._note(lease.token, f"lease of session {hand.session.incarnation} of {name}")
                hand.release(LAB, FLAVOR)
            hand.heartbeat()
            with self._lock:
                self.done += 3
        return seen

    def _note(self, token: int, bearer: str) -> None:
        with self._lock:
            self.bearers.setdefault(token, set()).add(bearer)

    def twice(self) -> dict[int, set[str]]:
        """Return tokens that more than one session or lease has used."""
        return {token: bearers for token, bearers in self.bearers.items() if len(bearers) > 1}


@contextmanager
def under_load(url: str) -> Iterator[Load]:
    load = Load(url)
    load.start()
    try:
        eventually(lambda: load.done > 30 or load.broken, PATIENCE_S)
        yield load
    finally:
        load.stop()


def recover_wholly(ledger: RedisLedger, client: redis.Redis) -> None:
    """Advance time until the ledger has recovered; a mesh that is slow to return loses its session."""
    while True:
        with suppress(StoreUnavailable, redis.RedisError):  # It has only just come back.
            if not ledger.sweep().recovery_ms:
                return
            move_time(client, KEYS, TERMS.max_step_ms - 100)


@pytest.fixture(params=list(servers()))
def binary(request: pytest.FixtureRequest) -> str:
    return servers()[request.param]


@pytest.fixture
def make_watched(tmp_path: Path, binary: str) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def make(**settings: object) -> Watched:
        made.append(Watched(tmp_path / "watched", binary=binary, **settings))
        return made[-1]

    yield make
    for watched in made:
        watched.close()


@pytest.mark.slow
def test_fault_28_master_is_killed_under_load(make_watched: Callable[..., Watched], row: Row) -> None:
    watched = make_watched(sentinels=3, down_after_ms=500)
    ledger, client = ledger_on(watched.url), connect(watched.url, timeout_ms=500)
    ledger.configure(tree_of(lab=SLOTS))
    before = ledger.snapshot()
    with under_load(watched.url) as load:
        watched.master.kill()
        since = time.monotonic()
        after = eventually(lambda: answered(ledger), RESUMED_S_MAX)
        resumed_s = time.monotonic() - since
        assert after.epoch > before.epoch
        assert after.recovery_ms > 0
        recover_wholly(ledger, client)
        done = load.done
        eventually(lambda: load.done > done + 30 or load.broken, PATIENCE_S)
    assert load.twice() == {}
    assert load.refused["StoreUnavailable"] > 0  # The fault met it under load.
    assert ledger.audit() == ()
    row.held(f"writes resumed after {resumed_s:.1f} s in a new epoch that learned; {len(load.bearers)} tokens, none twice")


def answered(ledger: RedisLedger) -> object:
    """Return a snapshot; None while the server is silent."""
    try:
        return ledger.snapshot()
    except StoreUnavailable:
        return None


@pytest.mark.slow
def test_fault_30_the_replicas_are_gone(make_watched: Callable[..., Watched], row: Row) -> None:
    watched = make_watched(replicas=1)
    ledger = ledger_on(watched.url, PATIENT_MS)
    ledger.configure(tree_of(lab=SLOTS))
    hand = ManualMesh(ledger, record_of("west", SLOTS))
    hand.acquire(LAB, FLAVOR, SLOT)
    (replica,) = watched.replicas
    replica.freeze()  # Not a closed connection: a silent replica is noticed by its lag alone.
    refusal = eventually(lambda: refused(hand), PATIENCE_S)
    assert "NOREPLICAS" in refusal
    assert "too few replicas" in refusal
    stands = copied(watched.master.client, KEYS)
    assert refused(hand)
    assert copied(watched.master.client, KEYS) == stands  # The lease clock has not moved either.
    queue = RedisStageQueue(connect(watched.url, timeout_ms=PATIENT_MS), KEYS)
    with pytest.raises(StoreUnavailable, match="too few replicas"):
        queue.submit(MeshId("west"), spec_of("a-stage"))
    replica.thaw()
    eventually(lambda: not refused(hand), PATIENCE_S)
    assert hand.lease(LAB, FLAVOR).held == SLOT
    row.held("as if Redis were down, with the reason; afterwards all leases were still held")


def refused(hand: ManualMesh) -> str:
    """Return the ledger's refusal of a heartbeat; empty if it is accepted."""
    try:
        hand.heartbeat()
    except StoreUnavailable as gone:
        return str(gone)
    return ""


def test_fault_26_replicas_may_lag_longer_than_the_grace(make_watched: Callable[..., Watched], row: Row) -> None:
    watched = make_watched(replicas=1, min_replicas_max_lag="10")
    with pytest.raises(LedgerUnsafe, match="min-replicas-max-lag is 10 s"):
        check_server(connect(watched.url, timeout_ms=PATIENT_MS), KEYS, TERMS)
    row.held("refused for min-replicas-max-lag")


def test_fault_26_sentinels_replace_a_master_that_still_writes(make_watched: Callable[..., Watched], row: Row) -> None:
    watched = make_watched(replicas=1, down_after_ms=31_000, min_replicas_max_lag="30")
    terms = LeaseTerms(ttl_ms=30_000, grace_ms=40_000)
    client = connect(watched.url, timeout_ms=PATIENT_MS)
    with pytest.raises(LedgerUnsafe, match=r"\Adown-after-milliseconds is 31000 ms.* set it to 32000 or more\Z"):
        check_server(client, KEYS, terms)
    with redis.Redis(port=watched.ports[0]) as sentinel:
        sentinel.sentinel_set(SERVICE, "down-after-milliseconds", 32_000)
    assert check_server(client, KEYS, terms).min_replicas_to_write == 1
    row.held("refused for down-after-milliseconds, accepted when it exceeds the lag")


def test_a_follower_reads_events_through_sentinels(make_watched: Callable[..., Watched]) -> None:
    async def follow() -> None:
        async with connect_async(make_watched(replicas=1).url, timeout_ms=PATIENT_MS) as client:
            await anext(RedisEventFeed(client, KEYS, patience_s=PATIENCE_S).follow(RUN))

    with pytest.raises(UnknownRun):  # It was asked, and answered.
        asyncio.run(follow())
    gc.collect()  # An open connection, a sentinel's too, would fail the test here.


@pytest.mark.slow
def test_fault_31_ledger_slot_migrates_under_load(tmp_path: Path, binary: str, row: Row) -> None:
    cluster = Cluster(tmp_path / "cluster", binary=binary)
    try:
        ledger, client = ledger_on(cluster.url), connect(cluster.url, timeout_ms=500)
        ledger.configure(tree_of(lab=SLOTS))
        epoch, slot = ledger.snapshot().epoch, client.keyslot(KEYS.meta)
        start = cluster.node_of(slot)
        target = next(node for node in cluster.nodes if node is not start)
        with under_load(cluster.url) as load:
            moved = move_slot(slot, start, target, cluster)
            eventually(lambda: answered(ledger), PATIENCE_S)
            recover_wholly(ledger, client)
            done = load.done
            eventually(lambda: load.done > done + 30 or load.broken, PATIENCE_S)
        assert target.client.exists(KEYS.meta)
        assert ledger.snapshot().epoch > epoch
        assert load.twice() == {}
        assert ledger.audit() == ()
        assert not {"SchemaMismatch", "ForeignLedger"} & set(load.refused)  # The ledger kept its identity.
    finally:
        for node in cluster.nodes:
            node.close()
    row.held(f"{moved} keys moved one by one; calls waited or were refused whole, and went on there in a new epoch")


def move_slot(slot: int, start: object, target: object, cluster: Cluster) -> int:
    """Migrate the slot slowly, key by key, and return the number of keys."""
    ids = {node: node.client.execute_command("CLUSTER", "MYID").decode() for node in (start, target)}
    target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[start])
    start.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    moved = 0
    while keys := start.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
        start.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 2_000, "KEYS", *keys)
        moved += 1
        time.sleep(0.02)  # The fault itself: a slow migration.
    for node in (target, start, *(node for node in cluster.nodes if node not in (start, target))):
        node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    return moved
