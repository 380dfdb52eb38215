"""The planner: target quota of each tenant over all meshes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from federation.planning.planner import plan
from federation.planning.values import Holding, Plan, PlannerDemand, Target
from federation.quota.forest import ForestNode, QuotaForest
from federation.quota.past_use import WHOLE, PastUse
from federation.quota.policies import MESH, OnQuotaReduction, Policies, PreemptionMode, QueueSettings, Rules, Stop
from federation.snapshot import RunningView
from federation.tenants import Quota
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

GPU = ("a100", "gpu")
NOW_MS = 1_000_000
BY_PRIORITY = Rules(fair_sharing=False)


def forest(**nodes: tuple[str | None, Quota, int]) -> QuotaForest:
    """Return nodes by name: parent, GPU quota, weight; nodes without children are queues."""
    parents = {parent for parent, _, _ in nodes.values()}
    return QuotaForest(
        ForestNode(name=name, parent=parent, quotas={GPU: quota}, weight=Fraction(weight), is_queue=name not in parents)
        for name, (parent, quota, weight) in nodes.items()
    )


def company(**nominal: int) -> QuotaForest:
    """Return teams below one root with this many GPUs each."""
    return forest(acme=(None, Quota(), 1), **{name: ("acme", Quota(nominal=units), 1) for name, units in nominal.items()})


def holding(
    tenant: str, gpus: int, *, mesh: str = "east", priority: int = 0, since_ms: int = 0, saved_ms: int | None = None, is_fixed: bool = False
) -> Holding:
    """Return a lease that pays for as many stages of one GPU."""
    running = tuple(
        RunningView(
            stage=StageId(f"{tenant}@{mesh}:{number}"),
            mesh=MeshId(mesh),
            tenant=TenantPath(tenant),
            flavor=FlavorName("a100"),
            amounts=ResourceSet({"gpu": 1}),
            priority=priority,
            token=number,
            since_ms=since_ms,
            created_ms=since_ms,
            is_leaving=False,
            saved_ms=saved_ms,
        )
        for number in range(1, gpus + 1)
    )
    return Holding(
        mesh=MeshId(mesh),
        tenant=TenantPath(tenant),
        flavor=FlavorName("a100"),
        target={"gpu": gpus},
        priority=priority,
        since_ms=since_ms,
        is_fixed=is_fixed,
        running=running,
    )


def demand(tenant: str, slots: int, *, mesh: str = "west", gpus: int = 1, **more: object) -> PlannerDemand:
    return PlannerDemand(mesh=mesh, tenant=tenant, flavor="a100", slot={"gpu": gpus}, slots=slots, **more)  # type: ignore[arg-type]


def decide(tree: QuotaForest, holdings: tuple[Holding, ...] = (), demands: tuple[PlannerDemand, ...] = (), **more: object) -> Plan:
    return plan(tree, holdings, demands, now_ms=NOW_MS, **more)  # type: ignore[arg-type]


def gpus_of(targets: tuple[Target, ...]) -> dict[str, int]:
    return {target.tenant: target.amounts.get("gpu", 0) for target in targets}


def test_free_quota_is_granted():
    answer = decide(company(vision=4, nlp=4), (), (demand("vision", 3),))
    assert gpus_of(answer.raised) == {"vision": 3}
    assert answer.raised[0].reason is Reason.QUOTA_FREE
    assert answer.lowered == answer.unmet == ()


def test_a_tenant_that_stands_alone_gets_no_more_than_it_has():
    tree = forest(alone=(None, Quota(nominal=3), 1))
    answer = decide(tree, (holding("alone", 1),), (demand("alone", 4),))
    assert (gpus_of(answer.raised), [unmet.slots for unmet in answer.unmet]) == ({"alone": 2}, [2])
    several = (demand("alone", 1), demand("alone", 3, mesh="north"))
    assert sum(target.amounts["gpu"] for target in decide(tree, (), several).raised) == 3


def test_a_tenants_own_quota_is_given_before_anybody_borrows():
    answer = decide(company(vision=2, nlp=2, batch=0), (), (demand("batch", 4, priority=9), demand("vision", 2), demand("nlp", 1)))
    assert gpus_of(answer.raised) == {"vision": 2, "nlp": 1, "batch": 1}
    assert [(unmet.demand.tenant, unmet.slots, unmet.reason) for unmet in answer.unmet] == [("batch", 3, Reason.QUOTA_EXHAUSTED)]


def test_borrowable_quota_is_shared_by_weight():
    tree = forest(acme=(None, Quota(nominal=12), 1), heavy=("acme", Quota(), 2), light=("acme", Quota(), 1))
    answer = decide(tree, (), (demand("light", 12), demand("heavy", 12)))
    assert gpus_of(answer.raised) == {"heavy": 8, "light": 4}


@pytest.mark.parametrize(("rules", "raised"), [(MESH, {"a": 1, "b": 2}), (BY_PRIORITY, {"b": 3})], ids=["by shares", "by priority"])
def test_the_more_urgent_borrows_first(rules: Rules, raised: dict[str, int]):
    tree = forest(acme=(None, Quota(nominal=3), 1), a=("acme", Quota(), 1), b=("acme", Quota(), 1))
    assert gpus_of(decide(tree, (), (demand("a", 3), demand("b", 3, priority=5)), rules=rules).raised) == raised


def test_owner_reclaims_from_a_borrower_on_another_mesh():
    answer = decide(company(vision=4, batch=0), (holding("batch", 4),), (demand("vision", 3),))
    assert gpus_of(answer.lowered) == {"batch": 1}
    assert gpus_of(answer.raised) == {"vision": 3}
    assert [target.reason for target in (*answer.lowered, *answer.raised)] == [Reason.QUOTA_RECLAIMED, Reason.QUOTA_FREED]


def test_reclaim_stops_at_the_capacity_of_the_mesh():
    tree = company(vision=2, nlp=2, batch=0)
    demands = demand("vision", 2, since_ms=1, room={"gpu": 3}), demand("nlp", 2, since_ms=2, room={"gpu": 3})
    answer = decide(tree, (holding("batch", 4),), demands)
    assert (gpus_of(answer.raised), gpus_of(answer.lowered)) == ({"vision": 2, "nlp": 1}, {"batch": 1})
    assert [(unmet.demand.tenant, unmet.slots, unmet.reason) for unmet in answer.unmet] == [("nlp", 1, Reason.POOL_BUSY)]


def test_last_capacity_of_a_mesh_goes_by_shares_not_by_age():
    tree = forest(acme=(None, Quota(nominal=6), 1), hog=("acme", Quota(), 1), calm=("acme", Quota(), 1))
    demands = demand("hog", 2, since_ms=1, room={"gpu": 2}), demand("calm", 2, since_ms=2, room={"gpu": 2})
    answer = decide(tree, (holding("hog", 4),), demands)
    assert gpus_of(answer.raised) == {"calm": 2}


def test_reclaim_stops_at_the_nominal_quota():
    answer = decide(company(vision=4, batch=3), (holding("batch", 7),), (demand("vision", 4),))
    assert gpus_of(answer.lowered) == {"batch": 3}
    assert decide(company(vision=4, batch=3), (holding("batch", 3), holding("vision", 4)), (demand("vision", 1),)).lowered == ()


@pytest.mark.parametrize(
    ("first", "second", "gives"),
    [
        pytest.param({"priority": 1}, {"priority": 2}, "first", id="the lowest priority, whoever is newer"),
        pytest.param({"gpus": 3}, {"gpus": 1}, "first", id="then the largest share"),
        pytest.param({"since_ms": 0}, {"since_ms": 500_000}, "second", id="then what loses least work"),
        pytest.param(
            {"since_ms": 0, "saved_ms": 900_000},
            {"since_ms": 500_000},
            "first",
            id="a checkpoint counts as saved work",
        ),
    ],
)
def test_reclaimed_borrower_is(first: dict[str, int], second: dict[str, int], gives: str):
    first, second = {"gpus": 2, **first}, {"gpus": 2, **second}
    tree = company(vision=first["gpus"] + second["gpus"], first=0, second=0)
    answer = decide(
        tree, (holding("first", first.pop("gpus"), **first), holding("second", second.pop("gpus"), **second)), (demand("vision", 1),)
    )
    assert list(gpus_of(answer.lowered)) == [gives]


def test_victim_is_asked_again_only_if_no_other_borrowed_more():
    held = (holding("a", 2), holding("a", 2, mesh="north"), holding("b", 3))
    answer = decide(company(vision=7, a=0, b=0), held, (demand("vision", 3),))
    assert {(target.tenant, target.mesh): target.amounts for target in answer.lowered} == {("a", "east"): {}, ("b", "east"): {"gpu": 2}}


def work(
    name: str, gpus: int, *, priority: int = 0, token: int = 1, created_ms: int = 0, mesh: str = "east", tenant: str = "batch"
) -> RunningView:
    return RunningView(
        stage=StageId(name),
        mesh=MeshId(mesh),
        tenant=TenantPath(tenant),
        flavor=FlavorName("a100"),
        amounts=ResourceSet({"gpu": gpus}),
        priority=priority,
        token=token,
        since_ms=0,
        created_ms=created_ms,
        is_leaving=False,
    )


def lease(*running: RunningView, idle: int = 0) -> Holding:
    """Return the lease of these stages, with as many idle GPUs."""
    first = running[0]
    target = {"gpu": sum(view.amounts["gpu"] for view in running) + idle}
    top = max(view.priority for view in running)
    return Holding(mesh=first.mesh, tenant=first.tenant, flavor=first.flavor, target=target, running=running, priority=top)


def test_one_urgent_stage_shields_no_other_one():
    lower = {"vision": QueueSettings(policies=Policies(reclaim=PreemptionMode.LOWER_PRIORITY))}
    held = lease(work("urgent", 1, priority=9, token=1), work("cheap", 3, token=2))
    (lowered,) = decide(company(vision=4, batch=0), (held,), (demand("vision", 3, priority=5),), settings=lower).lowered
    assert (lowered.amounts, lowered.victims) == ({"gpu": 1}, (2,))


def test_whole_stages_stop_and_free_all_that_they_held():
    held = lease(work("large", 3, token=1), work("small", 1, token=2))
    answer = decide(company(vision=2, batch=2), (held,), (demand("vision", 2),))
    assert [(target.amounts, target.victims) for target in answer.lowered] == [({"gpu": 1}, (1,))]
    assert gpus_of(answer.raised) == {"vision": 2}


def test_idle_quota_goes_before_any_work():
    held = lease(work("cheap", 1, token=1), work("urgent", 1, token=2, priority=9), idle=2)
    (lowered,) = decide(company(vision=4, batch=0), (held,), (demand("vision", 1),)).lowered
    assert (lowered.amounts, lowered.victims) == ({"gpu": 3}, ())


def test_idle_quota_makes_no_room_on_a_full_mesh():
    own, other = lease(work("own", 1, tenant="vision"), idle=1), lease(work("loan", 2, token=2))
    crowded = demand("vision", 1, gpus=2, mesh="east", priority=5, since_ms=NOW_MS, is_crowded=True)
    answer = decide(company(vision=4, batch=0), (own, other), (crowded,))
    assert {claim for target in answer.lowered for claim in target.victims} == {2}


def test_stages_that_may_stop_at_once_go_first():
    fresh = replace(work("fresh", 1, token=2), since_ms=NOW_MS - 1)
    (lowered,) = decide(company(vision=2, batch=0), (lease(work("aged", 1, priority=5, token=1), fresh),), (demand("vision", 1),)).lowered
    assert lowered.victims == (1,)


def test_own_and_foreign_victims_stop_together():
    own = lease(work("low", 1, token=7, tenant="vision", mesh="west"))
    other = lease(work("loan", 2, token=8))
    answer = decide(company(vision=3, batch=0), (own, other), (demand("vision", 1, gpus=3, priority=5),))
    assert {target.tenant: (target.amounts, target.victims, target.reason) for target in (*answer.lowered, *answer.raised)} == {
        "batch": ({}, (8,), Reason.QUOTA_RECLAIMED),
        "vision": ({"gpu": 3}, (7,), Reason.PREEMPTED_WITHIN_TENANT),
    }


def test_a_stage_is_preempted_by_an_older_one_as_urgent():
    newer = {"vision": QueueSettings(policies=Policies(within_queue=PreemptionMode.LOWER_OR_NEWER))}
    held = lease(work("new", 1, created_ms=500, tenant="vision"))
    for created_ms, victims in ((400, {1}), (600, set())):
        answer = decide(company(vision=1), (held,), (demand("vision", 1, since_ms=900, created_ms=created_ms),), settings=newer)
        assert {claim for target in (*answer.lowered, *answer.raised) for claim in target.victims} == victims


def test_failed_attempt_removes_no_candidate_from_the_round():
    held = (
        holding("silent", 4, is_fixed=True),
        holding("batch", 2, mesh="east"),
        holding("batch", 2, mesh="north"),
    )
    gang = demand("vision", 4, slots_min=4, priority=9)
    answer = decide(company(vision=6, batch=2, silent=0), held, (gang, demand("vision", 1, mesh="north", is_crowded=True)))
    assert [(target.mesh, target.amounts) for target in answer.lowered] == [("north", {"gpu": 1})]
    assert [unmet.demand for unmet in answer.unmet] == [gang]


def test_tenant_that_loses_and_regains_is_shown_as_losing():
    tree = forest(acme=(None, Quota(), 1), owner=("acme", Quota(nominal=4), 1), guest=("acme", Quota(nominal=2), 1))
    (lowered,) = decide(tree, (holding("guest", 6, mesh="west"),), (demand("owner", 4, priority=1), demand("guest", 1, priority=3))).lowered
    assert (lowered.tenant, lowered.reason) == ("guest", Reason.QUOTA_RECLAIMED)


def test_a_young_lease_is_left_alone():
    young = holding("batch", 4, since_ms=NOW_MS - 1_000)
    answer = decide(company(vision=4, batch=0), (young,), (demand("vision", 1),))
    assert answer.lowered == ()
    assert answer.unmet[0].reason is Reason.QUOTA_EXHAUSTED
    assert gpus_of(decide(company(vision=4, batch=0), (young,), (demand("vision", 1),), rules=Rules(min_run_ms=1_000)).lowered) == {
        "batch": 3
    }


_NOT_YET = " yet: candidates are within their `min_run`"


@pytest.mark.parametrize(
    ("claim", "reason", "nobody"),
    [
        pytest.param(
            demand("vision", 1),
            Reason.QUOTA_EXHAUSTED,
            "vision has 0 gpu of a100 left, and no work may be preempted for it",
            id="where quota is missing",
        ),
        pytest.param(
            demand("vision", 1, mesh="east", is_crowded=True),
            Reason.POOL_BUSY,
            "mesh east is full, and no work there may be preempted for vision",
            id="where the mesh is full",
        ),
    ],
)
def test_claimant_learns_which_leases_are_still_too_young(claim: PlannerDemand, reason: Reason, nobody: str):
    tree, rules = company(vision=4, batch=0, nlp=4), Rules(min_run_ms=60_000)
    held = (holding("nlp", 4), holding("batch", 4, since_ms=NOW_MS - 1_000))

    def unmet(*held: Holding, **more: object) -> tuple[Reason, str]:
        answer = decide(tree, held, (claim,), rules=rules, **more)
        assert (answer.lowered, answer.raised) == ((), ())
        return answer.unmet[0].reason, answer.unmet[0].detail

    assert unmet(*held, with_young=True) == (reason, nobody + _NOT_YET)
    assert unmet(*held) == (reason, nobody), "only users are told, and only they pay for it"
    its_own = (holding("nlp", 4, since_ms=NOW_MS - 1_000), holding("silent", 4, since_ms=NOW_MS - 1_000, is_fixed=True))
    tree = company(vision=4, nlp=4, silent=0)
    assert unmet(*its_own, with_young=True) == (reason, nobody), "neither would be asked if it were older"


def test_reporting_young_leases_leaves_the_plan_unchanged():
    tree, rules = company(vision=4, nlp=4, batch=0), Rules(min_run_ms=60_000)
    held = tuple(holding("batch", 1, mesh=f"m{index}", since_ms=NOW_MS - index * 20_000) for index in range(8))
    demands = (demand("vision", 6), demand("nlp", 2, is_crowded=True), demand("nlp", 3, mesh="m7", is_crowded=True))
    plain, telling = (decide(tree, held, demands, rules=rules, with_young=tells) for tells in (False, True))
    assert plain.lowered
    assert (telling.lowered, telling.raised) == (plain.lowered, plain.raised)
    assert [(one.demand, one.slots, one.reason) for one in telling.unmet] == [(one.demand, one.slots, one.reason) for one in plain.unmet]


def test_minimum_run_time_of_a_tenant_overrides_the_default():
    held = (holding("batch", 4, since_ms=NOW_MS - 70_000),)
    longer, shorter = {"batch": QueueSettings(min_run_ms=80_000)}, {"batch": QueueSettings(min_run_ms=10_000)}
    assert gpus_of(decide(company(vision=4, batch=0), held, (demand("vision", 1),)).lowered) == {"batch": 3}
    assert decide(company(vision=4, batch=0), held, (demand("vision", 1),), settings=longer).lowered == ()
    young = (holding("batch", 4, since_ms=NOW_MS - 20_000),)
    assert gpus_of(decide(company(vision=4, batch=0), young, (demand("vision", 1),), settings=shorter).lowered) == {"batch": 3}


@pytest.mark.parametrize(
    ("reclaim", "priority", "lowered"),
    [
        pytest.param(PreemptionMode.ANY, 0, {"batch": 3}, id="from any work"),
        pytest.param(PreemptionMode.LOWER_PRIORITY, 2, {}, id="not from work as urgent"),
        pytest.param(PreemptionMode.LOWER_PRIORITY, 3, {"batch": 3}, id="from less urgent work"),
        pytest.param(PreemptionMode.NEVER, 9, {}, id="from no one"),
    ],
)
def test_a_tenant_reclaims_as_it_says(reclaim: PreemptionMode, priority: int, lowered: dict[str, int]):
    settings = {"vision": QueueSettings(policies=Policies(reclaim=reclaim))}
    held = (holding("batch", 4, priority=2),)
    answer = decide(company(vision=4, batch=0), held, (demand("vision", 1, priority=priority),), settings=settings)
    assert gpus_of(answer.lowered) == lowered


def test_urgent_work_takes_quota_from_the_tenants_other_meshes():
    answer = decide(company(vision=4), (holding("vision", 4, priority=1),), (demand("vision", 1, priority=5),))
    assert [(target.mesh, target.amounts) for target in (*answer.lowered, *answer.raised)] == [("east", {"gpu": 3}), ("west", {"gpu": 1})]
    assert decide(company(vision=4), (holding("vision", 4, priority=5),), (demand("vision", 1, priority=5),)).lowered == ()


@pytest.mark.parametrize(
    ("within", "lowered"),
    [
        pytest.param(PreemptionMode.LOWER_PRIORITY, {"vision": 3}, id="where less urgent work is preempted"),
        pytest.param(PreemptionMode.NEVER, {}, id="where work of the same tenant is never preempted"),
    ],
)
def test_tenant_policy_moves_quota_to_its_more_urgent_mesh(within, lowered):
    settings = {"vision": QueueSettings(policies=Policies(within_queue=within))}
    held = (holding("vision", 4, priority=1),)
    assert gpus_of(decide(company(vision=4), held, (demand("vision", 1, priority=5),), settings=settings).lowered) == lowered


def test_borrowers_share_evenly():
    tree = company(idle=8, a=0, b=0)
    answer = decide(tree, (holding("a", 8),), (demand("b", 8),))
    assert (gpus_of(answer.lowered), gpus_of(answer.raised)) == ({"a": 4}, {"b": 4})
    even = (holding("a", 4), holding("b", 4))
    assert decide(tree, even, (demand("a", 4), demand("b", 4, mesh="east"))).lowered == ()


def used(tree: QuotaForest, **parts: int) -> PastUse:
    """Return past use in thousandths of all capacity."""
    past = PastUse(half_life_ms=1_000)
    past.let_pass(10**6, {tree.node(tenant): part * WHOLE // 1_000 for tenant, part in parts.items()})
    return past


@pytest.mark.parametrize(
    ("rules", "raised"),
    [
        pytest.param(MESH, {"new": 2, "calm": 3}, id="after shares, least used first among equal ones"),
        pytest.param(BY_PRIORITY, {"calm": 5}, id="before shares without fair sharing"),
    ],
)
def test_past_use_counts_as(rules: Rules, raised: dict[str, int]):
    tree = company(idle=5, calm=0, new=0)
    demands = (demand("new", 4), demand("calm", 4, mesh="east", since_ms=5))
    answer = decide(tree, (holding("calm", 1),), demands, rules=rules, past=used(tree, calm=1, new=2))
    assert gpus_of(answer.raised) == raised


def test_less_past_use_goes_before_priority():
    tree = company(idle=1, calm=0, hog=0)
    past, first = used(tree, hog=500, calm=200), demand("hog", 1)
    for other in (demand("calm", 1, since_ms=5), demand("calm", 1, priority=-1)):
        assert gpus_of(decide(tree, (), (first, other), past=past).raised) == {"calm": 1}
        assert gpus_of(decide(tree, (), (first, other)).raised) == {"hog": 1}


def test_group_is_represented_by_its_tenant_with_least_past_use():
    groups = {name: ("acme", Quota(), 1) for name in ("one", "two")}
    teams = {name: (group, Quota(), 1) for name, group in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "two"))}
    tree = forest(acme=(None, Quota(nominal=2), 1), **groups, **teams)
    demands = tuple(demand(name, 1) for name in "abcd")
    assert gpus_of(decide(tree, (), demands, past=used(tree, a=400, b=300, c=100, d=900)).raised) == {"c": 1, "b": 1}


def test_without_fair_sharing_borrowers_keep_what_they_have():
    assert decide(company(idle=8, a=0, b=0), (holding("a", 8),), (demand("b", 8),), rules=Rules(fair_sharing=False)).lowered == ()


def borrows(who: str = "vision", most: int | None = None, reclaim: PreemptionMode = PreemptionMode.ANY) -> dict[str, QueueSettings]:
    """Settings under which a borrowing tenant preempts less urgent borrowers."""
    return {who: QueueSettings(policies=Policies(reclaim=reclaim, borrow=PreemptionMode.LOWER_PRIORITY, borrow_priority_max=most))}


@pytest.mark.parametrize(
    ("priority", "most", "lowered"),
    [
        pytest.param(5, None, {"batch": 3}, id="from less urgent work"),
        pytest.param(2, None, {}, id="not from work as urgent"),
        pytest.param(5, 2, {"batch": 3}, id="from work up to the priority threshold"),
        pytest.param(5, 1, {}, id="not from work above the threshold"),
    ],
)
def test_urgent_borrower_preempts_others_without_fair_sharing(priority: int, most: int | None, lowered: dict[str, int]):
    tree, held = company(idle=4, vision=0, batch=0), (holding("batch", 4, priority=2),)
    answer = decide(tree, held, (demand("vision", 1, priority=priority),), rules=BY_PRIORITY, settings=borrows(most=most))
    assert gpus_of(answer.lowered) == lowered
    assert gpus_of(answer.raised) == ({"vision": 1} if lowered else {})


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        pytest.param({}, BY_PRIORITY, id="by default"),
        pytest.param(borrows("batch"), BY_PRIORITY, id="when only the other one may"),
        pytest.param(borrows(reclaim=PreemptionMode.NEVER), BY_PRIORITY, id="when it may not preempt other tenants"),
        pytest.param(borrows(), MESH, id="when shares count, which are equal"),
    ],
)
def test_fair_sharing_borrower_preempts_no_one_by_priority(settings: dict[str, QueueSettings], rules: Rules):
    held = (holding("batch", 2), holding("vision", 2, priority=5))
    answer = decide(company(idle=4, vision=0, batch=0), held, (demand("vision", 1, priority=5),), rules=rules, settings=settings)
    assert answer.lowered == ()


def test_urgent_borrower_takes_the_least_urgent_loans_first():
    held = (holding("a", 3, priority=1), holding("b", 3, priority=0), holding("c", 2, priority=4))
    tree = company(idle=4, vision=0, a=2, b=2, c=0)
    answer = decide(tree, held, (demand("vision", 9, priority=5),), rules=BY_PRIORITY, settings=borrows(most=3))
    assert gpus_of(answer.lowered) == {"a": 2, "b": 2}


def test_an_urgent_borrower_leaves_every_subtree_its_own():
    tree = forest(
        acme=(None, Quota(nominal=3), 1),
        research=("acme", Quota(), 1),
        sales=("acme", Quota(nominal=3), 1),
        vision=("research", Quota(), 1),
        batch=("sales", Quota(), 1),
    )
    answer = decide(tree, (holding("batch", 6),), (demand("vision", 6, priority=5),), rules=BY_PRIORITY, settings=borrows())
    assert gpus_of(answer.lowered) == {"batch": 3}


def test_owner_reclaims_from_work_of_any_priority():
    tree, held = company(vision=4, batch=0), (holding("batch", 4, priority=9),)
    answer = decide(tree, held, (demand("vision", 4),), rules=BY_PRIORITY, settings=borrows())
    assert gpus_of(answer.lowered) == {"batch": 0}


def test_a_gang_gets_all_or_nothing():
    tree = company(vision=4)
    assert decide(tree, (holding("vision", 2),), (demand("vision", 3, slots_min=3),)).raised == ()
    assert gpus_of(decide(tree, (holding("vision", 1),), (demand("vision", 3, slots_min=3),)).raised) == {"vision": 3}


@pytest.mark.parametrize(
    ("held", "wanted", "left"),
    [
        pytest.param({"cpu": 8, "gpu": 4}, {"cpu": 2, "gpu": 1}, {"cpu": 4, "gpu": 2}, id="in the proportions of the claim"),
        pytest.param({"cpu": 8, "gpu": 4}, {"gpu": 1}, {"cpu": 8, "gpu": 2}, id="not from resources that are not short"),
        pytest.param({"cpu": 6, "gpu": 4}, {"cpu": 2, "gpu": 1}, {"cpu": 4, "gpu": 2}, id="less of partly free resources"),
        pytest.param({"cpu": 2, "gpu": 4}, {"cpu": 1, "gpu": 1}, {"cpu": 2, "gpu": 2}, id="only from its loans"),
    ],
)
def test_a_lease_gives_of_each_resource_what_is_short_of_it(held: dict[str, int], wanted: dict[str, int], left: dict[str, int]):
    own = {("a100", "cpu"): Quota(nominal=4), GPU: Quota(nominal=2)}
    root = ForestNode(name="acme", quotas={})
    tree = QuotaForest([root, *(ForestNode(name=name, parent="acme", quotas=own, is_queue=True) for name in ("vision", "batch"))])
    lease = Holding(mesh="east", tenant="batch", flavor="a100", target=held)
    answer = decide(tree, (lease,), (PlannerDemand(mesh="west", tenant="vision", flavor="a100", slot=wanted, slots=4),))
    assert [{"cpu": 0, "gpu": 0, **target.amounts} for target in answer.lowered] == [left]
    assert len(answer.raised) == 1


def test_never_and_not_now_are_different_reasons():
    tree = forest(acme=(None, Quota(), 1), vision=("acme", Quota(nominal=2), 1))
    assert decide(tree, (), (demand("vision", 1, gpus=3),)).unmet[0].reason is Reason.QUOTA_TOO_SMALL


@pytest.mark.parametrize(
    ("stop", "left", "reason"),
    [(Stop.HOLD, None, Reason.TENANT_SUSPENDED), (Stop.DRAIN, 0, Reason.TENANT_DRAINED)],
    ids=["hold", "drain"],
)
def test_held_tenant_gets_nothing_and_drained_one_returns_all(stop: Stop, left: int | None, reason: Reason):
    answer = decide(company(vision=4), (holding("vision", 2),), (demand("vision", 1),), settings={"vision": QueueSettings(stop=stop)})
    assert gpus_of(answer.lowered).get("vision") == left
    assert answer.raised == ()
    assert answer.unmet[0].reason is reason


def test_urgent_claimant_takes_from_several_at_once():
    tree = company(vision=6, a=0, b=0, c=0)
    answer = decide(tree, (holding("a", 2), holding("b", 2), holding("c", 2)), (demand("vision", 6, slots_min=6),), rules=MESH)
    assert gpus_of(answer.lowered) == {"a": 0, "b": 0, "c": 0}
    assert gpus_of(answer.raised) == {"vision": 6}


@pytest.mark.parametrize(
    ("on_quota_reduction", "left"), [(OnQuotaReduction.KEEP, {}), (OnQuotaReduction.EVICT, {"batch": 1})], ids=["keep", "evict"]
)
def test_tenant_over_a_cut_quota_is_preempted_by_policy(on_quota_reduction: OnQuotaReduction, left: dict[str, int]):
    held = (holding("vision", 2), holding("batch", 3))
    answer = decide(company(vision=2, batch=1), held, (), settings={"batch": QueueSettings(on_quota_reduction=on_quota_reduction)})
    assert gpus_of(answer.lowered) == left
    assert all(target.reason is Reason.QUOTA_REDUCED for target in answer.lowered)


def test_a_cut_of_one_resource_takes_nothing_of_the_others():
    quotas = {("a100", "cpu"): Quota(nominal=8), ("a100", "memory"): Quota(nominal=31)}
    tree = QuotaForest([ForestNode(name="acme", quotas=quotas, is_queue=True)])
    lease = Holding(mesh="east", tenant="acme", flavor="a100", target={"cpu": 8, "memory": 32})
    answer = decide(tree, (lease,), (), settings={"acme": QueueSettings(on_quota_reduction=OnQuotaReduction.EVICT)})
    assert [target.amounts for target in answer.lowered] == [{"cpu": 8, "memory": 31}]


@pytest.mark.parametrize("meshes", [1, 2, 5])
def test_owner_reclaims_its_own_and_the_excess_after_a_cut(meshes: int):
    held = tuple(holding("batch", 10 // meshes, mesh=f"mesh{number}") for number in range(meshes))
    answer = decide(company(vision=3, batch=3), held, (demand("vision", 2),))
    assert gpus_of(answer.raised) == {"vision": 2}
    assert sum(10 // meshes - target.amounts.get("gpu", 0) for target in answer.lowered) == 6


def test_reclaim_after_a_cut_stops_at_the_nominal_quota():
    held = (holding("silent", 7, is_fixed=True), holding("batch", 4))
    answer = decide(company(vision=3, batch=3, silent=0), held, (demand("vision", 2),))
    assert (answer.lowered, answer.raised) == ((), ())


def test_full_mesh_needs_victims_on_itself():
    tree = company(vision=2, a=0, b=0, free=4)
    held = (holding("a", 2, mesh="west"), holding("b", 1, mesh="east"))
    assert gpus_of(decide(tree, held, (demand("vision", 1),)).raised) == {"vision": 1}  # Quota and capacity are free.
    crowded = decide(tree, held, (demand("vision", 1, is_crowded=True),))
    assert gpus_of(crowded.lowered) == {"a": 1}
    assert gpus_of(crowded.raised) == {"vision": 1}


@pytest.mark.parametrize("held", [5, 7, 8])
def test_victims_on_a_full_mesh_free_only_the_missing_part(held: int):
    crowded = demand("vision", 1, gpus=4, is_crowded=True, free={"gpu": 8 - held})
    answer = decide(company(vision=4, batch=4), (holding("batch", held, mesh="west"),), (crowded,))
    assert (gpus_of(answer.lowered), gpus_of(answer.raised)) == ({"batch": 4}, {"vision": 4})


def test_the_room_that_a_mesh_has_left_is_promised_once():
    held = (holding("batch", 7, mesh="west"),)
    demands = tuple(demand(name, 1, gpus=2, is_crowded=True, free={"gpu": 1}) for name in ("nlp", "vision"))
    answer = decide(company(vision=8, nlp=8, batch=0), held, demands)
    assert (gpus_of(answer.lowered), gpus_of(answer.raised)) == ({"batch": 4}, {"nlp": 2, "vision": 2})


def test_quota_missing_on_a_full_mesh_is_reclaimed_anywhere():
    held = (holding("batch", 3, mesh="west"), holding("batch", 5, mesh="east"))
    crowded = demand("vision", 1, gpus=4, is_crowded=True, free={"gpu": 3})
    answer = decide(company(vision=4, batch=4), held, (crowded,))
    assert {target.mesh: target.amounts["gpu"] for target in answer.lowered} == {"west": 2, "east": 2}
    assert gpus_of(answer.raised) == {"vision": 4}


def test_full_mesh_has_no_victims_while_quota_is_missing_too():
    held = (holding("batch", 2, mesh="west"), holding("silent", 4, is_fixed=True))
    crowded = demand("vision", 1, gpus=2, is_crowded=True, free={"gpu": 1})
    answer = decide(company(vision=6, batch=0, silent=0), held, (crowded,))
    assert gpus_of(answer.lowered) == {"batch": 0}  # No quota is free, so both have to come back.
    bigger = demand("vision", 1, gpus=3, is_crowded=True, free={"gpu": 1})
    assert decide(company(vision=6, batch=0, silent=0), held, (bigger,)).lowered == ()


def test_tenant_takes_nothing_from_the_lease_that_is_to_grow():
    full = (holding("vision", 2, mesh="west"),)
    answer = decide(company(vision=4), full, (demand("vision", 1, priority=9, is_crowded=True, since_ms=NOW_MS),))
    assert (answer.lowered, answer.raised) == ((), ())
    assert answer.unmet[0].reason is Reason.POOL_BUSY


@pytest.mark.parametrize(("stop", "reason"), [(Stop.HOLD, Reason.TENANT_SUSPENDED), (Stop.DRAIN, Reason.TENANT_DRAINED)])
def test_a_stop_holds_for_all_below_the_tenant(stop: Stop, reason: Reason):
    tree = forest(acme=(None, Quota(nominal=4), 1), lab=("acme", Quota(), 1), nlp=("lab", Quota(), 1), sales=("acme", Quota(), 1))
    answer = decide(tree, (holding("nlp", 1),), (demand("nlp", 1), demand("sales", 1)), settings={"lab": QueueSettings(stop=stop)})
    assert [(unmet.demand.tenant, unmet.reason) for unmet in answer.unmet] == [("nlp", reason)]
    assert gpus_of(answer.raised) == {"sales": 1}
    assert gpus_of(answer.lowered) == ({"nlp": 0} if stop is Stop.DRAIN else {})


def test_overdue_demand_goes_before_a_more_urgent_one():
    tree = forest(acme=(None, Quota(nominal=2), 1), old=("acme", Quota(), 1), new=("acme", Quota(), 1))
    demands = (demand("old", 1, gpus=2, since_ms=NOW_MS - 5_000), demand("new", 2, priority=9, since_ms=NOW_MS))
    assert gpus_of(decide(tree, (), demands).raised) == {"new": 2}
    assert gpus_of(decide(tree, (), demands, settings={"old": QueueSettings(max_wait_ms=5_000)}).raised) == {"old": 2}
    assert gpus_of(decide(tree, (), demands, settings={"old": QueueSettings(max_wait_ms=5_001)}).raised) == {"new": 2}


def test_capacity_is_reserved_for_an_overdue_demand():
    tree = forest(acme=(None, Quota(nominal=3), 1), old=("acme", Quota(), 1), new=("acme", Quota(), 1))
    demands = (demand("old", 1, gpus=2), demand("new", 1))
    held = (holding("new", 2, since_ms=NOW_MS),)
    answer = decide(tree, held, demands, settings={"old": QueueSettings(max_wait_ms=1)})
    assert (gpus_of(answer.raised), gpus_of(answer.lowered)) == ({}, {})
    assert ("old", Reason.QUOTA_EXHAUSTED) in [(unmet.demand.tenant, unmet.reason) for unmet in answer.unmet]


def test_overdue_demand_that_never_fits_blocks_no_other():
    tree = forest(acme=(None, Quota(nominal=3), 1), old=("acme", Quota(), 1), new=("acme", Quota(), 1))
    answer = decide(tree, (), (demand("old", 1, gpus=4), demand("new", 1)), settings={"old": QueueSettings(max_wait_ms=1)})
    assert gpus_of(answer.raised) == {"new": 1}


def test_overdue_demand_on_a_full_mesh_keeps_no_quota():
    tree = forest(acme=(None, Quota(nominal=4), 1), old=("acme", Quota(), 1), new=("acme", Quota(), 1))
    demands = (demand("old", 1, mesh="west", is_crowded=True), demand("new", 4, mesh="east"))
    answer = decide(tree, (), demands, settings={"old": QueueSettings(max_wait_ms=1)})
    assert gpus_of(answer.raised) == {"new": 4}
    assert [(unmet.demand.tenant, unmet.reason) for unmet in answer.unmet] == [("old", Reason.POOL_BUSY)]


def test_urgent_demand_without_victims_hides_no_other():
    held = (holding("batch", 4),)
    answer = decide(company(vision=2, batch=2), held, (demand("vision", 1, gpus=3, priority=9), demand("vision", 2)))
    assert (gpus_of(answer.lowered), gpus_of(answer.raised)) == ({"batch": 2}, {"vision": 2})
    assert [(unmet.demand.priority, unmet.slots, unmet.reason) for unmet in answer.unmet] == [(9, 1, Reason.QUOTA_EXHAUSTED)]


def test_owner_reclaims_all_its_quota_in_one_round():
    held = tuple(holding("batch", 5, mesh=f"east{number}") for number in range(4))
    demands = (demand("vision", 7, priority=3), demand("vision", 5), demand("vision", 4, gpus=2))
    answer = decide(company(vision=20, batch=0), held, demands)
    assert (gpus_of(answer.raised), answer.unmet) == ({"vision": 20}, ())


def test_free_capacity_needs_no_victims():
    thought_full = demand("vision", 2, is_crowded=True, free={"gpu": 8})
    assert gpus_of(decide(company(vision=4), (), (thought_full,)).raised) == {"vision": 2}
    hopeless = decide(company(vision=1), (), (demand("vision", 2, is_crowded=True, free={"gpu": 8}),))
    assert (gpus_of(hopeless.raised), [unmet.reason for unmet in hopeless.unmet]) == ({"vision": 1}, [Reason.QUOTA_EXHAUSTED])
