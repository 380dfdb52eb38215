"""The cheapest set of victims that frees capacity for a demand, among the candidates that `mesh.preemption.rules` found eligible.

The search is for a set, not for single victims. On each node the cheapest tasks are taken until the demand fits; then victims that are
not needed are spared, most expensive first. Kubernetes goes the other way: it takes all and reprieves (`preemption.go`). An exact cover
is a multidimensional knapsack and not worth its time here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mesh.core.counting import counted
from mesh.core.ids import GroupId, LabelName, PoolName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.rules import NO_COUNTS, Candidate, PreemptionRules, Preemptor, Scored

#: Cost of each victim beside priority and work, so that the smaller of two equal sets is taken.
DISRUPTION_COST = 1.0
#: In priority points: a victim whose group serves the demand unchanged saves creating one.
REUSE_GAIN = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionPlan:
    """Victims to stop, and where the preemptor goes then. Without victims it fits there now."""

    victims: tuple[Candidate, ...]
    row: int
    reuses: GroupId | None = None  #: Group of a victim that serves the demand unchanged.
    cost: float = 0.0  #: In priority points, to compare plans.
    places: tuple[tuple[TaskId, tuple[int, ...]], ...] = ()  #: Rows of each task, for a gang or several bundles.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRefused:
    """No set of victims frees enough capacity."""

    reason: Reason  #: NO_PREEMPTION_CANDIDATES or PREEMPTION_INSUFFICIENT.
    detail: str


def free_rows(table: NodeTable, rows: Iterable[int]) -> dict[int, dict[str, int]]:
    """Return the free amounts of each row by resource, as `plan` takes them."""
    picked = np.fromiter(rows, dtype=np.intp)
    return {
        row: dict(zip(table.resources, free, strict=True)) for row, free in zip(picked.tolist(), table.free(picked).tolist(), strict=True)
    }


def plan(
    wanted: ResourceSet,
    *,
    pool: PoolName,
    pool_short: ResourceSet,
    free_by_row: Mapping[int, Mapping[str, int]],
    scored: Sequence[Scored],
    preemptor: Preemptor,
    rules: PreemptionRules,
    recent_preemptions: Mapping[LabelName, int] = NO_COUNTS,
    reusable: Collection[GroupId] = (),
    finds_instances: Callable[[int, Sequence[Candidate]], bool] | None = None,
) -> PreemptionPlan | PreemptionRefused:
    """Return the cheapest minimal set of victims that lets the demand in, or why there is none.

    Victims that free node resources are all on one node. Victims of the preemptor's own label go before others, whatever their cost.

    Args:
        pool_short: Quota that the pool lacks for the demand; only victims of that pool, on any node, free it.
        free_by_row: Free amounts of each feasible node; an absent resource counts as zero.
        recent_preemptions: As for `evaluate`; all victims together stay within `rules.per_minute_max`.
        reusable: Placement groups that serve the demand unchanged.
        finds_instances: Whether the demand finds its GPUs undivided on the row once these candidates are gone; None: it needs none.
    """
    return _Search(
        names=tuple(wanted),
        wanted=tuple(wanted.values()),
        quota_names=tuple(pool_short),
        quota=tuple(pool_short.values()),
        pool=pool,
        preemptor=preemptor,
        per_minute_max=rules.per_minute_max,
        recent_preemptions=recent_preemptions,
        reusable=frozenset(reusable),
        finds_instances=finds_instances,
    ).best(free_by_row, scored)


@dataclass(frozen=True, slots=True)
class _Offer:
    """Eligible candidate in plain integers, for the search."""

    candidate: Candidate
    crosses: bool  #: Its label differs from the preemptor's.
    cost: float
    room: tuple[int, ...]  #: Amounts of the wanted resources on its row.
    quota: tuple[int, ...]  #: Amounts of the quota the pool lacks; zeros in another pool.


@dataclass(frozen=True, slots=True)
class _Choice:
    key: tuple[bool, float, int, int]  #: Whether a victim crosses labels, cost, number of victims, row.
    victims: tuple[_Offer, ...]
    row: int


@dataclass(slots=True, kw_only=True)
class _Search:
    names: tuple[str, ...]
    wanted: tuple[int, ...]
    quota_names: tuple[str, ...]
    quota: tuple[int, ...]
    pool: PoolName
    preemptor: Preemptor
    per_minute_max: int | None
    recent_preemptions: Mapping[LabelName, int]
    reusable: frozenset[GroupId]
    finds_instances: Callable[[int, Sequence[Candidate]], bool] | None = None
    by_row: dict[int, list[_Offer]] = field(default_factory=dict)
    of_pool: list[_Offer] = field(default_factory=list)  #: Offers with quota that is short, in the order of `_order`.
    own_of_pool: list[_Offer] = field(default_factory=list)  #: Those of the preemptor's label.
    worthy_of_pool: list[_Offer] = field(default_factory=list)  #: The same, by value for their cost.

    def best(self, free_by_row: Mapping[int, Mapping[str, int]], scored: Sequence[Scored]) -> PreemptionPlan | PreemptionRefused:
        """Return the plan, or why there is none."""
        self._sort_in([found for found in scored if found.verdict is Reason.ELIGIBLE])
        short_by_row = {row: self._short(free) for row, free in free_by_row.items()}
        roomy = min((row for row, short in short_by_row.items() if not any(short) and self._finds(row)), default=None)
        chosen: _Choice | None = None
        for row, short in short_by_row.items():
            if chosen is not None and not self._could_outrank(chosen, row, short):
                continue
            for choice in self._choices(row, short, is_first=row == roomy):
                if choice is not None and (chosen is None or choice.key < chosen.key):
                    chosen = choice
        if chosen is not None:
            return self._plan(chosen)
        if not self.by_row:
            return PreemptionRefused(reason=Reason.NO_PREEMPTION_CANDIDATES, detail=count_verdicts(scored))
        return PreemptionRefused(reason=Reason.PREEMPTION_INSUFFICIENT, detail=self._what_lacks(short_by_row))

    def _short(self, free: Mapping[str, int]) -> tuple[int, ...]:
        return tuple([max(0, amount - free.get(name, 0)) for name, amount in zip(self.names, self.wanted, strict=True)])

    def _sort_in(self, eligible: list[Scored]) -> None:
        """Sort the eligible candidates once, cheapest of the own label first; lists per row and pool keep that order."""
        nothing, own, priority = (0,) * len(self.quota), self.preemptor.label, self.preemptor.priority
        offers = []
        for found in eligible:
            candidate, held = found.candidate, found.candidate.resources
            quota = tuple([held[name] for name in self.quota_names]) if candidate.pool == self.pool else nothing
            cost = DISRUPTION_COST + max(0.0, priority - found.score)
            offers.append(_Offer(candidate, candidate.label != own, cost, tuple([held[name] for name in self.names]), quota))
        offers.sort(key=_order)
        for offer in offers:
            self.by_row.setdefault(offer.candidate.row, []).append(offer)
            if any(offer.quota):
                self.of_pool.append(offer)
        self.own_of_pool = [offer for offer in self.of_pool if not offer.crosses]
        self.worthy_of_pool = sorted(self.own_of_pool, key=lambda offer: offer.cost / _worth(offer.quota, self.quota))

    def _could_outrank(self, chosen: _Choice, row: int, short: tuple[int, ...]) -> bool:
        """Return False when even the fewest, cheapest victims on the row cost more. Rules out most rows."""
        here = self.by_row.get(row, ())
        if chosen.key[0] or not any(short) or not here:
            return True
        if here[0].crosses:
            return False
        most = [max(amounts) for amounts in zip(*[offer.room for offer in here], strict=True)]
        few = max([-(-lacks // amount) if amount else len(here) + 1 for lacks, amount in zip(short, most, strict=True) if lacks])
        return few <= len(here) and sum([offer.cost for offer in here[:few]]) - REUSE_GAIN < chosen.key[1]

    def _choices(self, row: int, short: tuple[int, ...], *, is_first: bool) -> Iterable[_Choice | None]:
        """Yield ways to fit the demand on that row. Rows that lack only quota are all alike, so only the first is tried."""
        here = self.by_row.get(row, [])
        yield from (self._cover(row, short, [offer], [offer]) for offer in here if offer.candidate.group in self.reusable)
        if not is_first and not (here and (any(short) or not self._finds(row))):
            return
        own = [offer for offer in here if not offer.crosses]
        from_own = self._cover(row, short, own, self.own_of_pool)
        yield from_own
        if from_own is None:
            yield self._cover(row, short, here, self.of_pool)
        elif len(from_own.victims) > 1:
            own.sort(key=lambda offer: offer.cost / _worth(offer.room, short))
            yield self._cover(row, short, own, self.worthy_of_pool)

    def _cover(self, row: int, short: tuple[int, ...], here: Iterable[_Offer], of_pool: Iterable[_Offer]) -> _Choice | None:
        """Take victims in order, on the row for its resources and in the pool for quota; then spare those not needed."""
        room, quota = list(short), list(self.quota)
        taken: dict[TaskId, _Offer] = {}
        counts: dict[LabelName, int] = {}
        for is_for_room, offers in ((True, here), (False, of_pool)):
            lacks = room if is_for_room else quota
            for offer in offers if any(lacks) or (is_for_room and not self._finds(row)) else ():
                candidate = offer.candidate
                helps = _helps(offer.room if is_for_room else offer.quota, lacks) or (is_for_room and not any(lacks) and any(offer.room))
                if not helps or candidate.task in taken:
                    continue
                if self._is_at_limit(candidate.label, counts):
                    continue
                taken[candidate.task] = offer
                if candidate.row == row:
                    _lessen(room, offer.room)
                _lessen(quota, offer.quota)
                if not any(lacks) and (not is_for_room or self._finds(row, taken.values())):
                    break
        if any(room) or any(quota) or not self._finds(row, taken.values()):
            return None
        victims = list(taken.values())
        return self._choice(row, self._spare(row, short, victims) if len(victims) > 1 else victims)

    def _is_at_limit(self, label: LabelName, counts: dict[LabelName, int]) -> bool:
        """Return whether one more of the label exceeds the limit; if not, count it."""
        if self.per_minute_max is None:
            return False
        counts[label] = counts.get(label, self.recent_preemptions.get(label, 0)) + 1
        return counts[label] > self.per_minute_max

    def _spare(self, row: int, short: tuple[int, ...], taken: list[_Offer]) -> list[_Offer]:
        kept = sorted(taken, key=_order)
        for offer in sorted(taken, key=_order, reverse=True):
            without = [other for other in kept if other is not offer]
            if self._suffices(row, short, without):
                kept = without
        return kept

    def _suffices(self, row: int, short: tuple[int, ...], victims: Sequence[_Offer]) -> bool:
        room, quota = list(short), list(self.quota)
        for offer in victims:
            if offer.candidate.row == row:
                _lessen(room, offer.room)
            _lessen(quota, offer.quota)
        return not any(room) and not any(quota) and self._finds(row, victims)

    def _finds(self, row: int, victims: Iterable[_Offer] = ()) -> bool:
        """Return whether the demand finds its instances on the row without the victims; amounts in sum are counted elsewhere."""
        return self.finds_instances is None or self.finds_instances(
            row, [offer.candidate for offer in victims if offer.candidate.row == row]
        )

    def _choice(self, row: int, victims: list[_Offer]) -> _Choice:
        gain = REUSE_GAIN if self._reused(row, victims) is not None else 0.0
        cost = sum(offer.cost for offer in victims) - gain
        return _Choice((any(offer.crosses for offer in victims), cost, len(victims), row), tuple(victims), row)

    def _reused(self, row: int, victims: Iterable[_Offer]) -> GroupId | None:
        here = (offer.candidate.group for offer in victims if offer.candidate.row == row)
        return next((group for group in here if group is not None and group in self.reusable), None)

    def _plan(self, choice: _Choice) -> PreemptionPlan:
        victims = tuple(offer.candidate for offer in choice.victims)
        return PreemptionPlan(
            victims=victims,
            row=choice.row,
            reuses=self._reused(choice.row, choice.victims),
            cost=choice.key[1],
        )

    def _what_lacks(self, short_by_row: Mapping[int, tuple[int, ...]]) -> str:
        """Return a message on what the best row or the quota would still lack."""
        if not short_by_row:
            return "no node could hold the demand even when empty"
        quota = list(self.quota)
        for offer in self.of_pool:
            _lessen(quota, offer.quota)
        if any(quota):
            return f"pool {self.pool} would still lack {_amounts(self.quota_names, quota)}"
        left_by_row = []
        for row, short in short_by_row.items():
            room = list(short)
            for offer in self.by_row.get(row, ()):
                _lessen(room, offer.room)
            left_by_row.append((sum(lacks / amount for lacks, amount in zip(room, self.wanted, strict=True) if amount), row, room))
        share, _, room = min(left_by_row)
        if not share and self.finds_instances is not None:
            return "no instance would come free undivided"
        if not share:
            return f"at most {counted(self.per_minute_max or 0, 'task')} of a label may be preempted per minute, and more are needed"
        return f"the best node would still lack {_amounts(self.names, room)}"


#: Divisor in place of zero, so that offers without use come last.
_NO_WORTH = 1e-9


def _order(offer: _Offer) -> tuple[bool, float, TaskId]:
    return offer.crosses, offer.cost, offer.candidate.task


def _helps(amounts: tuple[int, ...], lacks: list[int]) -> bool:
    return any(map(min, amounts, lacks))


def _lessen(lacks: list[int], amounts: tuple[int, ...]) -> None:
    for place, amount in enumerate(amounts):
        lacks[place] = max(0, lacks[place] - amount)


def _worth(amounts: tuple[int, ...], lacks: tuple[int, ...]) -> float:
    """Return the share of the shortage that the amounts cover, summed over the resources."""
    return sum([min(amount, lack) / lack for amount, lack in zip(amounts, lacks, strict=True) if lack]) or _NO_WORTH


def _amounts(names: tuple[str, ...], amounts: list[int]) -> ResourceSet:
    return ResourceSet(dict(zip(names, amounts, strict=True)))


def count_verdicts(scored: Sequence[Scored]) -> str:
    """Return a message with the number of candidates per verdict."""
    if not scored:
        return "no running task is a candidate"
    counts = Counter(found.verdict.value for found in scored)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
