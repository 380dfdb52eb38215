"""Choice of the flavor that each replica set gets for each resource.

All resources of a group take the same flavor. Flavors are tried in their order; the mode of a flavor is the worst over its resources. The
search stops at the first flavor that is good enough by the queue's fungibility; otherwise the best wins, among equals the first.

    more than the queue could ever hold      no fit
    there is room                            fit
    its own quota, or a cohort's below the   try the preemption for this one (flavor, resource): no victims,
    root, could hold it, or it may preempt   victims of other queues only (reclaim), or of the own queue as well (preempt)
    while it borrows
    otherwise                                no fit

Source: Kueue `scheduler/flavorassigner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from federation.quota.policies import Fungibility, PreemptionMode, Preference, ResourceGroup, TryOn
from federation.quota.preemption.choice import victims_for
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import ReplicaSet, Running, Workload
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName
from mesh.core.reasons import Reason


class Mode(IntEnum):
    """Mode in which a request can be met; higher is better."""

    NO_FIT = 0
    NO_RECLAIM_CANDIDATES = 1  #: Its quota would do, but no work may be preempted.
    PREEMPT = 2  #: Work of the own queue is preempted, and maybe of others.
    RECLAIM = 3  #: Only work of other queues is preempted.
    FIT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Reason why one (flavor, resource) is refused, in units."""

    flavor: str
    resource: str
    reason: Reason
    wanted: int = 0
    available: int = 0
    most: int = 0  #: The most that the queue could hold.


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorChoice:
    """Flavor of one resource of one replica set."""

    flavor: str
    mode: Mode
    level: int  #: Height of the lowest subtree that holds it; 0: no borrowing.


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAssignment:
    """Flavors of one replica set."""

    name: str
    count: int
    flavors: Mapping[str, FlavorChoice]  #: By resource.


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Flavors and amounts of a workload; `sets` ends at the first replica set that gets nothing."""

    sets: tuple[SetAssignment, ...]
    amounts: Mapping[FlavorResource, int]
    mode: Mode  #: FIT, NO_FIT, or PREEMPT for all between.
    level: int = 0  #: The highest level of its flavors.
    refusals: tuple[Refusal, ...] = ()
    has_untried: bool = False  #: For a set that got a flavor, the search stopped before the last one.

    @property
    def needed(self) -> frozenset[FlavorResource]:
        """The (flavor, resource) pairs that do not fit yet."""
        choices = ((one, resource) for each in self.sets for resource, one in each.flavors.items())
        return frozenset((FlavorName(one.flavor), resource) for one, resource in choices if one.mode is not Mode.FIT)


@dataclass(frozen=True, slots=True)
class Grade:
    """Quality of a flavor for a request."""

    mode: Mode
    level: int  #: How far up it borrows; 0: not at all.


BEST = Grade(Mode.FIT, 0)
WORST = Grade(Mode.NO_FIT, 0)


def is_better(one: Grade, other: Grade, preference: Preference) -> bool:
    """Return whether the first of two tried flavors is the better one."""
    if one.mode is Mode.NO_FIT or other.mode is Mode.NO_FIT:
        return one.mode > other.mode
    if Mode.NO_RECLAIM_CANDIDATES in (one.mode, other.mode) and one.mode is not other.mode:
        return one.mode > other.mode
    if preference is Preference.PREEMPTION and one.level != other.level:
        return one.level < other.level
    return (one.mode, -one.level) > (other.mode, -other.level)


def goes_on(grade: Grade, fungibility: Fungibility) -> bool:
    """Return whether to try the next flavor after one of this grade."""
    if grade.mode <= Mode.NO_RECLAIM_CANDIDATES:
        return True
    if grade.mode < Mode.FIT and fungibility.on_preempt is TryOn.NEXT:
        return True
    return grade.level > 0 and fungibility.on_borrow is TryOn.NEXT


def may_preempt(snapshot: QuotaSnapshot, node: int, key: FlavorResource, units: int) -> bool:
    """Return whether the queue may preempt for a request: its own quota or that of a subtree could hold it, or it may preempt while it
    borrows.
    """
    policies = snapshot.settings[node].policies
    if policies.borrow is not PreemptionMode.NEVER or (snapshot.rules.fair_sharing and policies.reclaim is not PreemptionMode.NEVER):
        return True
    return snapshot.forest.rows(key).nominal[node] >= units or snapshot.ledger.height_that_holds(node, key, units)[1]


def assignment_without(snapshot: QuotaSnapshot, workload: Workload, gone: Iterable[Running]) -> Assignment:
    """Return the assignment by free quota alone, as if this running work were gone."""
    mark = snapshot.mark()
    snapshot.remove_all(gone)
    assignment = FlavorAssigner(snapshot, workload, may_preempt=False).assign()
    snapshot.undo(mark)
    return assignment


class FlavorAssigner:
    """Assigns flavors to one workload on one snapshot.

    With `only` (replica set to resource to flavor), no other flavors are tried: an earlier choice is checked again. Without
    `may_preempt`, only free quota counts.
    """

    def __init__(
        self,
        snapshot: QuotaSnapshot,
        workload: Workload,
        only: Mapping[str, Mapping[str, str]] | None = None,
        *,
        may_preempt: bool = True,
    ) -> None:
        self._snapshot, self._workload, self._only, self._may_preempt = snapshot, workload, only, may_preempt
        self._node = snapshot.forest.index[workload.queue]
        self._settings = snapshot.settings[self._node]
        self._groups = {
            resource: group for group in reversed(self._settings.groups) for resource in group.resources
        }  # The first group of a resource counts.
        self._graded: dict[tuple[FlavorResource, int], tuple[Grade, Refusal | None]] = {}

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Return the assignment for these counts, by default the full ones."""
        amounts: dict[FlavorResource, int] = {}
        sets: list[SetAssignment] = []
        refusals: list[Refusal] = []
        has_untried = False
        full = [one.count for one in self._workload.replica_sets]
        for one, count in zip(self._workload.replica_sets, counts or full, strict=True):
            choices, untried = self._assign_set(one, count, amounts, refusals)
            has_untried = has_untried or untried
            if choices is None:
                sets.append(SetAssignment(name=one.name, count=count, flavors={}))
                return Assignment(sets=tuple(sets), amounts=amounts, mode=Mode.NO_FIT, refusals=tuple(refusals), has_untried=has_untried)
            sets.append(SetAssignment(name=one.name, count=count, flavors=choices))
            for resource, choice in choices.items():
                key = (FlavorName(choice.flavor), resource)
                amounts[key] = amounts.get(key, 0) + one.amounts[resource] * count
        modes = [choice.mode for one in sets for choice in one.flavors.values()]
        level = max((choice.level for one in sets for choice in one.flavors.values()), default=0)
        mode = Mode.FIT if all(mode is Mode.FIT for mode in modes) else Mode.PREEMPT
        return Assignment(sets=tuple(sets), amounts=amounts, mode=mode, level=level, refusals=tuple(refusals), has_untried=has_untried)

    def _assign_set(
        self, one: ReplicaSet, count: int, assumed: Mapping[FlavorResource, int], refusals: list[Refusal]
    ) -> tuple[dict[str, FlavorChoice] | None, bool]:
        """Return the choices by resource, or None if a resource gets nothing, and whether flavors were left untried."""
        choices: dict[str, FlavorChoice] = {}
        has_untried = False
        for resource in sorted(one.amounts):
            if resource in choices:
                continue
            group = self._groups.get(resource)
            if group is None:
                if one.amounts[resource] == 0:
                    continue  # A request of 0 needs no flavor.
                refusals.append(Refusal(flavor="", resource=resource, reason=Reason.FLAVOR_UNKNOWN, wanted=one.amounts[resource] * count))
                return None, False
            wanted = {name: one.amounts[name] * count for name in sorted(group.resources) if name in one.amounts}
            found, untried = self._search(one.name, group, wanted, assumed, refusals)
            if found is None:
                return None, False
            choices |= found
            has_untried = has_untried or untried
        return choices, has_untried

    def _search(
        self,
        set_name: str,
        group: ResourceGroup,
        wanted: Mapping[str, int],
        assumed: Mapping[FlavorResource, int],
        refusals: list[Refusal],
    ) -> tuple[dict[str, FlavorChoice] | None, bool]:
        """Return the best flavor of a group for all its wanted resources, and whether flavors were left untried."""
        fungibility = self._settings.fungibility
        best: dict[str, FlavorChoice] | None = None
        best_grade = WORST
        flavors = self._flavors(set_name, group, wanted)
        for place, flavor in enumerate(flavors):
            if self._workload.flavors and flavor not in self._workload.flavors:
                refusals += [Refusal(flavor=flavor, resource=name, reason=Reason.FLAVOR_EXCLUDED) for name in wanted]
                continue
            choices, grade = self._try(flavor, wanted, assumed, refusals)
            if not goes_on(grade, fungibility):
                return choices, place < len(flavors) - 1
            if is_better(grade, best_grade, fungibility.preference):
                best, best_grade = choices, grade
        return best, False

    def _flavors(self, set_name: str, group: ResourceGroup, wanted: Mapping[str, int]) -> tuple[str, ...]:
        if self._only is None:
            return group.flavors
        kept = {self._only.get(set_name, {}).get(resource) for resource in wanted}
        return tuple(flavor for flavor in group.flavors if flavor in kept)

    def _try(
        self, flavor: str, wanted: Mapping[str, int], assumed: Mapping[FlavorResource, int], refusals: list[Refusal]
    ) -> tuple[dict[str, FlavorChoice], Grade]:
        """Return the choices with one flavor, and their grade: the worst of its resources."""
        worst = BEST
        choices: dict[str, FlavorChoice] = {}
        for resource, units in wanted.items():
            key = (FlavorName(flavor), resource)
            grade, refusal = self._grade(key, assumed.get(key, 0) + units)
            if refusal is not None:
                refusals.append(refusal)
            if is_better(worst, grade, self._settings.fungibility.preference):
                worst = grade
            if worst.mode is Mode.NO_FIT:
                break
            choices[resource] = FlavorChoice(flavor=flavor, mode=grade.mode, level=grade.level)
        return choices, worst

    def _grade(self, key: FlavorResource, units: int) -> tuple[Grade, Refusal | None]:
        """Return `_graded_anew` from a cache, since shrinking a workload asks for the same pairs often."""
        known = self._graded.get((key, units))
        if known is None:
            self._graded[key, units] = known = self._graded_anew(key, units)
        return known

    def _graded_anew(self, key: FlavorResource, units: int) -> tuple[Grade, Refusal | None]:
        ledger, node = self._snapshot.ledger, self._node
        rows = self._snapshot.forest.rows(key)
        most = rows.potential[node]
        if units > most:
            available = ledger.available(node, key)
            reason = Reason.FLAVOR_CLOSED if rows.is_closed[node] else Reason.QUOTA_TOO_SMALL
            refusal = Refusal(flavor=key[0], resource=key[1], reason=reason, wanted=units, available=available, most=most)
            return WORST, refusal
        level, _ = ledger.height_that_holds(node, key, units)
        available = ledger.available(node, key)
        if units <= available:
            return Grade(Mode.FIT, level), None
        refusal = Refusal(flavor=key[0], resource=key[1], reason=Reason.QUOTA_EXHAUSTED, wanted=units, available=available, most=most)
        if self._may_preempt and may_preempt(self._snapshot, node, key, units):
            return self._preempting(key, units), refusal
        return Grade(Mode.NO_FIT, level), refusal

    def _preempting(self, key: FlavorResource, units: int) -> Grade:
        """Return the grade with preemption for this (flavor, resource) alone."""
        snapshot, node = self._snapshot, self._node
        ask = Ask(workload=self._workload, node=node, amounts={key: units}, needed=frozenset({key}))
        victims = victims_for(snapshot, ask)
        mark = snapshot.mark()
        snapshot.remove_all(victim.running for victim in victims)
        level, _ = snapshot.ledger.height_that_holds(node, key, units)
        snapshot.undo(mark)
        if not victims:
            return Grade(Mode.NO_RECLAIM_CANDIDATES, level)
        takes_own = any(victim.running.workload.queue == self._workload.queue for victim in victims)
        return Grade(Mode.PREEMPT if takes_own else Mode.RECLAIM, level)
