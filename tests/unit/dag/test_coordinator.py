"""Coordinator: placing, sending, retrying, holds, limits and recovery of runs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from graphs_of_calls import message_of
from structlog.testing import capture_logs

from dag.coordinator import SWEEP_MS_MAX, TICKS_PER_COUNT, Coordinator, machine_of
from dag.errors import NotResumed, UnknownRun
from dag.resuming import resume
from dag.run.machine import RunMachine
from dag.run.retrying import RETRY_RULES, RetryRules
from dag.run.runs import CancelStage, DeliverInput, ForgetRun, RunRecord, SendAgain, graph_of
from dag.run.states import NodeState, RunState, StageState
from dag.spec.plans import plans_of
from dag.spec.spec import digest, parse
from dag.store.memory import MemoryRunStore
from federation.dispatch import CONTESTED, STAGE_MESSAGES, NotificationKind
from federation.errors import StaleFence, StoreUnavailable
from federation.estimates import Pace
from federation.flap_detection import FlapRules
from federation.manual_mesh import ManualMesh
from federation.mesh_conditions import Drain
from federation.quota.policies import OnMaxWait, Policies, PreemptionMode, QueueSettings, ResourceGroup, Rules, TenantPolicies, TimeWindow
from federation.quota.tenant_policies import TenantStop
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.registry import MemoryRegistry
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode, encode
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.messages import (
    Failure,
    NodeCheckpoint,
    NodeFailed,
    NodeGrew,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageStarted,
)

CPU = ResourceSet.of({"cpu": 1})
TTL_MS, GRACE_MS, RETENTION_MS = 3_000, 1_000, 60_000
PROBATION_MS = 2_000


class Flaky:
    """Store that fails at the named calls, before or after their effect."""

    def __init__(self, store):
        self._store = store
        self.down = set()
        self.mute = set()
        self.called = []
        self.before = {}  #: Method to a callback just before it, once.

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*args, **named):
            self.called.append(name)
            if name in self.before:
                self.before.pop(name)()
            if name in self.down:
                raise StoreUnavailable(name)
            answer = method(*args, **named)
            if name in self.mute:
                raise StoreUnavailable(name)
            return answer

        return call


class Root:
    """Stores, coordinators on them, and meshes that the test plays."""

    def __init__(self, *meshes):
        self.clock = ManualClock(1_000_000)
        self.retrying = RETRY_RULES
        self.registry = MemoryRegistry()
        self.tenant_policies = MemoryTenantPolicies()
        self.store = MemoryStore(clock=self.clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        quota = {("standard", "cpu"): Quota(nominal=100_000)}
        self.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas=quota, functions=("work:*",))]))
        self.flaky = Flaky(self.store)
        self.runs = MemoryRunStore(self.store)
        self.flaky_runs = Flaky(self.runs)
        self.ended, self.deleted, self.cleared = [], [], []
        self.files = {}  #: Values in files, by address.
        self.coordinator = self.another()
        self.sessions = {}
        self.cursors = {}
        for mesh in meshes:
            self.join(mesh)

    def another(self):
        """Return one more coordinator on the same stores."""
        return Coordinator(
            runs=self.flaky_runs,
            queue=self.flaky,
            ledger=self.flaky,
            registry=self.registry,
            tenant_policies=self.tenant_policies,
            blobs=self.flaky,
            clock=self.clock,
            on_end=self.ended.append,
            delete=lambda run, uri: self.deleted.append((run, uri)),
            clear=lambda run, keep: self.cleared.append((run, keep)),
            fetch=lambda _run, stored: self.files[stored.uri],
            retention_ms=RETENTION_MS,
            flap_rules=FlapRules(probation_ms=PROBATION_MS),
            retrying=self.retrying,
        )

    def join(self, mesh, flavor="standard"):
        pool = PoolRecord(pool="general", flavor=flavor, capacity=ResourceSet.of({"cpu": 4}))
        record = MeshRecord(mesh=mesh, labels={"zone": mesh}, pools=(pool,), cluster=f"c-{mesh}")
        self.sessions[mesh] = ManualMesh(self.store, record)
        self.cursors[mesh], _ = self.store.notifications(mesh, "", 0)

    def submit(self, run="r", user="", **nodes):
        """Submit nodes by their needs: `submit(a="", b="a")`; `@zone` requests a zone."""
        spec = {"spec": "dag/1", "id": run, "tenant": "acme", "nodes": {}, "outputs": {}}
        for node, words in nodes.items():
            needs = [word for word in words.split() if not word.startswith("@")]
            zones = [word[1:] for word in words.split() if word.startswith("@")]
            options = {"labels": {"zone": zones[0]}} if zones else {}
            spec["nodes"][node] = {"call": "work:do", "args": [{"$ref": need} for need in needs], "options": options}
            spec["outputs"][node] = {"$ref": node}
        body = json.dumps(spec).encode()
        record = RunRecord(run=run, tenant="acme", user=user, digest=digest(parse(body)), spec=body, created_ms=self.clock.now_ms)
        assert self.runs.create(record, {})

    def record(self, run="r"):
        return self.runs.load(run)

    def states(self, run="r"):
        return {node: kept.state.value for node, kept in self.record(run).nodes.items()}

    def waiting(self, mesh):
        return [stage.stage for stage in self.store.waiting(mesh)]

    def start(self, mesh):
        """Claim and start the mesh's first stage."""
        (stage, *_) = self.store.waiting(mesh)
        self.sessions[mesh].acquire("acme", "standard", CPU, 1)
        claimed = self.store.claim(self.sessions[mesh].session, stage.stage, self.sessions[mesh].lease("acme", "standard"))
        self.say(claimed, 1, StageStarted(stage=stage.stage, mesh=mesh, incarnation=5, cluster="c", slots=1, token=1))
        return claimed

    def say(self, claimed, batch, *messages):
        self.store.report(claimed.claim, batch, messages)

    def finish(self, mesh):
        """Run the mesh's first stage from claim to end."""
        claimed = self.start(mesh)
        self.say(claimed, 2, *(self.done(claimed, task) for task in claimed.spec.tasks), StageEnded(stage=claimed.claim.stage))
        self.sessions[mesh].release("acme", "standard")

    def done(self, claimed, task):
        value = StoredValue(sha256=hashlib.sha256(task.node.encode()).hexdigest(), size_bytes=1, encoding=Encoding.JSON)
        self.store.put(claimed.spec.run, value.sha256, b"1")
        return NodeSucceeded(
            stage=claimed.claim.stage,
            node=task.node,
            attempt=task.attempt,
            started_ms=1,
            finished_ms=2,
            worker="w",
            stored=value if task.export else None,
        )

    def grew(self, claimed, node, *children, uri=None, data=None, **options):
        """Return the report that the node has returned these nodes, stored in a file or beside the run."""
        task = next(task for task in claimed.spec.tasks if task.node == node)
        data = data or b"%s %d\n%s" % (node.encode(), task.attempt, message_of(*children, **options))
        graph = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.GRAPH, uri=uri)
        if uri is None:
            self.store.put(claimed.spec.run, graph.sha256, data)
        else:
            self.files[uri] = data
        return NodeGrew(stage=claimed.claim.stage, node=node, attempt=task.attempt, started_ms=1, finished_ms=2, graph=graph)

    def grow(self, mesh, *children, **options):
        """Run the mesh's first stage, whose first node returns these nodes."""
        claimed = self.start(mesh)
        node = claimed.spec.tasks[0].node
        self.say(claimed, 2, self.grew(claimed, node, *children, **options), StageEnded(stage=claimed.claim.stage))
        self.sessions[mesh].release("acme", "standard")

    def lose_graphs(self):
        """Drop the graphs that nodes have returned, before the coordinator has read them."""
        for entry in self.store.inbox(0):
            for message in decode(STAGE_MESSAGES, entry.body):
                if isinstance(message, NodeGrew):
                    self.store.drop(entry.run, message.graph.sha256)

    def letters(self, mesh, kind):
        self.cursors[mesh], letters = self.store.notifications(mesh, self.cursors[mesh], 0)
        return [letter.subject for letter in letters if letter.kind is kind]

    def claimed(self, mesh):
        return next(view.claimed for view in self.store.snapshot().meshes if view.record.mesh == mesh)

    def inbox(self):
        return len(self.store.inbox(0))

    def keep(self):
        """Persist all that is written now."""
        return self.store.copied(), self.runs.copied()

    def lose(self, kept):
        """Restart the server without the writes since `keep`."""
        self.store.lose_writes(kept[0])
        self.runs.lose_writes(kept[1])


@pytest.fixture
def root():
    return Root("east")


# -- the straight way ------------------------------------------------------------------------------------------------------


def test_a_submitted_run_is_placed_and_sent(root):
    root.submit(a="", b="a")
    assert root.coordinator.step(0) == 1
    assert root.waiting("east") == ["r.1"]
    assert (root.record().state, root.states()) == (RunState.RUNNING, {"a": "ASSIGNED", "b": "ASSIGNED"})
    assert root.inbox() == 0


def test_runs_that_arrive_together_share_a_snapshot_on_one_mesh(root):
    for run in ("r", "s", "t"):
        root.submit(run, a="")
    root.coordinator.step(0)  # The first step of a coordinator reads the tenants as well.
    root.flaky.called.clear()
    for run in ("u", "v", "w"):
        root.submit(run, a="")
    root.coordinator.step(0)
    assert (len(root.waiting("east")), root.flaky.called.count("snapshot")) == (6, 1)


def test_runs_that_arrive_together_go_to_several_meshes():
    root = Root("east", "west")
    for number in range(8):
        root.submit(f"r{number}", a="")
    root.coordinator.step(0)
    assert (len(root.waiting("east")), len(root.waiting("west"))) == (4, 4)


def test_an_empty_inbox_is_no_work(root):
    assert root.coordinator.step(0) == 0


def test_notice_of_contested_quota_lasts_until_the_next_survey(root):
    root.store.post("", CONTESTED, b"")
    root.submit(a="")
    root.coordinator.step(0)
    assert (root.coordinator.has_contest, root.inbox(), root.waiting("east")) == (True, 0, ["r.1"])
    root.coordinator.step(0)
    assert root.coordinator.has_contest
    root.coordinator.survey()
    assert not root.coordinator.has_contest


def test_a_run_over_two_meshes_ends_and_is_settled_once():
    root = Root("east", "west")
    root.submit(a="@east", b="a @west")
    root.coordinator.step(0)
    root.finish("east")
    root.coordinator.step(0)
    assert root.store.inputs_of("r.2").keys() == {"a"}
    root.finish("west")
    root.coordinator.step(0)
    assert root.record().state is RunState.SUCCEEDED
    assert [record.run for record in root.ended] == ["r"]
    assert root.runs.active() == ()
    assert (root.letters("east", NotificationKind.FORGET), root.letters("west", NotificationKind.FORGET)) == (["r"], ["r"])
    root.coordinator.tick()
    assert len(root.ended) == 1


def test_two_runs_in_one_inbox_do_not_mix(root):
    root.submit("one", a="")
    root.submit("two", a="")
    assert root.coordinator.step(0) == 2
    assert root.waiting("east") == ["one.1", "two.1"]


def test_several_messages_of_a_run_are_taken_in_with_one_commit(root):
    root.submit(a="", b="a")
    root.coordinator.step(0)
    root.finish("east")
    root.flaky_runs.called.clear()
    root.coordinator.step(0)
    assert root.flaky_runs.called.count("commit") == 1
    assert root.record().state is RunState.SUCCEEDED


def test_a_cancel_stops_the_stages(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.start("east")
    root.runs.request_cancel("r", "enough")
    root.coordinator.step(0)
    assert root.record().state is RunState.CANCELLING
    assert root.letters("east", NotificationKind.CANCEL) == ["r.1"]


def test_an_older_run_that_is_refused_today_can_be_cancelled(root):
    node = {"call": "work:do", "args": [], "options": {"resources": {"cpus": 1}}}
    spec = {"spec": "dag/1", "id": "r", "tenant": "acme", "user": "a\tb", "nodes": {"a": node}, "outputs": {"a": {"$ref": "a"}}}
    record = RunRecord(run="r", tenant="acme", user="a\tb", digest="", spec=json.dumps(spec).encode(), created_ms=root.clock.now_ms)
    assert root.runs.create(record, {})
    root.coordinator.step(0)
    assert root.states() == {"a": "BLOCKED"}
    root.runs.request_cancel("r", "enough")
    root.coordinator.step(0)
    assert root.record().state is RunState.CANCELLED


def test_a_run_cancelled_before_placement_sends_nothing(root):
    root.submit(a="")
    root.runs.request_cancel("r", "enough")
    root.coordinator.step(0)
    assert (root.record().state, root.record().detail, root.waiting("east")) == (RunState.CANCELLED, "enough", [])
    assert len(root.ended) == 1


def test_words_about_a_run_that_nobody_knows_are_dealt_with(root):
    root.store.post("ghost", "stage", encode([StageEnded(stage="ghost.1")], STAGE_MESSAGES))
    assert root.coordinator.step(0) == 1
    assert root.inbox() == 0


def test_stages_that_started_are_in_the_metrics_of_the_registry(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.clock.advance(400)
    root.finish("east")
    root.coordinator.step(0)
    root.clock.advance(1_000)
    root.coordinator.tick()
    noted = root.registry.conditions().stage_metrics
    assert [(one.tenant, one.tier, one.queue_wait_time_p99_ms, one.started) for one in noted.tenants] == [("acme", "standard", 400, 1)]
    assert noted.at_ms == root.store.snapshot().at_ms


def test_a_placed_run_keeps_the_run_times_that_are_known(root):
    root.submit("first", a="")
    root.coordinator.step(0)
    assert root.record("first").expected_ms == {}
    root.finish("east")
    root.coordinator.step(0)
    root.submit("second", a="")
    root.coordinator.step(0)
    assert list(root.record("second").expected_ms) == [plans_of(graph_of(root.record("second"))).calls.functions[0]]


def test_a_refused_step_leaves_the_record_as_it_was(root, monkeypatch):
    root.submit("first", a="")
    root.coordinator.step(0)
    root.finish("east")
    root.coordinator.step(0)
    commit, steps = root.runs.commit, []

    def refuse_first(record, change):
        steps.append((dict(record.expected_ms), change.expected_ms))
        return len(steps) > 1 and commit(record, change)

    monkeypatch.setattr(root.runs, "commit", refuse_first)
    root.submit("second", a="")
    root.coordinator.step(0)
    root.coordinator.step(0)
    (before, asked), *_ = steps
    assert (before, bool(asked)) == ({}, True)
    assert root.record("second").expected_ms == asked


# -- the slow work ---------------------------------------------------------------------------------------------------------


def test_a_blocked_run_reports_once_and_resumes_with_a_mesh():
    root = Root()
    root.submit(a="")
    root.coordinator.step(0)
    version = root.record().version
    root.coordinator.tick()
    assert (root.states(), root.record().version) == ({"a": "BLOCKED"}, version)
    assert (root.record().nodes["a"].reason, root.record().nodes["a"].detail) == (Reason.MESH_UNREACHABLE, "no mesh has joined")
    root.join("east")
    root.coordinator.tick()
    assert root.waiting("east") == ["r.1"]


def test_stages_that_wait_at_a_dead_mesh_go_to_a_living_one(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.clock.advance(TTL_MS)
    root.join("west")
    root.coordinator.tick()
    assert (root.waiting("east"), root.waiting("west")) == ([], ["r.2"])
    root.coordinator.step(0)  # Reports of the cancelled stage change nothing.
    assert (root.record().stages["r.1"].state, root.states()) == (StageState.LOST, {"a": "ASSIGNED"})


def test_what_a_swept_mesh_ran_goes_to_a_living_one(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.start("east")
    root.coordinator.step(0)
    root.clock.advance(TTL_MS + GRACE_MS + 1)
    root.join("west")
    root.coordinator.tick()
    root.coordinator.step(0)
    assert root.waiting("west") == ["r.2"]
    assert root.record().nodes["a"].attempt == 2


def test_a_wrong_sum_of_the_ledger_is_an_alarm(root):
    wrong = ("acme", "standard", "cpu")
    honest = root.store.snapshot
    root.store.snapshot = lambda: replace(honest(), usage={**honest().usage, wrong: 7})
    with capture_logs() as lines:
        for _ in range(2 * TICKS_PER_COUNT):
            root.coordinator.tick()
    warnings = [line for line in lines if line["event"] == "a sum in the ledger differs from the sum of its leases"]
    assert [(line["log_level"], line["tenant"], line["kept"], line["counted"]) for line in warnings] == [("error", "acme", 7, 0)]


def test_a_running_stage_of_a_silent_mesh_stays_until_the_sweep(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.start("east")
    root.coordinator.step(0)
    root.clock.advance(TTL_MS + 1)
    root.coordinator.tick()
    assert root.record().stages["r.1"].state is StageState.RUNNING


@pytest.fixture
def lost(root):
    """Return a root that lost more sessions at once than one sweep ends, and their names."""
    names = [f"m{number:03}" for number in range(450)]
    for name in names:
        root.join(name)
        root.sessions[name].acquire("acme", "standard", ResourceSet({"cpu": 1}), 1)
    root.clock.advance(TTL_MS + GRACE_MS + 1)
    return names


def test_a_tick_takes_back_all_that_is_overdue(root, lost):
    root.coordinator.tick()
    assert root.flaky.called.count("sweep") == 3
    assert root.store.snapshot().leases == ()


def test_a_tick_reclaims_for_a_bounded_time(root, lost):
    root.flaky.before["sweep"] = lambda: root.clock.advance(SWEEP_MS_MAX)
    root.coordinator.tick()
    assert len(root.store.snapshot().leases) == 250
    root.coordinator.tick()
    assert root.store.snapshot().leases == ()


def test_old_runs_are_retired_with_their_files(root):
    root.submit(a="")
    root.coordinator.step(0)
    claimed = root.start("east")
    file = StoredValue(sha256="f" * 64, size_bytes=1, encoding=Encoding.JSON, uri="file:///result")
    done = NodeSucceeded(stage="r.1", node="a", attempt=1, started_ms=1, finished_ms=2, worker="w", stored=file)
    root.say(claimed, 2, done, StageEnded(stage="r.1"))
    root.coordinator.step(0)
    root.clock.advance(RETENTION_MS)
    root.coordinator.tick()
    assert root.record() is not None
    root.clock.advance(1)
    root.coordinator.tick()
    assert (root.record(), root.deleted) == (None, [("r", "file:///result")])


# -- meshes that are closed ------------------------------------------------------------------------------------------------


def drained(root, mesh):
    root.registry.drain(mesh, Drain(reason="disks"))


def lose_and_return(root, mesh):
    """Keep the mesh silent for its time to live, then let it join again."""
    root.coordinator.tick()
    root.clock.advance(TTL_MS)
    root.join(mesh)


def test_a_drained_mesh_gets_no_new_stage_and_finishes_its_own(root):
    root.submit("one", a="")
    root.coordinator.step(0)
    drained(root, "east")
    root.submit("two", a="")
    root.coordinator.step(0)
    assert (root.waiting("east"), root.states("two")) == (["one.1"], {"a": "BLOCKED"})
    assert root.record("two").nodes["a"].reason is Reason.MESH_DRAINING
    assert "disks" in root.record("two").nodes["a"].detail
    root.finish("east")
    root.coordinator.step(0)
    assert root.record("one").state is RunState.SUCCEEDED


def test_a_resumed_mesh_unblocks_runs(root):
    drained(root, "east")
    root.submit(a="")
    root.coordinator.step(0)
    root.registry.undrain("east")
    root.coordinator.tick()
    assert root.waiting("east") == ["r.1"]


@pytest.mark.parametrize("is_another", [pytest.param(False, id="its session"), pytest.param(True, id="its session and its coordinator")])
def test_a_drain_outlives_a_mesh_that_loses(root, is_another):
    drained(root, "east")
    root.clock.advance(TTL_MS + GRACE_MS + 1)
    root.coordinator.tick()
    root.join("east")
    root.submit(a="")
    (root.another() if is_another else root.coordinator).step(0)
    assert (root.waiting("east"), root.record().nodes["a"].reason) == ([], Reason.MESH_DRAINING)


def test_unsent_stages_of_a_drained_mesh_are_placed_elsewhere():
    root = Root("east", "south", "west")
    root.submit(a="@west", b="a @!west")
    root.coordinator.step(0)
    stage = root.record().stages["r.2"]
    assert (stage.mesh, stage.state) == ("east", StageState.PLANNED)
    drained(root, "east")
    root.finish("west")
    root.coordinator.step(0)
    assert (root.waiting("east"), root.waiting("south")) == ([], ["r.2"])  # The name of an unsent stage is reused.


def test_a_mesh_without_its_cluster_keeps_only_running_stages():
    root = Root("east", "west")
    root.submit("one", a="@east")
    root.coordinator.step(0)
    root.start("east")
    drained(root, "west")
    root.submit("two", a="")
    root.coordinator.step(0)
    root.registry.undrain("west")
    assert root.waiting("east") == ["two.1"]
    east = root.sessions["east"]
    east.record = replace(east.record, cluster_answers=False)
    east.heartbeat()
    root.coordinator.tick()
    assert (root.waiting("east"), root.waiting("west")) == ([], ["two.2"])
    assert root.record("one").stages["one.1"].state is not StageState.LOST
    root.submit("three", a="@east")
    root.coordinator.step(0)
    assert root.record("three").nodes["a"].detail.startswith("east: its Ray cluster does not respond")


CLOSED = {
    "to its tenant": ({"tenants": ("other",)}, Reason.TENANT_NOT_ALLOWED),
    "to all, as tenants would meet there who may not": ({"tenants": ("acme", "other")}, Reason.CLUSTER_NOT_SHARED),
}


@pytest.mark.parametrize(("changes", "reason"), CLOSED.values(), ids=CLOSED)
def test_what_waits_for_a_mesh_is_taken_back_when_it_closes(root, changes, reason):
    root.submit(a="")
    root.coordinator.step(0)
    assert root.waiting("east") == ["r.1"]
    root.store.configure(TenantTree([*root.store.snapshot().tree.tenants.values(), Tenant(path="other", parent=None)]))
    east = root.sessions["east"]
    east.record = replace(east.record, **changes)
    east.heartbeat()
    root.coordinator.tick()
    assert (root.waiting("east"), root.states(), root.record().nodes["a"].reason) == ([], {"a": "BLOCKED"}, reason)
    stage = root.record().stages["r.1"]
    assert (stage.state, stage.reason) == (StageState.STOPPED, reason)


def test_a_mesh_back_from_a_loss_waits_for_its_probation(root):
    lose_and_return(root, "east")
    root.submit(a="")
    root.coordinator.step(0)
    assert (root.waiting("east"), root.record().nodes["a"].reason) == ([], Reason.MESH_FLAPPING)
    root.clock.advance(PROBATION_MS - 1)
    root.coordinator.tick()
    assert root.waiting("east") == []
    version = root.record().version
    root.clock.advance(1)
    root.coordinator.tick()
    assert root.waiting("east") == ["r.1"]
    assert version < root.record().version


def test_a_run_that_waits_for_a_probation_says_so_once(root):
    lose_and_return(root, "east")
    root.submit(a="")
    root.coordinator.step(0)
    version = root.record().version
    root.clock.advance(10)
    root.coordinator.tick()
    assert root.record().version == version


def test_another_coordinator_knows_of_the_losses_too(root):
    lose_and_return(root, "east")
    root.coordinator.tick()
    root.submit(a="")
    root.another().step(0)
    assert (root.waiting("east"), root.record().nodes["a"].reason) == ([], Reason.MESH_FLAPPING)


def test_a_loss_between_two_coordinators_is_found_by_the_second(root):
    root.coordinator.tick()
    root.join("east")
    root.submit(a="")
    root.another().step(0)
    assert root.record().nodes["a"].reason is Reason.MESH_FLAPPING


def test_a_registry_that_changes_constantly_stops_nobody(root):
    root.registry.note = lambda _note, _version: False
    root.submit(a="")
    root.coordinator.step(0)
    assert root.waiting("east") == ["r.1"]


def test_how_long_stages_run_is_learnt_from_those_that_end(root):
    root.submit(a="")
    root.coordinator.step(0)
    claimed = root.start("east")
    root.coordinator.step(0)
    root.clock.advance(700)
    root.say(claimed, 2, root.done(claimed, claimed.spec.tasks[0]), StageEnded(stage="r.1"))
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.registry.conditions().meshes["east"].pace == Pace(run_ms=700)
    root.coordinator.tick()
    assert root.registry.conditions().meshes["east"].pace == Pace(run_ms=700)


@pytest.mark.parametrize("is_reported", [pytest.param(True, id="reported task by task"), pytest.param(False, id="dropped as a whole")])
def test_cancelled_work_is_no_sample_of_run_time(root, is_reported):
    root.submit(a="")
    root.coordinator.step(0)
    claimed = root.start("east")
    root.coordinator.step(0)
    root.clock.advance(700)
    root.runs.request_cancel("r", "enough")
    root.coordinator.step(0)
    stopped = Failure(reason=Reason.CANCELLED_BY_USER, type_name="TaskCancelledError", message="cancelled")
    messages = [NodeFailed(stage="r.1", node="a", attempt=1, started_ms=1, finished_ms=2, failure=stopped)] if is_reported else []
    root.say(claimed, 2, *messages, StageEnded(stage="r.1"))
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.record().state is RunState.CANCELLED
    assert root.registry.conditions().meshes["east"].pace is None


def test_a_stage_ended_by_its_workers_death_is_no_sample(root):
    root.submit(a="")
    root.coordinator.step(0)
    claimed = root.start("east")
    root.coordinator.step(0)
    root.clock.advance(50)
    gone = Failure(reason=Reason.WORKER_LOST, type_name="ray.NodeDiedError", message="gone")
    failed = NodeFailed(stage="r.1", node="a", attempt=1, started_ms=1, finished_ms=2, failure=gone)
    root.say(claimed, 2, failed, StageEnded(stage="r.1"))
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.registry.conditions().meshes["east"].pace is None


def test_only_a_stages_own_failure_is_a_sample_of_run_time(root):
    root.submit(a="", b="")
    root.coordinator.step(0)
    claimed = root.start("east")
    root.coordinator.step(0)
    root.clock.advance(700)
    wrong = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="bad")
    failed = NodeFailed(stage="r.1", node="a", attempt=1, started_ms=1, finished_ms=2, failure=wrong)
    root.say(claimed, 2, failed, StageEnded(stage="r.1"))
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.record().nodes["b"].state is NodeState.SKIPPED
    assert root.registry.conditions().meshes["east"].pace is None
    root.submit("alone", a="")
    root.coordinator.step(0)
    claimed = root.start("east")
    root.coordinator.step(0)
    root.clock.advance(300)
    root.say(claimed, 2, replace(failed, stage="alone.1"), StageEnded(stage="alone.1"))
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.registry.conditions().meshes["east"].pace == Pace(run_ms=300)


# -- crashes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["submit", "snapshot", "acknowledge"], ids=["as it is sent", "before it is placed", "before it is acknowledged"]
)
@pytest.mark.parametrize("is_another", [pytest.param(False, id="the same coordinator"), pytest.param(True, id="another one")])
def test_a_run_whose_coordinator_stumbled_goes_on(root, method, is_another):
    root.submit(a="", b="a")
    root.flaky.down = {method}
    with pytest.raises(StoreUnavailable):
        root.coordinator.step(0)
    root.flaky.down = set()
    coordinator = root.another() if is_another else root.coordinator
    assert coordinator.step(0) == 1
    assert (root.waiting("east"), root.inbox()) == (["r.1"], 0)
    root.finish("east")
    coordinator.step(0)
    assert root.record().state is RunState.SUCCEEDED


@pytest.mark.parametrize("method", ["commit", "load"])
def test_a_run_with_a_failed_read_or_write_is_retried(root, method):
    root.submit(a="")
    root.flaky_runs.down = {method}
    with pytest.raises(StoreUnavailable):
        root.coordinator.step(0)
    root.flaky_runs.down = set()
    root.coordinator.step(0)
    assert root.waiting("east") == ["r.1"]


def test_a_commit_without_an_answer_is_not_repeated(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.finish("east")
    root.flaky_runs.mute = {"commit"}
    with pytest.raises(StoreUnavailable):
        root.coordinator.step(0)
    root.flaky_runs.mute = set()
    root.coordinator.step(0)
    assert root.record().state is RunState.SUCCEEDED
    assert [event.seq for event in root.runs.events("r")] == list(range(1, root.record().seq + 1))
    assert len(root.ended) == 1


def test_pending_decisions_of_a_run_are_carried_out_on_load():
    root = Root("east", "west")
    root.submit(a="@east", b="a @west")
    root.coordinator.step(0)
    root.finish("east")
    root.flaky.down = {"deliver"}
    with pytest.raises(StoreUnavailable):
        root.coordinator.step(0)
    assert root.store.inputs_of("r.2") == {}
    root.flaky.down = set()
    root.another().tick()
    assert root.store.inputs_of("r.2").keys() == {"a"}


def test_a_pending_end_of_a_run_is_settled_on_load(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.finish("east")
    root.flaky.down = {"forget"}
    with pytest.raises(StoreUnavailable):
        root.coordinator.step(0)
    assert (root.record().state, root.runs.active(), root.ended) == (RunState.SUCCEEDED, ("r",), [])
    root.flaky.down = set()
    root.another().tick()
    assert (root.letters("east", NotificationKind.FORGET), root.runs.active(), len(root.ended)) == (["r"], (), 1)


def test_the_outbox_of_a_loaded_run_is_repeated_idempotently():
    root = Root("east", "west")
    root.submit(a="@east", b="a @west")
    root.coordinator.step(0)
    root.start("east")
    for _ in range(3):
        root.another().tick()
    assert (root.waiting("east"), root.claimed("east")) == ([], 1)
    assert (root.waiting("west"), root.inbox()) == ([], 1)


def checkpoint_of(claimed, number, uri=None):
    data = f"#{number}".encode()
    stored = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.PICKLE, uri=uri)
    (task,) = claimed.spec.tasks
    return data, NodeCheckpoint(stage=claimed.claim.stage, node=task.node, attempt=task.attempt, number=number, stored=stored)


def test_the_newest_checkpoint_goes_to_the_next_mesh():
    root = Root("east", "west")
    root.submit(a="@east")
    root.coordinator.step(0)
    claimed = root.start("east")
    sent = [checkpoint_of(claimed, number) for number in (1, 2)]
    for batch, (data, message) in enumerate(sent, start=2):
        root.store.put("r", message.stored.sha256, data)
        root.say(claimed, batch, message)
        root.coordinator.step(0)
    assert root.store.get("r", tuple(message.stored.sha256 for _, message in sent)) == {sent[1][1].stored.sha256: b"#2"}
    root.say(claimed, 4, StageLost(stage=claimed.claim.stage, mesh="east", incarnation=5, reason=Reason.QUOTA_RECLAIMED))
    root.coordinator.step(0)
    again = root.start("east")
    assert again.spec.tasks[0].checkpoint == sent[1][1].stored
    assert sent[1][1].stored.sha256 in again.blobs()
    root.coordinator.step(0)
    root.say(again, 2, root.done(again, again.spec.tasks[0]), StageEnded(stage=again.claim.stage))
    root.coordinator.step(0)
    assert root.store.get("r", (sent[1][1].stored.sha256,)) == {}


def test_the_file_of_an_older_checkpoint_is_deleted():
    root = Root("east")
    root.submit(a="@east")
    root.coordinator.step(0)
    claimed = root.start("east")
    for number in (1, 2):
        _, message = checkpoint_of(claimed, number, uri=f"file:///{number}")
        root.say(claimed, number + 1, message)
        root.coordinator.step(0)
    assert root.deleted == [("r", "file:///1")]


@pytest.mark.parametrize("kind", [SendAgain, DeliverInput, CancelStage, ForgetRun], ids=lambda kind: kind.__name__)
def test_every_decision_may_be_carried_out_twice(kind):
    root = Root("east", "west")
    root.submit(a="@east", b="a @west", c="@west")
    root.coordinator.step(0)
    steps = {
        SendAgain: lambda: None,
        DeliverInput: lambda: root.finish("east"),
        CancelStage: lambda: (root.start("east"), root.runs.request_cancel("r", "")),
        ForgetRun: lambda: [root.runs.request_cancel("r", ""), root.store.cancel("r.1"), root.store.cancel("r.2")],
    }
    steps[kind]()
    root.coordinator.step(0)
    if kind is ForgetRun:
        root.coordinator.step(0)
    assert any(isinstance(decision, kind) for decision in root.record().outbox)
    before = root.store.snapshot(), root.waiting("east"), root.waiting("west")
    root.another().step(0)
    assert (root.store.snapshot(), root.waiting("east"), root.waiting("west")) == before


# -- two coordinators ------------------------------------------------------------------------------------------------------


def test_two_coordinators_apply_the_same_messages_once():
    root = Root("east", "west")
    other = root.another()
    root.submit(a="@east", b="a @west")
    other.step(0)
    root.coordinator.tick()  # It has an old copy of the run in memory.
    root.finish("east")
    root.flaky.down = {"acknowledge"}
    with pytest.raises(StoreUnavailable):
        other.step(0)
    root.flaky.down = set()
    root.coordinator.step(0)
    assert root.waiting("west") == ["r.2"]
    assert [event.seq for event in root.runs.events("r")] == list(range(1, root.record().seq + 1))
    assert [event.after for event in root.runs.events("r") if event.node == "a"].count("SUCCEEDED") == 1


def test_the_slower_coordinator_applies_the_remaining_messages(root):
    root.submit(a="", b="a")
    root.coordinator.step(0)
    other = root.another()
    other.tick()
    claimed = root.start("east")
    root.coordinator.step(0)  # The first one applies the start.
    root.say(claimed, 2, NodeStarted(stage="r.1", node="a", attempt=1, started_ms=1))
    other.step(0)  # Its memory is a step behind.
    assert root.states()["a"] == "RUNNING"
    assert root.record().stages["r.1"].state is StageState.RUNNING


def test_an_overtaken_coordinator_sends_nothing_twice(root):
    root.submit(a="")
    other = root.another()
    root.flaky.before["snapshot"] = lambda: other.step(0)
    root.coordinator.step(0)
    assert root.waiting("east") == ["r.1"]
    assert list(root.record().stages) == ["r.1"]


def test_a_tick_that_is_overtaken_places_nothing_twice():
    root = Root()
    root.submit(a="")
    root.coordinator.step(0)
    other = root.another()
    other.tick()
    root.join("east")
    root.flaky_runs.before["commit"] = other.tick
    root.coordinator.tick()
    assert list(root.record().stages) == ["r.1"]
    assert root.waiting("east") == ["r.1"]


def test_a_cancel_that_two_coordinators_read_ends_the_run_once(root):
    root.submit(a="")
    root.coordinator.step(0)
    other = root.another()
    other.tick()
    root.runs.request_cancel("r", "enough")
    root.flaky_runs.before["commit"] = lambda: other.step(0)
    root.coordinator.step(0)
    root.coordinator.step(0)
    other.step(0)
    assert root.record().state is RunState.CANCELLED
    assert len(root.ended) == 1


# -- a store that has lost its last writes ---------------------------------------------------------------------------------


def test_an_end_lost_by_the_store_counts_when_reported_again(root):
    root.submit(a="")
    root.coordinator.step(0)
    claimed = root.start("east")
    root.coordinator.step(0)
    kept = root.keep()
    words = (*(root.done(claimed, task) for task in claimed.spec.tasks), StageEnded(stage="r.1"))
    root.say(claimed, 2, *words)
    root.coordinator.step(0)
    assert root.record().state is RunState.SUCCEEDED
    root.lose(kept)
    assert root.record().state is RunState.RUNNING
    root.say(claimed, 2, *words)
    root.say(claimed, 2, *words)
    root.coordinator.step(0)
    root.coordinator.tick()
    assert (root.record().state, root.record().nodes["a"].attempt) == (RunState.SUCCEEDED, 1)
    assert root.store.waiting("east") == ()


def test_a_message_with_a_lost_commit_is_applied_again():
    root = Root("east", "west")
    root.submit(a="@east", b="a @west")
    root.coordinator.step(0)
    root.finish("east")
    kept = root.keep()
    root.coordinator.step(0)
    assert root.store.inputs_of("r.2").keys() == {"a"}
    root.lose(kept)
    root.coordinator.step(0)  # By the cached record it was applied long ago.
    assert root.states() == {"a": "SUCCEEDED", "b": "ASSIGNED"}
    assert root.store.inputs_of("r.2").keys() == {"a"}
    assert root.inbox() == 0


def test_what_was_sent_and_the_store_has_lost_is_sent_again(root):
    kept = []
    root.coordinator.tick()
    root.submit(a="")
    root.flaky.before["submit"] = lambda: kept.append(root.keep())
    root.coordinator.step(0)
    assert root.waiting("east") == ["r.1"]
    root.lose(kept[0])
    assert root.waiting("east") == []
    root.coordinator.tick()
    assert (root.waiting("east"), root.states()) == (["r.1"], {"a": "ASSIGNED"})


def test_runs_that_the_store_lost_do_not_count_against_a_limit(root):
    limited(root, running_max=1)
    kept = root.keep()
    root.submit("lost", a="")
    root.coordinator.step(0)
    root.coordinator.tick()
    root.lose(kept)
    root.submit("next", a="")
    root.coordinator.step(0)
    root.coordinator.tick()
    root.sessions["east"].claim_all()
    root.coordinator.tick()
    assert root.waiting("east") == ["next.1"]


def test_a_machine_of_a_stored_run_knows_its_graph():
    root = Root()
    root.submit(a="", b="a")
    machine = machine_of(root.record())
    assert (list(machine.plans), machine.plans["b"].task.inputs, machine.unplaced(0)) == (["a", "b"], ("a",), ("a", "b"))
    assert machine.record.nodes["b"].state is NodeState.WAITING


def test_a_coordinator_that_slept_revives_no_ended_stage():
    root = Root("east")
    root.submit(a="")
    other = root.another()

    def meanwhile():
        other.tick()  # Loads the run and carries out its outbox: the stage is sent.
        root.runs.request_cancel("r", "enough")
        other.step(0)
        other.step(0)
        assert root.runs.active() == ()

    root.flaky.before["submit"] = meanwhile
    root.coordinator.step(0)
    assert root.waiting("east") == []


def test_what_breaks_over_one_run_stays_with_that_run():
    root = Root("east")
    root.submit("broken", a="")
    root.submit("sound", a="")
    load = root.runs.load

    def refuse(run):
        if run == "broken":
            raise LookupError("this record cannot be read")
        return load(run)

    root.runs.load = refuse
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.record("sound").state is RunState.RUNNING


# -- failures: waits, poison, deadlines ------------------------------------------------------------------------------------


def fail(root, mesh, reason=Reason.USER_ERROR):
    """Run the mesh's first stage until its first task fails."""
    claimed = root.start(mesh)
    (task, *_) = claimed.spec.tasks
    failure = Failure(reason=reason, type_name="x.Y", message="no")
    failed = NodeFailed(stage=claimed.claim.stage, node=task.node, attempt=task.attempt, started_ms=1, finished_ms=2, failure=failure)
    root.say(claimed, 2, failed, StageEnded(stage=claimed.claim.stage))
    root.sessions[mesh].release("acme", "standard")
    root.coordinator.step(0)


def test_a_tick_sends_a_retry_after_its_backoff(root):
    root.submit(a="")
    root.coordinator.step(0)
    fail(root, "east", Reason.WORKER_LOST)
    wait_ms = root.record().nodes["a"].not_before_ms - root.clock.now_ms
    assert wait_ms >= RETRY_RULES.wait_ms
    root.coordinator.tick()
    assert root.waiting("east") == []
    root.clock.advance(wait_ms)
    root.sessions["east"].heartbeat()
    root.coordinator.tick()
    assert root.waiting("east") == ["r.2"]


def test_poison_is_a_dead_letter_and_a_neighbours_run_succeeds(root):
    root.submit("bad", a="")
    root.coordinator.step(0)
    for _ in range(RETRY_RULES.kills_max):
        root.clock.advance(max(0, root.record("bad").nodes["a"].not_before_ms - root.clock.now_ms))
        root.sessions["east"].heartbeat()
        root.coordinator.tick()
        fail(root, "east", Reason.WORKER_LOST)
    root.submit("good", a="")
    root.coordinator.step(0)
    root.finish("east")
    root.coordinator.step(0)
    assert (root.record("bad").state, root.record("good").state) == (RunState.FAILED, RunState.SUCCEEDED)
    assert [(letter.letter, letter.reason) for letter in root.runs.dead()] == [("bad:a", Reason.POISON_TASK)]


def test_a_slow_stage_is_taken_back_by_a_tick_and_tried_again(root):
    spec = {"spec": "dag/1", "nodes": {"a": {"call": "work:do"}}, "outputs": {"a": {"$ref": "a"}}, "stage_deadline_s": 0.5}
    body = json.dumps(spec).encode()
    root.runs.create(RunRecord(run="r", tenant="acme", digest=digest(parse(body)), spec=body, created_ms=1), {})
    root.coordinator.step(0)
    claimed = root.start("east")
    root.coordinator.step(0)
    root.clock.advance(500)
    root.coordinator.tick()
    with pytest.raises(StaleFence):
        root.say(claimed, 2, StageEnded(stage=claimed.claim.stage))
    root.coordinator.step(0)
    node = root.record().nodes["a"]
    assert (node.state, node.reason, node.losses, node.attempt) == (NodeState.WAITING, Reason.DEADLINE_EXCEEDED, 1, 2)


# -- what holds for tenants ------------------------------------------------------------------------------------------------


def limited(root, **settings):
    root.tenant_policies.publish(TenantPolicies(settings={"acme": QueueSettings(**settings)}))


def reason_of(root, run="r"):
    return root.record(run).reason


def test_a_tenant_on_hold_starts_nothing_until_resumed(root):
    root.tenant_policies.stop("acme", TenantStop(reason="the budget"))
    root.submit(a="")
    root.coordinator.step(0)
    assert (root.waiting("east"), root.states(), reason_of(root)) == ([], {"a": "BLOCKED"}, Reason.TENANT_SUSPENDED)
    assert root.record().detail == "acme is on hold: nothing new starts (the budget)"
    root.coordinator.tick()
    assert root.waiting("east") == []
    root.tenant_policies.release("acme")
    root.coordinator.tick()
    assert root.waiting("east") == ["r.1"]


def test_a_hold_reclaims_unstarted_stages_only():
    root = Root("east", "west")
    root.submit("runs", a="@east", b="a @west")
    root.submit("waits", a="@west")
    root.coordinator.step(0)
    root.start("east")
    root.tenant_policies.stop("acme", TenantStop())
    root.coordinator.step(0)
    root.coordinator.tick()
    assert (root.waiting("east"), root.waiting("west")) == ([], [])
    assert (root.states("runs"), root.states("waits")) == ({"a": "ASSIGNED", "b": "BLOCKED"}, {"a": "BLOCKED"})
    writer = [(event.after, event.reason) for event in root.runs.events("waits") if event.kind == "stage"]
    assert writer[-1] == ("STOPPED", Reason.TENANT_SUSPENDED)
    assert root.record("waits").nodes["a"].losses == 0
    root.tenant_policies.release("acme")
    root.coordinator.tick()
    assert root.waiting("west") == ["waits.2"]


def test_a_hold_is_kept_by_the_next_coordinator(root):
    root.tenant_policies.stop("acme", TenantStop())
    root.coordinator = root.another()
    root.submit(a="")
    root.coordinator.step(0)
    assert root.waiting("east") == []


def test_a_tenant_starts_work_inside_its_windows_only(root):
    day_ms = 86_400_000
    opens_ms = (root.clock.wall_ms() + 5_000) % day_ms
    limited(root, windows=(TimeWindow(opens_ms=opens_ms, lasts_ms=10_000),))
    root.submit(a="")
    root.coordinator.step(0)
    assert (root.waiting("east"), reason_of(root)) == ([], Reason.OUTSIDE_WINDOW)
    root.clock.advance(5_000)
    root.sessions["east"].heartbeat()
    root.coordinator.tick()
    assert root.waiting("east") == ["r.1"]
    root.clock.advance(10_000)
    root.sessions["east"].heartbeat()
    root.coordinator.tick()
    assert (root.waiting("east"), reason_of(root)) == ([], Reason.OUTSIDE_WINDOW)


def test_stages_of_a_tenant_are_limited_and_the_oldest_is_next(root):
    limited(root, running_max=1)
    root.submit("one", a="")
    root.clock.advance(1)
    root.submit("z-old", a="")
    root.clock.advance(1)
    root.submit("b-young", a="")
    root.coordinator.step(0)
    assert (root.waiting("east"), reason_of(root, "z-old"), reason_of(root, "b-young")) == (
        ["one.1"],
        Reason.RUNNING_LIMIT,
        Reason.RUNNING_LIMIT,
    )
    root.coordinator.tick()
    assert root.waiting("east") == ["one.1"]
    root.finish("east")
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.waiting("east") == ["z-old.1"]


def test_a_late_run_does_not_overtake_those_at_the_limit(root):
    limited(root, running_max=1)
    root.submit("one", a="")
    root.clock.advance(1)
    root.submit("two", a="")
    root.coordinator.step(0)
    root.finish("east")
    root.clock.advance(1)
    root.submit("three", a="")
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.waiting("east") == ["two.1"]


def test_a_new_coordinator_counts_running_stages_first(root):
    limited(root, running_max=1)
    root.submit("one", a="")
    root.coordinator.step(0)
    root.coordinator = root.another()
    root.submit("two", a="")
    root.coordinator.step(0)
    assert root.waiting("east") == ["one.1"]


def test_a_run_above_its_limit_starts_stages_one_by_one():
    root = Root("east", "west")
    limited(root, running_max=1)
    root.submit(a="@east", b="@west")
    root.coordinator.step(0)
    assert (root.waiting("east"), root.waiting("west")) == (["r.1"], [])
    kept_back = root.record().stages["r.2"]
    assert (kept_back.state, kept_back.reason) == (StageState.PLANNED, Reason.RUNNING_LIMIT)
    root.finish("east")
    root.coordinator.step(0)
    assert root.waiting("west") == ["r.2"]
    assert root.record().stages["r.2"].detail == ""


def test_each_user_has_a_limit_of_his_own(root):
    limited(root, running_max_per_user=1)
    root.submit("one", user="ann", a="")
    root.submit("two", user="ann", a="")
    root.submit("three", user="bob", a="")
    root.coordinator.step(0)
    assert (root.waiting("east"), reason_of(root, "two")) == (["one.1", "three.1"], Reason.USER_LIMIT)
    assert root.record("two").detail == "ann is at the limit of 1 running stage of acme"


def test_a_limit_that_is_lifted_lets_go_at_the_next_tick(root):
    limited(root, running_max=1)
    root.submit("one", a="")
    root.submit("two", a="")
    root.coordinator.step(0)
    limited(root)
    root.coordinator.tick()
    assert root.waiting("east") == ["one.1", "two.1"]


# -- who waits too long, and who stops for whom ----------------------------------------------------------------------------


def ordered(root, rules=None, **settings):
    root.tenant_policies.publish(TenantPolicies(rules=rules or Rules(), settings={"acme": QueueSettings(**settings)}))


@pytest.mark.parametrize(
    "where", [pytest.param("@east", id="in the queue of its mesh"), pytest.param("@nowhere", id="at the root, where no mesh takes it")]
)
def test_work_above_its_maximum_wait_ends_with_the_reason(root, where):
    ordered(root, max_wait_ms=5_000)
    root.submit(a=where)
    root.coordinator.step(0)
    for _ in range(3):
        root.clock.advance(2_000)
        root.sessions["east"].heartbeat()
        root.coordinator.tick()
        root.coordinator.step(0)
    assert (root.record().state, root.record().reason) == (RunState.FAILED, Reason.WAITED_TOO_LONG)
    assert root.waiting("east") == []
    assert root.runs.active() == ()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="whose tenant has no such limit"),
        pytest.param({"max_wait_ms": 5_000, "on_max_wait": OnMaxWait.FIRST}, id="whose tenant wants it to go first then"),
        pytest.param({"max_wait_ms": 60_000}, id="that has not waited that long"),
    ],
)
def test_work_waits_on(root, settings):
    ordered(root, **settings)
    root.submit(a="")
    root.coordinator.step(0)
    for _ in range(3):
        root.clock.advance(2_000)
        root.sessions["east"].heartbeat()
        root.coordinator.tick()
    assert root.waiting("east") == ["r.1"]


def test_a_refusal_by_two_coordinators_is_made_once(root):
    ordered(root, max_wait_ms=5_000)
    root.submit(a="")
    root.coordinator.step(0)
    other = root.another()
    root.clock.advance(5_001)
    root.flaky_runs.before["commit"] = other.tick
    root.coordinator.tick()
    root.coordinator.step(0)
    assert root.record().reason is Reason.WAITED_TOO_LONG
    assert sum(event.after == "FAILED" for event in root.runs.events("r") if event.kind == "node") == 1


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        pytest.param(
            {"policies": Policies(within_queue=PreemptionMode.LOWER_PRIORITY)},
            PreemptionPolicy(takes=True, min_run_ms=5, reservation_timeout_ms=9),
            id="by rule",
        ),
        pytest.param(
            {"policies": Policies(within_queue=PreemptionMode.LOWER_OR_NEWER)},
            PreemptionPolicy(takes=True, takes_newer=True, min_run_ms=5, reservation_timeout_ms=9),
            id="by rule, newer ones too",
        ),
        pytest.param(
            {"policies": Policies(within_queue=PreemptionMode.LOWER_PRIORITY), "min_run_ms": 7},
            PreemptionPolicy(takes=True, min_run_ms=7, reservation_timeout_ms=9),
            id="with the tenant's own minimum run time",
        ),
        pytest.param(
            {"policies": Policies(within_queue=PreemptionMode.NEVER)},
            PreemptionPolicy(takes=False, min_run_ms=5, reservation_timeout_ms=9),
            id="never",
        ),
    ],
)
def test_a_stage_knows_whether_its_tenant_preempts_for_it(root, settings, rules):
    ordered(root, Rules(min_run_ms=5, reservation_timeout_ms=9), **settings)
    root.submit(a="")
    root.coordinator.step(0)
    (queued,) = root.store.waiting("east")
    assert (queued.preemption, queued.created_ms) == (rules, root.record().created_ms)


def test_a_stage_knows_its_flavor_order_and_strictness(root):
    ordered(root, groups=(ResourceGroup(resources=("cpu",), flavors=("spot", "standard")),), is_strict=True)
    root.submit(a="")
    root.coordinator.step(0)
    (queued,) = root.store.waiting("east")
    assert (queued.preemption.flavors, queued.preemption.in_order) == (("spot", "standard"), True)


@pytest.mark.parametrize("flavors", [("standard", "spot"), ("spot", "standard")], ids=" before ".join)
def test_work_goes_where_the_first_flavor_of_its_tenant_is(root, flavors):
    quotas = {(flavor, "cpu"): Quota(nominal=100_000) for flavor in flavors}
    root.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas=quotas)]))
    root.join("spots", flavor="spot")
    ordered(root, groups=(ResourceGroup(resources=("cpu",), flavors=flavors),))
    root.coordinator.tick()
    root.submit(a="")
    root.coordinator.step(0)
    stage = root.record().stages["r.1"]
    assert stage.mesh == ("spots" if flavors[0] == "spot" else "east")


def test_less_urgent_stages_stop_where_nobody_said_anything(root):
    root.submit(a="")
    root.coordinator.step(0)
    (queued,) = root.store.waiting("east")
    assert queued.preemption == PreemptionPolicy(
        takes=True, min_run_ms=Rules().min_run_ms, reservation_timeout_ms=Rules().reservation_timeout_ms
    )


# -- timers and resumption -------------------------------------------------------------------------------------------------


RESUME_WINDOW_MS = 1_000


def fail_one(root, mesh="east"):
    """Run the mesh's first stage, whose second task fails."""
    claimed = root.start(mesh)
    first, second = claimed.spec.tasks
    failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="no")
    failed = NodeFailed(stage=claimed.claim.stage, node=second.node, attempt=second.attempt, started_ms=1, finished_ms=2, failure=failure)
    root.say(claimed, 2, root.done(claimed, first), failed, StageEnded(stage=claimed.claim.stage))
    root.sessions[mesh].release("acme", "standard")
    root.coordinator.step(0)


@pytest.fixture
def failing():
    """Return a root whose run has failed at its second node, and keeps its values for a while."""
    root = Root("east")
    root.retrying = RetryRules(resume_window_ms=RESUME_WINDOW_MS)
    root.coordinator = root.another()
    root.submit(a="", b="a")
    root.coordinator.step(0)
    fail_one(root)
    assert (root.record().state, root.runs.active()) == (RunState.FAILED, ())
    return root


def resume_run(root):
    resume(root.runs, root.store, "r", root.clock, root.clock.advance)


def test_a_resumed_run_goes_on_where_it_failed(failing):
    assert failing.letters("east", NotificationKind.FORGET) == []
    resume_run(failing)
    resume_run(failing)
    failing.coordinator.step(0)
    assert failing.states() == {"a": "SUCCEEDED", "b": "ASSIGNED"}
    failing.finish("east")
    failing.coordinator.step(0)
    assert failing.record().state is RunState.SUCCEEDED
    assert failing.letters("east", NotificationKind.FORGET) == ["r"]


def test_a_late_coordinator_leaves_a_resumed_run_alone(failing):
    late = failing.another()
    failing.clock.advance(RESUME_WINDOW_MS)

    def meanwhile():
        failing.coordinator.tick()
        resume_run(failing)
        failing.coordinator.step(0)

    failing.flaky.before["forget"] = meanwhile  # The late one has loaded the run, and pauses.
    cleared = len(failing.cleared)
    late.tick()
    assert "ASSIGNED" in failing.states().values()
    assert failing.letters("east", NotificationKind.FORGET) == ["r"]
    assert len(failing.cleared) == cleared + 1
    while failing.record().state is RunState.RUNNING:
        failing.finish("east")
        failing.coordinator.step(0)
    assert failing.record().state is RunState.SUCCEEDED


def test_kept_values_go_after_the_window_and_are_computed_again(failing):
    failing.clock.advance(RESUME_WINDOW_MS - 1)
    failing.coordinator.tick()
    assert failing.letters("east", NotificationKind.FORGET) == []
    failing.clock.advance(1)
    failing.coordinator.tick()
    failing.coordinator.tick()
    assert failing.letters("east", NotificationKind.FORGET) == ["r"]
    resume_run(failing)
    failing.coordinator.step(0)
    assert failing.states() == {"a": "SUCCEEDED", "b": "ASSIGNED"}  # Both are outputs, and the value of `a` is stored.


def test_no_coordinator_settles_a_resumed_run(failing):
    other = failing.another()
    resume_run(failing)
    other.tick()
    failing.coordinator.step(0)
    assert failing.runs.active() == ("r",)
    assert failing.states()["b"] == "ASSIGNED"


def test_what_has_succeeded_or_goes_on_is_not_resumed(root):
    root.submit(a="")
    with pytest.raises(NotResumed, match="still goes on"):
        resume_run(root)
    root.coordinator.step(0)
    root.finish("east")
    root.coordinator.step(0)
    with pytest.raises(NotResumed, match="has succeeded"):
        resume_run(root)
    with pytest.raises(UnknownRun):
        resume(root.runs, root.store, "other", root.clock, root.clock.advance)


def test_a_retry_comes_at_its_own_time_without_a_tick(root):
    root.submit(a="")
    root.coordinator.step(0)
    claimed = root.start("east")
    failure = Failure(reason=Reason.WORKER_LOST, type_name="E", message="dead")
    failed = NodeFailed(stage="r.1", node="a", attempt=1, started_ms=1, finished_ms=2, failure=failure)
    root.say(claimed, 2, failed, StageEnded(stage="r.1"))
    root.coordinator.step(0)
    due_ms = root.coordinator.next_timer_ms()
    assert due_ms == root.record().nodes["a"].not_before_ms
    root.clock.advance(due_ms - root.clock.now_ms - 1)
    root.coordinator.take_timers()
    assert root.states() == {"a": "WAITING"}
    root.clock.advance(1)
    root.sessions["east"].heartbeat()
    root.coordinator.take_timers()
    assert (root.states(), root.coordinator.next_timer_ms()) == ({"a": "ASSIGNED"}, None)


def test_a_timer_that_no_step_moves_stops_nobody(root, monkeypatch):
    monkeypatch.setattr(RunMachine, "next_timer_ms", lambda _: 1)
    root.submit(a="")
    assert root.coordinator.step(0) == 1
    root.coordinator.take_timers()
    assert (root.states(), root.coordinator.next_timer_ms()) == ({"a": "ASSIGNED"}, None)


# -- graphs that grow --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", [None, "file:///graph"], ids=["beside the run", "in a file"])
def test_nodes_that_a_function_returned_are_sent(root, uri):
    root.submit(a="", b="a")
    root.coordinator.step(0)
    root.grow("east", "c", "d: c", uri=uri)
    root.coordinator.step(0)
    assert root.states() == {"a": "WAITING", "b": "WAITING", "a~c": "ASSIGNED", "a~d": "ASSIGNED"}
    assert root.deleted == ([] if uri is None else [("r", uri)])
    for _ in range(2):
        root.finish("east")
        root.coordinator.step(0)
    assert (root.record().state, set(root.states().values())) == (RunState.SUCCEEDED, {"SUCCEEDED"})
    assert root.record().nodes["a"].stored == root.record().nodes["a~d"].stored


@pytest.mark.parametrize(
    ("store", "call"), [("flaky", "acknowledge"), ("flaky_runs", "commit"), ("flaky", "submit")], ids=["committed", "before", "not sent"]
)
def test_another_coordinator_adds_the_nodes_once(root, store, call):
    root.submit(a="", b="a")
    root.coordinator.step(0)
    root.grow("east", "c")
    getattr(root, store).down.add(call)
    with pytest.raises(StoreUnavailable):
        root.coordinator.step(0)
    getattr(root, store).down.clear()
    root.coordinator = root.another()
    root.coordinator.step(0)
    root.coordinator.tick()
    assert root.states() == {"a": "WAITING", "b": "WAITING", "a~c": "ASSIGNED"}
    assert len(root.record().growths) == 1
    for _ in range(2):
        root.finish("east")
        root.coordinator.step(0)
    assert root.record().state is RunState.SUCCEEDED


def test_returned_nodes_that_are_gone_are_a_lost_attempt(root):
    root.submit(a="")
    root.coordinator.step(0)
    root.grow("east", "c")
    root.lose_graphs()
    root.coordinator.step(0)
    node = root.record().nodes["a"]
    assert (node.state, node.attempt, node.losses, node.reason) == (NodeState.ASSIGNED, 2, 1, None)
    root.grow("east", "c")
    root.coordinator.step(0)
    assert root.states() == {"a": "WAITING", "a~c": "ASSIGNED"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"c": {"call": "call:other:f"}}, "/nodes/c/call: other:f is not on the tenant's list of functions"),
        ({"c": {"call": f"blob:{'0' * 64}"}}, "/nodes/c/function"),
        ({"c": {"num_cpus": -1}}, "/nodes/c/options/num_cpus"),
        ({"data": b"a 1\nno graph"}, "not a msgpack map"),
        ({"data": b"b 1\n"}, "the bytes are not those of attempt 1 of node a"),
    ],
    ids=["a function", "code that did not come", "an option", "no graph", "bytes of another node"],
)
def test_wrong_nodes_fail_the_node_that_returned_them(root, given, words):
    root.submit(a="", b="a")
    root.coordinator.step(0)
    root.grow("east", "c", **given)
    root.coordinator.step(0)
    failure = root.record().nodes["a"].failure
    assert (failure.reason, root.states()["b"]) == (Reason.GROWTH_REFUSED, "SKIPPED")
    assert failure.message.startswith("a returned nodes that cannot be added: ")
    assert words in failure.message
