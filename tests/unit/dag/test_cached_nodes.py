"""Cached nodes through the coordinator: hits, claims, twins, losses and ends of runs."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict

import pytest

from dag.coordinator import Coordinator
from dag.result_cache import ResultCache
from dag.resuming import resume
from dag.run.retrying import RetryRules
from dag.run.runs import RunRecord
from dag.run.states import RunState
from dag.spec.spec import digest, parse
from dag.store.memory import MemoryRunStore
from dag.store.memory_cache import MemoryCacheStore
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import Failure, InputLost, NodeFailed, NodeSucceeded, StageEnded, StageStarted

CPU = ResourceSet.of({"cpu": 1})


class Files:
    """Files of values by address, as `Copies`."""

    def __init__(self):
        self.there = {}

    def to_run(self, entry, run, node):
        return self._copied(entry.value, f"{run}/{node}")

    def to_cache(self, value, _run, tenant, name):
        return self._copied(value, f"cache:{tenant}/{name}")

    def _copied(self, value, uri):
        if value.uri not in self.there:
            raise FileNotFoundError(value.uri)
        self.there[uri] = self.there[value.uri]
        return StoredValue(sha256=value.sha256, size_bytes=value.size_bytes, encoding=value.encoding, uri=uri)

    def delete(self, entry):
        self.there.pop(entry.value.uri, None)


class Bed:
    """A coordinator with a cache, and a mesh that the test plays. `ran` has the nodes that ran, by run."""

    def __init__(self):
        self.clock = ManualClock(1_000_000)
        self.store = MemoryStore(clock=self.clock, ttl_ms=3_000, grace_ms=1_000)
        quota = {("standard", "cpu"): Quota(nominal=1_000_000)}
        parents = {"acme": None, "acme/lab": "acme"}
        self.store.configure(TenantTree([Tenant(path=path, parent=parent, quotas=quota) for path, parent in parents.items()]))
        self.runs = MemoryRunStore(self.store)
        self.cache, self.files = MemoryCacheStore(self.store, self.runs), Files()
        self.coordinator = self.another()
        pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 64}))
        self.mesh = ManualMesh(self.store, MeshRecord(mesh="east", labels={}, pools=(pool,), cluster="c"))
        self.ran = defaultdict(list)
        self.large = False  #: Values are files.
        self.value_of = {}  #: Values other than the node's name.

    def another(self, **other):
        cache = ResultCache(self.cache, self.store, self.files, self.clock)
        return Coordinator(
            runs=self.runs,
            queue=self.store,
            ledger=self.store,
            registry=MemoryRegistry(),
            tenant_policies=MemoryTenantPolicies(),
            blobs=self.store,
            clock=self.clock,
            on_end=lambda _: None,
            delete=lambda _run, uri: self.files.there.pop(uri, None),
            clear=self.clear,
            fetch=lambda _run, _stored: b"",
            retention_ms=10**9,
            retrying=RetryRules(wait_ms=0, resume_window_ms=60_000),
            **{"cache": cache, **other},
        )

    def clear(self, run, keep):
        for uri in [uri for uri in self.files.there if uri.startswith(f"{run}/") and uri not in keep]:
            del self.files.there[uri]

    def submit(self, run="r", tenant="acme", on_error="fail_fast", **nodes):
        """Submit nodes: needs, and options after `|`, like `b="a | cache"`."""
        spec = {"spec": "dag/1", "id": run, "tenant": tenant, "on_error": on_error, "nodes": {}, "outputs": {}}
        for node, text in nodes.items():
            needs, _, options = text.partition("|")
            given = {word.partition("=")[0]: True if word == "cache" else int(word.partition("=")[2]) for word in options.split()}
            spec["nodes"][node] = {"call": f"work:{node}", "args": [{"$ref": need} for need in needs.split()], "options": given}
            spec["outputs"][node] = {"$ref": node}
        body = json.dumps(spec).encode()
        record = RunRecord(run=run, tenant=tenant, digest=digest(parse(body)), spec=body, created_ms=self.clock.now_ms)
        assert self.runs.create(record, {})
        self.step()

    def step(self):
        while self.coordinator.step(0):
            pass

    def claim(self):
        """Claim and start the first waiting stage; return it."""
        (stage, *_) = self.store.waiting("east")
        tenant = self.runs.load(stage.stage.rpartition(".")[0]).tenant
        self.mesh.acquire(tenant, "standard", CPU, 1)
        claimed = self.store.claim(self.mesh.session, stage.stage, self.mesh.lease(tenant, "standard"))
        self.say(claimed, 1, StageStarted(stage=stage.stage, mesh="east", incarnation=5, cluster="c", slots=1, token=1))
        return claimed

    def say(self, claimed, batch, *messages):
        self.store.report(claimed.claim, batch, messages)
        self.step()

    def end(self, claimed, *, fails=()):
        """Run the tasks of a claimed stage."""
        ends = []
        for task in claimed.spec.tasks:
            self.ran[claimed.spec.run].append(task.node)
            at = {"stage": claimed.claim.stage, "node": task.node, "attempt": task.attempt, "started_ms": 1_000, "finished_ms": 3_000}
            if task.node in fails:
                failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="no")
                ends.append(NodeFailed(**at, failure=failure))
            else:
                ends.append(NodeSucceeded(**at, worker="w", stored=self.value(claimed.spec.run, task) if task.export else None))
        self.say(claimed, 2, *ends, StageEnded(stage=claimed.claim.stage))
        self.mesh.release(claimed.spec.tenant, "standard")

    def value(self, run, task):
        data = self.value_of.get(task.node, task.node).encode()
        value = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.PICKLE)
        if not self.large:
            self.store.put(run, value.sha256, data)
            return value
        uri = f"{run}/{task.node}-{task.attempt}"
        self.files.there[uri] = data
        return StoredValue(sha256=value.sha256, size_bytes=len(data), encoding=Encoding.PICKLE, uri=uri)

    def work(self, **outcomes):
        """Run waiting stages until there are none; return the nodes of `r` that ran so far."""
        while self.store.waiting("east"):
            self.end(self.claim(), **outcomes)

    def record(self, run="r"):
        return self.runs.load(run)

    def node(self, node, run="r"):
        return self.record(run).nodes[node]

    def shown(self, run="r"):
        """Return state and use of the cache of each node."""
        return {node: (kept.state.value, kept.cache.state.value if kept.cache else None) for node, kept in self.record(run).nodes.items()}


@pytest.fixture
def bed():
    return Bed()


def test_the_second_run_takes_the_value_of_the_first(bed):
    bed.submit("one", load="| cache", use="load")
    bed.work()
    bed.submit("two", load="| cache", use="load")
    bed.work()
    assert (bed.ran["one"], bed.ran["two"]) == (["load", "use"], ["use"])
    assert bed.shown("one") == {"load": ("SUCCEEDED", "KEPT"), "use": ("SUCCEEDED", None)}
    assert bed.shown("two") == {"load": ("SUCCEEDED", "HIT"), "use": ("SUCCEEDED", None)}
    assert (bed.node("load", "two").reason, bed.node("load", "two").detail) == (Reason.CACHE_HIT, "value of node load of run one")
    assert bed.node("load", "two").stored == bed.node("load", "one").stored


def test_a_hit_is_an_event_and_its_value_belongs_to_the_run(bed):
    bed.submit("one", load="| cache")
    bed.work()
    bed.submit("two", load="| cache")
    hits = [event for event in bed.runs.events("two") if event.reason is Reason.CACHE_HIT]
    assert [(event.node, event.before, event.after, event.detail) for event in hits] == [
        ("load", "WAITING", "SUCCEEDED", "value of node load of run one")
    ]
    assert bed.record("two").state is RunState.SUCCEEDED
    sha256 = bed.node("load", "two").stored.sha256
    assert bed.store.get("two", (sha256,)) == {sha256: b"load"}


def test_a_chain_is_cached_link_by_link(bed):
    graph = {"a": "| cache", "b": "a | cache", "c": "b | cache"}
    bed.submit("one", **graph)
    bed.work()
    bed.submit("two", **graph)
    bed.work()
    assert (bed.ran["one"], bed.ran["two"]) == (["a", "b", "c"], [])


def test_another_input_value_is_a_miss(bed):
    bed.submit("one", a="", b="a | cache")
    bed.work()
    bed.value_of["a"] = "changed"
    bed.submit("two", a="", b="a | cache")
    bed.work()
    assert bed.ran["two"] == ["a", "b"]


def test_tenants_do_not_share_values(bed):
    bed.submit("one", load="| cache")
    bed.work()
    bed.submit("two", "acme/lab", load="| cache")
    bed.work()
    assert bed.ran["two"] == ["load"]


def test_twins_of_two_runs_compute_once(bed):
    bed.submit("one", load="| cache")
    first = bed.claim()
    bed.submit("two", load="| cache", use="load")
    assert (bed.node("load", "two").reason, bed.node("load", "two").detail) == (
        Reason.CACHE_IN_FLIGHT,
        "node load of run one computes the value",
    )
    assert bed.record("two").reason is Reason.CACHE_IN_FLIGHT
    assert bed.store.waiting("east") == ()
    bed.end(first)
    bed.work()
    assert (bed.ran["one"], bed.ran["two"]) == (["load"], ["use"])


def test_twins_of_one_run_compute_once(bed):
    body = {"call": "work:load", "options": {"cache": True}}
    spec = {
        "spec": "dag/1",
        "id": "r",
        "tenant": "acme",
        "nodes": {"a": body, "b": body},
        "outputs": {"a": {"$ref": "a"}, "b": {"$ref": "b"}},
    }
    record = RunRecord(run="r", tenant="acme", digest="", spec=json.dumps(spec).encode(), created_ms=bed.clock.now_ms)
    assert bed.runs.create(record, {})
    bed.step()
    bed.work()
    assert bed.ran["r"] == ["a"]
    assert bed.shown() == {"a": ("SUCCEEDED", "KEPT"), "b": ("SUCCEEDED", "HIT")}


def test_after_a_failure_the_twin_computes(bed):
    bed.submit("one", load="| cache")
    first = bed.claim()
    bed.submit("two", load="| cache")
    bed.end(first, fails=("load",))
    bed.work()
    assert (bed.record("one").state, bed.record("two").state) == (RunState.FAILED, RunState.SUCCEEDED)
    assert bed.ran["two"] == ["load"]


def test_after_a_cancel_the_twin_computes(bed):
    bed.submit("one", load="| cache")
    bed.submit("two", load="| cache")
    bed.runs.request_cancel("one", "enough")
    bed.step()
    first = bed.claim()
    assert first.spec.run == "one" or bed.record("one").state is RunState.CANCELLED
    bed.end(first, fails=("load",) if first.spec.run == "one" else ())
    bed.work()
    assert bed.record("two").state is RunState.SUCCEEDED


def test_failures_are_not_cached_and_retries_keep_the_claim(bed):
    bed.submit("one", load="| cache retries=1")
    first = bed.claim()
    bed.submit("two", load="| cache retries=1")
    bed.end(first, fails=("load",))
    assert bed.node("load", "two").reason is Reason.CACHE_IN_FLIGHT
    bed.work()
    assert (bed.ran["one"], bed.ran["two"]) == (["load", "load"], [])


def test_a_value_expires(bed):
    bed.submit("one", load="| cache")
    bed.work()
    bed.clock.advance(31 * 86_400_000)
    bed.coordinator.tick()
    assert bed.cache.entries("acme") == ()
    bed.mesh = ManualMesh(bed.store, bed.mesh.record)
    bed.submit("two", load="| cache")
    bed.coordinator.tick()
    bed.work()
    assert bed.ran["two"] == ["load"]


def test_files_are_copied_and_outlive_the_first_run(bed):
    bed.large = True
    bed.submit("one", load="| cache", use="load")
    bed.work()
    bed.files.there = {uri: data for uri, data in bed.files.there.items() if uri.startswith("cache:")}
    assert len(bed.files.there) == 1
    bed.submit("two", load="| cache", use="load")
    assert bed.node("load", "two").stored.uri == "two/load"
    bed.work()
    assert bed.ran["two"] == ["use"]


def test_a_lost_file_is_a_miss(bed):
    bed.large = True
    bed.submit("one", load="| cache")
    bed.work()
    bed.files.there = {}
    bed.submit("two", load="| cache")
    bed.work()
    assert bed.ran["two"] == ["load"]
    bed.submit("three", load="| cache")
    assert bed.shown("three") == {"load": ("SUCCEEDED", "HIT")}


def test_a_removed_value_loses_its_file(bed):
    bed.large = True
    bed.submit("one", load="| cache")
    bed.work()
    (entry,) = bed.cache.entries("acme")
    assert bed.cache.expire("acme", (entry.key,)) == 1
    bed.coordinator.tick()
    assert not [uri for uri in bed.files.there if uri.startswith("cache:")]


def test_a_damaged_hit_is_computed_again(bed):
    bed.submit("one", load="| cache", use="load")
    bed.work()
    bed.submit("two", load="| cache", use="load")
    reader = bed.claim()
    bed.say(reader, 2, InputLost(stage=reader.claim.stage, node="load"))
    assert bed.shown("two")["load"] == ("ASSIGNED", "CLAIMED")
    bed.say(reader, 3, StageEnded(stage=reader.claim.stage))
    bed.work()
    assert bed.ran["two"] == ["load", "use"]
    assert bed.shown("two") == {"load": ("SUCCEEDED", "KEPT"), "use": ("SUCCEEDED", None)}


def test_a_resumed_run_takes_kept_values(bed):
    bed.submit("one", on_error="continue", a="| cache", b="a | cache")
    bed.work(fails=("b",))
    assert bed.shown("one") == {"a": ("SUCCEEDED", "KEPT"), "b": ("FAILED", None)}
    resume(bed.runs, bed.store, "one", bed.clock, lambda _: None)
    bed.step()
    bed.work()
    assert bed.ran["one"] == ["a", "b", "b"]
    assert bed.shown("one")["b"] == ("SUCCEEDED", "KEPT")


def test_another_coordinator_goes_on_with_the_claims(bed):
    bed.submit("one", load="| cache")
    bed.submit("two", load="| cache")
    bed.coordinator = bed.another()
    bed.coordinator.tick()
    bed.work()
    assert (bed.ran["one"], bed.ran["two"]) == (["load"], [])


def test_a_lost_notification_is_made_up_for_by_a_tick(bed):
    bed.submit("one", load="| cache")
    bed.submit("two", load="| cache")
    first = bed.claim()
    stage, stored = first.claim.stage, bed.value("one", first.spec.tasks[0])
    done = NodeSucceeded(stage=stage, node="load", attempt=1, started_ms=1, finished_ms=2, worker="w", stored=stored)
    bed.store.report(first.claim, 2, (done, StageEnded(stage=stage)))
    bed.coordinator.step(0)
    bed.store.acknowledge(tuple(entry.entry for entry in bed.store.inbox(0)))
    assert bed.shown("two")["load"] == ("WAITING", "IN_FLIGHT")
    bed.coordinator.tick()
    assert bed.shown("two")["load"] == ("SUCCEEDED", "HIT")


def test_without_a_cache_cached_nodes_run(bed):
    bed.coordinator = bed.another(cache=None)
    bed.submit("one", load="| cache", use="load")
    bed.work()
    assert bed.ran["one"] == ["load", "use"]


def test_nodes_without_the_option_ask_nothing(bed):
    bed.submit("one", a="", b="a")
    bed.work()
    assert (bed.cache.entries("acme"), bed.shown("one")) == ((), {"a": ("SUCCEEDED", None), "b": ("SUCCEEDED", None)})
