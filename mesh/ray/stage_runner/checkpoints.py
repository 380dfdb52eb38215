"""Checkpoints and progress of a runner's tasks: the newest of each node, reported at most once a second.

A newer checkpoint replaces one that is not reported yet, and so does a refusal. A refusal is reported once an attempt, however often it
occurs. A checkpoint in a file is reported at once, since the root deletes the file of the one before; its worker limits the rate. Pure,
but for `last`, which any thread may call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mesh.core.ids import NodeId, StageId
from mesh.core.reasons import Reason
from mesh.ray.worker.present_task import REPORT_EVERY_S, Saved, Saving
from mesh.stages.messages import PROGRESS_WHOLE, CheckpointRefused, NodeCheckpoint, NodeProgress, StageMessage
from mesh.stages.spec import StageSpec, TaskSpec

#: Longest text about a checkpoint that was not kept.
DETAIL_CHARS_MAX = 1_000

#: Largest number of refusals that are reported of one attempt: some storages name each request in their errors.
REFUSALS_MAX = 10


@dataclass(slots=True)
class _Node:
    attempt: int
    last: Saved | None  #: The newest; at first that of an earlier attempt.
    progress: float | None = None
    number: int = 0
    refused: tuple[Reason, str] | None = None  #: The newest refusal that is not reported yet.
    reported_refusals: set[str] = field(default_factory=set)
    reported_number: int = 0
    reported_progress: float | None = None
    reported_s: float = float("-inf")

    @property
    def is_unreported(self) -> bool:
        return self.number > self.reported_number or self.progress != self.reported_progress or self.refused is not None

    def refuse(self, reason: Reason, detail: str) -> None:
        """Record a refusal, unless it was reported already or `REFUSALS_MAX` were."""
        if _unnamed(detail) not in self.reported_refusals and len(self.reported_refusals) < REFUSALS_MAX:
            self.refused = reason, detail


class Checkpoints:
    """Newest checkpoints of the tasks of a runner's open stages.

    Args:
        put: Takes each message, with the bytes that must be stored before it is read.
    """

    def __init__(self, put: Callable[[StageMessage, dict[str, bytes] | None], None]) -> None:
        self._put = put
        self._stages: dict[StageId, dict[NodeId, _Node]] = {}  #: Nodes that have saved or reported.
        self._waiting: dict[tuple[StageId, NodeId], _Node] = {}  #: Nodes with something that is not reported yet.

    def begin(self, spec: StageSpec, blobs: dict[str, bytes]) -> None:
        """Record the checkpoints that earlier attempts left. `blobs`: bytes that came with the stage, by SHA-256."""
        self._stages[spec.stage] = {
            task.node: _Node(attempt=task.attempt, last=(task.checkpoint, blobs.get(task.checkpoint.sha256)))
            for task in spec.resuming()
            if task.checkpoint is not None
        }

    def last(self, stage: StageId, node: NodeId) -> Saved | None:
        """Return the newest checkpoint of the node, of this attempt or an earlier one."""
        kept = self._stages.get(stage, {}).get(node)
        return None if kept is None else kept.last

    def save(self, task: TaskSpec, stage: StageId, saving: Saving, now_s: float) -> None:
        """Record what is new of a running task, and report it when it is due. `now_s`: any clock that only goes forward."""
        kept = self._stages[stage].setdefault(task.node, _Node(attempt=task.attempt, last=None))
        if saving.refused is not None:
            kept.refuse(*saving.refused)
        if saving.progress is not None:
            kept.progress = saving.progress
        if saving.saved is not None:
            kept.last, kept.number = saving.saved, kept.number + 1
        if kept.is_unreported:
            self._waiting[stage, task.node] = kept
            if saving.saved is not None and saving.saved[0].uri is not None:
                self.flush(stage, task.node, now_s)
            self.report_due(now_s)

    def report_due(self, now_s: float) -> None:
        """Report what is new of all nodes whose last report is long enough ago."""
        for key in [key for key, kept in self._waiting.items() if kept.reported_s + REPORT_EVERY_S <= now_s]:
            self.flush(*key, now_s)

    def pause_s(self, now_s: float) -> float | None:
        """Return the seconds until the next report is due; None: none waits."""
        first = min((kept.reported_s for kept in self._waiting.values()), default=None)
        return None if first is None else max(0.0, first + REPORT_EVERY_S - now_s)

    def flush(self, stage: StageId, node: NodeId, now_s: float) -> None:
        """Report what is new of the node at once: its task failed or stopped."""
        kept = self._waiting.pop((stage, node), None)
        if kept is None:
            return
        if kept.number > kept.reported_number and kept.last is not None:
            stored, data = kept.last
            message = NodeCheckpoint(stage=stage, node=node, attempt=kept.attempt, number=kept.number, stored=stored)
            self._put(message, {stored.sha256: data} if data is not None else None)
        if kept.progress is not None and kept.progress != kept.reported_progress:
            progress = round(kept.progress * PROGRESS_WHOLE)
            self._put(NodeProgress(stage=stage, node=node, attempt=kept.attempt, progress=progress), None)
        if kept.refused is not None:
            reason, detail = kept.refused
            self._put(
                CheckpointRefused(stage=stage, node=node, attempt=kept.attempt, reason=reason, detail=detail[:DETAIL_CHARS_MAX]), None
            )
            kept.reported_refusals.add(_unnamed(detail))
            kept.refused = None
        kept.reported_number, kept.reported_progress, kept.reported_s = kept.number, kept.progress, now_s

    def drop(self, stage: StageId, nodes: Iterable[NodeId]) -> None:
        """Forget the nodes: their tasks have succeeded, and need no checkpoint."""
        kept = self._stages[stage]
        if kept:
            for node in nodes:
                self._waiting.pop((stage, node), None)
                kept.pop(node, None)

    def end(self, stage: StageId) -> None:
        """Forget all nodes of a stage that has ended."""
        for node in self._stages.pop(stage, {}):
            self._waiting.pop((stage, node), None)


def _unnamed(detail: str) -> str:
    """Return the text without the names of files, which differ in each checkpoint."""
    return re.sub(r"[0-9a-f]{16,}", "", detail)
