"""Victims that free capacity for several places at once: all places or no victims.

Two candidate sets of rows are tried. The first follows the cheapest victims place by place. The second is an arrangement that works if
all eligible tasks were gone, for when the first reaches a dead end. For each set, the cheapest victims that free those rows are taken.
Then victims are spared, most expensive first, if the places still fit without them on these or other rows. This is Kubernetes' reprieve
over all nodes at once. The result is minimal, but a cheaper set may exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mesh.core.counting import counted
from mesh.core.ids import LabelName, TaskId
from mesh.core.nodes import Units
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.placement.feasibility import RowMask
from mesh.preemption.rules import NO_COUNTS, PreemptionRules, Preemptor, Scored
from mesh.preemption.victims import DISRUPTION_COST, PreemptionPlan, PreemptionRefused, count_verdicts
from mesh.tasks.gang_placement import PlacementDemand, PlacementUnit, Rows, arrange, best_fit, has_units, open_rows, rows_of_same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gives:
    """Resources that a task frees when it stops."""

    rooms: tuple[tuple[int, Units], ...]  #: Amounts by row.
    quota: ResourceSet = NOTHING  #: Quota of the preemptor's pool.
    groups: int = 0  #: Placement groups of that pool.


def plan_together(
    demand: PlacementDemand,
    *,
    free: Units,
    quota_short: ResourceSet,
    groups_short: int,
    scored: Sequence[Scored],
    gives: Mapping[TaskId, Gives],
    preemptor: Preemptor,
    rules: PreemptionRules,
    recent_preemptions: Mapping[LabelName, int] = NO_COUNTS,
) -> PreemptionPlan | PreemptionRefused:
    """Return a minimal set of victims whose capacity fits all places at once, or why there is none.

    Args:
        free: [n, r], free amounts per row; negative where a row is over-committed.
        quota_short: Quota that the pool lacks.
        groups_short: Number of groups that must go, because the pool is at its limit.
        gives: Resources that each candidate frees; candidates without an entry free nothing useful.
    """
    eligible = [found for found in scored if found.is_eligible]
    offers = [_offer(found, gives[found.candidate.task], preemptor) for found in eligible if found.candidate.task in gives]
    if not offers:
        return PreemptionRefused(reason=Reason.NO_PREEMPTION_CANDIDATES, detail=count_verdicts(scored))
    offers.sort(key=_order)
    search = _Search(
        demand=demand,
        free=free,
        quota=quota_short,
        groups=groups_short,
        per_minute_max=rules.per_minute_max,
        recent_preemptions=recent_preemptions,
    )
    own = [offer for offer in offers if not offer.crosses]
    for asked in (own, offers) if 0 < len(own) < len(offers) else (offers,):
        found = search.among(asked)
        if found is not None:
            return _plan(demand, *found)
    wanted = f"{counted(len(demand.placement_units), 'place is', 'places are')} needed at once"
    words = f"{wanted}, and evicting every eligible task would not free all of them"
    return PreemptionRefused(reason=Reason.PREEMPTION_INSUFFICIENT, detail=words)


#: Divisor in place of zero, so that offers without use come last.
_NO_WORTH = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class _Offer:
    scored: Scored
    gives: Gives
    crosses: bool  #: The victim has another label than the preemptor.
    cost: float


def _offer(found: Scored, gives: Gives, preemptor: Preemptor) -> _Offer:
    cost = DISRUPTION_COST + max(0.0, preemptor.priority - found.score)
    return _Offer(found, gives, found.candidate.label != preemptor.label, cost)


def _order(offer: _Offer) -> tuple[bool, float, TaskId]:
    return offer.crosses, offer.cost, offer.scored.candidate.task


@dataclass(slots=True, kw_only=True)
class _Search:
    demand: PlacementDemand
    free: Units
    quota: ResourceSet
    groups: int
    per_minute_max: int | None
    recent_preemptions: Mapping[LabelName, int]
    by_row: dict[int, list[_Offer]] = field(default_factory=dict)

    def among(self, offers: list[_Offer]) -> tuple[list[int], list[_Offer]] | None:
        """Return rows for the places and the victims among `offers`; None when evicting all of them is too little."""
        if not self._has_quota(offers):
            return None
        last_resort = arrange(self.demand.placement_units, self._free_without(offers))
        if last_resort is None:
            return None
        self.by_row = {}
        for offer in offers:
            for row, _ in offer.gives.rooms:
                self.by_row.setdefault(row, []).append(offer)
        for rows in (self._cheapest_rows(), last_resort):
            if rows is None:
                continue
            covers = [self._cover(rows, offers), self._cover(rows, self._by_worth(rows, offers))]
            found = [self._fill_back(rows, victims) for victims in covers if victims is not None]
            if found:
                return min(found, key=lambda each: (sum(offer.crosses for offer in each[1]), sum(offer.cost for offer in each[1])))
        return None

    def _by_worth(self, rows: list[int], offers: list[_Offer]) -> list[_Offer]:
        """Return the offers by cost for what these rows lack, cheapest first."""
        lacks: dict[int, Units] = {}
        for unit, row in zip(self.demand.placement_units, rows, strict=True):
            lacks[row] = lacks.get(row, -self.free[row]) + unit.vector

        def price(offer: _Offer) -> tuple[bool, float, TaskId]:
            worth = 0.0
            for row, amounts in offer.gives.rooms:
                short = np.maximum(lacks.get(row, np.zeros_like(amounts)), 0)
                worth += float((np.minimum(amounts, short) / np.maximum(short, 1)).sum())
            return offer.crosses, offer.cost / (worth or _NO_WORTH), offer.scored.candidate.task

        return sorted(offers, key=price)

    def _cheapest_rows(self) -> list[int] | None:
        """Return rows place by place: a row that needs no more victims, else the one with the cheapest victims."""
        left, taken, rows = self.free.copy(), set[TaskId](), list[int]()
        for place, unit in enumerate(self.demand.placement_units):
            same = rows_of_same(self.demand.placement_units[:place], rows, unit)
            row = best_fit(unit, left, same)
            if row is None:
                found = self._cheapest_row(unit, left, taken, open_rows(unit, same))
                if found is None:
                    return None
                row, victims = found
                for offer in victims:
                    taken.add(offer.scored.candidate.task)
                    _free(left, offer)
            left[row] -= unit.vector
            rows.append(row)
        return rows

    def _cheapest_row(self, unit: PlacementUnit, left: Units, taken: set[TaskId], rows: Rows) -> tuple[int, list[_Offer]] | None:
        best: tuple[tuple[bool, float, int, int], list[_Offer]] | None = None
        for row in rows.tolist():
            here = [offer for offer in self.by_row.get(row, ()) if offer.scored.candidate.task not in taken]
            if not here or (best is not None and (here[0].crosses, here[0].cost, 0, 0) > best[0]):
                continue  # Its cheapest victim alone costs more.
            lacks, victims = unit.vector - left[row], list[_Offer]()
            for offer in here:
                if _lacks(lacks, unit) and (amounts := _on(offer, row))[lacks > 0].any():
                    lacks = lacks - amounts
                    victims.append(offer)
            if not _lacks(lacks, unit):
                key = (any(offer.crosses for offer in victims), sum(offer.cost for offer in victims), len(victims), row)
                if best is None or key < best[0]:
                    best = key, victims
        return None if best is None else (best[0][3], best[1])

    def _cover(self, rows: list[int], offers: list[_Offer]) -> list[_Offer] | None:
        """Return the cheapest victims that free these rows and the quota; None if they do not suffice within the limit per minute."""
        left, counts, taken = self.free.copy(), dict[LabelName, int](), list[_Offer]()
        for unit, row in zip(self.demand.placement_units, rows, strict=True):
            left[row] -= unit.vector
        wanted = self._wanted(rows)
        for offer in offers:
            helps = any(((left[row] < 0) & wanted[row] & (amounts > 0)).any() for row, amounts in offer.gives.rooms if row in wanted)
            helps = helps or self._helps_quota(offer, taken)
            if helps and not self._is_at_limit(offer.scored.candidate.label, counts):
                taken.append(offer)
                _free(left, offer)
        has_room = all((left[row][columns] >= 0).all() for row, columns in wanted.items())
        return taken if has_room and self._has_quota(taken) else None

    def _wanted(self, rows: list[int]) -> dict[int, RowMask]:
        """Return the wanted resources by row."""
        wanted: dict[int, RowMask] = {}
        for unit, row in zip(self.demand.placement_units, rows, strict=True):
            wanted[row] = wanted.get(row, False) | (unit.vector > 0)
        return wanted

    def _fill_back(self, rows: list[int], victims: list[_Offer]) -> tuple[list[int], list[_Offer]]:
        """Spare each victim that is not needed, most expensive first."""
        kept = sorted(victims, key=_order)
        for offer in reversed(list(kept)):
            without = [other for other in kept if other is not offer]
            if not self._has_quota(without):
                continue
            free = self._free_without(without)
            others = rows if has_units(self.demand.placement_units, rows, free) else arrange(self.demand.placement_units, free)
            if others is not None:
                rows, kept = others, without
        return rows, kept

    def _free_without(self, offers: list[_Offer]) -> Units:
        free: Units = self.free.copy()
        for offer in offers:
            _free(free, offer)
        return free

    def _has_quota(self, offers: list[_Offer]) -> bool:
        quota = sum((offer.gives.quota for offer in offers), start=NOTHING)
        return self.quota <= quota and sum(offer.gives.groups for offer in offers) >= self.groups

    def _helps_quota(self, offer: _Offer, taken: list[_Offer]) -> bool:
        if not self.quota and not self.groups:
            return False
        got = sum((other.gives.quota for other in taken), start=NOTHING)
        lacks = [name for name, amount in self.quota.items() if got[name] < amount]
        few = sum(other.gives.groups for other in taken) < self.groups
        return any(offer.gives.quota[name] for name in lacks) or (few and offer.gives.groups > 0)

    def _is_at_limit(self, label: LabelName, counts: dict[LabelName, int]) -> bool:
        """Return whether one more of the label exceeds the limit; if not, count it."""
        if self.per_minute_max is None:
            return False
        count = counts.get(label, self.recent_preemptions.get(label, 0)) + 1
        if count > self.per_minute_max:
            return True
        counts[label] = count
        return False


def _plan(demand: PlacementDemand, rows: list[int], offers: list[_Offer]) -> PreemptionPlan:
    victims = tuple(offer.scored.candidate for offer in offers)
    return PreemptionPlan(
        victims=victims,
        row=rows[0] if rows else -1,
        cost=sum(offer.cost for offer in offers),
        places=tuple(demand.by_task(rows).items()),
    )


def _free(left: Units, offer: _Offer) -> None:
    for row, amounts in offer.gives.rooms:
        left[row] += amounts


def _on(offer: _Offer, row: int) -> Units:
    there: Units = np.sum([amounts for where, amounts in offer.gives.rooms if where == row], axis=0, dtype=np.int64)
    return there


def _lacks(lacks: Units, unit: PlacementUnit) -> bool:
    return bool((lacks[unit.vector > 0] > 0).any())
