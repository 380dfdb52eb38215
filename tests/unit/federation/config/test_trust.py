"""Trust domains of Ray clusters: valid and refused files."""

from __future__ import annotations

import pytest

from federation.config.loading import load_config, mesh_record_of
from federation.errors import ConfigError

POOLS = "pools: {general: {flavor: standard, capacity: {cpu: 1}}}"


def a_file(clusters: str, meshes: str, *, root: str = "root", tenants: str = "{alpha: {tenants: {lab: {}}}, beta: {}}") -> str:
    return f"""\
federation: {{name: small}}
root: {{cluster: {root}}}
clusters: {{root: {{nodes: [{{cpu: 1}}]}}, {clusters}}}
flavors: {{standard: {{}}}}
meshes: {{{meshes}}}
tenants: {tenants}
"""


ONE = "one: {nodes: [{cpu: 2}]}"
SHARED = "one: {shared: true, nodes: [{cpu: 2}]}"
#: One Ray cluster under two names.
TWICE = "one: {address: '127.0.0.1:6379'}, two: {address: 'localhost:6379'}"

APART = {
    "of one top-level tenant each": (
        "one: {nodes: [{cpu: 2}]}, two: {nodes: [{cpu: 2}]}",
        f"east: {{cluster: one, tenants: [alpha], {POOLS}}}, west: {{cluster: two, tenants: [beta], {POOLS}}}",
    ),
    "of two tenants of one top-level tenant": (ONE, f"east: {{cluster: one, tenants: [alpha, alpha/lab], {POOLS}}}"),
    "that are shared": (SHARED, f"east: {{cluster: one, {POOLS}}}"),
    "of one tenant on two meshes": (
        ONE,
        f"east: {{cluster: one, tenants: [beta], {POOLS}}}, west: {{cluster: one, tenants: [beta], {POOLS}}}",
    ),
    "that come by themselves for one": (ONE, f"far: {{link: joins, tenants: [beta], {POOLS}}}"),
}


@pytest.mark.parametrize(("clusters", "meshes"), APART.values(), ids=APART)
def test_a_file_may_have_clusters(clusters: str, meshes: str):
    assert load_config(a_file(clusters, meshes), source="x.yaml").warnings == ()


MIXED = {
    "a mesh for everybody": (
        a_file(ONE, f"east: {{cluster: one, {POOLS}}}"),
        ["clusters.one: the mesh east on it would run work of alpha and beta, and Ray isolates no tenants within a cluster"],
        "give each tenant a cluster of its own and list the tenant in `tenants` of the meshes there, or write `shared: true`",
    ),
    "a mesh for each on one cluster": (
        a_file(ONE, f"east: {{cluster: one, tenants: [alpha/lab], {POOLS}}}, west: {{cluster: one, tenants: [beta], {POOLS}}}"),
        ["clusters.one: the meshes east and west on it would run work of alpha and beta"],
        "give each tenant a cluster",
    ),
    "one cluster under two names": (
        a_file(TWICE, f"east: {{cluster: one, tenants: [alpha], {POOLS}}}, west: {{cluster: two, tenants: [beta], {POOLS}}}"),
        ["clusters.one: the meshes east and west on it would run work of alpha and beta"],
        "give each tenant a cluster",
    ),
    "one cluster that is shared under one of two names": (
        a_file(TWICE.replace("one: {", "one: {shared: true, "), f"east: {{cluster: one, tenants: [alpha], {POOLS}}}"),
        ["clusters.two.address: has the address of one, so both are the same Ray cluster"],
        "write the same `shared` for both",
    ),
    "the root beside tenants": (
        a_file(ONE, f"east: {{cluster: one, tenants: [alpha], {POOLS}}}", root="one"),
        ["clusters.one: the root is in it beside the mesh east, whose tenants could run code in the control plane"],
        "give the root a cluster of its own, like `clusters.root: {nodes: [{cpu: 1}]}` with `root.cluster: root`, or write `shared: true`",
    ),
    "the root beside tenants who do not trust each other": (
        a_file(ONE, f"east: {{cluster: one, {POOLS}}}", root="one"),
        ["clusters.one: the mesh east on it", "clusters.one: the root is in it"],
        "give ",
    ),
    "a mesh that comes by itself for everybody": (
        a_file(ONE, f"far: {{link: joins, {POOLS}}}"),
        ["meshes.far: it would run work of alpha and beta on one Ray cluster, which isolates no tenants"],
        "list one in `tenants`, or name its `cluster`, with `address` and `shared: true`, if they trust each other",
    ),
}


@pytest.mark.parametrize(("text", "lines", "remedy"), MIXED.values(), ids=MIXED)
def test_a_file_is_refused_that_has(text: str, lines: list[str], remedy: str):
    with pytest.raises(ConfigError) as refused:
        load_config(text, source="x.yaml")
    located = refused.value.located
    assert [f"{one.place}: {one.message}"[: len(words)] for one, words in zip(located, lines, strict=True)] == lines
    assert all(one.remedy.startswith(remedy) and one.line and one.column for one in located)


def test_a_root_beside_its_tenants_is_worth_a_warning():
    (warning,) = load_config(a_file(SHARED, f"east: {{cluster: one, {POOLS}}}", root="one"), source="x.yaml").warnings
    assert str(warning).startswith(
        "x.yaml:3:45: clusters.one.shared: it is shared by the root and its tenants: any task there can run code"
    )


def test_meshes_of_a_shared_cluster_say_so():
    config = load_config(
        a_file(
            f"{SHARED}, two: {{nodes: [{{cpu: 1}}]}}", f"east: {{cluster: one, {POOLS}}}, west: {{cluster: two, tenants: [beta], {POOLS}}}"
        ),
        source="x",
    )
    assert [mesh_record_of(config, mesh, cluster="").shared for mesh in ("east", "west")] == [True, False]
