"""Runs in memory: for tests, simulation, and a federation of one process.

The store keeps the same rows of bytes as on Redis, so it never shares a record with its callers.
"""

import asyncio
import copy
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

from dag.backlog import BACKLOG_LIMITS, RETRY_AFTER_MS, STORE_FULL, BacklogLimits
from dag.errors import BacklogFull, KeyConflict, RunConflict, StoreFull, UnknownRun
from dag.run.dead_letters import DeadLetter, parted
from dag.run.events import SignalSent
from dag.run.run_events import RunEvent
from dag.run.runs import NO_LABELS, RunChange, RunPlace, RunRecord, RunSummary, ScheduleFence, SignalAnswer, StaleSchedule
from dag.run.states import RUN_ENDS, RunState
from dag.spec.run_labels import has_labels
from dag.store.event_feed import FEED_START, RunChanges, number_of
from dag.store.node_rows import changed_rows, names_of, uris_in
from dag.store.rows import (
    check_numbers,
    dead_rows,
    event_row,
    events_in,
    fixed_fields,
    moving_fields,
    reach_of,
    record_of,
    stage_rows,
    summary_of,
    weight_of,
)
from federation.store.memory.store import MemoryStore
from mesh.core.ids import RunId, TenantPath
from mesh.core.wire import decode, encode
from mesh.errors import LedgerError

#: Interval at which a follower's thread checks that its caller still listens.
_WAIT_MS = 200


@dataclass(slots=True, kw_only=True)
class _Rows:
    """Stored rows of one run."""

    fields: dict[str, bytes]
    nodes: dict[str, bytes] = field(default_factory=dict)
    stages: dict[str, bytes] = field(default_factory=dict)
    events: dict[int, bytes] = field(default_factory=dict)  #: Events of each commit, by the number of the last one.
    settled: bool = False
    weight: int = 0  #: Bytes that the open run counts against the limits.
    dead: dict[str, bytes] = field(default_factory=dict)  #: Dead letters by node.
    is_to_forget: bool = False  #: Its values are kept for a resumption.
    signals: dict[str, str] = field(default_factory=dict)  #: Hash of the first value of each name, since the run was begun or resumed.

    @property
    def state(self) -> RunState:
        return RunState(self.fields["state"].decode())

    @property
    def tenant(self) -> TenantPath:
        return TenantPath(self.fields["tenant"].decode())


class MemoryRunStore:
    """`RunStore` in this process; thread-safe.

    Args:
        store: Stores the blobs and the inbox entries, as one Redis server stores both.
        limits: Limits on open runs.
        memory_percent: Returns the used share of this process's memory, if known.
    """

    def __init__(self, store: MemoryStore, limits: BacklogLimits = BACKLOG_LIMITS, memory_percent: Callable[[], int] = lambda: 0) -> None:
        self._store = store
        self._limits = limits
        self._memory_percent = memory_percent
        self._keys: dict[tuple[TenantPath, str], RunId] = {}  #: Idempotency keys.
        self._changed = threading.Condition()
        self._runs: dict[RunId, _Rows] = {}
        self._feed: list[tuple[RunId, TenantPath]] = []  #: Runs that were submitted, changed or removed, oldest first.
        self._held: Callable[[ScheduleFence], AbstractContextManager[bool]] = lambda _: nullcontext(True)
        store.fence_by(self._version_of)
        store.name_users(self._user_of)

    def _version_of(self, run: RunId) -> int | None:
        """Return the stored version, without the lock: a commit holds it while it waits for that of `MemoryStore`."""
        rows = self._runs.get(run)
        return None if rows is None else int(rows.fields["version"])

    def _user_of(self, run: RunId) -> str:
        """Return the user of the run, as `_version_of`."""
        rows = self._runs.get(run)
        return "" if rows is None else rows.fields["user"].decode()

    def copied(self) -> dict[str, object]:
        """Return a copy of all runs. Blobs and inbox entries are in `MemoryStore`, which has its own copy."""
        with self._changed:
            return copy.deepcopy({"runs": self._runs, "keys": self._keys})

    def lose_writes(self, kept: dict[str, object]) -> None:
        """Simulate a restart that loses all writes since the copy; `MemoryStore` has its own part."""
        with self._changed:
            self._runs = cast("dict[RunId, _Rows]", copy.deepcopy(kept["runs"]))
            self._keys = cast("dict[tuple[TenantPath, str], RunId]", copy.deepcopy(kept["keys"]))

    def fence_by(self, held: Callable[[ScheduleFence], AbstractContextManager[bool]]) -> None:
        """Use the versions of schedules in `create`: `held` returns whether a fence holds, and keeps it so until its end."""
        self._held = held

    def create(self, record: RunRecord, blobs: dict[str, bytes], fence: ScheduleFence | None = None) -> bool:
        fields = {**fixed_fields(record), **moving_fields(record, version=record.version)}
        nodes, stages = changed_rows(record.nodes, record.nodes.take_changes()), stage_rows(record.stages.values(), record.nodes)
        with self._changed:
            known = self._runs.get(record.run)
            used_for = self._keys.get((record.tenant, record.key)) if record.key else None
            is_other = known is not None and (known.fields["tenant"], known.fields["digest"]) != (fields["tenant"], fields["digest"])
            if used_for is not None and (used_for != record.run or is_other):
                raise KeyConflict(f"the idempotency key was used for run {used_for}, with another graph or id; give another key")
            if known is not None:
                if (known.fields["tenant"], known.fields["digest"]) != (fields["tenant"], fields["digest"]):
                    raise RunConflict(f"run {record.run} exists with another graph or tenant; give another id")
                return False
            with self._held(fence) if fence is not None else nullcontext(True) as is_current:
                if not is_current:
                    raise StaleSchedule(f"the schedule of run {record.run} was changed")
                self._add(record, blobs, _Rows(fields=fields, nodes=nodes, stages=stages, weight=weight_of(record, blobs)))
        return True

    def _add(self, record: RunRecord, blobs: dict[str, bytes], rows: _Rows) -> None:
        """Store a new run. Raises BacklogFull, StoreFull."""
        self._check_backlog(record.tenant, rows.weight)
        for sha256, data in blobs.items():
            self._store.put(record.run, sha256, data)
        self._runs[record.run] = rows
        if record.key:
            self._keys[record.tenant, record.key] = record.run
        self._store.post(record.run, "submitted", b"")
        self._announce(record.run, record.tenant)

    def _announce(self, run: RunId, tenant: TenantPath) -> None:
        self._feed.append((run, tenant))
        self._changed.notify_all()

    def changes(self, after: int) -> tuple[tuple[RunId, TenantPath], ...]:
        """Return the runs of the feed after the first `after` changes."""
        with self._changed:
            return tuple(self._feed[after:])

    @property
    def changes_total(self) -> int:
        """Number of changes of all runs so far."""
        with self._changed:
            return len(self._feed)

    def check_room(self, record: RunRecord, blobs: dict[str, bytes]) -> None:
        with self._changed:
            if record.run not in self._runs:
                self._check_backlog(record.tenant, weight_of(record, blobs))

    def _check_backlog(self, tenant: TenantPath, weight: int) -> None:
        """Raises BacklogFull, StoreFull."""
        for above in reach_of(tenant):
            open_runs = [rows for rows in self._runs.values() if not rows.settled and above in reach_of(rows.tenant)]
            size_bytes = sum(rows.weight for rows in open_runs)
            words = self._limits.words_when_full(above, runs=len(open_runs), size_bytes=size_bytes, weight_bytes=weight)
            if words is not None:
                raise BacklogFull(words, RETRY_AFTER_MS)
        if self._memory_percent() > self._limits.memory_percent_max:
            raise StoreFull(STORE_FULL, RETRY_AFTER_MS)

    def load(self, run: RunId) -> RunRecord | None:
        with self._changed:
            rows = self._runs.get(run)
            return record_of(run, rows.fields, rows.nodes, rows.stages.values()) if rows is not None else None

    def commit(self, record: RunRecord, change: RunChange) -> bool:
        before = check_numbers(record, change)
        version = record.version + 1
        fields = moving_fields(record, version=version, change=change)
        nodes, stages = changed_rows(record.nodes, change.nodes), stage_rows(change.stages, record.nodes)
        events, dead = event_row(change.events), dead_rows(change.dead)
        with self._changed:
            rows = self._runs.get(record.run)
            if rows is None or int(rows.fields["version"]) != record.version:
                return False
            if int(rows.fields["seq"]) != before:
                raise LedgerError(f"run {record.run}: the events of version {record.version} do not end with number {before}")
            if rows.state in RUN_ENDS and record.state not in RUN_ENDS:
                if not rows.settled or "removing" in rows.fields or (rows.is_to_forget and rows.fields["forgotten"]):
                    return False
                self._check_backlog(record.tenant, rows.weight)
                rows.settled, rows.is_to_forget, rows.dead, rows.signals = False, False, {}, {}
                self._store.reopen(record.run)
                self._store.post(record.run, "resumed", b"")
            elif record.state in RUN_ENDS and record.forget_ms and not record.forgotten:
                rows.is_to_forget = True
            rows.fields.update(fields)
            rows.nodes.update(nodes)
            rows.stages.update(stages)
            if events:
                rows.events[record.seq] = events
            rows.dead.update(dead)
            for lost in change.lost:
                self._store.note_lost(lost.stage, lost.at_ms, lost.resources)
            self._announce(record.run, record.tenant)
        record.version = version
        return True

    def summary(self, run: RunId) -> RunSummary | None:
        with self._changed:
            rows = self._runs.get(run)
            return summary_of(run, rows.fields) if rows is not None else None

    def summaries(self, runs: Sequence[RunId]) -> tuple[RunSummary | None, ...]:
        return tuple(map(self.summary, runs))

    def list(
        self, tenant: TenantPath, limit: int = 50, labels: Mapping[str, str] = NO_LABELS, *, below: RunPlace | None = None
    ) -> tuple[RunSummary, ...]:
        with self._changed:
            found = [summary_of(run, rows.fields) for run, rows in self._runs.items() if tenant in reach_of(rows.tenant)]
        newest_first = sorted(found, key=lambda summary: summary.place, reverse=True)
        wanted = (summary for summary in newest_first if below is None or summary.place < below)
        return tuple([summary for summary in wanted if has_labels(summary.labels, labels.items())][: max(0, limit)])

    def active(self) -> tuple[RunId, ...]:
        """Return the active runs, ordered by id."""
        with self._changed:
            return tuple(sorted(run for run, rows in self._runs.items() if not rows.settled))

    def settle(self, run: RunId) -> bool:
        with self._changed:
            rows = self._runs.get(run)
            if rows is None or rows.settled or rows.state not in RUN_ENDS:
                return False
            rows.settled = True
            return True

    def dead(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        with self._changed:
            letters = [cast(DeadLetter, decode(DeadLetter, row)) for rows in self._runs.values() for row in rows.dead.values()]
        return tuple(sorted(letters, key=lambda letter: (letter.at_ms, letter.letter), reverse=True)[: max(0, limit)])

    def dead_letter(self, letter: str) -> DeadLetter | None:
        run, node = parted(letter)
        with self._changed:
            row = self._runs[run].dead.get(node) if run in self._runs else None
        return decode(DeadLetter, row) if row is not None else None

    def drop_dead(self, letters: tuple[str, ...]) -> int:
        with self._changed:
            named = [parted(letter) for letter in letters]
            return sum(self._runs[run].dead.pop(node, None) is not None for run, node in named if run in self._runs)

    def events(self, run: RunId, after: int = 0, limit: int = 1000) -> tuple[RunEvent, ...]:
        with self._changed:
            rows = self._runs.get(run)
            if rows is None:
                return ()
            found, names = [row for last, row in rows.events.items() if last > after], rows.fields["names"]
        return tuple(islice(events_in(found, lambda: names_of(names), after), max(0, limit)))

    def to_forget(self, now_ms: int, limit: int = 100) -> tuple[RunId, ...]:
        with self._changed:
            due = sorted((int(rows.fields["forget_ms"]), run) for run, rows in self._runs.items() if rows.is_to_forget)
        return tuple(run for due_ms, run in due if due_ms <= now_ms)[:limit]

    def note_forgotten(self, run: RunId) -> None:
        with self._changed:
            if run in self._runs:
                self._runs[run].is_to_forget = False

    def request_cancel(self, run: RunId, reason: str, *, also_cleanup: bool = False) -> None:
        with self._changed:
            rows = self._runs.get(run)
            if rows is None:
                raise UnknownRun(f"there is no run {run}")
            if rows.state not in RUN_ENDS:
                self._store.post(run, "cancel_all" if also_cleanup else "cancel", reason.encode())

    def send_signal(self, run: RunId, signal: SignalSent, data: bytes) -> SignalAnswer:
        with self._changed:
            rows = self._runs.get(run)
            if rows is None:
                raise UnknownRun(f"there is no run {run}")
            if rows.state in RUN_ENDS:
                return SignalAnswer.ENDED
            is_first = signal.name not in rows.signals
            if rows.signals.setdefault(signal.name, signal.value.sha256) != signal.value.sha256:
                return SignalAnswer.CONFLICT
            self._store.put(run, signal.value.sha256, data)
            self._store.post(run, "signal", encode(signal))
            return SignalAnswer.SENT if is_first else SignalAnswer.REPEATED

    def retire(self, before_ms: int, limit: int = 100) -> tuple[tuple[RunId, str], ...]:
        with self._changed:
            ended = ((int(rows.fields["ended_ms"]), run) for run, rows in self._runs.items() if rows.state in RUN_ENDS)
            oldest_first = sorted(pair for pair in ended if pair[0] < before_ms)
            files: list[tuple[RunId, str]] = []
            for _, run in oldest_first[:limit]:
                files.extend((run, uri) for uri in uris_in(self._drop(run).nodes))
        return tuple(files)

    def remove(self, run: RunId) -> bool:
        with self._changed:
            rows = self._runs.get(run)
            if rows is None or rows.state not in RUN_ENDS or not rows.settled:
                return False
            self._drop(run)
            return True

    def _drop(self, run: RunId) -> _Rows:
        rows = self._runs.pop(run)
        self._keys = {named: kept for named, kept in self._keys.items() if kept != run}
        self._store.forget(run, (), keep=())
        self._store.release_id(run)
        self._announce(run, rows.tenant)
        return rows

    def wait_for_events(self, run: RunId, after: int, wait_ms: int) -> None:
        """Wait up to `wait_ms` of real time until the run has an event with a greater number, or is gone."""
        with self._changed:
            self._changed.wait_for(lambda: run not in self._runs or next(reversed(self._runs[run].events), 0) > after, wait_ms / 1000)

    def wait_for_changes(self, after: int, wait_ms: int) -> None:
        """Wait up to `wait_ms` of real time until the feed of all runs has more than `after` changes."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._feed) > after, wait_ms / 1000)


class MemoryEventFeed:
    """`EventFeed` over a `MemoryRunStore` of the same process."""

    def __init__(self, runs: MemoryRunStore) -> None:
        self._runs = runs

    async def follow(self, run: RunId, after: int = 0) -> AsyncIterator[RunEvent]:
        while True:
            summary = self._runs.summary(run)
            if summary is None:
                raise UnknownRun(f"there is no run {run}")
            events = self._runs.events(run, after)
            for event in events:
                yield event
                after = event.seq
            if not events and summary.state in RUN_ENDS:
                return
            if not events:
                await asyncio.to_thread(self._runs.wait_for_events, run, after, _WAIT_MS)

    async def wait_for_end(self, run: RunId) -> None:
        seen = 0
        while True:
            summary = self._runs.summary(run)
            if summary is None:
                raise UnknownRun(f"there is no run {run}")
            if summary.state in RUN_ENDS:
                return
            seen += len(self._runs.events(run, seen))
            await asyncio.to_thread(self._runs.wait_for_events, run, seen, _WAIT_MS)

    async def changes(self, after: str | None = None) -> RunChanges:
        total = self._runs.changes_total
        if after is None or number_of(after) > total:
            return RunChanges(mark=_mark(total), has_gap=after is not None)
        seen = number_of(after)
        entries = self._runs.changes(seen)
        return RunChanges(mark=_mark(seen + len(entries)), runs=dict(entries))

    async def wait_for_changes(self, after: str) -> None:
        await asyncio.to_thread(self._runs.wait_for_changes, number_of(after), _WAIT_MS)


def _mark(count: int) -> str:
    return f"{count}-0" if count else FEED_START
