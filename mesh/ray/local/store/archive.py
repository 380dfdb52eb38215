"""Recovery of the supervisor's state: scheduler, task index and jobs, from a snapshot and the journal since.

They share one journal, so that its order is the order of events. One line holds the events and decisions of one of them: the
scheduler, or the job controller.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from mesh.core.json_codec import JsonCodecError, TaggedCodec, codec_of, dataclasses_of, json_text
from mesh.jobs import decisions as job_decisions
from mesh.jobs import events as job_events
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import JobDecision
from mesh.jobs.events import JobEvent, MemberEvent
from mesh.plugins import PluginFenced
from mesh.ray.local.store.journal_file import BYTES_MAX, LINES_MAX, JournalFile
from mesh.ray.local.store.task_index import TaskIndex, TaskIndexSnapshot
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks import decisions as scheduling_decisions
from mesh.tasks import events as scheduling_events
from mesh.tasks.decisions import Decision
from mesh.tasks.events import Event
from mesh.tasks.journal import Batch, Kinds
from mesh.tasks.scheduler import MeshScheduler

log = structlog.get_logger(__name__)

_INDEX = codec_of(TaskIndexSnapshot)
_JOB_EVENTS = tuple(kind for kind in dataclasses_of(job_events, JobEvent) if kind is not MemberEvent)
_KINDS = Kinds(
    TaggedCodec((*dataclasses_of(scheduling_events, Event), *_JOB_EVENTS)),
    TaggedCodec((*dataclasses_of(scheduling_decisions, Decision), *dataclasses_of(job_decisions, JobDecision))),
)


@dataclass(slots=True, kw_only=True)
class Memory:
    """All state that must survive a restart."""

    scheduler: MeshScheduler
    task_index: TaskIndex
    jobs: JobController


class Archive:
    """The journal of one mesh, and the state that it replays to.

    Args:
        folder: Folder of the mesh; one process owns it at a time.
        lines_max: Number of lines after which a snapshot is taken.
        bytes_max: Number of bytes after which a snapshot is taken.
        plugins: Plugins that are called during replay.
    Raises:
        RuntimeAdapterError: Another process owns the folder, or it cannot be used.
    """

    def __init__(self, folder: Path, *, lines_max: int = LINES_MAX, bytes_max: int = BYTES_MAX, plugins: PluginHost | None = None) -> None:
        self._file = JournalFile(folder, lines_max=lines_max, bytes_max=bytes_max, kinds=_KINDS)
        self._plugins = plugins or PluginHost()

    def append(self, version: int, events: Sequence[Event | JobEvent], decisions: Sequence[Decision | JobDecision]) -> None:
        """Write a batch to the journal before any of it is carried out."""
        self._file.append(version, events, decisions)

    def needs_snapshot(self) -> bool:
        """Return whether the journal is long enough for a snapshot."""
        return self._file.needs_snapshot()

    def snapshot(self, memory: Memory) -> None:
        """Replace the journal so far by a snapshot of the whole state.

        Raises:
            MeshError: A value has no form in JSON, or the disk refuses it. The journal continues, and must grow before the next try.
        """
        self._file.postpone_snapshot()
        with _uncollected():
            kept = {
                "scheduler": memory.scheduler.to_snapshot(),
                "task_index": _INDEX.encode(memory.task_index.to_snapshot()),
                "jobs": memory.jobs.to_snapshot(),
                "fenced": [[fence.plugin, fence.hook, fence.why] for fence in self._plugins.plugins.fenced],
            }
            written = json_text(kept).encode()
        self._file.snapshot(written)

    def load(self, fresh: Callable[[], MeshScheduler]) -> Memory:
        """Load the state from the snapshot and the journal.

        Raises:
            JournalError: The snapshot or a line is damaged; the message names the file and the line.
        """
        parts = self._snapshot_kept()
        # Earlier releases kept no reason.
        fenced = [(plugin, hook, *why, "was fenced off earlier") for plugin, hook, *why in parts.get("fenced", ())]
        self._plugins.begin_replay(PluginFenced(plugin=plugin, hook=hook, why=why) for plugin, hook, why, *_ in fenced)
        try:
            memory = self._from_parts(parts) if parts else Memory(scheduler=fresh(), task_index=TaskIndex(), jobs=JobController())
            self._replay(memory)
        finally:
            self._plugins.end_replay()
        return memory

    def _snapshot_kept(self) -> dict[str, Any]:
        """Return the decoded parts of the snapshot; empty when there is none."""
        kept = self._file.snapshot_kept()
        try:
            parts = json.loads(kept) if kept is not None else {}
        except ValueError as damaged:
            raise self._file.damaged(damaged) from damaged
        if not isinstance(parts, dict):
            raise self._file.damaged("no JSON object")
        return parts

    def _from_parts(self, parts: dict[str, Any]) -> Memory:
        try:
            return Memory(
                scheduler=self._plugins.scheduler_from(parts["scheduler"]),
                task_index=TaskIndex.from_snapshot(_INDEX.decode(parts["task_index"])),
                jobs=JobController.from_snapshot(parts["jobs"]) if "jobs" in parts else JobController(),
            )
        except (JsonCodecError, LookupError) as damaged:
            raise self._file.damaged(damaged) from damaged

    def close(self) -> None:
        """Release the folder for another process."""
        self._file.close()

    def _replay(self, memory: Memory) -> None:
        differs = False
        for batch in self._file.batches():
            decisions = self._live_through(memory, batch)
            if tuple(decisions) != tuple(batch.decisions) and not differs:
                # Another release may decide differently on the same events. The decisions of this release count: recovery brings Ray in
                # step.
                log.warning("the journal replays to different decisions", version=batch.version)
                differs = True

    def _live_through(self, memory: Memory, batch: Batch) -> Sequence[object]:
        first: object = batch.events[0]
        if isinstance(first, JobEvent):
            events: Any = batch.events  # A line holds events of one kind; the journal's type knows only the scheduler's.
            return memory.jobs.handle(*events)
        decisions = memory.scheduler.handle(*batch.events)
        memory.task_index.fold(batch.events, decisions)
        return decisions


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector. A snapshot makes a hundred thousand containers and no cycle; the collector walks all
    live objects each time, which took a third to a half of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
