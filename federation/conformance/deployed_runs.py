"""Runs of quota cases on a federation as it is deployed. This module reads only the keys of expectations, never their values.

Amounts that the ledger would grant are measured by asking for them: a stage with as many slots of one unit as it can get starts with
what is available. All else is read from what the ledger, the planner and the meshes have decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from federation.conformance.case_stores import CaseStore, NewStore
from federation.conformance.deployed_cases import DeployedCase, NotExpressible, mesh_of, replicas_per_slot
from federation.conformance.deployed_federation import CaseStage, DeployedFederation
from federation.conformance.fields import Fields
from federation.conformance.quota_cases import COHORT, amounts_of, read_case
from federation.planning.planner_inputs import holdings_of
from federation.planning.planning_state import PlanningState
from federation.quota.forest import UNLIMITED, QuotaForest
from federation.quota.policies import Rules
from federation.quota.shares import dominant_share
from federation.quota.workloads import Workload
from federation.tenants import FlavorResource
from mesh.conformance.fields import CaseError
from mesh.core.ids import FlavorName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import AMOUNT_MAX, ResourceSet


def run_deployed(new_store: NewStore, rules: Rules, fields: Fields, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a case and return what the federation did.

    Args:
        asked: The expectation, of which only the keys are read.

    Raises:
        CaseError: The case cannot be read, or the federation does not come to rest.
        NotExpressible: A federation cannot express what the case says.
    """
    kind, read = read_case(rules, fields)
    case = DeployedCase(kind, read)
    with new_store() as store:
        run = _Run(case, store)
        got = _RUNS[kind](run, asked)
        run.check()
    return got


class _Run:
    """One case on its federation."""

    def __init__(self, case: DeployedCase, store: CaseStore) -> None:
        self.case, self.store = case, store
        self.federation = DeployedFederation(store, case.records(), case.tenant_policies)
        self._probes = 0
        self._over: frozenset[str] = frozenset()  #: Nodes that use more than their limits when the case begins.

    def begin(self) -> None:
        """Let the meshes join under the case's tree."""
        self.store.ledger.configure(self.case.tree)
        self.federation.join()

    def start(self) -> None:
        """Start the running work under a tree that covers it, and put the case's tree into force."""
        self.store.ledger.configure(self.case.roomy_tree())
        if self.case.has_history:
            self.replay()
        else:
            since_ms = None
            for running in self.case.in_order_of_start():
                self.federation.advance(0 if since_ms is None else running.since_ms - since_ms)
                since_ms = running.since_ms
                self.start_now(self.case.running_stages(running))
        self._over = frozenset(self.store.ledger.configure(self.case.tree).over)
        self.federation.run(with_plans=False)

    def check(self) -> None:
        """Check what holds in every case, whatever Kueue does.

        Raises:
            CaseError: The ledger's sums are wrong, or the ledger granted beyond a limit.
        """
        wrong = self.store.ledger.audit()
        if wrong:
            raise CaseError(f"sums of the ledger differ from those of its leases: {wrong}")
        snapshot = self.federation.snapshot()
        granted = set(snapshot.tree.over(snapshot.usage)) - self._over
        if granted:
            raise CaseError(f"the ledger granted beyond the limits of {', '.join(sorted(granted))}")

    def replay(self) -> None:
        """Start, end and start again the work of the case's history."""
        history = self.case.case.fields.inner("history")
        stages = self.case.history_stages()
        for name in history.texts("start_with"):
            self.start_now(stages[name])
        for name in history.texts("remove"):
            for stage in stages[name]:
                self.end_now(stage)
        for name in history.texts("add"):
            self.start_now([replace(stage, stage=StageId(f"{stage.stage}:again")) for stage in stages[name]])

    def start_now(self, stages: list[CaseStage]) -> None:
        """Start the stages, which have quota."""
        self.federation.submit(*stages)
        self.federation.run(lambda: all(map(self.starts, stages)), with_plans=False)
        waiting = [stage.stage for stage in stages if not self.starts(stage)]
        if waiting:
            raise CaseError(f"running work does not start: {waiting}, {self.federation.waits}")

    def end_now(self, stage: CaseStage) -> None:
        """Cancel the stage for its user, and wait until its quota is returned."""
        self.federation.cancel(stage.stage)
        self.federation.run(with_plans=False)

    def starts(self, stage: CaseStage) -> bool:
        """Return whether the stage has started."""
        return self.federation.mesh_of(stage.stage) is not None

    def name_of(self, stage: StageId) -> str:
        """Return the name of the stage's workload in the case."""
        return self.case.names[stage]

    def grantable(self, tenant: str, key: FlavorResource) -> int:
        """Return how many units the ledger grants to the tenant now; they are returned afterwards."""
        self._probes += 1
        flavor, resource = key
        probe = CaseStage(
            stage=StageId(f"probe:{self._probes}"),
            tenant=TenantPath(tenant),
            slot=ResourceSet({resource: 1}),
            width=AMOUNT_MAX,
            mesh=mesh_of(flavor),
        )
        self.federation.submit(probe)
        self.federation.run(with_plans=False)
        granted = self.federation.slots_of(probe.stage)
        self.end_now(probe)
        return granted


# ---- sums of the ledger


def _run_available(run: _Run, asked: Mapping[str, Any]) -> dict[str, Any]:
    keys = {name: _node_and_key(run.case, name) for name in asked}
    run.begin()
    potential = {name: run.grantable(node, key) for name, (node, key) in keys.items() if key is not None and "potential" in asked[name]}
    run.start()
    snapshot = run.federation.snapshot()
    forest = QuotaForest.of_tenants(snapshot.tree, run.case.tenant_policies.weights)
    got: dict[str, Any] = {}
    for name, (node, key) in keys.items():
        tenant = TenantPath(node)
        if key is None:
            got[name] = {"lendable": dict(forest.lendable(forest.node(node)))}
            continue
        got[name] = {"usage": snapshot.usage.get((tenant, *key), 0), "subtree_quota": snapshot.tree.own_quota(tenant, key)}
        if name in potential:
            got[name]["potential"] = potential[name]
        if "available" in asked[name]:
            got[name]["available"] = run.grantable(node, key)
    return got


def _node_and_key(case: DeployedCase, name: str) -> tuple[str, FlavorResource | None]:
    *parts, flavor, resource = name.split("/") if "/" in name else (name, "", "")
    node = "/".join(parts)
    known = case.tree.tenants
    node = node if TenantPath(node) in known else COHORT + node
    if TenantPath(node) not in known:
        raise CaseError(f"there is no queue and no cohort {name!r}")
    return node, (FlavorName(flavor), resource) if resource else None


# ---- shares


def _run_share(run: _Run, asked: Mapping[str, Any]) -> dict[str, Any]:
    run.begin()
    run.start()
    snapshot = run.federation.snapshot()
    forest = QuotaForest.of_tenants(snapshot.tree, run.case.tenant_policies.weights)
    policies = run.case.tenant_policies
    state = PlanningState(forest, holdings_of(snapshot), rules=policies.rules, settings=policies.settings, now_ms=snapshot.at_ms)
    incoming = run.case.case.fields.inner("incoming")
    extra = amounts_of(incoming) if incoming.keys else {}
    queue = incoming.get("queue", str, default="*")
    got: dict[str, Any] = {}
    for name in asked:
        node, _ = _node_and_key(run.case, name)
        share = dominant_share(state.ledger, forest.node(node), extra if queue in ("*", name) else {})
        got[name] = {
            "share": UNLIMITED if share.per_mille is None else share.per_mille,
            "resource": share.resource,
            "borrowing": share.is_borrowing,
            "node": "cohort" if node.startswith(COHORT) else "queue",
        }
    for one, other in combinations(sorted(map(forest.node, run.case.tree.tenants)), 2):
        if forest.parents[one] == forest.parents[other] >= 0:
            exact = [dominant_share(state.ledger, node).key for node in (one, other)]
            ranks = [state.shares.rank(node) for node in (one, other)]
            if (exact[0] < exact[1]) != (ranks[0] < ranks[1]) or (exact[0] == exact[1]) != (ranks[0] == ranks[1]):
                raise CaseError(
                    f"the planner ranks {forest.names[one]} and {forest.names[other]} otherwise than their shares: {ranks}, {exact}"
                )
    return got


# ---- preemption and admission


def _run_preempt(run: _Run, asked: Mapping[str, Any]) -> dict[str, Any]:
    if "candidate_order" in asked:
        raise NotExpressible("only the order of candidates is asked for, and none of them holds anything")
    incoming = run.case.case.fields.inner("incoming")
    stage = run.case.pending_on(run.case.case.workload(incoming), amounts_of(incoming))
    run.begin()
    run.start()
    run.federation.submit(stage)
    run.federation.run()
    victims = {run.name_of(name): reason.value for name, reason in sorted(run.federation.lost.items())}
    if victims and not run.starts(stage):
        raise CaseError(f"{', '.join(sorted(victims))} stopped in vain: {run.name_of(stage.stage)} does not start")
    return {
        "victims": sorted(victims),
        "reasons": victims,
        "waits": _waits(run, [stage]),
    }


def _run_admit(run: _Run, _asked: Mapping[str, Any]) -> dict[str, Any]:
    case = run.case.case
    works = sorted(map(case.pending, case.fields.each("incoming")), key=lambda one: (one.created_ms, one.workload))
    pending = [(work, run.case.pending(work)) for work in works]
    run.begin()
    run.start()
    run.federation.hold_stops()
    run.federation.submit(*(stage for _, stage in pending))
    run.federation.run()
    admitted = [(work, stage) for work, stage in pending if run.starts(stage)]
    waiting = [(work, stage) for work, stage in pending if not run.starts(stage)]
    preempted = sorted({run.name_of(name) for name in run.federation.asked_to_stop()})
    got = {
        "admitted": sorted(run.name_of(stage.stage) for _, stage in admitted),
        "pending": sorted(run.name_of(stage.stage) for _, stage in waiting),
        "preempted": preempted,
        "parked": sorted(run.name_of(stage.stage) for work, stage in waiting if _is_parked(run, work, stage)),
        "assignments": {run.name_of(stage.stage): _assignment(run, work, stage) for work, stage in admitted},
        "waits": _waits(run, [stage for _, stage in waiting]),
    }
    run.federation.let_stop()
    run.federation.run()
    if preempted and not any(run.starts(stage) for _, stage in waiting):
        raise CaseError(f"{', '.join(preempted)} stopped in vain: no waiting work starts")
    return got


def _waits(run: _Run, stages: Iterable[CaseStage]) -> dict[str, str]:
    """Return why each of the stages waits that has not started, as its mesh reported.

    Raises:
        CaseError: A mesh did not report it.
    """
    waiting = [stage.stage for stage in stages if not run.starts(stage)]
    unexplained = sorted(set(waiting) - run.federation.waits.keys())
    if unexplained:
        raise CaseError(f"no mesh reported why these stages wait: {', '.join(unexplained)}")
    return {run.name_of(stage): run.federation.waits[stage].value for stage in waiting}


def _is_parked(run: _Run, work: Workload, stage: CaseStage) -> bool:
    """Return whether nothing stops for the stage, and stages behind it may pass."""
    is_strict = run.case.case.settings[run.case.case.forest.index[work.queue]].is_strict
    grows = any(lease.tenant == stage.tenant and not lease.target <= lease.amounts for lease in run.federation.snapshot().leases)
    return not (is_strict or grows or run.federation.waits.get(stage.stage) is Reason.WAITING_FOR_VICTIMS)


def _assignment(run: _Run, work: Workload, stage: CaseStage) -> dict[str, Any]:
    mesh = run.federation.mesh_of(stage.stage)
    flavor = next(record.pools[0].flavor for record in run.case.records() if record.mesh == mesh)
    return {
        one.name: {
            "count": run.federation.slots_of(stage.stage) * replicas_per_slot(one),
            "flavors": {resource: flavor for resource, units in sorted(one.amounts.items()) if units},
        }
        for one in work.replica_sets
    }


_RUNS: Mapping[str, Callable[[_Run, Mapping[str, Any]], dict[str, Any]]] = {
    "available": _run_available,
    "share": _run_share,
    "preempt": _run_preempt,
    "admit": _run_admit,
}
