"""Schedules over HTTP: from PUT to the run that the controller starts."""

from __future__ import annotations

import pytest

from dag.schedules.schedule import ScheduleLimits
from dag.spec.spec import load
from federation.quota.policies import Stop
from federation.quota.tenant_policies import TenantStop
from federation.tenants import TenantTree
from mesh.core.clock import ms_of
from mesh.core.ids import RunId
from serve_apps.gateway_fixtures import ACME, RESEARCH, RIVAL, TENANTS, GatewayWorld, spec_of

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def a_schedule(**fields):
    graph = spec_of("greet", wait_for_capacity=True)
    graph["nodes"]["greet"]["args"] = [{"$param": "SCHEDULED_AT"}]
    return {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "graph": graph, **fields}


@pytest.fixture
def world():
    return GatewayWorld()


def put(world, name="nightly", tenant=RESEARCH, status=201, **fields):
    answer = world.http(tenant).put(f"/v1/schedules/{name}", json=a_schedule(**fields))
    assert answer.status_code == status, answer.text
    return answer.json()


def show(world, name="nightly", tenant=RESEARCH):
    return world.http(tenant).get(f"/v1/schedules/{name}").json()


def fire(world, *, after_ms=DAY_MS):
    """Let time pass, and let the controller look at what is due."""
    world.clock.advance(after_ms)
    world.controller().tick(world.store.snapshot().tree, world.tenant_policies.in_force)


def test_a_due_schedule_starts_a_run(world):
    assert put(world)["next_at"] == "2023-11-15T02:00:00.000Z"
    fire(world)
    shown = show(world)
    (run,) = shown["runs"]
    assert run["labels"] == {"schedule": "nightly"}
    assert shown["active"] == [run["id"]]
    assert [(firing["due_at"], firing["outcome"], firing["run"]) for firing in shown["firings"]] == [
        ("2023-11-15T02:00:00.000Z", "STARTED", run["id"])
    ]
    assert shown["next_at"] == "2023-11-16T02:00:00.000Z"
    assert load(world.record(run["id"]).spec).params == {"SCHEDULED_AT": "2023-11-15T02:00:00.000Z"}


def test_the_same_put_changes_nothing(world):
    http = world.http(RESEARCH)
    first, again = (http.put("/v1/schedules/nightly", json=a_schedule()) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


def test_another_cron_moves_the_next_time(world):
    put(world)
    assert put(world, status=200, cron="0 5 * * *")["next_at"] == "2023-11-15T04:00:00.000Z"


def test_a_triggered_run_starts_at_once(world):
    put(world)
    answer = world.http(RESEARCH).post("/v1/schedules/nightly/trigger", headers={"Idempotency-Key": "k"})
    again = world.http(RESEARCH).post("/v1/schedules/nightly/trigger", headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["created"], again.json()["created"]) == (202, True, False)
    assert answer.json()["id"] == again.json()["id"]
    (firing,) = show(world)["firings"]
    assert (firing["triggered"], firing["run"]) == (True, answer.json()["id"])


def test_of_two_triggers_at_once_one_starts_a_run(world, monkeypatch):
    put(world)
    send = lambda: world.http(RESEARCH).post("/v1/schedules/nightly/trigger", headers={"Idempotency-Key": "k"}).json()  # noqa: E731  twice
    first, summary, looks = send(), world.runs.summary, []
    monkeypatch.setattr(world.runs, "summary", lambda run: summary(run) if looks or looks.append(run) else None)
    world.clock.advance(1_000)
    second = send()
    assert (second["id"], second["created"]) == (first["id"], False)


def test_a_triggered_run_belongs_to_the_user_of_the_key(world):
    put(world, graph=a_schedule()["graph"] | {"user": "bob"})
    run = world.http(RESEARCH, user="ann").post("/v1/schedules/nightly/trigger").json()["id"]
    assert world.record(RunId(run)).user == "ann"


def test_a_repeated_put_is_confirmed_again(world, monkeypatch):
    confirmed = []
    confirm = world.durable.confirm
    monkeypatch.setattr(world.durable, "confirm", lambda level: confirmed.append(level) or confirm(level))
    put(world)
    put(world, status=200)
    for call in ("pause", "resume"):
        world.http(RESEARCH).post(f"/v1/schedules/nightly/{call}")
    world.http(RESEARCH).delete("/v1/schedules/nightly")
    assert len(confirmed) == 5


def test_a_paused_schedule_starts_nothing(world):
    put(world)
    paused = world.http(RESEARCH).post("/v1/schedules/nightly/pause").json()
    assert (paused["paused"], paused["next_at"]) == (True, None)
    fire(world, after_ms=3 * DAY_MS)
    resumed = world.http(RESEARCH).post("/v1/schedules/nightly/resume").json()
    fire(world, after_ms=0)
    assert show(world)["firings"] == []
    assert ms_of(resumed["next_at"]) > world.clock.wall_ms()


def test_a_deleted_schedule_is_gone_and_its_run_stays(world):
    put(world)
    fire(world)
    (run,) = show(world)["active"]
    assert world.http(RESEARCH).delete("/v1/schedules/nightly").json() == {"name": "nightly", "tenant": RESEARCH}
    assert world.http(RESEARCH).get("/v1/schedules/nightly").json()["code"] == "unknown_schedule"
    fire(world)
    assert world.runs.active() == (RunId(run),)


def test_other_tenants_see_no_schedule(world):
    put(world)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/trigger"), ("POST", "/pause"), ("POST", "/resume")):
        answer = world.http(RIVAL).request(method, f"/v1/schedules/nightly{path}?tenant={RESEARCH}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_schedule")
    assert world.http(RIVAL).get("/v1/schedules").json() == {"schedules": [], "next": None}
    assert world.http(RIVAL).get(f"/v1/schedules?tenant={RESEARCH}").status_code == 403
    assert world.http(RIVAL).put(f"/v1/schedules/mine?tenant={RESEARCH}", json=a_schedule()).status_code == 403
    assert world.http(ACME).get("/v1/schedules").json()["schedules"][0]["name"] == "nightly"


def test_an_operator_names_the_tenant(world):
    assert world.http("*").put("/v1/schedules/nightly", json=a_schedule()).status_code == 422
    assert world.http("*").put(f"/v1/schedules/nightly?tenant={RESEARCH}", json=a_schedule()).status_code == 201
    assert world.http("*").get("/v1/schedules/nightly").status_code == 404
    assert world.http("*").get(f"/v1/schedules/nightly?tenant={RESEARCH}").status_code == 200


def test_lists_go_on_by_cursor(world):
    names = [f"s{number}" for number in range(5)]
    for name in reversed(names):
        put(world, name)
    found, cursor = [], ""
    while cursor is not None:
        page = world.http("*").get("/v1/schedules", params={"limit": 2, "cursor": cursor}).json()
        found += [schedule["name"] for schedule in page["schedules"]]
        cursor = page["next"]
    assert found == names


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        pytest.param({"cron": "0 25 * * *"}, "/cron", id="an hour too many"),
        pytest.param({"cron": "0 0 30 2 *"}, "/cron", id="a day that never comes"),
        pytest.param({"cron": "* * * * * *"}, "/cron", id="seconds"),
        pytest.param({"timezone": "Mars/Olympus"}, "/timezone", id="an unknown zone"),
        pytest.param({"timezone": "/etc/localtime"}, "/timezone", id="a path"),
        pytest.param({"graph": spec_of("a", id="mine")}, "/graph/id", id="an id"),
        pytest.param({"graph": spec_of("a", labels={"schedule": "x"})}, "/graph/labels", id="its own label"),
        pytest.param({"graph": {"spec": "dag/1"}}, "/graph/nodes", id="no nodes"),
        pytest.param({"graph": spec_of("a", tenant=ACME)}, "/graph/tenant", id="two tenants"),
    ],
)
def test_wrong_schedules_are_refused_by_place(world, fields, place):
    answer = world.http(RESEARCH).put(f"/v1/schedules/nightly?tenant={RESEARCH}", json=a_schedule(**fields))
    assert answer.status_code == 422, answer.text
    assert place in [problem["place"] for problem in answer.json()["problems"]]


@pytest.mark.parametrize(
    "fields", [{"overlap": "often"}, {"starts_within_ms": 1}, {"graph": []}, {"crom": "* * * * *"}], ids=["overlap", "ms", "list", "key"]
)
def test_wrong_shapes_are_refused(world, fields):
    assert world.http(RESEARCH).put("/v1/schedules/nightly", json=a_schedule(**fields)).status_code == 422


@pytest.mark.parametrize("depth", [60, 300, 700, 930, 980, 5_000])
def test_a_deep_graph_is_refused(world, depth):
    body = '{"cron": "* * * * *", "graph": {"nodes": ' + "[" * depth + "]" * depth + "}}"
    answer = world.http(RESEARCH).put("/v1/schedules/deep", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text


def test_the_tenant_of_the_address_fills_a_null(world):
    body = a_schedule(graph=spec_of("a", tenant=None, wait_for_capacity=True))
    assert world.http("*").put(f"/v1/schedules/nightly?tenant={RESEARCH}", json=body).status_code == 201


@pytest.mark.parametrize("name", ["-x", "a b", "a|b", "é", "n" * 64])
def test_wrong_names_are_refused(world, name):
    answer = world.http(RESEARCH).put(f"/v1/schedules/{name}", json=a_schedule())
    assert [problem["place"] for problem in answer.json()["problems"]] == ["/name"]


def test_functions_of_others_are_refused(world):
    graph = spec_of("a", wait_for_capacity=True)
    graph["nodes"]["a"]["call"] = "os:system"
    assert world.http(RESEARCH).put("/v1/schedules/evil", json=a_schedule(graph=graph)).json()["code"] == "invalid_spec"


def test_a_tenant_has_so_many_schedules_at_most():
    world = GatewayWorld(schedule_limits=ScheduleLimits(schedules_max=1))
    put(world)
    answer = world.http(RESEARCH).put("/v1/schedules/other", json=a_schedule())
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_schedules")
    assert "dispatch.schedules_max" in answer.json()["detail"]


def test_a_suspended_tenant_starts_nothing(world):
    put(world)
    world.tenant_policies.stop(ACME, TenantStop(stop=Stop.HOLD, reason="rent is due"))
    fire(world)
    (firing,) = show(world)["firings"]
    assert (firing["outcome"], firing["reason"]) == ("REFUSED", "TENANT_SUSPENDED")
    assert "rent is due" in firing["detail"]
    assert show(world)["runs"] == []


def test_a_removed_tenant_keeps_its_schedule(world):
    put(world)
    world.store.configure(TenantTree([tenant for tenant in TENANTS if tenant.path != RESEARCH]))
    fire(world)
    shown = world.http("*").get(f"/v1/schedules/nightly?tenant={RESEARCH}").json()
    assert [(firing["outcome"], firing["reason"]) for firing in shown["firings"]] == [("REFUSED", "TENANT_UNKNOWN")]
    assert shown["paused"]
    answer = world.http("*").post(f"/v1/schedules/nightly/trigger?tenant={RESEARCH}")
    assert answer.json()["code"] == "unknown_tenant"


def test_runs_of_the_schedule_have_its_template(world):
    graph = a_schedule()["graph"] | {"labels": {"team": "ads"}, "user": "ann"}
    put(world, graph=graph)
    fire(world)
    (run,) = show(world)["runs"]
    assert (run["labels"], run["user"]) == ({"team": "ads", "schedule": "nightly"}, "ann")


def test_a_schedule_survives_a_full_backlog():
    world = GatewayWorld(memory_percent=0)
    put(world)
    world.memory_percent = 95
    fire(world)
    assert (show(world)["firings"], show(world)["starting"][:8]) == ([], "nightly-")
    world.memory_percent = 0
    fire(world, after_ms=HOUR_MS)
    assert [firing["outcome"] for firing in show(world)["firings"]] == ["STARTED"]


def test_a_backlog_that_stays_full_refuses(world):
    put(world, starts_within_ms=DAY_MS)
    world.memory_percent = 95
    fire(world)
    fire(world, after_ms=DAY_MS)
    assert [firing["reason"] for firing in show(world)["firings"]] == ["BACKLOG_FULL"]
