"""Loading of federation files, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dag.webhooks.webhook import Webhook
from federation.config.loading import (
    FederationConfig,
    cost_rules_of,
    default_tenant_of,
    flap_rules_of,
    load_config,
    mesh_record_of,
    stage_settings_of,
    tenants_of,
)
from federation.config.sections.meshes import MeshLink
from federation.config.sections.values import format_duration, parse_duration
from federation.errors import ConfigError
from federation.estimates import CostRules
from federation.flap_detection import FlapRules
from federation.tenants import Quota, TenantTree
from mesh.core.ids import TenantPath
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import PreemptionLimits
from mesh.stages.stage_settings import DEFAULT_SETTINGS, NodeWeights, QueueRules, StageSettings
from serve_apps.configuration.config_file import read_config
from serve_apps.configuration.dispatch_rules import webhooks_of

CONFIGS = Path(__file__).parents[4] / "configs"
SMALL = """\
federation: {name: small}
root: {cluster: root}
clusters: {local: {shared: true, nodes: [{cpu: 4, labels: {zone: east}}]}, root: {nodes: [{cpu: 1}]}}
flavors: {standard: {labels: {tier: standard}}}
meshes: {east: {cluster: local, labels: {tier: standard}, pools: {general: {flavor: standard, capacity: {cpu: 4, memory: 1GiB}}}}}
"""
TENANTS = "tenants: {acme: {}}\n"
POOLS: dict[str, Any] = {"pools": {"general": {"flavor": "standard", "capacity": {"cpu": 1}}}}


def loaded(text: str) -> FederationConfig:
    return load_config(text, source="x.yaml")


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        loaded(text)
    return str(refused.value).splitlines()


def changed(*path: str | int, to: Any) -> str:
    """Return the small file as YAML with one value set."""
    value: Any = yaml.safe_load(SMALL + TENANTS)
    part = value
    for key in path[:-1]:
        part = part[key] if isinstance(key, int) else part.setdefault(key, {})
    part[path[-1]] = to
    return yaml.safe_dump(value, sort_keys=False)


def planned(policy: str, **plugins: str) -> dict[str, Any]:
    """Return a mesh with plugins, one pool and its policy."""
    pool = {"flavor": "standard", "capacity": {"cpu": 1}, "policy": policy}
    return {"cluster": "local", "labels": {"tier": "standard"}, "pools": {"general": pool}, "plugins": plugins}


def test_the_least_file_fills_in_every_default():
    config = loaded(SMALL + TENANTS)
    assert config.warnings == ()
    assert (config.federation.lease_ttl_ms, config.federation.heartbeat_ms, config.federation.lease_grace_ms) == (10_000, 2_000, 3_000)
    assert (config.federation.inline_limit_bytes, config.federation.body_limit_bytes) == (65_536, 16 * 2**20)
    assert config.redis.url is None
    assert (config.root.host, config.root.port, config.root.gateways) == ("127.0.0.1", 8000, 1)
    assert config.clusters["local"].object_store_bytes == 200 * 2**20
    assert config.meshes["east"].tenants == ("*",)


def test_routing_costs_come_from_the_file():
    config = loaded(
        changed("routing", to={"probation": "0s", "probation_max": "1m", "loss_window": "1h", "bandwidth": "1GiB", "run_time": "2s"})
    )
    assert flap_rules_of(config) == FlapRules(probation_ms=0, probation_ms_max=60_000, window_ms=3_600_000)
    assert cost_rules_of(config) == CostRules(bandwidth_bytes_per_s=2**30, run_ms_unknown=2_000)
    least = loaded(SMALL + TENANTS)
    assert (flap_rules_of(least), cost_rules_of(least)) == (FlapRules(), CostRules())


def test_a_flavor_may_shun_labels():
    text = changed("flavors", "standard", "labels", to={"tier": "!in(gold, silver)", "spot": "!"})
    assert loaded(text).flavors["standard"].labels == {"tier": "!in(gold, silver)", "spot": "!"}
    assert "tier=standard is excluded" in complaints(changed("flavors", "standard", "labels", to={"tier": "!standard"}))[0]


SHIPPED = sorted(file.name for file in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_are_valid_without_warnings(name: str):
    config = read_config(CONFIGS / name)
    assert [warning.place for warning in config.warnings] == (["clusters.local.shared"] if name == "quickstart.yaml" else [])
    assert config.import_paths == (str(CONFIGS.parent),)
    assert all(tenant.pickled_code for tenant in tenants_of(config) if tenant.parent is None)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name != "quickstart.yaml"])
def test_the_root_has_a_cluster_of_its_own_in_what_is_shipped(name: str):
    config = read_config(CONFIGS / name)
    assert all(mesh.cluster != config.root.cluster for mesh in config.meshes.values())


def test_both_forms_of_tenants_mean_the_same():
    quotas = "quotas: {standard: {cpu: {nominal: 0.5, borrowing_limit: 1}, memory: {nominal: 1GiB, lending_limit: 0}}}"
    tree = f"tenants: {{acme: {{pickled_code: true, tenants: {{a: {{tenants: {{b: {{{quotas}}}}}}}}}}}}}"
    listed = f"""
tenants:
  - {{name: b, parent: a, {quotas}}}
  - {{name: a, parent: acme}}
  - {{path: acme, pickled_code: true}}
"""
    assert set(map(repr, tenants_of(loaded(SMALL + listed)))) == set(map(repr, tenants_of(loaded(SMALL + tree))))
    assert [tenant.path for tenant in tenants_of(loaded(SMALL + listed))] == ["acme", "acme/a", "acme/a/b"]


def test_the_tenants_of_a_file_are_placed_once():
    config = loaded(SMALL + "tenants: {acme: {}}")
    assert config.placed_tenants is config.placed_tenants
    assert config.model_copy(update={"import_paths": ()}).placed_tenants is config.placed_tenants


MOVED = {
    "as a tree": "{acme: {tenants: {lab: {tenants: {vision: {parent: shop, tenants: {team: {}}}}}}}, shop: {pickled_code: true}}",
    "as a list": "[{path: acme/lab/vision/team}, {path: acme/lab/vision, parent: shop}, {path: acme/lab}, {path: acme}, "
    "{path: shop, pickled_code: true}]",
}


@pytest.mark.parametrize("tenants", MOVED.values(), ids=MOVED)
def test_tenant_may_have_another_parent_than_its_path(tenants: str):
    tree = TenantTree(tenants_of(loaded(SMALL + f"tenants: {tenants}")))
    assert tree.ancestors(TenantPath("acme/lab/vision/team")) == ("acme/lab/vision", "shop")
    assert tree.children(TenantPath("acme/lab")) == ()
    assert tree.tenant(TenantPath("acme/lab/vision/team")).pickled_code  # Rights come from the parent.


def test_explicit_parent_needs_no_tenant_named_by_the_path():
    tree = TenantTree(tenants_of(loaded(SMALL + "tenants: [{path: shop}, {path: gone/vision, parent: shop}]")))
    assert tree.ancestors(TenantPath("gone/vision")) == ("shop",)


def test_quotas_are_in_units_and_an_absent_limit_is_none():
    tree = "tenants: {acme: {tenants: {b: {quotas: {standard: {cpu: {nominal: 0.5, borrowing_limit: 1}, memory: {nominal: 1GiB}}}}}}}"
    tenant = tenants_of(loaded(SMALL + tree))[1]
    assert tenant.parent == "acme"
    assert tenant.quotas == {
        ("standard", "cpu"): Quota(nominal=5_000, borrowing_limit=10_000, lending_limit=None),
        ("standard", "memory"): Quota(nominal=2**30),
    }


def test_rights_come_from_above_unless_a_tenant_has_its_own():
    tree = """
tenants:
  acme:
    functions: ["a.*:*"]
    pickled_code: true
    tenants:
      heir: {}
      own: {functions: [], pickled_code: false, tenants: {below: {}}}
"""
    rights = {tenant.path: (tenant.functions, tenant.pickled_code) for tenant in tenants_of(loaded(SMALL + tree))}
    assert rights == {
        "acme": (("a.*:*",), True),
        "acme/heir": (("a.*:*",), True),
        "acme/own": ((), False),
        "acme/own/below": ((), False),
    }


def test_mesh_pools_are_in_units():
    record = mesh_record_of(loaded(SMALL + TENANTS), "east", cluster="ray-1", address="10.0.0.5:6379")
    assert (record.mesh, record.cluster, record.address, record.labels) == ("east", "ray-1", "10.0.0.5:6379", {"tier": "standard"})
    assert [(pool.pool, pool.flavor) for pool in record.pools] == [("general", "standard")]
    assert record.pools[0].capacity == ResourceSet({"cpu": 40_000, "memory": 2**30})
    with pytest.raises(ConfigError, match="no mesh 'west'"):
        mesh_record_of(loaded(SMALL + TENANTS), "west", cluster="ray-1")


WRONG = {
    "a misspelt count of reserved groups": (
        changed("meshes", "east", "pools", "general", "groups", to={"reserved": [{"cpu": 1, "cuont": 2}]}),
        "groups.reserved[0].cuont: the pool has no cuont; did you mean count? (it has cpu, memory)",
    ),
    "a reserved group of nothing": (
        changed("meshes", "east", "pools", "general", "groups", to={"reserved": [{"count": 2}]}),
        "groups.reserved[0]: must name an amount of a resource, like {cpu: 1, count: 2}",
    ),
    "a negative quota": (
        SMALL + "tenants:\n  acme:\n    quotas:\n      standard:\n        cpu:\n          nominal: -4\n",
        "x.yaml:11:11: tenants.acme.quotas.standard.cpu.nominal: must not be negative (got -4); write 0 or more",
    ),
    "a negative size": (
        changed("tenants", "acme", "quotas", to={"standard": {"memory": {"nominal": "-4GiB"}}}),
        "nominal: must not be negative (got -4GiB)",
    ),
    "an amount finer than the ledger counts": (changed("meshes", "east", "pools", "general", "capacity", "cpu", to=0.00001), "finer than"),
    "an amount that is no number": (changed("meshes", "east", "pools", "general", "capacity", "cpu", to="many"), "'many' is not a number"),
    "an amount that is true": (changed("tenants", "acme", "quotas", to={"standard": {"cpu": {"nominal": True}}}), "must be an amount"),
    "a misspelt key": (changed("federation", "leese_ttl", to="10s"), "federation.leese_ttl: unknown key; did you mean lease_ttl?"),
    "a key that resembles nothing": (changed("root", "zzz", to=1), "root.zzz: unknown key; known here: cluster, gateways, host, port"),
    "a key beside the one it was meant to be": (
        changed("root", "clusters", to="local"),
        "root.clusters: unknown key; did you mean cluster, which is present already?",
    ),
    "a misspelt flavor": (
        changed("meshes", "east", "pools", "general", "flavor", to="standrad"),
        "meshes.east.pools.general.flavor: unknown flavor 'standrad'; did you mean standard? known: standard",
    ),
    "a quota for an unknown flavor": (changed("tenants", "acme", "quotas", to={"gold": {}}), "unknown flavor 'gold'; known: standard"),
    "an unknown cluster": (
        changed("meshes", "east", "cluster", to="locl"),
        "meshes.east.cluster: unknown cluster 'locl'; did you mean local?",
    ),
    "a root in an unknown cluster": (
        changed("root", "cluster", to="moon"),
        "root.cluster: unknown cluster 'moon'; did you mean root? known: root, local",
    ),
    "a mesh without the labels of the flavor it offers": (
        changed("meshes", "east", "labels", to={"tier": "gold"}),
        "the mesh east cannot offer standard: tier=standard is required, the mesh has tier=gold; add the label",
    ),
    "a mesh on nodes that do not exist": (
        changed("meshes", "east", "node_labels", to={"zone": "mars"}),
        "meshes.east.node_labels: no node of the cluster local has the labels zone=mars",
    ),
    "a pool on nodes that the mesh lacks": (
        changed("meshes", "east", "pools", "general", "node_labels", to={"zone": "mars"}),
        "meshes.east.pools.general.node_labels: no node of the mesh east matches zone=mars",
    ),
    "a pool with a broken selector": (
        changed("meshes", "east", "pools", "general", "node_labels", to={"zone": "in(mars"}),
        "meshes.east.pools.general.node_labels.zone: 'in(mars', character 8: `)` is missing",
    ),
    "an unknown node policy": (
        changed("meshes", "east", "pools", "general", "policy", to="best"),
        "meshes.east.pools.general.policy: there is no policy 'best'",
    ),
    "a node policy for single tasks": (
        changed("meshes", "east", "pools", "general", "policy", to="binpack+gang"),
        "meshes.east.pools.general.policy: the policy 'gang' places single tasks",
    ),
    "a misspelt setting of a mesh": (
        changed("meshes", "east", "preemption", to={"per_minute": 3}),
        "meshes.east.preemption.per_minute: unknown key; did you mean per_minute_max?",
    ),
    "a negative weight": (
        changed("meshes", "east", "weights", to={"contention": -1}),
        "meshes.east.weights.contention: must not be negative (got -1); write 0 or more",
    ),
    "a number with too many decimals": (
        changed("meshes", "east", "queues", to={"*": {"aging_per_s": 0.0000001}}),
        "meshes.east.queues.*.aging_per_s: must be a number like 2 or 0.01, up to 1000000 and with at most 6 decimals (got 1e-07)",
    ),
    "a threshold that is text": (
        changed("meshes", "east", "preemption", to={"threshold": "high"}),
        "meshes.east.preemption.threshold: must be a number like 2 or 0.01",
    ),
    "a queue of an unknown tenant": (
        changed("meshes", "east", "queues", to={"acm": {}}),
        "meshes.east.queues.acm: unknown tenant 'acm'; did you mean acme?",
    ),
    "a policy that names no plugin": (
        changed("meshes", "east", to=planned("0.5*mini+binpack", mine="my.module:Mine")),
        "meshes.east.pools.general.policy: '0.5*mini+binpack': policy 'mini' cannot be combined; did you mean mine?",
    ),
    "a plugin with a taken name": (
        changed("meshes", "east", "plugins", to={"binpack": "my.module:Mine"}),
        "meshes.east.plugins.binpack: policy name 'binpack' is empty, taken, or contains + or *; choose another name",
    ),
    "a plugin whose name reads as a sum": (
        changed("meshes", "east", "plugins", to={"a+b": "my.module:Mine"}),
        "meshes.east.plugins.a+b: invalid name 'a+b'",
    ),
    "a plugin that is no module and no file": (
        changed("meshes", "east", "plugins", to={"mine": "my.module"}),
        "meshes.east.plugins.mine: plugin mine: 'my.module' is neither module:attribute nor the path of a .wasm or .wat file",
    ),
    "a mesh for an unknown tenant": (
        changed("meshes", "east", "tenants", to=["acm"]),
        "meshes.east.tenants[0]: unknown tenant 'acm'; did you mean acme?",
    ),
    "a limit at the top of the tree": (
        changed("tenants", "acme", "quotas", to={"standard": {"cpu": {"nominal": 1, "borrowing_limit": 1}}}),
        "cpu.borrowing_limit: acme is at the top of the tree, with no tenant to borrow from or lend to; remove the limit",
    ),
    "heartbeats that are too rare": (
        changed("federation", to={"name": "x", "heartbeat": "5s", "lease_ttl": "10s"}),
        "federation.heartbeat: must be less than half of lease_ttl (got 5s and 10s)",
    ),
    "a longest probation that is shorter than the first": (
        changed("routing", to={"probation": "5m", "probation_max": "1m"}),
        "routing.probation_max: must be at least probation (got 1m and 5m)",
    ),
    "a mesh whose label is a wish": (
        changed("meshes", "east", "labels", to={"tier": "standard", "zone": "!west"}),
        "meshes.east.labels.zone: '!west' is a selector, but labels of a mesh are plain values",
    ),
    "a flavor whose wish cannot be read": (
        changed("flavors", "standard", "labels", to={"tier": "!in(gold"}),
        "flavors.standard.labels.tier: '!in(gold', character 9: `)` is missing; write !in(a, b)",
    ),
    "a name with other signs": (changed("tenants", to={"Acme!": {}}), "invalid name 'Acme!'; a name is 1 to 64 of"),
    "a name that climbs out of a folder": (changed("tenants", to={"..": {}}), "invalid name '..'"),
    "a name that is too long": (changed("tenants", to={"a" * 65: {}}), "invalid name"),
    "a name that ends a line": (changed("tenants", to={"acme\n": {}}), "invalid name"),
    "a label that moves the cursor": (
        changed("meshes", "east", "labels", to={"tier": "standard", "zone": "a\x1b[2J"}),
        "is a control character; leave it out",
    ),
    "quotas that no ledger can add up": (
        changed("tenants", to={name: {"quotas": {"standard": {"cpu": {"nominal": 500_000_000_000}}}} for name in ("a", "b")}),
        "tenants.b.quotas.standard.cpu.nominal: with this value the quotas for cpu of standard add up to more than 2^53 units",
    ),
    "a borrowing limit that no ledger can add up": (
        changed(
            "tenants",
            "acme",
            to={
                "quotas": {"standard": {"cpu": {"nominal": 500_000_000_000}}},
                "tenants": {"a": {"quotas": {"standard": {"cpu": {"borrowing_limit": 500_000_000_000}}}}},
            },
        ),
        "acme.tenants.a.quotas.standard.cpu.borrowing_limit: with this value the quotas for cpu of standard add up to more than 2^53",
    ),
    "one quota that no ledger can hold": (
        changed("tenants", "acme", "quotas", to={"standard": {"cpu": {"nominal": 10**12}}}),
        "nominal: cpu: 1000000000000 is not between 0 and 9007199254740991 units",
    ),
    "Ray's name for a resource": (
        changed("meshes", "east", "pools", "general", "capacity", to={"CPU": 1}),
        "unknown resource; did you mean cpu?",
    ),
    "a time without its unit": (changed("federation", "lease_ttl", to=10), "federation.lease_ttl: must be a time like 500ms, 10s"),
    "a time beyond its bounds": (changed("federation", "lease_ttl", to="2h"), "federation.lease_ttl: must be at most 1h (got 2h)"),
    "a size beyond its bounds": (changed("clusters", "local", "object_store", to="1MiB"), "must be at least 80MiB"),
    "a port that does not exist": (changed("root", "port", to=70_000), "root.port: must be at most 65535 (got 70000)"),
    "a number where a label's text belongs": (
        changed("meshes", "east", "labels", to={"tier": 1}),
        "meshes.east.labels.tier: must be text (got 1); put it in quotes",
    ),
    "a list where a mapping belongs": (changed("flavors", to=["standard"]), "flavors: must be a mapping"),
    "a mesh without a cluster": (
        changed("meshes", "east", to={"labels": {"tier": "standard"}, **POOLS}),
        "meshes.east.cluster: is missing",
    ),
    "a link that is none": (changed("meshes", "east", "link", to="tcp"), "meshes.east.link: Input should be 'direct', 'http' or 'joins'"),
    "a missing section": (SMALL, "x.yaml:1:1: tenants: is missing; The tenant tree"),
    "an empty section": (changed("meshes", to={}), "meshes: must not be empty"),
    "a cluster from nowhere": (changed("clusters", "local", to={}), "clusters.local: needs either `nodes` (started here) or `address`"),
    "a token for a cluster that up starts": (
        changed("clusters", "local", "token_file", to="token"),
        "clusters.local: `token_file` needs `address`; `up` creates the token of a cluster that it starts",
    ),
    "a user for a cluster that runs already": (
        changed("clusters", "gpu", to={"address": "10.0.0.5:6379", "user": "ray"}),
        "clusters.gpu: `user` needs `nodes`",
    ),
    "a user for the cluster of the root": (
        changed("clusters", "root", "user", to="ray"),
        "clusters.root.user: the root on this cluster holds the federation's keys",
    ),
    "a user who reaches no large values": (
        changed("clusters", "gpu", to={"nodes": [{"cpu": 1}], "user": "ray"}),
        "clusters.gpu.user: another user has no access to large values in the state folder; name a folder for them in `storage.url`",
    ),
    "an address without its port": (changed("clusters", "gpu", to={"address": "10.0.0.5"}), "clusters.gpu.address: must be host:port"),
    "a Redis that is something else": (changed("redis", "url", to="localhost:6379"), "redis.url: must begin with redis://"),
    "tenants in a circle": (
        SMALL + "tenants: [{path: acme}, {name: a, parent: b}, {name: b, parent: c}, {name: c, parent: a}]",
        "tenants[1].parent: tenants form a cycle: a -> b -> c -> a; give one of them another parent",
    ),
    "a tenant above itself": (SMALL + "tenants: [{name: a, parent: a}]", "tenants form a cycle: a -> a"),
    "an unknown parent": (SMALL + "tenants: [{path: acme}, {name: a, parent: acm}]", "there is no tenant 'acm'; did you mean acme?"),
    "a path without its parent": (SMALL + "tenants: [{path: acme/a/b}]", "the tenant acme/a/b has no parent acme/a in this file"),
    "a tenant that is listed twice": (
        SMALL + "tenants: [{path: acme}, {name: a, parent: acme}, {path: acme/a}]",
        "tenants[2]: the tenant acme/a appears twice (first as tenants[1]); keep one",
    ),
    "a tenant that is mapped twice": (
        SMALL + "tenants:\n  acme: {}\n  acme: {}",
        "x.yaml:8:3: tenants.acme: appears twice (first in line 7)",
    ),
    "another parent that is not there": (
        SMALL + "tenants: {acme: {tenants: {lab: {parent: shpo}}}, shop: {}}",
        "x.yaml:6:34: tenants.acme.tenants.lab.parent: there is no tenant 'shpo'; did you mean shop?",
    ),
    "another parent that stands below": (
        SMALL + "tenants: {acme: {parent: acme/lab, tenants: {lab: {}}}}",
        "tenants.acme.parent: tenants form a cycle: acme -> acme/lab -> acme; give one of them another parent",
    ),
    "a name in a path that is none": (
        SMALL + "tenants: [{path: shop}, {path: NO/vision, parent: shop}]",
        "tenants[1]: invalid name 'NO'",
    ),
    "moved tenants that stand too deep": (
        SMALL + "tenants: [{path: n0}, " + ", ".join(f"{{path: n{i}, parent: n{i - 1}}}" for i in range(1, 40)) + "]",
        "tenants[32]: tenants may be at most 32 levels deep",
    ),
    "a parent's name that two tenants have": (
        SMALL + "tenants: [{path: x}, {path: y}, {path: x/n}, {path: y/n}, {name: z, parent: n}]",
        "several tenants are called n; write the whole path: x/n or y/n",
    ),
    "a tenant with two names": (SMALL + "tenants: [{path: x, name: x}]", "tenants[0]: needs either `path`, or `name`"),
    "tenants that stand too deep": (
        SMALL + "tenants: [{path: n0}, " + ", ".join(f"{{name: n{i}, parent: n{i - 1}}}" for i in range(1, 40)) + "]",
        "tenants[32]: tenants may be at most 32 levels deep",
    ),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_error_is_one_line(text: str, words: str):
    lines = complaints(text)
    assert len(lines) == 1, lines
    assert words in lines[0]
    assert lines[0].startswith("x.yaml:")


def test_all_errors_are_listed_in_the_order_of_the_file():
    text = """\
federation: {name: small, heartbeat: 9s}
root: {cluster: locl}
clusters: {local: {nodes: [{cpu: 4}]}}
flavours: {standard: {labels: {tier: standard}}}
meshes: {east: {cluster: local, pools: {general: {flavor: standard, capacity: {cpu: -1}}}}}
tenants:
  acme: {quotas: {gold: {cpu: {nominal: -4}}}}
"""
    assert [line.split(": ")[:2] for line in complaints(text)] == [
        ["x.yaml:1:27", "federation.heartbeat"],
        ["x.yaml:2:8", "root.cluster"],
        ["x.yaml:4:1", "flavours"],
        ["x.yaml:5:51", "meshes.east.pools.general.flavor"],
        ["x.yaml:5:80", "meshes.east.pools.general.capacity.cpu"],
        ["x.yaml:7:19", "tenants.acme.quotas.gold"],
        ["x.yaml:7:32", "tenants.acme.quotas.gold.cpu.nominal"],
    ]


def test_values_below_a_misspelt_key_are_still_checked():
    lines = complaints("federation: {name: x, retension: soon}\n" + SMALL.partition("\n")[2] + TENANTS)
    assert lines == [
        "x.yaml:1:23: federation.retension: unknown key; did you mean retention?",
        "x.yaml:1:23: federation.retention: must be a time like 500ms, 10s, 5m, 2h or 1d (got 'soon')",
    ]


GROUPS = ("meshes", "east", "pools", "general", "groups")
DOUBTFUL = {
    "more reserved groups than the pool holds": (
        changed(*GROUPS, to={"reserved": [{"cpu": 1, "count": 5}]}),
        "pools.general.groups.reserved: the groups take 5 cpu together, the pool has 4; groups beyond it are never made",
    ),
    "a reserved group that is larger than a node": (
        changed("clusters", "local", "nodes", to=[{"cpu": 2}, {"cpu": 2}]).replace(
            "capacity:", "groups: {reserved: [{cpu: 3}]}\n        capacity:"
        ),
        "pools.general.groups.reserved[0]: no node of the mesh holds such a group",
    ),
    "a quota for a flavor that nobody offers": (
        changed("flavors", "gold", to={}).replace("acme: {}", "acme: {quotas: {gold: {cpu: {nominal: 1}}}}"),
        "tenants.acme.quotas.gold: no mesh in this file offers gold",
    ),
    "a pool that is larger than its nodes": (
        changed("meshes", "east", "pools", "general", "capacity", "cpu", to=5),
        "meshes.east.pools.general.capacity.cpu: the pools of east declare 5 cpu, its nodes have 4",
    ),
    "a quota that no pool could fill": (
        changed("tenants", "acme", to={"quotas": {"standard": {"cpu": {"nominal": 9999}}}}),
        "tenants.acme.quotas.standard.cpu.nominal: tenants own 9999 cpu of standard in total, the pools of this file have 4",
    ),
    "a tenant to which no flavor is open": (
        changed("tenants", "acme", to={"tenants": {"a": {}, "b": {"quotas": {"standard": {"cpu": {"nominal": 1}}}}}}),
        "tenants.acme.tenants.a: neither the tenant nor one above it names a quota, so its work never starts; `quotas: {standard: {cpu: {",
    ),
    "more to lend than there is": (
        changed("tenants", "acme", to={"tenants": {"a": {"quotas": {"standard": {"cpu": {"nominal": 1, "lending_limit": 2}}}}}}),
        "tenants.acme.tenants.a.quotas.standard.cpu.lending_limit: is more than the 1 that the tenant owns",
    ),
}


@pytest.mark.parametrize(("text", "words"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_doubtful_value_is_a_warning_and_no_error(text: str, words: str):
    (warning,) = loaded(text).warnings
    assert words in str(warning)
    assert str(warning).startswith("x.yaml:")


def test_warnings_are_listed_beside_errors():
    doubtful = changed("tenants", "acme", to={"quotas": {"standard": {"cpu": {"nominal": 9999}}}})
    with pytest.raises(ConfigError, match="lease_ttl") as raised:
        loaded(yaml.safe_dump({**yaml.safe_load(doubtful), "federation": {"name": "x", "lease_ttl": "2s", "heartbeat": "1s"}}))
    (warning,) = raised.value.warnings
    assert "tenants own 9999 cpu" in warning.message
    with pytest.raises(ConfigError) as raised:
        loaded(yaml.safe_dump({**yaml.safe_load(doubtful), "federation": {"name": "x", "heartbeat": "soon"}}))
    assert raised.value.warnings == ()


NOT_YAML = {
    "an empty file": ("", "x.yaml:1: the file is empty"),
    "only a comment": ("# nothing\n", "the file is empty"),
    "a list": ("- a\n", "x.yaml:1: the file must be a mapping"),
    "a slip of the pen": ("a: 1\nb: c: d\n", "x.yaml:2:5: not YAML: a second `:` in one line; put the text in quotes, or begin a new line"),
    "an open bracket": ("a: [1, 2\n", "x.yaml:2:1: not YAML: a bracket is not closed, or a comma is missing; "),
    "a tab for indentation": ("a:\n\tb: 1\n", "x.yaml:2:1: not YAML: a tab stands where a value begins; indent with spaces"),
    "a control character": ("a: 1\nb: \x01\n", "x.yaml:2: not YAML: the character U+0001 is not allowed"),
    "two documents": ("a: 1\n---\nb: 1\n", "x.yaml:2:1: not YAML: the file has a second document; keep one"),
    "an unknown alias": ("a: *b\n", "x.yaml:1:4: not YAML: the alias *b has no anchor; write &b before the value"),
    "a key twice": ("a:\n  b: 1\n  b: 2\n", "x.yaml:3:3: a.b: appears twice (first in line 2); keep one"),
    "a number for a key": ("a: {1: 2}\n", "a: a key must be text; put it in quotes"),
    "a list for a key": ("? [a]\n: b\n", "a key must be text"),
    "a Python object": (
        "a: !!python/object/apply:os.getpid []\n",
        "x.yaml:1:1: a: '…' with the tag tag:yaml.org,2002:python/object/apply:os.getpid cannot be read",
    ),
    "text that is tagged as a list": ("a: !!seq x\n", "a: 'x' with the tag tag:yaml.org,2002:seq cannot be read"),
    "a number that is none": ("a: !!int seven\n", "a: 'seven' with the tag tag:yaml.org,2002:int cannot be read"),
    "a number without end": (f"a: {'9' * 5000}\n", "a: '9999"),
    "brackets without end": ("a: " + "[" * 100_000, "nested deeper than 100"),
    "an alias of itself": ("a: &a [*a]\n", "unfolds to too many values"),
    "aliases of aliases": (
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
        "unfolds to too many values",
    ),
    "far too much text": ("#" * 5_000_000, "more than 4000000 characters"),
}


@pytest.mark.parametrize(("text", "words"), NOT_YAML.values(), ids=NOT_YAML)
def test_non_plain_yaml_is_refused_with_its_line(text: str, words: str):
    assert words in "\n".join(complaints(text))


def test_ambiguous_yaml_words_stay_text():
    config = loaded(
        changed("meshes", "east", "labels", to={}).replace("labels: {}", "labels: {tier: standard, a: no, b: 1:30, c: 2026-11-20}")
    )
    assert config.meshes["east"].labels == {"tier": "standard", "a": "no", "b": "1:30", "c": "2026-11-20"}


def test_an_address_may_hold_a_password_and_is_not_printed():
    config = loaded(changed("redis", "url", to="redis://:geheim@db:6379/0"))
    assert "geheim" not in repr(config)


@pytest.mark.parametrize(("text", "duration_ms"), [("500ms", 500), ("10s", 10_000), ("90s", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)])
def test_a_time_reads_back_as_it_is_shown(text: str, duration_ms: int):
    assert parse_duration(text) == duration_ms
    assert parse_duration(format_duration(duration_ms)) == duration_ms


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read_config(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_config(tmp_path / "x.yaml")


def test_import_paths_are_counted_from_the_file(tmp_path: Path):
    (tmp_path / "code").mkdir()
    (tmp_path / "x.yaml").write_text(SMALL + TENANTS + "import_paths: [code, .]\n", encoding="utf-8")
    assert read_config(tmp_path / "x.yaml").import_paths == (str(tmp_path / "code"), str(tmp_path))
    (tmp_path / "y.yaml").write_text(SMALL + TENANTS + "import_paths: [nowhere]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"y\.yaml:7:16: import_paths\[0\]: the folder nowhere does not exist"):
        read_config(tmp_path / "y.yaml")


def test_a_mesh_that_joins_by_itself_needs_no_cluster():
    config = loaded(changed("meshes", "east", to={"link": "joins", "labels": {"tier": "standard"}, **POOLS}))
    assert (config.meshes["east"].link, config.meshes["east"].cluster) == (MeshLink.JOINS, "")
    assert mesh_record_of(config, "east", cluster="c").mesh == "east"


def test_a_mesh_is_linked_directly_when_nothing_else_is_said():
    assert loaded(SMALL + TENANTS).meshes["east"].link is MeshLink.DIRECT


@pytest.mark.parametrize("waits", ["0s", "500ms"])
def test_time_out_of_bounds_is_quoted_as_written(waits: str):
    text = changed("tenants", "acme", to={"limits": {"max_wait": waits}})
    assert [line.partition(": ")[2] for line in complaints(text)] == [f"tenants.acme.limits.max_wait: must be at least 1s (got {waits})"]


@pytest.mark.parametrize("word", ["off", "no", "yes", "1"])
def test_a_choice_is_true_or_false_and_no_other_word(word: str):
    assert complaints(SMALL + f"quota: {{fair_sharing: {word}}}\ntenants:\n  acme: {{pickled_code: '{word}'}}\n")[-1].endswith(
        f"tenants.acme.pickled_code: must be true or false (got '{word}')"
    )


def test_submits_default_to_the_first_leaf_tenant():
    assert default_tenant_of(read_config(CONFIGS / "two_clusters.yaml")) == "acme/research/vision"
    assert default_tenant_of(loaded(SMALL + "tenants: {b: {tenants: {c: {}}}, a: {}}\n")) == "b/c"


def test_wrong_value_and_unknown_name_are_listed_together():
    text = changed("tenants", "acme", to={"limits": {"max_wait": "soon"}, "quotas": {"standart": {"cpu": {"nominal": 1}}}})
    assert [line.split(": ")[1] for line in complaints(text)] == ["tenants.acme.limits.max_wait", "tenants.acme.quotas.standart"]


WRONG_AT_EVERY_STAGE = """\
federation: {name: Big, port: 1}
root: {cluster: locl, port: 99999}
clusters:
  local: {nodes: [{cpu: lots}]}
  other: {}
flavors: {standard: {labels: {tier: standard}}}
meshes:
  east: {cluster: local, pools: {general: {capacity: {cpu: 4}}}}
  west: {cluster: othr, pools: {general: {flavor: standrd, capacity: {cpus: 4}}}}
  west: {}
import_paths: [nowhere]
"""


def test_errors_of_all_checks_are_listed_together():
    with pytest.raises(ConfigError) as raised:
        load_config(WRONG_AT_EVERY_STAGE, source="x.yaml", is_folder=lambda path: path != "nowhere")
    assert [(one.line, one.place) for one in raised.value.located] == [
        (1, "tenants"),
        (1, "federation.name"),
        (1, "federation.port"),
        (2, "root.cluster"),
        (2, "root.port"),
        (4, "clusters.local.nodes[0].cpu"),
        (5, "clusters.other"),
        (8, "meshes.east.pools.general.flavor"),
        (9, "meshes.west.cluster"),
        (9, "meshes.west.pools.general.flavor"),
        (9, "meshes.west.pools.general.capacity.cpus"),
        (10, "meshes.west"),
        (11, "import_paths[0]"),
    ]
    assert str(raised.value).splitlines() == [str(one) for one in raised.value.located]


MADE_UP = {
    "a missing section": (
        SMALL.replace("clusters: {local: {shared: true, nodes: [{cpu: 4, labels: {zone: east}}]}, root: {nodes: [{cpu: 1}]}}\n", "")
        + TENANTS,
        ["clusters"],
    ),
    "a section that is empty": (changed("flavors", to={}), ["flavors"]),
    "a tenant that nobody can name": (SMALL + "tenants: [{path: a, name: a}, {name: b, parent: a}]\n", ["tenants[0]"]),
    "a cluster that is none": (changed("clusters", "local", to=7), ["clusters.local"]),
    "a list for a mapping": (changed("meshes", to=[1]), ["meshes"]),
}


@pytest.mark.parametrize(("text", "places"), MADE_UP.values(), ids=MADE_UP)
def test_nothing_is_said_of_what_stands_for(text: str, places: list[str]):
    with pytest.raises(ConfigError) as raised:
        loaded(text)
    assert [one.place for one in raised.value.located] == places
    assert "…" not in str(raised.value)


def test_nothing_is_said_that_only_follows_from_a_wrong_value():
    late = "federation: {name: small, lease_ttl: never, heartbeat: 8s}"
    problems = complaints(SMALL.replace("federation: {name: small}", late).replace("zone: east", "zone: 7") + TENANTS)
    assert [line.split(": ")[1] for line in problems] == ["federation.lease_ttl", "clusters.local.nodes[0].labels.zone"]
    link = SMALL.replace("cluster: local, labels", "link: joinz, labels")
    assert [line.split(": ")[1] for line in complaints(link + TENANTS)] == ["meshes.east.link"]


TOO_MUCH = "tenants: {a: {quotas: {standard: {cpu: {nominal: 1}}}}, b: {quotas: {standard: {cpu: {nominal: 9}}}}}"
IN_SUM = "tenants: {a: {quotas: {standard: {cpu: {nominal: 3}}}}, b: {quotas: {standard: {cpu: {nominal: 3}}}}}"


@pytest.mark.parametrize(("tenants", "place"), [(TOO_MUCH, "tenants.b."), (IN_SUM, "tenants.b.")], ids=["one alone", "the sum"])
def test_excess_quota_is_reported_at_its_number(tenants: str, place: str):
    (found,) = (warning.place for warning in loaded(SMALL + tenants).warnings if "own" in warning.message)
    assert found == f"{place}quotas.standard.cpu.nominal"


def test_excess_quota_is_reported_at_its_line():
    quota = "    quotas:\n      standard:\n        cpu:\n          nominal: "
    lines = (SMALL + f"tenants:\n  a:\n{quota}3\n  b:\n{quota}2").splitlines()
    (warning,) = loaded("\n".join(lines)).warnings
    assert str(warning).startswith(f"x.yaml:{len(lines)}:11: tenants.b.quotas.standard.cpu.nominal: tenants own 5 cpu of standard")


def test_a_resource_that_pools_write_otherwise_is_a_warning():
    pools = SMALL.replace("cpu: 4, memory: 1GiB", "cpu: 4, tpu: 2")
    warnings = [str(warning) for warning in loaded(pools + "tenants: {a: {quotas: {standard: {TPU: {nominal: 1}}}}}").warnings]
    assert any("quotas.standard.TPU: no pool of the flavor standard has TPU; did you mean tpu?" in line for line in warnings)
    both = SMALL.replace("cpu: 4, memory: 1GiB", "cpu: 4, TPU: 2, tpu: 2")
    warnings = [str(warning) for warning in loaded(both + "tenants: {a: {quotas: {standard: {TPU: {nominal: 1}}}}}").warnings]
    assert not any("did you mean" in line for line in warnings)


def test_resource_missing_from_all_pools_is_a_warning():
    warnings = [
        str(warning) for warning in loaded(SMALL + "tenants:\n  a:\n    quotas:\n      standard:\n        lamp: {nominal: 1}").warnings
    ]
    line = (SMALL + "tenants:\n  a:\n    quotas:\n      standard:\n").count("\n") + 1
    assert f"x.yaml:{line}:9: tenants.a.quotas.standard.lamp: no pool of the flavor standard has lamp; there is cpu, memory" in warnings


def test_settings_of_a_mesh_become_whole_millionths():
    set_up = {
        "weights": {"availability": 0.25, "contention": 0},
        "preemption": {"threshold": -0.5, "lost_work_per_s": 0.001, "per_minute_max": 3},
        "queues": {"acme": {"priority": 5}, "*": {"aging_per_s": 0.000001}},
    }
    value = yaml.safe_load(SMALL + TENANTS)
    value["meshes"]["east"].update(set_up)
    value["meshes"]["east"]["pools"]["general"]["protected"] = True
    config = loaded(yaml.safe_dump(value))
    settings = StageSettings(
        weights=NodeWeights(availability=250_000, contention=0),
        preemption=PreemptionLimits(threshold=-500_000, lost_work_per_s=1_000, per_minute_max=3, protected_pools=("general",)),
        queues={"acme": QueueRules(priority=5), "*": QueueRules(aging_per_s=1)},
    )
    assert stage_settings_of(config) == {"east": settings}
    assert mesh_record_of(config, "east", cluster="c").settings == settings
    assert mesh_record_of(loaded(SMALL + TENANTS), "east", cluster="c").settings == DEFAULT_SETTINGS


@pytest.mark.parametrize("policy", ["mine", "0.7*mine+0.3*binpack", "installed"])
def test_a_policy_may_name_a_plugin(policy):
    text = changed("meshes", "east", to=planned(policy, mine="my.module:Mine"))
    config = load_config(text, source="x.yaml", installed=("installed", "binpack"))
    assert config.meshes["east"].plugins == {"mine": "my.module:Mine"}


def test_a_mesh_that_joins_has_no_plugins_of_the_roots_machine():
    joins = {**planned("installed", packed="gone.wasm"), "link": "joins"}
    with pytest.raises(ConfigError) as caught:
        load_config(changed("meshes", "east", to=joins), source="x.yaml", is_file=lambda _: False, installed=("installed",))
    assert "there is no policy 'installed'" in str(caught.value)
    assert "gone.wasm" not in str(caught.value)


@pytest.mark.parametrize("there", [True, False])
def test_a_plugins_file_is_beside_the_federation_file(tmp_path, there):
    file = tmp_path / "x.yaml"
    file.write_text(changed("meshes", "east", to=planned("packed", packed="p.wasm")))
    if there:
        (tmp_path / "p.wasm").touch()
        assert read_config(file).meshes["east"].plugins == {"packed": str(tmp_path / "p.wasm")}
        return
    with pytest.raises(ConfigError, match=r"meshes\.east\.plugins\.packed: the file p\.wasm does not exist; paths are relative to"):
        read_config(file)


HOOK = "https://hooks.example/path"


@pytest.mark.parametrize(
    ("webhook", "problem"),
    [
        pytest.param({"url": "hooks.example"}, "url: must be a URL", id="no URL"),
        pytest.param({"url": "ftp://hooks.example/"}, "url: must be a URL", id="another scheme"),
        pytest.param({"url": "https://"}, "url: must be a URL", id="no host"),
        pytest.param({"url": "https://hooks.example:port/"}, "url: must be a URL", id="no port"),
        pytest.param({"url": "https://user:hunter2@hooks.example/"}, "url: must have neither a user", id="a password"),
        pytest.param({"url": "http://10.0.0.9/hunter2"}, "url: calls 10.0.0.9 without TLS; write https, or add", id="no TLS"),
        pytest.param({"url": HOOK, "tenant": "acmee"}, "tenant: unknown tenant 'acmee'", id="an unknown tenant"),
        pytest.param({"url": HOOK, "events": ["BLOCKED"]}, "events[0]: must be one of SUCCEEDED, FAILED, CANCELLED", id="no end"),
        pytest.param({"url": HOOK, "secret": "hunter2"}, "secret: unknown key", id="a secret in the file"),
    ],
)
def test_wrong_webhook_is_refused_without_its_secrets(webhook: dict[str, Any], problem: str):
    (found,) = complaints(changed("webhooks", to={"allow_http": ["10.0.0.8"], "endpoints": {"ops": webhook}}))
    assert f"webhooks.endpoints.ops.{problem}" in found
    assert "hunter2" not in found


def test_webhook_needs_no_more_than_a_url():
    config = loaded(changed("webhooks", to={"allow_http": ["10.0.0.8"], "endpoints": {"ops": {"url": "http://10.0.0.8:8080/"}}}))
    assert webhooks_of(config) == (Webhook(name="ops", url="http://10.0.0.8:8080/"),)
    assert webhooks_of(loaded(SMALL + TENANTS)) == ()


def test_secret_of_a_webhook_is_a_file_that_exists(tmp_path: Path):
    file = tmp_path / "federation.yaml"
    file.write_text(changed("webhooks", to={"endpoints": {"ops": {"url": HOOK, "secret_file": "hook.key"}}}))
    with pytest.raises(ConfigError, match=r"ops\.secret_file: the file hook\.key does not exist"):
        read_config(file)
    (tmp_path / "hook.key").touch()
    assert webhooks_of(read_config(file))[0].secret_file == str(tmp_path / "hook.key")
