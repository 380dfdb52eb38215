"""Run times of stages at each mesh."""

from dataclasses import replace

from outlook_bed import EAST, WEST, joined

from federation.dispatch import StageAges
from federation.estimates import CostRules, Pace
from federation.explaining.run_times import RunTimes
from federation.mesh_conditions import MeshCondition

RULES = CostRules(run_ms_unknown=700)


def meshes_of(store, **run_ms):
    for mesh in (EAST, WEST):
        joined(store, mesh)
    views = {view.record.mesh: view for view in store.snapshot().meshes}
    return views | {mesh: replace(views[mesh], condition=MeshCondition(pace=Pace(run_ms=each))) for mesh, each in run_ms.items()}


def test_unmeasured_mesh_takes_the_run_time_of_others(store):
    times = RunTimes(meshes_of(store, east=4_000), {}, RULES)
    assert (times.is_measured, times.run_ms(EAST), times.run_ms(WEST)) == (True, 4_000, 4_000)


def test_unmeasured_federation_takes_the_configured_run_time(store):
    times = RunTimes(meshes_of(store), {}, RULES)
    assert (times.is_measured, times.run_ms(EAST)) == (False, 700)


def test_running_work_is_as_old_as_its_youngest_claim(store):
    times = RunTimes(meshes_of(store), {EAST: StageAges(claimed_ms=9_000, claimed_ms_min=2_000)}, RULES)
    assert (times.age_ms(EAST), times.age_ms(WEST)) == (2_000, 0)
