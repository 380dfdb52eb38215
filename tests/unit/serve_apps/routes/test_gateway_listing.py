"""Lists of runs by cursor and filter, changes of all runs, and what a key may do."""

import asyncio
import json

import pytest

from dag.run.states import RunState
from serve_apps.gateway_fixtures import ACME, NOW_MS, RESEARCH, RIVAL, SALES, GatewayWorld, spec_of
from serve_apps.services.change_stream import change_stream

DAY = "2023-11-14T22:13:2"  #: The world begins at 20 seconds.


@pytest.fixture
def world() -> GatewayWorld:
    built = GatewayWorld()
    for number, (tenant, user, label) in enumerate(
        [(RESEARCH, "ada", "ads"), (RESEARCH, "bob", "ops"), (SALES, "ada", "ads"), (RIVAL, "eve", "ads"), (RESEARCH, "ada", "ops")]
    ):
        built.client(tenant).submit_spec(spec_of("a", id=f"run-{number}", tenant=tenant, user=user, labels={"team": label}))
        built.clock.advance(1_000 if number % 2 else 0)
    return built


def ids(world, tenant=ACME, **params):
    answer = world.http(tenant).get("/v1/runs", params=params)
    assert answer.status_code == 200, answer.text
    return [run["id"] for run in answer.json()["runs"]]


@pytest.mark.parametrize(
    ("params", "found"),
    [
        pytest.param({}, ["run-4", "run-2", "run-1", "run-0"], id="all in reach"),
        pytest.param({"tenant": RESEARCH}, ["run-4", "run-1", "run-0"], id="tenant"),
        pytest.param({"user": "ada"}, ["run-4", "run-2", "run-0"], id="user"),
        pytest.param({"text": "RUN-2"}, ["run-2"], id="text in the id"),
        pytest.param({"text": "team=op"}, ["run-4", "run-1"], id="text in a label"),
        pytest.param({"text": "bob"}, ["run-1"], id="text in the user"),
        pytest.param({"label": "team=ads", "user": "ada"}, ["run-2", "run-0"], id="label and user"),
        pytest.param({"since": f"{DAY}1Z"}, ["run-4", "run-2"], id="since"),
        pytest.param({"until": f"{DAY}1Z"}, ["run-1", "run-0"], id="until"),
        pytest.param({"since": f"{DAY}1Z", "until": f"{DAY}2+00:00"}, ["run-2"], id="since and until"),
        pytest.param({"mesh": "east"}, ["run-1"], id="mesh"),
        pytest.param({"state": "PENDING", "user": "ada"}, ["run-4", "run-2", "run-0"], id="state"),
        pytest.param({"state": ["RUNNING", "FAILED"]}, ["run-1"], id="states"),
        pytest.param({"text": "nothing"}, [], id="none"),
    ],
)
def test_each_filter_finds_its_runs_page_by_page(world, params, found):
    world.start("run-1", "a")
    assert ids(world, **params) == found
    paged, cursor = [], {}
    while True:
        page = world.http(ACME).get("/v1/runs", params={**params, "limit": 1, **cursor}).json()
        paged += [run["id"] for run in page["runs"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert paged == found


def test_a_page_that_looked_at_enough_leads_on(world, monkeypatch):
    monkeypatch.setattr("serve_apps.services.run_listing.READ_AT_ONCE", 2)
    monkeypatch.setattr("serve_apps.services.run_listing.LOOKED_AT_MAX", 2)
    first = world.http(ACME).get("/v1/runs", params={"text": "run-0"}).json()
    assert (first["runs"], first["next"] is None) == ([], False)
    assert ids(world, text="run-0", cursor=first["next"]) == ["run-0"]


def test_a_page_goes_on_after_new_runs_and_without_its_last_run(world):
    first = world.http(ACME).get("/v1/runs", params={"limit": 2}).json()
    world.client().submit_spec(spec_of("a", id="run-9"))
    world.move("run-2", RunState.SUCCEEDED, ended_ms=1)
    world.runs.retire(NOW_MS)
    assert ids(world, limit=2, cursor=first["next"]) == ["run-1", "run-0"]


@pytest.mark.parametrize(("name", "value"), [("cursor", "run-0"), ("cursor", "x.y"), ("since", "2026-01-31T09:00:00"), ("state", "ENDED")])
def test_a_wrong_filter_is_refused_by_name(world, name, value):
    answer = world.http().get("/v1/runs", params={name: value})
    assert answer.status_code == 422
    assert name in answer.text


def test_a_reader_gets_changes_of_what_its_key_reaches(world):
    http = world.http(ACME)
    mark = http.get("/v1/events").json()["next"]
    world.start("run-1", "a")
    world.start("run-3", "a")
    world.move("run-0", RunState.SUCCEEDED, ended_ms=1)
    world.runs.retire(NOW_MS)
    changes = http.get("/v1/events", params={"after": mark}).json()
    assert [(run["id"], run["state"], run["mesh_names"]) for run in changes["runs"]] == [("run-1", "RUNNING", ["east"])]
    assert changes["removed"] == [{"id": "run-0", "tenant": RESEARCH}]
    sales = http.get("/v1/events", params={"after": mark, "tenant": SALES}).json()
    assert (sales["runs"], sales["removed"], sales["next"]) == ([], [], changes["next"])
    assert http.get("/v1/events", headers={"Last-Event-ID": changes["next"]}).json()["runs"] == []
    assert world.http(RESEARCH).get("/v1/events", params={"tenant": SALES}).status_code == 403
    assert http.get("/v1/events", params={"after": "yesterday"}).status_code == 422


def test_a_stream_begins_goes_on_and_says_when_changes_are_lost(world):
    async def read(after: str | None, count: int) -> list[dict[str, str]]:
        found = []
        stream = change_stream(world.dependencies(), after, lambda tenant: tenant == RESEARCH)
        async for text in stream:
            if "event: " in text:
                found.append(dict(line.split(": ", 1) for line in text.strip().splitlines()))
            if len(found) == count:
                break
        await stream.aclose()
        return found

    (begun,) = asyncio.run(read(None, 1))
    assert (begun["event"], begun["id"]) == ("begin", "5-0")
    world.start("run-0", "a")
    world.start("run-2", "a")
    world.start("run-1", "a")
    _, first, second = asyncio.run(read(begun["id"], 3))
    assert [json.loads(event["data"])["id"] for event in (first, second)] == ["run-0", "run-1"]
    assert ("id" in first, second["id"]) == (False, "8-0")
    assert [event["event"] for event in asyncio.run(read("99-0", 2))] == ["begin", "reset"]


def test_an_old_stream_ends_so_that_a_revoked_key_reads_no_more(world):
    async def read() -> list[str]:
        return [text async for text in change_stream(world.dependencies(), None, lambda _: True, stream_s_max=0.0)]

    assert len(asyncio.run(read())) == 2


def test_a_key_learns_what_it_may_do(world):
    shown = world.http(RESEARCH).get("/v1/whoami").json()
    assert (shown["tenant"], shown["operator"], shown["permissions"]) == (RESEARCH, False, ["read", "submit", "cancel", "stop_tenants"])
    operator = world.http("*").get("/v1/whoami").json()
    assert (operator["tenant"], operator["operator"], "drain_meshes" in operator["permissions"]) == ("*", True, True)
    assert len(operator["key"]) == 8
    assert world.http(None).get("/v1/whoami").status_code == 401
