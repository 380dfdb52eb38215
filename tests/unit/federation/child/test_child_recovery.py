"""Recovery of a child whose predecessor died, on the same store and host."""

from __future__ import annotations

import json

import pytest

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON, ChildMesh
from federation.dispatch import STAGE_MESSAGES
from federation.errors import StoreUnavailable
from federation.leases import TargetUpdate
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.wire import decode
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.messages import NodeSucceeded, StageLost
from mesh.stages.simulated_host import SimulatedHost
from mesh.stages.spec import StageSpec, TaskSpec

CPU = ResourceSet.of({"cpu": 1})
TTL_MS, GRACE_MS, HEARTBEAT_MS = 30_000, 10_000, 3_000
DURATION_MS = 100


class Deaf:
    """Store whose named methods do not answer."""

    def __init__(self, store):
        self._store = store
        self.down = set()

    def __getattr__(self, name):
        if name in self.down:
            raise StoreUnavailable(f"{name} was not answered")
        return getattr(self._store, name)


class World:
    """A store and a host that outlive every child."""

    def __init__(self, cpus=4, duration_ms=DURATION_MS, quota=4):
        self.clock = ManualClock(1_000_000)
        self.store = MemoryStore(clock=self.clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        self.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=quota * 10_000)})]))
        self.deaf = Deaf(self.store)
        self.reports = []
        self.host = SimulatedHost(self.reports.append, self.clock, lambda _task: (duration_ms, False))
        self.begin(cpus)
        self.child.heartbeat()

    def begin(self, cpus=4):
        """Replace the child's process; unsent reports of the first are lost."""
        self.reports = []
        self.host.listen(self.reports.append)
        pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": cpus}))
        self.child = ChildMesh(
            record=MeshRecord(mesh="east", labels={}, pools=(pool,), cluster="c1"),
            ledger=self.deaf,
            queue=self.deaf,
            blobs=self.deaf,
            host=self.host,
            clock=self.clock,
            heartbeat_ms=HEARTBEAT_MS,
        )

    def restart(self, after_ms=HEARTBEAT_MS, cpus=4):
        """Replace the child's process and send the first heartbeat, this long after the last."""
        self.begin(cpus)
        self.clock.advance(after_ms)
        self.child.heartbeat()

    def submit(self, name="s", *tasks, priority=0, preemption=NEVER_PREEMPTS):
        made = []
        for text in tasks or ("a:",):
            node, _, needs = text.partition(":")
            made.append(TaskSpec(node=node, attempt=1, function="call:m:f", inputs=tuple(needs.split()), resources=CPU))
        spec = StageSpec(stage=name, run="r", tenant="acme", tasks=tuple(made), slot=CPU, width=1, priority=priority, preemption=preemption)
        self.store.submit("east", spec)

    def run(self, name="s", *tasks):
        """Start a stage and drop its messages so far."""
        self.submit(name, *tasks)
        self.heartbeat()
        self.advance(0)
        self.kinds()

    def heartbeat(self):
        self.clock.advance(self.child.due_in_ms())
        self.child.heartbeat()

    def advance(self, by_ms=DURATION_MS):
        """Let time pass and the host do what is due."""
        self.clock.advance(by_ms)
        self.host.advance()

    def hear(self):
        """Pass the host's reports to the child."""
        while self.reports:
            self.child.take_report(self.reports.pop(0))

    def work(self):
        for pause_ms in (0, DURATION_MS):
            self.advance(pause_ms)
            self.hear()

    def messages(self):
        entries = self.store.inbox(0)
        self.store.acknowledge(tuple(entry.entry for entry in entries))
        return [message for entry in entries for message in decode(STAGE_MESSAGES, entry.body)]

    def kinds(self):
        return [message.kind for message in self.messages()]

    def incarnation(self):
        (view,) = self.store.snapshot().meshes
        return view.incarnation

    def held(self):
        return sum(lease.amounts["cpu"] for lease in self.store.snapshot().leases) // 10_000

    def claims(self):
        (view,) = self.store.snapshot().meshes
        return view.claimed


@pytest.fixture
def world():
    """A world whose stage `s` runs."""
    world = World()
    world.run()
    return world


def test_stage_continues_in_the_new_session_and_ends_once(world):
    before = world.incarnation()
    world.restart()
    assert world.incarnation() > before
    assert (set(world.host.stages), world.held(), world.claims()) == ({"s"}, 1, 1)
    world.work()
    assert world.kinds() == ["node_started", "node_succeeded", "stage_ended"]
    world.heartbeat()
    world.heartbeat()
    world.heartbeat()
    assert (world.claims(), world.held(), world.store.audit(), world.host.find().stages) == (0, 0, (), ())


def test_resumed_stage_keeps_its_capacity_and_lease_share():
    world = World(cpus=1)
    world.run()
    world.submit("t")
    world.restart(cpus=1)
    assert set(world.host.stages) == {"s"}
    world.work()
    world.child.heartbeat()
    assert set(world.host.stages) == {"t"}


def test_next_process_reports_unreported_events(world):
    world.advance()  # The dead child had the host's report and did not pass it on.
    world.restart()
    world.hear()
    assert world.kinds() == ["node_started", "node_succeeded", "stage_ended"]


def test_next_process_does_not_repeat_reported_events(world):
    world.submit("t", "a:", "b: a")
    world.heartbeat()
    world.kinds()
    confirm, world.host.confirm = world.host.confirm, lambda _stage, _number: None
    world.work()
    first = world.messages()
    world.host.confirm = confirm
    world.restart()
    world.work()
    nodes = [message.node for message in (*first, *world.messages()) if isinstance(message, NodeSucceeded) and message.stage == "t"]
    assert nodes == ["a", "b"]
    assert world.host.find().stages == ()


def test_next_process_reports_an_unreported_start():
    world = World()
    world.submit()
    world.deaf.down = {"report"}
    world.heartbeat()
    world.deaf.down = set()
    world.restart()
    world.work()
    assert world.kinds()[0] == "stage_started"


def test_a_stage_that_the_store_no_longer_gives_is_stopped(world):
    world.store.forget("r", ())
    world.restart()
    assert world.host.stopping == {"s"}
    world.work()
    assert world.host.stages == set()
    assert (world.kinds(), world.host.find().stages) == ([], ())


def test_stage_being_stopped_stays_charged_until_it_stops():
    world = World(quota=1)
    world.run()
    world.store.forget("r", ())
    world.store.release_id("r")
    world.submit("t")
    world.restart()
    assert (set(world.host.stages), world.held()) == ({"s"}, 1)
    world.heartbeat()
    world.heartbeat()
    world.heartbeat()
    assert (set(world.host.stages), world.held()) == ({"s"}, 1)  # It is not idle, and no stage starts in its place.
    world.work()
    assert (set(world.host.stages), world.held()) == ({"t"}, 1)


def test_resumed_stage_is_not_stopped_for_one_being_stopped():
    world = World(quota=2, duration_ms=10 * TTL_MS)
    world.run("s")
    world.run("t")
    planner = world.store.elect("p", 60_000)
    target_update = TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=CPU)
    world.store.plan_apply(planner, world.store.snapshot().version, (target_update,))
    world.restart(cpus=1)
    assert world.host.stopping == {"t"}
    world.work()
    world.heartbeat()
    assert (set(world.host.stages), world.held()) == ({"s"}, 1)


@pytest.mark.parametrize("min_run_ms", [TTL_MS, 10 * TTL_MS], ids=["shorter than usual", "longer than usual"])
def test_resumed_stage_restarts_its_minimum_run_time(min_run_ms):
    world = World(duration_ms=100 * TTL_MS)
    world.submit(preemption=PreemptionPolicy(min_run_ms=min_run_ms))
    world.heartbeat()
    world.restart()
    began_ms = world.clock.monotonic_ms()
    target_update = TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=NOTHING, wait_ms=20 * TTL_MS)
    world.store.plan_apply(world.store.elect("p", 60_000), world.store.snapshot().version, (target_update,))
    while not world.host.stopping:
        world.heartbeat()
    assert world.clock.monotonic_ms() - began_ms == min_run_ms


def test_claim_without_a_runner_is_returned(world):
    world.host.stop_all()
    world.heartbeat()
    world.restart()
    (lost,) = [message for message in world.messages() if isinstance(message, StageLost)]
    assert (lost.stage, lost.reason, world.claims()) == ("s", Reason.WORKER_LOST, 0)


def test_stage_cancelled_during_the_gap_is_stopped():
    world = World(duration_ms=10 * TTL_MS)
    world.run()
    world.store.cancel("s")
    world.restart()
    world.work()
    assert world.kinds()[-2:] == ["node_failed", "stage_ended"]


def test_stage_preempted_before_the_restart_runs_again(world):
    world.host.cancel("s")
    world.restart()
    world.work()
    (lost,) = [message for message in world.messages() if isinstance(message, StageLost)]
    assert lost.reason is Reason.QUOTA_RECLAIMED


def test_stage_preempted_and_still_running_is_asked_again():
    world = World(duration_ms=10 * TTL_MS)
    world.run()
    world.host.cancel("s")
    asked = []
    world.host.cancel = asked.append
    world.restart()
    assert asked == ["s"]


def test_reports_of_an_earlier_process_are_not_offered_again():
    world = World(duration_ms=10 * TTL_MS)
    world.run()
    world.restart()
    asked, resume = [], world.store.resume

    def note(session, claims):
        asked.extend(claims)
        return resume(session, claims)

    world.store.resume = note
    world.store.restart()
    world.heartbeat()
    assert [(held.claim.stage, held.is_whole, held.has_ended) for held in asked] == [("s", False, False)]


def test_input_delivered_during_the_gap_arrives(world):
    world.run("t", "b: x")
    world.store.deliver("t", "x", None)
    world.restart()
    world.work()
    assert world.claims() == 0


def test_smaller_mesh_returns_stages_that_do_not_fit():
    world = World(duration_ms=10 * TTL_MS)
    world.run("s")
    world.run("t")
    world.restart(cpus=1)
    assert [message.stage for message in world.messages() if isinstance(message, StageLost)] == ["t"]
    assert world.host.stopping == {"t"}
    world.work()
    assert (set(world.host.stages), [message.kind for message in world.messages() if message.stage == "t"]) == ({"s"}, [])


def test_expired_session_is_not_resumed(world):
    world.restart(after_ms=TTL_MS + 1)
    assert world.host.is_empty
    assert world.kinds() == ["stage_lost"]
    world.submit("t")
    world.heartbeat()
    assert set(world.host.stages) == {"t"}


def test_no_stage_is_resumed_while_the_ledger_recovers(world):
    world.store.restart()
    world.restart()
    assert world.host.is_empty


def test_recovery_waits_for_a_store_that_does_not_answer(world):
    before = world.incarnation()
    world.deaf.down = {"join"}
    world.restart()
    world.deaf.down = {"claims_of"}  # This join took effect.
    world.heartbeat()
    assert world.host.stopping == set()
    world.deaf.down = set()
    world.heartbeat()
    assert (set(world.host.stages), world.incarnation() > before) == ({"s"}, True)
    world.work()
    assert world.kinds()[-1] == "stage_ended"


def test_successive_restarts_keep_the_work_proved(world):
    for _ in range(3):
        world.restart()
    world.heartbeat()
    world.work()
    assert world.kinds()[-1] == "stage_ended"


def test_only_a_process_without_a_session_resumes(world):
    world.store.join(MeshRecord(mesh="east", labels={}, pools=(), cluster="c1"))  # Another process speaks for the mesh now.
    world.child.heartbeat()
    assert world.host.is_empty
    world.heartbeat()
    assert world.kinds() == ["stage_lost"]


def test_values_of_runs_ended_during_the_gap_are_dropped(world):
    world.work()
    world.store.forget("r", ())
    world.restart()
    assert not world.host.is_empty
    for _ in range(HEARTBEATS_PER_COMPARISON):
        world.heartbeat()
    assert world.host.is_empty


def test_stage_note_is_json(world):
    (stage,) = world.host.find().stages
    assert json.loads(stage.note)["pool"] == "general"
