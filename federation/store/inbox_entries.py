"""Common parts of both stage queues: bodies of inbox entries, the head of a spec, checks of claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog

from federation.dispatch import RESUMED_MAX, STAGE_MESSAGES, Claim, ClaimedStage, ClaimStatus, HeldClaim, QueuedStage
from federation.errors import BatchTooLarge, StaleFence
from mesh.core.ids import MeshId, StageId
from mesh.core.reasons import Reason
from mesh.core.wire import encode
from mesh.errors import RuntimeAdapterError
from mesh.stages.messages import NodeOutput, StageEnded, StageLost, StageMessage, StageWaiting
from mesh.stages.spec import StageSpec

log = structlog.get_logger(__name__)
#: Characters of an error that the log shows.
_SHOWN_MAX = 500
Row = TypeVar("Row")


def readable(rows: Iterable[Row], claimed: Callable[[Row], ClaimedStage], mesh: MeshId) -> list[ClaimedStage]:
    """Return the claims that can be decoded: a damaged stage must not stop the other stages of its mesh."""
    found: list[ClaimedStage] = []
    for row in rows:
        try:
            found.append(claimed(row))
        except RuntimeAdapterError as damaged:
            log.warning("a claimed stage is skipped: it cannot be decoded", mesh=mesh, why=str(damaged)[:_SHOWN_MAX])
    return found


def head_of(spec: StageSpec) -> QueuedStage:
    """Return what a mesh must know to decide about the stage."""
    return QueuedStage(
        stage=spec.stage,
        run=spec.run,
        tenant=spec.tenant,
        slot=spec.slot,
        width=spec.width,
        priority=spec.priority,
        created_ms=spec.created_ms,
        preemption=spec.preemption,
        gang=spec.gang,
    )


def ended(stage: StageId) -> bytes:
    """Return the inbox body for a stage that was cancelled in its queue."""
    return encode([StageEnded(stage=stage)], STAGE_MESSAGES)


def lost(stage: StageId, mesh: MeshId, incarnation: int, reason: Reason) -> bytes:
    """Return the inbox body for a stage that was lost with its session or by its deadline; lua/lib_ending.lua and
    lua/take_back_overdue.lua write the same.
    """
    return encode([StageLost(stage=stage, mesh=mesh, incarnation=incarnation, reason=reason)], STAGE_MESSAGES)


def waiting_for(stage: StageId, reason: Reason, detail: str) -> bytes:
    """Return the inbox body that says why a stage waits."""
    return encode([StageWaiting(stage=stage, reason=reason, detail=detail)], STAGE_MESSAGES)


def closing_state(messages: tuple[StageMessage, ...]) -> str | None:
    """Return the state in which the messages leave the stage, `ended` or `lost`; None if the stage goes on."""
    if any(isinstance(message, StageLost) for message in messages):
        return "lost"
    return "ended" if any(isinstance(message, StageEnded) for message in messages) else None


#: Replies in place of a batch number: the claim is not current; or the stage is unknown.
GONE, UNKNOWN = -1, -2


def claim_status_of(batch: int) -> ClaimStatus:
    """Convert the batch number of `lua/resume.lua` to the claim's stored state."""
    return ClaimStatus(is_current=batch >= 0, batch=max(0, batch), may_come=batch == UNKNOWN)


def refuse_many(claims: tuple[HeldClaim, ...]) -> None:
    """Refuse too many claims in one call: a long call would block others.

    Raises:
        BatchTooLarge: More than `RESUMED_MAX` claims.
    """
    if len(claims) > RESUMED_MAX:
        raise BatchTooLarge(f"{len(claims)} claims in one call; ask about at most {RESUMED_MAX}")


def refuse_foreign(claim: Claim, messages: tuple[StageMessage | NodeOutput, ...]) -> None:
    """Refuse messages about other stages than the claim's.

    Raises:
        StaleFence: A message is about another stage.
    """
    for message in messages:
        if message.stage != claim.stage:
            raise StaleFence(f"the claim on {claim.stage} does not cover messages about {message.stage}")
