"""A stage that a mesh has claimed and of which it has not been told the end: what was asked of it, and how its words are told.

One that gives way is stopped though nobody has cancelled it: what was to be its end is told as a loss, so that it runs again later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from federation.child.balance import sum_of
from federation.dispatch import Claim, ClaimedStage, digest_of
from federation.leases import Lease
from mesh.hosting import StageHost
from mesh.ids import NodeId, RunId, StageId
from mesh.messages import NodeFailed, StageEnded, StageLost, StageMessage, StageWaiting
from mesh.reasons import Reason
from mesh.resources import ResourceSet


@dataclass(slots=True)
class RunningStage:
    """What the mesh knows of it beside its scheduler and the book of its leases."""

    claim: Claim
    run: RunId
    delivered: set[NodeId] = field(default_factory=set)
    cancelled: bool = False
    gives_way: bool = False  #: What it holds is wanted for others; it is being stopped, to run again later.
    gives_way_because: Reason = Reason.QUOTA_RECLAIMED
    is_disowned: bool = False  #: The store knows the claim no more: nothing of it is told, but until it has stopped it is paid for.
    taken: int = 0  #: The last batch that the store has taken in, as it counts; 0: none, or what an earlier process has told.
    paid_by: Lease | None = None  #: The lease under which it was claimed; None: it takes nothing, or an earlier process has claimed it.
    spec: str = ""  #: `digest_of` its spec.
    is_whole: bool = True  #: All that was told of it is kept; not so where an earlier process has told some of it.
    is_questioned: bool = False  #: A report was refused, and the store was asked how the claim stands.
    waits_for_ray: bool = False  #: Ray has not placed its group; its host said so, and of no node since.
    priority: int = 0
    started_ms: int = 0  #: On this process' own clock.

    @classmethod
    def of(cls, claimed: ClaimedStage, now_ms: int, *, paid_by: Lease | None = None, is_whole: bool = True) -> RunningStage:
        """One that is found running may be asked to stop no sooner than one that starts now: how long it runs is not known."""
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
        """What an earlier process has left and nobody goes on with: it is being stopped, and nothing of it is told."""
        return cls(claim=claim, run=RunId(""), gives_way=True, is_disowned=True)

    @property
    def stops(self) -> bool:
        """It was asked to stop, for whatever reason."""
        return self.gives_way or self.cancelled

    def cancel(self, host: StageHost) -> None:
        """Somebody wants it no more. Once is enough."""
        if not self.cancelled:
            self.cancelled = True
            host.cancel(self.claim.stage)

    def give_way(self, host: StageHost) -> None:
        """It is no longer paid for, though nobody has cancelled it: it runs again later."""
        self.gives_way = True
        host.cancel(self.claim.stage)

    def note(self, messages: tuple[StageMessage, ...]) -> None:
        """Whether it waits for Ray, by what the host tells last."""
        if messages:
            self.waits_for_ray = isinstance(messages[-1], StageWaiting)

    def in_its_words(self, messages: tuple[StageMessage, ...]) -> tuple[StageMessage, ...]:
        """What the host tells, as the root is to hear it: one that gave way did not end, and none of its nodes has failed by that."""
        if not self.gives_way or self.cancelled:
            return messages
        lost = lost_stage(self.claim, self.gives_way_because)
        return tuple(lost if isinstance(message, StageEnded) else message for message in messages if not _is_of_a_stop(message))


def beyond_limit(
    limit: ResourceSet, spent: Mapping[StageId, ResourceSet], running: Mapping[StageId, RunningStage], young: Collection[StageId] = ()
) -> Iterable[RunningStage]:
    """Who has to give way so that what remains of a lease's stages is within its limit: the least urgent, of those the last started; but
    first of all those that are not too young for it.
    """
    remaining = sum_of(amounts for stage, amounts in spent.items() if stage not in running or not running[stage].gives_way)
    paid = [running[stage] for stage in spent if stage in running]
    for stage in sorted(paid, key=lambda each: (each.claim.stage in young, each.priority, -each.claim.token)):
        if remaining <= limit:
            return
        if not stage.gives_way:
            remaining -= spent[stage.claim.stage]
            yield stage


def lost_stage(claim: Claim, reason: Reason) -> StageLost:
    """The word that it runs here no more, and has not ended."""
    return StageLost(stage=claim.stage, mesh=claim.mesh, incarnation=claim.incarnation, reason=reason)


def _is_of_a_stop(message: StageMessage) -> bool:
    return isinstance(message, NodeFailed) and message.failure.reason is Reason.CANCELLED_BY_USER
