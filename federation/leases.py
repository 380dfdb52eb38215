"""Leases: the quota of a tenant for a flavor on a mesh. The mesh holds a lease and spends it without a call to the root.

There is one lease per (mesh, tenant, flavor), with amounts held and target amounts. A lease above its target must shrink, a lease below
may grow. A mesh joins and gets a session (its `incarnation`). One heartbeat renews the session and all leases of the mesh.

**Never over-granted.** The ledger is the only writer; every change is one atomic step. The ledger charges what a lease holds until the
use has provably ended: the mesh has returned it, or has acknowledged the current version of the lease, or its session was not renewed for
`ttl_ms` plus `grace_ms` on the ledger's clock. A mesh stops its work on its own clock, `ttl_ms` after it *sent* the last heartbeat that
was answered. So the ledger always outlasts the mesh.

**Epochs.** A ledger that may have lost writes (a restart, another server, a clock set back) begins an epoch and recovers. For one time to
live plus the grace it grants nothing and reclaims nothing; meshes report what they hold, and go on working. The ledger refuses every call
of an earlier epoch. Source: ADR 0019.

**Versions.** Tokens and versions come from one counter that never repeats, even after lost writes. A mesh that asks for more, returns
quota or acknowledges a target names the version of the lease that it has seen. If this version is not current, the ledger changes nothing
and responds with the lease. So every call may be repeated, and may arrive late.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field

from federation.auditing import Mismatch
from federation.mesh_access import words_of_closed
from federation.snapshot import FederationSnapshot, MeshRecord
from federation.tenants import TenantTree
from mesh.core.ids import FlavorName, LeaseId, MeshId, StageId, TenantPath, is_fit_name
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet, format_units

#: Most rows in one call: a longer call would block other callers.
ROWS_MAX = 100
#: Most leases or demands in one heartbeat. A mesh holds no more leases, because a ledger that recovers needs all of them in one call.
ROWS_SENT_MAX = 1_000
#: Most victims that a lease names. For the rest the mesh uses its own order.
VICTIMS_MAX = 200
#: Shortest time between two notifications of contested quota, and the wait from a notification to the plan, ms: so the plan has the demand
#: of the refusals without a notification.
CONTESTED_MS = 100
#: Longest reported wait of work that the ledger believes, ms.
WAITED_MS_MAX = 7 * 86_400_000


def _fit(name: str) -> str:
    if not is_fit_name(name):
        raise ValueError(f"invalid name {name[:100]!r}: it must not be empty, and `|` and non-printable characters are not allowed")
    return name


def _fit_names(amounts: ResourceSet) -> ResourceSet:
    for name in amounts:
        _fit(name)
    return amounts


#: Names on the wire must fit into rows of the ledger.
FitTenant = Annotated[TenantPath, AfterValidator(_fit)]
FitFlavor = Annotated[FlavorName, AfterValidator(_fit)]
FitAmounts = Annotated[ResourceSet, AfterValidator(_fit_names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Times of a ledger, ms."""

    ttl_ms: int  #: Life of a session after each heartbeat.
    grace_ms: int  #: Further wait before the ledger reclaims what a silent session holds.
    max_step_ms: int = 2_000  #: Longest step of the lease clock between two calls; less than the grace.

    @classmethod
    def of(cls, ttl_ms: int, grace_ms: int) -> "LeaseTerms":
        """Return terms with the longest step that the grace makes safe, at most 2 s.

        A leap of the server's clock shortens the time until a silent session expires by one step. The holder has stopped by then only if
        the grace is longer than the step. A third of the grace remains for the end of the work that the holder stops.
        """
        return cls(ttl_ms=ttl_ms, grace_ms=grace_ms, max_step_ms=min(2_000, grace_ms * 2 // 3))

    @property
    def recovery_ms(self) -> int:
        """Time in which a ledger that may have lost writes recovers: until every lease that it may have lost has expired."""
        return self.ttl_ms + self.grace_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Lease of one tenant on one mesh, for one flavor."""

    tenant: FitTenant
    mesh: MeshId
    flavor: FitFlavor
    held: FitAmounts = NOTHING  #: Charged amounts; usable unless the target is lower.
    target: FitAmounts = NOTHING  #: Amounts that the ledger aims at. If lower than held: preempt, then acknowledge.
    token: int = 0  #: Fencing token; a revoke with `hard` changes it.
    version: int = 0  #: Changes with every reported change of the lease; 0: the lease does not exist.
    priority: int = 0  #: Priority of the lease's most urgent work, as last reported. A planner reclaims the least urgent first.
    shrink_ms: int | None = None  #: How long amounts above the target stay usable, counted from the sending of the request.
    victims: tuple[int, ...] = ()
    """Claim tokens of stages that plans stop: while the lease has to shrink, as many of them as that takes; otherwise all of them, for more
    urgent work of the tenant. Tokens of stages that have ended mean nothing.
    """
    receipt: str = ""  #: The root's signature over the lease; the mesh sends it back with a claim.

    @property
    def amounts(self) -> ResourceSet:
        """Amounts that the tenant is charged."""
        return self.held

    @property
    def lease(self) -> LeaseId:
        """Readable name of the lease."""
        return lease_name(self.mesh, self.tenant, self.flavor)

    @property
    def spendable(self) -> ResourceSet:
        """Usable amounts: the lower of held and target."""
        return ResourceSet({resource: min(units, self.target[resource]) for resource, units in self.held.items()})


def lease_name(mesh: MeshId, tenant: TenantPath, flavor: FlavorName) -> LeaseId:
    """Return the readable name of the lease of a tenant on a mesh."""
    return LeaseId(f"{mesh}:{tenant}:{flavor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDemand:
    """Slots of one size and priority that a mesh could use at once for a tenant, beyond what its lease holds."""

    tenant: FitTenant
    flavor: FitFlavor
    slot: FitAmounts  #: Only whole slots are useful.
    whole: FitAmounts = NOTHING  #: Slot of the stages behind it, where `slot` is the part of one that the lease lacks; else empty.
    gang_size: Annotated[int, Field(ge=0)] = 0  #: Bundles of a slot that is a gang; 0: the slot lies on one node.
    slots: int = 1
    priority: int = 0
    version: Annotated[int, Field(ge=0)] = 0  #: Version of the lease that the mesh has seen; 0: none.
    pays_for: int | None = None  #: Priority of the most urgent work that the grown lease pays for; None: `priority`.
    waited_ms: Annotated[int, Field(ge=0)] | None = None
    """Wait of the oldest of this work, on the mesh's clock; None: the ledger counts from the first report."""
    created_ms: Annotated[int, Field(ge=0)] = 0  #: When the oldest of this work was submitted, since the epoch; 0: unknown.
    beyond: Annotated[int, Field(ge=0)] = 0
    """Further slots that this work waits for, beyond what the mesh could hold at once, when last reported. For display only."""
    is_growth: bool = False
    """In `LeaseLedger.acquire`: the work runs, and could use more slots. The ledger does not record what it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAck:
    """Amounts of a lease that a mesh keeps: what it still holds, or a bound that it does not exceed any more."""

    tenant: FitTenant
    flavor: FitFlavor
    version: Annotated[int, Field(ge=0)]  #: Version of the lease that the mesh has seen; under any other nothing changes.
    amounts: FitAmounts


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUse:
    """Priority of the work that a lease pays for, reported when it changes."""

    tenant: FitTenant
    flavor: FitFlavor
    priority: int  #: Priority of the most urgent work.


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReport:
    """Content of a heartbeat beside the mesh's record."""

    number: int  #: Counts up from 1 per session. A repeated number gets the same response and changes nothing.
    acks: tuple[LeaseAck, ...] = ()  #: Leases above their target that the mesh does not exceed any more.
    demands: tuple[QuotaDemand, ...] | None = None  #: All demands, beyond what the mesh held before this heartbeat; None: unchanged.
    claims: tuple[Lease, ...] | None = None  #: All leases held; the ledger needs them while it recovers.
    lease_uses: tuple[LeaseUse, ...] = ()  #: Changed priorities; leases that are not held are ignored.


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerResponse:
    """Part of every response to a session."""

    epoch: int = 0
    recovery_ms: int = 0  #: How long the ledger grants nothing new; 0: it does not recover.
    mark: int = 0  #: Version of the last change; a session with this mark knows every lease.
    others_wait: bool = False  #: Other meshes wait for quota: return idle leases.
    leases: tuple[Lease, ...] = ()  #: Every lease of the mesh that changed since the session's mark.


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Session of a mesh with the ledger, with the mark up to which the mesh has seen changes."""

    mesh: MeshId
    incarnation: int  #: A token, greater than that of any earlier session of any mesh.
    ttl_ms: int  #: Renew well within this time, counted from the moment of sending.
    epoch: int = 0
    ledger: str = ""  #: Id of the ledger; the session is valid at no other.
    mark: int = 0  #: See `LedgerResponse.mark`.
    response: LedgerResponse = field(
        default_factory=LedgerResponse, compare=False, repr=False
    )  #: Response to the join: leases that the session has recovered.


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Granted slots; the lease itself is in the response's leases."""

    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """The mesh's version of the lease is old; nothing was granted, and the response has the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRefused:
    """Refusal for now, or for as long as the quota stays as it is."""

    reason: Reason  #: QUOTA_EXHAUSTED, QUOTA_CONTESTED, QUOTA_TOO_SMALL, FLAVOR_CLOSED, LEDGER_RECOVERING or TENANT_UNKNOWN.
    tenant: TenantPath
    flavor: FlavorName
    resource: str = ""  #: The resource that is short.
    wanted: int = 0  #: Units of the resource for one slot.
    available: int = 0  #: Units of the resource that the tree would grant now; if contested, only those within the tenant's own quota.

    def in_words(self) -> str:
        """Return the refusal as a message for people."""
        if self.reason is Reason.LEDGER_RECOVERING:
            return "the ledger recovers; it grants nothing new until every mesh has had time to report its leases"
        if self.reason is Reason.TENANT_UNKNOWN:
            return (
                f"tenant {self.tenant} does not exist any more, so no quota pays for its work; write it into the root's file "
                "again and `schedulemesh apply` the file, or cancel the run and submit it for another tenant"
            )
        if not self.resource:
            return f"{self.tenant}: {self.reason.value}"
        if self.reason is Reason.QUOTA_CONTESTED:
            return (
                f"{self.tenant} would borrow {self.resource} of {self.flavor}, and other tenants want {self.flavor} as well; "
                "the planner decides who borrows"
            )
        if self.reason is Reason.FLAVOR_CLOSED:
            return words_of_closed(self.tenant, self.flavor, self.resource)
        available, wanted = (format_units(self.resource, units) for units in (max(0, self.available), self.wanted))
        return f"{self.tenant} may get {available} {self.resource} of {self.flavor} now, one slot needs {wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """Results of `acquire`, in the order of the demands."""

    answers: tuple[Granted | LookAgain | LeaseRefused, ...]
    response: LedgerResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Sessions, leases and stages that a sweep has reclaimed."""

    meshes: tuple[MeshId, ...] = ()
    leases: int = 0
    stages: tuple[StageId, ...] = ()
    is_more_due: bool = False
    recovery_ms: int = 0  #: While the ledger recovers, a sweep reclaims nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """Result of `configure`: the tree is in force."""

    version: int
    over: tuple[str, ...] = ()  #: `tenant|flavor|resource` of nodes above their limits, which get no grants until their use has fallen.


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetUpdate:
    """Change of a lease's target by a plan."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    target: ResourceSet
    before: ResourceSet | None = None  #: Target when planned; later changes are merged, see `merged_target`. None: overwrite.
    wait_ms: Annotated[int, Field(ge=0)] | None = None
    """Time for which running work above the target may go on before it is preempted. 0: preempt at once, even if an earlier plan granted a
    delay. None: preempt at once, but an earlier plan's delay stays.
    """
    victims: tuple[int, ...] = ()
    """Claim tokens of the stages that the plan stops, the first `VICTIMS_MAX`; they join those of earlier plans whose reduction goes on.
    With an unchanged target these stages are preempted for more urgent work of the same tenant.
    """

    def from_now(self, now: Mapping[str, int]) -> "TargetUpdate":
        """Return the change merged with the lease's present target."""
        if self.before is None:
            return self
        names = {*self.target, *self.before, *now}
        return replace(
            self, target=ResourceSet({name: merged_target(now.get(name, 0), self.before[name], self.target[name]) for name in names})
        )


def merged_target(now: int, before: int, target: int) -> int:
    """Merge a plan's target for one resource with changes since the plan.

    The plan saw `before` and wants `target`; the lease is at `now`. A plan that raises a lease removes no later grant, and a plan that
    lowers a lease restores nothing that was released since. A plan moves a lease by no more than planned, and never past the planned
    target. A resource that the plan did not move keeps its value.
    """
    if target > before:
        return max(now, min(target, now + target - before))
    if target < before:
        return min(now, max(target, now + target - before))
    return now


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEvent:
    """One change of a lease in the log."""

    at_ms: int  #: On the server's clock.
    verb: str  #: `grant`, `release`, `plan`, `shrink`, `grow`, `cut`, `revoke`, `expire`, `restore`, `epoch`, …
    lease: Lease | None  #: The lease after the change; None if the entry concerns no lease.
    why: str = ""


class LeaseLedger(Protocol):
    """Port of the ledger; every method is atomic and safe to repeat.

    Raises (all): StoreUnavailable. Methods with a session: EpochChanged, ForeignLedger, FutureToken.
    """

    def configure(self, tree: TenantTree, *, expected: int | None = None) -> Configured:
        """Put `tree` into force. Leases stay, and their use is counted again; a quota reduction may leave a node above its limits. A
        removed tenant that is still charged keeps a row without quota.

        Args:
            expected: Version of the tree to replace; None replaces any.

        Raises:
            TreeChanged: Another version is in force than expected.
        """

    def reparent(self, tenant: TenantPath, parent: TenantPath | None, *, expected: int, force: bool = False) -> Configured:
        """Move a tenant and all tenants below it under another parent.

        Args:
            force: Move even if a node is above its limits afterwards.

        Raises:
            TreeChanged: As for `configure`.
            TenantCycle: The parent is the tenant, or below it.
            QuotaExceeded: The move would put a node above its limits.
            UnknownTenant: The tenant or the parent is not in the tree.
        """

    def join(self, record: MeshRecord, *, adopt: int = 0, seen: int = 0) -> Session:
        """Begin a session. Claims of an earlier session are reported lost at once. Its leases stay charged until they expire, because
        their work may still run.

        Args:
            adopt: Incarnation of the earlier session to recover: the new session gets its claims and leases unchanged. If this is
                impossible, an error says why and nothing changes: stop the work, and join without it.
            seen: The highest token that the mesh ever got; with it the ledger can detect lost writes.

        Raises:
            FutureToken: No ledger can have issued `seen`.
            SessionLost: The session to recover is unknown, superseded or expired.
            LedgerRecovering: The ledger's record of that session may be older than grants to others.
        """

    def heartbeat(self, session: Session, record: MeshRecord, heartbeat_report: HeartbeatReport) -> LedgerResponse:
        """Renew the session and store the mesh's record, acknowledgements and demands; and its leases, if the ledger recovers. Leases grow
        to targets that a plan has raised, the most urgent first, and demands shrink by as much.

        Raises:
            SessionLost: Swept, superseded by another join, or unknown.
            StaleHeartbeat: The ledger has accepted a later heartbeat.
            HoldingsRequired: The ledger recovers, and the heartbeat has no claims.
            ForgedReceipt: The root has not signed a claimed lease.
            UnfitName: As for `acquire`, in a demand or a claim.
            BatchTooLarge: More than `ROWS_MAX` acknowledgements, or more than `ROWS_SENT_MAX` demands, claims or changed priorities.
        """

    def leave(self, session: Session) -> None:
        """End the session after all its work has ended. Harmless if the session has ended already."""

    def acquire(self, session: Session, demands: tuple[QuotaDemand, ...]) -> Acquired:
        """Grant as many whole slots of each demand as the tree allows, by nominal quota and by borrowing. Capacity that a plan reserves for
        others is not granted. Quota that the tenant would borrow is granted only while no other tenant wants quota of the flavor
        (ADR 0036): otherwise it is `QUOTA_CONTESTED`, and the inbox gets a `CONTESTED` entry, one in `CONTESTED_MS`.

        The ledger records ungranted slots beside the mesh's other demands. For the same slots and priority it records no less than before,
        minus what it grants. A mesh has at most `ROWS_SENT_MAX` demands; further ones are not recorded.

        Raises:
            SessionLost: As for `heartbeat`, or the session has expired.
            UnfitName: The name of a demand's tenant, flavor or resource fits into no row.
            BatchTooLarge: More than `ROWS_MAX` demands.
            AmountError: A demand of less than one slot.
        """

    def release(self, session: Session, parts: tuple[LeaseAck, ...]) -> LedgerResponse:
        """Return what leases hold above `amounts`. Some of the meshes that want these flavors are notified.

        Raises:
            SessionLost: As for `heartbeat`.
            UnfitName: As for `acquire`.
            BatchTooLarge: More than `ROWS_MAX` parts.
        """

    def sweep(self, limit: int = 200) -> Swept:
        """Reclaim what is overdue by more than the grace: expired sessions, and amounts above targets.

        One call reclaims about `limit` leases; if `is_more_due`, sweep again. A mesh whose session was swept stays visible for a day;
        then the ledger forgets it.
        """

    def elect(self, name: str, ttl_ms: int) -> int | None:
        """Become the planner for `ttl_ms`, or renew it. Return the token for `plan_apply`; None while another planner leads."""

    def plan_apply(self, planner: int, version: int, target_updates: tuple[TargetUpdate, ...]) -> int:
        """Set targets and return the number of the plan.

        A lowered lease must shrink within the time of its session. A raised lease grows by `acquire` or by heartbeats, and no other
        lease is granted that quota meanwhile. Its mesh is notified if it can grow at once.

        Args:
            planner: Token of `elect`.
            version: Version of the tree that the plan was made for.

        Raises:
            PlannerSuperseded: Another planner leads, or the term has expired.
            TreeChanged: Another tree is in force.
            LedgerRecovering: The ledger does not know all leases yet.
            QuotaExceeded: The targets would exceed a limit; nothing was changed.
            SessionUnknown: A mesh has no session.
        """

    def revoke(
        self, *, mesh: MeshId | None = None, tenant: TenantPath | None = None, flavor: FlavorName | None = None, hard: bool = False
    ) -> int:
        """Set the targets of leases to nothing, and return the number of leases. None stands for all.

        Args:
            hard: Claims under these leases may not report results any more.
        """

    def epoch(self) -> int:
        """Return the current epoch. This cheap call never begins one."""

    def snapshot(self) -> FederationSnapshot:
        """Return tenants with their use, meshes with their status, leases and demands, at one instant."""

    def audit(self) -> tuple[Mismatch, ...]:
        """Return nodes whose sums differ from those of their leases. A mismatch is an alarm and is never repaired silently."""

    def history(
        self, mesh: MeshId | None = None, tenants: Collection[TenantPath] | None = None, limit: int = 100
    ) -> tuple[LeaseEvent, ...]:
        """Return the last changes of leases, oldest first, of one mesh or of some tenants if named. The log keeps 100,000 or more."""
