"""Feeds the workers of stages with chunks, and takes their reports. Runs in the engine's thread.

`mesh.stages.chunks` decides the contents of a chunk, and what becomes of it. This module makes the calls, and finds out what a dead
worker ran.
"""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog
from ray.exceptions import RayTaskError

from mesh.core.ids import MeshId, NodeId, RunId
from mesh.core.reasons import Reason
from mesh.ray.stage_runner.open_stage import Missing, OpenStage
from mesh.ray.stage_runner.outcomes import InputGone, Outcome, OwnFailure, TaskInterrupted, read
from mesh.ray.stage_runner.worker_pages import WorkerPages
from mesh.ray.stage_runner.worker_pool import PooledWorker, WorkerPool, WorkerState
from mesh.ray.user_code import ray_tables
from mesh.ray.worker.chunk_calls import ChunkCall, ChunkReport, WorkerSite
from mesh.ray.worker.execution import EncodedValue, TaskFault, class_name
from mesh.ray.worker.page import NO_TASK
from mesh.stages.call_shapes import Shape
from mesh.stages.chunks import STALL_MS, Chunk, Habits
from mesh.stages.slot_window import SHARES, share_of
from mesh.stages.spec import TaskSpec
from mesh.stages.stage_machine import StageTaskState

log = structlog.get_logger(__name__)

#: Behind the name of a part, in the name of the elements that it was handed out. No node has such a name.
BLOCK_MARK = "@elements"
#: Added to the words of a function that no worker could load.
TRIED = "more than one worker tried"


class ChunkEnds(Protocol):
    """Handlers of the engine for the tasks of chunks."""

    def take_successes(self, stage: OpenStage, report: ChunkReport, ended: Mapping[int, NodeId], large: Mapping[int, Any]) -> None:
        """Report and keep what these tasks returned; keys are places in the report's columns. `large`: references, by place."""

    def take_outcome(self, stage: OpenStage, node: NodeId, outcome: Outcome) -> None:
        """Handle a task that came back otherwise."""

    def try_again(self, stage: OpenStage, node: NodeId) -> None:
        """Let another worker run a task whose function this one could not load."""

    def take_start(self, stage: OpenStage, node: NodeId, started_ms: int) -> None:
        """Report a task that runs for long."""

    def lose_group_of(self, stage: OpenStage) -> None:
        """Handle the loss of a placement group of the stage."""

    def go_on(self, stage: OpenStage) -> None:
        """Continue a stage after the end of a chunk or the start of a worker."""

    def refuse(self, stage: OpenStage, node: NodeId, missing: Missing) -> None:
        """Fail a task that cannot be sent."""


@dataclass(slots=True, eq=False)
class _Sent:
    """A chunk at its worker."""

    number: int
    stage: OpenStage
    worker: PooledWorker
    nodes: list[NodeId]  #: As in the call.
    answers: Sequence[Any] = ()  #: References to the large values, and to the report.


class _Draft:
    """A call that is being written."""

    def __init__(self, stage: OpenStage, worker: PooledWorker, held: Mapping[NodeId, Any]) -> None:
        self._stage, self._worker, self._held = stage, worker, held
        self.places: dict[NodeId, int] = {}
        self._functions: dict[int, int] = {}  #: Place of each function in the stage's table to that in the call's.
        self._shapes: dict[int, int] = {}  #: As the functions.
        self._called: list[tuple[str, bytes | None]] = []
        self._formed: list[Shape] = []
        self._function: list[int] = []
        self._shape: list[int] = []
        self._inputs: list[int] = []
        self._plain: list[Any] = []
        self._after: dict[int, tuple[int, ...]] = {}
        self._outside: dict[NodeId, int] = {}  #: Each with its number among the inputs.
        self._blobs: dict[str, bytes] = {}
        self._values: dict[NodeId, tuple[bytes, str]] = {}
        self._references: dict[NodeId, Any] = {}
        self._large_blobs: dict[str, Any] = {}

    def add(self, node: NodeId) -> None:
        """Add a task behind the others. Raises Missing."""
        places, outside, calls = self.places, self._outside, self._stage.columns.calls
        at = self._stage.machine.position(node)
        function, shape, needs, plain = calls.row(at)
        inputs: list[int] = []
        for need in needs:
            number = places.get(need)
            if number is None and (block := self._stage.block_of(node, need)) is not None:
                number = self._carry(NodeId(f"{node}{BLOCK_MARK}"), block)
            if number is None and (number := outside.get(need)) is None:
                number = self._read(node, need)
            inputs.append(number)
        own_shape = self._shapes.get(shape)
        if own_shape is None:
            own_shape = self._shape_at(node, shape)
        own_function = self._functions.get(function)
        if own_function is None:
            own_function = self._function_at(node, function)
        if calls.after.size:
            before = tuple([places[need] for need in calls.after_of(at) if need in places])
            if before:
                self._after[len(places)] = before
        places[node] = len(places)
        self._function.append(own_function)
        self._shape.append(own_shape)
        self._inputs += inputs
        self._plain += plain

    def _read(self, reader: NodeId, need: NodeId) -> int:
        value = self._held.get(need)
        if value is None:
            raise self._stage.lost_input(reader, need)
        return self._carry(need, value)

    def _carry(self, need: NodeId, value: Any) -> int:
        """Let the call have a value from outside; return its number among the inputs."""
        if isinstance(value, EncodedValue):
            self._values[need] = value.data, value.encoding.value
        else:
            self._references[need] = value
        number = self._outside[need] = ~len(self._outside)
        return number

    def _shape_at(self, node: NodeId, place: int) -> int:
        shape = self._stage.columns.calls.shapes[place]
        if shape.args or shape.kwargs:
            inline, names, put = self._stage.arguments_of(node, (*shape.args, *shape.kwargs.values()))
            self._blobs.update(inline)
            self._large_blobs.update(zip(names, put, strict=True))
        own = self._shapes[place] = len(self._formed)
        self._formed.append(shape)
        return own

    def _function_at(self, node: NodeId, place: int) -> int:
        function, code = self._stage.columns.calls.functions[place], None
        if function.startswith("blob:") and function not in self._worker.codes:
            code = self._stage.code_of(node, function)
            self._worker.codes.add(function)
        own = self._functions[place] = len(self._called)
        self._called.append((function, code))
        return own

    def all_references(self) -> list[Any]:
        """Return the references beside the call, in the order in which the call names them."""
        return [*self._references.values(), *self._large_blobs.values()]

    def call(self, chunk: Chunk, storage_url: str, inline_limit_bytes: int) -> ChunkCall:
        """Return the call."""
        columns, position = self._stage.columns, self._stage.machine.position
        calls, kinds = columns.calls, columns.kinds
        has_more = bool(columns.attempts or columns.exported) or any(kind.num_returns > 1 for kind in kinds)
        at = [position(node) for node in self.places] if has_more else []  #: Places in the stage's columns.
        outputs = [kinds[calls.kind_of(place)].num_returns for place in at]
        return ChunkCall(
            number=chunk.number,
            run=self._stage.spec.run,
            stage=self._stage.spec.stage,
            storage_url=storage_url,
            inline_limit_bytes=inline_limit_bytes,
            functions=self._called,
            shapes=self._formed,
            nodes=list(self.places),
            function=self._function,
            shape=self._shape,
            inputs=self._inputs,
            plain=self._plain,
            after=self._after,
            attempts={own: columns.attempts[place] for own, place in enumerate(at) if place in columns.attempts},
            exported=frozenset([own for own, place in enumerate(at) if place in columns.exported]),
            num_returns={own: count for own, count in enumerate(outputs) if count > 1},
            outside=list(self._outside),
            blobs=self._blobs,
            values=self._values,
            references=[*self._references, *self._large_blobs],
            large_blobs=len(self._large_blobs),
            stall_ms=chunk.stall_ms
            if all(kind.start_to_close_ms is None for kind in kinds)
            else STALL_MS,  # A limit counts from the report.
            late_ms=chunk.late_ms,
            traceparent=self._stage.spec.traceparent,
        )


class ChunkFeed:
    """Chunks of all stages of a runner.

    Args:
        runner: Handle of the runner.
        post: Runs a function in the engine's thread; any thread may call it.
        values: Returns what is held of a run: references, or values as bytes.
    """

    def __init__(
        self,
        runner: Any,
        post: Callable[[Callable[[], object]], object],
        ends: ChunkEnds,
        values: Callable[[RunId], Mapping[NodeId, Any]],
    ) -> None:
        self._post, self._ends, self._values = post, ends, values
        self._pool = WorkerPool(runner, lambda worker, site: post(partial(self._worker_answered, worker, site)))
        self._pages = WorkerPages()
        self.habits = Habits()
        self._sent: dict[int, _Sent] = {}
        self._stages: dict[str, OpenStage] = {}  #: By group.
        self._count = 0
        self._storage_url, self._inline_limit_bytes = "", 0

    def bind(self, mesh: MeshId, storage_url: str, inline_limit_bytes: int) -> None:
        """Set the mesh, the storage for values that leave the mesh, and the largest size that the control store carries."""
        self._pool.bind(mesh)
        self._pages.bind(mesh)
        self._storage_url, self._inline_limit_bytes = storage_url, inline_limit_bytes

    def feed(self, stage: OpenStage, first: TaskSpec) -> bool:
        """Send a chunk that begins with the first ready task to an idle worker; return whether there was one. Start workers as needed."""
        share = share_of(first.resources, stage.spec.slot)
        avoided = stage.loads.avoided(first.function)
        roomy = [(group, places) for group, places in stage.window.roomy(share) if stage.place_of(group) not in avoided]
        worker = next((idle for group, _ in roomy if (idle := self._pool.idle(group)) is not None), None)
        if worker is None:
            self._start_workers(stage, roomy)
            return False
        self._count += 1
        number = self._count
        lanes = stage.window.open_slots * max(1, SHARES // share)

        position, alike, known = stage.machine.position, stage.columns.calls.alike, dict[tuple[int, int], bool]()
        place = stage.place_of(worker.group)

        def may_join(node: NodeId) -> bool:
            if node in stage.streams:
                return False
            key = alike(position(node))  # The answer depends on nothing else, and a stage has few keys.
            found = known.get(key)
            if found is None:
                task = stage.machine.task(node)
                found = stage.shares_worker(task) and task.resources == first.resources
                found = found and place not in stage.loads.avoided(task.function) and stage.unloadable_by(task.function) is None
                known[key] = found
            return found

        chunk = stage.chunks.take(number, lanes, may_join)
        if chunk is None:
            return False
        stage.window.place_chunk(number, worker.group, share)
        sent = self._sent[number] = _Sent(number, stage, worker, [])
        try:
            self._send(sent, chunk)
        except Exception as refused:  # noqa: BLE001  Ray refuses calls with many errors: a full object store, a value that cannot be pickled
            self._refuse(sent, refused)
            return True
        if not sent.nodes:  # None could be sent.
            self._end(sent)
        return True

    def _refuse(self, sent: _Sent, refused: Exception) -> None:
        """Fail the tasks of a chunk that Ray did not take."""
        sent.worker.codes.clear()  # It may lack the code that this call was to bring.
        failure = OwnFailure(Reason.USER_ERROR, class_name(type(refused)), f"Ray refuses the task: {refused}")
        for node in sent.stage.chunks.left(sent.number):
            self._come_back(sent, node, failure)
        self._end(sent)

    def _start_workers(self, stage: OpenStage, roomy: Sequence[tuple[str, int]]) -> None:
        starting = self._pool.count(stage.groups, WorkerState.STARTING)
        serving = starting + self._pool.count(stage.groups, WorkerState.BUSY)
        serving -= sum(chunk.running is not None for chunk in stage.chunks.chunks.values())
        most = max(1, stage.window.open_slots)
        for group, places in roomy:
            for _ in range(places - self._pool.count((group,), WorkerState.STARTING)):
                if starting >= most or not stage.chunks.wants_worker(serving):
                    return
                self._pool.start(stage.groups[group], stage.spec.slot)
                self._stages[group] = stage
                starting, serving = starting + 1, serving + 1

    def open_stage(self, stage: OpenStage, groups: Collection[str]) -> None:
        """Note that the stage has these groups; workers may wait there."""
        self._stages.update(dict.fromkeys(groups, stage))

    def end_stage(self, stage: OpenStage) -> None:
        """Note that the stage has ended. Its workers wait for the next stage in their groups, unless the groups are removed."""
        if stage.cancelled or stage.is_group_lost:
            self.end_groups(stage.groups)
        for group in stage.groups:
            if self._stages.get(group) is stage:
                del self._stages[group]

    def end_groups(self, groups: Collection[str]) -> None:
        """End the workers of groups that are about to be removed."""
        self._pool.end(groups)
        for group in groups:
            self._stages.pop(group, None)

    def end_idle(self) -> None:
        """End the workers that have been idle for long."""
        self._pool.end_idle()

    def pause_s(self) -> float | None:
        """Seconds until `end_idle` may do something; None: no worker is idle."""
        return self._pool.pause_s()

    def stop(self, stage: OpenStage, nodes: Collection[NodeId]) -> None:
        """Interrupt the chunks in which these tasks are: the task that runs is interrupted, and those behind it come back."""
        for sent in self._of(stage, nodes):
            if sent.worker.site is not None:
                self._pages.ask_to_stop(sent.worker.site, sent.number)

    def kill(self, stage: OpenStage, nodes: Collection[NodeId]) -> None:
        """Kill the workers that have these tasks."""
        for sent in self._of(stage, nodes):
            self._pool.kill(sent.worker)

    def _of(self, stage: OpenStage, nodes: Collection[NodeId]) -> list[_Sent]:
        return [self._sent[number] for number in stage.chunks.having(nodes) if number in self._sent]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _send(self, sent: _Sent, chunk: Chunk) -> None:
        """Call the worker with those of the tasks that can be sent."""
        stage, worker = sent.stage, sent.worker
        draft = _Draft(stage, worker, self._values(stage.spec.run))
        for node in chunk.nodes:
            if stage.machine.state(node) is not StageTaskState.SUBMITTED:  # It was behind another that could not be sent.
                continue
            try:
                draft.add(node)
            except Missing as missing:
                stage.chunks.ends(sent.number, node)
                self._ends.refuse(stage, node, missing)
        if not draft.places:
            return
        sent.nodes = list(draft.places)
        call = pickle.dumps(draft.call(chunk, self._storage_url, self._inline_limit_bytes), protocol=5)
        references = draft.all_references()
        sent.answers = worker.actor.run.remote(call, references) if references else worker.actor.run.remote(call)
        worker.state = WorkerState.BUSY
        sent.answers[-1].future().add_done_callback(
            lambda future: self._post(partial(self._back, sent, future.exception() or future.result()))
        )

    # -- reports -------------------------------------------------------------------------------------------------------

    def stalled(self, report_bytes: bytes) -> None:
        """Take a report on a chunk that goes on."""
        report: ChunkReport = pickle.loads(report_bytes)  # noqa: S301 - written by this project's worker, which runs as this user
        sent = self._sent.get(report.number)
        if sent is None:
            return  # Its end came first.
        report.check(len(sent.nodes), is_end=False)
        stage, running = sent.stage, sent.nodes[report.running]
        self._take(sent, report, ())
        if stage.is_stopped:
            for node in [node for node in stage.chunks.left(sent.number) if node != running]:
                self._leave(sent, node)
        stage.reclaimed.difference_update(node for node in stage.chunks.left(sent.number) if node != running)  # They go to other slots.
        if stage.chunks.stall(sent.number, running):
            self._ends.take_start(stage, running, report.running_since_ms)
        self._ends.go_on(stage)

    def _back(self, sent: _Sent, outcome: bytes | BaseException) -> None:
        """Take the end of a call."""
        stage = sent.stage
        if isinstance(outcome, bytes):
            try:
                report: ChunkReport = pickle.loads(outcome)  # noqa: S301 - as above
                report.check(len(sent.nodes), is_end=True)
            except Exception as broken:  # noqa: BLE001  the tenant's code may have written anything there
                self._pool.drop(sent.worker)
                self._lose(sent, broken, None, is_known=False)
            else:
                if self._is_suspect(sent, report):
                    self._pool.drop(sent.worker)
                else:
                    self._pool.rest(sent.worker)
                self._take(sent, report, sent.answers[:-1])
                self._end(sent)
        elif isinstance(outcome, RayTaskError):
            self._pool.rest(sent.worker)
            self._take_error(sent, outcome)
        else:
            self._pool.drop(sent.worker)
            site, group = sent.worker.site, sent.worker.group
            threading.Thread(target=self._examine, args=(sent, outcome, site, group), name="autopsy", daemon=True).start()
            return
        self._ends.go_on(stage)

    def _take(self, sent: _Sent, report: ChunkReport, large: Sequence[Any]) -> None:
        stage, number = sent.stage, sent.number
        if report.tasks:
            took: dict[str, list[float]] = defaultdict(list)
            function_of = stage.machine.function
            for task, took_us in zip(report.tasks, report.took_us, strict=True):
                took[function_of(sent.nodes[task])].append(took_us / 1000)
            for function, times_ms in took.items():
                self.habits.note(function, times_ms)
                stage.loads.note_loaded(function)
            reported = {sent.nodes[task]: place for place, task in enumerate(report.tasks)}
            new = stage.chunks.succeed(number, reported)
            ended = {reported[node]: node for node in new}
            values = {report.tasks.index(task): reference for task, reference in zip(report.large, large, strict=False)}
            if ended:
                self._ends.take_successes(stage, report, ended, values)
        for index in (*report.large, *report.creators):
            self.habits.note_ending(stage.machine.function(sent.nodes[index]))
        for index, fault in report.faults.items():
            self._take_fault(sent, sent.nodes[index], fault)
        for index, (lost_id, message) in report.lost.items():
            self._come_back(sent, sent.nodes[index], InputGone(message, lost_id))
        if report.is_interrupted and report.running != NO_TASK:
            node = sent.nodes[report.running]
            stage.started_ms.setdefault(node, report.running_since_ms)
            self._come_back(sent, node, TaskInterrupted())

    def _take_fault(self, sent: _Sent, node: NodeId, fault: TaskFault) -> None:
        """Take the failure of a task; one whose function this worker alone could not load goes to another worker."""
        stage, words = sent.stage, fault.message
        if _is_unloaded(fault) and not (stage.is_stopped or node in stage.evicted or node in stage.reclaimed):
            if not self._is_blamed(sent, node, fault):
                if stage.chunks.ends(sent.number, node):
                    self._ends.try_again(stage, node)
                return
            words = f"{words} ({TRIED})"
        self._come_back(sent, node, OwnFailure(fault.reason, fault.type_name, words, fault))

    def _is_suspect(self, sent: _Sent, report: ChunkReport) -> bool:
        """Return whether the worker could not load a function that another worker may load."""
        unloaded = [(sent.nodes[index], fault) for index, fault in report.faults.items() if _is_unloaded(fault)]
        return any(not self._is_blamed(sent, node, fault) for node, fault in unloaded)

    def _is_blamed(self, sent: _Sent, node: NodeId, fault: TaskFault) -> bool:
        """Note that the worker could not load the task's function; return whether no other worker of the stage can."""
        stage, function = sent.stage, sent.stage.machine.function(node)
        stage.loads.note_failure(function, node, fault.report.worker, stage.place_of(sent.worker.group))
        return stage.unloadable_by(function) is not None

    def _come_back(self, sent: _Sent, node: NodeId, outcome: Outcome) -> None:
        if sent.stage.chunks.ends(sent.number, node):
            self._ends.take_outcome(sent.stage, node, outcome)

    def _take_error(self, sent: _Sent, error: RayTaskError) -> None:
        """Take an error of the call itself: a value could not be pickled, or the call could not be read."""
        left = sent.stage.chunks.left(sent.number)
        running = sent.stage.chunks.running(sent.number) or (left[0] if len(left) == 1 else None)
        if running is not None or sent.stage.is_stopped:
            if running is not None:
                self._come_back(sent, running, read(error, running))
            self._end(sent)
        else:
            self._lose(sent, error, None, is_known=False)

    def _end(self, sent: _Sent) -> None:
        """Forget a chunk; its tasks without a report run again."""
        left = sent.stage.chunks.left(sent.number)
        sent.stage.reclaimed.difference_update(left)
        if sent.stage.is_stopped:
            for node in left:
                self._leave(sent, node)
        sent.stage.chunks.close(sent.number)
        self._forget(sent)

    def _forget(self, sent: _Sent) -> None:
        del self._sent[sent.number]
        sent.stage.window.remove(sent.number)

    def _leave(self, sent: _Sent, node: NodeId) -> None:
        if sent.stage.chunks.ends(sent.number, node):
            sent.stage.machine.leave(node)

    # -- deaths --------------------------------------------------------------------------------------------------------

    def _examine(self, sent: _Sent, error: BaseException, site: WorkerSite | None, group: str) -> None:
        """Find out what a dead worker ran, and whether its group is there. A thread of its own: Ray may answer late."""
        found = self._pages.culprit(site) if site is not None else None
        is_there = True
        try:
            is_there = any(row.id == group for row in ray_tables.groups())
        except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
            log.warning("Ray does not list its placement groups", error=str(away))
        self._post(partial(self._died, sent, error, found, is_there))

    def _died(self, sent: _Sent, error: BaseException, found: tuple[int, int] | None, is_there: bool) -> None:
        stage = sent.stage
        ran = None
        if found is not None and found[0] == sent.number and 0 <= found[1] < len(sent.nodes):
            ran = sent.nodes[found[1]]
        ran = stage.chunks.running(sent.number) or ran
        if not is_there and not stage.is_stopped:
            self._ends.lose_group_of(stage)
        log.warning("a worker died", stage=stage.spec.stage, node=ran, error=str(error).partition("\n")[0])
        evicted = [node for node in stage.chunks.left(sent.number) if node in stage.evicted]
        if stage.is_stopped or evicted or ran in stage.reclaimed:
            for node in dict.fromkeys([*evicted, *([ran] if ran is not None else [])]):
                self._come_back(sent, node, read(error, node))
            self._end(sent)
        else:
            self._lose(sent, error, ran, is_known=found is not None or ran is not None)
        self._ends.go_on(stage)

    def _lose(self, sent: _Sent, error: BaseException, ran: NodeId | None, *, is_known: bool) -> None:
        sent.stage.reclaimed.difference_update(sent.nodes)
        fails = sent.stage.chunks.lose(sent.number, ran, is_known=is_known)
        self._forget(sent)
        if fails is not None:
            self._ends.take_outcome(sent.stage, fails, read(error, fails))

    # -- workers -------------------------------------------------------------------------------------------------------

    def _worker_answered(self, worker: PooledWorker, site: WorkerSite | BaseException) -> None:
        stage = self._stages.get(worker.group)
        if isinstance(site, BaseException):
            if self._pool.drop(worker) and stage is not None:  # Ray gives a task the reason, or runs it.
                log.warning("a worker did not start; tasks run as Ray tasks", stage=stage.spec.stage, error=str(site))
                stage.has_workers = False
                self._ends.go_on(stage)
        elif not self._pool.is_up(worker, site):
            self._pool.kill(worker)
        elif stage is not None:
            self._ends.go_on(stage)


def _is_unloaded(fault: TaskFault) -> bool:
    return fault.reason is Reason.CODE_UNAVAILABLE and fault.is_function
