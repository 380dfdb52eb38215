"""A claimed stage whose end is not reported yet, and the note on it that outlives this process.

A preempted stage is stopped though no user cancelled it. The mesh reports its end as a loss, so that the stage runs again later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from federation.child.lease_accounting import LeaseKey, sum_of
from federation.dispatch import Claim, ClaimedStage, digest_of
from federation.leases import Lease
from mesh.core.ids import FlavorName, GroupId, NodeId, NodeName, PoolName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import without_slots
from mesh.core.wire import encode
from mesh.stages.hosting import HeldStage, Places, StageHost, slots_left
from mesh.stages.messages import (
    NodeCheckpoint,
    NodeFailed,
    NodeGrew,
    NodesSucceeded,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageMessage,
    StageResized,
    StageStarted,
    StageWaiting,
)
from mesh.stages.spec import StageSpec


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
    nodes: tuple[NodeName, ...] = ()  #: Node of each slot in no reserved group, or of each bundle, gang after gang; empty: Ray placed them.
    groups: Mapping[GroupId, NodeName] = field(default_factory=dict)  #: Reserved groups, a slot each, with their nodes.
    bundles: int = 1  #: Number of nodes of one slot: the size of a gang.
    retired: int = 0  #: Slots that the stage has given back, and that `slots` no longer counts.

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
    width: int = 0  #: The most slots that the stage could use; 0: it is unknown which of its tasks have ended.
    graph: StageSpec | None = None  #: Its tasks; None: not known.
    nodes: tuple[NodeId, ...] = ()  #: The node of each of its tasks.
    done: set[NodeId] = field(default_factory=set)  #: Tasks that have ended, or that this stage will not run.
    _readers: dict[NodeId, list[NodeId]] | None = None
    retiring: int = 0  #: Slots that the host was asked to give back and has not.
    is_hurried: bool = False  #: The tasks of these slots are interrupted.
    priority: int = 0
    started_ms: int = 0  #: On this process's own clock.
    saved_ms: int | None = None  #: When a node of it last reported a checkpoint, on the same clock; None: none since this process began.

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
            width=claimed.spec.width,
            nodes=claimed.spec.nodes,
            graph=claimed.spec,
        )

    @classmethod
    def recovered(cls, claimed: ClaimedStage, note: StageNote, now_ms: int, *, held: HeldStage) -> RunningStage:
        """Return the state of an earlier process's stage that continues. Its minimum run time starts anew, since its run time is unknown.

        Args:
            held: The stage as the host found it. If the host was asked to stop it and its user has not cancelled it, it is preempted.
        """
        stage = cls.of(claimed, note, now_ms)
        stage.holder, stage.is_preempted, stage.is_whole = held.holder, held.is_cancelled and not claimed.cancelled, False
        if held.left is None:
            stage.width = 0
        else:
            stage.done = set(stage.nodes).difference(held.left)
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

    @property
    def useful(self) -> int:
        """The most slots that the tasks that have not ended could use."""
        return max(1, min(self.width, len(self.nodes) - len(self.done))) if self.width else self.note.slots

    def heed(self, messages: tuple[StageMessage, ...], now_ms: int) -> None:
        """Record from the host's messages which tasks have ended, whether one saved a checkpoint, and whether the stage waits for Ray."""
        if any(isinstance(message, NodeCheckpoint) for message in messages):
            self.saved_ms = now_ms
        self.done.update(message.node for message in messages if isinstance(message, NodeSucceeded))
        for message in messages:
            if isinstance(message, NodesSucceeded):
                self.done.update(self.nodes[task] for task in message.tasks if task < len(self.nodes))
        self.drop(message.node for message in messages if isinstance(message, (NodeFailed, NodeGrew)))
        if messages:
            self.waits_for_ray = isinstance(messages[-1], StageWaiting)

    @property
    def readers(self) -> dict[NodeId, list[NodeId]]:
        """Tasks that need a node, by node. Most stages drop no node and need none of it."""
        if self._readers is None:
            self._readers = {}
            for node, needs in zip(self.nodes, self.graph.needs(), strict=True) if self.graph is not None else ():
                for need in needs:
                    self._readers.setdefault(need, []).append(node)
        return self._readers

    def drop(self, nodes: Iterable[NodeId]) -> None:
        """Record nodes that failed, or will not come, with all tasks behind them: the stage will not run these."""
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node not in self.done:
                self.done.add(node)
                pending += self.readers.get(node, ())

    def grow(self, host: StageHost, slots: int, places: Places) -> None:
        """Give the stage more slots."""
        nodes, groups = (*self.note.nodes, *places.nodes), {**self.note.groups, **places.groups}
        self.note = replace(self.note, slots=self.note.slots + slots, nodes=nodes, groups=groups)
        host.grow(self.claim.stage, slots, self.note.encoded(), places)

    @property
    def kept(self) -> int:
        """Slots that the stage is to keep."""
        return self.note.slots - self.retiring

    def shrink(self, host: StageHost, slots: int, *, at_once: bool = False) -> None:
        """Ask for all slots back but `slots`; `StageResized` follows. Further calls that ask for no more do nothing.

        Args:
            at_once: Interrupt the tasks of the slots; else each slot comes back when its task has ended.
        """
        is_more = slots < self.kept
        if is_more or (at_once and not self.is_hurried):
            self.retiring, self.is_hurried = max(self.retiring, self.note.slots - slots), at_once or (self.is_hurried and not is_more)
            host.shrink(self.claim.stage, self.kept, at_once=at_once)

    def note_retired(self, resized: StageResized, host: StageHost) -> int:
        """Record slots that the host has given back, here and for the process that may follow this one; return how many are new."""
        fewer = resized.retired - self.note.retired
        if fewer <= 0:
            return 0
        slots, left = self.note.slots - fewer, without_slots(self.note.nodes, resized.gone, self.note.bundles)
        self.retiring = max(0, self.retiring - fewer)
        self.is_hurried = self.is_hurried and self.retiring > 0
        groups = {group: node for group, node in self.note.groups.items() if group not in resized.groups}
        self.note = replace(self.note, slots=slots, retired=resized.retired, nodes=left[: slots * self.note.bundles], groups=groups)
        host.grow(self.claim.stage, 0, self.note.encoded())
        return fewer

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
) -> Iterable[tuple[RunningStage, int]]:
    """Yield the stages that give slots back so that a lease's stages are within its limit, each with the slots it keeps; 0: none.

    The victims that a plan names come first. Among each, stages in `young` come last, then the least urgent come first, then the last
    started.

    Args:
        victims: Claim tokens.
    """
    remaining = sum_of(_left_of(amounts, running.get(stage)) for stage, amounts in spent.items())
    paid = [running[stage] for stage in spent if stage in running and not running[stage].is_preempted]
    for stage in sorted(paid, key=lambda each: _order_of_preemption(each, young, victims)):
        slot, kept = stage.note.slot, stage.kept
        gives = 0
        excess = max((-(-(units - limit[name]) // slot[name]) for name, units in remaining.items() if slot[name]), default=0)
        if excess > 0:  # Else the stage takes nothing of what is beyond the limit.
            gives = kept - slots_left(kept, excess)
            remaining -= slot.times(gives)
        if gives or stage.retiring:
            yield stage, kept - gives


def _left_of(amounts: ResourceSet, stage: RunningStage | None) -> ResourceSet:
    """Return what a stage still takes once it has given back all that it was asked for."""
    if stage is None:
        return amounts
    return NOTHING if stage.is_preempted else amounts - stage.note.slot.times(min(stage.retiring, stage.note.slots))


def _order_of_preemption(running: RunningStage, young: Collection[StageId], victims: Collection[int]) -> tuple[bool, bool, int, int]:
    return running.claim.token not in victims, running.claim.stage in young, running.priority, -running.claim.token


def lost_stage(claim: Claim, reason: Reason) -> StageLost:
    """Return the message that the stage no longer runs here and has not ended."""
    return StageLost(stage=claim.stage, mesh=claim.mesh, incarnation=claim.incarnation, reason=reason)


def _is_of_a_stop(message: StageMessage) -> bool:
    return isinstance(message, NodeFailed) and message.failure.reason is Reason.CANCELLED_BY_USER
