"""Roles of keys: each route needs one, by a single table."""

import re

import pytest

from federation.api_keys import Role
from federation.errors import StoreUnavailable
from federation.link import LINK_PATH
from federation.store.memory.key_ring import MemoryKeyRing
from mesh.core.ids import MeshId
from serve_apps.gateway_fixtures import NOW_MS, RESEARCH, GatewayWorld, spec_of
from serve_apps.requests.access import asking_mesh
from serve_apps.requests.auth import Principal, issue_for_mesh
from serve_apps.requests.errors import RoleTooLow
from serve_apps.requests.roles import ROLES, check_role

#: Answers anybody.
OPEN = {("GET", "/healthz")}
RANKS = tuple(Role)
WORLD = GatewayWorld()
OPERATIONS = {
    (method.upper(), path)
    for path, methods in WORLD.app.openapi()["paths"].items()
    for method in methods
    if not path.startswith(f"{LINK_PATH}/")
}


def test_the_table_has_exactly_the_routes_of_the_openapi():
    assert set(ROLES) == OPERATIONS - OPEN


@pytest.mark.parametrize("call", ROLES, ids=" ".join)
def test_a_route_asks_for_a_key(call):
    """Only `asking` gives this answer, so the route depends on it, whatever its role."""
    method, path = call
    http = GatewayWorld().http()  # Of its own: one address may send only so many wrong keys.
    del http.headers["authorization"]
    answer = http.request(method, re.sub(r"\{\w+\}", "x", path))
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert "send the header `Authorization: Bearer smk_" in answer.json()["detail"]


@pytest.mark.parametrize(("call", "needed"), ROLES.items(), ids=lambda value: " ".join(value) if isinstance(value, tuple) else value.value)
def test_a_route_refuses_every_role_below_its_own(call, needed):
    method, path = call
    address = re.sub(r"\{\w+\}", "x", path)
    for role in RANKS[: RANKS.index(needed)]:
        for tenant in (RESEARCH, "*"):
            answer = WORLD.http(tenant, role=role).request(method, address)
            assert (answer.status_code, answer.json()["code"]) == (403, "role_too_low")
            assert f"--role {needed.value}" in answer.json()["detail"]
    if path != "/v1/events":  # A stream of changes ends only after minutes.
        answer = WORLD.http("*", role=needed).request(method, address)
        assert answer.status_code < 400 or answer.json()["code"] != "role_too_low"


def test_a_route_without_a_row_answers_nobody():
    admin = Principal(key="00000001", tenant=RESEARCH, role=Role.ADMIN)
    with pytest.raises(RoleTooLow, match="GET /v1/new"):
        check_role(admin, "GET", "/v1/new")


def test_a_viewer_sees_a_run_and_cannot_cancel_it():
    world = GatewayWorld()
    world.client().submit_spec(spec_of("a", id="night"))
    viewer, submitter = world.http(role=Role.VIEWER), world.http(role=Role.SUBMITTER)
    assert viewer.get("/v1/runs/night").status_code == 200
    assert viewer.post("/v1/runs/night/cancel").status_code == 403
    assert viewer.post("/v1/runs", json=spec_of("b")).json()["code"] == "role_too_low"
    assert submitter.post("/v1/runs/night/cancel").status_code == 202


@pytest.mark.parametrize(
    ("role", "tenant", "permissions"),
    [
        pytest.param(Role.VIEWER, RESEARCH, ["read"], id="viewer"),
        pytest.param(Role.SUBMITTER, RESEARCH, ["read", "submit", "cancel"], id="submitter"),
        pytest.param(Role.ADMIN, RESEARCH, ["read", "submit", "cancel", "stop_tenants", "manage_keys"], id="admin"),
        pytest.param(Role.VIEWER, "*", ["read", "audit", "metrics"], id="viewer of all tenants"),
    ],
)
def test_whoami_shows_the_role_and_its_permissions(role, tenant, permissions):
    shown = WORLD.http(tenant, role=role).get("/v1/whoami").json()
    assert (shown["role"], shown["permissions"], shown["expires_at"]) == (role.value, permissions, None)


def test_use_of_a_key_is_recorded_once_a_minute():
    world = GatewayWorld()
    http, other = world.http(), world.http()
    used = []
    for pause_ms in (0, 1_000, 60_000):
        world.clock.advance(pause_ms)
        http.get("/v1/whoami")
        used.append(sorted(line.used_ms for line in world.keys.list()))
    first_ms = used[0][1]
    assert used == [[0, first_ms], [0, first_ms], [0, first_ms + 61_000]]
    assert other.get("/v1/runs").status_code == 200


def test_use_of_a_meshs_key_is_recorded_too():
    world = GatewayWorld()
    text = issue_for_mesh(world.keys, MeshId("east"), NOW_MS)
    asking_mesh(f"Bearer {text}", world.dependencies())
    assert [line.used_ms for line in world.keys.list()] == [NOW_MS]


def test_a_store_that_takes_no_writes_refuses_no_call():
    class Full(MemoryKeyRing):
        def note_use(self, key: str, at_ms: int) -> None:
            raise StoreUnavailable(f"no memory for {key} at {at_ms}")

    world = GatewayWorld()
    world.keys = Full()
    world.app.state.dependencies = world.dependencies()
    assert world.http().get("/v1/runs").status_code == 200


def test_expired_key_is_refused_with_its_remedy():
    world = GatewayWorld()
    http = world.http()
    world.keys.expire(http.headers["authorization"].split("_")[1], NOW_MS)
    answer = http.get("/v1/runs")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert "has expired; `schedulemesh keys create`" in answer.json()["detail"]
