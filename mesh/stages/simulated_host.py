"""Stage host without Ray, in virtual time: for tests and simulation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from mesh.core.clock import Clock
from mesh.core.ids import GroupId, MeshId, NodeId, NodeName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.seen_nodes import NodeSeen
from mesh.core.values import Encoding, StoredValue
from mesh.stages.hosting import ANYWHERE, LAST_WORD, Delivered, FoundStages, GroupLayers, HeldStage, HostReport, Places
from mesh.stages.lease_deadline import DeadlineState, LeaseDeadline, Renewal
from mesh.stages.messages import (
    Failure,
    InputLost,
    NodeFailed,
    NodesSucceeded,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageMessage,
    StageResized,
)
from mesh.stages.spec import StageSpec, TaskSpec

#: Behaviour of a simulated task: how long it takes, and whether it fails.
Behaviour = Callable[[TaskSpec], tuple[int, bool]]
#: Called when a task of a run starts.
StartListener = Callable[[RunId, TaskSpec], None]
_SOME_MESH = MeshId("some")


def value_of(node: NodeId, inputs: tuple[str, ...]) -> str:
    """Return the value of a simulated task. It depends on the node and on its inputs' values, so a wrong input shows at the end."""
    return hashlib.sha256(json.dumps([node, *inputs]).encode()).hexdigest()[:16]


@dataclass(slots=True)
class _Hosted:
    spec: StageSpec
    slots: int
    nodes: tuple[NodeName, ...] = ()  #: Nodes of the slots in no reserved group.
    groups: tuple[GroupId, ...] = ()  #: Reserved groups.
    retiring: int = 0  #: Slots to give back when they have no task.
    retired: int = 0  #: Slots that were given back.
    unreported: list[StageMessage] = field(default_factory=list)  #: For the next report.
    outside: dict[NodeId, str] = field(default_factory=dict)  #: Delivered values.
    withheld: set[NodeId] = field(default_factory=set)
    unreadable: set[NodeId] = field(default_factory=set)  #: Delivered without their bytes.
    running: dict[NodeId, int] = field(default_factory=dict)  #: End time of each running task.
    over: set[NodeId] = field(default_factory=set)  #: Reported or dropped.
    cancelled: bool = False


class SimulatedHost:
    """Runs the stages of one mesh by the clock; `advance` does what is due. Values are strings made by `value_of`.

    It outlives the child that uses it, as Ray's actors do: give it to another `ChildMesh`, and pass that one's callback to `listen`.
    """

    def __init__(
        self,
        report: Callable[[HostReport], None],
        clock: Clock,
        behaviour: Behaviour,
        mesh: MeshId = _SOME_MESH,
        on_start: StartListener = lambda _run, _task: None,
        *,
        in_columns: bool = False,
    ) -> None:
        self._in_columns = in_columns  #: Ends are reported together, and starts not.
        self._mesh = mesh
        self._on_start = on_start
        self._report = report
        self._clock = clock
        self.behaviour = behaviour
        self._stages: dict[StageId, _Hosted] = {}
        self._values: dict[tuple[RunId, NodeId], str] = {}
        self._runs: dict[RunId, StageId] = {}
        self._holder = 0
        self._notes: dict[StageId, HeldStage] = {}  #: Stages whose end is not confirmed.
        self._kept: dict[StageId, list[HostReport]] = {}  #: Unconfirmed reports.
        self._numbers: dict[StageId, int] = {}
        self._line: tuple[int, int] | None = None  #: Incarnation of the last renewal, and the first of its chain.
        self._deadline: LeaseDeadline | None = None
        self._stamp_ms = 0
        self.is_there = True  #: Answer of `is_ready`; running work is not affected.
        self.listed: tuple[NodeSeen, ...] = ()  #: Answer of `nodes`.
        self.layers = GroupLayers()  #: The last call of `keep_groups`.
        self.looks = 0  #: Number of calls of `is_ready`.

    @property
    def stages(self) -> frozenset[StageId]:
        """Stages that run here."""
        return frozenset(self._stages)

    @property
    def stopping(self) -> frozenset[StageId]:
        """Running stages that are asked to stop."""
        return frozenset(stage for stage, hosted in self._stages.items() if hosted.cancelled)

    @property
    def running(self) -> frozenset[NodeId]:
        """Tasks that run here."""
        return frozenset(node for hosted in self._stages.values() for node in hosted.running)

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs and no value is kept."""
        return not self._stages and not self._values

    def slots_in_use(self, tenant: TenantPath) -> int:
        """Return the slots of the tenant's stages; stages without resources use none."""
        return sum(hosted.slots for hosted in self._stages.values() if hosted.spec.tenant == tenant and hosted.spec.slot)

    def start(
        self,
        spec: StageSpec,
        slots: int,
        token: int,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, Delivered],
        note: bytes = b"",
        places: Places = ANYWHERE,
    ) -> int:
        """Run the stage. One runner serves all tenants, so the holder stays the same until `stop_all`."""
        self._holder = self._holder or token
        self._stages[spec.stage] = _Hosted(spec=spec, slots=slots, nodes=places.nodes, groups=tuple(places.groups))
        self._runs.setdefault(spec.run, spec.stage)
        self._notes[spec.stage] = HeldStage(stage=spec.stage, note=note, holder=self._holder)
        assert not spec.blobs() - set(blobs)
        for node, value in inputs.items():
            self.deliver(spec.stage, node, value)
        return self._holder

    def grow(self, stage: StageId, slots: int, note: bytes, places: Places = ANYWHERE) -> None:
        hosted = self._stages.get(stage)
        if hosted is not None:
            self._notes[stage] = replace(self._notes[stage], note=note)
            hosted.slots, hosted.nodes = hosted.slots + slots, (*hosted.nodes, *places.nodes)
            hosted.groups = (*hosted.groups, *places.groups)
            if slots:
                hosted.unreported.append(self._resized(hosted))

    def shrink(self, stage: StageId, slots: int, *, at_once: bool = False) -> None:
        hosted = self._stages.get(stage)
        if hosted is None:
            return
        hosted.retiring = max(0, hosted.slots - max(1, slots))
        if at_once:
            reclaimed = Failure(reason=Reason.QUOTA_RECLAIMED, type_name="TaskCancelledError", message="its slot went back")
            tasks = {task.node: task for task in hosted.spec.tasks}
            for node in list(hosted.running)[hosted.slots - hosted.retiring :]:
                del hosted.running[node]
                hosted.over.add(node)
                hosted.unreported.append(self._failed(hosted, tasks[node], self._clock.wall_ms(), reclaimed))

    def _resized(self, hosted: _Hosted, gone: tuple[NodeName, ...] = (), groups: tuple[GroupId, ...] = ()) -> StageResized:
        return StageResized(stage=hosted.spec.stage, slots=hosted.slots, retired=hosted.retired, gone=gone, groups=groups)

    def _retire(self, hosted: _Hosted) -> list[StageMessage]:
        """Give back slots that are to retire and have no task."""
        free = min(hosted.retiring, hosted.slots - max(1, len(hosted.running)))
        if free <= 0:
            return []
        hosted.slots, hosted.retiring, hosted.retired = hosted.slots - free, hosted.retiring - free, hosted.retired + free
        beside = max(0, hosted.slots - len(hosted.groups))  # Reserved groups go last.
        gone, hosted.nodes = hosted.nodes[beside:], hosted.nodes[:beside]
        groups, hosted.groups = hosted.groups[hosted.slots :], hosted.groups[: hosted.slots]
        return [self._resized(hosted, gone, groups)]

    def deliver(self, stage: StageId, node: NodeId, value: Delivered) -> None:
        hosted = self._stages.get(stage)
        if hosted is None:
            return
        if value is None:
            hosted.withheld.add(node)
            return
        stored, data = value
        if data is None:
            hosted.unreadable.add(node)
            return
        assert hashlib.sha256(data).hexdigest() == stored.sha256
        hosted.outside[node] = json.loads(data)

    def keep_groups(self, layers: GroupLayers) -> None:
        self.layers = layers

    def cancel(self, stage: StageId) -> None:
        if stage in self._stages:
            self._stages[stage].cancelled = True
            self._notes[stage] = replace(self._notes[stage], is_cancelled=True)

    def confirm(self, stage: StageId, number: int) -> None:
        kept = self._kept[stage] = [report for report in self._kept.get(stage, []) if report.number > number]
        if not kept and stage not in self._stages:
            for known in (self._kept, self._numbers, self._notes):
                known.pop(stage, None)

    def forget(self, run: RunId) -> None:
        self._values = {key: value for key, value in self._values.items() if key[0] != run}
        self._runs.pop(run, None)

    def held(self) -> dict[RunId, StageId]:
        return dict(self._runs)

    def is_ready(self) -> bool:
        self.looks += 1
        return self.is_there

    def nodes(self) -> tuple[NodeSeen, ...]:
        return self.listed

    def nodes_of(self, stage: StageId) -> tuple[NodeName, ...]:
        """Return the nodes that the stage was started with."""
        return self._stages[stage].nodes

    def kill_runner(self) -> None:
        """Kill the runner of all stages: they are reported lost, and the values that it held are gone."""
        self._die()

    def stop_all(self) -> None:
        for kept in (self._stages, self._values, self._runs, self._notes, self._kept, self._numbers):
            kept.clear()
        self._holder, self._line = 0, None

    def read_clock(self) -> None:
        self._stamp_ms = self._clock.monotonic_ms()

    def extend_deadline(self, incarnation: int, stop_after_ms: int, kill_after_ms: int, since: int) -> None:
        """Extend the deadline; before the first renewal there is no deadline."""
        before = self._deadline.incarnation if self._deadline is not None else incarnation
        self._deadline = self._deadline or LeaseDeadline()
        renewal = Renewal(
            incarnation=incarnation, clock_ms=self._stamp_ms, stop_after_ms=stop_after_ms, kill_after_ms=kill_after_ms, since=since
        )
        if self._deadline.accept(renewal, self._clock.monotonic_ms()):
            if not renewal.covers(before):
                self.stop_all()
            self._line = incarnation, since

    def leave(self, incarnation: int) -> None:
        if self._deadline is not None and incarnation >= self._deadline.incarnation:
            self._deadline = None
            self.stop_all()

    def find(self) -> FoundStages | None:
        if self._line is None:
            return None
        return FoundStages(incarnation=self._line[0], since=self._line[1], stages=tuple(map(self._with_left, self._notes.values())))

    def _with_left(self, held: HeldStage) -> HeldStage:
        hosted = self._stages.get(held.stage)
        left = None if hosted is None else tuple(task.node for task in hosted.spec.tasks if task.node not in hosted.over)
        return replace(held, left=left)

    def go_on(self, stages: frozenset[StageId]) -> None:
        for stage in self._notes.keys() - stages:
            self.cancel(stage)
        for report in [report for reports in self._kept.values() for report in reports]:
            self._report(report)

    def listen(self, report: Callable[[HostReport], None]) -> None:
        """Report to this callback from now on, in place of that of a dead child."""
        self._report = report

    def _send(self, stage: StageId, messages: tuple[StageMessage, ...], blobs: dict[str, bytes]) -> None:
        self._numbers[stage] = self._numbers.get(stage, 0) + 1
        report = HostReport(stage=stage, number=self._numbers[stage], messages=messages, blobs=blobs)
        self._kept.setdefault(stage, []).append(report)
        self._report(report)

    def advance(self) -> None:
        """End what is due, start what can start, and report both; stop everything when its leases have expired."""
        if self._deadline is not None and self._deadline.verdict(self._clock.monotonic_ms()) is not DeadlineState.GO_ON:
            self._die()
        for stage in tuple(self._stages):
            hosted = self._stages.get(stage)
            if hosted is not None:
                self._advance(hosted)

    def _die(self) -> None:
        """Kill the runner as the watchdog does: its stages are reported lost once the holder of the leases listens again."""
        for stage in tuple(self._stages):
            lost = StageLost(stage=stage, mesh=self._mesh, incarnation=self._holder, reason=Reason.WORKER_LOST)
            self._report(HostReport(stage=stage, number=LAST_WORD, messages=(lost,)))
        self.stop_all()

    def _advance(self, hosted: _Hosted) -> None:
        now_ms = self._clock.wall_ms()
        messages, hosted.unreported = hosted.unreported, []
        blobs: dict[str, bytes] = {}
        tasks = {task.node: task for task in hosted.spec.tasks}
        for node in hosted.withheld & tasks.keys() - hosted.over:  # The root does not want these tasks any more.
            hosted.over.add(node)
            if hosted.running.pop(node, None) is not None:
                stopped = Failure(reason=Reason.CANCELLED_BY_USER, type_name="TaskCancelledError", message="stopped by the root")
                messages.append(self._failed(hosted, tasks[node], now_ms, stopped))
        for node in [node for node, due_ms in hosted.running.items() if due_ms <= now_ms]:
            del hosted.running[node]
            hosted.over.add(node)
            messages.append(self._finish(hosted, tasks[node], now_ms, blobs))
        if hosted.cancelled:
            cancelled = Failure(reason=Reason.CANCELLED_BY_USER, type_name="TaskCancelledError", message="cancelled")
            messages.extend(self._failed(hosted, tasks[node], now_ms, cancelled) for node in hosted.running)
            hosted.over.update(tasks)
            hosted.running.clear()
        messages.extend(self._retire(hosted))
        messages.extend(self._fail_readers(hosted, now_ms))
        messages.extend(self._start_ready(hosted, now_ms))
        if len(hosted.over) == len(tasks) and not hosted.running:
            messages.append(StageEnded(stage=hosted.spec.stage))
            del self._stages[hosted.spec.stage]
        if messages:
            self._send(hosted.spec.stage, tuple(_in_columns(hosted.spec, messages) if self._in_columns else messages), blobs)

    def _fail_readers(self, hosted: _Hosted, now_ms: int) -> list[StageMessage]:
        """Report unreadable inputs as lost, and fail the tasks that wait for them."""
        messages: list[StageMessage] = []
        for node in sorted(hosted.unreadable):
            messages.append(InputLost(stage=hosted.spec.stage, node=node))
            lost = Failure(reason=Reason.VALUE_LOST, type_name="ValueUnreadable", message=f"input {node} did not arrive")
            for task in hosted.spec.tasks:
                if node in task.inputs and task.node not in hosted.over and task.node not in hosted.running:
                    hosted.over.add(task.node)
                    messages.append(self._failed(hosted, task, now_ms, lost))
        hosted.unreadable.clear()
        return messages

    def _start_ready(self, hosted: _Hosted, now_ms: int) -> list[StageMessage]:
        started: list[StageMessage] = []
        inside = {task.node for task in hosted.spec.tasks}
        for task in hosted.spec.tasks:
            if task.node in hosted.over or task.node in hosted.running:
                continue
            needs = (*task.inputs, *task.after)
            if any(need in hosted.withheld or (need in inside and self._is_lost(hosted, need)) for need in needs):
                hosted.over.add(task.node)  # Dropped without a report: its missing input will never arrive.
            elif len(hosted.running) < hosted.slots - hosted.retiring and all(self._has(hosted, need, inside) for need in needs):
                duration_ms, _ = self.behaviour(task)
                self._on_start(hosted.spec.run, task)
                hosted.running[task.node] = now_ms + duration_ms
                started.append(NodeStarted(stage=hosted.spec.stage, node=task.node, attempt=task.attempt, started_ms=now_ms))
        return started

    def _is_lost(self, hosted: _Hosted, need: NodeId) -> bool:
        return need in hosted.over and (hosted.spec.run, need) not in self._values

    def _has(self, hosted: _Hosted, need: NodeId, inside: set[NodeId]) -> bool:
        if need in inside:
            return need in hosted.over
        return need in hosted.outside or (hosted.spec.run, need) in self._values

    def _finish(self, hosted: _Hosted, task: TaskSpec, now_ms: int, blobs: dict[str, bytes]) -> StageMessage:
        duration_ms, fails = self.behaviour(task)
        if fails:
            failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message=f"{task.node} fails")
            return self._failed(hosted, task, now_ms, failure)
        run = hosted.spec.run
        inputs = tuple(hosted.outside[need] if need in hosted.outside else self._values[run, need] for need in task.inputs)
        value = value_of(task.node, inputs)
        self._values[run, task.node] = value
        data = json.dumps(value).encode()
        stored = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.JSON) if task.export else None
        if stored is not None:
            blobs[stored.sha256] = data
        return NodeSucceeded(
            stage=hosted.spec.stage,
            node=task.node,
            attempt=task.attempt,
            started_ms=now_ms - duration_ms,
            finished_ms=now_ms,
            worker="simulated:1",
            stored=stored,
        )

    def _failed(self, hosted: _Hosted, task: TaskSpec, now_ms: int, failure: Failure) -> NodeFailed:
        return NodeFailed(
            stage=hosted.spec.stage, node=task.node, attempt=task.attempt, started_ms=now_ms, finished_ms=now_ms, failure=failure
        )


def _in_columns(spec: StageSpec, messages: Iterable[StageMessage]) -> Iterator[StageMessage]:
    """Yield the messages without starts, and ends that follow each other in one."""
    place = {task.node: number for number, task in enumerate(spec.tasks)}
    for is_end, alike in groupby(messages, key=lambda message: isinstance(message, NodeSucceeded)):
        if not is_end:
            yield from (message for message in alike if not isinstance(message, NodeStarted))
            continue
        ends = [end for end in alike if isinstance(end, NodeSucceeded)]
        since_ms = min(end.started_ms for end in ends)
        yield NodesSucceeded(
            stage=spec.stage,
            tasks=tuple(place[end.node] for end in ends),
            attempts=tuple(end.attempt for end in ends),
            since_ms=since_ms,
            started=tuple(end.started_ms - since_ms for end in ends),
            took=tuple(end.finished_ms - end.started_ms for end in ends),
            workers=(ends[0].worker,),
            stored={number: end.stored for number, end in enumerate(ends) if end.stored is not None},
        )
