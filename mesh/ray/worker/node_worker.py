"""Worker of a slot: an actor that runs chunks of tasks on its main thread, and a thread that looks after it.

An actor's method is neither interrupted by Ray nor does it report before its end. So the second thread reports a task that runs long,
gives back the tasks behind it, and interrupts it when the runner asks for that in the worker's page.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import pickle
import threading
import time
from collections.abc import Sequence
from typing import Any

import ray

from mesh.core.functions import PROGRAM
from mesh.core.ids import MeshId, NodeId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding
from mesh.ray.connection import keep_connected
from mesh.ray.user_code.ownership import attribute_to, has_created
from mesh.ray.user_code.task_context import TaskContext, make_current, make_current_when_asked
from mesh.ray.worker.chunk_calls import LARGE_VALUES, ChunkCall, ChunkReport, Reference, WorkerSite
from mesh.ray.worker.chunk_values import ChunkValues
from mesh.ray.worker.execution import (
    Finish,
    TaskCall,
    TaskFault,
    call_function,
    capture_for,
    elements_of,
    function_of,
    guarded,
    heed_cancel,
    result_of,
    shown_name,
    worker_name,
)
from mesh.ray.worker.page import NO_TASK, WorkerPage
from mesh.ray.worker.present_task import PresentTask, Pulse
from mesh.ray.worker.watch_folder import pages_of, register, watch_folder
from mesh.stages.messages import NodeOutput

#: Pause between two looks of the second thread: at first, and once it has reported a long task; seconds.
LOOK_S, LONG_LOOK_S = 0.01, 0.03


class _Running:
    """The chunk that runs, as both threads see it."""

    def __init__(self, call: ChunkCall) -> None:
        self.call = call
        self.guard = threading.Lock()
        self.end = len(call.nodes)  #: Tasks from here on are given back.
        self.task = NO_TASK  #: The task that runs.
        self.began_s = 0.0  #: When it began; seconds, by `time.perf_counter`.
        self.announced = NO_TASK
        self.is_interrupted = False
        self.has_begun = False  #: Whether a task has run.
        self.since_ms, self.since_s = time.time_ns() // 1_000_000, time.perf_counter()
        self.report = ChunkReport(call.number, worker_name(), self.since_ms, [], [], [], [], {}, [], {}, {}, [], elements={})

    def ms_of(self, moment_s: float) -> int:
        """Return a moment in milliseconds since the epoch."""
        return self.since_ms + int((moment_s - self.since_s) * 1000)


class NodeWorker:
    """Actor in the placement group of a slot.

    Args:
        runner: Handle of the runner.
        mesh: `detached_name` of the mesh whose watchdog ends the worker.
        threads: Threads that numeric libraries may use, as Ray sets it for a task with so many CPUs.
    """

    def __init__(self, runner: Any, mesh: MeshId, threads: int) -> None:
        register(mesh)
        keep_connected()
        heed_cancel()
        gc.freeze()  # Ray's modules are hundreds of thousands of objects, which each full collection would look at.
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        self._runner, self._mesh = runner, mesh
        self._page = WorkerPage(pages_of(watch_folder(mesh)))
        self._pulse = Pulse()
        self._output = capture_for(mesh)
        self._codes: dict[str, bytes] = {}
        self._running: _Running | None = None
        self._has_work = threading.Event()
        threading.Thread(target=self._look_after, name="chunks", daemon=True).start()

    def site(self) -> WorkerSite:
        """Return where this worker runs; its answer shows that the worker is up."""
        return WorkerSite(ray.get_runtime_context().get_node_id(), os.getpid(), str(self._page.path))

    @ray.method(num_returns=1 + LARGE_VALUES)
    def run(self, call_bytes: bytes, references: Sequence[Reference] = ()) -> Any:
        """Run a chunk; return the large values, and the report as bytes.

        Args:
            call_bytes: A `ChunkCall`.
            references: Those that the call names.
        """
        call: ChunkCall = pickle.loads(call_bytes)  # noqa: S301 - written by the runner
        self._codes.update({key: code for key, code in call.functions if code is not None})  # The runner sends none twice.
        running = _Running(call)
        self._page.begin(call.number)
        heed_cancel()
        self._running = running
        self._has_work.set()
        try:
            large = self._run_tasks(running, dict(zip(call.references, references, strict=False)))
        finally:
            with running.guard:
                running.task = NO_TASK
            self._running = None
            self._has_work.clear()
            self._output.flush()
        self._page.run(NO_TASK)  # Not when the task ends the process: the page says then which one it was.
        if large and len(call.nodes) > 1:  # Ray pickles these after the return. If it cannot, the other reports must not be lost as well.
            copied = _copied(running.report)._replace(running=running.report.large[-1], running_since_ms=running.ms_of(running.began_s))
            self._send(copied, waits=True)
        report = running.report
        # The report comes last: Ray stores what precedes a value that it cannot pickle, and an error in place of the rest.
        return (*large, *[None] * (LARGE_VALUES - len(large)), pickle.dumps(report, protocol=5))

    def _run_tasks(self, running: _Running, references: dict[str, Reference]) -> list[Any]:
        """Run the tasks one after the other; return the large values."""
        call, report, large = running.call, running.report, list[Any]()
        values = ChunkValues(call, references)
        chunk_task = ray.get_runtime_context().get_task_id() or ""
        not_done: set[int] = set()
        for index, node in enumerate(call.nodes):
            if not_done and not not_done.isdisjoint(values.behind(index)):
                not_done.add(index)
                continue
            try:
                with running.guard:
                    if index >= running.end:
                        break
                    running.began_s = began_s = time.perf_counter()
                    running.task = index
                self._page.run(index)
                done = self._run_task(running, index, node, values, chunk_task)
                ended_s = time.perf_counter()
                with running.guard:
                    running.task = NO_TASK
                _checkpoint_of_signals()
            except KeyboardInterrupt:
                with running.guard:
                    running.task, running.end = NO_TASK, index
                running.report = report._replace(running=index, running_since_ms=running.ms_of(running.began_s), is_interrupted=True)
                break
            if done is None:
                not_done.add(index)
            elif isinstance(done, TaskFault):
                not_done.add(index)
                report.faults[index] = done
                if done.reason is Reason.CODE_UNAVAILABLE:  # Tasks behind it may lack the same code: the runner fails them at once.
                    with running.guard:
                        running.end = min(running.end, index + 1)
            else:
                self._note(running, index, done, began_s, ended_s, values, large)
            if has_created():
                report.creators.append(index)
            if has_created() or len(large) >= LARGE_VALUES:
                with running.guard:
                    running.end = min(running.end, index + 1)
        return large

    def _note(
        self, running: _Running, index: int, done: Finish, began_s: float, ended_s: float, values: ChunkValues, large: list[Any]
    ) -> None:
        report = running.report
        value, stored, data, kept = done
        elements = elements_of(value)
        if kept is not None:
            values.note(index, value, kept, Encoding.PICKLE)
        elif stored is not None and data is not None:
            values.note(index, value, data, stored.encoding)
        with running.guard:
            if elements is not None:
                report.elements[index] = elements
            report.tasks.append(index)
            report.started_us.append(int((began_s - running.since_s) * 1e6))
            report.took_us.append(int((ended_s - began_s) * 1e6))
            report.values.append(kept)
            if stored is not None:
                report.stored[index] = stored, data
            if kept is None and data is None:
                report.large.append(index)
                large.append(value)

    def _run_task(self, running: _Running, index: int, node: NodeId, values: ChunkValues, chunk_task: str) -> Finish | TaskFault | None:
        """Run one task. None: an input is lost."""
        call = running.call
        key, _ = call.functions[call.function[index]]
        if (lost := values.fetch(index)) is not None:
            running.report.lost[index] = lost
            return None
        attempt = call.attempts.get(index, 1)
        task_call = TaskCall(
            call.run,
            call.stage,
            node,
            attempt,
            (),
            {},
            (),
            call.blobs,
            index in call.exported,
            call.storage_url,
            call.inline_limit_bytes,
            call.num_returns.get(index, 1),
            traceparent=call.traceparent,
        )
        attribute_to(self._mesh, call.stage, node, chunk_task)
        present: list[PresentTask] = []

        def made() -> TaskContext:
            task = PresentTask(
                self._runner,
                run=call.run,
                stage=call.stage,
                node=node,
                attempt=attempt,
                storage_url=call.storage_url,
                inline_limit_bytes=call.inline_limit_bytes,
                announces=False,
            )
            present.append(task)
            self._pulse.begin(task)
            return task.context

        def body() -> Finish:
            function = function_of(key, self._codes.get(key))
            args, kwargs = values.arguments(index, task_call, is_program=key.startswith(PROGRAM))
            value = call_function(function, task_call, args, kwargs)
            if present:
                present[0].check_goes_on()
            return result_of(value, task_call)

        make_current_when_asked(made)
        has_succeeded = False
        try:
            self._output.begin(self._send_output, call.stage, node, attempt, continues=running.has_begun)
            running.has_begun = True
            try:
                done = guarded(node, running.ms_of(running.began_s), body)
            finally:
                self._output.end()
            has_succeeded = not isinstance(done, TaskFault)
            return done
        finally:
            make_current(None)
            if present:
                self._pulse.present = None
                if not has_succeeded:
                    present[0].flush()

    def _send_output(self, lines: list[NodeOutput]) -> Any:
        return self._runner.output.remote(lines).future()

    # -- the second thread ---------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        pause = threading.Event()
        while True:
            running = self._running
            if running is None:
                self._has_work.wait()
                pause.wait(LOOK_S)
                continue
            with contextlib.suppress(Exception):  # Without this thread no later chunk would be looked after.
                self._look(running)
            pause.wait(LONG_LOOK_S if running.announced == running.task else LOOK_S)

    def _look(self, running: _Running) -> None:
        with running.guard:
            task = running.task
            if self._page.stop == running.call.number and not running.is_interrupted:
                running.is_interrupted = True
                running.end = min(running.end, task + 1 if task != NO_TASK else 0)
                if task != NO_TASK:
                    _thread.interrupt_main()
            now_s = time.perf_counter()
            call = running.call
            is_late = (now_s - running.began_s) * 1000 >= call.stall_ms or (now_s - running.since_s) * 1000 >= call.late_ms
            is_long = task not in (NO_TASK, running.announced) and is_late
            if not is_long:
                return
            running.announced = task
            running.end = min(running.end, task + 1)
            report = _copied(running.report)._replace(running=task, running_since_ms=running.ms_of(running.began_s))
        self._send(report, waits=False)
        self._show(running, task)

    def _show(self, running: _Running, task: int) -> None:
        """Show the function of a long task as the name of the process, as Ray does for its tasks; Ray resets it after the call."""
        call = running.call
        name = shown_name(call.functions[call.function[task]][0], call.nodes[task])
        if running.task == task:
            ray._raylet.setproctitle(f"ray::{name}")  # type: ignore[attr-defined]  # noqa: SLF001  Ray has no public name for it

    def _send(self, report: ChunkReport, *, waits: bool) -> None:
        """Send what is known of the chunk before its end, after what its tasks have printed."""
        self._output.flush()
        answer = self._runner.stalled.remote(pickle.dumps(report, protocol=5))
        if waits:
            with contextlib.suppress(Exception):  # A runner that is gone takes its workers with it.
                answer.future().result()


def _copied(report: ChunkReport) -> ChunkReport:
    """Return a report that the main thread does not change; large values come with the end of the call."""
    kept = [place for place, task in enumerate(report.tasks) if task not in report.large]
    return report._replace(
        tasks=[report.tasks[place] for place in kept],
        started_us=[report.started_us[place] for place in kept],
        took_us=[report.took_us[place] for place in kept],
        values=[report.values[place] for place in kept],
        stored={task: stored for task, stored in report.stored.items() if task not in report.large},
        large=[],
        faults=dict(report.faults),
        lost=dict(report.lost),
        creators=list(report.creators),
        elements=dict(report.elements),
    )


def _checkpoint_of_signals() -> None:
    """Do nothing: a call lets the interpreter handle a signal that was noted just before the end of a task."""


#: The actor class, typed as Any: see `StageRunner`.
Worker: Any = ray.remote(num_cpus=0, max_restarts=0)(NodeWorker)
