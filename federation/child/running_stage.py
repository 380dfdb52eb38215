"""A claimed stage whose end is not reported yet.

A preempted stage is stopped though no user cancelled it. The mesh reports its end as a loss, so that the stage runs again later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from federation.child.lease_accounting import sum_of
from federation.dispatch import Claim, ClaimedStage, digest_of
from federation.leases import Lease
from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages.hosting import StageHost
from mesh.stages.messages import NodeFailed, StageEnded, StageLost, StageMessage, StageWaiting


@dataclass(slots=True)
class RunningStage:
    """State of a running stage beyond admission and lease accounting."""

    claim: Claim
    run: RunId
    delivered: set[NodeId] = field(default_factory=set)
    cancelled: bool = False
    is_preempted: bool = False  #: Stopping without a user's cancellation, to run again later.
    preempted_because: Reason = Reason.QUOTA_RECLAIMED
    is_disowned: bool = False  #: The store knows the claim no more: nothing is reported, but its lease pays until it has stopped.
    taken: int = 0  #: The last batch that the store has accepted, as the store counts; 0: none, or an earlier process's batches.
    paid_by: Lease | None = None  #: The lease of the claim; None: it takes nothing, or an earlier process claimed it.
    spec: str = ""  #: `digest_of` its spec.
    is_whole: bool = True  #: All its reports are kept; False if an earlier process sent some of them.
    is_questioned: bool = False  #: A report was refused, and the mesh has asked the store for the claim's state.
    waits_for_ray: bool = False  #: By the host's last report, Ray has not placed the stage's placement group.
    priority: int = 0
    started_ms: int = 0  #: On this process's own clock.

    @classmethod
    def of(cls, claimed: ClaimedStage, now_ms: int, *, paid_by: Lease | None = None, is_whole: bool = True) -> RunningStage:
        """Return the state of a claimed stage. The minimum run time of a recovered stage starts anew, since its run time is unknown."""
        return cls(
            claim=claimed.claim,
            run=claimed.spec.run,
            priority=claimed.spec.priority,
            started_ms=now_ms,
            paid_by=paid_by,
            spec=digest_of(claimed.spec),
            is_whole=is_whole,
        )

    @classmethod
    def left_by(cls, claim: Claim) -> RunningStage:
        """Return the state of an orphan stage of an earlier process: it is stopping, and the mesh reports nothing of it."""
        return cls(claim=claim, run=RunId(""), is_preempted=True, is_disowned=True)

    @property
    def stops(self) -> bool:
        """The stage was cancelled or preempted."""
        return self.is_preempted or self.cancelled

    def cancel(self, host: StageHost) -> None:
        """Cancel the stage for its user; further calls do nothing."""
        if not self.cancelled:
            self.cancelled = True
            host.cancel(self.claim.stage)

    def preempt(self, host: StageHost) -> None:
        """Preempt the stage: it stops without a user's cancellation, and runs again later."""
        self.is_preempted = True
        host.cancel(self.claim.stage)

    def note(self, messages: tuple[StageMessage, ...]) -> None:
        """Record from the host's last message whether the stage waits for Ray."""
        if messages:
            self.waits_for_ray = isinstance(messages[-1], StageWaiting)

    def in_its_words(self, messages: tuple[StageMessage, ...]) -> tuple[StageMessage, ...]:
        """Return the host's messages for the root. If the stage is preempted, a loss replaces its end, and cancellations are dropped."""
        if not self.is_preempted or self.cancelled:
            return messages
        lost = lost_stage(self.claim, self.preempted_because)
        return tuple(lost if isinstance(message, StageEnded) else message for message in messages if not _is_of_a_stop(message))


def beyond_limit(
    limit: ResourceSet, spent: Mapping[StageId, ResourceSet], running: Mapping[StageId, RunningStage], young: Collection[StageId] = ()
) -> Iterable[RunningStage]:
    """Yield the stages to preempt so that the rest of a lease's stages is within its limit.

    The least urgent come first, then the last started; stages in `young` come after all others.
    """
    remaining = sum_of(amounts for stage, amounts in spent.items() if stage not in running or not running[stage].is_preempted)
    paid = [running[stage] for stage in spent if stage in running]
    for stage in sorted(paid, key=lambda each: (each.claim.stage in young, each.priority, -each.claim.token)):
        if remaining <= limit:
            return
        if not stage.is_preempted:
            remaining -= spent[stage.claim.stage]
            yield stage


def lost_stage(claim: Claim, reason: Reason) -> StageLost:
    """Return the message that the stage no longer runs here and has not ended."""
    return StageLost(stage=claim.stage, mesh=claim.mesh, incarnation=claim.incarnation, reason=reason)


def _is_of_a_stop(message: StageMessage) -> bool:
    return isinstance(message, NodeFailed) and message.failure.reason is Reason.CANCELLED_BY_USER
