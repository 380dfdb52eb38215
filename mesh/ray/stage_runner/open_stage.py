"""State of a stage on its runner until it ends: its submitted tasks, and the code and arguments that came with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.stages.spec import StageSpec, TaskSpec, blobs_of
from mesh.stages.stage_machine import StageMachine

#: Pickled arguments up to this size travel with each call; larger ones are put into the object store once per stage.
BLOB_INLINE_BYTES_MAX = 64 * 1024

SubmittedTask = tuple[Any, Any]  #: References to the value and to the report.


@dataclass(slots=True)
class OpenStage:
    """A stage that has not ended."""

    spec: StageSpec
    machine: StageMachine
    group: PlacementGroup | None
    blobs: dict[str, bytes]
    tasks: dict[NodeId, SubmittedTask] = field(default_factory=dict)  #: Tasks that this stage submitted, returned ones too.
    put_blobs: dict[str, Any] = field(default_factory=dict)  #: References to large pickled arguments.
    started_ms: dict[NodeId, int] = field(default_factory=dict)  #: Tasks whose start was announced.
    listening: set[NodeId] = field(default_factory=set)  #: Running tasks whose code hears a request to stop.
    early: dict[NodeId, BaseException] = field(default_factory=dict)  #: Errors that arrived before the report of their possible cause.
    cancelled: bool = False
    is_group_lost: bool = False  #: Ray has removed the placement group: a task submitted there would wait for ever.

    def code_of(self, task: TaskSpec) -> bytes:
        """Return the task's pickled function. Raises Missing."""
        code = self.blobs.get(task.function.removeprefix("blob:"))
        if code is None:
            raise Missing(Reason.CODE_UNAVAILABLE, f"the code of {task.node} did not come with the stage")
        return code

    def arguments_of(self, task: TaskSpec) -> tuple[dict[str, bytes], list[str], list[Any]]:
        """Return the task's pickled arguments: small ones by value, large ones by name and reference. Raises Missing."""
        inline: dict[str, bytes] = {}
        large: dict[str, Any] = {}
        for form in (*task.args, *task.kwargs.values()):
            for sha256 in blobs_of(form):
                data = self.blobs.get(sha256)
                if data is None:
                    raise Missing(Reason.VALUE_LOST, f"a pickled argument of {task.node} did not come with the stage")
                if len(data) <= BLOB_INLINE_BYTES_MAX:
                    inline[sha256] = data
                elif sha256 not in large:
                    if sha256 not in self.put_blobs:
                        self.put_blobs[sha256] = ray.put(data)
                    large[sha256] = self.put_blobs[sha256]
        return inline, list(large), list(large.values())


class Missing(Exception):
    """Code or an argument that the stage names did not come with it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
