"""Dry run: the mesh of each stage of a run."""

import json

from dag.dry_run import dry_run
from dag.run.runs import RunRecord
from dag.run.states import StageState
from dag.spec.spec import kept_form, parse
from federation.estimates import CostRules
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

TREE = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=1_000_000)})])


def record_of(**nodes):
    """Return a record of nodes by need and requested zone: `a="@east"`, `b="a@west"`."""
    spec = {"spec": "dag/1", "nodes": {}, "outputs": {}}
    for node, words in nodes.items():
        need, _, zone = words.partition("@")
        spec["nodes"][node] = {
            "call": "work:do",
            "args": [{"$ref": need}] if need else [],
            "options": {"labels": {"zone": zone}, "num_cpus": 2, "priority": 3},
        }
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
