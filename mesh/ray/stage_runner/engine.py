"""Stages on Ray: decides with `StageMachine`, has workers or Ray tasks run what is ready, and reports the outcomes.

One thread does everything, fed by a queue: orders from outside, and Ray's callbacks when a task's report arrives. So no lock is needed,
and a report is handled at once, whatever the number of tasks. This module reads neither values nor the tenant's code.
"""

from __future__ import annotations

import pickle
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
import structlog

from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.checkpoints import Checkpoints
from mesh.ray.stage_runner.chunk_feed import ChunkFeed
from mesh.ray.stage_runner.functions import FunctionShelf
from mesh.ray.stage_runner.open_stage import Missing, OpenStage, SubmittedTask
from mesh.ray.stage_runner.outbox import Finished, Outbox
from mesh.ray.stage_runner.outcomes import GroupLost, Outcome, OwnFailure, TaskInterrupted, failure_of, read
from mesh.ray.stage_runner.ray_thread import RayThread
from mesh.ray.stage_runner.run_time_limits import RunTimeLimits
from mesh.ray.stage_runner.run_values import RunValues
from mesh.ray.stage_runner.watch import ReportWatch
from mesh.ray.user_code.output_relay import OutputRelay, with_last_lines
from mesh.ray.user_code.room import RoomWatch
from mesh.ray.worker.chunk_calls import ChunkReport
from mesh.ray.worker.execution import KEPT_BYTES_MAX, EncodedValue, TaskCall, TaskFault, TaskReport, bring_in
from mesh.ray.worker.exporting import ValueUnreadable, read_verified
from mesh.ray.worker.present_task import Saved, Saving
from mesh.stages.messages import (
    InputLost,
    NodeFailed,
    NodeGrew,
    NodeOutput,
    NodesSucceeded,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageResized,
    StageWaiting,
)
from mesh.stages.slot_window import RunTimes
from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_machine import StageMachine, StageTaskState

log = structlog.get_logger(__name__)

#: Pause between two kills of a task that should have ended; seconds. A kill that meets a task on its way to a worker is lost.
FORCE_EVERY_S = 1.0
#: Time for Ray to report the outcome of the tasks of a removed group; seconds.
GROUP_LOST_GRACE_S = 2.0
#: Failures of tasks whose worker is dead.
_WORKER_GONE = frozenset({Reason.WORKER_LOST, Reason.OUT_OF_MEMORY, Reason.START_TO_CLOSE_TIMEOUT})
GROUP_LOST = "its placement group, or a node of it, was lost while it ran"

#: In place of groups: tasks run anywhere in the cluster.
ANYWHERE = SlotGroup(None, slots=32, is_placed=True)

Delivered = tuple[StoredValue, bytes | None] | None


@dataclass(frozen=True, slots=True)
class _Run:
    """Key of an import, used beside stages: the run whose value is imported."""

    run: RunId


_Key = tuple[StageId | _Run, NodeId]


class StageEngine:
    """All stages of one tenant on one mesh, and the values that they leave behind.

    Args:
        runner: Handle of the actor that this engine lives in.
        outbox: Takes the messages of the stages.
        free: Called with a stage and the groups of its retired slots, by Ray's ids, before the `StageResized` about them.
    """

    def __init__(self, runner: Any, outbox: Outbox, free: Callable[[StageId, Collection[str]], None]) -> None:
        self._outbox = outbox
        self._free = free
        self._shelf = FunctionShelf(runner)
        self._storage_url = ""
        self._inline_limit_bytes = 0
        self._stages: dict[StageId, OpenStage] = {}
        self._values = RunValues()
        self._run_times = RunTimes()
        self._imports: dict[tuple[RunId, NodeId], SubmittedTask] = {}  #: Imports that have not ended.
        self._checkpoints = Checkpoints(outbox.put)
        self._limits = RunTimeLimits()
        self._output = OutputRelay(outbox.put)
        self._stop_at: dict[StageId, tuple[float, Callable[[StageId], None]]] = {}  #: Next step of a stop, and when: seconds, monotonic.
        self._ray_thread = RayThread()
        self._events: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._chunks = ChunkFeed(runner, self._events.put, self, self._values.of)
        self._bring_in: Any = ray.remote(bring_in).options(num_cpus=0, num_returns=2)
        self._watch: ReportWatch[_Key] = ReportWatch(lambda key, outcome: self._events.put(partial(self._reported, key, outcome)))
        self._room = RoomWatch(
            lambda stage, words: self._events.put(partial(self._report_waiting, stage, words)),
            lambda stage, group: self._events.put(partial(self._open_group, stage, group)),
            self.lose_group,
        )
        threading.Thread(target=self._work, name="engine", daemon=True).start()

    # -- orders; each returns at once ----------------------------------------------------------------------------------

    def bind(self, mesh: MeshId, storage_url: str, inline_limit_bytes: int, folder: Path) -> None:
        """Set the mesh, the storage for values that leave the mesh, and the largest size that the control store carries.

        Args:
            folder: The mesh's watch folder on this node.
        """
        self._shelf.bind(mesh)
        self._output.folder = folder
        self._chunks.bind(mesh, storage_url, inline_limit_bytes)
        self._storage_url, self._inline_limit_bytes = storage_url, inline_limit_bytes

    def start(
        self,
        spec: StageSpec,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, Delivered],
        groups: Sequence[SlotGroup],
    ) -> None:
        """Run the stage. Harmless when it runs already."""
        self._events.put(partial(self._start, spec, blobs, inputs, groups))

    def grow(self, stage: StageId, groups: Sequence[SlotGroup], missing: int = 0) -> None:
        """Add groups of slots to the stage; each gets tasks once it is placed. Its `StageResized` follows.

        Args:
            missing: Further slots that were to come and will not: they count as given back.
        """
        self._events.put(partial(self._grow, stage, groups, missing))

    def shrink(self, stage: StageId, slots: int, grace_s: float | None = None) -> None:
        """Retire slots of the stage until `slots` are left. A `StageResized` follows whenever some are free.

        Args:
            grace_s: Interrupt the tasks of retired slots, which fail with QUOTA_RECLAIMED, and kill their workers after the grace period.
        """
        self._events.put(partial(self._shrink, stage, slots, grace_s))

    def inherit(self, run: RunId, values: dict[NodeId, Delivered]) -> None:
        """Take over values of nodes that finished on a runner that died; None: the value is gone."""
        self._events.put(partial(self._values.inherit, run, values))

    def deliver(self, stage: StageId, node: NodeId, value: Delivered) -> None:
        """Deliver a value from outside; None: it will not come."""
        self._events.put(partial(self._deliver, stage, node, value))

    def cancel(self, stage: StageId, grace_s: float) -> None:
        """Stop the stage: interrupt its tasks, and kill their workers after the grace period."""
        self._events.put(partial(self._cancel, stage, grace_s))

    def evict(self, stage: StageId, node: NodeId, why: str) -> None:
        """Kill the node's task; the node fails with OUTSIDE_GROUP and this message. Harmless when its task does not run."""
        self._events.put(partial(self._evict, stage, node, why))

    def lose_group(self, stage: StageId) -> None:
        """Report the stage's running tasks as lost, and end the stage: its placement group is gone."""
        self._events.put(partial(self._lose_group, stage))

    def forget(self, run: RunId) -> None:
        self._events.put(partial(self._forget, run))

    def announce(self, stage: StageId, node: NodeId, attempt: int, started_ms: int) -> None:
        """Record that a task runs; called by its worker."""
        self._events.put(partial(self._announce, stage, node, attempt, started_ms))

    def stalled(self, report: bytes) -> None:
        """Take a worker's report on a chunk that goes on."""
        self._events.put(partial(self._chunks.stalled, report))

    def hand_out(self, stage: StageId, source: NodeId, attempt: int, part: NodeId, digest: bytes | None, elements: bytes) -> None:
        """Take elements of a list that grows, for the part that reads them; called by the worker that makes them."""
        self._events.put(partial(self._hand_out, stage, source, attempt, part, digest, _held_form(EncodedValue(elements, Encoding.PICKLE))))

    def wants_elements(self, stage: StageId) -> bool:
        """Return whether more elements may be handed out: not while many wait for a slot."""
        open_stage = self._stages.get(stage)
        return open_stage is not None and not open_stage.has_enough()

    def save(self, stage: StageId, node: NodeId, saving: Saving) -> None:
        """Record what is new of a running task whose code uses `mesh.current_task()`; called by its worker."""
        self._events.put(partial(self._save, stage, node, saving))

    def take_output(self, lines: Sequence[NodeOutput]) -> None:
        """Pass lines of tasks on; called by their worker."""
        self._events.put(partial(self._take_output, lines))

    def last_checkpoint(self, stage: StageId, node: NodeId) -> Saved | None:
        """Return the newest checkpoint of the node."""
        return self._checkpoints.last(stage, node)

    def left(self, stage: StageId) -> tuple[NodeId, ...] | None:
        """Return the tasks of the stage that have not ended; None: it does not run."""
        open_stage = self._stages.get(stage)
        return None if open_stage is None else open_stage.machine.left()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            event = self._next()
            try:
                if event is not None:
                    event()
                for key, outcome in self._watch.sweep():
                    self._take(key, outcome)
                self._checkpoints.report_due(time.monotonic())
                self._chunks.end_idle()
                self._end_late()
                self._go_on_stopping()
            except Exception:  # An error of one stage must not stop the others.
                log.exception("the engine could not handle an event")

    def _next(self) -> Callable[[], object] | None:
        now_s = time.monotonic()
        pauses_s = [max(0.0, due - now_s) for due, _ in self._stop_at.values()]
        if (report_s := self._checkpoints.pause_s(now_s)) is not None:
            pauses_s.append(report_s)
        if (limit_s := self._limits.pause_s(now_s)) is not None:
            pauses_s.append(limit_s)
        pauses_s += [pause_s for pause_s in (self._watch.pause_s(), self._chunks.pause_s()) if pause_s is not None]
        try:
            return self._events.get(timeout=min(pauses_s, default=None))
        except queue.Empty:
            return None

    def _reported(self, key: _Key, outcome: TaskReport | BaseException) -> None:
        self._watch.done(key)
        self._take(key, outcome)

    def _take(self, key: _Key, outcome: TaskReport | BaseException) -> None:
        owner, node = key
        if isinstance(owner, _Run):
            self._imported(owner.run, node, outcome)
        else:
            self._came_back(owner, node, outcome)

    def _start(
        self,
        spec: StageSpec,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, Delivered],
        groups: Sequence[SlotGroup],
    ) -> None:
        if spec.stage in self._stages:
            return
        stage = OpenStage(spec=spec, machine=StageMachine(spec), blobs=blobs, habits=self._chunks.habits, has_workers=bool(groups))
        self._stages[spec.stage] = stage
        self._checkpoints.begin(spec, blobs)
        # The first group is fed at once: its tasks wait in Ray until it is placed. Tasks in another could wait while a slot is idle.
        stage.add_groups(groups or (ANYWHERE,))
        self._chunks.open_stage(stage, stage.groups)
        unplaced = [group.hex_id for group in groups if not group.is_placed]
        gangs = [group.hex_id for group in groups] if spec.gang is not None else ()
        self._room.add(spec.stage, unplaced, can_begin=len(unplaced) < len(groups), gangs=gangs)
        values = self._values.of(spec.run)
        outside = stage.machine.externals
        stage.machine.begin(sorted(outside & values.keys()))
        self._feed(stage)
        for node in sorted(outside - values.keys()):
            if node in inputs:
                self._deliver(spec.stage, node, inputs[node])
            elif (inherited := self._values.inherited(spec.run, node)) is not None:
                self._deliver(spec.stage, node, inherited)
            elif self._values.has_lost(spec.run, node):
                if stage.machine.is_read(node):
                    self._report_lost(spec, node)
                else:  # Only the order counts, and the node has ended.
                    stage.machine.arrive(node)
        self._feed(stage)
        self._end_if_over(stage)

    def _deliver(self, stage_id: StageId, node: NodeId, value: Delivered) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and value is None and stage.machine.has(node):
            self._stop_one(stage, node)
        if stage is None or not stage.machine.awaits(node):
            return
        if value is None:
            stage.machine.miss(node)
            self._end_if_over(stage)
        elif not stage.machine.is_read(node) or node in self._values.of(stage.spec.run):
            stage.machine.arrive(node)
            self._feed(stage)
        else:
            self._import(stage, node, *value)

    def _grow(self, stage_id: StageId, groups: Sequence[SlotGroup], missing: int) -> None:
        stage = self._stages.get(stage_id)
        if stage is None:
            return  # The host returns the groups with the others of the stage.
        stage.add_groups(groups)
        self._chunks.open_stage(stage, [group.hex_id for group in groups])
        unplaced = [group.hex_id for group in groups if not group.is_placed]
        stage.growing.update(unplaced)
        gangs = [group.hex_id for group in groups] if stage.spec.gang is not None else ()
        self._room.add(stage_id, unplaced, can_begin=False, gangs=gangs)
        stage.retired += missing
        if missing or len(unplaced) < len(groups):
            self._report_slots(stage)
            self._feed(stage)

    def _shrink(self, stage_id: StageId, slots: int, grace_s: float | None) -> None:
        stage = self._stages.get(stage_id)
        if stage is None:
            return
        stage.window.retire(stage.window.open_slots - slots, at_least=grace_s is not None)
        self._take_back_stuck(stage)
        self._release_slots(stage)
        if grace_s is not None:
            self._when_submitted(partial(self._reclaim, stage_id, grace_s))

    def _reclaim(self, stage_id: StageId, grace_s: float) -> None:
        """Interrupt the tasks of retired slots; a task that has not begun is submitted to another slot."""
        stage = self._stages.get(stage_id)
        if stage is None or stage.cancelled or stage.is_group_lost:
            return
        waiting = set(stage.window.waiting(stage.started_ms, retired=True))
        tasks = [node for node in self._in_retired(stage) if node not in stage.reclaimed | stage.taken_back]
        stage.taken_back.update(waiting.intersection(tasks))
        stage.reclaimed.update(node for node in tasks if node not in waiting)
        self._ask_to_stop(stage, tasks, force=False)
        if tasks:
            self._stop_at[stage_id] = time.monotonic() + grace_s, self._force_reclaimed

    def _force_reclaimed(self, stage_id: StageId) -> None:
        """Kill the tasks of retired slots that were interrupted and go on."""
        stage = self._stages[stage_id]
        left = (stage.reclaimed | stage.taken_back).intersection(self._in_retired(stage), stage.machine.running())
        if left and not stage.cancelled and not stage.is_group_lost:
            self._ask_to_stop(stage, left, force=True)
            self._stop_at[stage_id] = time.monotonic() + FORCE_EVERY_S, self._force_reclaimed
        else:
            self._stop_at.pop(stage_id, None)

    def _in_retired(self, stage: OpenStage) -> list[NodeId]:
        """Return the submitted tasks of retired slots."""
        nodes: list[NodeId] = []
        for work in stage.window.in_retired():
            nodes += stage.chunks.left(work) if isinstance(work, int) else (work,)
        return nodes

    def _release_slots(self, stage: OpenStage) -> bool:
        """Report retired slots that are free; return whether there are any."""
        free = stage.take_free()
        if free:
            self._chunks.end_groups(free)
            self._free(stage.spec.stage, free)
            self._report_slots(stage)
        return bool(free)

    def _report_slots(self, stage: OpenStage) -> None:
        gone, stage.gone = tuple(stage.gone), []
        groups, stage.reserved_gone = tuple(stage.reserved_gone), []
        self._outbox.put(StageResized(stage=stage.spec.stage, slots=stage.slots, retired=stage.retired, gone=gone, groups=groups))

    def _take_back_stuck(self, stage: OpenStage) -> None:
        """Cancel the tasks that wait in slots while others could run them; each is ready again when Ray has cancelled it."""
        if stage.stuck():
            self._when_submitted(partial(self._cancel_stuck, stage.spec.stage))

    def _cancel_stuck(self, stage_id: StageId) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and not stage.cancelled and not stage.is_group_lost:
            stuck = stage.stuck()
            stage.taken_back.update(stuck)
            self._ask_to_stop(stage, stuck, force=False)

    def _cancel(self, stage_id: StageId, grace_s: float) -> None:
        stage = self._stages.get(stage_id)
        if stage is None or stage.cancelled:
            return
        stage.cancelled = True
        if stage.machine.stop():
            self._when_submitted(partial(self._interrupt, stage_id, grace_s))
        self._end_if_over(stage)

    def _lose_group(self, stage_id: StageId) -> None:
        stage = self._stages.get(stage_id)
        if stage is None or stage.is_group_lost:
            return
        stage.is_group_lost = True
        if stage.machine.stop():
            # Ray reports the outcome of the tasks by itself, except of tasks that it retries in the removed group.
            self._when_submitted(partial(self._force_later, stage_id, GROUP_LOST_GRACE_S))
        self._end_if_over(stage)

    def _evict(self, stage_id: StageId, node: NodeId, why: str) -> None:
        self._kill_with(stage_id, node, OwnFailure(Reason.OUTSIDE_GROUP, "mesh.errors.OutsideGroup", why))

    def _kill_with(self, stage_id: StageId, node: NodeId, failure: OwnFailure) -> None:
        """Kill the process of a submitted task; the task fails with this failure."""
        stage = self._stages.get(stage_id)
        if stage is not None and not stage.cancelled and stage.machine.state(node) is StageTaskState.SUBMITTED:
            stage.evicted.setdefault(node, failure)
            self._when_submitted(partial(self._kill_evicted, stage_id, node))

    def _stop_one(self, stage: OpenStage, node: NodeId) -> None:
        """Stop a task that the root does not want any more, and drop those behind it."""
        if stage.machine.state(node) is StageTaskState.SUBMITTED:
            stopped = OwnFailure(Reason.CANCELLED_BY_USER, "ray.exceptions.TaskCancelledError", "stopped by the root")
            self._kill_with(stage.spec.stage, node, stopped)
        else:
            stage.machine.leave(node)
            self._end_if_over(stage)

    def _end_late(self) -> None:
        """Kill the tasks that have run for longer than they may."""
        for stage_id, node in self._limits.take_due(time.monotonic()):
            stage = self._stages.get(stage_id)
            if stage is not None and node in stage.started_ms:
                limit_s = (stage.machine.task(node).start_to_close_ms or 0) / 1000
                words = f"ran for more than {limit_s:g} s (start_to_close_s), and was stopped"
                late = OwnFailure(Reason.START_TO_CLOSE_TIMEOUT, "schedulemesh.StartToCloseTimeout", words)
                self._kill_with(stage_id, node, late)

    def _kill_evicted(self, stage_id: StageId, node: NodeId) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and node in stage.evicted and stage.machine.state(node) is StageTaskState.SUBMITTED:
            self._ask_to_stop(stage, [node], force=True)

    def _when_submitted(self, then: Callable[[], None], rounds: int = 2) -> None:
        """Call `then` when Ray's own thread has the arguments of every task submitted so far: see ADR 0034.

        That thread handles its work in order. The second round comes after the work that the tasks add in the first round.
        """
        if rounds == 0:
            then()
        else:
            self._ray_thread.call(lambda: self._events.put(partial(self._when_submitted, then, rounds - 1)))

    def _interrupt(self, stage_id: StageId, grace_s: float) -> None:
        """Interrupt the tasks. Those that can hear the request to stop get the grace period first, to save a checkpoint."""
        if stage_id in self._stages:
            stage = self._stages[stage_id]
            running = stage.machine.running()
            asked = stage.listening.intersection(running)
            self._ask_to_stop(stage, [node for node in running if node not in asked], force=False)
            if asked:
                stage.listening.clear()
                self._stop_at[stage_id] = time.monotonic() + grace_s, partial(self._interrupt, grace_s=grace_s)
            else:
                self._force_later(stage_id, grace_s)

    def _force_later(self, stage_id: StageId, grace_s: float) -> None:
        if stage_id in self._stages:
            self._stop_at[stage_id] = time.monotonic() + grace_s, self._force

    def _ask_to_stop(self, stage: OpenStage, nodes: Iterable[NodeId], *, force: bool) -> None:
        """Interrupt the submitted tasks, or kill their processes."""
        tasks = set(nodes)
        own = [stage.tasks[node][1] for node in tasks if node in stage.tasks]
        if own:
            self._ray_thread.cancel(own, force=force)
        shared = tasks.difference(stage.tasks)
        if shared:
            (self._chunks.kill if force else self._chunks.stop)(stage, shared)

    def _go_on_stopping(self) -> None:
        now = time.monotonic()
        for stage_id, (due, step) in tuple(self._stop_at.items()):
            if due <= now:
                step(stage_id)

    def _force(self, stage_id: StageId) -> None:
        """Kill tasks that were asked to stop and did not: code inside a C call does not notice an interrupt."""
        stage = self._stages[stage_id]
        self._ask_to_stop(stage, stage.machine.running(), force=True)
        self._force_later(stage_id, FORCE_EVERY_S)

    def _forget(self, run: RunId) -> None:
        self._values.forget(run)
        for key in [key for key in self._imports if key[0] == run]:
            del self._imports[key]

    def _report_waiting(self, stage_id: StageId, words: str) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and not stage.started_ms:
            self._outbox.put(StageWaiting(stage=stage_id, reason=Reason.WAITING_FOR_GROUP, detail=words))

    def _open_group(self, stage_id: StageId, group: str) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and stage.window.open(group):
            if group in stage.growing:
                stage.growing.discard(group)
                self._report_slots(stage)
            self._feed(stage)

    def _announce(self, stage_id: StageId, node: NodeId, attempt: int, started_ms: int) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and stage.machine.state(node) is StageTaskState.SUBMITTED:
            stage.started_ms[node] = started_ms
            limit_ms = stage.machine.task(node).start_to_close_ms
            if limit_ms is not None:
                ran_ms = min(max(0, time.time_ns() // 1_000_000 - started_ms), limit_ms)
                self._limits.begin(stage_id, node, time.monotonic() + (limit_ms - ran_ms) / 1000)
            self._outbox.put(NodeStarted(stage=stage_id, node=node, attempt=attempt, started_ms=started_ms))
            self._take_back_stuck(stage)

    def _hand_out(self, stage_id: StageId, source: NodeId, attempt: int, part: NodeId, digest: bytes | None, elements: Any) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and stage.hand_out(source, attempt, part, digest, elements):
            self._feed(stage)

    def _save(self, stage_id: StageId, node: NodeId, saving: Saving) -> None:
        stage = self._stages.get(stage_id)
        if stage is not None and stage.machine.state(node) is StageTaskState.SUBMITTED:
            if not stage.cancelled:
                stage.listening.add(node)
            self._checkpoints.save(stage.machine.task(node), stage_id, saving, time.monotonic())

    def _take_output(self, lines: Sequence[NodeOutput]) -> None:
        self._output.take([each for each in lines if each.stage in self._stages], time.monotonic())

    # -- values from outside -------------------------------------------------------------------------------------------

    def _import(self, stage: OpenStage, node: NodeId, stored: StoredValue, data: bytes | None) -> None:
        run = stage.spec.run
        if data is not None or stored.uri is None:
            try:
                encoded = EncodedValue(bytes(read_verified(stored, data)), stored.encoding)
            except ValueUnreadable as broken:
                self._lose_input(stage, node, broken.reason, str(broken))
                return
            self._hold(run, node, _held_form(encoded))
        elif (run, node) not in self._imports:
            value, report = self._bring_in.remote(stored)
            self._imports[run, node] = value, report
            self._watch.add((_Run(run), node), report)

    def _imported(self, run: RunId, node: NodeId, outcome: TaskReport | BaseException) -> None:
        task = self._imports.pop((run, node), None)
        if task is None:
            return
        if isinstance(outcome, TaskReport):
            self._hold(run, node, task[0])
            return
        failed = read(outcome, node)
        cause = getattr(outcome, "cause", None)
        fault = getattr(cause, "fault", None)
        reason = fault.reason if fault is not None else Reason.VALUE_LOST
        message = fault.message if fault is not None else getattr(failed, "message", str(outcome))
        for stage in tuple(self._stages.values()):
            if stage.spec.run == run and stage.machine.awaits(node):
                self._lose_input(stage, node, reason, message)

    def _hold(self, run: RunId, node: NodeId, value: Any) -> None:
        """Hold a value, and submit the tasks that wait for it in any stage of its run."""
        self._values.hold(run, {node: value})
        for stage in tuple(self._stages.values()):
            if stage.spec.run == run:
                self._arrive(stage, (node,))

    def _arrive(self, stage: OpenStage, nodes: Iterable[NodeId]) -> None:
        """Note that values from outside of the stage are there, and submit the tasks that waited for them."""
        arrived = [node for node in nodes if stage.machine.awaits(node)]
        for node in arrived:
            stage.machine.arrive(node)
        if arrived:
            self._feed(stage)

    def _lose_input(self, stage: OpenStage, node: NodeId, reason: Reason, message: str) -> None:
        """Fail all tasks that read a delivered value that cannot be read. They may be sent again with a new value."""
        self._report_lost(stage.spec, node)
        for reader in stage.machine.readers(node):
            self._fail(stage, reader, OwnFailure(reason, "mesh.ray.worker.exporting.ValueUnreadable", f"input {node}: {message}"))
        self._end_if_over(stage)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _feed(self, stage: OpenStage) -> None:
        """Submit ready tasks while slots have places for them, and the outbox room: to workers in chunks, or as Ray tasks of their own."""
        if stage.blocks:
            self._values.note_read(stage.spec.run, stage.drop_read())
        while (task := stage.machine.next_ready()) is not None and self._outbox.has_room(self._feed_later):
            if (shown_by := stage.unloadable_by(task.function)) is not None:
                self._refuse_unloadable(stage, task, shown_by)
                continue
            if stage.shares_worker(task):
                if not self._chunks.feed(stage, task):
                    break
                continue
            group = stage.place(task, self._run_times.of(task.function))
            if group is None:
                break
            stage.machine.submit(task.node)
            try:
                self._submit_one(stage, task, group)
            except Missing as missing:
                self._fail_unsubmitted(stage, task.node, OwnFailure(missing.reason, "builtins.LookupError", str(missing)))
            except Exception as refused:  # noqa: BLE001 - users write the options, and Ray raises many errors to refuse one
                message = f"Ray refuses the task: {refused}"
                failure = OwnFailure(Reason.USER_ERROR, f"builtins.{type(refused).__name__}", message)
                self._fail_unsubmitted(stage, task.node, failure)
        self._take_back_stuck(stage)
        self._end_if_over(stage)

    def _refuse_unloadable(self, stage: OpenStage, task: TaskSpec, shown_by: NodeId) -> None:
        """Fail a task without starting it: another task of the stage has shown that its function cannot be loaded."""
        words = f"its function cannot be loaded on this mesh, as {shown_by} has shown"
        stage.machine.submit(task.node)
        self._fail(stage, task.node, OwnFailure(Reason.CODE_UNAVAILABLE, "schedulemesh.CodeUnavailable", words))

    def _feed_later(self) -> None:
        self._events.put(self._feed_all)

    def _feed_all(self) -> None:
        for stage in tuple(self._stages.values()):
            self._feed(stage)

    def _fail_unsubmitted(self, stage: OpenStage, node: NodeId, own_failure: OwnFailure) -> None:
        stage.window.remove(node)
        self._fail(stage, node, own_failure)

    def _submit_one(self, stage: OpenStage, task: TaskSpec, group: SlotGroup) -> None:
        needs_code = task.function.startswith("blob:") and not self._shelf.holds(task)
        code = stage.code_of(task.node, task.function) if needs_code else None
        inline, names, references = stage.arguments_of(task.node, (*task.args, *task.kwargs.values()))
        inputs = [self._reference_to(stage, task, node) for node in task.inputs]
        call = TaskCall(
            run=stage.spec.run,
            stage=stage.spec.stage,
            node=task.node,
            attempt=task.attempt,
            args=task.args,
            kwargs=task.kwargs,
            values=(*task.inputs, *names),
            blobs=inline,
            export=task.export,
            storage_url=self._storage_url,
            inline_limit_bytes=self._inline_limit_bytes,
            num_returns=task.num_returns,
            spans=stage.spans_of(task),
            read=self._values.read_of(stage.spec.run, task.node),
            traceparent=stage.spec.traceparent,
        )
        submitted = self._shelf.remote(task, code, group.group).remote(pickle.dumps(call, protocol=5), *inputs, *references)
        stage.tasks[task.node] = (submitted[0], submitted[1])
        self._watch.add((stage.spec.stage, task.node), submitted[1])

    def _reference_to(self, stage: OpenStage, reader: TaskSpec, node: NodeId) -> Any:
        """Return the reference to an input. Raises Missing when Ray has lost the value, which was reported before."""
        reference = stage.block_of(reader.node, node)
        if reference is None:
            reference = self._values.of(stage.spec.run).get(node)
        if reference is None:
            raise stage.lost_input(reader.node, node)
        return reference

    def _came_back(self, stage_id: StageId, node: NodeId, outcome: TaskReport | BaseException) -> None:
        stage = self._stages.get(stage_id)
        if stage is None or stage.machine.state(node) is not StageTaskState.SUBMITTED:
            return
        stage.window.remove(node)
        if isinstance(outcome, TaskReport):
            self._output.forget(stage_id, (node,))
            self._succeed(stage, node, outcome)
        else:
            self._take_cause(stage, node, read(outcome, node))
        self._release_slots(stage)
        self._feed(stage)

    # -- ends of tasks in chunks: see `ChunkEnds` ----------------------------------------------------------------------

    def take_successes(self, stage: OpenStage, report: ChunkReport, ended: Mapping[int, NodeId], large: Mapping[int, Any]) -> None:
        spec, machine = stage.spec, stage.machine
        stored: dict[int, StoredValue] = {}
        blobs: dict[str, bytes] = {}
        finished: list[Finished] = []
        held: dict[NodeId, Any] = {}
        others = [other for other in self._stages.values() if other.spec.run == spec.run and other is not stage]
        for entry, (place, node) in enumerate(ended.items()):
            kept = _within_limit(report.values[place])
            value: Any = EncodedValue(kept, Encoding.PICKLE) if kept is not None else large.get(place)
            if report.stored:
                address, data = report.stored.get(report.tasks[place], (None, None))
                if isinstance(address, StoredValue) and isinstance(data, bytes | None):
                    stored[entry] = address
                    if data is not None:
                        blobs[address.sha256] = data
                        value = EncodedValue(data, address.encoding) if value is None else value
            finished.append((spec.run, node, stored.get(entry, kept) if stored else kept))
            held[node] = value
        nodes = ended.values()
        self._values.hold(spec.run, held)
        self._forget_tasks(stage, nodes)
        self._output.forget(spec.stage, nodes)
        self._checkpoints.drop(spec.stage, nodes)
        attempts = tuple(map(machine.attempt, nodes))
        message = NodesSucceeded(
            stage=spec.stage,
            tasks=tuple(map(machine.position, nodes)),
            attempts=() if max(attempts) == 1 else attempts,
            since_ms=report.since_ms,
            started=tuple(report.started_us[place] // 1000 for place in ended),
            took=tuple(report.took_us[place] // 1000 for place in ended),
            workers=(report.worker,),
            stored=stored,
            elements={entry: count for entry, place in enumerate(ended) if (count := report.elements.get(report.tasks[place])) is not None}
            if report.elements
            else {},
        )
        self._outbox.put(message, blobs, finished)
        for other in others:
            self._arrive(other, nodes)

    def take_outcome(self, stage: OpenStage, node: NodeId, outcome: Outcome) -> None:
        self._take_cause(stage, node, outcome)

    def try_again(self, stage: OpenStage, node: NodeId) -> None:
        stage.machine.take_back(node)
        self._forget_tasks(stage, (node,))

    def take_start(self, stage: OpenStage, node: NodeId, started_ms: int) -> None:
        self._announce(stage.spec.stage, node, stage.machine.attempt(node), started_ms)

    def lose_group_of(self, stage: OpenStage) -> None:
        self._lose_group(stage.spec.stage)

    def refuse(self, stage: OpenStage, node: NodeId, missing: Missing) -> None:
        self._fail(stage, node, OwnFailure(missing.reason, "builtins.LookupError", str(missing)))

    def go_on(self, stage: OpenStage) -> None:
        if self._stages.get(stage.spec.stage) is stage:
            self._release_slots(stage)
            self._feed(stage)

    def _forget_tasks(self, stage: OpenStage, nodes: Iterable[NodeId]) -> None:
        """Drop what was noted about submitted tasks, which have come back."""
        if not (stage.taken_back or stage.reclaimed or stage.evicted or stage.started_ms):
            return
        for node in nodes:
            stage.taken_back.discard(node)
            stage.reclaimed.discard(node)
            stage.evicted.pop(node, None)
            stage.started_ms.pop(node, None)

    # -- ends of Ray tasks ---------------------------------------------------------------------------------------------

    def _succeed(self, stage: OpenStage, node: NodeId, report: TaskReport) -> None:
        stage.machine.succeed(node)
        self._forget_tasks(stage, (node,))
        function = stage.machine.function(node)
        self._run_times.note(function, report.finished_ms - report.started_ms)
        stage.loads.note_loaded(function)
        self._checkpoints.drop(stage.spec.stage, (node,))
        blobs = {report.stored.sha256: report.data} if report.stored is not None and report.data is not None else None
        message = NodeSucceeded(
            stage=stage.spec.stage,
            node=node,
            attempt=stage.machine.attempt(node),
            started_ms=report.started_ms,
            finished_ms=report.finished_ms,
            worker=report.worker,
            stored=report.stored,
            elements=report.elements,
        )
        self._outbox.put(message, blobs, [(stage.spec.run, node, report.stored or _within_limit(report.kept))])
        self._hold(stage.spec.run, node, stage.tasks.pop(node)[0])

    def _take_cause(self, stage: OpenStage, node: NodeId, cause: Outcome) -> None:
        """Handle a submitted task that came back without a value."""
        self._checkpoints.flush(stage.spec.stage, node, time.monotonic())
        if isinstance(cause, GroupLost):
            self._lose_group(stage.spec.stage)
        if stage.cancelled:
            self._stop(stage, node)
        elif isinstance(cause, GroupLost) and node not in stage.started_ms:
            stage.machine.leave(node)
        elif isinstance(cause, TaskInterrupted) and node in stage.taken_back and node not in stage.started_ms and not stage.is_group_lost:
            stage.machine.take_back(node)
        elif node in stage.evicted:  # Before the rest: the end of what it held outside may have failed its code first.
            self._fail(stage, node, stage.evicted[node])
        elif node in stage.reclaimed | stage.taken_back and not stage.is_group_lost:
            self._fail(stage, node, OwnFailure(Reason.QUOTA_RECLAIMED, "ray.exceptions.TaskCancelledError", "its slot went back"))
        elif isinstance(cause, TaskInterrupted) and not stage.is_group_lost:
            self._fail(stage, node, OwnFailure(Reason.CANCELLED_BY_USER, "ray.exceptions.TaskCancelledError", "cancelled"))
        elif isinstance(cause, (GroupLost, TaskInterrupted)):
            self._fail(stage, node, OwnFailure(Reason.WORKER_LOST, "ray.exceptions.TaskPlacementGroupRemoved", GROUP_LOST))
        elif isinstance(cause, OwnFailure):
            self._fail(stage, node, cause)
        else:
            self._lose_values(stage, node, cause.lost_id)
            self._fail(stage, node, OwnFailure(Reason.VALUE_LOST, "ray.exceptions.ObjectLostError", cause.message))
        self._forget_tasks(stage, (node,))

    def _stop(self, stage: OpenStage, node: NodeId) -> None:
        if node in stage.started_ms:
            failure = OwnFailure(Reason.CANCELLED_BY_USER, "ray.exceptions.TaskCancelledError", "cancelled while it ran")
            self._fail(stage, node, failure)
        else:
            stage.machine.leave(node)

    def _fail(self, stage: OpenStage, node: NodeId, own_failure: OwnFailure) -> None:
        if stage.machine.fail(node) is None:
            return
        if stage.blocks:
            self._values.note_read(stage.spec.run, stage.drop_read(failed=node))
        now_ms = time.time_ns() // 1_000_000
        fault = own_failure.fault
        if fault is not None and fault.reason is Reason.CODE_UNAVAILABLE and fault.is_function:
            worker = fault.report.worker  # Its process is its place: only Ray knows where a Ray task runs.
            stage.loads.note_failure(stage.machine.function(node), node, worker, worker)
        attempt = stage.machine.attempt(node)
        if fault is not None and fault.grew is not None:
            self._report_growth(stage, node, fault, *fault.grew)
            return
        failure, blobs = failure_of(own_failure)
        if fault is None and own_failure.reason in _WORKER_GONE:  # The worker could not report.
            failure = with_last_lines(failure, self._output.last_lines(stage.spec.stage, node, attempt, time.monotonic()))
        message = NodeFailed(
            stage=stage.spec.stage,
            node=node,
            attempt=attempt,
            started_ms=fault.report.started_ms if fault is not None else stage.started_ms.get(node, now_ms),
            finished_ms=fault.report.finished_ms if fault is not None else now_ms,
            failure=failure,
        )
        self._output.forget(stage.spec.stage, (node,))
        self._outbox.put(message, blobs)

    def _report_growth(self, stage: OpenStage, node: NodeId, fault: TaskFault, graph: StoredValue, data: bytes | None) -> None:
        """Report that a task returned nodes. Those behind it were dropped: their input will come from other nodes."""
        message = NodeGrew(
            stage=stage.spec.stage,
            node=node,
            attempt=stage.machine.attempt(node),
            started_ms=fault.report.started_ms,
            finished_ms=fault.report.finished_ms,
            graph=graph,
        )
        self._output.forget(stage.spec.stage, (node,))
        self._outbox.put(message, {graph.sha256: data} if data is not None else None)

    def _lose_values(self, stage: OpenStage, node: NodeId, lost_id: str) -> None:
        """Find the inputs of the task that Ray has lost, and report them, so that they are computed again.

        What a task was handed out is computed with the whole list, which its next attempt reads.
        """
        if stage.lose_block(node, lost_id):
            return
        held = self._values.of(stage.spec.run)
        inputs = [need for need in stage.machine.task(node).inputs if need in held and not isinstance(held[need], EncodedValue)]
        for need in [need for need in inputs if held[need].hex() == lost_id] or inputs:
            self._values.lose(stage.spec.run, need)
            self._report_lost(stage.spec, need)

    def _report_lost(self, spec: StageSpec, node: NodeId) -> None:
        """Report that the value of an input is lost; no copy of it outlives this runner, since the root has it computed again."""
        self._outbox.put(InputLost(stage=spec.stage, node=node), finished=[(spec.run, node, None)])

    def _end_if_over(self, stage: OpenStage) -> None:
        if stage.machine.is_ended and self._stages.pop(stage.spec.stage, None) is not None:
            self._room.drop(stage.spec.stage)
            self._chunks.end_stage(stage)
            self._stop_at.pop(stage.spec.stage, None)
            self._checkpoints.end(stage.spec.stage)
            self._output.end(stage.spec.stage)
            self._outbox.put(StageEnded(stage=stage.spec.stage))


def _held_form(encoded: EncodedValue) -> Any:
    """Return a value as it is held: itself when it is small, else a reference to it."""
    return encoded if len(encoded.data) <= KEPT_BYTES_MAX else ray.put(encoded)


def _within_limit(kept: object) -> bytes | None:
    """Return what a worker reports as a small value, if it is one: the worker runs the tenant's code, and the mesh's process keeps it."""
    return kept if isinstance(kept, bytes) and len(kept) <= KEPT_BYTES_MAX else None
