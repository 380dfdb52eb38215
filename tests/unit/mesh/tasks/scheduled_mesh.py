"""Scheduler that tests drive event by event. It records its decisions and checks its ledgers after each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest, TaskState
from mesh.preemption.rules import PreemptionRules
from mesh.tasks import events
from mesh.tasks.decisions import CreateGroup, Decision, StartTask
from mesh.tasks.explaining import explain_task
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings

POOL = PoolName("pool")
RULES = PreemptionRules(min_run_ms=0, kappa_per_s=0.0, lost_work_per_s=0.0)


def cpus(count: float, **more: Any) -> ResourceSet:
    return ResourceSet.of({"cpu": count, **more})


class Mesh:
    """Scheduler whose clock moves a millisecond per call; its invariants are checked after each."""

    def __init__(self, settings: SchedulerSettings | None = None) -> None:
        self.scheduler = MeshScheduler(settings or SchedulerSettings(rules=RULES))
        self.now_ms = 0

    def send(self, kind: Callable[..., events.Event], **values: Any) -> list[Decision]:
        self.now_ms += 1
        decisions = self.scheduler.handle(kind(at_ms=self.now_ms, **values))
        assert self.scheduler.state.check() == []
        return decisions

    def node(self, name: str, total: ResourceSet, **labels: str) -> list[Decision]:
        return self.send(events.NodeJoined, node=NodeName(name), total=total, labels=labels)

    def pool(self, capacity: ResourceSet, **spec: Any) -> list[Decision]:
        return self.send(events.PoolConfigured, spec=PoolSpec(**{"pool": POOL, "capacity": capacity, "policy": "binpack", **spec}))

    def submit(self, name: str, count: float = 1, **request: Any) -> list[Decision]:
        wanted = {"task": TaskId(name), "pool": POOL, "resources": cpus(count), **request}
        return self.send(events.TaskSubmitted, request=TaskRequest(**wanted))

    def started(self, name: str) -> list[Decision]:
        record = self.scheduler.state.records[TaskId(name)]
        return self.send(events.TaskStarted, task=TaskId(name), attempt=record.attempt, agent=record.agent)

    def run(self, name: str, count: float = 1, **request: Any) -> None:
        """Submit a task, make its group, and start it."""
        for order in of(CreateGroup, self.submit(name, count, **request)):
            self.send(events.GroupReady, group=order.group, nodes=order.nodes)
        self.started(name)

    def stopped(self, name: str) -> list[Decision]:
        return self.send(events.TaskStopped, task=TaskId(name), attempt=self.scheduler.state.records[TaskId(name)].attempt)

    def ended(self, name: str, error: str = "") -> list[Decision]:
        return self.send(events.TaskEnded, task=TaskId(name), attempt=self.scheduler.state.records[TaskId(name)].attempt, error=error)

    def state_of(self, name: str) -> TaskState:
        return self.scheduler.state.tasks.state_of(TaskId(name))

    def why(self, name: str) -> Reason | None:
        return explain_task(self.scheduler.state, TaskId(name), self.now_ms).reason


def of(kind: type[Any], decisions: list[Decision]) -> list[Any]:
    return [decision for decision in decisions if isinstance(decision, kind)]


def starts(decisions: list[Decision]) -> list[tuple[str, str]]:
    return [(start.task, start.reason.value) for start in of(StartTask, decisions)]
