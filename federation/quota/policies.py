"""What a queue may do to others, in which order it tries flavors, and by which rules a whole federation goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from mesh.giving_way import YieldRules


class Preempt(str, Enum):
    """Whose quota may be taken back."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"  #: Lower, or equal and queued later.
    ANY = "Any"


class TryOn(str, Enum):
    """What to do with a flavor that would do, but not without borrowing or preempting."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


class Preference(str, Enum):
    """Of several flavors that would do, which is the better one?"""

    BORROWING = "BorrowingOverPreemption"
    PREEMPTION = "PreemptionOverBorrowing"


class Strategy(str, Enum):
    """When a share allows to take from a sibling."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"  #: The taker's share is not above what the giver is left with.
    INITIAL_SHARE = "LessThanInitialShare"  #: The taker's share is below what the giver has now.


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Whom the work of a queue may ask to give way."""

    within_queue: Preempt = Preempt.NEVER
    reclaim: Preempt = Preempt.NEVER  #: From others who borrow.
    borrow: Preempt = Preempt.NEVER  #: From others who borrow, even when it borrows itself: NEVER or LOWER_PRIORITY.
    borrow_priority_max: int | None = None  #: Only from work up to this priority; None: any lower one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fungibility:
    """How far to look for a flavor."""

    on_borrow: TryOn = TryOn.STOP
    on_preempt: TryOn = TryOn.NEXT
    preference: Preference = Preference.BORROWING


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """Resources that one flavor gives together, and those flavors in the order to try them."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class OnCut(str, Enum):
    """What happens to running work that a lowered quota has no more room for."""

    KEEP = "keep"  #: It ends by itself; until then nothing new starts.
    EVICT = "evict"  #: As much as needed is asked to stop, in the order of victims.


class OnMaxWait(str, Enum):
    """What becomes of work that waits longer than its tenant likes."""

    REFUSE = "refuse"  #: It ends, and says why.
    FIRST = "first"  #: It goes before all others when quota is planned, and waits on.


class Stop(str, Enum):
    """Whether a tenant takes in work."""

    NONE = "none"
    HOLD = "hold"  #: Nothing new starts; what runs goes on.
    DRAIN = "drain"  #: Nothing new starts; what runs is asked to stop.


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """When new work may start: so many milliseconds from each multiple of the period, shifted by `opens_ms`."""

    opens_ms: int
    lasts_ms: int
    every_ms: int = 86_400_000

    def is_open(self, now_ms: int) -> bool:
        """Is it open now?"""
        return (now_ms - self.opens_ms) % self.every_ms < self.lasts_ms

    def opens_next_ms(self, now_ms: int) -> int:
        """When it opens next; now while it is open."""
        since = (now_ms - self.opens_ms) % self.every_ms
        return now_ms if since < self.lasts_ms else now_ms - since + self.every_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """All that holds for one queue beside its quota."""

    policies: Policies = Policies()
    fungibility: Fungibility = Fungibility()
    groups: tuple[ResourceGroup, ...] = ()
    is_strict: bool = False  #: Nothing behind a head that waits is tried.
    stop: Stop = Stop.NONE
    running_max: int | None = None  #: Workloads at a time.
    running_max_per_user: int | None = None
    max_wait_ms: int | None = None  #: A head that waited longer is given all room that comes free in its queue's reach.
    on_max_wait: OnMaxWait = OnMaxWait.REFUSE
    windows: tuple[TimeWindow, ...] = ()  #: New work starts only inside of one; empty: always.
    on_cut: OnCut = OnCut.KEEP
    min_run_ms: int | None = None  #: Instead of the one of `Rules`.

    @property
    def flavors(self) -> tuple[str, ...]:
        """Every flavor in the order to try it; empty where nobody gave an order."""
        return tuple(dict.fromkeys(flavor for group in self.groups for flavor in group.flavors))


#: Of tenants of whom no file says anything.
NO_SETTINGS = QueueSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By which rules quota is given. The defaults are ScheduleMesh's; `KUEUE` are Kueue's of 2026-08.

    Source: ADR 0018.
    """

    fair_sharing: bool = True  #: Order and preemption by shares; else by borrowing and priority.
    strategies: tuple[Strategy, ...] = (Strategy.FINAL_SHARE, Strategy.INITIAL_SHARE)
    keeps_local: bool = True  #: What a node keeps is its own, whatever deficit stands above it.
    rechecks_shares: bool = True  #: A victim is taken by share only if that is still right when all is settled.
    ends_loops: bool = True  #: Nobody evicts one that evicted it, over any number of steps, unless within its own quota.
    weighs_lost_work: bool = True  #: Of equal victims the one that loses least goes first.
    counts_leaving: bool = True  #: What starts has room beside those who give way in its round, until they have stopped.
    min_run_ms: int = 60_000  #: Nothing is evicted that has held its quota for less.
    hold_ms: int = 60_000  #: How long freed room is held for who freed it; 0: not at all.
    heads_max: int = 16  #: Workloads of one queue that are decided in a round.
    backfills: bool = True  #: A big workload that waits gets a date; smaller ones run before it only if they do not delay it.
    history_half_life_ms: int = 0  #: Queues with less use in the past go first; 0: the past does not count.

    def min_run_of(self, own: QueueSettings | None) -> int:
        """Milliseconds that hold for a queue with these settings: its own, else those of all."""
        return self.min_run_ms if own is None or own.min_run_ms is None else own.min_run_ms


KUEUE = Rules(
    fair_sharing=False,
    keeps_local=False,
    rechecks_shares=False,
    ends_loops=False,
    weighs_lost_work=False,
    counts_leaving=False,
    min_run_ms=0,
    hold_ms=0,
    heads_max=1,
    backfills=False,
)
MESH = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingOrders:
    """What holds for tenants beside their limits, whoever decides: a file says it, and it goes along with the limits."""

    rules: Rules = MESH
    weights: Mapping[str, Fraction] = field(default_factory=dict)  #: By path; 1 where there is none.
    settings: Mapping[str, QueueSettings] = field(default_factory=dict)  #: By path.

    def settings_of(self, tenant: str) -> QueueSettings:
        """What holds for the tenant; of whom nobody said anything, nothing."""
        return self.settings.get(tenant, NO_SETTINGS)

    def min_run_of(self, tenant: str) -> int:
        """Milliseconds that the tenant's work runs before it gives way to others."""
        return self.rules.min_run_of(self.settings.get(tenant))

    def yielding(self, tenant: str) -> YieldRules:
        """What holds among the tenant's stages on one mesh. Of whom nobody said anything, the less urgent ones give way."""
        own = self.settings.get(tenant)
        return YieldRules(
            takes=own is None or own.policies.within_queue is not Preempt.NEVER,
            min_run_ms=self.rules.min_run_of(own),
            hold_ms=self.rules.hold_ms,
            flavors=own.flavors if own is not None else (),
            in_order=own is not None and own.is_strict,
        )
