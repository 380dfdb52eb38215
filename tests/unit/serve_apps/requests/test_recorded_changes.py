"""Every call that changes something leaves an entry in the log of changes, and operators of its subtree alone see it."""

import json
import re

import pytest

from federation.api_keys import Role
from federation.change_log import Change, Outcome
from federation.errors import StoreUnavailable
from federation.link import LINK_PATH
from federation.store.memory.change_log import MemoryChangeLog
from mesh.core.wire import encode
from serve_apps.gateway_fixtures import ACME, EAST, RESEARCH, RIVAL, GatewayWorld, spec_of, with_mesh
from serve_apps.requests.recorded_changes import NOT_RECORDED, RECORDED
from serve_apps.requests.roles import ROLES, SUBJECTS
from serve_apps.services.change_listing import ChangeFilter, changes_after, newest_changes

MUTATING = sorted(
    (method.upper(), path)
    for path, methods in GatewayWorld().app.openapi()["paths"].items()
    for method in methods
    if method != "get" and not path.startswith(f"{LINK_PATH}/")
)


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


def entries(world, tenant="*", role=Role.OPERATOR, **params) -> list[dict]:
    answer = world.http(tenant, role=role).get("/v1/changes", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["changes"]


def id_in(http) -> str:
    return http.headers["authorization"].split("_")[1]


# ---- every route


def test_all_other_calls_are_recorded():
    assert set(MUTATING) - RECORDED == set(NOT_RECORDED)
    assert len(RECORDED) > 15


@pytest.mark.parametrize(("method", "path"), sorted(RECORDED), ids=" ".join)
def test_a_change_leaves_one_entry(world, method, path):
    http = world.http("*", "ann", Role.ADMIN)
    answer = http.request(method, re.sub(r"\{\w+\}", "x", path), headers={"X-Request-ID": "mine"})
    (entry,) = entries(world)
    assert (entry["operation"], entry["key"], entry["user"], entry["request_id"]) == (f"{method} {path}", id_in(http), "ann", "mine")
    assert entry["outcome"] == ("allowed" if answer.status_code < 400 else "refused")
    assert entry["code"] == ("" if answer.status_code < 400 else answer.json()["code"])


@pytest.mark.parametrize(("method", "path"), sorted(RECORDED), ids=" ".join)
def test_a_role_that_is_too_low_leaves_an_entry(world, method, path):
    http = world.http(RESEARCH, role=Role.VIEWER)
    assert http.request(method, re.sub(r"\{\w+\}", "x", path)).status_code == 403
    (entry,) = entries(world)
    assert (entry["outcome"], entry["code"], entry["key"], entry["tenant"]) == ("refused", "role_too_low", id_in(http), RESEARCH)


@pytest.mark.parametrize(("method", "path"), sorted(RECORDED), ids=" ".join)
def test_a_body_that_cannot_be_read_leaves_an_entry(world, method, path):
    http, address = world.http("*", role=Role.ADMIN), re.sub(r"\{\w+\}", "x", path)
    asked = {"content": b"{", "headers": {"Content-Type": "application/json"}}
    answer = http.request(method, address, **asked)
    (entry,) = entries(world)
    assert (entry["operation"], entry["key"], entry["code"]) == (f"{method} {path}", id_in(http), answer.json().get("code", ""))
    stranger = world.http(None).request(method, address, **asked)
    assert (stranger.status_code, stranger.json()["code"], len(entries(world))) == (401, "unauthorized", 1)


def test_an_unknown_parameter_leaves_an_entry(world):
    assert world.http("*").post(f"/v1/tenants/{ACME}/suspend", params={"resaon": "x"}).status_code == 422
    assert [(entry["tenant"], entry["outcome"]) for entry in entries(world)] == [(ACME, "refused")]


def test_every_call_that_is_no_read_declares_its_subject():
    assert set(SUBJECTS) == {call for call in ROLES if call[0] != "GET"}


def test_a_submission_that_the_key_may_not_make_leaves_an_entry(world):
    viewer, other = world.http(RESEARCH, "ann", Role.VIEWER), world.http(RESEARCH, "bob")
    assert viewer.post("/v1/runs", json=spec_of("a", id="night")).status_code == 403
    assert other.post("/v1/runs", json=spec_of("a", id="night", tenant=RIVAL)).status_code == 403
    assert other.post("/v1/runs", json=spec_of("a", id="night")).status_code == 202
    assert other.post("/v1/runs", json={"spec": "dag/1"}).status_code == 422
    found = [(entry["user"], entry["tenant"], entry["code"], entry["details"]) for entry in entries(world)]
    assert found == [
        ("ann", RESEARCH, "role_too_low", {}),
        ("bob", RESEARCH, "forbidden", {"id": "night", "tenant": RIVAL}),
    ]


def test_a_call_without_a_key_leaves_no_entry(world):
    assert world.http(None).post(f"/v1/tenants/{ACME}/suspend").status_code == 401
    assert entries(world) == []


def test_reads_leave_no_entry(world):
    world.http().get("/v1/runs")
    world.http().post("/v1/plan", json=spec_of("a"))
    world.client().submit_spec(spec_of("a", id="night"))
    assert entries(world) == []


# ---- what an entry says


def test_a_change_of_a_run_is_about_its_tenant(world):
    world.client().submit_spec(spec_of("a", id="night"))
    operator = world.http("*")
    assert operator.post("/v1/runs/night/cancel", json={"reason": "too dear"}).status_code < 300
    (entry,) = entries(world, RESEARCH)
    assert (entry["tenant"], entry["target"], entry["details"]) == (RESEARCH, "night", {"reason": "too dear"})
    assert (entry["key"], entry["outcome"], entry["at"]) == (id_in(operator), "allowed", "2023-11-14T22:13:20.000Z")


def test_a_removed_run_is_still_named(world):
    world.client().submit_spec(spec_of("a", id="night"))
    world.succeed("night", {"a": 1})
    world.runs.settle("night")
    assert world.http().delete("/v1/runs/night").status_code == 204
    (entry,) = entries(world, RESEARCH)
    assert (entry["operation"], entry["target"], entry["outcome"]) == ("DELETE /v1/runs/{run_id}", "night", "allowed")


def test_a_drain_of_a_mesh_is_about_all_tenants(world):
    with_mesh(world)
    assert world.http("*").post(f"/v1/meshes/{EAST}/drain", json={"reason": "disks"}).status_code == 200
    (entry,) = entries(world)
    assert (entry["tenant"], entry["target"], entry["details"]) == ("*", EAST, {"reason": "disks"})
    assert entries(world, ACME) == []


def test_a_drop_of_values_is_about_the_tenant_of_its_body(world):
    for tenant in (RESEARCH, "nobody"):
        world.http("*").post("/v1/cache/drop", json={"tenant": tenant, "all": True})
    world.http(RIVAL).post("/v1/cache/drop", json={"tenant": RESEARCH, "all": True})
    assert [(entry["tenant"], entry["outcome"]) for entry in entries(world)] == [
        (RESEARCH, "allowed"),
        ("*", "refused"),
        (RIVAL, "refused"),
    ]


def test_a_schedule_is_about_the_tenant_of_its_graph(world):
    graph = {name: value for name, value in spec_of("a", tenant=RESEARCH).items() if name != "id"}
    assert world.http("*").put("/v1/schedules/nightly", json={"cron": "0 3 * * *", "graph": graph}).status_code == 201
    assert [entry["target"] for entry in entries(world, RESEARCH)] == ["nightly"]


def test_no_value_of_a_signal_is_recorded(world):
    for body in ({"reason": "s3cret"}, "s3cret"):
        world.http().post("/v1/runs/night/signals/go", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert [entry["details"] for entry in entries(world)] == [{}, {}]


def test_a_schedule_has_a_digest_of_its_graph(world):
    graph = {name: value for name, value in spec_of("a").items() if name != "id"}
    for cron in ("0 3 * * *", "0 4 * * *"):
        body = {"cron": cron, "graph": {**graph, "params": {"password": "s3cret"}}}
        world.http().put("/v1/schedules/nightly", json=body)
    first, second = entries(world)
    assert (first["target"], first["tenant"], first["details"]["cron"]) == ("nightly", RESEARCH, "0 3 * * *")
    assert first["details"]["sha256"] != second["details"]["sha256"]
    assert "s3cret" not in str([first, second])


def test_long_texts_are_cut(world):
    world.http("*").post(f"/v1/tenants/{ACME}/suspend", json={"reason": "x" * 900})
    assert all(len(text) <= 300 for entry in entries(world) for text in entry["details"].values())


def test_a_store_that_takes_no_entry_hides_no_change(world, monkeypatch):
    def gone(_change):
        raise StoreUnavailable("away")

    monkeypatch.setattr(world.changes, "append", gone)
    assert world.http("*").post(f"/v1/tenants/{ACME}/suspend").status_code == 200


# ---- who sees what


def test_an_operator_sees_its_subtree_alone(world):
    world.http("*").post(f"/v1/tenants/{RESEARCH}/suspend")
    world.http("*").post(f"/v1/tenants/{RIVAL}/suspend")
    world.http("*").post("/v1/tenants/nobody/suspend")
    seen = {tenant: [entry["tenant"] for entry in entries(world, tenant)] for tenant in ("*", ACME, RESEARCH, RIVAL)}
    assert seen == {"*": [RESEARCH, RIVAL, "*"], ACME: [RESEARCH], RESEARCH: [RESEARCH], RIVAL: [RIVAL]}
    for role in (Role.VIEWER, Role.SUBMITTER):
        assert world.http(RESEARCH, role=role).get("/v1/changes").json()["code"] == "role_too_low"
    assert world.http(RESEARCH).get("/v1/changes", params={"tenant": RIVAL}).status_code == 403


def test_an_attempt_on_another_tenant_is_not_in_its_log(world):
    world.http(RIVAL).post(f"/v1/tenants/{RESEARCH}/suspend")
    assert entries(world, RESEARCH) == []
    (entry,) = entries(world, RIVAL)
    assert (entry["target"], entry["outcome"], entry["tenant"]) == (RESEARCH, "refused", RIVAL)


def test_changes_are_filtered_and_followed(world):
    for number, user in enumerate(("ann", "bob", "ann")):
        world.http("*", user).post(f"/v1/tenants/{RESEARCH}/suspend", json={"reason": str(number)})
        world.clock.advance(60_000)
    assert [entry["details"]["reason"] for entry in entries(world, user="ann")] == ["0", "2"]
    assert [entry["details"]["reason"] for entry in entries(world, since="2023-11-14T22:14:00Z")] == ["1", "2"]
    assert [entry["details"]["reason"] for entry in entries(world, limit=2)] == ["1", "2"]
    first = world.http("*").get("/v1/changes", params={"after": 0, "limit": 2}).json()
    rest = world.http("*").get("/v1/changes", params={"after": first["next"]}).json()
    assert [entry["number"] for page in (first, rest) for entry in page["changes"]] == [1, 2, 3]
    assert world.http("*").get("/v1/changes", params={"after": rest["next"]}).json() == {"changes": [], "next": 3}


def test_a_surrogate_in_a_body_is_no_way_around_the_log(world):
    answer = world.http("*").post(
        f"/v1/tenants/{ACME}/suspend", content=b'{"reason": "\\ud800"}', headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    ((_, change),) = world.changes.newest("acme", None, 9)
    assert (change.code, change.details) == ("invalid_parameters", {"reason": "\\ud800"})
    encode(change)  # As the store does, which takes UTF-8 only.


def test_a_change_during_a_read_comes_once():
    class Busy(MemoryChangeLog):
        """Gets an entry between the read of the last number and that of the entries."""

        def last(self) -> int:
            last = super().last()
            self.append(change)
            return last

    change = Change(at_ms=1, operation="x", tenant=ACME, key="k", outcome=Outcome.ALLOWED)
    log, wanted = Busy(), ChangeFilter(top=ACME)
    log.append(change)
    first, mark = newest_changes(log, wanted, 10)
    later, _ = changes_after(log, wanted, mark, 10)
    assert [entry.number for entry in (*first, *later)] == [1, 2]


def test_a_drop_names_the_keys_of_the_values(world):
    world.http(ACME).post("/v1/cache/drop", json={"keys": ["ab12"]})
    (entry,) = entries(world)
    assert entry["details"]["keys"] == "['ab12']"
