"""One mesh in virtual time: the production scheduler on simulated nodes and agents, with faults drawn from a seed.

The world carries out the scheduler's orders as a cluster would, each after a random delay: groups are made or not,
agents start or refuse, tasks save their state and stop, nodes die and return. The world checks the scheduler's invariants after
every step. A task has a fixed amount of work; work done before the last saved state survives a stop.

Source: TigerBeetle's simulator. The code under test is production code; only clock, cluster and users are simulated.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from mesh.core.ids import NodeName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.tasks import events
from mesh.tasks.decisions import CreateGroup, Decision, EndTask, RemoveGroup, StartTask, StopTask
from mesh.tasks.scheduler import MeshScheduler

TICK_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Submission of a task."""

    at_ms: int
    request: TaskRequest
    work_ms: int  #: Total run time that the task needs.
    keeps_every_ms: int = 0  #: Interval in which the task saves its state; 0: only when asked to stop.


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """Node and its resources."""

    node: NodeName
    total: ResourceSet
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshFaults:
    """Fault probabilities: per start, per group, or per second of virtual time."""

    refuse_start: float = 0.0
    fail_group: float = 0.0
    lose_agent: float = 0.0  #: Per second: one running agent dies.
    lose_node: float = 0.0  #: Per second: a node dies and returns after ten seconds.
    answer_twice: float = 0.0  #: An event is delivered again a moment later.
    answer_ms_max: int = 50  #: Longest time that an order takes.


@dataclass(slots=True)
class _Run:
    """Running attempt."""

    attempt: int
    since_ms: int
    node: NodeName


def _look_away(_: MeshWorld) -> None:
    """Do nothing; the default of `watch`."""


class MeshWorld:
    """Simulation of one mesh. `run` moves time from event to event until none is left.

    Args:
        checked: Check the scheduler's invariants after each step; each check walks the whole state.
    """

    def __init__(
        self,
        scheduler: MeshScheduler,
        nodes: Iterable[SimulatedNode],
        pools: Iterable[PoolSpec],
        *,
        seed: int = 0,
        faults: MeshFaults | None = None,
        checked: bool = True,
    ) -> None:
        self.scheduler = scheduler
        self.now_ms = 0
        self.ends: dict[TaskId, Reason] = {}  #: End of each task; every task ends once.
        self.first_bound_ms: dict[TaskId, int] = {}  #: Time of each task's first placement.
        self.done_ms: dict[TaskId, int] = {}  #: Saved work.
        self.lost_ms = 0  #: Work that had to be repeated.
        self.preemptions = 0
        self.watch: Callable[[MeshWorld], None] = _look_away  #: Called after each step.
        self._nodes = {node.node: node for node in nodes}
        self._faults = faults or MeshFaults()
        self._random_stream = random.Random(seed)  # noqa: S311  a world that its seed gives again
        self._checked = checked
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._arrivals: dict[TaskId, Arrival] = {}
        self._running: dict[TaskId, _Run] = {}
        self._send(
            *(events.NodeJoined(at_ms=0, node=node.node, total=node.total, labels=node.labels) for node in self._nodes.values()),
            *(events.PoolConfigured(at_ms=0, spec=spec) for spec in pools),
        )

    def run(self, arrivals: Iterable[Arrival], *, until_ms: int) -> None:
        """Process all events. Raises `AssertionError` at the first step that breaks an invariant."""
        for arrival in arrivals:
            self._arrivals[arrival.request.task] = arrival
            self._at(arrival.at_ms, partial(self._arrive, arrival))
        self._at(TICK_MS, self._tick)
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, step = heapq.heappop(self._heap)
            step()
            self.watch(self)

    @property
    def is_over(self) -> bool:
        """Return whether every submitted task has ended."""
        return len(self.ends) == len(self._arrivals)

    # -- what happens --------------------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        self.done_ms[arrival.request.task] = 0
        self._send(events.TaskSubmitted(at_ms=self.now_ms, request=arrival.request))

    def _tick(self) -> None:
        if self._running and self._random_stream.random() < self._faults.lose_agent:
            task = self._random_stream.choice(sorted(self._running))
            attempt = self._running[task].attempt
            self._stop_running(task, keeps=False)
            self._send(events.AgentLost(at_ms=self.now_ms, task=task, attempt=attempt, detail="killed by the world"))
        if len(self._nodes) > 1 and self._random_stream.random() < self._faults.lose_node:
            self._lose_node(self._random_stream.choice(sorted(node for node in self._nodes if node in self.scheduler.state.table)))
        self._send(events.Ticked(at_ms=self.now_ms))
        if not self.is_over:
            self._at(self.now_ms + TICK_MS, self._tick)

    def _lose_node(self, node: NodeName) -> None:
        if len(self.scheduler.state.table) == 1:
            return
        for task in [task for task, run in self._running.items() if run.node == node]:
            self._stop_running(task, keeps=False)
        self._send(events.NodeLeft(at_ms=self.now_ms, node=node))
        again = self._nodes[node]
        self._at(
            self.now_ms + 10 * TICK_MS,
            lambda: self._send(events.NodeJoined(at_ms=self.now_ms, node=node, total=again.total, labels=again.labels)),
        )

    def _finish(self, task: TaskId, attempt: int) -> None:
        run = self._running.get(task)
        if run is not None and run.attempt == attempt:
            self._stop_running(task, keeps=True)
            self._send(events.TaskEnded(at_ms=self.now_ms, task=task, attempt=attempt))

    def _stop_running(self, task: TaskId, *, keeps: bool) -> None:
        """Stop the attempt. All its work is safe if it saves its state now, else the work up to its last own save."""
        run, every_ms = self._running.pop(task), self._arrivals[task].keeps_every_ms
        ran_ms = self.now_ms - run.since_ms
        safe_ms = ran_ms if keeps else (ran_ms // every_ms * every_ms if every_ms else 0)
        self.done_ms[task] += safe_ms
        self.lost_ms += ran_ms - safe_ms

    # -- orders --------------------------------------------------------------------------------------------------------

    def _send(self, *happened: events.Event) -> None:
        if happened and self._random_stream.random() < self._faults.answer_twice:
            self._at(self.now_ms + 1, lambda: self._send_again(*happened))
        self._send_again(*happened)

    def _send_again(self, *happened: events.Event) -> None:
        for decision in self.scheduler.handle(*happened):
            self._take(decision)
        found = self.scheduler.state.check() if self._checked else []
        assert not found, f"after {happened}: {found}"  # noqa: S101  what a simulation is for

    def _take(self, decision: Decision) -> None:
        if isinstance(decision, EndTask):
            assert decision.task not in self.ends, f"{decision.task} ended twice"  # noqa: S101  as above
            self.ends[decision.task] = decision.reason
        elif isinstance(decision, CreateGroup):
            self._note_place(self.scheduler.state.groups.records[decision.group].holder)
            self._answer(partial(self._make_group, decision))
        elif isinstance(decision, RemoveGroup):
            self._answer(lambda: self._send(events.GroupGone(at_ms=self.now_ms, group=decision.group)))
        elif isinstance(decision, StartTask):
            self._note_place(decision.task)
            self._answer(partial(self._start, decision))
        elif isinstance(decision, StopTask):
            self.preemptions += decision.reason is Reason.PREEMPTED
            self._answer(partial(self._stop, decision))

    def _note_place(self, task: TaskId | None) -> None:
        if task is not None:
            self.first_bound_ms.setdefault(task, self.now_ms)

    def _make_group(self, order: CreateGroup) -> None:
        if self._random_stream.random() < self._faults.fail_group:
            self._send(events.GroupFailed(at_ms=self.now_ms, group=order.group, detail="the simulation refuses the group"))
        else:
            self._send(events.GroupReady(at_ms=self.now_ms, group=order.group, nodes=order.nodes))

    def _start(self, order: StartTask) -> None:
        record = self.scheduler.state.records.get(order.task)
        is_wanted = record is not None and record.attempt == order.attempt and record.node == order.node
        if not is_wanted or self._random_stream.random() < self._faults.refuse_start:
            refusal = events.TaskRefused(
                at_ms=self.now_ms,
                task=order.task,
                attempt=order.attempt,
                reason=Reason.START_FAILED,
                detail="the simulation refuses the start",
            )
            self._send(refusal)
            return
        assert order.task not in self._running, f"{order.task} runs twice"  # noqa: S101  as above
        self._running[order.task] = _Run(order.attempt, self.now_ms, order.node)
        left_ms = max(0, self._arrivals[order.task].work_ms - self.done_ms[order.task])
        self._at(self.now_ms + left_ms, partial(self._finish, order.task, order.attempt))
        self._send(events.TaskStarted(at_ms=self.now_ms, task=order.task, attempt=order.attempt, agent=order.agent))

    def _stop(self, order: StopTask) -> None:
        run = self._running.get(order.task)
        if run is not None and run.attempt == order.attempt:
            self._stop_running(order.task, keeps=order.keep_state)
        self._send(events.TaskStopped(at_ms=self.now_ms, task=order.task, attempt=order.attempt))

    def _answer(self, step: Callable[[], None]) -> None:
        """Deliver the event of an order after a random delay."""
        self._at(self.now_ms + self._random_stream.randint(0, self._faults.answer_ms_max), step)

    def _at(self, at_ms: int, step: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at_ms, next(self._order), step))
