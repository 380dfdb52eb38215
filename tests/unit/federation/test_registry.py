"""Registry updates from an observation of the ledger."""

from dataclasses import replace

from federation.configured_meshes import ConfiguredMeshes
from federation.estimates import Pace
from federation.flap_detection import FlapHistory, FlapRules
from federation.mesh_conditions import NEWCOMER, Drain, MeshCondition
from federation.registry import NOTE_MS, MeshConditions, enrolled, observe
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView
from federation.tenants import TenantTree
from mesh.stages.stage_settings import DEFAULT_SETTINGS

RULES = FlapRules()
NOW_MS = 1_000_000


def a_snapshot(at_ms=NOW_MS, **incarnations):
    views = (
        MeshView(record=MeshRecord(mesh=mesh, labels={}, pools=(), cluster="c"), incarnation=incarnation, alive=True, heartbeat_age_ms=0)
        for mesh, incarnation in incarnations.items()
    )
    return FederationSnapshot(at_ms=at_ms, tree=TenantTree(), meshes=tuple(views))


def test_the_first_look_writes_down_who_is_there():
    after, note = observe(a_snapshot(east=1), MeshConditions(), {}, RULES)
    assert after.meshes == {"east": MeshCondition(flap_history=FlapHistory(incarnation=1, alive=True))}
    assert note is not None
    assert (note.watched_ms, note.flap_history, note.paces) == (NOW_MS, {"east": FlapHistory(incarnation=1, alive=True)}, {})


def test_unchanged_observation_is_not_written_again_soon():
    known, _ = observe(a_snapshot(east=1), MeshConditions(), {}, RULES)
    known = replace(known, watched_ms=NOW_MS)
    assert observe(a_snapshot(NOW_MS + NOTE_MS - 1, east=1), known, {}, RULES)[1] is None
    later = observe(a_snapshot(NOW_MS + NOTE_MS, east=1), known, {}, RULES)[1]
    assert later is not None
    assert (later.watched_ms, later.flap_history) == (NOW_MS + NOTE_MS, {})


def test_run_times_become_the_pace_and_are_written_down_at_once():
    known = MeshConditions(watched_ms=NOW_MS, meshes={"east": MeshCondition(pace=Pace(run_ms=800))})
    after, note = observe(a_snapshot(), known, {"east": (1_600, 900), "west": (50,), "south": ()}, RULES)
    assert note is not None
    assert note.paces == {"east": Pace(run_ms=900, stages=3), "west": Pace(run_ms=50)}
    assert {mesh: kept.pace for mesh, kept in after.meshes.items()} == note.paces


def test_a_look_touches_no_drain():
    drain = Drain(reason="disks")
    known = MeshConditions(meshes={"east": MeshCondition(drain=drain), "gone": MeshCondition(drain=drain)})
    after, note = observe(a_snapshot(east=1), known, {"east": (5,)}, RULES)
    assert {mesh: kept.drain for mesh, kept in after.meshes.items()} == {"east": drain, "gone": drain}
    assert note is not None


def test_snapshot_gets_conditions_and_newcomers_have_none():
    kept = MeshCondition(drain=Drain(reason="disks"))
    snapshot = enrolled(a_snapshot(east=1, west=1), MeshConditions(meshes={"east": kept, "gone": kept}))
    assert [(view.record.mesh, view.condition, view.is_draining) for view in snapshot.meshes] == [
        ("east", kept, True),
        ("west", NEWCOMER, False),
    ]


def test_known_absent_meshes_are_listed_with_whereabouts():
    filed = {mesh: MeshRecord(mesh=mesh, labels={}, pools=(), cluster="") for mesh in ("east", "lab")}
    seen = FlapHistory(incarnation=1, alive=True)
    known = {
        "east": MeshCondition(flap_history=seen),
        "gone": MeshCondition(flap_history=seen),
        "excused": MeshCondition(flap_history=replace(seen, alive=False, excused=True), drain=Drain(reason="disks")),
        "lost": MeshCondition(flap_history=replace(seen, alive=False)),
        "drained": MeshCondition(drain=Drain()),
    }
    snapshot = enrolled(a_snapshot(east=1), MeshConditions(meshes=known), ConfiguredMeshes(meshes=filed))
    assert [(mesh.record.mesh, mesh.whereabouts.value) for mesh in snapshot.absent] == [
        ("drained", "not_joined"),
        ("excused", "left"),
        ("gone", "left"),
        ("lab", "not_joined"),
        ("lost", "lost"),
    ]
    assert snapshot.absent[1].condition is known["excused"]


def test_settings_alone_make_no_mesh_known():
    """`apply` publishes the settings of every mesh in the file, and only the next `up` starts a new one."""
    settings = MeshCondition(settings=DEFAULT_SETTINGS)
    known = {"east": settings, "new": settings, "drained": replace(settings, drain=Drain())}
    snapshot = enrolled(a_snapshot(east=1), MeshConditions(meshes=known))
    assert [mesh.record.mesh for mesh in snapshot.absent] == ["drained"]
    assert snapshot.meshes[0].condition is settings
