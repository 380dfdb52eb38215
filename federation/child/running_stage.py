"""A claimed stage whose end is not reported yet, and the note on it that outlives this process.

A preempted stage is stopped though no user cancelled it. The mesh reports its end as a loss, so that the stage runs again later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from federation.child.lease_accounting import LeaseKey, sum_of
from federation.dispatch import Claim, ClaimedStage, digest_of
from federation.leases import Lease
from mesh.core.ids import FlavorName, NodeId, PoolName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.wire import encode
from mesh.stages.hosting import StageHost
from mesh.stages.messages import NodeFailed, StageEnded, StageLost, StageMessage, StageStarted, StageWaiting


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNote:
    """Place and payer of a started stage. The host keeps the note beside the stage, so it outlives this process; the store lacks it."""

    claim: int  #: Token of the claim.
    pool: PoolName  #: Pool that admitted the stage.
    flavor: FlavorName  #: Flavor of the lease that pays, as the tenant names it.
    slots: int
    token: int  #: Token of the lease that pays; 0 for a stage that takes nothing.
    tenant: TenantPath  #: Tenant whose lease pays.
    slot: ResourceSet

    @property
    def amounts(self) -> ResourceSet:
        """Amounts that the stage takes of its pool and its lease."""
        return self.slot.times(self.slots)

    @property
    def payer(self) -> LeaseKey | None:
        """Key of the lease that pays; None if the stage takes nothing."""
        return (self.tenant, self.flavor) if self.slot else None

    def encoded(self) -> bytes:
        """Return the note for the host."""
        return encode(self)


@dataclass(slots=True)
class RunningStage:
    """State of a stage from its claim until its end is reported, beyond admission and lease accounting.

    Started, recovered and orphan stages differ in the flags. These are no states of one row: each records a fact of its own, and a stage
    that was preempted may be cancelled or disowned too.
    """

    claim: Claim
    run: RunId
    note: StageNote
    holder: int = 0  #: Incarnation that holds the stage's values; 0: not started yet.
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
    def of(cls, claimed: ClaimedStage, note: StageNote, now_ms: int, *, paid_by: Lease | None = None) -> RunningStage:
        """Return the state of a stage that this process has claimed and is about to start."""
        return cls(
            claim=claimed.claim,
            run=claimed.spec.run,
            note=note,
            priority=claimed.spec.priority,
            started_ms=now_ms,
            paid_by=paid_by,
            spec=digest_of(claimed.spec),
        )

    @classmethod
    def recovered(cls, claimed: ClaimedStage, note: StageNote, now_ms: int, *, holder: int, is_cancelled: bool) -> RunningStage:
        """Return the state of an earlier process's stage that continues. Its minimum run time starts anew, since its run time is unknown.

        Args:
            is_cancelled: The host was asked to stop the stage. If its user has not cancelled it, the stage is preempted.
        """
        stage = cls.of(claimed, note, now_ms)
        stage.holder, stage.is_preempted, stage.is_whole = holder, is_cancelled and not claimed.cancelled, False
        return stage

    @classmethod
    def orphan(cls, claim: Claim, note: StageNote) -> RunningStage:
        """Return the state of an earlier process's stage that does not continue: it is stopping, and the mesh reports nothing of it."""
        return cls(claim=claim, run=RunId(""), note=note, is_preempted=True, is_disowned=True)

    def started(self, cluster: str) -> StageStarted:
        """Return the message that the stage has started; the same from the first process and from its successor."""
        claim, note = self.claim, self.note
        return StageStarted(
            stage=claim.stage, mesh=claim.mesh, incarnation=self.holder, cluster=cluster, slots=note.slots, token=note.token
        )

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

    def heed(self, messages: tuple[StageMessage, ...]) -> None:
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
    limit: ResourceSet,
    spent: Mapping[StageId, ResourceSet],
    running: Mapping[StageId, RunningStage],
    *,
    young: Collection[StageId] = (),
    victims: Collection[int] = (),
) -> Iterable[RunningStage]:
    """Yield the stages to preempt so that the rest of a lease's stages is within its limit.

    The victims that a plan names come first. Among each, stages in `young` come last, then the least urgent come first, then the last
    started.

    Args:
        victims: Claim tokens.
    """
    remaining = sum_of(amounts for stage, amounts in spent.items() if stage not in running or not running[stage].is_preempted)
    paid = [running[stage] for stage in spent if stage in running]
    for stage in sorted(paid, key=lambda each: _order_of_preemption(each, young, victims)):
        if remaining <= limit:
            return
        if not stage.is_preempted:
            remaining -= spent[stage.claim.stage]
            yield stage


def _order_of_preemption(running: RunningStage, young: Collection[StageId], victims: Collection[int]) -> tuple[bool, bool, int, int]:
    return running.claim.token not in victims, running.claim.stage in young, running.priority, -running.claim.token


def lost_stage(claim: Claim, reason: Reason) -> StageLost:
    """Return the message that the stage no longer runs here and has not ended."""
    return StageLost(stage=claim.stage, mesh=claim.mesh, incarnation=claim.incarnation, reason=reason)


def _is_of_a_stop(message: StageMessage) -> bool:
    return isinstance(message, NodeFailed) and message.failure.reason is Reason.CANCELLED_BY_USER
