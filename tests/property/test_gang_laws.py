"""Laws of gangs: whole or nothing, no victim in vain, no starvation by small work."""

from __future__ import annotations

import hypothesis.strategies as st
from examples_of_laws import examples
from hypothesis import given, settings

from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.preemption.rules import PreemptionRules
from mesh.tasks import events
from mesh.tasks.decisions import Decision, StartTask, StopTask
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings

POOL = PoolName("p")
RULES = PreemptionRules(threshold=0.0, min_run_ms=0, kappa_per_s=0.0, lost_work_per_s=0.0)


def cpus(count: float) -> ResourceSet:
    return ResourceSet.of({"cpu": count})


class Cluster:
    """Nodes of some CPUs, and a mesh that hears of its starts at once."""

    def __init__(self, sizes: list[int], rules: SchedulerSettings) -> None:
        self.mesh = MeshScheduler(rules)
        self.now_ms = 0
        self.started: list[str] = []
        nodes = [events.NodeJoined(at_ms=0, node=NodeName(f"n{index}"), total=cpus(size)) for index, size in enumerate(sizes)]
        self.report(*nodes, events.PoolConfigured(at_ms=0, spec=PoolSpec(pool=POOL, capacity=cpus(sum(sizes)))))

    def report(self, *happened: events.Event) -> list[Decision]:
        self.now_ms += 1
        decisions = self.mesh.handle(*happened)
        assert self.mesh.state.check() == []
        for decision in decisions:
            if isinstance(decision, StartTask):
                self.started.append(decision.task)
                self.report(events.TaskStarted(at_ms=self.now_ms, task=decision.task, attempt=decision.attempt, agent=decision.agent))
        return decisions

    def submit(self, name: str, count: float, priority: float, **request: object) -> list[Decision]:
        wanted = {"task": TaskId(name), "pool": POOL, "resources": cpus(count), "priority": priority, **request}
        return self.report(events.TaskSubmitted(at_ms=self.now_ms, request=TaskRequest(**wanted)))

    def over(self, kind: type[events.TaskEnded | events.TaskStopped], task: str) -> None:
        self.report(kind(at_ms=self.now_ms, task=TaskId(task), attempt=self.mesh.state.records[TaskId(task)].attempt))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    low=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.booleans()), max_size=8),
    members=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    several=st.booleans(),
    strategy=st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(120))
def test_victims_of_a_gang_stop_for_one_that_starts_whole(sizes, low, members, several, strategy, order):
    cluster = Cluster(sizes, SchedulerSettings(rules=RULES))
    for index, (count, priority, preemptible) in enumerate(low):
        cluster.submit(f"low{index}", count, float(priority), preemptible=preemptible)
    decisions: list[Decision] = []
    if several:
        gang = ["wide"]
        decisions = cluster.submit("wide", 1, 7.0, bundles=tuple(map(cpus, members)), strategy=strategy)
    else:
        gang = [f"g{index}" for index in range(len(members))]
        for name, count in zip(gang, members, strict=True):
            decisions = cluster.submit(name, count, 7.0, gang="g", gang_size=len(members))
    victims = [stop.task for stop in decisions if isinstance(stop, StopTask) and stop.by in gang]
    assert all(cluster.mesh.state.shapes.base_priority(cluster.mesh.state.records[victim].request) < 7 for victim in victims)
    order.shuffle(victims)
    for victim in victims:
        assert all(cluster.mesh.state.records[TaskId(name)].node is None for name in gang), "it starts in parts"
        cluster.over(events.TaskStopped, victim)
    placed = {name for name in gang if cluster.mesh.state.records[TaskId(name)].node is not None}
    assert placed in (set(), set(gang))
    assert not victims or placed == set(gang)
    assert not victims or not cluster.mesh.state.evictions.keys() & set(gang)


@given(
    count=st.integers(1, 3),
    members=st.integers(1, 4),
    order=st.randoms(use_true_random=False),
    estimates=st.lists(st.sampled_from([None, 1, 40, 4_000]), min_size=1, max_size=5),
)
@settings(max_examples=examples(60))
def test_a_gang_starts_within_as_many_ends_as_small_slots(count, members, order, estimates):
    cluster = Cluster([4, 4, 4], SchedulerSettings(rules=RULES, reserve_after_ms=50))
    small = [f"s{index}" for index in range(12)]
    for index, name in enumerate(small):
        cluster.submit(name, 1, 5.0, preemptible=False, estimated_ms=estimates[index % len(estimates)])
    size = min(members, 3 * (4 // count))
    for index in range(size):
        cluster.submit(f"g{index}", count, 5.0, gang="g", gang_size=size)
    cluster.now_ms += 100  # After a second wait nothing is lent any more.
    cluster.report(events.Ticked(at_ms=cluster.now_ms))
    cluster.now_ms += 100
    cluster.report(events.Ticked(at_ms=cluster.now_ms))
    for turn in range(12):
        if "g0" in cluster.started:
            break
        running = [task for task, record in cluster.mesh.state.records.items() if record.node is not None]
        cluster.submit(f"next{turn}", 1, 5.0, preemptible=False, estimated_ms=estimates[turn % len(estimates)])
        # Single CPUs come free anywhere; a node is empty once its first tasks have ended.
        cluster.over(events.TaskEnded, order.choice(running) if count == 1 else running[0])
    assert "g0" in cluster.started
    assert not cluster.mesh.state.reservations or cluster.mesh.state.reservations[POOL].task != "g0"
