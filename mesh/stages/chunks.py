"""Chunks: how many of a stage's ready tasks a worker gets with one call, and what becomes of them. Pure.

A call of a worker costs as much as a hundred tasks that do nothing, so a worker gets many tasks at once. It runs them one after the other
and reports once. A chunk holds so many ready tasks that all slots get some, and at least as many as take `LEAST_MS`. Then it grows over
the graph: a task joins whose needs are all in the chunk, so a chain needs no call for each step. A chunk that widens while it grows would
keep tasks from other slots, so it stops early; unless all of the stage takes no longer than the calls that sharing it would need.

Run times are guesses. So the worker looks after itself: once a task has run for longer than expected, the worker reports what is done
before it and gives the rest back. Tasks that take about `STALL_MS` get more time, or each would give back those behind it. While many
tasks of some milliseconds are ready, a chunk is a part of what a slot gets of them (guided self-scheduling). So few calls are needed, and
the last chunks are small. The task that was running when a worker died fails: its next run is another attempt. The rest of the chunk is
run again. If nobody knows which task was running, each runs alone, so that none costs another one its attempt.

Source: Polychronopoulos and Kuck 1987 (guided self-scheduling); task fusing and batching as dask's `fuse` and Nomad's batch evaluation do
it, by measured run times in place of fixed sizes.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from mesh.core.ids import NodeId
from mesh.stages.slot_window import FUNCTIONS_MAX, RunTimes
from mesh.stages.stage_machine import StageMachine, StageTaskState

#: Expected time of a chunk: at most, at least where there are so many ready tasks, and at most for one that widens; milliseconds.
FULL_MS, LEAST_MS, WIDENED_MS = 50.0, 2.0, 5.0
#: Expected time of all tasks of a stage up to which one slot may get them all; milliseconds. Sharing them takes further calls.
WHOLE_MS = 10.0
#: Guess for a function that has not run yet; milliseconds.
GUESS_MS = 1.0
#: Expected time of a chunk of many ready tasks, at most; milliseconds.
SHARE_MS = 200.0
#: Chunks that a slot gets of the ready tasks, at least, before one may take longer than `FULL_MS`.
ROUNDS_MIN = 4
#: Run time of a task after which its worker reports the tasks before it and gives back those behind it, at least; milliseconds.
STALL_MS = 20.0
#: Run time of a chunk after which its worker does so too, at least: its tasks take longer than expected; milliseconds.
LATE_MS = 2 * FULL_MS
#: A task, or a chunk, takes longer than expected from so many times the expected time on.
OVERRUN = 2
#: Expected work for one worker that is worth the start of another; milliseconds.
START_MS = 50.0
#: Weight of the newest median in the expected run time.
_NEWEST = 0.3
#: Deaths of workers that ran no task, until a task succeeds, after which each task counts as the culprit of the next.
IDLE_DEATHS_MAX = 5


class Habits:
    """Run times of the tenant's functions, and the functions that end a chunk."""

    def __init__(self) -> None:
        self._times = RunTimes(_NEWEST, 0.0)
        self._ending: set[str] = set()

    def note(self, function: str, took_ms: Sequence[float]) -> None:
        """Record runs of the function. Their median counts: one long run says little about the next."""
        self._times.note(function, statistics.median(took_ms))

    def of(self, function: str) -> float | None:
        """Return the expected run time in milliseconds; None: the function has not run."""
        return self._times.of(function)

    def note_ending(self, function: str) -> None:
        """Record that a task of the function must be the last of its chunk: its value is large, or its code uses Ray."""
        if len(self._ending) >= FUNCTIONS_MAX:
            self._ending.clear()
        self._ending.add(function)

    def ends_chunk(self, function: str) -> bool:
        """Return whether nothing joins a chunk with a task of this function."""
        return function in self._ending


@dataclass(slots=True)
class Chunk:
    """Tasks that a worker got with one call."""

    number: int
    nodes: tuple[NodeId, ...]  #: In the order in which the worker runs them.
    left: dict[NodeId, None]  #: Those that it has neither reported nor given back.
    stall_ms: float = STALL_MS  #: Run time of a task after which the worker gives back those behind it.
    late_ms: float = LATE_MS  #: Run time of the chunk after which the worker does so too.
    running: NodeId | None = None  #: The task that has run for long, by the worker's report.


@dataclass(slots=True)
class ChunkScheduler:
    """Chunks of one stage.

    Invariants: a task is in at most one chunk; a task of a chunk is submitted, or was dropped since; its needs have succeeded or arrived,
    or are before it in its chunk.

    Args:
        machine: States of the stage's tasks.
        habits: Shared by all stages of a runner.
    """

    machine: StageMachine
    habits: Habits
    chunks: dict[int, Chunk] = field(default_factory=dict)
    _alone: set[NodeId] = field(default_factory=set)
    _idle_deaths: int = 0
    _has_stalled: bool = False  #: A task has taken longer than expected, and others may.

    def take(self, number: int, slots: int, joins: Callable[[NodeId], bool]) -> Chunk | None:
        """Return the next chunk for an idle slot; None: no task is ready.

        Args:
            number: Number of the chunk; no two chunks have the same.
            slots: Number of slots that share the ready tasks.
            joins: Whether a task may be in a chunk with the first ready one.
        """
        machine, nodes, sum_ms = self.machine, list[NodeId](), 0.0
        wide = -(-machine.ready // (1 if self._is_short() else max(1, slots)))
        full_ms = self._full_ms(wide)
        while (node := machine.next_ready_node()) is not None:
            function = machine.function(node)
            is_single = node in self._alone or self.habits.ends_chunk(function)
            sum_ms += self._expected_ms(function)
            if nodes and (is_single or sum_ms > (LEAST_MS if len(nodes) >= wide else full_ms) or not joins(node)):
                break
            machine.submit(node)
            nodes.append(node)
            if is_single:
                return self._begin(number, nodes)
        if not nodes:
            return None
        self._grow(nodes, joins)
        return self._begin(number, nodes)

    def wants_worker(self, serving: int) -> bool:
        """Return whether the ready tasks are worth the start of another worker. `serving`: workers that start, or will soon be idle."""
        node = self.machine.next_ready_node()
        if node is None:
            return False
        expected_ms = self.habits.of(self.machine.function(node))
        # A function that has not run may take long.
        return serving == 0 or self.machine.ready * (START_MS if expected_ms is None else expected_ms) > START_MS * serving

    def succeed(self, number: int, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Note that these tasks of the chunk returned; return those for which this is new and still wanted."""
        chunk = self.chunks.get(number)
        left = [] if chunk is None else [node for node in nodes if self._leaves(chunk, node)]
        if left:
            self._idle_deaths = 0
        return [node for node in left if self.machine.succeed(node)]

    def ends(self, number: int, node: NodeId) -> bool:
        """Note that the task of the chunk came back otherwise; return whether this is new. The caller fails or drops the task."""
        chunk = self.chunks.get(number)
        return chunk is not None and self._leaves(chunk, node) and self._is_submitted(node)

    def stall(self, number: int, running: NodeId) -> bool:
        """Note that the task has run for too long, and take back those behind it; return whether it is new that it runs."""
        chunk = self.chunks.get(number)
        if chunk is None or running not in chunk.left:
            return False
        is_new, chunk.running = chunk.running != running, running
        self._has_stalled = True
        self._take_back(chunk, [node for node in chunk.left if node != running])
        return is_new

    def left(self, number: int) -> tuple[NodeId, ...]:
        """Return the tasks of the chunk that have not come back."""
        chunk = self.chunks.get(number)
        return () if chunk is None else tuple(chunk.left)

    def running(self, number: int) -> NodeId | None:
        """Return the task of the chunk that is known to run."""
        chunk = self.chunks.get(number)
        return chunk.running if chunk is not None and chunk.running in chunk.left else None

    def having(self, nodes: Collection[NodeId]) -> list[int]:
        """Return the chunks that have any of these tasks."""
        return [number for number, chunk in self.chunks.items() if any(node in chunk.left for node in nodes)]

    def close(self, number: int) -> None:
        """Note that the worker has ended the chunk, and take back the tasks that it has not reported."""
        chunk = self.chunks.pop(number, None)
        if chunk is not None:
            self._take_back(chunk, list(chunk.left))

    def lose(self, number: int, culprit: NodeId | None, *, is_known: bool) -> NodeId | None:
        """Note that the chunk was lost with its worker; return the task that fails for it. All others run again.

        Args:
            culprit: The task that was running, if it is known; None although `is_known`: none had begun.
            is_known: Whether anyone could tell which task was running. If not, each runs alone.
        """
        chunk = self.chunks.pop(number, None)
        if chunk is None:
            return None
        if is_known and culprit is None:
            self._idle_deaths += 1
            is_known = self._idle_deaths <= IDLE_DEATHS_MAX
        if not is_known and len(chunk.left) == 1:
            (culprit,) = chunk.left
        fails = culprit if culprit is not None and self._leaves(chunk, culprit) else None
        if fails is None and not is_known:
            self._alone.update(chunk.left)
        self._take_back(chunk, list(chunk.left))
        return fails if fails is not None and self._is_submitted(fails) else None

    def _begin(self, number: int, nodes: list[NodeId]) -> Chunk:
        stall_ms, late_ms = self._patience_ms(nodes)
        chunk = Chunk(number=number, nodes=tuple(nodes), left=dict.fromkeys(nodes), stall_ms=stall_ms, late_ms=late_ms)
        self.chunks[number] = chunk
        return chunk

    def _full_ms(self, wide: int) -> float:
        """Return the expected time of a chunk, at most, if all ready tasks are like the first. `wide`: how many of them a slot gets."""
        node = self.machine.next_ready_node()
        expected_ms = self.habits.of(self.machine.function(node)) if node is not None else None
        return FULL_MS if expected_ms is None else min(SHARE_MS, max(FULL_MS, wide * expected_ms / ROUNDS_MIN))

    def _patience_ms(self, nodes: Sequence[NodeId]) -> tuple[float, float]:
        """Return the run times after which a task of a chunk, and the chunk, take longer than expected.

        A task that is expected to take long is alone in its chunk, and its start is reported as early as that of an unknown one.
        """
        counts = Counter(map(self.machine.function, nodes))
        expected = {function: self._expected_ms(function) for function in counts}
        longest_ms = max(each_ms for each_ms in expected.values())
        stall_ms = max(STALL_MS, OVERRUN * longest_ms) if longest_ms <= FULL_MS else STALL_MS
        return stall_ms, max(LATE_MS, OVERRUN * sum(count * expected[function] for function, count in counts.items()))

    def _grow(self, nodes: list[NodeId], joins: Callable[[NodeId], bool]) -> None:
        """Add tasks whose needs are all in the chunk, nearest first."""
        machine, open_needs = self.machine, dict[NodeId, int]()
        front, width = deque(nodes), len(nodes)
        sum_ms = sum(self._expected_ms(machine.function(node)) for node in nodes)
        widened_ms = FULL_MS if self._is_short() else WIDENED_MS
        while front:
            for follower in machine.followers(front.popleft()):
                needed = open_needs[follower] = open_needs.get(follower, machine.missing(follower)) - 1
                if needed or machine.state(follower) is not StageTaskState.WAITING:
                    continue
                function = machine.function(follower)
                if follower in self._alone or self.habits.ends_chunk(function) or not joins(follower):
                    continue
                sum_ms += self._expected_ms(function)
                if sum_ms > (FULL_MS if len(front) < width else widened_ms):
                    return
                machine.submit(follower)
                nodes.append(follower)
                front.append(follower)

    def _is_short(self) -> bool:
        """Return whether all tasks of the stage take at most `WHOLE_MS`. A function that has not run may take long."""
        left_ms = -1.0 if self._has_stalled else WHOLE_MS
        for function, count in self.machine.functions.items():
            expected_ms = self.habits.of(function)
            if expected_ms is None or left_ms < 0:
                return False
            left_ms -= count * expected_ms
        return left_ms >= 0

    def _expected_ms(self, function: str) -> float:
        expected_ms = self.habits.of(function)
        return GUESS_MS if expected_ms is None else expected_ms

    def _leaves(self, chunk: Chunk, node: NodeId) -> bool:
        if node not in chunk.left:
            return False
        del chunk.left[node]
        return True

    def _is_submitted(self, node: NodeId) -> bool:
        return self.machine.state(node) is StageTaskState.SUBMITTED

    def _take_back(self, chunk: Chunk, nodes: Sequence[NodeId]) -> None:
        for node in nodes:
            del chunk.left[node]
            if self._is_submitted(node):
                self.machine.take_back(node)
