"""Cost of a queued task: memory and time of the queues with a hundred thousand tasks, with a limit for each.

In memory and without Ray. Each task is a user's submission: a request with its own amounts, its entry in a label queue, and its
entry in the queues by state. Sides differ in how similar the tasks are: the more buckets, the less is shared.

- memory: traced bytes between before and after, per task.
- admit: a task's way through a round: taken as the best head out of its bucket, the next head put in.
- position: the number of tasks ahead, for tasks all over the queue.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from mesh.core.ids import LabelName, PoolName, TaskId
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest, TaskState
from mesh.tasks.queues import LabelQueues
from mesh.tasks.task_queues import SchedulingQueues

TASKS = 100_000
#: Number of buckets; the last has one task each, as for tasks with arguments on certain nodes.
SIDES = (1, 100, TASKS)
BYTES_MAX = 2_048
ADMIT_US_MAX = 8.0
_BEGUN_MS = 1_900_000_000_000
_ASKED = 200
_PRIORITIES = (1.0, 5.0, 5.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one side. Times are microseconds per task."""

    buckets: int
    bytes_each: float
    add_us: float
    admit_us: float
    position_us: float

    @property
    def is_within(self) -> bool:
        """Return whether both limits hold."""
        return self.bytes_each <= BYTES_MAX and self.admit_us <= ADMIT_US_MAX


def measure(tasks: int = TASKS) -> list[Found]:
    """Measure all sides, one after the other."""
    return [_measure(min(buckets, tasks), tasks) for buckets in SIDES]


def table(found: list[Found]) -> Table:
    """Return a table with one row per side."""
    shown = Table(title=f"{TASKS:,} queued tasks", title_justify="left", box=None, pad_edge=False)
    for column in ("buckets", "bytes per task", "add", "admit", "position", f"within {BYTES_MAX} bytes and {ADMIT_US_MAX:g} µs to admit"):
        shown.add_column(column, justify="right")
    for side in found:
        times = (f"{us:,.1f} µs" for us in (side.add_us, side.admit_us, side.position_us))
        shown.add_row(f"{side.buckets:,}", f"{side.bytes_each:,.0f}", *times, "yes" if side.is_within else "NO")
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    columns = ("bytes_each", "add_us", "admit_us", "position_us", "is_within")
    sides = {f"{side.buckets} buckets": {name: getattr(side, name) for name in columns} for side in found}
    return {"name": "queue_memory", "about": f"{TASKS} queued tasks", "sides": sides}


def _measure(buckets: int, tasks: int) -> Found:
    gc.collect()
    tracemalloc.start()
    kept = _filled(buckets, tasks)
    gc.collect()
    traced_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept[0]) == tasks
    del kept

    requests = [_request(number) for number in range(tasks)]
    queues, states = LabelQueues(), SchedulingQueues()
    begun = time.perf_counter()
    for number, request in enumerate(requests):
        _add(queues, states, request, number, buckets)
    added = time.perf_counter()
    for request in requests[:: tasks // _ASKED]:
        queues.position(request.task, _BEGUN_MS + tasks)
    asked = time.perf_counter()
    admit_us = _admit(queues)
    return Found(
        buckets=buckets,
        bytes_each=traced_bytes / tasks,
        add_us=(added - begun) / tasks * 1e6,
        admit_us=admit_us,
        position_us=(asked - added) / _ASKED * 1e6,
    )


def _filled(buckets: int, tasks: int) -> tuple[LabelQueues, SchedulingQueues, list[TaskRequest]]:
    queues, states, requests = LabelQueues(), SchedulingQueues(), []
    for number in range(tasks):
        requests.append(_request(number))
        _add(queues, states, requests[-1], number, buckets)
    return queues, states, requests


def _request(number: int) -> TaskRequest:
    return TaskRequest(
        task=TaskId(f"run-7f3a/node-{number:06}"),
        pool=PoolName("general"),
        resources=ResourceSet({"cpu": 10_000, "memory": 2**30}),
        priority=_PRIORITIES[number * 7 % len(_PRIORITIES)],
    )


def _add(queues: LabelQueues, states: SchedulingQueues, request: TaskRequest, number: int, buckets: int) -> None:
    bucket = number % buckets
    label = LabelName(f"tenant:{bucket % 10}")
    since_ms = _BEGUN_MS + number
    queues.add(request.task, bucket=bucket, label=label, priority=request.priority, since_ms=since_ms, arrival=number)
    states.add(request.task, TaskState.PLACEABLE, request.resources)


def _admit(queues: LabelQueues) -> float:
    """Admit half of the queue in one round; return microseconds per task, without the start of the round, which all tasks share."""
    turn = queues.round(_BEGUN_MS + len(queues))
    half = len(queues) // 2
    begun = time.perf_counter()
    for _ in range(half):
        found: tuple[Hashable, TaskId] | None = turn.next()
        assert found is not None
        queues.remove(found[1])
        turn.again(found[0])
    return (time.perf_counter() - begun) / half * 1e6
