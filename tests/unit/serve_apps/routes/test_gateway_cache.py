"""`/v1/cache`: listed and removed within the reach of a key; `cache` where none can be."""

from __future__ import annotations

import pytest

from dag.result_cache import CacheEntry
from mesh.core.values import json_value
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld

OTHER = "acme/ops"


def keep(world, key, tenant=RESEARCH, run="r", at_ms=None):
    at_ms = world.clock.wall_ms() if at_ms is None else at_ms
    entry = CacheEntry(key=key, tenant=tenant, function="call:m:f", run=run, node="a", value=json_value(b"1"), created_ms=at_ms,
                       expires_ms=at_ms + 60_000, took_ms=7)  # fmt: skip
    world.cache.keep(entry, b"1")


@pytest.fixture
def world():
    return GatewayWorld()


def listed(http, **params):
    return [entry["key"] for entry in http.get("/v1/cache", params=params).json()["entries"]]


def test_a_key_lists_the_values_of_its_tenants(world):
    keep(world, "k1", at_ms=1), keep(world, "k2", at_ms=2), keep(world, "o", "rival")
    assert listed(world.http()) == ["k2", "k1"]
    assert listed(world.http(), limit=1) == ["k2"]
    assert sorted(listed(world.http("*"))) == ["k1", "k2", "o"]
    assert world.http().get("/v1/cache", params={"tenant": "rival"}).status_code == 403


def test_values_are_removed_by_key_run_or_all(world):
    for key in ("k1", "k2", "k3", "k4"):
        keep(world, key, run="r" if key < "k3" else "s")
    http = world.http()
    assert http.post("/v1/cache/drop", json={"keys": ["k1", "nobody"]}).json() == {"entries": 1}
    assert http.post("/v1/cache/drop", json={"run": "r"}).json() == {"entries": 1}
    assert listed(http) == ["k4", "k3"]
    assert http.post("/v1/cache/drop", json={"all": True}).json() == {"entries": 2}
    assert listed(http) == []


@pytest.mark.parametrize(
    ("holder", "body", "status"),
    [(RESEARCH, {}, 422), ("*", {"all": True}, 422), (RESEARCH, {"tenant": "rival", "all": True}, 403), (RESEARCH, {"what": 1}, 422)],
    ids=["no values", "no tenant", "out of reach", "unknown key"],
)
def test_a_wrong_removal_is_refused(world, holder, body, status):
    assert world.http(holder).post("/v1/cache/drop", json=body).status_code == status


def test_a_cache_where_none_can_be_is_refused_with_its_place(world):
    node = {"call": "shop.etl:load", "args": [{"$each": [1, 2]}], "options": {"cache": True}}
    graph = {"spec": "dag/1", "tenant": RESEARCH, "nodes": {"a": node}, "outputs": {"a": {"$ref": "a"}}}
    answer = world.http().post("/v1/runs", json=graph)
    assert answer.status_code == 422
    assert any("/nodes/a/options/cache" in str(problem) and "is an array" in str(problem) for problem in answer.json()["problems"])
