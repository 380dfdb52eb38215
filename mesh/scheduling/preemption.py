"""Who may be asked to give way to more urgent work: the rules, and a score for each candidate.

`evaluate` tells of every running task whether it may be asked, with the reason; it changes nothing, so it is also the dry
run. `mesh.scheduling.victims` takes what `evaluate` found and picks the victims.

The score is the seed's (§5.1): `delta_priority - kappa * remaining_s`, over a threshold. Beyond it, work that would be lost
because it was not kept counts against a victim, and so does having run for a moment only. A rule about labels opens the way
to another label and nothing else: it lifts neither the protection of a pool nor the order of priorities.

A victim's priority is strictly lower than the preemptor's, and neither of the two is aged by waiting. Each preemption thus
goes down in one fixed order, and no chain of them comes back to where it began: two tasks cannot evict each other in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from mesh.errors import MeshError
from mesh.ids import GroupId, LabelName, PoolName, TaskId, TenantPath
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.scheduling.tasks import NO_TENANT

ANY_LABEL = LabelName("*")
NO_COUNTS: Mapping[LabelName, int] = MappingProxyType({})
#: The minute of `per_minute_max`.
MINUTE_MS = 60_000


class PreemptionRulesError(MeshError, ValueError):
    """The rules of preemption contradict themselves or name what is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A running task, as far as its preemption depends on it."""

    task: TaskId
    label: LabelName
    pool: PoolName
    tenant: TenantPath
    priority: float  #: P_base + P_label. Waiting does not raise it, or two tasks could evict each other in turns.
    resources: ResourceSet
    row: int  #: Of its node in the node table.
    started_ms: int
    kept_ms: int  #: When its state was last kept; `started_ms` when never.
    estimated_ms: int | None = None
    group: GroupId | None = None
    preemptible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """The work that wants room, as far as the choice of its victims depends on it."""

    task: TaskId
    label: LabelName
    pool: PoolName
    priority: float  #: P_base + P_label, not aged.
    tenant: TenantPath = NO_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRules:
    """When preemption is worth it, and who is out of reach."""

    threshold: float = 0.5  #: A score has to be above it.
    kappa_per_s: float = 0.001  #: Points of priority per second that the victim still has to run.
    min_run_ms: int = 1_000  #: Nothing is stopped that has run for less.
    lost_work_per_s: float = 0.001  #: Points of priority per second of work since the last kept state.
    cross_label: Mapping[LabelName, tuple[LabelName, ...]] = field(default_factory=dict)  #: Who may take from whom; `*`: any.
    cross_label_weight: float = 0.5  #: In (0, 1]: times the difference of priorities, where the labels differ.
    cross_pool: bool = False  #: Tasks of other pools may give way.
    protected_pools: frozenset[PoolName] = frozenset()  #: Nobody there gives way to a task of another pool.
    per_minute_max: int | None = None  #: How many tasks of one label may be preempted in a minute; None: no limit.

    def __post_init__(self) -> None:
        if not 0 < self.cross_label_weight <= 1:
            raise PreemptionRulesError(f"cross_label_weight is {self.cross_label_weight}, and has to be above 0 and at most 1")
        if min(self.kappa_per_s, self.lost_work_per_s, self.min_run_ms) < 0:
            raise PreemptionRulesError("kappa_per_s, lost_work_per_s and min_run_ms cannot be negative")

    @classmethod
    def of(cls, aggressiveness: str = "medium", **changes: Any) -> PreemptionRules:
        """A preset, `high`, `medium` or `low`, with single rules changed by name.

        Raises:
            PreemptionRulesError: No such preset, or a rule that contradicts itself.
        """
        if aggressiveness not in PRESETS:
            raise PreemptionRulesError(f"aggressiveness is {aggressiveness!r}; known are {', '.join(PRESETS)}")
        return replace(PRESETS[aggressiveness], **changes)


PRESETS: Mapping[str, PreemptionRules] = MappingProxyType(
    {
        "high": PreemptionRules(threshold=0.0, kappa_per_s=0.0001, lost_work_per_s=0.0001, min_run_ms=0, cross_label_weight=0.9),
        "medium": PreemptionRules(),
        "low": PreemptionRules(threshold=2.0, kappa_per_s=0.01, lost_work_per_s=0.01, min_run_ms=30_000, cross_label_weight=0.25),
    }
)


def parse_cross_label(rules: Mapping[str, Mapping[str, Sequence[str]]]) -> Mapping[LabelName, tuple[LabelName, ...]]:
    """`{"tier": {"premium": ["standard", "batch"]}}`: tasks of `tier:premium` may take from `tier:standard` and `tier:batch`.

    Raises:
        PreemptionRulesError: Not of that form.
    """
    parsed: dict[LabelName, tuple[LabelName, ...]] = {}
    for key, ranks in rules.items():
        if not isinstance(ranks, Mapping):
            raise PreemptionRulesError(f'cross-label rule {key!r} is {ranks!r}; write {{"tier": {{"premium": ["standard"]}}}}')
        for value, below in ranks.items():
            if isinstance(below, str) or not all(isinstance(name, str) for name in below):
                raise PreemptionRulesError(f"cross-label rule {key}:{value} is {below!r}, and has to be a list of values of {key}")
            parsed[LabelName(f"{key}:{value}")] = tuple(LabelName(f"{key}:{name}") for name in below)
    return parsed


#: `(candidate, priority of the preemptor, rules, now_ms) -> score`; a plugin may put its own in place of `score`.
Scorer = Callable[[Candidate, float, PreemptionRules, int], float]


def remaining_ms(candidate: Candidate, now_ms: int) -> int:
    """How long it has still to run; 0 when nobody said how long it takes, or when it is overdue.

    Unknown counts as nothing left, for a guess from the time already run would make old tasks safer or weaker by age alone.
    """
    if candidate.estimated_ms is None:
        return 0
    return max(0, candidate.started_ms + candidate.estimated_ms - now_ms)


def score(candidate: Candidate, priority: float, rules: PreemptionRules, now_ms: int) -> float:
    """`delta_priority - kappa * remaining_s - lost_work_per_s * lost_s`, in points of priority; higher gives way first.

    Knows no labels: where they differ, `evaluate` takes off `(1 - cross_label_weight) * delta_priority`.

    Source:
        Seed §5.1, `preempt_score`.
    """
    lost_ms = max(0, now_ms - max(candidate.kept_ms, candidate.started_ms))
    cost = rules.kappa_per_s * remaining_ms(candidate, now_ms) + rules.lost_work_per_s * lost_ms
    return priority - candidate.priority - cost / 1000


@dataclass(frozen=True, slots=True)
class Scored:
    """What a dry run tells of one candidate."""

    candidate: Candidate
    score: float
    verdict: Reason  #: ELIGIBLE, or what stands against it.
    words: str

    @property
    def is_eligible(self) -> bool:
        """May be asked to give way."""
        return self.verdict is Reason.ELIGIBLE


def evaluate(
    preemptor: Preemptor,
    candidates: Iterable[Candidate],
    rules: PreemptionRules,
    now_ms: int,
    *,
    given_way: Mapping[LabelName, int] = NO_COUNTS,
    scorer: Scorer = score,
) -> tuple[Scored, ...]:
    """Every candidate with its score and verdict, in the order given.

    Args:
        given_way: How many of each label have been preempted in the last minute.
        scorer: In place of `score`. It decides about worth only; what is out of reach stays so.
    """
    allowed = _labels_in_reach(preemptor, rules)
    return tuple([_judge(preemptor, candidate, rules, now_ms, allowed, given_way, scorer) for candidate in candidates])


def eligible(
    preemptor: Preemptor,
    candidates: Iterable[Candidate],
    rules: PreemptionRules,
    now_ms: int,
    *,
    given_way: Mapping[LabelName, int] = NO_COUNTS,
    scorer: Scorer = score,
) -> tuple[Scored, ...]:
    """Those of `evaluate` who may be asked, found sooner: nobody is scored who is out of reach. Arguments as there."""
    allowed = _labels_in_reach(preemptor, rules)
    within = [candidate for candidate in candidates if _out_of_reach(preemptor, candidate, rules, allowed) is None]
    return tuple([found for found in evaluate(preemptor, within, rules, now_ms, given_way=given_way, scorer=scorer) if found.is_eligible])


def _labels_in_reach(preemptor: Preemptor, rules: PreemptionRules) -> tuple[LabelName, ...]:
    """Labels beside its own that it may take from."""
    return rules.cross_label.get(preemptor.label, ()) + rules.cross_label.get(ANY_LABEL, ())


def _judge(
    preemptor: Preemptor,
    candidate: Candidate,
    rules: PreemptionRules,
    now_ms: int,
    allowed: tuple[LabelName, ...],
    given_way: Mapping[LabelName, int],
    scorer: Scorer,
) -> Scored:
    worth, label = scorer(candidate, preemptor.priority, rules, now_ms), candidate.label
    if label != preemptor.label:
        worth -= (1.0 - rules.cross_label_weight) * max(preemptor.priority - candidate.priority, 0.0)
    if found := _out_of_reach(preemptor, candidate, rules, allowed):
        return Scored(candidate, worth, *found)
    age_ms = now_ms - candidate.started_ms
    if age_ms < rules.min_run_ms:
        return Scored(candidate, worth, Reason.TOO_YOUNG, f"it has run for {age_ms} ms of at least {rules.min_run_ms}")
    if not worth > rules.threshold:
        return Scored(candidate, worth, Reason.BELOW_THRESHOLD, f"its score is {worth:.3f}, and has to be above {rules.threshold:g}")
    if rules.per_minute_max is not None and given_way.get(label, 0) >= rules.per_minute_max:
        return Scored(candidate, worth, Reason.PREEMPTION_LIMIT, f"{given_way[label]} of {label or 'no label'} gave way in the last minute")
    return Scored(candidate, worth, Reason.ELIGIBLE, f"its score is {worth:.3f}")


def _out_of_reach(
    preemptor: Preemptor, candidate: Candidate, rules: PreemptionRules, allowed: tuple[LabelName, ...]
) -> tuple[Reason, str] | None:
    """What no score makes up for. Each rule stands for itself: none that is met lifts another."""
    if not candidate.preemptible:
        return Reason.NOT_PREEMPTIBLE, "its user said that it does not give way"
    if candidate.pool != preemptor.pool:
        if candidate.pool in rules.protected_pools:
            return Reason.PROTECTED, f"pool {candidate.pool} is protected from other pools"
        if not rules.cross_pool:
            return Reason.OTHER_POOL, f"it runs in pool {candidate.pool}, and cross_pool is off"
    if not candidate.priority < preemptor.priority:
        return Reason.PRIORITY_NOT_LOWER, f"its priority is {candidate.priority:g}, that of the other {preemptor.priority:g}"
    if candidate.label != preemptor.label and candidate.label not in allowed and ANY_LABEL not in allowed:
        return Reason.ISOLATED, f"no rule lets {preemptor.label or 'no label'} take from {candidate.label or 'no label'}"
    return None
