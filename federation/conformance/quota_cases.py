"""Runs of quota cases with the core. This module reads only the keys of expectations, never their values.

The core has one namespace for leaves and inner nodes, but a case may give a cohort and a queue the same name. So cohorts are stored as
`cohort:NAME`. Times of cases are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from fractions import Fraction
from typing import Any

from federation.conformance.fields import Fields
from federation.errors import ConfigError
from federation.quota.cycle import QuotaCycle
from federation.quota.decisions import Admit, Preempt, Wait
from federation.quota.forest import UNLIMITED, ForestNode, QuotaForest
from federation.quota.ledger import Amounts, recompute
from federation.quota.policies import (
    Fungibility,
    Policies,
    Preference,
    QueueSettings,
    ResourceGroup,
    Rules,
    Strategy,
    TryOn,
)
from federation.quota.policies import PreemptionMode as Policy
from federation.quota.preemption.candidates import Victim, victim_order
from federation.quota.preemption.choice import victims_for
from federation.quota.shares import dominant_share
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import ReplicaSet, Running, Workload
from federation.tenants import FlavorResource, Quota
from mesh.conformance.fields import CaseError
from mesh.core.ids import FlavorName
from mesh.core.reasons import Reason

NOW_MS = 1_000_000  #: A case's `now`: 1,000 s.
COHORT = "cohort:"
REPLICAS_OF_PODS = "pods"  #: A queue with a quota for this resource counts one unit per pod.

#: The cases' words for the rules by which a victim is preempted.
REASONS = {
    Reason.PREEMPTED_WITHIN_TENANT: "InClusterQueue",
    Reason.QUOTA_RECLAIMED: "InCohortReclamation",
    Reason.QUOTA_RECLAIMED_BORROWING: "InCohortReclaimWhileBorrowing",
    Reason.FAIR_SHARE: "InCohortFairSharing",
}


class Queueing(str, Enum):
    """The cases' words for how a queue treats a head that cannot start."""

    BEST_EFFORT = "BestEffortFIFO"
    STRICT = "StrictFIFO"


class QuotaCase:
    """Input of a case, as values of the core.

    Raises:
        CaseError: A missing key, a wrong type, a negative amount, or an unknown name.
    """

    def __init__(self, fields: Fields, rules: Rules) -> None:
        self.fields = fields
        has_shares = fields.get("fair_sharing", bool, default=rules.fair_sharing)
        named = tuple(Strategy(name) for name in fields.texts("strategies")) if has_shares else ()
        self.rules = replace(rules, fair_sharing=has_shares, strategies=named or rules.strategies, min_run_ms=0)
        cohorts = [self._node(each, COHORT + each.text("name"), "parent", is_queue=False) for each in fields.each("cohorts")]
        queues = [self._node(each, each.text("name"), "cohort", is_queue=True) for each in fields.each("queues")]
        self.nodes = (*cohorts, *queues)
        self.forest = QuotaForest(self.nodes)
        self.settings = {self.forest.index[each.text("name")]: _settings(each) for each in fields.each("queues")}
        self.names: dict[str, str] = {}  #: Workload to its name in the case.
        self.admitted = tuple(self._running(each) for each in fields.each("admitted"))

    def snapshot(self, *, with_use: bool = True) -> QuotaSnapshot:
        """Return a snapshot with the admitted work, or an empty one."""
        snapshot = QuotaSnapshot(self.forest, self.rules, self.settings, now_ms=NOW_MS)
        for running in self.admitted if with_use else ():
            snapshot.add(running)
        return snapshot

    def workload(self, fields: Fields) -> Workload:
        """Return a workload of the case; `uid`, if given, breaks ties."""
        name = fields.text("name")
        node = _queue(self.forest, fields)
        identity = fields.get("uid", str, default=name)
        self.names[identity] = name
        return Workload(
            workload=identity,
            queue=self.forest.names[node],
            created_ms=_ms(fields, "created"),
            priority=fields.number("priority", default=0),
        )

    def pending(self, fields: Fields) -> Workload:
        """Return a waiting workload, with its replica sets."""
        workload = self.workload(fields)
        groups = self.settings[self.forest.index[workload.queue]].groups
        covered = {resource for group in groups for resource in group.resources}
        sets = tuple(_replica_set(each, counts_pods=REPLICAS_OF_PODS in covered) for each in fields.each("pod_sets"))
        return workload._replace(replica_sets=sets)

    def works_of_history(self) -> dict[str, Running]:
        """Return the work that starts and ends in the case's history, by name."""
        known = self.fields.inner("history").inner("requests")
        works: dict[str, Running] = {}
        for name in known.keys:
            known.inner(name).require("queue", "requests")
            queue = self.forest.names[_queue(self.forest, known.inner(name))]
            self.names.setdefault(name, name)
            works[name] = Running(
                workload=Workload(workload=name, queue=queue, created_ms=0), amounts=amounts_of(known.inner(name)), since_ms=0
            )
        return works

    def _running(self, fields: Fields) -> Running:
        return Running(
            workload=self.workload(fields),
            amounts=amounts_of(fields),
            since_ms=_ms(fields, "reserved_at"),
            is_leaving=fields.get("evicted", bool, default=False),
        )

    @staticmethod
    def _node(fields: Fields, name: str, above: str, *, is_queue: bool) -> ForestNode:
        parent = fields.get(above, str, default=None)
        quotas: dict[FlavorResource, Quota] = {}
        for each in fields.each("quotas"):
            borrowing, lending = (each.amount(limit, default=None) for limit in ("borrowing_limit", "lending_limit"))
            quotas[FlavorName(each.text("flavor")), each.text("resource")] = Quota(
                nominal=min(UNLIMITED, each.amount("nominal")),
                borrowing_limit=borrowing if parent else None,
                lending_limit=lending if parent else None,
            )
        weight = Fraction(str(fields.measure("weight", default=1)))
        return ForestNode(name=name, parent=None if parent is None else COHORT + parent, quotas=quotas, weight=weight, is_queue=is_queue)


def _ms(fields: Fields, name: str) -> int:
    return round(Fraction(fields.measure(name, default=0)) * 1_000)


def amounts_of(fields: Fields) -> dict[FlavorResource, int]:
    """Return `requests` by flavor and resource, in units."""
    requests = fields.inner("requests")
    return {
        (FlavorName(flavor), resource): min(UNLIMITED, requests.inner(flavor).amount(resource))
        for flavor in requests.keys
        for resource in requests.inner(flavor).keys
    }


def _replica_set(fields: Fields, *, counts_pods: bool) -> ReplicaSet:
    requests = fields.inner("requests")
    amounts = {resource: min(UNLIMITED, requests.amount(resource)) for resource in requests.keys}
    if counts_pods:
        amounts.setdefault(REPLICAS_OF_PODS, 1)
    return ReplicaSet(
        name=fields.text("name"), count=fields.amount("count"), amounts=amounts, count_min=fields.amount("min_count", default=None)
    )


def _settings(fields: Fields) -> QueueSettings:
    fungibility = fields.inner("fungibility")
    return QueueSettings(
        policies=_policies(fields.inner("policies")),
        fungibility=Fungibility(
            on_borrow=fungibility.word("when_can_borrow", TryOn, default=TryOn.STOP),
            on_preempt=fungibility.word("when_can_preempt", TryOn, default=TryOn.NEXT),
            preference=fungibility.word("preference", Preference, default=Preference.BORROWING),
        ),
        groups=tuple(
            ResourceGroup(resources=each.texts("resources"), flavors=each.texts("flavors")) for each in fields.each("resource_groups")
        ),
        is_strict=fields.word("queueing_strategy", Queueing, default=Queueing.BEST_EFFORT) is Queueing.STRICT,
    )


def _policies(fields: Fields) -> Policies:
    borrow = fields.inner("borrow_within_cohort")
    return Policies(
        within_queue=fields.word("within_queue", Policy, default=Policy.NEVER),
        reclaim=fields.word("reclaim_within_cohort", Policy, default=Policy.NEVER),
        borrow=borrow.word("policy", Policy, default=Policy.NEVER),
        borrow_priority_max=borrow.number("max_priority_threshold", default=None),
    )


def _require_keys(fields: Fields, kind: str) -> None:
    """Refuse missing keys instead of using defaults, so no case passes because of an omission."""
    fields.require("cohorts", "queues", "admitted")
    is_work = kind in ("preempt", "admit")
    if is_work:
        fields.require("fair_sharing", "strategies", "incoming")
    for each in fields.each("cohorts"):
        each.require("name", "parent", "weight", "quotas")
    for each in fields.each("queues"):
        each.require("name", "cohort", "weight", "quotas", *(["policies"] if is_work else []))
        if is_work:
            each.inner("policies").require("within_queue", "reclaim_within_cohort", "borrow_within_cohort")
        if kind == "admit":
            each.require("resource_groups", "queueing_strategy", "fungibility")
            each.inner("fungibility").require("when_can_borrow", "when_can_preempt", "preference")
    for each in fields.each("admitted"):
        each.require("name", "queue", "requests", *(["priority", "created", "reserved_at"] if is_work else []))
    if is_work:
        _require_one_each(fields.each("admitted"))
    incoming = fields.each("incoming") if kind == "admit" else (fields.inner("incoming"),) if kind == "preempt" else ()
    _require_one_each(incoming)
    for each in incoming:
        each.require("name", "queue", "priority", "created", *(["pod_sets"] if kind == "admit" else ["requests", "preempt_on"]))
        for pod_set in each.each("pod_sets"):
            pod_set.require("name", "count", "min_count", "requests")


def _require_one_each(listed: Iterable[Fields]) -> None:
    """Check that workloads differ in `uid`, or by default in their names."""
    seen: set[str] = set()
    for each in listed:
        identity = each.get("uid", str, default=None) or each.text("name")
        if identity in seen:
            raise CaseError(f"{each.place}: another workload is called {identity!r}")
        seen.add(identity)


def run_available(case: QuotaCase, asked: Iterable[str]) -> dict[str, Any]:
    """Run kind `available`: return the ledger's numbers for each key of the expectation; expected values stay unread."""
    full, empty = case.snapshot(), case.snapshot(with_use=False)
    charges = [(full.node_of(running), running.amounts) for running in case.admitted]
    if full.ledger.usage() != recompute(case.forest, charges):
        raise CaseError("the use counted step by step differs from the use counted from scratch")
    history = case.fields.inner("history")
    if history.keys:
        full = _replayed(case, history)
    got = {name: _expected_values(case.forest, full, empty, name) for name in asked}
    for running in case.admitted:
        if not history.keys:
            full.remove(running)
    if not history.keys and full.ledger.usage():
        raise CaseError("all work has ended, but some use remains")
    return got


def _expected_values(forest: QuotaForest, full: QuotaSnapshot, empty: QuotaSnapshot, name: str) -> dict[str, Any]:
    node_name, _, rest = name.partition("/")
    if not rest:
        return {"lendable": dict(forest.lendable(_node(forest, name)))}
    *parts, resource = name.split("/")
    key = (FlavorName(parts[-1]), resource)
    node = _node(forest, "/".join(parts[:-1]) or node_name)
    if node in forest.queues and empty.ledger.available(node, key) != forest.rows(key).potential[node]:
        raise CaseError(f"{name}: with nothing in use, less is available than it could hold")
    return {
        "available": full.ledger.available(node, key),
        "potential": forest.rows(key).potential[node],
        "usage": full.ledger.use(node, key),
        "subtree_quota": forest.rows(key).own[node],
    }


def _node(forest: QuotaForest, name: str) -> int:
    if name not in forest.index and COHORT + name not in forest.index:
        raise CaseError(f"there is no queue and no cohort {name!r}")
    return forest.index[name] if name in forest.index else forest.index[COHORT + name]


def _queue(forest: QuotaForest, fields: Fields) -> int:
    """Return the queue that a workload names."""
    name = fields.text("queue")
    if name not in forest.index or forest.index[name] not in forest.queues:
        raise CaseError(f"{fields.place}: there is no queue {name!r}")
    return forest.index[name]


def _replayed(case: QuotaCase, history: Fields) -> QuotaSnapshot:
    """Return the snapshot after the history's additions and removals."""
    works = {name: (case.forest.index[work.workload.queue], work.amounts) for name, work in case.works_of_history().items()}
    snapshot = case.snapshot(with_use=False)
    steps: tuple[tuple[str, Callable[[int, Amounts], None]], ...] = (
        ("start_with", snapshot.charge),
        ("remove", snapshot.discharge),
        ("add", snapshot.charge),
    )
    for step, act in steps:
        for name in history.texts(step):
            if name not in works:
                raise CaseError(f"{history.place}: {step!r} names {name!r}, which has no requests")
            act(*works[name])
    return snapshot


def run_share(case: QuotaCase, asked: Iterable[str]) -> dict[str, Any]:
    """Run kind `share`: return the share of each node in the expectation."""
    snapshot = case.snapshot()
    incoming = case.fields.inner("incoming")
    extra = amounts_of(incoming) if incoming.keys else {}
    queue = incoming.get("queue", str, default="*")
    if queue != "*":
        _node(case.forest, queue)
    got = {}
    for name in asked:
        node = _node(case.forest, name)
        share = dominant_share(snapshot.ledger, node, extra if queue in ("*", name) else {})
        got[name] = {
            "share": UNLIMITED if share.per_mille is None else share.per_mille,
            "resource": share.resource,
            "borrowing": share.is_borrowing,
            "node": "queue" if node in case.forest.queues else "cohort",
        }
    return got


def run_preempt(case: QuotaCase) -> dict[str, Any]:
    """Run kind `preempt`: for given flavors, return the victims, and the order of all candidates."""
    incoming = case.fields.inner("incoming")
    workload, snapshot = case.workload(incoming), case.snapshot()
    needed = frozenset((FlavorName(flavor), resource) for flavor, resource in incoming.pairs("preempt_on"))
    ask = Ask(workload=workload, node=case.forest.index[workload.queue], amounts=amounts_of(incoming), needed=needed)
    victims = victims_for(snapshot, ask)
    everybody = sorted(case.admitted, key=victim_order(snapshot, workload.queue))
    return {
        "victims": sorted(_names(case, victims)),
        "reasons": {case.names[victim.running.workload.workload]: REASONS[victim.reason] for victim in victims},
        "already_evicted": sorted(_names(case, (victim for victim in victims if victim.running.is_leaving))),
        "candidate_order": [case.names[running.workload.workload] for running in everybody],
    }


def _names(case: QuotaCase, victims: Iterable[Victim]) -> list[str]:
    return [case.names[victim.running.workload.workload] for victim in victims]


def run_admit(case: QuotaCase) -> dict[str, Any]:
    """Run kind `admit`: one pass over the heads of all queues; work behind a head is pending."""
    waiting = sorted(map(case.pending, case.fields.each("incoming")), key=lambda one: (-one.priority, one.created_ms, one.workload))
    heads: dict[str, Workload] = {}
    for one in waiting:
        heads.setdefault(one.queue, one)
    decisions = QuotaCycle(case.snapshot()).run(heads.values())
    admitted = {case.names[one.workload]: one.assignment for one in decisions if isinstance(one, Admit)}
    preempted = {
        case.names[victim.running.workload.workload]
        for one in decisions
        if isinstance(one, Preempt)
        for victim in one.victims
        if not victim.running.is_leaving
    }
    return {
        "admitted": sorted(admitted),
        "pending": sorted({case.names[one.workload] for one in waiting} - admitted.keys()),
        "preempted": sorted(preempted),
        "parked": sorted(case.names[one.workload] for one in decisions if isinstance(one, Wait) and one.is_parked),
        "assignments": {
            name: {
                one.name: {"count": one.count, "flavors": {resource: choice.flavor for resource, choice in sorted(one.flavors.items())}}
                for one in assignment.sets
            }
            for name, assignment in admitted.items()
        },
    }


def read_case(rules: Rules, fields: Fields) -> tuple[str, QuotaCase]:
    """Return the kind of a case, and its input.

    Raises:
        CaseError: The case cannot be read, or its kind is unknown.
    """
    kind = fields.text("kind")
    if kind not in ("available", "share", "preempt", "admit"):
        raise CaseError(f"the kind {kind!r} is unknown; known are available, share, preempt and admit")
    _require_keys(fields, kind)
    try:
        return kind, QuotaCase(fields, rules)
    except (ConfigError, ValueError) as wrong:
        raise CaseError(f"{fields.place}: {wrong}") from None


def run_case(rules: Rules, fields: Fields, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a case and return the core's results.

    Args:
        asked: The expectation, of which only the keys are read.

    Raises:
        CaseError: The case cannot be read, or its kind is unknown.
    """
    kind, case = read_case(rules, fields)
    if kind == "available":
        return run_available(case, asked)
    if kind == "share":
        return run_share(case, asked)
    return run_preempt(case) if kind == "preempt" else run_admit(case)
