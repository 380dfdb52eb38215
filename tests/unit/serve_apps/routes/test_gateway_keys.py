"""`/v1/keys`: admins list and revoke the keys of their tenants."""

import pytest

from federation.api_keys import Role
from mesh.core.ids import MeshId
from serve_apps.gateway_fixtures import NOW_MS, RESEARCH, GatewayWorld
from serve_apps.requests.auth import issue_for_mesh


def id_in(http) -> str:
    return http.headers["authorization"].split("_")[1]


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


def test_an_admin_sees_the_keys_of_its_tenants_alone(world):
    admin, viewer, other = world.http(RESEARCH, role=Role.ADMIN), world.http(RESEARCH, "ann", Role.VIEWER), world.http("rival")
    mesh = issue_for_mesh(world.keys, MeshId("east"), NOW_MS).split("_")[1]
    listed = admin.get("/v1/keys").json()["keys"]
    assert {line["key"] for line in listed} == {id_in(admin), id_in(viewer)}
    (shown,) = (line for line in listed if line["key"] == id_in(viewer))
    assert (shown["role"], shown["user"], shown["used_at"], shown["expires_at"], shown["revoked"]) == ("viewer", "ann", None, None, False)
    assert "sha256" not in shown
    everywhere = {line["key"] for line in world.http("*", role=Role.ADMIN).get("/v1/keys").json()["keys"]}
    assert everywhere > {id_in(other), mesh}


def test_a_revoked_key_is_refused_at_once(world):
    admin, viewer = world.http(RESEARCH, role=Role.ADMIN), world.http(RESEARCH, role=Role.VIEWER)
    for _ in range(2):
        assert admin.post(f"/v1/keys/{id_in(viewer)}/revoke").json()["revoked"] is True
    assert viewer.get("/v1/runs").status_code == 401


@pytest.mark.parametrize("key", ["00000000", "x", "of a rival", "of a mesh"])
def test_no_admin_revokes_a_key_out_of_reach(world, key):
    admin, rival = world.http(RESEARCH, role=Role.ADMIN), world.http("rival")
    mesh = issue_for_mesh(world.keys, MeshId("east"), NOW_MS).split("_")[1]
    named = {"of a rival": id_in(rival), "of a mesh": mesh}.get(key, key)
    answer = admin.post(f"/v1/keys/{named}/revoke")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_key")
    assert not any(line.revoked for line in world.keys.list())
