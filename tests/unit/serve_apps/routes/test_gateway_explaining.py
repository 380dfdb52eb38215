"""Explanations, what-if answers, lease history and tenant stops over HTTP, on stores in memory."""

from dataclasses import replace

import pytest

from dag.run.node_facts import KeptCheckpoint
from dag.run.states import RunState
from federation.configured_meshes import ConfiguredMeshes
from federation.estimates import Pace
from federation.leases import QuotaDemand, TargetUpdate
from federation.manual_mesh import ManualMesh
from federation.quota.policies import QueueSettings, Rules, Stop, TenantPolicies
from federation.registry import RegistryNote
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Tenant, TenantTree
from mesh.core.clock import rfc3339
from mesh.core.ids import MeshId, NodeId, PoolName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import MICROS, PreemptionLimits
from mesh.stages.messages import StageStarted
from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_settings import QueueRules, StageSettings
from serve_apps.gateway_fixtures import ACME, EAST, NOW_MS, RESEARCH, RIVAL, SALES, STANDARD, GatewayWorld, spec_of

ONE_CPU = ResourceSet.of({"cpu": 1})
TWO_CPUS = ResourceSet.of({"cpu": 2})


@pytest.fixture
def world() -> GatewayWorld:
    """Sales has borrowed five of six CPUs; a run of research waits for two; sales may run one stage at a time and has three runs."""
    built = GatewayWorld()
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 8}))
    mesh = ManualMesh(built.store, MeshRecord(mesh=EAST, labels={"zone": "east"}, pools=(pool,), cluster="c1", shared=True))
    mesh.acquire(SALES, STANDARD, ONE_CPU, 5)
    built.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0), settings={SALES: QueueSettings(running_max=1, priority_max=4)}))
    built.client(RESEARCH).submit_spec(two_cpus("night"))
    for run in ("report-1", "report-2", "report-3"):
        built.client(SALES).submit_spec(spec_of("a", id=run))
        built.clock.advance(1)
    coordinator = built.coordinator()
    coordinator.step(0)
    built.store.explain(mesh.session, (StageId("night.1"),), Reason.QUOTA_EXHAUSTED, "2 cpu short")
    coordinator.step(0)
    mesh.heartbeat(demands=(QuotaDemand(tenant=RESEARCH, flavor=STANDARD, slot=TWO_CPUS, slots=1),))
    return built


def two_cpus(run, **fields):
    spec = spec_of("a", "b", id=run, **fields)
    for node in spec["nodes"].values():
        node["options"] = {"num_cpus": 2}
    return spec


def get(world, path, tenant="*"):
    answer = world.http(tenant).get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


# -- queues ----------------------------------------------------------------------------------------------------------------


def test_queue_shows_positions_reason_levers_and_start(world):
    view = get(world, f"/v1/queues/{ACME}", ACME)
    first, second = view["waiting"]
    assert (first["stage"], first["position"], first["tenant_position"], first["reason"]) == ("night.1", 1, 1, "QUOTA_EXHAUSTED")
    (change,) = first["changes"]
    assert (change["lever"], change["tenant"], change["amount"]["amount"]) == ("free", ACME, 1)
    assert change["words"] == "1 cpu of standard became free in acme"
    assert first["start_at"] is None, "no stage has ended yet, so nobody knows how long the others run"
    assert (second["stage"], second["position"], second["tenant_position"]) == ("report-1.1", 2, 1)


def test_positions_follow_the_queues_of_the_mesh(world):
    def listed():
        return [(one["stage"], one["position"]) for one in get(world, f"/v1/queues/{ACME}", ACME)["waiting"]]

    assert listed() == [("night.1", 1), ("report-1.1", 2)]
    (view,) = world.store.snapshot().meshes
    settings = StageSettings(queues={SALES: QueueRules(priority=5)})
    world.store.join(replace(view.record, settings=settings))
    world.clock.advance(5_000)
    assert listed() == [("report-1.1", 1), ("night.1", 2)]


@pytest.mark.parametrize(("count", "cut_short"), [(998, {}), (1_001, {str(EAST): 3})], ids=["a full page", "more than a page"])
def test_queue_reports_stages_beyond_its_limit(world, count, cut_short):
    task = TaskSpec(node=NodeId("a"), attempt=1, function="call:m:f", resources=ONE_CPU)
    for number in range(count):
        run = RunId(f"late-{number}")
        world.store.submit(EAST, StageSpec(stage=StageId(f"{run}.1"), run=run, tenant=RIVAL, tasks=(task,), slot=ONE_CPU, width=1))
    queued = len(world.store.queued(EAST))
    view = get(world, "/v1/queues?limit=1")
    assert len(view["waiting"]) + sum(view["cut_short"].values()) == queued
    assert view["cut_short"] == cut_short


def test_queue_lists_unsent_runs_oldest_first(world):
    kept_back = get(world, f"/v1/queues/{SALES}", SALES)["kept_back"]
    assert [(one["run"], one["position"], one["reason"]) for one in kept_back] == [
        ("report-2", 1, "RUNNING_LIMIT"),
        ("report-3", 2, "RUNNING_LIMIT"),
    ]
    assert kept_back[0]["detail"] == "acme/sales is at its limit of 1 running stage"


def test_run_is_kept_back_when_no_mesh_has_a_lease_left():
    world = GatewayWorld()
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 8}))
    mesh = ManualMesh(world.store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c1", shared=True))
    coordinator = world.coordinator()
    world.client(RESEARCH).submit_spec(spec_of("a", id="early"))
    coordinator.step(0)
    world.store.explain(mesh.session, (StageId("early.1"),), Reason.LEASES_AT_LIMIT, "all in use")
    mesh.record = replace(mesh.record, leases_full=True)
    mesh.heartbeat()
    world.client(SALES).submit_spec(spec_of("a", id="late"))
    coordinator.step(0)
    view = get(world, f"/v1/queues/{ACME}", ACME)
    assert [(one["stage"], one["reason"]) for one in view["waiting"]] == [("early.1", "LEASES_AT_LIMIT")]
    assert [(one["run"], one["reason"]) for one in view["kept_back"]] == [("late", "LEASES_AT_LIMIT")]


def test_queue_includes_child_tenants_by_parent_not_by_path(world):
    moved, guest = TenantPath("acme/moved"), TenantPath("guest")
    tree = world.store.snapshot().tree
    others = (Tenant(path=path, parent=parent, functions=("examples.*:*",)) for path, parent in ((moved, RIVAL), (guest, SALES)))
    world.store.configure(TenantTree([*tree.tenants.values(), *others]))
    world.tenant_policies.publish(TenantPolicies(settings={SALES: QueueSettings(stop=Stop.HOLD), RIVAL: QueueSettings(stop=Stop.HOLD)}))
    for tenant in (moved, guest):
        world.client(tenant).submit_spec(spec_of("a", id=f"of-{tenant.replace('/', '-')}", wait_for_capacity=True))
    world.coordinator().step(0)

    def kept_back(path):
        return {one["run"] for one in get(world, path)["kept_back"]}

    assert kept_back(f"/v1/queues/{SALES}") >= {"of-guest"}
    assert kept_back(f"/v1/queues/{guest}") == {"of-guest"}
    assert kept_back(f"/v1/queues/{ACME}") >= {"of-guest"}
    assert "of-acme-moved" not in kept_back(f"/v1/queues/{ACME}")
    assert kept_back(f"/v1/queues/{RIVAL}") == {"of-acme-moved"}
    assert kept_back("/v1/queues") >= {"of-acme-moved", "of-guest"}


def test_queue_shows_a_tenant_only_its_subtree(world):
    view = get(world, "/v1/queues", RESEARCH)
    assert (view["tenant"], [one["stage"] for one in view["waiting"]], view["kept_back"]) == ("*", ["night.1"], [])
    assert view["waiting"][0]["position"] == 1
    assert [one["stage"] for one in get(world, "/v1/queues")["waiting"]] == ["night.1", "report-1.1"]
    assert get(world, "/v1/queues", RIVAL)["waiting"] == []


def test_unknown_and_invisible_tenants_look_the_same(world):
    http = world.http(ACME)
    unknown, foreign = http.get("/v1/queues/acme/nobody"), http.get(f"/v1/queues/{RIVAL}")
    assert (unknown.status_code, foreign.status_code) == (403, 403)
    words = [answer.json()["detail"].replace(name, "it") for answer, name in ((unknown, "acme/nobody"), (foreign, RIVAL))]
    assert words[0] == words[1]


def test_beyond_the_limit_stages_are_only_listed(world):
    first, second = get(world, "/v1/queues?limit=1")["waiting"]
    assert (first["tenant_position"], second["tenant_position"], second["position"]) == (1, None, 2)


def test_unmet_demand_is_shown_with_its_reason():
    world = GatewayWorld()
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 8}))
    mesh = ManualMesh(world.store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c1", shared=True))
    mesh.acquire(RESEARCH, STANDARD, ONE_CPU, 6)
    mesh.heartbeat(demands=(QuotaDemand(tenant=SALES, flavor=STANDARD, slot=ONE_CPU, slots=2),))
    (unmet,) = get(world, f"/v1/queues/{SALES}", SALES)["unmet"]
    assert (unmet["mesh"], unmet["slots"], unmet["reason"]) == (EAST, 2, "QUOTA_EXHAUSTED")
    assert get(world, "/v1/queues", RIVAL)["unmet"] == []


# -- explain ---------------------------------------------------------------------------------------------------------------


def test_stage_is_explained_with_victims_and_history(world):
    body = get(world, "/v1/runs/night/stages/night.1/explain", ACME)
    assert (body["state"], body["reason"], body["detail"], body["position"]) == (
        "QUEUED",
        "QUOTA_EXHAUSTED",
        "2 cpu short",
        1,
    )
    (gives,) = body["victims"]
    assert (gives["tenant"], gives["mesh"], gives["amounts"]["cpu"]["amount"]) == (SALES, EAST, 1)
    assert [event["after"] for event in body["history"]] == ["PLANNED", "QUEUED", "QUEUED"]


def test_victims_out_of_reach_stay_anonymous(world):
    (gives,) = get(world, "/v1/runs/night/stages/1/explain", RESEARCH)["victims"]
    assert gives["tenant"] is None
    assert SALES not in str(gives)


def test_run_is_explained_by_open_stages_and_blocked_nodes(world):
    body = get(world, "/v1/runs/night/explain", RESEARCH)
    assert [(stage["stage"], stage["reason"]) for stage in body["stages"]] == [("night.1", "QUOTA_EXHAUSTED")]
    body = get(world, "/v1/runs/report-2/explain", SALES)
    assert (body["stages"], body["blocked"][0]["reason"]) == ([], "RUNNING_LIMIT")


def test_invisible_run_and_unknown_stage_are_404(world):
    assert world.http(RIVAL).get("/v1/runs/night/explain").status_code == 404
    assert world.http(RIVAL).get("/v1/runs/night/stages/1/explain").status_code == 404
    answer = world.http(RESEARCH).get("/v1/runs/night/stages/9/explain")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_stage")


# -- what if ---------------------------------------------------------------------------------------------------------------


def test_dry_run_shows_placements_and_stores_nothing(world):
    before = world.store.snapshot()
    answer = world.http(RESEARCH).post("/v1/plan", json=two_cpus("tomorrow"))
    assert answer.status_code == 200, answer.text
    view = answer.json()
    (stage,) = view["stages"]
    assert (stage["mesh"], stage["goes_first"], stage["reason"], stage["position"]) == (EAST, True, "WAITING_FOR_VICTIMS", 3)
    assert (stage["tenant_position"], stage["slot"]["cpu"]["amount"]) == (2, 2)
    assert world.runs.summary("tomorrow") is None
    assert world.store.snapshot() == before


def test_dry_run_reports_an_unshared_cluster():
    world = GatewayWorld()
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 8}))
    ManualMesh(world.store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c1"))
    view = world.http(RESEARCH).post("/v1/plan", json=two_cpus("t", wait_for_capacity=True)).json()
    words = "east: its Ray cluster admits 2 top-level tenants, and is not `shared`: it admits nothing new"
    assert [(node["reason"], node["detail"]) for node in view["blocked"]] == [("CLUSTER_NOT_SHARED", words)]


def test_dry_run_lists_reclaim_victims():
    world = GatewayWorld()
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 8}))
    ManualMesh(world.store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c1", shared=True)).acquire(SALES, STANDARD, ONE_CPU, 6)
    world.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0)))
    (stage,) = world.http(ACME).post("/v1/plan", json=two_cpus("t", tenant=RESEARCH)).json()["stages"]
    (gives,) = stage["victims"]
    assert (stage["reason"], gives["tenant"], gives["amounts"]["cpu"]["amount"]) == ("WAITING_FOR_VICTIMS", SALES, 2)
    (stage,) = world.http(RESEARCH).post("/v1/plan", json=two_cpus("t")).json()["stages"]
    assert stage["victims"][0]["tenant"] is None


@pytest.fixture
def busy() -> GatewayWorld:
    """A mesh full of two stages of research, the more urgent begun last, where a third and more urgent one waits."""
    built = GatewayWorld()
    built.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0)))
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=TWO_CPUS)
    settings = StageSettings(preemption=PreemptionLimits(lost_work_per_s=MICROS))
    mesh = ManualMesh(built.store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c1", shared=True, settings=settings))
    mesh.acquire(RESEARCH, STANDARD, ONE_CPU, 2)
    coordinator = built.coordinator()
    for run, priority in (("calm", 1), ("brisk", 2), ("urgent", 3)):
        built.client(RESEARCH).submit_spec(prioritised(run, priority))
        coordinator.step(0)
        if run != "urgent":
            claimed = built.store.claim(mesh.session, StageId(f"{run}.1"), mesh.lease(RESEARCH, STANDARD))
            assert claimed is not None
            started = StageStarted(stage=claimed.claim.stage, mesh=EAST, incarnation=5, cluster="c1", slots=1, token=1)
            built.store.report(claimed.claim, 1, (started,))
            coordinator.step(0)
        built.clock.advance(1)
    mesh.record = replace(mesh.record, pools=(replace(pool, used=TWO_CPUS),))
    mesh.heartbeat()
    return built


def prioritised(run, priority):
    spec = spec_of("a", id=run)
    spec["nodes"]["a"]["options"] = {"num_cpus": 1, "priority": priority}
    return spec


def test_stage_is_explained_with_victims_of_its_own_tenant(busy):
    view = get(busy, "/v1/runs/urgent/stages/1/explain", RESEARCH)
    (gives,) = view["victims"]
    assert (gives["tenant"], gives["mesh"], gives["reason"], gives["stages"]) == (RESEARCH, EAST, "PREEMPTED_WITHIN_TENANT", ["calm.1"])


@pytest.mark.parametrize(
    ("saved_ms", "victim"),
    [pytest.param(NOW_MS, "brisk.1", id="of this start"), pytest.param(NOW_MS - 20_000, "calm.1", id="of an earlier start")],
)
def test_checkpoint_makes_a_stage_the_cheaper_victim(busy, saved_ms, victim):
    """Both stages have run for 10 s; the more urgent one has a checkpoint."""
    checkpoint = KeptCheckpoint(attempt=1, number=1, saved_ms=saved_ms, stored=busy.keep("brisk", 1))
    for run, kept in (("calm", None), ("brisk", checkpoint)):
        stages = {name: replace(stage, started_ms=NOW_MS - 10_000) for name, stage in busy.record(run).stages.items()}
        busy.move(run, RunState.RUNNING, nodes={"a": {"checkpoint": kept}}, stages=stages)
    (gives,) = get(busy, "/v1/runs/urgent/stages/1/explain", RESEARCH)["victims"]
    assert gives["stages"] == [victim]


@pytest.mark.parametrize(
    ("priority", "stages"),
    [pytest.param(9, [["calm.1"]], id="which is more urgent"), pytest.param(1, [], id="which is not")],
)
def test_dry_run_names_victims_of_its_own_tenant_for_work(busy, priority, stages):
    answer = busy.http(RESEARCH).post("/v1/plan", json=prioritised("new", priority))
    (stage,) = answer.json()["stages"]
    assert [gives["stages"] for gives in stage["victims"]] == stages
    assert (stage["reason"] == "WAITING_FOR_VICTIMS") is bool(stages)


def test_a_dry_run_says_what_keeps_the_whole_run_back(world):
    view = world.http(SALES).post("/v1/plan", json=spec_of("a", id="t")).json()
    assert (view["reason"], view["detail"]) == ("RUNNING_LIMIT", "acme/sales is at its limit of 1 running stage")


def test_dry_run_reports_nodes_that_no_mesh_takes(world):
    spec = spec_of("a", id="t", wait_for_capacity=True)
    spec["nodes"]["a"]["options"] = {"labels": {"zone": "north"}}
    view = world.http(RESEARCH).post("/v1/plan", json=spec).json()
    assert (view["stages"], view["blocked"][0]["reason"]) == ([], "LABEL_MISMATCH")


def test_dry_run_and_run_name_a_closed_flavor_with_its_remedy(world):
    spec = spec_of("a", id="t", wait_for_capacity=True)
    (blocked,) = world.http(RIVAL).post("/v1/plan", json=spec).json()["blocked"]
    assert world.http(RIVAL).post("/v1/runs", json=spec).status_code < 300
    world.coordinator().step(0)
    run = get(world, "/v1/runs/t", RIVAL)
    for one in (blocked, run):
        assert one["reason"] == "FLAVOR_CLOSED"
        assert "tenant rival names no quota of flavor standard" in one["detail"]
        assert "`quotas: {standard: {cpu: {nominal: 0}}}`" in one["detail"]


def with_tpus() -> GatewayWorld:
    """A mesh with `cpu` and `tpu` is joined; the root's file also names one with `fpga_card`."""
    away = PoolRecord(pool=PoolName("cards"), flavor=STANDARD, capacity=ResourceSet.of({"fpga_card": 1}))
    built = GatewayWorld(
        configured_meshes=ConfiguredMeshes(meshes={MeshId("west"): MeshRecord(mesh=MeshId("west"), labels={}, pools=(away,), cluster="c2")})
    )
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 8, "tpu": 4}))
    ManualMesh(built.store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c1", shared=True))
    return built


def asking_for(run: str, **resources: float):
    spec = spec_of("a", id=run)
    spec["nodes"]["a"]["options"] = {"resources": resources}
    return spec


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/plan"])
@pytest.mark.parametrize(
    ("resource", "meant"),
    [
        pytest.param("TPU", "tpu", id="another case"),
        pytest.param("tpus", "tpu", id="a letter too many"),
        pytest.param("fpga-card", "fpga_card", id="of a mesh that is only in the file"),
    ],
)
def test_nearly_spelled_resource_is_refused_at_its_place(path, resource, meant):
    world = with_tpus()
    answer = world.http(RESEARCH).post(path, json=asking_for("t", **{resource: 1}))
    assert answer.status_code == 422
    problem = {"place": f"/nodes/a/options/resources/{resource}", "problem": f"no mesh has {resource}; did you mean {meant}?"}
    assert answer.json()["problems"] == [problem]
    assert world.runs.summary("t") is None


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/plan"])
def test_priority_above_the_bound_is_refused_at_its_place(world, path):
    spec = spec_of("a", id="t")
    spec["nodes"]["a"]["options"] = {"priority": 5}
    answer = world.http(SALES).post(path, json=spec)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")
    text = f"priority 5 is above 4, the highest priority of tenant {SALES} (limits.priority_max); ask for 4 or less"
    assert answer.json()["problems"] == [{"place": "/nodes/a/options/priority", "problem": text}]
    assert world.runs.summary("t") is None
    spec["nodes"]["a"]["options"] = {"priority": 4}
    assert world.http(SALES).post(path, json=spec).status_code < 300


def test_misspelt_resource_in_the_defaults_is_refused_there():
    answer = with_tpus().http(RESEARCH).post("/v1/runs", json={**asking_for("t"), "defaults": {"resources": {"TPU": 1}}})
    assert [problem["place"] for problem in answer.json()["problems"]] == ["/defaults/resources/TPU"]


def test_resource_of_no_mesh_is_shown_by_dry_run_and_explain():
    world = with_tpus()
    words = "no mesh has lamp; there is cpu, fpga_card, tpu"
    spec = {**asking_for("t", lamp=1), "wait_for_capacity": True}
    (node,) = world.http(RESEARCH).post("/v1/plan", json=spec).json()["blocked"]
    assert (node["reason"], node["detail"].partition("; east:")[0]) == ("POOL_TOO_SMALL", words)
    assert world.http(RESEARCH).post("/v1/runs", json=spec).status_code == 202
    world.coordinator().step(0)
    (node,) = get(world, "/v1/runs/t/explain", RESEARCH)["blocked"]
    assert (node["reason"], node["detail"].partition("; east:")[0]) == ("POOL_TOO_SMALL", words)


def test_possible_resource_of_a_known_mesh_is_accepted():
    world, away = with_tpus(), asking_for("away", fpga_card=1)
    away["nodes"]["a"]["options"]["num_cpus"] = 0
    assert world.http(RESEARCH).post("/v1/runs", json=away).status_code == 202
    assert GatewayWorld().http(RESEARCH).post("/v1/runs", json=asking_for("nowhere", TPU=1)).status_code == 202


def test_a_dry_run_refuses_what_a_submission_refuses(world):
    http = world.http(RESEARCH)
    assert http.post("/v1/plan", json=spec_of("a", tenant=RIVAL)).status_code == 403
    assert http.post("/v1/plan", json={"spec": "dag/1"}).status_code == 422
    assert http.post("/v1/plan", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    foreign = spec_of("a")
    foreign["nodes"]["a"]["call"] = "os:system"
    assert http.post("/v1/plan", json=foreign).status_code == 422


# -- leases ----------------------------------------------------------------------------------------------------------------


def test_leases_show_their_mesh_and_age(world):
    (lease,) = get(world, "/v1/leases", SALES)["leases"]
    assert (lease["amounts"]["cpu"]["amount"], lease["target"]["cpu"]["amount"], lease["running_out"]) == (5, 5, False)
    assert lease["granted_at"] == rfc3339(NOW_MS)


def test_tenant_history_includes_child_tenants(world):
    body = get(world, f"/v1/leases/history?tenant={ACME}", ACME)["lease_events"]
    assert SALES in {lease_event["tenant"] for lease_event in body}
    assert world.http(ACME).get(f"/v1/leases/history?tenant={ACME}/nobody").status_code == 403


def test_lease_history_is_visible_to_its_tenant(world):
    (lease_event,) = get(world, f"/v1/leases/history?tenant={SALES}&mesh={EAST}&flavor={STANDARD}", ACME)["lease_events"]
    assert (lease_event["verb"], lease_event["tenant"], lease_event["held"]["cpu"]["amount"]) == ("grant", SALES, 5)
    assert get(world, "/v1/leases/history", RIVAL)["lease_events"] == []
    assert get(world, "/v1/leases/history?flavor=other", ACME)["lease_events"] == []
    assert world.http(RIVAL).get(f"/v1/leases/history?tenant={SALES}").status_code == 403


# -- stopping --------------------------------------------------------------------------------------------------------------


def test_tenant_is_held_by_its_own_key_with_a_reason(world):
    held = world.http(SALES).post(f"/v1/tenants/{SALES}/suspend", json={"reason": "the budget"})
    assert (held.status_code, held.json()["stop"], held.json()["reason"]) == (200, "hold", "the budget")
    (tenant,) = get(world, "/v1/tenants", SALES)["tenants"]
    assert (tenant["stop"], tenant["stop_reason"], tenant["running_max"], tenant["priority_max"]) == ("hold", "the budget", 1, 4)
    drained = world.http(ACME).post(f"/v1/tenants/{SALES}/drain")
    assert drained.json()["stop"] == "drain"
    released = world.http(ACME).post(f"/v1/tenants/{SALES}/resume").json()
    assert (released["stop"], released["changed"]) == ("none", True)
    assert world.http(ACME).post(f"/v1/tenants/{SALES}/resume").json()["changed"] is False


def test_a_hold_keeps_back_what_comes_after_it(world):
    world.http("*").post(f"/v1/tenants/{ACME}/suspend", json={"reason": "the budget"})
    world.coordinator().tick()
    kept_back = get(world, f"/v1/queues/{ACME}", ACME)["kept_back"]
    assert {one["reason"] for one in kept_back} == {"TENANT_SUSPENDED"}
    assert get(world, "/v1/queues")["waiting"] == []


@pytest.mark.parametrize("verb", ["suspend", "drain", "resume"])
def test_unreachable_or_unknown_tenant_is_not_stopped(world, verb):
    for tenant in (RIVAL, "acme/nobody"):
        assert world.http(ACME).post(f"/v1/tenants/{tenant}/{verb}").status_code == 403
    assert world.http(None).post(f"/v1/tenants/{ACME}/{verb}").status_code == 401
    assert world.tenant_policies.in_force().stops == {}


def test_tenant_cannot_lift_an_operators_stop(world):
    world.http("*").post(f"/v1/tenants/{SALES}/drain")
    for verb in ("resume", "suspend"):
        answer = world.http(ACME).post(f"/v1/tenants/{SALES}/{verb}")
        assert (answer.status_code, "an operator has stopped" in answer.json()["detail"]) == (403, True)
    assert world.tenant_policies.in_force().stops[SALES].stop is Stop.DRAIN
    assert world.http("*").post(f"/v1/tenants/{SALES}/resume").json()["stop"] == "none"


def test_resume_leaves_a_stop_of_the_file(world):
    world.tenant_policies.publish(TenantPolicies(settings={SALES: QueueSettings(stop=Stop.HOLD)}))
    body = world.http("*").post(f"/v1/tenants/{SALES}/resume").json()
    assert (body["stop"], body["changed"]) == ("hold", False)


# -- users -----------------------------------------------------------------------------------------------------------------


def test_user_of_a_run_comes_from_key_graph_or_key_id(world):
    world.http(RESEARCH, "ann").post("/v1/runs", json=spec_of("a", id="hers"))
    world.http(RESEARCH).post("/v1/runs", json=spec_of("a", id="his", user="bob"))
    world.http(RESEARCH).post("/v1/runs", json=spec_of("a", id="somebodys"))
    users = {run["id"]: run["user"] for run in get(world, "/v1/runs", RESEARCH)["runs"]}
    assert (users["hers"], users["his"]) == ("ann", "bob")
    assert users["somebodys"].startswith("key ")


def test_the_key_of_one_user_submits_for_no_other(world):
    answer = world.http(RESEARCH, "ann").post("/v1/runs", json=spec_of("a", user="bob"))
    assert (answer.status_code, answer.json()["problems"][0]["place"]) == (422, "/user")
    assert world.http(RESEARCH, "ann").post("/v1/runs", json=spec_of("a", user="ann")).status_code == 202


def test_same_graph_of_another_user_is_the_same_run(world):
    assert world.http(RESEARCH, "ann").post("/v1/runs", json=spec_of("a", id="shared")).json()["created"]
    assert not world.http(RESEARCH, "bob").post("/v1/runs", json=spec_of("a", id="shared")).json()["created"]
    assert world.record("shared").user == "ann"


# -- one reason in every view --------------------------------------------------------------------------------------------


def reasons_everywhere(world, run, tenant):
    """Return the reason that each view gives for the run's first stage."""
    (queued,) = (one for one in get(world, f"/v1/queues/{tenant}", tenant)["waiting"] if one["run"] == run)
    (listed,) = (one for one in get(world, f"/v1/queues/{tenant}?limit=0", tenant)["waiting"] if one["run"] == run)
    (line,) = (one for one in get(world, "/v1/runs", tenant)["runs"] if one["id"] == run)
    shown, summary = get(world, f"/v1/runs/{run}", tenant), get(world, f"/v1/runs/{run}/summary", tenant)
    result = world.http(tenant).get(f"/v1/runs/{run}/result").json()
    explained = get(world, f"/v1/runs/{run}/explain", tenant)["stages"]
    stage = get(world, f"/v1/runs/{run}/stages/1/explain", tenant)
    bodies = (queued, listed, line, shown, shown["stages"][0], summary, result, explained[0], stage)
    return {one["reason"] for one in bodies}, {one["detail"] for one in bodies if "detail" in one}


def scene(borrowed):
    """Sales holds this much of a full mesh, where a run of research waits for two CPUs."""
    built = GatewayWorld()
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": borrowed}), used=ONE_CPU.times(borrowed))
    mesh = ManualMesh(built.store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c1", shared=True))
    mesh.acquire(SALES, STANDARD, ONE_CPU, borrowed)
    built.client(RESEARCH).submit_spec(two_cpus("night"))
    built.coordinator().step(0)
    return built, mesh


@pytest.mark.parametrize(
    ("borrowed", "said", "reason", "detail"),
    [
        pytest.param(5, "POOL_BUSY", "QUOTA_EXHAUSTED", "it would start if 1 cpu of standard became free in acme", id="lacks quota too"),
        pytest.param(4, "POOL_BUSY", "POOL_BUSY", "as the mesh says", id="lacks capacity alone"),
        pytest.param(5, "CAPACITY_RESERVED", "CAPACITY_RESERVED", "as the mesh says", id="has a reason of its mesh"),
    ],
)
def test_all_views_show_one_reason_of_a_stage_that(borrowed, said, reason, detail):
    built, mesh = scene(borrowed)
    built.store.explain(mesh.session, (StageId("night.1"),), Reason(said), "as the mesh says")
    built.coordinator().step(0)
    assert reasons_everywhere(built, "night", RESEARCH) == ({reason}, {detail})


@pytest.mark.parametrize("said", ["POOL_BUSY", "QUOTA_EXHAUSTED"])
def test_all_views_show_planned_victims(said):
    built, mesh = scene(5)
    built.store.explain(mesh.session, (StageId("night.1"),), Reason(said), "as the mesh says")
    built.coordinator().step(0)
    target_updates = [
        TargetUpdate(mesh=EAST, tenant=tenant, flavor=STANDARD, target=ONE_CPU.times(cpus)) for tenant, cpus in ((SALES, 3), (RESEARCH, 2))
    ]
    built.store.plan_apply(built.store.elect("planner", 10_000), built.store.snapshot().version, tuple(target_updates))
    assert reasons_everywhere(built, "night", RESEARCH) == ({"WAITING_FOR_VICTIMS"}, {""})
    stage = get(built, "/v1/runs/night/stages/1/explain", RESEARCH)
    assert [(one["mesh"], one["tenant"], one["reason"]) for one in stage["victims"]] == [(EAST, None, "QUOTA_RECLAIMED")]


def test_all_views_show_the_quota_reason_before_the_mesh_looks():
    built, _ = scene(5)
    stage = get(built, "/v1/runs/night", RESEARCH)["stages"][0]
    assert (stage["reason"], stage["detail"]) == ("QUOTA_EXHAUSTED", "it would start if 1 cpu of standard became free in acme")
    assert [one["reason"] for one in get(built, "/v1/queues?limit=0", RESEARCH)["waiting"]] == ["QUOTA_EXHAUSTED"]


def test_long_running_work_makes_waiters_overdue_in_all_views(busy):
    busy.clock.advance(5_000)
    busy.coordinator().step(0)
    view = get(busy, "/v1/queues", RESEARCH)["waiting"][0]
    assert (view["start_at"], view["overdue_ms"]) == (None, 0), "no stage has ended yet"
    assert busy.registry.note(
        RegistryNote(watched_ms=busy.clock.wall_ms(), paces={EAST: Pace(run_ms=1_000)}), busy.registry.conditions().version
    )
    bodies = [get(busy, path, RESEARCH) for path in ("/v1/queues", "/v1/runs/urgent/explain", "/v1/runs/urgent/stages/1/explain")]
    late = [bodies[0]["waiting"][0], bodies[1]["stages"][0], bodies[2]]
    assert [(one["start_at"], one["overdue_ms"]) for one in late] == [(None, 4_002)] * 3


def test_history_of_an_unknown_mesh_suggests_a_near_name(world):
    answer = world.http("*").get("/v1/leases/history", params={"mesh": "eats"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_mesh")
    assert "did you mean east?" in answer.json()["detail"]
    assert world.http("*").get("/v1/leases/history", params={"mesh": EAST}).status_code == 200


def test_unknown_run_and_stage_are_answered_with_a_remedy(world):
    run = world.http(RESEARCH).get("/v1/runs/nigth").json()["detail"]
    assert run.startswith("there is no run nigth; `schedulemesh runs`")
    stage = world.http(RESEARCH).get("/v1/runs/night/stages/9/explain").json()["detail"]
    assert stage.startswith("run night has no stage 9; its stages have the numbers 1 to 1; `schedulemesh explain night`")
