"""Laws of the local scheduler under any order of events: consistent ledgers, nothing lost, nothing run twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
from examples_of_laws import examples
from hypothesis import given, settings

from mesh.core.ids import JobId, LabelName, NodeName, PoolName, TaskId
from mesh.core.json_codec import json_text
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.core.task_spec import TERMINAL, TaskRequest, TaskState
from mesh.preemption.rules import PreemptionRules
from mesh.tasks import events
from mesh.tasks.decisions import CreateGroup, Decision, EndTask, RemoveGroup, StartTask, StopTask
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings

EAGER = SchedulerSettings(
    rules=PreemptionRules(threshold=0.0, min_run_ms=0, kappa_per_s=0.0, cross_pool=True), reservation_timeout_ms=20, reserve_after_ms=25
)


def cpus(count: float) -> ResourceSet:
    return ResourceSet.of({"cpu": count})


GROUPED = PoolSpec(
    pool=PoolName("grouped"), capacity=cpus(6), groups=GroupPoolSpec(reserved=(GroupShape((cpus(1),)),), max_dynamic=4, idle_ms=10)
)
PLAIN = PoolSpec(pool=PoolName("plain"), capacity=cpus(5), policy="binpack")


@dataclass
class World:
    """A mesh and a cluster that carries out its orders in any order, or not at all."""

    mesh: MeshScheduler
    twin: MeshScheduler | None = None  #: Restored from a snapshot of the mesh; it must decide alike.
    now_ms: int = 0
    orders: list[Decision] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)  #: Task to its running attempt.
    submitted: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)

    def report(self, *happened: events.Event) -> None:
        decisions = self.mesh.handle(*happened)
        if self.twin is not None:
            assert self.twin.handle(*happened) == decisions
        for decision in decisions:
            if isinstance(decision, EndTask):
                assert decision.task not in self.ended, f"{decision.task} ended twice"
                self.ended.append(decision.task)
            elif isinstance(decision, (CreateGroup, RemoveGroup, StartTask, StopTask)):
                self.orders.append(decision)
        assert self.mesh.state.check() == []

    def carry_out(self, order: Decision, well: bool) -> None:
        if isinstance(order, CreateGroup):
            self.report(
                events.GroupReady(at_ms=self.now_ms, group=order.group, nodes=order.nodes)
                if well
                else events.GroupFailed(at_ms=self.now_ms, group=order.group, detail="no")
            )
        elif isinstance(order, RemoveGroup):
            self.report(events.GroupGone(at_ms=self.now_ms, group=order.group))
        elif isinstance(order, StartTask):
            record = self.mesh.state.records.get(order.task)
            started = events.TaskStarted(at_ms=self.now_ms, task=order.task, attempt=order.attempt, agent=order.agent)
            where = None if record is None else self.mesh.state.tasks.state_of(order.task)
            if record is None or record.attempt != order.attempt or where is not TaskState.SWAP:
                before = len(self.orders)
                self.report(started)  # Nobody waits for it any more.
                assert [(stop.task, stop.attempt) for stop in self.orders[before:] if isinstance(stop, StopTask)] == [
                    (order.task, order.attempt)
                ]
            elif well:
                assert order.task not in self.running, f"{order.task} runs twice"
                self.running[order.task] = order.attempt
                self.report(started)
            else:
                refused = Reason.WORKER_LOST
                self.report(events.TaskRefused(at_ms=self.now_ms, task=order.task, attempt=order.attempt, reason=refused, detail="no"))
        elif isinstance(order, StopTask):
            if self.running.get(order.task) == order.attempt:
                del self.running[order.task]
            self.report(events.TaskStopped(at_ms=self.now_ms, task=order.task, attempt=order.attempt))


STEPS = (
    "submit",
    "order",
    "order",
    "order",
    "fail an order",
    "end",
    "lose",
    "cancel",
    "requeue",
    "node",
    "no node",
    "tick",
    "resize",
    "again",
)


@given(st.data(), st.integers(0, 3))
@settings(max_examples=examples(150))
def test_s12_no_task_is_lost_or_run_twice_and_ledgers_agree(data: st.DataObject, seed: int):
    world = World(MeshScheduler(EAGER, seed=seed))
    world.report(
        *(events.NodeJoined(at_ms=0, node=NodeName(f"n{index}"), total=cpus(4), labels={"zone": "ab"[index % 2]}) for index in range(2)),
        events.PoolConfigured(at_ms=0, spec=GROUPED),
        events.PoolConfigured(at_ms=0, spec=PLAIN),
        events.LabelConfigured(at_ms=0, label=LabelName("gold"), priority=2.0),
    )
    for _ in range(data.draw(st.integers(1, 40))):
        world.now_ms += data.draw(st.integers(0, 15))
        _step(world, data)
        if data.draw(st.integers(0, 9)) == 0:
            written = json_text(world.mesh.to_snapshot())
            world.twin = MeshScheduler.from_snapshot(json.loads(written))
            assert json_text(world.twin.to_snapshot()) == written
    _finish(world)


def _step(world: World, data: st.DataObject) -> None:  # noqa: C901  a table of what can happen, by its name
    step = data.draw(st.sampled_from(STEPS))
    state, now_ms = world.mesh.state, world.now_ms
    known = sorted(state.records)
    if step == "submit":
        world.report(*_submissions(world, data))
    elif step in ("order", "fail an order") and world.orders:
        order = world.orders.pop(data.draw(st.integers(0, len(world.orders) - 1)))
        world.carry_out(order, step == "order")
    elif step in ("end", "lose") and world.running:
        task = data.draw(st.sampled_from(sorted(world.running)))
        attempt = world.running.pop(task)
        if step == "end":
            world.report(events.TaskEnded(at_ms=now_ms, task=TaskId(task), attempt=attempt, error=data.draw(st.sampled_from(["", "boom"]))))
        else:
            world.report(events.AgentLost(at_ms=now_ms, task=TaskId(task), attempt=attempt, detail="gone"))
    elif step in ("cancel", "requeue") and known:
        task = TaskId(data.draw(st.sampled_from(known)))
        world.report(events.TaskCancelled(at_ms=now_ms, task=task, requeue=step == "requeue", destroy_group=data.draw(st.booleans())))
    elif step == "node":
        world.report(events.NodeJoined(at_ms=now_ms, node=NodeName("n9"), total=cpus(data.draw(st.integers(1, 6))), labels={"zone": "a"}))
    elif step == "no node":
        _lose_node(world, NodeName(data.draw(st.sampled_from(["n1", "n9"]))))
    elif step == "tick":
        world.report(events.Ticked(at_ms=now_ms))
    elif step == "resize":
        world.report(events.PoolConfigured(at_ms=now_ms, spec=PoolSpec(pool=PLAIN.pool, capacity=cpus(data.draw(st.integers(1, 6))))))
    elif step == "again" and known:
        world.report(events.TaskSubmitted(at_ms=now_ms, request=state.records[TaskId(known[0])].request))


def _lose_node(world: World, node: NodeName) -> None:
    groups = {group.group for group in world.mesh.state.groups.on_node(node)}  # A task of several bundles is lost with one of them.
    for task in [task for task, record in world.mesh.state.records.items() if record.node == node or record.group in groups]:
        world.running.pop(task, None)
    world.report(events.NodeLeft(at_ms=world.now_ms, node=node))


def _submissions(world: World, data: st.DataObject) -> list[events.Event]:
    size = data.draw(st.sampled_from([0, 0, 0, 2, 3]))
    count = len(world.submitted)
    names = [f"t{count + index}" for index in range(max(1, size))]
    world.submitted.update(names)
    pool = data.draw(st.sampled_from([GROUPED.pool, PLAIN.pool]))
    shape = {
        "pool": pool,
        "resources": cpus(data.draw(st.sampled_from([0.5, 1, 2, 9]))),
        "label": LabelName(data.draw(st.sampled_from(["", "gold"]))),
        "priority": float(data.draw(st.integers(1, 9))),
        "selector": {"zone": "a"} if data.draw(st.integers(0, 4)) == 0 else {},
        "max_restarts": data.draw(st.sampled_from([0, 1, -1])),
        "preemptible": data.draw(st.booleans()),
        "job": JobId("j") if data.draw(st.booleans()) else None,
        "gang": f"gang{count}" if size else "",
        "gang_size": size,
        "has_agent": pool == PLAIN.pool or data.draw(st.integers(0, 4)) > 0,
        "estimated_ms": data.draw(st.sampled_from([None, 1, 30])),
        "bundles": data.draw(st.sampled_from([(), (), (), (cpus(1), cpus(1))])),
        "strategy": data.draw(st.sampled_from(["PACK", "STRICT_PACK", "STRICT_SPREAD"])),
        "after": (TaskId(f"t{count - 1}"),) if count and data.draw(st.integers(0, 5)) == 0 else (),
    }
    return [events.TaskSubmitted(at_ms=world.now_ms, request=TaskRequest(task=TaskId(name), **shape)) for name in names]


def _finish(world: World) -> None:
    """Add room and let everything succeed: all that can run ends, and only reservations are held then."""
    world.report(
        events.NodeJoined(at_ms=world.now_ms, node=NodeName("n8"), total=cpus(60), labels={"zone": "a"}),
        *(events.PoolConfigured(at_ms=world.now_ms, spec=replace(spec, capacity=cpus(60))) for spec in (GROUPED, PLAIN)),
    )
    for _ in range(600):
        if world.orders:
            world.carry_out(world.orders.pop(0), well=True)
            continue
        bare = [task for task, record in world.mesh.state.records.items() if not record.request.has_agent and record.node is not None]
        if world.running:
            task, attempt = world.running.popitem()
            world.report(events.TaskEnded(at_ms=world.now_ms, task=TaskId(task), attempt=attempt))
        elif bare:
            world.report(events.TaskCancelled(at_ms=world.now_ms, task=bare[0]))
        else:
            world.now_ms += 100
            world.report(events.Ticked(at_ms=world.now_ms))
            if not world.orders and not world.running:
                break
    state = world.mesh.state
    left = {task: state.tasks.state_of(task) for task in state.records}
    assert all(where in (TaskState.INFEASIBLE, TaskState.WAITING) or _waits_for_a_gang(world, task) for task, where in left.items()), left
    assert set(world.ended) | set(left) == world.submitted
    assert all(state.ended[TaskId(task)] in TERMINAL for task in world.ended)
    assert not state.evictions
    assert not state.reservations
    assert {holder for pool in state.pools.pools.values() for holder in (*pool.reservations, *pool.uses)} <= {
        f"group:{group}" for group in state.groups.records
    }


def _waits_for_a_gang(world: World, task: TaskId) -> bool:
    request = world.mesh.state.records[task].request
    return bool(request.gang) and len(world.mesh.state.relations.members(request.gang)) < request.gang_size
