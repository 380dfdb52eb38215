"""Who comes before whom, as it is told of what waits on a ledger in memory."""

from dataclasses import replace

from outlook_bed import BATCH, EAST, GPU, IN_ORDER, VISION, WEST, forecasts, joined, joined_with_two_flavors, on_gpu, pending, queued

from mesh.core.ids import MeshId
from mesh.core.reasons import Reason


def test_what_waits_for_another_flavor_stands_before_nobody(store):
    joined_with_two_flavors(store, EAST)
    about = forecasts(store, east=[on_gpu("r.1", BATCH), on_gpu("r.2", VISION), queued("r.3", BATCH), queued("r.4", VISION)])
    assert [about.place(f"r.{number}") for number in (1, 2, 3, 4)] == [0, 1, 0, 1]
    second, fourth = about.of("r.2"), about.of("r.4")
    assert (second.mesh_ahead, second.ahead) == (1, 0)
    assert (fourth.mesh_ahead, fourth.ahead) == (1, 0)
    assert about.would_be(pending(), [replace(pending(name="first"), slot=GPU), pending(name="middle")]).mesh_ahead == 3
    assert about.would_be(pending(), [replace(pending(name="first"), slot=GPU), pending(name="middle")]).ahead == 2


def test_what_waits_for_room_at_another_mesh_stands_before_nobody_here_and_what_waits_for_quota_does(store):
    joined(store, EAST)
    joined(store, WEST, cpus=1)
    west = [queued("r.1", VISION, reason=Reason.POOL_BUSY), queued("r.2", VISION)]
    about = forecasts(store, west=west, east=[queued("r.3", VISION, priority=-1)])
    assert (about.of("r.3").mesh_ahead, about.of("r.3").ahead) == (0, 1)


def test_where_stages_start_in_order_those_of_the_same_tenant_stand_before_it_whatever_they_take(store):
    joined_with_two_flavors(store, EAST)
    about = forecasts(store, IN_ORDER, east=[on_gpu("r.1", BATCH), on_gpu("r.2", VISION), queued("r.3", VISION)])
    assert (about.of("r.3").mesh_ahead, about.of("r.3").ahead) == (1, 1)


def test_what_would_be_sent_before_stands_before_and_is_forgotten_after(store):
    joined(store, EAST)
    about = forecasts(store)
    assert about.would_be(pending(name="second"), [pending(cpus=4, name="first")]).ahead == 1
    assert about.would_be(pending(name="second")).ahead == 0


def test_what_waits_on_another_mesh_holds_up_nobody(store):
    joined(store, EAST)
    joined(store, WEST)
    about = forecasts(store, IN_ORDER, west=[queued("r.1", VISION)], east=[queued("r.2", VISION, reason=Reason.WAITING_IN_QUEUE)])
    assert about.of("r.2").reason is Reason.WAITING_IN_QUEUE
    assert about.would_be(pending(mesh=MeshId("north"))).reason is None


def test_of_a_dry_run_what_is_sent_later_is_behind(store):
    joined(store, EAST)
    about = forecasts(store, IN_ORDER)
    assert about.would_be(pending(name="second"), [replace(pending(name="first"), created_ms=9_999)]).reason is Reason.BEHIND_HEAD
    assert about.would_be(pending(name="second", priority=1), [pending(name="first")]).reason is None
