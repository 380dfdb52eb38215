"""Gateway behaviour around the routes: limits, request ids, unexpected errors, health, metrics, ledger views."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from dag.webhooks.webhook import Message
from federation.errors import StoreUnavailable
from federation.estimates import Pace
from federation.flap_detection import FlapHistory
from federation.registry import RegistryNote
from federation.stage_metrics import StageMetrics, TenantMetrics
from mesh.core.clock import rfc3339
from mesh.core.ids import RunId
from mesh.core.resources import ResourceSet
from serve_apps.gateway_fixtures import ACME, ADDRESS, EAST, RESEARCH, RIVAL, SALES, STANDARD, GatewayWorld, InProcess, spec_of, with_mesh
from serve_apps.requests.dependencies import CALLS_BURST, SNAPSHOTS_BURST, WRONG_BURST
from serve_apps.root.gateway import TRUTH_KEPT_MS, create_app

ONE_CPU = ResourceSet.of({"cpu": 1})


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld(body_limit_bytes=1_000)


def test_a_body_that_says_it_is_too_large_is_413(world):
    answer = world.http().post("/v1/runs", json=spec_of("a", params={"x": "y" * 2_000}))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("promise", [None, b"10"], ids=["of unknown size", "of a wrong size"])
def test_a_body_is_counted_while_it_is_read(world, promise):
    headers = [(b"authorization", world.http().headers["authorization"].encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/runs", "raw_path": b"/v1/runs", "query_string": b""}
    scope |= {"headers": [*headers, *([(b"content-length", promise)] if promise else [])], "client": None, "server": None, "scheme": "http"}
    read, sent = [], []

    async def receive():
        read.append(1)
        return {"type": "http.request", "body": b"x" * 400, "more_body": True}

    async def send(message):
        sent.append(message)

    asyncio.run(world.app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert len(read) == 3


def test_request_id_is_generated_or_taken_from_the_client(world):
    http = world.http()
    given = http.get("/v1/runs/none", headers={"X-Request-Id": "mine-1"})
    assert given.json()["request_id"] == "mine-1"
    assert "x-request-id" not in given.headers  # Its sender shows it.
    assert http.get("/healthz").headers["x-request-id"]
    forged = http.get("/v1/runs/none", headers={"X-Request-Id": "bad id\twith space"})
    assert forged.headers["x-request-id"] != "bad id\twith space"
    assert forged.json()["request_id"] == forged.headers["x-request-id"]


def test_unexpected_error_is_500_without_details(world, monkeypatch):
    def broken():
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(world.store, "snapshot", broken)
    answer = world.http().get("/v1/tenants")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_unavailable_store_is_503_without_its_address(world, monkeypatch):
    def gone():
        raise StoreUnavailable("redis://:password@10.0.0.1 refused")

    monkeypatch.setattr(world.store, "snapshot", gone)
    metrics = world.http("*").get("/metrics")
    with monkeypatch.context() as worse:
        worse.setattr(world.keys, "find", lambda _: gone())
        healthy = world.http(None).get("/healthz")
    for answer in (world.http().get("/v1/tenants"), healthy):
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert "password" not in answer.text
    assert metrics.status_code == 200
    assert "schedulemesh_store_up 0.0" in metrics.text
    assert "schedulemesh_runs{" not in metrics.text


def test_an_unknown_path_and_method_have_the_same_kind_of_body(world):
    answers = {404: (world.http().get("/v2"), "unknown_route"), 405: (world.http().delete("/v1/runs"), "method_not_allowed")}
    for status, (answer, code) in answers.items():
        assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_health_needs_no_key_and_looks_at_no_ledger(world, monkeypatch):
    looks = counted(world.store, "snapshot", monkeypatch)
    asked = counted(world.keys, "find", monkeypatch)
    assert [world.http(None).get("/healthz").json() for _ in range(3)] == [{"status": "ok"}] * 3
    assert (looks, asked) == ([], ["healthz"])


def counted(port: object, method: str, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record the calls of a method from now on."""
    asked: list[object] = []
    act = getattr(port, method)

    def noted(*arguments: object) -> object:
        asked.append(arguments[0] if arguments else None)
        return act(*arguments)

    monkeypatch.setattr(port, method, noted)
    return asked


def test_only_operators_may_read_the_metrics(world):
    assert [world.http(tenant).get("/metrics").status_code for tenant in (None, ACME, "*")] == [401, 403, 200]
    assert RIVAL not in world.http(ACME).get("/metrics").text


def test_scrapes_of_the_same_seconds_share_one_look(world, monkeypatch):
    looks = counted(world.store, "snapshot", monkeypatch)
    assert [world.http("*").get("/metrics").status_code for _ in range(3)] == [200] * 3
    assert len(looks) == 1
    world.clock.advance(TRUTH_KEPT_MS)
    world.http("*").get("/metrics")
    assert len(looks) == 2


def test_wrong_ledger_sums_are_counted(world, monkeypatch):
    assert "schedulemesh_ledger_wrong_sums 0.0" in world.http("*").get("/metrics").text
    wrong = replace(world.store.snapshot(), usage={(ACME, STANDARD, "cpu"): 7})
    monkeypatch.setattr(world.store, "snapshot", lambda: wrong)
    world.clock.advance(TRUTH_KEPT_MS)
    assert "schedulemesh_ledger_wrong_sums 1.0" in world.http("*").get("/metrics").text


def test_messages_of_webhooks_are_counted(world):
    first, second = (Message(id=name, run=RunId(name), body="{}") for name in ("one", "two"))
    world.webhooks.accept("ops", "0", (first, second))
    world.webhooks.settle("ops", first, failure="HTTP 410")
    text = world.http("*").get("/metrics").text
    assert 'schedulemesh_webhook_pending{webhook="ops"} 1.0' in text
    assert 'schedulemesh_webhook_dead{webhook="ops"} 1.0' in text


# -- rate limits ---------------------------------------------------------------------------------------------------------


def test_key_with_too_many_reads_is_throttled_on_reads_only(world):
    http = world.http(RESEARCH)
    assert {http.get("/v1/leases").status_code for _ in range(SNAPSHOTS_BURST)} == {200}
    refused = http.get("/v1/tenants")
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (429, "too_many_calls", "1")
    assert http.get("/v1/runs").status_code == 200
    assert world.http(RESEARCH).get("/v1/tenants").status_code == 200
    world.clock.advance(50)
    assert http.get("/v1/tenants").status_code == 200


def test_a_key_has_so_many_calls(world):
    http = world.http(RESEARCH)
    assert {http.get("/v1/runs/none").status_code for _ in range(CALLS_BURST)} == {404}
    assert http.get("/v1/runs/none").status_code == 429
    assert world.http(RESEARCH).get("/v1/runs/none").status_code == 404


def test_wrong_keys_throttle_an_address_but_not_a_good_key(world):
    stranger = httpx.Client(transport=InProcess(world.app), base_url=ADDRESS, headers={"Authorization": "Bearer smk_00000000_" + "a" * 43})
    assert [stranger.get("/v1/tenants").status_code for _ in range(WRONG_BURST + 1)] == [401] * WRONG_BURST + [429]
    assert world.http(RESEARCH).get("/v1/tenants").status_code == 200


def test_read_only_views_share_one_snapshot_for_a_moment(world, monkeypatch):
    app = create_app(replace(world.app.state.dependencies, snapshot_ttl_ms=250))
    http = httpx.Client(transport=InProcess(app), base_url=ADDRESS, headers=dict(world.http("*").headers))
    looks = counted(world.store, "snapshot", monkeypatch)
    for path in ("tenants", "leases", "meshes", "queues", "runs"):
        assert http.get(f"/v1/{path}").status_code == 200
    assert len(looks) == 1
    world.clock.advance(250)
    http.get("/v1/leases")
    assert len(looks) == 2


def test_the_docs_name_every_route_and_its_errors(world):
    paths = world.http(None).get("/openapi.json").json()["paths"]
    assert set(paths) >= {"/v1/runs", "/v1/runs/{run_id}/result/{output}", "/v1/queues/{tenant}", "/metrics", "/healthz"}
    assert set(paths["/v1/runs"]["post"]["responses"]) >= {"200", "202", "400", "401", "403", "409", "413", "415", "422", "429", "503"}


def test_tenants_show_what_they_have_in_units_and_for_people(world):
    with_mesh(world)
    view = world.http(RESEARCH).get("/v1/tenants").json()
    (tenant,) = view["tenants"]
    (quota,) = tenant["quotas"]
    assert (tenant["tenant"], quota["flavor"], quota["resource"]) == (RESEARCH, "standard", "cpu")
    assert quota["nominal"] == {"units": 20_000, "amount": 2, "text": "2"}
    assert (quota["used"]["amount"], quota["borrowed"]["amount"], quota["available"]["amount"]) == (3, 1, 3)


def test_tenants_are_those_within_reach_parents_first(world):
    assert [tenant["tenant"] for tenant in world.http(ACME).get("/v1/tenants").json()["tenants"]] == [ACME, RESEARCH, SALES]
    assert len(world.http("*").get("/v1/tenants").json()["tenants"]) == 4


def test_mesh_on_an_unshared_cluster_says_it_takes_nothing(world):
    with_mesh(world)
    (mesh,) = world.http().get("/v1/meshes").json()["meshes"]
    assert mesh["warnings"] == ["its Ray cluster admits 2 top-level tenants, and is not `shared`: it admits nothing new"]


def test_listed_meshes_are_usable_by_a_visible_tenant(world):
    with_mesh(world, RESEARCH)
    assert [mesh["mesh"] for mesh in world.http(ACME).get("/v1/meshes").json()["meshes"]] == ["east"]
    assert world.http(SALES).get("/v1/meshes").json()["meshes"] == []
    (mesh,) = world.http(RESEARCH).get("/v1/meshes").json()["meshes"]
    assert (mesh["alive"], mesh["waiting"], mesh["pools"][0]["capacity"]["memory"]["text"]) == (True, 2, "1GiB")


def test_leases_are_those_within_reach(world):
    with_mesh(world)
    (lease,) = world.http(RESEARCH).get("/v1/leases").json()["leases"]
    assert (lease["lease"], lease["amounts"]["cpu"]["amount"]) == (f"{EAST}:{RESEARCH}:{STANDARD}", 3)
    assert world.http(RIVAL).get("/v1/leases").json()["leases"] == []


def test_queue_shows_position_and_reason_of_own_stages_only(world):
    with_mesh(world)
    (waiting,) = world.http(ACME).get(f"/v1/queues/{ACME}").json()["waiting"]
    assert (waiting["stage"], waiting["mesh"], waiting["position"], waiting["reason"]) == ("r.2", "east", 2, "QUOTA_EXHAUSTED")
    assert world.http(ACME).get(f"/v1/queues/{RIVAL}").status_code == 403


def test_metrics_match_the_stores_and_requests_by_route(world):
    with_mesh(world)
    http = world.http()
    run = http.post("/v1/runs", json=spec_of("a", wait_for_capacity=True)).json()["id"]
    http.post("/v1/runs", json={**spec_of("a", wait_for_capacity=True), "id": run})
    http.get(f"/v1/runs/{run}")
    http.get("/v1/runs/nobody")
    http.get("/no/such/path")
    lines = world.http("*").get("/metrics").text.splitlines()

    def value(name: str, **labels: str) -> float:
        (line,) = [line for line in lines if line.startswith(name + "{") and all(f'{key}="{text}"' in line for key, text in labels.items())]
        return float(line.rpartition(" ")[2])

    assert value("schedulemesh_runs", state="PENDING") == 1
    assert value("schedulemesh_quota_used", tenant=RESEARCH, resource="cpu") == 3
    assert value("schedulemesh_quota_nominal", tenant=ACME, resource="cpu") == 4
    assert value("schedulemesh_stages_waiting", mesh="east", reason="QUOTA_EXHAUSTED") == 1
    assert value("schedulemesh_mesh_alive", mesh="east") == 1
    assert value("schedulemesh_pool_used", pool="general", resource="cpu") == 1
    assert value("schedulemesh_leases", tenant=RESEARCH, mesh="east") == 1
    assert value("schedulemesh_http_requests_total", route="/v1/runs/{run_id}", status="200") == 1
    assert value("schedulemesh_http_requests_total", route="/v1/runs/{run_id}", status="404") == 1
    assert value("schedulemesh_http_requests_total", route="/v1/runs", status="200") == 1
    assert value("schedulemesh_http_request_duration_seconds_count", route="/v1/runs", method="POST", status="202") == 1
    assert run not in "".join(lines)
    assert "/no/such/path" not in "".join(lines)


def test_metrics_of_stages_are_by_tenant_and_tier_while_recent(world):
    now_ms = world.store.snapshot().at_ms
    seen = TenantMetrics(tenant=RESEARCH, tier="high", queue_wait_time_p99_ms=1_500, started=3, failed_starts=1, preempted=2)
    world.registry.note(RegistryNote(watched_ms=1, stage_metrics=StageMetrics(at_ms=now_ms, tenants=(seen,))), 0)
    labels = f'{{tenant="{RESEARCH}",tier="high"}}'
    text = world.http("*").get("/metrics").text
    for line in ("queue_wait_time_p99_seconds{} 1.5", "placement_success_rate{} 0.75", "preemption_count{} 2.0"):
        assert f"schedulemesh_{line.format(labels)}" in text
    assert "schedulemesh_schedule_latency_p95_seconds{" not in text, "it is unknown"
    world.clock.advance(61_000)
    assert "schedulemesh_preemption_count{" not in world.http("*").get("/metrics").text


def test_two_gateways_in_one_process_keep_their_metrics_apart(world):
    other = GatewayWorld()
    other.http().get("/v1/runs")
    assert 'route="/v1/runs"' not in world.http("*").get("/metrics").text


# -- drains ----------------------------------------------------------------------------------------------------------------


def test_operator_drains_a_mesh_and_its_users_see_why(world):
    with_mesh(world)
    answer = world.http("*").post("/v1/meshes/east/drain", json={"reason": "new disks"})
    (mesh,) = answer.json()["meshes"]
    assert (answer.status_code, mesh["mesh"], mesh["draining"], mesh["drain_reason"]) == (200, "east", True, "new disks")
    (seen,) = world.http(RESEARCH).get("/v1/meshes").json()["meshes"]
    assert (seen["draining"], seen["drain_reason"], seen["drained_at"]) == (True, "new disks", rfc3339(world.clock.wall_ms()))
    (mesh,) = world.http("*").post("/v1/meshes/east/undrain").json()["meshes"]
    assert (mesh["draining"], mesh["drain_reason"], mesh["drained_at"]) == (False, "", None)


def test_a_drain_needs_no_body_and_undraining_twice_is_harmless(world):
    with_mesh(world)
    http = world.http("*")
    assert [http.post(f"/v1/meshes/east/{verb}").status_code for verb in ("drain", "drain", "undrain", "undrain")] == [200] * 4


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_only_an_operator_may_drain(world, verb):
    with_mesh(world)
    answer = world.http(ACME).post(f"/v1/meshes/east/{verb}")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert world.http(None).post(f"/v1/meshes/east/{verb}").status_code == 401
    assert world.registry.conditions().meshes == {}


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_a_mesh_that_never_joined_is_a_slip_of_the_pen(world, verb):
    with_mesh(world)
    answer = world.http("*").post(f"/v1/meshes/eats/{verb}")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_mesh")
    assert "did you mean east?" in answer.json()["detail"]


def test_absent_mesh_may_be_drained(world):
    world.registry.note(RegistryNote(watched_ms=1, flap_history={EAST: FlapHistory(incarnation=1, alive=False)}), 0)
    answer = world.http("*").post("/v1/meshes/east/drain")
    assert (answer.status_code, answer.json()["meshes"]) == (200, [])
    assert world.registry.conditions().meshes[EAST].drain is not None


def test_mesh_shows_probation_losses_and_run_time(world):
    with_mesh(world)
    now_ms = world.clock.wall_ms()
    kept = FlapHistory(incarnation=1, alive=True, losses_ms=(now_ms - 9, now_ms - 5), back_ms=now_ms, stable_ms=now_ms + 5_000)
    world.registry.note(RegistryNote(watched_ms=now_ms, flap_history={EAST: kept}, paces={EAST: Pace(run_ms=250)}), 0)
    world.clock.advance(2_000)
    (mesh,) = world.http(RESEARCH).get("/v1/meshes").json()["meshes"]
    assert (mesh["stable"], mesh["stable_in_ms"], mesh["losses"], mesh["run_ms"]) == (False, 3_000, 2, 250)
    world.clock.advance(3_000)
    (mesh,) = world.http(RESEARCH).get("/v1/meshes").json()["meshes"]
    assert (mesh["stable"], mesh["stable_in_ms"]) == (True, 0)
