"""Checks of a joining mesh against flavors, labels and tenants of the root's file."""

from dataclasses import replace

import pytest

from federation.config.loading import configured_meshes_of, load_config
from federation.configured_meshes import NO_CONFIGURED_MESHES, admitted, differences
from federation.errors import MeshMisfit
from federation.mesh_access import narrowed
from federation.snapshot import MeshRecord, PoolRecord
from mesh.core.ids import FlavorName, MeshId, PoolName
from mesh.core.resources import ResourceSet

FILE = """
federation: {name: tests}
root: {cluster: local}
clusters: {local: {nodes: [{cpu: 4}]}}
flavors: {ondemand: {labels: {tier: ondemand}}, any: {}}
meshes:
  lab:
    link: joins
    labels: {tier: ondemand, zone: l}
    tenants: [lab/red]
    pools: {general: {flavor: ondemand, capacity: {cpu: 1}}}
tenants: {lab: {tenants: {red: {}, blue: {}}}}
"""
CONFIGURED = configured_meshes_of(load_config(FILE, source="x.yaml"))
AS_FILED = CONFIGURED.meshes[MeshId("lab")]


def record(flavor: str = "ondemand", cpu: int = 1, mesh: str = "lab", **sent: object) -> MeshRecord:
    pool = PoolRecord(pool=PoolName("general"), flavor=FlavorName(flavor), capacity=ResourceSet.of({"cpu": cpu}))
    return replace(AS_FILED, mesh=MeshId(mesh), pools=(pool,), **sent)


def test_whether_its_cluster_is_shared_is_for_the_root_to_say():
    clusters = "clusters: {root: {nodes: [{cpu: 1}]}, local: {shared: true, nodes: [{cpu: 4}]}}"
    shared = FILE.replace("clusters: {local: {nodes: [{cpu: 4}]}}", clusters).replace("{cluster: local}", "{cluster: root}")
    configured_meshes = configured_meshes_of(load_config(shared.replace("link: joins", "link: joins\n    cluster: local"), source="x.yaml"))
    assert admitted(replace(AS_FILED, shared=False), configured_meshes).shared
    assert not admitted(replace(AS_FILED, shared=True), CONFIGURED).shared
    assert not admitted(record(mesh="other", shared=True), CONFIGURED).shared


def test_no_mesh_joins_from_the_cluster_of_the_root():
    configured_meshes = replace(CONFIGURED, root_cluster="c0")
    assert admitted(replace(AS_FILED, cluster="c1"), configured_meshes)
    with pytest.raises(MeshMisfit, match="is on the Ray cluster of the root, where its tenants could run code"):
        admitted(replace(AS_FILED, cluster="c0"), configured_meshes)


def test_a_mesh_as_the_file_has_it_is_let_in_without_a_word():
    assert admitted(AS_FILED, CONFIGURED) == AS_FILED
    assert differences(AS_FILED, CONFIGURED) == ()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        pytest.param(
            record("ondemnad"), r"'ondemnad', which the root's file does not define \(did you mean ondemand\? ", id="an unknown flavor"
        ),
        pytest.param(
            record(labels={}),
            "cannot offer ondemand .*: tier=ondemand is required, .* has no tier; join with label",
            id="without the label",
        ),
        pytest.param(record(labels={"tier": "spot"}), "has tier=spot; join with labels", id="with another label"),
        pytest.param(record(mesh="other", labels={}), "cannot offer ondemand", id="a mesh missing from the file"),
        pytest.param(record(tenants=("lab/blue",)), "no tenant could use .* lab/blue, .* lab/red; join without", id="open to no tenant"),
    ],
)
def test_impossible_configuration_is_refused_with_the_remedy(sent, words):
    with pytest.raises(MeshMisfit, match=words):
        admitted(sent, CONFIGURED)


def test_mesh_record_is_accepted_as_sent_without_a_file():
    sent = record("anything", labels={}, tenants=("acme",))
    assert admitted(sent, NO_CONFIGURED_MESHES) == sent
    assert differences(sent, NO_CONFIGURED_MESHES) == ()


@pytest.mark.parametrize(
    ("sent", "allowed", "left"),
    [
        pytest.param(("*",), ("lab/red",), ("lab/red",), id="all tenants, cut to one"),
        pytest.param(("lab",), ("lab/red", "acme"), ("lab/red",), id="an ancestor, cut to its descendant"),
        pytest.param(("lab/red/x",), ("lab",), ("lab/red/x",), id="narrower than allowed"),
        pytest.param(("lab/red", "lab"), ("lab",), ("lab/red", "lab"), id="each as far as it reaches"),
        pytest.param(("laboratory",), ("lab",), (), id="another one with the same prefix"),
        pytest.param(("acme", "lab"), ("*",), ("acme", "lab"), id="all tenants"),
        pytest.param((), ("*",), (), id="no tenant"),
    ],
)
def test_record_and_file_must_both_allow_a_tenant(sent, allowed, left):
    assert narrowed(sent, allowed) == left


def test_the_files_word_on_tenants_holds_over_the_meshs_own():
    assert admitted(record(tenants=("*",)), CONFIGURED).tenants == ("lab/red",)


def test_other_differences_are_all_listed():
    sent = record("any", cpu=64, labels={"zone": "m"}, tenants=("*",))
    assert admitted(sent, CONFIGURED).pools == sent.pools
    assert differences(sent, CONFIGURED) == (
        "its labels are zone=m; the root's file says tier=ondemand, zone=l",
        "it allows *; the root's file allows lab/red: tenants in force are lab/red",
        "its pool general is any {cpu: 64}; the root's file says ondemand {cpu: 1}",
    )
    assert differences(replace(AS_FILED, pools=()), CONFIGURED) == ("its pool general is missing; the root's file says ondemand {cpu: 1}",)


def test_mesh_missing_from_the_file_is_a_difference():
    assert differences(record(mesh="lba"), CONFIGURED) == ("the root's file names no mesh lba (did you mean lab? it has lab)",)
