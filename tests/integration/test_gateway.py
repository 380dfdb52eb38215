"""Gateway as a real server on a real Redis: streams, waits, and clients that disconnect."""

import hashlib
import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
import redis
import redis.asyncio
import uvicorn
from patience import eventually, gone

import dag
from dag.errors import RunFailed
from dag.run.run_events import RunEvent
from dag.run.runs import RunChange
from dag.run.states import NodeState, RunState
from dag.store.client_access import Access
from dag.store.event_feed import RedisEventFeed
from dag.store.redis_cache import RedisCacheStore
from dag.store.redis_runs import RedisRunStore
from dag.store.redis_schedules import RedisScheduleStore
from dag.store.redis_webhooks import RedisWebhooks
from dag.store.remote import Client, Run
from federation.leases import LeaseTerms
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.change_log import RedisChangeLog
from federation.store.redis.durability import RedisDurability
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.policies import RedisTenantPolicies
from federation.store.redis.queue import RedisStageQueue
from federation.store.redis.registry import RedisRegistry
from federation.store.redis.run_log import RedisRunLog
from federation.store.redis.usage import RedisUsage
from federation.tenants import TenantTree
from mesh.core.clock import SystemClock
from mesh.core.ids import NodeId, RunId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import Failure
from serve_apps.gateway_fixtures import RESEARCH, TENANTS, spec_of
from serve_apps.requests.auth import issue
from serve_apps.root.gateway import Dependencies, create_app

#: Limit that no passing test reaches.
PATIENCE_S = 60.0


@dag.task
def load(count):
    return count


class WatchedFeed(RedisEventFeed):
    """Feed that records which waits begin, and which of them end by themselves."""

    waiting: ClassVar[set[RunId]] = set()
    woken: ClassVar[set[RunId]] = set()

    async def wait_for_end(self, run: RunId) -> None:
        self.waiting.add(run)
        await super().wait_for_end(run)
        self.woken.add(run)


@dataclass(slots=True)
class Root:
    """A gateway that serves, and the stores behind it."""

    address: str
    runs: RedisRunStore
    blobs: RedisBlobs
    key: str
    redis: "redis.Redis"
    open: ExitStack
    storage: Path

    def file_of(self, run: str, data: bytes) -> Path:
        """Return the path of a value of the run."""
        file = self.storage / run / "value"
        file.parent.mkdir()
        file.write_bytes(data)
        return file

    def client(self) -> Client:
        """Return a client of research, closed with the root."""
        return self.open.enter_context(Client(Access(address=self.address, api_key=self.key, tenant=RESEARCH)))

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, headers={"Authorization": f"Bearer {self.key}"}, timeout=PATIENCE_S)

    def move(self, run: str, state: RunState, **nodes: dict[str, object]) -> None:
        """Write as a coordinator would."""
        record = self.runs.load(RunId(run))
        before, record.state = record.state, state
        record.ended_ms = 1 if state is RunState.SUCCEEDED else 0
        for node, changed in nodes.items():
            for name, value in changed.items():
                setattr(record.nodes[NodeId(node)], name, value)
        record.seq += 1
        event = RunEvent(seq=record.seq, at_ms=1, run=record.run, kind="run", before=before.value, after=state.value)
        assert self.runs.commit(record, RunChange(nodes=record.nodes.take_changes(), events=(event,)))

    def keep(self, run: str, data: bytes, encoding: Encoding) -> StoredValue:
        stored = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=encoding)
        self.blobs.put(RunId(run), stored.sha256, data)
        return stored


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """Run a server on a free port, in a thread of this process."""
    storage = tmp_path_factory.mktemp("storage")
    with running_redis() as client:
        keys = Keys("gateway")
        socket = client.connection_pool.connection_kwargs["path"]
        ledger = RedisLedger(client, keys, terms=LeaseTerms(ttl_ms=10_000, grace_ms=3_000), founding=True)
        ledger.configure(TenantTree(TENANTS))
        ring, runs, blobs = RedisKeyRing(client, keys), RedisRunStore(client, keys), RedisBlobs(client, keys)
        waiting = redis.asyncio.Redis(unix_socket_path=socket)
        app = create_app(
            Dependencies(
                runs=runs,
                ledger=ledger,
                registry=RedisRegistry(client, keys),
                tenant_policies=RedisTenantPolicies(client, keys),
                queue=RedisStageQueue(client, keys),
                blobs=blobs,
                run_log=RedisRunLog(client, keys),
                cache=RedisCacheStore(client, keys),
                schedules=RedisScheduleStore(client, keys),
                webhooks=RedisWebhooks(client, keys),
                usage=RedisUsage(client, keys),
                changes=RedisChangeLog(client, keys),
                feed=WatchedFeed(waiting, keys),
                close=waiting.aclose,
                keys=ring,
                body_limit_bytes=100_000,
                storage_url=storage.as_uri(),
                clock=SystemClock(),
                durable=RedisDurability(client, keys),
            )
        )
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with ExitStack() as opened:
            key = issue(ring, RESEARCH, 1)
            yield Root(address=f"http://127.0.0.1:{port}", runs=runs, blobs=blobs, key=key, redis=client, open=opened, storage=storage)
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def in_background(act) -> tuple[threading.Thread, list[object]]:
    """Run the call in a thread, and return the place of its result."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(act())
        except Exception as error:  # noqa: BLE001  the outcome, looked at by the test
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_a_client_that_waits_is_woken_by_the_end_of_the_run(root):
    run = root.client().submit(load.bind(1))
    waiting, outcome = in_background(lambda: run.result(timeout=PATIENCE_S))
    eventually(lambda: run.id in WatchedFeed.waiting)
    stored = root.keep(run.id, b'{"score": 1}', Encoding.JSON)
    root.move(run.id, RunState.RUNNING, load={"state": NodeState.RUNNING})
    assert run.id not in WatchedFeed.woken
    root.move(run.id, RunState.SUCCEEDED, load={"state": NodeState.SUCCEEDED, "stored": stored})
    waiting.join(PATIENCE_S)
    assert outcome == [{"score": 1}]
    assert run.id in WatchedFeed.woken


def test_events_arrive_while_the_run_goes_on(root):
    run = root.client().submit(load.bind(1))
    events = run.events()
    root.move(run.id, RunState.RUNNING)
    assert next(events).after == "RUNNING"
    root.move(run.id, RunState.SUCCEEDED)
    assert [event.after for event in events] == ["SUCCEEDED"]


def test_a_reader_that_leaves_frees_its_redis_connection(root):
    run = root.client().submit(load.bind(1))
    root.move(run.id, RunState.RUNNING)
    http = root.open.enter_context(root.http())
    for _ in range(5):
        with http.stream("GET", f"/v1/runs/{run.id}/events") as stream:
            lines = stream.iter_lines()
            while not next(lines).startswith("id:"):
                pass
    gone(lambda: [client for client in root.redis.client_list() if "b" in client["flags"]])  # Waits on Redis, as long as the run goes on.
    assert http.get("/healthz").status_code == 200
    root.move(run.id, RunState.SUCCEEDED)
    assert http.get(f"/v1/runs/{run.id}/events").text.count("id: ") == 2


def test_ten_submissions_of_one_id_at_once_are_one_run(root):
    def submit() -> int:
        with root.http() as http:
            return http.post("/v1/runs", json=spec_of("a", id="at-once")).status_code

    running = [in_background(submit) for _ in range(10)]
    for thread, _ in running:
        thread.join(PATIENCE_S)
    assert sorted(outcome[0] for _, outcome in running) == [200] * 9 + [202]


def test_a_body_without_a_length_is_cut_off_at_the_limit(root):
    def parts() -> Iterator[bytes]:
        yield b'{"spec": "dag/1", "params": {"x": "'
        for _ in range(50):
            yield b"x" * 10_000

    with root.http() as http:
        answer = http.post("/v1/runs", content=parts(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_large_value_that_was_changed_never_arrives_whole(root):
    run = root.client().submit(load.bind(1))
    file = root.file_of(run.id, b"x" * 3_000_000)
    stored = StoredValue(sha256="0" * 64, size_bytes=3_000_000, encoding=Encoding.PICKLE, uri=file.as_uri())
    root.move(run.id, RunState.RUNNING)
    root.move(run.id, RunState.SUCCEEDED, load={"state": NodeState.SUCCEEDED, "stored": stored})
    with root.http() as http, pytest.raises(httpx.RemoteProtocolError):
        http.get(f"/v1/runs/{run.id}/result/result")


def test_a_large_value_arrives_as_it_was_written(root):
    value = list(range(300_000))
    data = json.dumps(value).encode()
    run = root.client().submit(load.bind(1))
    file = root.file_of(run.id, data)
    stored = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.JSON, uri=file.as_uri())
    root.move(run.id, RunState.RUNNING)
    root.move(run.id, RunState.SUCCEEDED, load={"state": NodeState.SUCCEEDED, "stored": stored})
    assert run.result() == value


def test_a_failure_crosses_redis_and_http_with_its_cause(root):
    run = root.client().submit(load.bind(1))
    pickled = root.keep(run.id, pickle.dumps(KeyError("gone")), Encoding.PICKLE)
    failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.KeyError", message="'gone'", traceback="Traceback", pickled=pickled)
    root.move(run.id, RunState.RUNNING)
    root.move(run.id, RunState.FAILED, load={"state": NodeState.FAILED, "failure": failure})
    with pytest.raises(RunFailed) as failed:
        root.client().run(run.id).result()
    assert isinstance(failed.value.__cause__, KeyError)


def test_two_readers_of_one_run_see_the_same_events(root):
    run = root.client().submit(load.bind(1))
    root.move(run.id, RunState.RUNNING)
    readers = [in_background(lambda: [event.seq for event in Run(run.id, root.client()).events()]) for _ in range(2)]
    root.move(run.id, RunState.SUCCEEDED)
    for thread, _ in readers:
        thread.join(PATIENCE_S)
    assert [outcome for _, outcome in readers] == [[[1, 2]], [[1, 2]]]
