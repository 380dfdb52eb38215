"""Leases: what a tenant may use of a flavor on a mesh; held by the mesh, spent there without asking anybody.

There is one lease for each (mesh, tenant, flavor). It holds amounts of resources and aims at others: above them it has to
shrink, below them it may grow. A mesh joins and gets a session (its `incarnation`); one heartbeat renews the session and
with it every lease of the mesh, whatever their number.

**Never over-granted.** The ledger is the only writer; every change is one atomic step. What a lease holds is charged until
it is provably not used any more: the mesh has given it back, has said that it obeys the present version of the lease, or
its session was not renewed for `ttl_ms` on the ledger's clock and `grace_ms` more. A mesh stops its work by its own clock
at `ttl_ms` after it *sent* the heartbeat that was last answered, so the grantor always outlasts the holder.

**Epochs.** A ledger that may have lost writes (a restart, another server, a clock set back) begins an epoch and learns: for
one time to live and the grace it grants nothing new and takes nothing back; meshes tell what they hold, and go on working.
No call of an earlier epoch is carried out. Source: references of the protocol (§2 to §4.3), ADR 0019.

**Versions.** Tokens and versions are drawn from one counter that never repeats, even after lost writes. A mesh names the
version that it has seen of a lease when it asks for more, gives back, or says that it obeys; under any other nothing is
done and the lease is told instead. So every call may be repeated, and may arrive late.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field

from federation.auditing import Mismatch
from federation.snapshot import MeshRecord, Snapshot
from federation.tenants import TenantTree
from mesh.ids import FlavorName, LeaseId, MeshId, StageId, TenantPath, is_fit_name
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet, format_units

#: Rows in one call, at most: others wait for as long as it takes.
ROWS_MAX = 100
#: Leases or wants that one heartbeat may tell. A mesh holds no more leases: all of them have to be told at once to a ledger that learns.
TOLD_MAX = 1_000
#: A mesh is believed that work has waited for so long, ms, and no longer.
WAITED_MS_MAX = 7 * 86_400_000


def _fit(name: str) -> str:
    if not is_fit_name(name):
        raise ValueError(f"{name[:100]!r} is no name; it must not be empty, nor hold `|` or what is no character to read")
    return name


def _fit_names(amounts: ResourceSet) -> ResourceSet:
    for name in amounts:
        _fit(name)
    return amounts


#: On the wire, names are such as rows of the ledger can hold.
FitTenant = Annotated[TenantPath, AfterValidator(_fit)]
FitFlavor = Annotated[FlavorName, AfterValidator(_fit)]
FitAmounts = Annotated[ResourceSet, AfterValidator(_fit_names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """The times of a ledger, ms."""

    ttl_ms: int  #: How long a session lives after each heartbeat.
    grace_ms: int  #: How much longer the ledger waits before it takes back what a silent session holds.
    max_step_ms: int = 2_000  #: Most that the lease clock moves between two calls; less than the grace.

    @classmethod
    def of(cls, ttl_ms: int, grace_ms: int) -> "LeaseTerms":
        """With the longest step that the grace makes safe, 2 s at most.

        A step by which the server's clock leaps takes as much off the time after which a silent session is over: a holder has stopped by
        then only if the grace is longer. A third of it remains for the end of what the holder stops.
        """
        return cls(ttl_ms=ttl_ms, grace_ms=grace_ms, max_step_ms=min(2_000, grace_ms * 2 // 3))

    @property
    def learn_ms(self) -> int:
        """How long a ledger learns after it may have lost writes: until every lease it may have forgotten has run out."""
        return self.ttl_ms + self.grace_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A grant to a tenant on a mesh, of one flavor."""

    tenant: FitTenant
    mesh: MeshId
    flavor: FitFlavor
    held: FitAmounts = NOTHING  #: What is charged, and may be used unless the target is lower.
    target: FitAmounts = NOTHING  #: What the ledger aims at. Lower than held: give way, then acknowledge.
    token: int = 0  #: Fencing token; a hard revoke changes it.
    version: int = 0  #: Changes with everything that the ledger tells; 0: there is no such lease.
    priority: int = 0  #: Of the most urgent work that it pays for, as its mesh told last: what a planner takes first is the least urgent.
    shrink_ms: int | None = None  #: For how long what is above the target may still be used, counted from the sending of the question.
    receipt: str = ""  #: The root's signature over it; goes back with a claim.

    @property
    def amounts(self) -> ResourceSet:
        """What the tenant is charged."""
        return self.held

    @property
    def lease(self) -> LeaseId:
        """A name for people."""
        return lease_name(self.mesh, self.tenant, self.flavor)

    @property
    def spendable(self) -> ResourceSet:
        """What may be used: never more than is held, and no more than is aimed at."""
        return ResourceSet({resource: min(units, self.target[resource]) for resource, units in self.held.items()})


def lease_name(mesh: MeshId, tenant: TenantPath, flavor: FlavorName) -> LeaseId:
    """How people call the lease of a tenant on a mesh."""
    return LeaseId(f"{mesh}:{tenant}:{flavor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Slots that a mesh could use at once for a tenant, on top of what its lease holds: of one size, for work of one priority."""

    tenant: FitTenant
    flavor: FitFlavor
    slot: FitAmounts  #: Only whole slots are of use.
    slots: int = 1
    priority: int = 0
    version: Annotated[int, Field(ge=0)] = 0  #: That the mesh has seen of the lease; 0: it knows of none.
    pays_for: int | None = None  #: Priority of the most urgent work that the lease pays for once it has grown; None: `priority`.
    waited_ms: Annotated[int, Field(ge=0)] | None = None
    """How long the oldest of this work has waited, by the mesh's clock; None: the ledger counts from when it first heard of it."""
    beyond: Annotated[int, Field(ge=0)] = 0
    """Slots that more of this work waits for than the mesh could hold at once; as it was when the wants were told, and for people only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a mesh says of a lease that it has: `amounts` is what it still holds, or what it does not exceed any more."""

    tenant: FitTenant
    flavor: FitFlavor
    version: Annotated[int, Field(ge=0)]  #: That the mesh has seen; under any other nothing is done.
    amounts: FitAmounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pays:
    """For what a lease pays now: told when it has become something else than the ledger knows."""

    tenant: FitTenant
    flavor: FitFlavor
    priority: int  #: Of the most urgent work.


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a heartbeat tells besides the record."""

    number: int  #: Of the session's beats, counts up from 1. The same again is answered again and changes nothing.
    acks: tuple[Kept, ...] = ()  #: Leases above their target that the mesh does not exceed any more.
    wants: tuple[Want, ...] | None = None  #: All that the mesh wants, on top of what it held before this beat; None: as it told before.
    claims: tuple[Lease, ...] | None = None  #: All that the mesh holds; the ledger needs it while it learns.
    pays: tuple[Pays, ...] = ()  #: Of leases of which this has changed; what is not held is passed over.


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What every answer to a session tells."""

    epoch: int = 0
    learn_ms: int = 0  #: For how long the ledger grants nothing new; 0: it does not learn.
    mark: int = 0  #: Version of the last change; a session that knows it knows every lease.
    others_want: bool = False  #: Other meshes wait for quota: what lies idle is worth giving back.
    leases: tuple[Lease, ...] = ()  #: Every lease of the mesh that changed since the session's mark.


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One life of a mesh in the ledger, with what it has seen of it so far."""

    mesh: MeshId
    incarnation: int  #: A token: greater than that of any earlier session of any mesh.
    ttl_ms: int  #: Renew well within this, counted from the moment of sending.
    epoch: int = 0
    ledger: str = ""  #: The ledger's own id: a session speaks to no other.
    mark: int = 0  #: See `Told.mark`.
    told: Told = field(default_factory=Told, compare=False, repr=False)  #: The answer to the join: leases that were taken over.


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """So many slots were added; the lease itself is among what was told."""

    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """The lease is not as the mesh believed; it was told, and nothing was granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRefused:
    """Not now, or never as the quota stands."""

    reason: Reason  #: QUOTA_EXHAUSTED, QUOTA_TOO_SMALL, LEDGER_LEARNING or TENANT_UNKNOWN.
    tenant: TenantPath
    flavor: FlavorName
    resource: str = ""  #: The resource that is short.
    wanted: int = 0  #: Units of it for one slot.
    available: int = 0  #: Units of it that the tree would grant now.

    def in_words(self) -> str:
        """For people."""
        if self.reason is Reason.LEDGER_LEARNING:
            return "the ledger has begun anew; it grants nothing before every mesh had the time to tell what it holds"
        if self.reason is Reason.TENANT_UNKNOWN:
            return (
                f"there is no tenant {self.tenant} any more, so nothing pays for it; write it into the root's file "
                "again and `schedulemesh apply` that, or cancel the run and submit it for another tenant"
            )
        if not self.resource:
            return f"{self.tenant}: {self.reason.value}"
        available, wanted = (format_units(self.resource, units) for units in (max(0, self.available), self.wanted))
        return f"{self.tenant} may take {available} {self.resource} of {self.flavor} now, one slot takes {wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The answers, in the order of the wants."""

    answers: tuple[Granted | LookAgain | LeaseRefused, ...]
    told: Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep took back."""

    meshes: tuple[MeshId, ...] = ()
    leases: int = 0
    stages: tuple[StageId, ...] = ()
    is_more_due: bool = False
    learn_ms: int = 0  #: While the ledger learns nothing is taken back.


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The tree is in force."""

    version: int
    over: tuple[str, ...] = ()  #: `tenant|flavor|resource` of nodes above their limits: they are granted nothing until use has fallen.


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where a plan wants a lease to be."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    target: ResourceSet
    before: ResourceSet | None = None  #: What the plan saw it aim at: what has changed since is kept, see `aimed`. None: whatever it was.
    wait_ms: Annotated[int, Field(ge=0)] | None = None
    """What runs may go on for so long before it has to give way; 0: it has to at once, also where an earlier plan let it wait. None: at
    once, but where it waits already no sooner than it had to."""

    def from_now(self, now: Mapping[str, int]) -> "Aim":
        """The same for a lease that aims at this now."""
        if self.before is None:
            return self
        names = {*self.target, *self.before, *now}
        return replace(self, target=ResourceSet({name: aimed(now.get(name, 0), self.before[name], self.target[name]) for name in names}))


def aimed(now: int, before: int, target: int) -> int:
    """The target of a lease of one resource, by a plan that saw `before` and wants `target`, where it is `now`.

    What was granted since is not taken back by a plan that gives more, and what was released since is not given again: a plan moves a lease
    by no more than it meant to, and never past where it meant to. What it did not mean to move stays.
    """
    if target > before:
        return max(now, min(target, now + target - before))
    if target < before:
        return min(now, max(target, now + target - before))
    return now


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One change of a lease, as the log tells it."""

    at_ms: int  #: On the server's clock.
    verb: str  #: `grant`, `release`, `plan`, `shrink`, `grow`, `cut`, `revoke`, `expire`, `restore`, `epoch`, …
    lease: Lease | None  #: As it was after the change; None for what is not about a lease.
    why: str = ""


class LeaseLedger(Protocol):
    """The port; every method is atomic, and safe to repeat.

    Raises (all): StoreUnavailable. All that take a session: EpochChanged, ForeignLedger, FutureToken.
    """

    def configure(self, tree: TenantTree, *, expected: int | None = None) -> Configured:
        """Make `tree` the tree of the ledger. Leases are kept and their use is bubbled anew; a cut may leave a node over its
        limits. A tenant that vanished but is still charged keeps its row with no quota.

        Args:
            expected: Version of the tree that is replaced; None replaces any.

        Raises:
            TreeChanged: Another one is in force than expected.
        """

    def reparent(self, tenant: TenantPath, parent: TenantPath | None, *, expected: int, force: bool = False) -> Configured:
        """Move a tenant with all below it under another parent. `force`: even where that leaves a node over its limits.

        Raises:
            TreeChanged: As for `configure`.
            TenantCycle: The parent is the tenant, or below it.
            QuotaExceeded: A node would be over its limits that is not now.
            UnknownTenant: One of them is not in the tree.
        """

    def join(self, record: MeshRecord, *, adopt: int = 0, seen: int = 0) -> Session:
        """Begin a session. Claims of an earlier one are reported lost at once; its leases stay charged until their own time is
        over, for what they paid for may still run.

        Args:
            adopt: Incarnation of the earlier session whose work is gone on with: its claims and leases are this session's as they
                stand. Where that cannot be, nothing is done and an error tells why: stop the work, and join without.
            seen: The highest token that the mesh ever got: a ledger that has lost writes learns from it that it has.

        Raises:
            FutureToken: No ledger can have given out `seen`.
            SessionLost: The session to go on with was never known, or superseded, or has run out.
            LedgerLearning: What is known of it may be older than what others were granted since.
        """

    def heartbeat(self, session: Session, record: MeshRecord, beat: Beat) -> Told:
        """Renew the session, store the mesh's present record, take in what it acknowledges, wants, and (learning) holds; let
        leases grow to targets that a plan has raised: by as much less is wanted then, the most urgent first.

        Raises:
            SessionLost: Swept, superseded by another join, or never known.
            StaleBeat: A later beat has been taken in.
            HoldingsWanted: The ledger learns, and the beat has no claims.
            ForgedReceipt: A claim was not signed by the root.
            UnfitName: As for `acquire`, of a want or a claim.
            BatchTooLarge: More than `ROWS_MAX` acknowledgements, or more than `TOLD_MAX` wants, claims or payments.
        """

    def leave(self, session: Session) -> None:
        """End the session in good order: nothing of it runs any more. Harmless when it has ended already."""

    def acquire(self, session: Session, wants: tuple[Want, ...]) -> Acquired:
        """Grant of each want as many whole slots as the tree leaves, within nominal quota and by borrowing, but nothing that a
        plan has set aside for others. What is not granted is noted as wanted beside what else is: of the same slots and priority no
        less than was noted before, less what is granted. A mesh has `TOLD_MAX` wants at most, and further ones are not noted.

        Raises:
            SessionLost: As for `heartbeat`, or its time has run out.
            UnfitName: A want's tenant, flavor or resource has a name that no row can hold.
            BatchTooLarge: More than `ROWS_MAX` wants.
            AmountError: A want of less than one slot.
        """

    def release(self, session: Session, parts: tuple[Kept, ...]) -> Told:
        """Give back what leases hold above `amounts`. Some of the meshes that want of these flavors are told to look again.

        Raises:
            SessionLost: As for `heartbeat`.
            UnfitName: As for `acquire`.
            BatchTooLarge: More than `ROWS_MAX` parts.
        """

    def sweep(self, limit: int = 200) -> Swept:
        """Take back what is overdue by more than the grace: of sessions, and above targets. About `limit` leases at most; where more is
        due, sweep again. A mesh whose session was ended so is seen for a day; if it has not come back then, it is forgotten."""

    def elect(self, name: str, ttl_ms: int) -> int | None:
        """Be the planner for so long, or go on being it: the token for `plan_apply`. None while somebody else is."""

    def plan_apply(self, planner: int, version: int, aims: tuple[Aim, ...]) -> int:
        """Set targets. What is lowered has to be given up within its session's time; what is raised grows by heartbeats, and
        nobody else is granted it meanwhile. The number of the plan.

        Args:
            planner: Token of `elect`.
            version: Of the tree that the plan was made for.

        Raises:
            PlannerSuperseded: Somebody else plans, or the time is over.
            TreeChanged: Another tree is in force.
            LedgerLearning: What is held is not known yet.
            QuotaExceeded: The targets would exceed a limit; nothing was changed.
            SessionUnknown: A mesh has no session.
        """

    def revoke(
        self, *, mesh: MeshId | None = None, tenant: TenantPath | None = None, flavor: FlavorName | None = None, hard: bool = False
    ) -> int:
        """Aim leases at nothing; None stands for all. Hard: what was claimed under them may not report results any more.
        How many leases it was."""

    def epoch(self) -> int:
        """The present one, as it was begun by whatever call came last: this one begins none, and costs next to nothing."""

    def snapshot(self) -> Snapshot:
        """Tenants with their use, meshes with their state, leases and wants, at one instant."""

    def audit(self) -> tuple[Mismatch, ...]:
        """Nodes whose sums are not those of their leases; a mismatch is an alarm, and is never repaired silently."""

    def story(self, mesh: MeshId | None = None, tenants: Collection[TenantPath] | None = None, limit: int = 100) -> tuple[Chapter, ...]:
        """The last changes of leases, oldest first; of one mesh, or of some tenants, when named. A hundred thousand or more are kept."""
