"""The link under dying replicas and network faults: every call and grant takes effect once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
import redis
from dying_root import TERMS
from patience import eventually
from proxy import Proxy

from federation.dispatch import STAGE_MESSAGES
from federation.errors import StaleHeartbeat, StoreUnavailable
from federation.leases import Granted, HeartbeatReport, Lease, LeaseAck, LookAgain, QuotaDemand, Session
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.http_link import HttpLedger, HttpLink, HttpStageQueue
from federation.store.memory.key_ring import MemoryKeyRing
from federation.store.memory.store import MemoryStore
from federation.store.redis.client import connect
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import SystemClock
from mesh.core.ids import FlavorName, MeshId, PoolName, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode
from mesh.stages.messages import StageEnded
from mesh.stages.spec import StageSpec
from serve_apps.link_fixtures import PATIENCE, link_app, serving
from serve_apps.requests.auth import issue_for_mesh

EAST, ACME, CPU = MeshId("east"), TenantPath("acme"), FlavorName("cpu")
ONE = ResourceSet.of({"cpu": 1})
POOL = PoolRecord(pool=PoolName("general"), flavor=CPU, capacity=ResourceSet.of({"cpu": 8}))
RECORD = MeshRecord(mesh=EAST, labels={}, pools=(POOL,), cluster="c")
TREE = TenantTree([Tenant(path=ACME, parent=None, quotas={(CPU, "cpu"): Quota(nominal=80_000)})])
DEMAND = QuotaDemand(tenant=ACME, flavor=CPU, slot=ONE, slots=3)
SPEC = StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=ACME, tasks=(), slot=ONE, width=1)
PROGRAM = Path(__file__).with_name("dying_root.py")
START_S_MAX = 60
STORE_MS_MAX = 60_000


# ---- a replica dies between the script and its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Store with two replicas of the root; the first dies within the given verb."""

    ledger: RedisLedger
    queue: RedisStageQueue
    link: Callable[[str], HttpLink]


@pytest.fixture(scope="module")
def server() -> Iterator[redis.Redis]:
    with running_redis() as client:
        yield client


@pytest.fixture
def replicas(server: redis.Redis) -> Iterator[Replicas]:
    server.flushall()
    url, keys = f"unix://{server.connection_pool.connection_kwargs['path']}", Keys("faults")
    client = connect(url, timeout_ms=STORE_MS_MAX)
    ledger = RedisLedger(client, keys, terms=TERMS, founding=True)
    ledger.configure(TREE)
    with ExitStack() as opened:
        opened.callback(client.close)
        key = issue_for_mesh(RedisKeyRing(client, keys), EAST, 0)

        def link(verb: str) -> HttpLink:
            roots = tuple(opened.enter_context(root(url, each)) for each in (verb, "none"))
            made = HttpLink(roots, key, patience=PATIENCE)
            opened.callback(made.close)
            return made

        yield Replicas(ledger=ledger, queue=RedisStageQueue(client, keys), link=link)


@contextmanager
def root(url: str, verb: str) -> Iterator[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])}
    process = subprocess.Popen([sys.executable, str(PROGRAM), url, verb], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the replica did not come up"
        yield address
        if verb == "none":
            assert process.poll() is None, "a replica that was to live is dead"
        else:
            process.wait(START_S_MAX)  # Its connections end a moment before it does.
    finally:
        process.kill()
        process.communicate(timeout=START_S_MAX)


def test_interrupted_heartbeat_gets_the_first_answer(replicas):
    ledger = HttpLedger(replicas.link("heartbeat"))
    session = ledger.join(RECORD)
    wanted = replace(DEMAND, slots=2)
    response = ledger.heartbeat(session, RECORD, HeartbeatReport(number=1, demands=(wanted,)))
    assert response == ledger.heartbeat(session, RECORD, HeartbeatReport(number=1, demands=(wanted,)))
    with pytest.raises(StaleHeartbeat):
        ledger.heartbeat(session, RECORD, HeartbeatReport(number=0))
    assert [view.slots for view in replicas.ledger.snapshot().demands] == [2]


def test_interrupted_acquire_is_granted_once_and_reported(replicas):
    ledger = HttpLedger(replicas.link("acquire"))
    acquired = ledger.acquire(ledger.join(RECORD), (DEMAND,))
    assert acquired.answers == (LookAgain(),)
    assert [lease.held for lease in acquired.response.leases] == [ONE.times(3)]
    assert replicas.ledger.snapshot().usage == {(ACME, CPU, "cpu"): 30_000}
    assert replicas.ledger.audit() == ()


def test_a_join_that_was_cut_short_leaves_one_session(replicas):
    ledger = HttpLedger(replicas.link("join"))
    session = ledger.join(RECORD)
    ledger.heartbeat(session, RECORD, HeartbeatReport(number=1))
    assert [view.incarnation for view in replicas.ledger.snapshot().meshes] == [session.incarnation]


def test_a_claim_that_was_cut_short_is_the_same_claim(replicas):
    link = replicas.link("claim")
    ledger, stages = HttpLedger(link), HttpStageQueue(link, EAST)
    session, lease = holding(ledger)
    replicas.queue.submit(EAST, SPEC)
    taken = stages.claim(session, SPEC.stage, lease)
    assert taken is not None
    assert [claimed.claim for claimed in replicas.queue.claims_of(session)] == [taken.claim]


def test_interrupted_report_takes_effect_once(replicas):
    link = replicas.link("report")
    ledger, stages = HttpLedger(link), HttpStageQueue(link, EAST)
    session, lease = holding(ledger)
    replicas.queue.submit(EAST, SPEC)
    taken = stages.claim(session, SPEC.stage, lease)
    assert taken is not None
    stages.report(taken.claim, 1, (StageEnded(stage=SPEC.stage),))
    assert reports_in(replicas.queue) == [StageEnded(stage=SPEC.stage)]


def holding(ledger: HttpLedger) -> tuple[Session, Lease]:
    """Session with a lease that pays for a stage."""
    session = ledger.join(RECORD)
    acquired = ledger.acquire(session, (DEMAND,))
    (lease,) = acquired.response.leases
    return replace(session, mark=acquired.response.mark), lease


def reports_in(queue) -> list[object]:
    return [message for entry in queue.inbox(0) for message in decode(STAGE_MESSAGES, entry.body)]


# ---- the network


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """A root, a good link to it, and a faulty one."""

    store: MemoryStore
    proxy: Proxy
    good: HttpLink
    bad: HttpLink
    hasty: HttpLink  #: As bad, with the timeout of production.


@pytest.fixture
def wires() -> Iterator[Wires]:
    store, keys = MemoryStore(clock=SystemClock(), ttl_ms=600_000, grace_ms=10_000), MemoryKeyRing()
    store.configure(TREE)
    key = issue_for_mesh(keys, EAST, 0)
    with ExitStack() as opened:
        address = opened.enter_context(serving(link_app(ledger=store, queue=store, blobs=store, keys=keys)))
        proxy = Proxy(httpx.URL(address).port or 0)
        opened.callback(proxy.close)
        good = HttpLink((address,), key, patience=PATIENCE)

        def through_proxy(patience: int) -> HttpLink:
            # One request per connection, as the proxy's `duplicate` requires.
            one_each = httpx.Client(headers={"Authorization": f"Bearer {key}", "Connection": "close"})
            return HttpLink((f"http://127.0.0.1:{proxy.port}",), key, http=one_each, patience=patience)

        bad, hasty = through_proxy(PATIENCE), through_proxy(1)
        for link in (good, bad, hasty):
            opened.callback(link.close)
        yield Wires(store=store, proxy=proxy, good=good, bad=bad, hasty=hasty)


def usage(store: MemoryStore) -> int:
    return store.snapshot().usage.get((ACME, CPU, "cpu"), 0)


def test_duplicate_calls_take_effect_once(wires):
    session = HttpLedger(wires.good).join(RECORD)
    wires.proxy.weather.duplicate = True
    ledger, stages = HttpLedger(wires.bad), HttpStageQueue(wires.bad, EAST)
    acquired = ledger.acquire(session, (DEMAND,))
    assert isinstance(acquired.answers[0], (Granted, LookAgain))
    (lease,) = acquired.response.leases
    session = replace(session, mark=acquired.response.mark)
    ledger.heartbeat(session, RECORD, HeartbeatReport(number=1, demands=(DEMAND,)))
    ledger.heartbeat(session, RECORD, HeartbeatReport(number=2))
    wires.store.submit(EAST, SPEC)
    taken = stages.claim(session, SPEC.stage, lease)
    assert taken is not None
    stages.report(taken.claim, 1, (StageEnded(stage=SPEC.stage),))
    assert reports_in(wires.store) == [StageEnded(stage=SPEC.stage)]
    assert usage(wires.store) == 30_000
    ledger.release(session, (LeaseAck(tenant=ACME, flavor=CPU, version=lease.version, amounts=ONE),))
    assert usage(wires.store) == 10_000
    ledger.leave(session)
    assert (usage(wires.store), wires.store.audit()) == (0, ())


def test_overtaken_heartbeat_changes_nothing(wires):
    session = HttpLedger(wires.good).join(RECORD)
    wires.proxy.weather.hold_requests = True
    late = Late(lambda: HttpLedger(wires.bad).heartbeat(session, RECORD, HeartbeatReport(number=1, demands=(DEMAND,))))
    eventually(lambda: wires.proxy.requests > 0)
    HttpLedger(wires.good).heartbeat(session, RECORD, HeartbeatReport(number=2, demands=()))
    wires.proxy.weather.hold_requests = False
    assert isinstance(late.error(), StaleHeartbeat)
    assert wires.store.snapshot().demands == ()


def test_late_old_acquire_is_granted_nothing(wires):
    ledger = HttpLedger(wires.good)
    session = ledger.join(RECORD)
    wires.proxy.weather.hold_requests = True
    late = Late(lambda: HttpLedger(wires.bad).acquire(session, (DEMAND,)))
    eventually(lambda: wires.proxy.requests > 0)
    assert ledger.acquire(session, (DEMAND,)).answers == (Granted(slots=3),)
    wires.proxy.weather.hold_requests = False
    assert late.answer().answers == (LookAgain(),)
    assert usage(wires.store) == 30_000


def test_an_answer_that_got_lost_is_had_by_asking_again(wires):
    ledger = HttpLedger(wires.bad)
    session = ledger.join(RECORD)
    wires.proxy.weather.drop_replies = True
    with pytest.raises(StoreUnavailable):
        HttpLedger(wires.hasty).heartbeat(session, RECORD, HeartbeatReport(number=1, demands=(DEMAND,)))
    eventually(lambda: [view.slots for view in wires.store.snapshot().demands] == [3])
    wires.proxy.weather.drop_replies = False
    assert ledger.heartbeat(session, RECORD, HeartbeatReport(number=1, demands=(DEMAND,))).epoch == session.epoch


@pytest.mark.parametrize("fault", ["refuse", "drop_requests"])
def test_closed_link_is_an_unavailable_store(wires, fault):
    session = HttpLedger(wires.good).join(RECORD)
    setattr(wires.proxy.weather, fault, True)
    with pytest.raises(StoreUnavailable):
        HttpLedger(wires.hasty).heartbeat(session, RECORD, HeartbeatReport(number=1))
    HttpLedger(wires.good).heartbeat(session, RECORD, HeartbeatReport(number=1))


class Late:
    """Call in its own thread."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._answer: object = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self._answer = call()
        except Exception as error:  # noqa: BLE001  passed to the test, whatever it is
            self._error = error

    def answer(self):
        self._thread.join()
        assert self._error is None
        return self._answer

    def error(self) -> Exception | None:
        self._thread.join()
        return self._error
