"""Policies of a queue (preemption, flavors, limits), and the rules of a federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from mesh.preemption.stage_preemption import PreemptionPolicy


class PreemptionMode(str, Enum):
    """Set of workloads whose quota may be taken."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"  #: Lower, or equal and queued later.
    ANY = "Any"


class TryOn(str, Enum):
    """Next step after a flavor that would do only with borrowing or preemption."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


class Preference(str, Enum):
    """Order of preference among flavors that would do."""

    BORROWING = "BorrowingOverPreemption"
    PREEMPTION = "PreemptionOverBorrowing"


class Strategy(str, Enum):
    """Condition on shares for the preemption of a sibling."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"  #: The preemptor's share is at or below that of the victim's queue afterwards.
    INITIAL_SHARE = "LessThanInitialShare"  #: The preemptor's share is below the present share of the victim's queue.


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Preemption policies: the work that a queue's workloads may preempt."""

    within_queue: PreemptionMode = PreemptionMode.NEVER
    reclaim: PreemptionMode = PreemptionMode.NEVER  #: From queues that borrow.
    borrow: PreemptionMode = PreemptionMode.NEVER  #: From queues that borrow, even if the queue borrows itself: NEVER or LOWER_PRIORITY.
    borrow_priority_max: int | None = None  #: Only from work up to this priority; None: any lower one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fungibility:
    """Extent of the search for a flavor."""

    on_borrow: TryOn = TryOn.STOP
    on_preempt: TryOn = TryOn.NEXT
    preference: Preference = Preference.BORROWING


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """Resources that take one flavor together, and these flavors in the order to try them."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class OnQuotaReduction(str, Enum):
    """Treatment of running work above a reduced quota."""

    KEEP = "keep"  #: It continues to its end; until then nothing new starts.
    EVICT = "evict"  #: As much as needed is evicted, in the order of victims.


class OnMaxWait(str, Enum):
    """Treatment of work that waits longer than its tenant's `max_wait`."""

    REFUSE = "refuse"  #: It fails with a reason.
    FIRST = "first"  #: It goes before all others when quota is planned, and keeps waiting.


class Stop(str, Enum):
    """Whether a tenant admits work."""

    NONE = "none"
    HOLD = "hold"  #: Nothing new starts; running work continues.
    DRAIN = "drain"  #: Nothing new starts; running work is evicted.


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Time when new work may start: `lasts_ms` from each multiple of the period, shifted by `opens_ms`."""

    opens_ms: int
    lasts_ms: int
    every_ms: int = 86_400_000

    def is_open(self, now_ms: int) -> bool:
        return (now_ms - self.opens_ms) % self.every_ms < self.lasts_ms

    def opens_next_ms(self, now_ms: int) -> int:
        """Return when the window opens next; `now_ms` while it is open."""
        since = (now_ms - self.opens_ms) % self.every_ms
        return now_ms if since < self.lasts_ms else now_ms - since + self.every_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Settings of one queue beside its quota."""

    policies: Policies = Policies()
    fungibility: Fungibility = Fungibility()
    groups: tuple[ResourceGroup, ...] = ()
    is_strict: bool = False  #: StrictFIFO: nothing behind a waiting head is tried.
    stop: Stop = Stop.NONE
    priority_max: int | None = None  #: Highest priority that users may ask for; the lowest of the tenant's and its ancestors'.
    running_max: int | None = None  #: Maximum of workloads at a time.
    running_max_per_user: int | None = None
    max_wait_ms: int | None = None  #: A head that waited longer gets all room that comes free in its queue's reach.
    on_max_wait: OnMaxWait = OnMaxWait.REFUSE
    windows: tuple[TimeWindow, ...] = ()  #: New work starts only within one; empty: always.
    on_quota_reduction: OnQuotaReduction = OnQuotaReduction.KEEP
    min_run_ms: int | None = None  #: Overrides the value of `Rules`.

    @property
    def flavors(self) -> tuple[str, ...]:
        """Every flavor in the order to try it; empty if no order is set."""
        return tuple(dict.fromkeys(flavor for group in self.groups for flavor in group.flavors))


#: Settings of tenants that no file names.
NO_SETTINGS = QueueSettings()
#: How these tenants preempt: they reclaim from any borrower, and preempt their own less urgent work.
UNNAMED = QueueSettings(policies=Policies(within_queue=PreemptionMode.LOWER_PRIORITY, reclaim=PreemptionMode.ANY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of quota. The defaults are ScheduleMesh's; `KUEUE` are Kueue's of 2026-08.

    Source: ADR 0018.
    """

    fair_sharing: bool = True  #: Order and preemption by shares; otherwise by borrowing and priority.
    strategies: tuple[Strategy, ...] = (Strategy.FINAL_SHARE, Strategy.INITIAL_SHARE)
    keeps_local: bool = True  #: A node can use what it keeps, whatever deficit stands above it.
    rechecks_shares: bool = True  #: Victims by share are checked again in the final state.
    ends_loops: bool = True  #: No workload evicts one that evicted it, over any number of steps, unless within its own quota.
    weighs_lost_work: bool = True  #: Among equal candidates the one that loses least work is preempted first.
    counts_leaving: bool = True  #: A new workload must fit beside the victims of its round until they have stopped.
    min_run_ms: int = 60_000  #: Work that has held its quota for less is not evicted.
    reservation_timeout_ms: int = 60_000  #: How long freed room is held for its preemptor; 0: not at all.
    history_half_life_ms: int = 0  #: Queues with less past use go first; 0: past use does not count.

    def min_run_of(self, own: QueueSettings | None) -> int:
        """Return the minimum run time of a queue in milliseconds: its own, or the rules'."""
        return self.min_run_ms if own is None or own.min_run_ms is None else own.min_run_ms


KUEUE = Rules(
    fair_sharing=False,
    keeps_local=False,
    rechecks_shares=False,
    ends_loops=False,
    weighs_lost_work=False,
    counts_leaving=False,
    min_run_ms=0,
    reservation_timeout_ms=0,
)
MESH = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicies:
    """Rules, weights and settings of tenants beside their limits. A file declares them, and the ledger stores them with the limits."""

    rules: Rules = MESH
    weights: Mapping[str, Fraction] = field(default_factory=dict)  #: By path; 1 if missing.
    settings: Mapping[str, QueueSettings] = field(default_factory=dict)  #: By path.

    def settings_of(self, tenant: str) -> QueueSettings:
        """Return the tenant's settings; the defaults if no file names the tenant."""
        return self.settings.get(tenant, NO_SETTINGS)

    def min_run_of(self, tenant: str) -> int:
        """Return the minimum run time of the tenant's work in milliseconds."""
        return self.rules.min_run_of(self.settings.get(tenant))

    def preemption(self, tenant: str) -> PreemptionPolicy:
        """Return the preemption rules among the tenant's stages on one mesh. Without settings, less urgent stages may be preempted."""
        own = self.settings.get(tenant)
        return PreemptionPolicy(
            takes=own is None or own.policies.within_queue is not PreemptionMode.NEVER,
            takes_newer=own is not None and own.policies.within_queue is PreemptionMode.LOWER_OR_NEWER,
            min_run_ms=self.rules.min_run_of(own),
            reservation_timeout_ms=self.rules.reservation_timeout_ms,
            flavors=own.flavors if own is not None else (),
            in_order=own is not None and own.is_strict,
        )
