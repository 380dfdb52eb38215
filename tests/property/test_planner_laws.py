"""Laws of the planner over random trees, leases and demands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.planning.planner import plan
from federation.planning.values import Holding, Plan, PlannerDemand
from federation.quota.forest import ForestNode, QuotaForest
from federation.quota.ledger import QuotaLedger
from federation.quota.policies import MESH, Policies, PreemptionMode, QueueSettings, Rules
from federation.snapshot import RunningView
from federation.tenants import Quota
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.resources import ResourceSet

FLAVOR, RESOURCES = "a100", ("cpu", "gpu")
NOW_MS = 10_000_000
ROUNDS_MAX = 12

limits = st.none() | st.integers(0, 6)


@st.composite
def forests(draw: st.DrawFn) -> QuotaForest:
    """Return a tree of one root, up to three groups, and up to three teams in each, named by position."""

    def quotas(*, is_root: bool = False) -> dict[tuple[str, str], Quota]:
        return {
            (FLAVOR, name): Quota(
                nominal=draw(st.integers(0, 8)),
                borrowing_limit=None if is_root else draw(limits),
                lending_limit=None if is_root else draw(limits),
            )
            for name in RESOURCES
        }

    nodes = [ForestNode(name="r", quotas=quotas(is_root=True))]
    for group in range(draw(st.integers(1, 3))):
        nodes.append(ForestNode(name=f"g{group}", parent="r", quotas=quotas(), weight=Fraction(draw(st.integers(0, 3)))))
        nodes += [
            ForestNode(name=f"t{group}{team}", parent=f"g{group}", quotas=quotas(), weight=Fraction(draw(st.integers(0, 3))), is_queue=True)
            for team in range(draw(st.integers(1, 3)))
        ]
    return QuotaForest(nodes)


@st.composite
def worlds(draw: st.DrawFn, *, is_one_mesh_each: bool = False) -> tuple[QuotaForest, list[PlannerDemand]]:
    """Return a tree and total demands, one per (mesh, tenant) or per tenant."""
    forest = draw(forests())
    teams = [forest.names[node] for node in forest.queues]
    place = st.tuples(st.sampled_from(["east", "west"]), st.sampled_from(teams))
    places = draw(st.lists(place, min_size=1, max_size=8, unique_by=(lambda place: place[1:]) if is_one_mesh_each else lambda place: place))
    demands = [
        PlannerDemand(
            mesh=mesh,
            tenant=team,
            flavor=FLAVOR,
            slot={"cpu": draw(st.integers(1, 3)), "gpu": draw(st.integers(0, 2))},
            slots=draw(st.integers(1, 6)),
            priority=draw(st.integers(0, 2)),
            since_ms=draw(st.integers(0, 3)),
        )
        for mesh, team in places
    ]
    return forest, demands


class Federation:
    """Leases that follow every plan at once, and demands that stay; less than a slot is returned."""

    def __init__(
        self,
        forest: QuotaForest,
        demands: list[PlannerDemand],
        rules: Rules = MESH,
        settings: Mapping[str, QueueSettings] = MappingProxyType({}),
    ) -> None:
        self.forest = forest
        self.rules, self.settings = rules, settings
        self.demands = {(demand.mesh, demand.tenant): demand for demand in demands}
        self.held: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        self.tokens: dict[tuple[str, str], int] = {}

    def round(self) -> Plan:
        for key, held in self.held.items():
            self.held[key] = (
                {name: self.slots_of(key) * units for name, units in self.demands[key].slot.items()} if any(held.values()) else {}
            )
        answer = plan(self.forest, self.holdings(), self.missing(), now_ms=NOW_MS, rules=self.rules, settings=self.settings)
        for target in (*answer.lowered, *answer.raised):
            key = target.mesh, target.tenant
            self.held[key] = dict(target.amounts)
            self.tokens.setdefault(key, len(self.tokens) + 1)
        return answer

    def slots_of(self, key: tuple[str, str]) -> int:
        demand = self.demands[key]
        return min((self.held[key].get(name, 0) // units for name, units in demand.slot.items() if units), default=0)

    def holdings(self, *, is_wide: bool = False) -> list[Holding]:
        """Return the leases. `is_wide`: each pays for one stage with all its slots, else for stages of one slot."""
        return [
            Holding(
                mesh=mesh,
                tenant=tenant,
                flavor=FLAVOR,
                target=held,
                token=self.tokens[mesh, tenant],
                priority=self.demands[mesh, tenant].priority,
                running=self.wide_stage(mesh, tenant) if is_wide else self.stages(mesh, tenant),
            )
            for (mesh, tenant), held in sorted(self.held.items())
            if any(held.values())
        ]

    def stages(self, mesh: str, tenant: str) -> tuple[RunningView, ...]:
        """Return one running stage for each slot that the lease holds."""
        demand = self.demands[mesh, tenant]
        return tuple(
            RunningView(
                stage=StageId(f"{tenant}@{mesh}#{number:02}"),
                mesh=MeshId(mesh),
                tenant=TenantPath(tenant),
                flavor=FlavorName(FLAVOR),
                amounts=ResourceSet({name: units for name, units in demand.slot.items() if units}),
                priority=demand.priority,
                token=self.tokens[mesh, tenant] * 100 + number,
                since_ms=0,
                created_ms=demand.since_ms,
                is_leaving=False,
            )
            for number in range(self.slots_of((mesh, tenant)))
        )

    def wide_stage(self, mesh: str, tenant: str) -> tuple[RunningView, ...]:
        views = self.stages(mesh, tenant)
        if not views:
            return ()
        total = ResourceSet({name: units * len(views) for name, units in views[0].amounts.items()})
        return (replace(views[0], stage=StageId(f"{tenant}@{mesh}"), amounts=total, slots=len(views)),)

    def missing(self) -> list[PlannerDemand]:
        short = ((demand, demand.slots - self.slots_of(key)) for key, demand in sorted(self.demands.items()))
        return [
            PlannerDemand(
                mesh=demand.mesh,
                tenant=demand.tenant,
                flavor=FLAVOR,
                slot=demand.slot,
                slots=slots,
                priority=demand.priority,
                since_ms=demand.since_ms,
            )
            for demand, slots in short
            if slots > 0
        ]

    def ledger(self) -> QuotaLedger:
        ledger = QuotaLedger(self.forest, keeps_local=True)
        for (_, tenant), held in self.held.items():
            ledger.charge(self.forest.node(tenant), {(FLAVOR, name): units for name, units in held.items()})
        return ledger


@given(world=worlds())
@settings(max_examples=examples(150))
def test_targets_never_exceed_limits_or_demand(world: tuple[QuotaForest, list[PlannerDemand]]):
    federation = Federation(*world)
    for _ in range(3):
        federation.round()
        ledger = federation.ledger()
        for node in range(len(federation.forest.names)):
            for name in RESOURCES:
                assert ledger.room(node, (FLAVOR, name)) >= 0
        for key, slots in ((key, federation.slots_of(key)) for key in federation.held):
            assert slots <= federation.demands[key].slots


def rests(federation: Federation) -> bool:
    """Return whether one of the first rounds changes nothing."""
    answers = (federation.round() for _ in range(ROUNDS_MAX))
    return any(not answer.lowered and not answer.raised for answer in answers)


@given(world=worlds(is_one_mesh_each=True))
@settings(max_examples=examples(150))
def test_rounds_come_to_rest_nobody_takes_in_turns(world: tuple[QuotaForest, list[PlannerDemand]]):
    """Each tenant has work on one mesh: with several leases of one tenant, three claims can still rotate."""
    federation = Federation(*world)
    assert rests(federation), f"still moving after {ROUNDS_MAX} rounds: {federation.round()}"


def small_world(
    nodes: dict[str, tuple[int, int, int]], demands: list[tuple[str, str, int, int, int]]
) -> tuple[QuotaForest, list[PlannerDemand]]:
    """Return nodes by position (own CPU, own GPU, weight) and demands (mesh, tenant, CPU and GPU of a slot, slots)."""
    tree = [
        ForestNode(
            name=name,
            parent=None if name == "r" else "r" if name.startswith("g") else f"g{name[1]}",
            quotas={(FLAVOR, "cpu"): Quota(nominal=cpu), (FLAVOR, "gpu"): Quota(nominal=gpu)},
            weight=Fraction(weight),
            is_queue=name.startswith("t"),
        )
        for name, (cpu, gpu, weight) in nodes.items()
    ]
    return QuotaForest(tree), [
        PlannerDemand(mesh=mesh, tenant=tenant, flavor=FLAVOR, slot={"cpu": cpu, "gpu": gpu}, slots=slots, priority=0, since_ms=0)
        for mesh, tenant, cpu, gpu, slots in demands
    ]


def test_own_use_of_one_resource_is_safe_from_a_loan_of_another():
    nodes = {"r": (0, 0, 1), "g1": (2, 0, 1), "t10": (0, 0, 1), "t11": (0, 0, 1), "g2": (0, 0, 1), "t20": (0, 2, 1)}
    assert rests(Federation(*small_world(nodes, [("east", "t10", 0, 1, 1), ("east", "t11", 1, 0, 2), ("west", "t20", 1, 1, 1)])))


def test_equal_dominant_shares_do_not_reclaim_in_turns():
    nodes = {"r": (0, 2, 1), "g0": (0, 0, 1), "t00": (0, 0, 1), "g1": (3, 0, 1), "t10": (0, 0, 1)}
    assert rests(Federation(*small_world(nodes, [("east", "t00", 1, 1, 1), ("east", "t10", 3, 1, 1)])))


def test_a_victims_measure_is_the_rest_of_all_its_resources():
    nodes = {"r": (0, 0, 1), "g0": (5, 0, 1), "t00": (0, 3, 2), "t01": (0, 0, 1)}
    assert rests(Federation(*small_world(nodes, [("west", "t01", 1, 1, 2), ("east", "t00", 1, 0, 1), ("west", "t00", 2, 0, 2)])))


borrowing = st.builds(
    Policies,
    within_queue=st.just(PreemptionMode.LOWER_PRIORITY),
    reclaim=st.sampled_from([PreemptionMode.LOWER_PRIORITY, PreemptionMode.ANY]),
    borrow=st.sampled_from([PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY]),
    borrow_priority_max=st.none() | st.integers(0, 1),
)


@given(world=worlds(), policies=st.lists(borrowing, min_size=9, max_size=9))
@settings(max_examples=examples(150))
def test_rounds_settle_under_urgent_borrowers(world: tuple[QuotaForest, list[PlannerDemand]], policies: list[Policies]):
    forest, _ = world
    tenant_policies = {forest.names[node]: QueueSettings(policies=own) for node, own in zip(forest.queues, policies, strict=False)}
    federation = Federation(*world, Rules(fair_sharing=False), tenant_policies)
    for _ in range(ROUNDS_MAX):
        answer = federation.round()
        if not answer.lowered and not answer.raised:
            return
    raise AssertionError(f"still moving after {ROUNDS_MAX} rounds: {answer}")


@given(world=worlds())
@settings(max_examples=100)
def test_at_rest_nobody_waits_for_what_is_free(world: tuple[QuotaForest, list[PlannerDemand]]):
    federation = Federation(*world)
    for _ in range(ROUNDS_MAX):
        answer = federation.round()
    ledger = federation.ledger()
    for unmet in answer.unmet:
        node = federation.forest.node(unmet.demand.tenant)
        assert not ledger.fits(node, {(FLAVOR, name): units for name, units in unmet.demand.slot.items()})


@given(world=worlds(), order=st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_a_plan_depends_on_its_inputs_alone_in_any_order(world: tuple[QuotaForest, list[PlannerDemand]], order):
    federation = Federation(*world)
    federation.round()
    holdings, demands = federation.holdings(), federation.missing()
    expected = plan(federation.forest, holdings, demands, now_ms=NOW_MS)
    order.shuffle(holdings)
    answer = plan(federation.forest, holdings, demands, now_ms=NOW_MS)
    assert sorted(map(repr, answer.lowered)) == sorted(map(repr, expected.lowered))
    assert sorted(map(repr, answer.raised)) == sorted(map(repr, expected.raised))


@given(world=worlds())
@settings(max_examples=examples(100))
def test_a_wide_stage_loses_what_as_many_stages_would(world: tuple[QuotaForest, list[PlannerDemand]]):
    federation = Federation(*world)
    for _ in range(3):
        some, wide = (
            plan(federation.forest, federation.holdings(is_wide=is_wide), federation.missing(), now_ms=NOW_MS) for is_wide in (False, True)
        )
        assert [target[:5] for target in some.lowered] == [target[:5] for target in wide.lowered]
        assert [target[:5] for target in some.raised] == [target[:5] for target in wide.raised]
        federation.round()


@given(world=worlds())
@settings(max_examples=examples(100))
def test_when_work_is_listed_changes_no_plan(world: tuple[QuotaForest, list[PlannerDemand]]):
    federation, unused = Federation(*world), {"nobody": QueueSettings()}  # With any settings the planner lists work before it searches.
    for _ in range(3):
        holdings, demands = federation.holdings(), federation.missing()
        expected = plan(federation.forest, holdings, demands, now_ms=NOW_MS, settings=unused)
        assert plan(federation.forest, holdings, demands, now_ms=NOW_MS) == expected
        federation.round()
