"""History of each task, from submitted to over: placements, starts, stops and waits.

It is computed from the same batches as the metrics. A history is returned when its task is over, and nothing of it is retained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from mesh.core.ids import AgentId, NodeName, TaskId
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskRequest
from mesh.tasks.decisions import Decision, EndTask, ExplainWaiting, StartTask, StopTask
from mesh.tasks.events import AgentLost, Event, TaskEnded, TaskRefused, TaskStarted, TaskStopped, TaskSubmitted

#: Per task; otherwise a task that waits for a week would fill the memory with reasons.
WAITS_MAX = 32
ATTEMPTS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHistory:
    """One attempt to run the task."""

    attempt: int
    agent: AgentId
    node: NodeName
    placed_ms: int
    why_here: Reason
    started_ms: int | None = None
    stop_asked_ms: int | None = None
    stop_reason: Reason | None = None
    stopped_for: TaskId | None = None  #: The preemptor.
    ended_ms: int | None = None
    how: str = ""  #: How it ended; empty: successfully, by itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHistory:
    """History of one task. Times are milliseconds on the mesh's clock."""

    request: TaskRequest
    submitted_ms: int
    ended_ms: int = 0
    reason: Reason | None = None  #: Reason of its end.
    detail: str = ""
    attempts: tuple[AttemptHistory, ...] = ()
    waits: tuple[tuple[int, Reason], ...] = ()  #: Start and reason of each wait.


@dataclass(slots=True)
class _Open:
    request: TaskRequest
    submitted_ms: int
    attempts: list[AttemptHistory] = field(default_factory=list)
    waits: list[tuple[int, Reason]] = field(default_factory=list)


class TaskHistories:
    """Histories of the tasks that are not over."""

    def __init__(self) -> None:
        self._open: dict[TaskId, _Open] = {}
        self._hears: dict[type[Event], Callable[[Any], None]] = {
            TaskSubmitted: self._submit,
            TaskStarted: lambda event: self._change(event.task, event.attempt, started_ms=event.at_ms, agent=event.agent),
            TaskRefused: lambda event: self._end(event, f"{event.reason.value}: {event.detail}"),
            TaskEnded: lambda event: self._end(event, event.error),
            TaskStopped: lambda event: self._end(event, "stopped"),
            AgentLost: lambda event: self._end(event, event.detail or "its agent was lost"),
        }

    def __len__(self) -> int:
        return len(self._open)

    def fold(self, events: Iterable[Event], decisions: Iterable[Decision]) -> list[TaskHistory]:
        """Process the events and decisions of one call of the scheduler, and return the histories of tasks that ended."""
        at_ms, over = 0, []
        for event in events:
            at_ms = max(at_ms, event.at_ms)
            hear = self._hears.get(type(event))
            if hear is not None:
                hear(event)
        for decision in decisions:
            if isinstance(decision, EndTask):
                over += self._close(decision, at_ms)
            elif isinstance(decision, StartTask):
                self._place(decision, at_ms)
            elif isinstance(decision, ExplainWaiting):
                self._explain(decision, at_ms)
            elif isinstance(decision, StopTask):
                self._change(decision.task, decision.attempt, stop_asked_ms=at_ms, stop_reason=decision.reason, stopped_for=decision.by)
        return over

    def _submit(self, event: TaskSubmitted) -> None:
        self._open.setdefault(event.request.task, _Open(event.request, event.at_ms))

    def _place(self, decision: StartTask, at_ms: int) -> None:
        task_history = self._open.get(decision.task)
        if task_history is None or any(one.attempt == decision.attempt for one in task_history.attempts):
            return
        if len(task_history.attempts) == ATTEMPTS_MAX:
            del task_history.attempts[0]
        task_history.attempts.append(
            AttemptHistory(attempt=decision.attempt, agent=decision.agent, node=decision.node, placed_ms=at_ms, why_here=decision.reason)
        )

    def _explain(self, decision: ExplainWaiting, at_ms: int) -> None:
        task_history = self._open.get(decision.task)
        if (
            task_history is None
            or (task_history.waits and task_history.waits[-1][1] is decision.reason)
            or len(task_history.waits) == WAITS_MAX
        ):
            return
        task_history.waits.append((at_ms, decision.reason))

    def _change(self, task: TaskId, attempt: int, **changes: Any) -> None:
        task_history = self._open.get(task)
        for place, one in enumerate(task_history.attempts if task_history is not None else ()):
            if task_history is not None and one.attempt == attempt:
                task_history.attempts[place] = replace(one, **changes)

    def _end(self, event: TaskRefused | TaskEnded | TaskStopped | AgentLost, how: str) -> None:
        self._change(event.task, event.attempt, ended_ms=event.at_ms, how=how)

    def _close(self, decision: EndTask, at_ms: int) -> list[TaskHistory]:
        task_history = self._open.pop(decision.task, None)
        if task_history is None:
            return []
        return [
            TaskHistory(
                request=task_history.request,
                submitted_ms=task_history.submitted_ms,
                ended_ms=at_ms,
                reason=decision.reason,
                detail=decision.detail,
                attempts=tuple(task_history.attempts),
                waits=tuple(task_history.waits),
            )
        ]
