"""Precedence between waiting stages on a ledger in memory."""

from dataclasses import replace

from outlook_bed import BATCH, EAST, GPU, IN_ORDER, VISION, WEST, forecasts, joined, joined_with_two_flavors, on_gpu, pending, queued

from mesh.core.ids import MeshId
from mesh.core.reasons import Reason


def test_stage_of_another_flavor_precedes_no_other(store):
    joined_with_two_flavors(store, EAST)
    about = forecasts(store, east=[on_gpu("r.1", BATCH), on_gpu("r.2", VISION), queued("r.3", BATCH), queued("r.4", VISION)])
    assert [about.place(f"r.{number}") for number in (1, 2, 3, 4)] == [0, 1, 0, 1]
    second, fourth = about.of("r.2"), about.of("r.4")
    assert (second.mesh_ahead, second.ahead) == (1, 0)
    assert (fourth.mesh_ahead, fourth.ahead) == (1, 0)
    assert about.would_be(pending(), [replace(pending(name="first"), slot=GPU), pending(name="middle")]).mesh_ahead == 3
    assert about.would_be(pending(), [replace(pending(name="first"), slot=GPU), pending(name="middle")]).ahead == 2


def test_capacity_wait_is_local_and_quota_wait_is_global(store):
    joined(store, EAST)
    joined(store, WEST, cpus=1)
    west = [queued("r.1", VISION, reason=Reason.POOL_BUSY), queued("r.2", VISION)]
    about = forecasts(store, west=west, east=[queued("r.3", VISION, priority=-1)])
    assert (about.of("r.3").mesh_ahead, about.of("r.3").ahead) == (0, 1)


def test_strict_fifo_puts_own_tenants_stages_ahead(store):
    joined_with_two_flavors(store, EAST)
    about = forecasts(store, IN_ORDER, east=[on_gpu("r.1", BATCH), on_gpu("r.2", VISION), queued("r.3", VISION)])
    assert (about.of("r.3").mesh_ahead, about.of("r.3").ahead) == (1, 1)


def test_dry_run_stages_sent_earlier_precede_and_are_forgotten(store):
    joined(store, EAST)
    about = forecasts(store)
    assert about.would_be(pending(name="second"), [pending(cpus=4, name="first")]).ahead == 1
    assert about.would_be(pending(name="second")).ahead == 0


def test_stage_of_another_mesh_precedes_no_other(store):
    joined(store, EAST)
    joined(store, WEST)
    about = forecasts(store, IN_ORDER, west=[queued("r.1", VISION)], east=[queued("r.2", VISION, reason=Reason.WAITING_IN_QUEUE)])
    assert about.of("r.2").reason is Reason.WAITING_IN_QUEUE
    assert about.would_be(pending(mesh=MeshId("north"))).reason is None


def test_dry_run_stage_sent_later_is_behind(store):
    joined(store, EAST)
    about = forecasts(store, IN_ORDER)
    assert about.would_be(pending(name="second"), [replace(pending(name="first"), arrival=9_999)]).reason is Reason.BEHIND_HEAD
    assert about.would_be(pending(name="second", priority=1), [pending(name="first")]).reason is None
