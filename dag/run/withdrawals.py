"""Takes back stages that no mesh has begun: the mesh is gone or closed, the tenant may not start work, or the stage waited too long.

Such stages use no capacity and no quota. Their nodes are placed again under the next attempt number, so that a number names at
most one execution.
"""

from __future__ import annotations

from collections.abc import Iterable

from dag.run.completion import Completion
from dag.run.events import StartsAllowed
from dag.run.recalls import Recalls
from dag.run.run_status import NOT_BEGUN, RunStatus
from dag.run.runs import CancelStage, StageRecord
from dag.run.state_writer import StateWriter
from dag.run.states import NODE_ENDS, StageState
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.stages.messages import Failure


class Withdrawals:
    def __init__(self, run_status: RunStatus, writer: StateWriter, recalls: Recalls, completion: Completion) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._recalls = recalls
        self._completion = completion

    def lose_mesh(self, mesh: MeshId, reason: Reason) -> None:
        """Take back the stages that a lost mesh has not begun.

        Its running stages are lost only when its session is swept, because the mesh may come back.
        """
        for stage in tuple(self._record.stages.values()):
            if stage.mesh == mesh:
                self.withdraw(stage, reason)

    def leave_mesh(self, mesh: MeshId) -> None:
        """Place planned stages elsewhere. A closed mesh finishes the stages that are in its queue."""
        for stage in tuple(self._record.stages.values()):
            if stage.mesh == mesh and stage.state is StageState.PLANNED:
                self._recalls.dissolve(stage)

    def move(self, stages: Iterable[StageId]) -> None:
        """Take back stages that their mesh has not begun, so that a mesh without work gets them."""
        for stage in stages:
            if stage in self._record.stages:
                self.withdraw(self._record.stages[stage], Reason.MOVED)

    def keep_to(self, allowed: StartsAllowed) -> None:
        """Take back all stages of a tenant that may not start work; they are placed again once it may."""
        if not allowed.is_shut or self._run_status.is_winding_down():
            return
        for stage in tuple(self._record.stages.values()):
            self.withdraw(stage, allowed.reason)

    def withdraw(self, stage: StageRecord, reason: Reason | None) -> None:
        """Take the stage back if its mesh has not begun it."""
        if stage.state is StageState.PLANNED:
            self._recalls.dissolve(stage)
        elif stage.state is StageState.QUEUED:
            self._writer.decide(CancelStage(stage=stage.stage))
            self._writer.cut_stage(stage, reason)
            left = self._run_status.left(stage)
            if not self._completion.drop_if_stopping(left):
                for node in left:
                    self._recalls.recall(node)

    # -- waiting too long ----------------------------------------------------------------------------------------------

    def overdue(self, longest_ms: int, now_ms: int) -> tuple[NodeId, ...]:
        """Return the nodes that have been ready for longer than `longest_ms` and still wait at the root or in the queue of a mesh."""
        queued = (node for stage in self._record.stages.values() if stage.state in NOT_BEGUN for node in stage.nodes)
        return tuple(
            node
            for node in dict.fromkeys((*(kept.node for kept in self._writer.blocked), *queued))
            if (since_ms := self._record.nodes[node].waits_since_ms) and now_ms - since_ms > longest_ms and self._run_status.is_ready(node)
        )

    def refuse_overdue(self, longest_ms: int) -> None:
        """Fail for good the nodes that waited too long; place the other nodes of their stages again."""
        if self._run_status.is_winding_down():
            return
        for node in self.overdue(longest_ms, self._writer.now_ms):
            kept = self._record.nodes[node]
            if kept.state in NODE_ENDS:
                continue  # An earlier node's failure has ended this one.
            why = f" (last: {kept.reason.value})" if kept.reason is not None else ""
            stage = self._record.stages[kept.stage] if kept.stage is not None else None
            if stage is not None and stage.reason is not None:
                why = f" (last: {stage.reason.value}{f', {stage.detail}' if stage.detail else ''})"
            waited_s, longest_s = (self._writer.now_ms - kept.waits_since_ms) / 1000, longest_ms / 1000
            words = f"waited {waited_s:.1f} s to start; {self._record.tenant} allows at most {longest_s:g} s{why}"
            failure = Failure(reason=Reason.WAITED_TOO_LONG, type_name="schedulemesh.WaitedTooLong", message=words)
            self._completion.fail_for_good(kept, failure)
            if stage is not None and not self._run_status.is_winding_down():
                self.withdraw(stage, Reason.WAITED_TOO_LONG)
