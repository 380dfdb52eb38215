"""Dry run: the mesh of each stage of a run."""

import json
from dataclasses import replace

from dag.dry_run import dry_run
from dag.run.runs import RunRecord
from dag.run.states import StageState
from dag.spec.spec import kept_form, parse
from federation.estimates import CostRules
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.node_sizes import sizes_of
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

TREE = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=1_000_000)})])


def record_of(gangs=(), /, **nodes):
    """Return a record of nodes by need and requested zone: `a="@east"`, `b="a@west"`. `gangs`: option `gang` by node."""
    spec = {"spec": "dag/1", "nodes": {}, "outputs": {}}
    for node, words in nodes.items():
        need, _, zone = words.partition("@")
        spec["nodes"][node] = {
            "call": "work:do",
            "args": [{"$ref": need}] if need else [],
            "options": {"labels": {"zone": zone}, "num_cpus": 2, "priority": 3},
        }
        if node in gangs:
            spec["nodes"][node]["options"]["gang"] = gangs[node]
        spec["outputs"][node] = {"$ref": node}
    return RunRecord(run="new", tenant="acme", digest="", spec=kept_form(parse(json.dumps(spec).encode())))


def mesh(name):
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 8}))
    record = MeshRecord(mesh=name, labels={"zone": name}, pools=(pool,), cluster="c")
    return MeshView(record=record, incarnation=1, alive=True, heartbeat_age_ms=0)


def rehearsed(record):
    return dry_run(record, FederationSnapshot(at_ms=5, tree=TREE, meshes=(mesh("east"), mesh("west"))), CostRules())


def test_stages_are_listed_with_mesh_slot_and_priority():
    dry_run_result = rehearsed(record_of(a="@east", b="a@west"))
    assert [(stage.stage, stage.mesh, stage.state) for stage, _ in dry_run_result.stages] == [
        ("new.1", "east", StageState.QUEUED),
        ("new.2", "west", StageState.PLANNED),
    ]
    assert {(sent.slot, sent.priority) for _, sent in dry_run_result.stages} == {(ResourceSet.of({"cpu": 2}), 3)}


def test_a_rejected_stage_is_listed_with_the_reason():
    dry_run_result = rehearsed(record_of(a="@north"))
    assert (dry_run_result.stages, dry_run_result.blockages["a"].reason) == ((), Reason.LABEL_MISMATCH)


def test_gangs_form_stages_of_their_own():
    gangs = {"b": {"size": 2}, "c": {"size": 2}, "d": {"size": 4, "strategy": "SPREAD"}}
    stages = rehearsed(record_of(gangs, a="@east", b="@east", c="@east", d="@east")).stages
    assert [(stage.nodes, sent.slot["cpu"] // 10_000, sent.gang and sent.gang.words()) for stage, sent in stages] == [
        (("a",), 2, None),
        (("b", "c"), 4, "2 bundles of 2 cpu each"),
        (("d",), 8, "4 bundles of 2 cpu each"),
    ]


def test_a_gang_that_no_nodes_hold_together_is_rejected():
    small = replace(mesh("east"), record=replace(mesh("east").record, nodes=sizes_of([ResourceSet.of({"cpu": 4})] * 2)))
    record = record_of({"a": {"size": 3, "strategy": "STRICT_SPREAD"}}, a="@east")
    blocked = dry_run(record, FederationSnapshot(at_ms=5, tree=TREE, meshes=(small,)), CostRules()).blockages["a"]
    assert blocked.reason is Reason.NO_NODE_FITS
    assert "needs 3 bundles of 2 cpu each on nodes of their own, and its nodes hold 2 of them when empty" in blocked.detail
