"""Eligibility and scores of preemption candidates.

`evaluate` returns for every running task whether it may be preempted, with the reason. It changes nothing, so it also serves the dry run.
`mesh.preemption.victims` chooses the victims among its results.

The score is `delta_priority - kappa * remaining_s`, and must exceed a threshold. Unsaved work and a very short run time count against a
victim. A rule about labels only permits victims of another label; it lifts neither the protection of a pool nor the order of priorities.

A victim's priority is strictly lower than the preemptor's, or equal if the victim was created later and `Preemptor.newer_than_ms` allows
it. Priorities are not aged by waiting, and a creation time never changes. Each preemption therefore goes down in one fixed order, and no
chain of preemptions forms a cycle: two tasks cannot evict each other in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from mesh.core.ids import GroupId, LabelName, PoolName, TaskId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import NO_TENANT
from mesh.errors import MeshError

ANY_LABEL = LabelName("*")
NO_COUNTS: Mapping[LabelName, int] = MappingProxyType({})
#: Period of `per_minute_max`.
MINUTE_MS = 60_000


class PreemptionRulesError(MeshError, ValueError):
    """The preemption rules contradict themselves or contain an unknown name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Running task, as input to preemption."""

    task: TaskId
    label: LabelName
    pool: PoolName
    tenant: TenantPath
    priority: float  #: P_base + P_label, not aged: with aging, two tasks could evict each other in turns.
    resources: ResourceSet
    row: int  #: Row of its node in the node table.
    started_ms: int
    kept_ms: int  #: When its state was last saved; `started_ms` if never.
    estimated_ms: int | None = None
    group: GroupId | None = None
    preemptible: bool = True
    created_ms: int = 0  #: When it was submitted; read only for `Preemptor.newer_than_ms`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """Task that needs capacity, as input to preemption."""

    task: TaskId
    label: LabelName
    pool: PoolName
    priority: float  #: P_base + P_label, not aged.
    tenant: TenantPath = NO_TENANT
    newer_than_ms: int | None = None  #: Of equal priority, tasks created after this may be preempted; None: none.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRules:
    """Thresholds, costs and limits of preemption."""

    threshold: float = 0.5  #: A score must be above it.
    kappa_per_s: float = 0.001  #: Priority points per second that the victim still has to run.
    min_run_ms: int = 1_000  #: Tasks that have run for less are not preempted.
    lost_work_per_s: float = 0.001  #: Priority points per second of unsaved work.
    cross_label: Mapping[LabelName, tuple[LabelName, ...]] = field(default_factory=dict)  #: Label to the labels it may preempt; `*`: any.
    cross_label_weight: float = 0.5  #: In (0, 1]: factor on the difference of priorities if the labels differ.
    cross_pool: bool = False  #: Allow victims in other pools.
    protected_pools: frozenset[PoolName] = frozenset()  #: Their tasks are not preempted by tasks of other pools.
    per_minute_max: int | None = None  #: Limit on preemptions per label and minute; None: no limit.

    def __post_init__(self) -> None:
        if not 0 < self.cross_label_weight <= 1:
            raise PreemptionRulesError(f"cross_label_weight must be above 0 and at most 1, got {self.cross_label_weight}")
        if min(self.kappa_per_s, self.lost_work_per_s, self.min_run_ms) < 0:
            raise PreemptionRulesError("kappa_per_s, lost_work_per_s and min_run_ms must not be negative")

    @classmethod
    def of(cls, aggressiveness: str = "medium", **changes: Any) -> PreemptionRules:
        """Return a preset, `high`, `medium` or `low`, with single rules changed by name.

        Raises:
            PreemptionRulesError: The preset is unknown, or a rule is invalid.
        """
        if aggressiveness not in PRESETS:
            raise PreemptionRulesError(f"aggressiveness must be one of {', '.join(PRESETS)}, got {aggressiveness!r}")
        return replace(PRESETS[aggressiveness], **changes)


PRESETS: Mapping[str, PreemptionRules] = MappingProxyType(
    {
        "high": PreemptionRules(threshold=0.0, kappa_per_s=0.0001, lost_work_per_s=0.0001, min_run_ms=0, cross_label_weight=0.9),
        "medium": PreemptionRules(),
        "low": PreemptionRules(threshold=2.0, kappa_per_s=0.01, lost_work_per_s=0.01, min_run_ms=30_000, cross_label_weight=0.25),
    }
)


def parse_cross_label(rules: Mapping[str, Mapping[str, Sequence[str]]]) -> Mapping[LabelName, tuple[LabelName, ...]]:
    """Parse `{"tier": {"premium": ["standard", "batch"]}}`: tasks of `tier:premium` may preempt those of `tier:standard` and `tier:batch`.

    Raises:
        PreemptionRulesError: The rules have another form.
    """
    parsed: dict[LabelName, tuple[LabelName, ...]] = {}
    for key, ranks in rules.items():
        if not isinstance(ranks, Mapping):
            raise PreemptionRulesError(f'cross-label rule {key!r} is {ranks!r}; write {{"tier": {{"premium": ["standard"]}}}}')
        for value, below in ranks.items():
            if isinstance(below, str) or not all(isinstance(name, str) for name in below):
                raise PreemptionRulesError(f"cross-label rule {key}:{value} must be a list of values of {key}, got {below!r}")
            parsed[LabelName(f"{key}:{value}")] = tuple(LabelName(f"{key}:{name}") for name in below)
    return parsed


#: `(candidate, priority of the preemptor, rules, now_ms) -> score`; a plugin may replace `score`.
Scorer = Callable[[Candidate, float, PreemptionRules, int], float]


def remaining_ms(candidate: Candidate, now_ms: int) -> int:
    """Return how long the candidate still has to run; 0 when no estimate was given or it is overdue.

    Without an estimate no guess is made from the time already run: age alone would then protect or expose old tasks.
    """
    if candidate.estimated_ms is None:
        return 0
    return max(0, candidate.started_ms + candidate.estimated_ms - now_ms)


def score(candidate: Candidate, priority: float, rules: PreemptionRules, now_ms: int) -> float:
    """Return `delta_priority - kappa * remaining_s - lost_work_per_s * lost_s`, in priority points; higher is preempted first.

    Labels are ignored here: if they differ, `evaluate` subtracts `(1 - cross_label_weight) * delta_priority`.
    """
    lost_ms = max(0, now_ms - max(candidate.kept_ms, candidate.started_ms))
    cost = rules.kappa_per_s * remaining_ms(candidate, now_ms) + rules.lost_work_per_s * lost_ms
    return priority - candidate.priority - cost / 1000


@dataclass(frozen=True, slots=True)
class Scored:
    """Verdict on one candidate."""

    candidate: Candidate
    score: float
    verdict: Reason  #: ELIGIBLE, or the rule against it.
    words: str

    @property
    def is_eligible(self) -> bool:
        return self.verdict is Reason.ELIGIBLE


def evaluate(
    preemptor: Preemptor,
    candidates: Iterable[Candidate],
    rules: PreemptionRules,
    now_ms: int,
    *,
    recent_preemptions: Mapping[LabelName, int] = NO_COUNTS,
    scorer: Scorer = score,
) -> tuple[Scored, ...]:
    """Return every candidate with its score and verdict, in the given order.

    Args:
        recent_preemptions: Number of preemptions per label in the last minute.
        scorer: Replaces `score`. It affects the score only; rules of eligibility still apply.
    """
    allowed = _labels_in_reach(preemptor, rules)
    return tuple([_judge(preemptor, candidate, rules, now_ms, allowed, recent_preemptions, scorer) for candidate in candidates])


def eligible(
    preemptor: Preemptor,
    candidates: Iterable[Candidate],
    rules: PreemptionRules,
    now_ms: int,
    *,
    recent_preemptions: Mapping[LabelName, int] = NO_COUNTS,
    scorer: Scorer = score,
) -> tuple[Scored, ...]:
    """Return the eligible results of `evaluate`, faster: ineligible candidates are not scored. Same arguments."""
    allowed = _labels_in_reach(preemptor, rules)
    within = [candidate for candidate in candidates if _out_of_reach(preemptor, candidate, rules, allowed) is None]
    return tuple(
        [
            found
            for found in evaluate(preemptor, within, rules, now_ms, recent_preemptions=recent_preemptions, scorer=scorer)
            if found.is_eligible
        ]
    )


def _labels_in_reach(preemptor: Preemptor, rules: PreemptionRules) -> tuple[LabelName, ...]:
    """Return the other labels that the preemptor may preempt."""
    return rules.cross_label.get(preemptor.label, ()) + rules.cross_label.get(ANY_LABEL, ())


def _judge(
    preemptor: Preemptor,
    candidate: Candidate,
    rules: PreemptionRules,
    now_ms: int,
    allowed: tuple[LabelName, ...],
    recent_preemptions: Mapping[LabelName, int],
    scorer: Scorer,
) -> Scored:
    worth, label = scorer(candidate, preemptor.priority, rules, now_ms), candidate.label
    if label != preemptor.label:
        worth -= (1.0 - rules.cross_label_weight) * max(preemptor.priority - candidate.priority, 0.0)
    if found := _out_of_reach(preemptor, candidate, rules, allowed):
        return Scored(candidate, worth, *found)
    age_ms = now_ms - candidate.started_ms
    if age_ms < rules.min_run_ms:
        return Scored(candidate, worth, Reason.BELOW_MIN_RUN_TIME, f"it has run for {age_ms} ms of at least {rules.min_run_ms}")
    if not worth > rules.threshold:
        return Scored(candidate, worth, Reason.BELOW_THRESHOLD, f"its score {worth:.3f} is not above {rules.threshold:g}")
    if rules.per_minute_max is not None and recent_preemptions.get(label, 0) >= rules.per_minute_max:
        return Scored(
            candidate,
            worth,
            Reason.PREEMPTION_LIMIT,
            f"{recent_preemptions[label]} of {label or 'no label'} were preempted in the last minute",
        )
    return Scored(candidate, worth, Reason.ELIGIBLE, f"its score is {worth:.3f}")


def _out_of_reach(
    preemptor: Preemptor, candidate: Candidate, rules: PreemptionRules, allowed: tuple[LabelName, ...]
) -> tuple[Reason, str] | None:
    """Return the rule that excludes the candidate whatever its score, or None. All rules apply independently."""
    if not candidate.preemptible:
        return Reason.NOT_PREEMPTIBLE, "its user set preemptible to false"
    if candidate.pool != preemptor.pool:
        if candidate.pool in rules.protected_pools:
            return Reason.PROTECTED, f"pool {candidate.pool} is protected from other pools"
        if not rules.cross_pool:
            return Reason.OTHER_POOL, f"it runs in pool {candidate.pool}, and cross_pool is off"
    if not (candidate.priority < preemptor.priority or _is_newer_equal(preemptor, candidate)):
        return Reason.PRIORITY_NOT_LOWER, f"its priority {candidate.priority:g} is not lower than {preemptor.priority:g}"
    if candidate.label != preemptor.label and candidate.label not in allowed and ANY_LABEL not in allowed:
        return Reason.LABEL_ISOLATED, f"no rule lets {preemptor.label or 'no label'} preempt {candidate.label or 'no label'}"
    return None


def _is_newer_equal(preemptor: Preemptor, candidate: Candidate) -> bool:
    newer_than_ms = preemptor.newer_than_ms
    return newer_than_ms is not None and candidate.priority == preemptor.priority and candidate.created_ms > newer_than_ms
