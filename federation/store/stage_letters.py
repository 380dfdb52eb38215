"""What both stage queues say and check about stages: bodies of inbox entries, the head of a spec, the end of a claim."""

from federation.dispatch import RESUMED_MAX, STAGE_MESSAGES, Claim, ClaimStanding, HeldClaim, QueuedStage
from federation.errors import BatchTooLarge, StaleFence
from mesh.ids import MeshId, StageId
from mesh.messages import StageEnded, StageLost, StageMessage, StageWaiting
from mesh.reasons import Reason
from mesh.stages import StageSpec
from mesh.wire import encode


def head_of(spec: StageSpec) -> QueuedStage:
    """What a mesh must know to decide about the stage."""
    return QueuedStage(
        stage=spec.stage,
        run=spec.run,
        tenant=spec.tenant,
        slot=dict(spec.slot.items()),
        width=spec.width,
        priority=spec.priority,
        yielding=spec.yielding,
    )


def ended(stage: StageId) -> bytes:
    """The body that tells the end of a stage that was cancelled in its queue."""
    return encode([StageEnded(stage=stage)], STAGE_MESSAGES)


def lost(stage: StageId, mesh: MeshId, incarnation: int, reason: Reason) -> bytes:
    """The body that tells the loss of a stage with its session, or by its deadline; `stage_lost` of lua/lib_ending.lua and
    lua/take_back_overdue.lua write the same."""
    return encode([StageLost(stage=stage, mesh=mesh, incarnation=incarnation, reason=reason)], STAGE_MESSAGES)


def waiting_for(stage: StageId, reason: Reason, detail: str) -> bytes:
    """The body that tells why a stage waits."""
    return encode([StageWaiting(stage=stage, reason=reason, detail=detail)], STAGE_MESSAGES)


def closing_state(messages: tuple[StageMessage, ...]) -> str | None:
    """The state in which the messages leave the stage, `ended` or `lost`; None when it goes on."""
    if any(isinstance(message, StageLost) for message in messages):
        return "lost"
    return "ended" if any(isinstance(message, StageEnded) for message in messages) else None


#: What stands for a batch where there is none: the claim is not current; nor is the stage known.
GONE, UNKNOWN = -1, -2


def standing_of(batch: int) -> ClaimStanding:
    """What `lua/resume.lua` tells by the number of a batch."""
    return ClaimStanding(is_current=batch >= 0, batch=max(0, batch), may_come=batch == UNKNOWN)


def refuse_many(claims: tuple[HeldClaim, ...]) -> None:
    """Others wait for the call.

    Raises:
        BatchTooLarge: There are more than may be asked about at once.
    """
    if len(claims) > RESUMED_MAX:
        raise BatchTooLarge(f"{len(claims)} claims in one call; ask about at most {RESUMED_MAX}")


def refuse_foreign(claim: Claim, messages: tuple[StageMessage, ...]) -> None:
    """A claim speaks about its own stage only.

    Raises:
        StaleFence: A message is about another stage.
    """
    for message in messages:
        if message.stage != claim.stage:
            raise StaleFence(f"the claim on {claim.stage} cannot speak about {message.stage}")
