"""Times in responses, and the headers of budgets."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dag.run.states import RunState
from serve_apps.gateway_fixtures import NOW_MS, RESEARCH, GatewayWorld, spec_of
from serve_apps.requests.dependencies import CALLS_BURST, SNAPSHOTS_BURST
from serve_apps.schemas.moments import WIRE_NAMES

DESCRIBED = GatewayWorld().app.openapi()
BEGAN = "2023-11-14T22:13:20.000Z"


def properties() -> Iterator[tuple[str, str, Any]]:
    """Yield each key of each schema outside the link."""
    for name, schema in DESCRIBED["components"]["schemas"].items():
        if not name.startswith("link."):
            for key, described in schema.get("properties", {}).items():
                yield name, key, described


def test_every_time_of_a_schema_is_described_as_one():
    times = {key for _, key, described in properties() if "date-time" in json.dumps(described)}
    assert times == set(WIRE_NAMES.values())
    for name, key, described in properties():
        assert key not in WIRE_NAMES, (name, key)
        assert key not in times or "date-time" in json.dumps(described), (name, key)


def test_a_time_is_text_and_null_until_it_comes():
    world = GatewayWorld()
    run = world.client().submit_spec(spec_of("a", "b"))
    world.start(run.id, "a")
    shown = world.http().get(run.path).json()
    assert (shown["created_at"], shown["ended_at"]) == (BEGAN, None)
    (stage,) = shown["stages"]
    assert (stage["started_at"], stage["ended_at"]) == (BEGAN, None)
    nodes = world.http().get(f"{run.path}/nodes").json()["nodes"]
    assert [(node["started_at"], node["finished_at"], node["not_before"]) for node in nodes] == [(BEGAN, None, None), (None, None, None)]
    (event, *_) = world.http().get(f"{run.path}/events", headers={"Accept": "application/json"}).json()["events"]
    assert event["at"] == BEGAN


def test_the_python_client_reads_times_as_milliseconds():
    world = GatewayWorld()
    run = world.client().submit_spec(spec_of("a"))
    world.start(run.id, "a")
    world.succeed(run.id, {"a": 1})
    assert {event.at_ms for event in run.events()} == {NOW_MS}


def rates(answer):
    return [int(answer.headers[f"RateLimit-{name}"]) for name in ("Limit", "Remaining", "Reset")]


def test_each_response_says_what_is_left_of_its_budget():
    world = GatewayWorld()
    http = world.http()
    assert rates(http.get("/v1/whoami")) == [CALLS_BURST, CALLS_BURST - 1, 1]
    assert rates(http.get("/v1/runs/nobody")) == [CALLS_BURST, CALLS_BURST - 2, 1]
    assert rates(http.get("/v1/tenants"))[:2] == [SNAPSHOTS_BURST, SNAPSHOTS_BURST - 1]
    world.clock.advance(5_000)
    assert rates(http.get("/v1/whoami"))[1] == CALLS_BURST - 1
    assert "RateLimit-Limit" not in world.http(None).get("/v1/whoami").headers


def test_a_refused_call_says_that_nothing_is_left():
    http = GatewayWorld().http()
    while (answer := http.get("/v1/tenants")).status_code == 200:
        pass
    assert (answer.status_code, rates(answer)[:2]) == (429, [SNAPSHOTS_BURST, 0])


@pytest.mark.parametrize("is_settled", [True, False])
def test_an_ended_run_is_removed_once_its_end_is_carried_out(is_settled):
    world = GatewayWorld()
    run = world.client().submit_spec(spec_of("a", id="night"))
    http = world.http(RESEARCH)
    assert http.delete(run.path).json()["code"] == "not_removed"
    world.move(run.id, RunState.FAILED, ended_ms=1)
    if is_settled:
        world.runs.settle(run.id)
    answer = http.delete(run.path)
    assert (answer.status_code, answer.content) == ((204, b"") if is_settled else (409, answer.content))
    assert http.get(run.path).status_code == (404 if is_settled else 200)


def test_a_run_of_another_tenant_cannot_be_removed():
    world = GatewayWorld()
    run = world.client().submit_spec(spec_of("a"))
    world.move(run.id, RunState.FAILED, ended_ms=1)
    world.runs.settle(run.id)
    assert world.http("rival").delete(run.path).json()["code"] == "unknown_run"
    run.delete()
    assert world.http().delete(run.path).json()["code"] == "unknown_run"
