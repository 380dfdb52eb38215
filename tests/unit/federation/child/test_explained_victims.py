"""Explanations and the next plan name the same victims, in random worlds on production code."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from two_children import AT_ONCE, PLAN_MS, TwoChildren

from federation.estimates import COST_RULES
from federation.explaining.forecasts import Forecasts
from federation.quota.policies import Policies, PreemptionMode, QueueSettings, Rules

running = st.lists(
    st.tuples(st.sampled_from(["east", "west"]), st.sampled_from(["own", "loan", "other"]), st.integers(1, 3), st.integers(0, 3)),
    min_size=1,
    max_size=7,
)
policies = st.builds(
    Policies,
    within_queue=st.sampled_from([PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY]),
    reclaim=st.sampled_from([PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY, PreemptionMode.ANY]),
    borrow=st.sampled_from([PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY]),
)


@given(
    work=running,
    policies=policies,
    slot=st.integers(1, 4),
    priority=st.integers(0, 4),
    is_fair=st.booleans(),
    mesh=st.sampled_from(["east", "west"]),
)
@settings(max_examples=100, deadline=None)
def test_explained_victims_are_those_that_stop(work, policies, slot, priority, is_fair, mesh):
    rules = AT_ONCE if is_fair else Rules(min_run_ms=0, fair_sharing=False)
    named = {"own": QueueSettings(policies=policies), "loan": QueueSettings(), "other": QueueSettings()}
    world = TwoChildren(20, {"own": 3, "loan": 1, "other": 4}, rules, named)
    for number, (place, tenant, size, urgency) in enumerate(work):
        world.submit(place, tenant, [f"s{number}"], slot=size, priority=urgency)
        world.go(2_500)
    before = world.east.runs() | world.west.runs()
    world.submit(mesh, "own", ["new"], slot=slot, priority=priority)
    world.go(200, plans=False)
    queues = {mesh: world.store.heads_of(mesh, world.store.queued(mesh)) for mesh in ("east", "west")}
    forecast = Forecasts(world.store.snapshot(), world.tenant_policies.in_force(), queues, COST_RULES, {}).of("new")
    victims = {stage for one in forecast.victims for stage in one.stages} if forecast is not None else set()
    world.go(2 * PLAN_MS)
    stopped = before - (world.east.runs() | world.west.runs())
    assert stopped == victims
    assert not victims or "new" in world.east.runs() | world.west.runs()
