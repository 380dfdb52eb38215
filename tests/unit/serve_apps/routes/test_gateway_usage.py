"""`/v1/usage`: hours of tenants and users."""

import pytest

from federation.api_keys import Role
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from mesh.core.ids import MeshId, RunId, StageId
from mesh.stages.spec import StageSpec
from serve_apps.gateway_fixtures import ACME, ONE_CPU, RESEARCH, RIVAL, STANDARD, GatewayWorld

HOUR = 3_600_000


@pytest.fixture
def world() -> GatewayWorld:
    """A world in which research held a CPU for half an hour, and holds one since another; its parent held two for half an hour."""
    built = GatewayWorld()
    begin(built, RESEARCH, "r1.1")
    begin(built, ACME, "r2.1", slots=2)
    built.clock.advance(HOUR // 2)
    built.store.sweep()
    begin(built, RESEARCH, "r3.1")
    built.keeper().tick(built.store.snapshot().tree)
    built.clock.advance(HOUR // 2)
    return built


def begin(world, tenant, stage, slots=1) -> None:
    """Let a mesh claim a stage; without a heartbeat its session ends."""
    mesh = ManualMesh(world.store, MeshRecord(mesh=MeshId(f"of-{stage}"), labels={}, pools=(), cluster="c1"))
    spec = StageSpec(stage=StageId(stage), run=RunId(stage.split(".")[0]), tenant=tenant, tasks=(), slot=ONE_CPU, width=slots)
    world.store.submit(mesh.record.mesh, spec)
    mesh.acquire(tenant, STANDARD, ONE_CPU, slots)
    world.store.claim(mesh.session, spec.stage, mesh.lease(tenant, STANDARD), slots)


def rows(answer) -> list[tuple]:
    assert answer.status_code == 200, answer.text
    return [(row["tenant"], row["flavor"], row["resource"], row["unit"], row["used"]) for row in answer.json()["rows"]]


def test_hours_of_ended_and_running_stages_add_up(world):
    answer = world.http("*").get("/v1/usage")
    assert rows(answer) == [(ACME, None, "cpu", "h", 1.0), (RESEARCH, None, "cpu", "h", 1.0)]
    (total,) = answer.json()["total"]
    assert (total["tenant"], total["used"]) == (None, 2.0)


def test_a_key_sees_its_subtree_alone(world):
    for role in (Role.VIEWER, Role.ADMIN):
        assert rows(world.http(RESEARCH, role=role).get("/v1/usage")) == [(RESEARCH, None, "cpu", "h", 1.0)]
    assert rows(world.http("acme").get("/v1/usage?by=flavor")) == [(None, STANDARD, "cpu", "h", 2.0)]
    assert world.http(RESEARCH).get("/v1/usage", params={"tenant": RIVAL}).status_code == 403
    assert world.http(None).get("/v1/usage").status_code == 401


def test_a_tenant_is_reported_with_those_below_it(world):
    assert [row[0] for row in rows(world.http("*").get("/v1/usage?tenant=acme"))] == [ACME, RESEARCH]
    assert [row[0] for row in rows(world.http("*").get("/v1/usage", params={"tenant": RESEARCH}))] == [RESEARCH]
    unknown = world.http("*").get("/v1/usage?tenant=acm")
    assert (unknown.status_code, unknown.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(("first", "last"), [("2023-11-15", "2023-11-14"), ("2023-01-01", "2023-11-14")], ids=["backwards", "too long"])
def test_a_range_is_checked(world, first, last):
    answer = world.http("*").get("/v1/usage", params={"from": first, "to": last})
    assert answer.status_code == 422
    assert "ask for 1 to 100" in answer.text


def test_other_days_are_left_out(world):
    assert rows(world.http("*").get("/v1/usage?from=2023-11-01&to=2023-11-13")) == []


def test_the_python_client_returns_rows(world):
    (row,) = world.client(RESEARCH).usage(by=("day", "user"))
    assert (row.day.isoformat(), row.user, row.tenant, row.used, row.borrowed, row.lost) == ("2023-11-14", "", None, 1.0, 0.0, 0.0)


def test_the_first_days_of_the_calendar_can_be_asked_for(world):
    answer = world.http("*").get("/v1/usage", params={"to": "0001-01-05"})
    assert rows(answer) == []
    assert answer.json()["first"] == "0001-01-01"
