"""Planning of nodes on meshes: routes, blocked nodes and reasons."""

from __future__ import annotations

from collections import Counter

import pytest

from dag import sharing_out
from dag.function_times import FunctionTimes
from dag.planning import place
from dag.spec.plans import NodePlan
from federation.quota.policies import QueueSettings, ResourceGroup
from federation.routing.survey import survey
from federation.snapshot import FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord, RunningView
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages.spec import TaskSpec

TREE = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=1_000_000)})])


class Run:
    """Run with some nodes placed. A node: `name: needs`; a need with `~` is only waited for."""

    def __init__(self, *nodes, at=None, stays_at=None, sizes=None, **of_nodes):
        self.plans = {}
        for text in nodes:
            node, _, needs = text.partition(":")
            fields = dict(of_nodes.get(node, {}))
            task = TaskSpec(
                node=node,
                attempt=1,
                function="call:m:f",
                inputs=tuple(need for need in needs.split() if not need.startswith("~")),
                after=tuple(need[1:] for need in needs.split() if need.startswith("~")),
                resources=fields.pop("resources", ResourceSet.of({"cpu": 1})),
            )
            self.plans[node] = NodePlan(task=task, **fields)
        self._at = at or {}
        self._stays_at = stays_at or {}
        self._sizes = sizes or {}

    def unplaced(self, _now_ms):
        return tuple(node for node in self.plans if node not in self._at)

    def mesh_of(self, node):
        return self._at.get(node)

    def value_at(self, node):
        return self._stays_at.get(node)

    def size_of(self, node):
        return self._sizes.get(node)


def mesh(name, *, cpus=8, used=0, claimed=0, alive=True, flavor="standard", **labels):
    pool = PoolRecord(pool="general", flavor=flavor, capacity=ResourceSet.of({"cpu": cpus}), used=ResourceSet.of({"cpu": used}))
    record = MeshRecord(mesh=name, labels={"zone": name, **labels}, pools=(pool,), cluster=f"c-{name}")
    return MeshView(record=record, incarnation=1, alive=alive, heartbeat_age_ms=0, claimed=claimed)


def placed(run, *meshes):
    """Return the mesh of each placed node, and the reason of each blocked one."""
    answer = place(run, "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=meshes), now_ms=0)
    where = {node: placement.mesh for node, placement in answer.placements.items()}
    return where, {node: blockage.reason for node, blockage in answer.blockages.items()}


EAST, WEST = mesh("east"), mesh("west")


def test_every_node_gets_a_mesh_and_the_words_why():
    answer = place(Run("a:", "b: a"), "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST,)), now_ms=0)
    assert list(answer.placements) == ["a", "b"]
    assert answer.placements["a"].why == "ONLY_FEASIBLE_MESH east/general"
    assert answer.blockages == {}


def test_the_words_tell_what_the_other_meshes_said():
    answer = place(Run("a:", a={"labels": {"zone": "east"}}), "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST, WEST)), now_ms=0)
    assert answer.placements["a"].why == "ONLY_FEASIBLE_MESH east/general (west: zone=east is required, the mesh has zone=west)"


def test_nothing_that_is_placed_is_placed_again():
    assert placed(Run("a:", "b: a", at={"a": "west", "b": "west"}), EAST, WEST) == ({}, {})


def test_a_node_goes_where_its_inputs_go():
    run = Run("a:", "b: a", "c: b", a={"labels": {"zone": "west"}})
    assert placed(run, EAST, WEST)[0] == {"a": "west", "b": "west", "c": "west"}


def test_a_node_goes_where_its_inputs_are():
    assert placed(Run("a:", "b: a", at={"a": "west"}), EAST, WEST)[0] == {"b": "west"}


def test_most_of_the_inputs_decide():
    run = Run("a:", "b:", "c:", "d: a b c", at={"a": "east", "b": "west", "c": "west"})
    assert placed(run, EAST, WEST)[0] == {"d": "west"}


def test_bytes_decide_and_not_the_number_of_inputs():
    run = Run("a:", "b:", "c:", "d: a b c", at={"a": "east", "b": "west", "c": "west"}, sizes={"a": 10**9, "b": 10, "c": 10})
    assert placed(run, EAST, WEST)[0] == {"d": "east"}


def test_a_few_of_many_other_meshes_are_named_the_rest_counted():
    others = [mesh(f"m{number:02}", alive=False) for number in range(30)]
    answer = place(Run("a:"), "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST, *others)), now_ms=0)
    assert answer.placements["a"].why.count("its heartbeat is overdue") == 8
    assert answer.placements["a"].why.endswith("; 22 others)")


def test_a_mesh_where_the_node_would_wait_reports_for_how_long():
    answer = place(Run("a:"), "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST, mesh("west", used=8))), now_ms=0)
    assert "west: would wait in pool general: it is full now" in answer.placements["a"].why
    assert "for about 1000 ms" in answer.placements["a"].why


def test_an_order_pulls_nothing_to_a_mesh():
    assert placed(Run("a:", "b: ~a", at={"a": "west"}), EAST, WEST)[0] == {"b": "east"}


def test_a_value_that_cannot_move_keeps_its_reader_waiting():
    run = Run("a:", "b: a", at={"a": "west"}, stays_at={"a": "west"})
    assert placed(run, EAST, mesh("west", cpus=1, used=1))[0] == {"b": "west"}


def test_a_value_on_a_mesh_that_takes_nothing_is_left_behind():
    run = Run("a:", "b: a", at={"a": "west"}, stays_at={"a": "west"})
    assert placed(run, EAST, mesh("west", alive=False))[0] == {"b": "east"}


def test_labels_come_before_a_value_that_cannot_leave():
    run = Run("a:", "b: a", at={"a": "west"}, stays_at={"a": "west"}, b={"labels": {"zone": "east"}})
    assert placed(run, EAST, WEST)[0] == {"b": "east"}


def test_a_required_mesh_comes_before_a_value_that_cannot_move():
    run = Run("a:", "b: a", at={"a": "west"}, stays_at={"a": "west"}, b={"mesh": "east"})
    assert placed(run, EAST, WEST) == ({"b": "east"}, {})


def test_a_node_that_requires_a_lost_mesh_is_blocked():
    run = Run("a:", "b: a", at={"a": "west"}, stays_at={"a": "west"}, b={"mesh": "east"})
    assert placed(run, mesh("east", alive=False), WEST) == ({}, {"b": Reason.MESH_UNREACHABLE})


def test_only_nodes_below_a_blocked_one_are_left_unplaced():
    run = Run("a:", "b: a", "c: ~b", "d:", "e: d", a={"labels": {"gpu": "a100"}})
    assert placed(run, EAST, WEST) == ({"d": "east", "e": "east"}, {"a": Reason.LABEL_MISMATCH})


def test_a_node_below_an_earlier_blocked_one_is_left_too():
    run = Run("a:", "b: a", "c: a b", b={"labels": {"gpu": "a100"}}, at={"a": "east"})
    assert placed(run, EAST) == ({}, {"b": Reason.LABEL_MISMATCH})


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        pytest.param({"resources": ResourceSet.of({"cpu": 9})}, Reason.POOL_TOO_SMALL, id="more than any pool holds"),
        pytest.param({"resources": ResourceSet.of({"gpu": 1})}, Reason.POOL_TOO_SMALL, id="what no pool has"),
        pytest.param({"mesh": "north"}, Reason.MESH_UNKNOWN, id="a mesh that has never joined"),
    ],
)
def test_a_node_that_no_mesh_takes_says_why(needs, reason):
    assert placed(Run("a:", a=needs), EAST, WEST) == ({}, {"a": reason})


def test_without_any_mesh_every_first_node_is_blocked():
    assert placed(Run("a:", "b:", "c: a")) == ({}, {"a": Reason.MESH_UNREACHABLE, "b": Reason.MESH_UNREACHABLE})


def test_nodes_of_one_kind_ask_once(monkeypatch):
    asked = []
    monkeypatch.setattr("dag.planning.survey", lambda demand, *on: asked.append(demand) or survey(demand, *on))
    run = Run("a:", *(f"n{index}: a" for index in range(50)), "big: a", at={"a": "east"}, big={"resources": ResourceSet.of({"cpu": 2})})
    assert len(placed(run, EAST, WEST)[0]) == 51
    assert [demand.slot["cpu"] for demand in asked] == [10_000, 20_000]


BOTH = TenantTree([Tenant(path="acme", parent=None, quotas={(flavor, "cpu"): Quota(nominal=1_000_000) for flavor in ("spot", "standard")})])
SPOT_FIRST = QueueSettings(groups=(ResourceGroup(resources=("cpu",), flavors=("spot", "standard")),))


def by_flavor(run, *meshes, settings=SPOT_FIRST):
    """Return the explanation of each node."""
    answer = place(run, "acme", FederationSnapshot(at_ms=0, tree=BOTH, meshes=meshes), settings=settings, now_ms=0)
    return {node: placement.why for node, placement in answer.placements.items()}


def test_the_words_tell_which_flavor_was_taken_and_why():
    words = by_flavor(Run("a:"), mesh("spots", cpus=2, flavor="spot"), EAST)
    assert words == {"a": "FLAVOR_ORDER spots/general: flavor spot is tried before standard"}
    assert by_flavor(Run("a:"), mesh("spots", cpus=2, flavor="spot"), EAST, settings=QueueSettings()) == {"a": "MOST_HEADROOM east/general"}


def test_a_fan_takes_a_flavor_with_room_and_a_chain_the_first():
    spots = mesh("spots", cpus=2, flavor="spot")
    fan = by_flavor(Run("a:", "b:", "c:", "d: a b c"), spots, EAST)
    assert [fan[node].split()[1].partition("/")[0] for node in "abcd"] == ["east"] * 3 + ["spots"]
    chain = by_flavor(Run("a:", "b: a", "c: b", "d: ~c"), spots, EAST)
    assert [chain[node].split()[1].partition("/")[0] for node in "abcd"] == ["spots"] * 4


def shared(run, *meshes, times=None, tree=TREE, leases=(), running=()):
    """Return the number of nodes on each mesh, and the stages' parts there."""
    usage = tree.recompute(leases)
    snapshot = FederationSnapshot(at_ms=0, tree=tree, usage=usage, meshes=meshes, leases=leases, running=running)
    answer = place(run, "acme", snapshot, times=times, now_ms=0)
    placed_on = [(placement.mesh, placement.part) for placement in answer.placements.values()]
    return Counter(name for name, _ in placed_on), Counter(placed_on)


def known_times(run_ms, *, mesh_ms=(), size_bytes=None):
    """Return run times of the function of all nodes: on usual meshes, and on some by name."""
    times = FunctionTimes()
    for _ in range(40):
        times.note("acme", "call:m:f", "usual", run_ms, size_bytes)
        for name, took_ms in mesh_ms:
            times.note("acme", "call:m:f", name, took_ms, size_bytes)
    return times


def fan(count, **of_nodes):
    return Run(*(f"n{number}:" for number in range(count)), **of_nodes)


def test_a_fan_of_a_thousand_is_shared_out_by_slots():
    counts, parts = shared(fan(1_000), mesh("east", cpus=8), mesh("west", cpus=4), mesh("full", cpus=4, used=4, alive=False))
    assert counts == {"east": 668, "west": 332}  # 83 rounds of twelve, and four more.
    assert max(parts.values()) <= 84


def test_a_graph_with_too_many_choices_is_not_shared_out(monkeypatch):
    monkeypatch.setattr(sharing_out, "CHOICES_MAX", 1_999)
    assert shared(fan(1_000), mesh("east", cpus=8), mesh("west", cpus=4))[0] == {"east": 1_000}


def test_room_that_is_in_use_counts_less():
    counts, _ = shared(fan(1_000), mesh("east", cpus=8), mesh("west", cpus=8, used=6, claimed=1))
    assert counts["west"] < counts["east"]


def test_mesh_without_a_stage_has_room_whatever_it_said():
    counts, _ = shared(fan(1_000), mesh("east", cpus=8), mesh("west", cpus=8, used=8))
    assert abs(counts["east"] - counts["west"]) <= 8  # One round.


def test_a_slow_mesh_gets_a_smaller_part():
    times = known_times(1_000, mesh_ms=[("east", 1_000), ("west", 4_000)])
    counts, _ = shared(fan(400), mesh("east", cpus=4), mesh("west", cpus=4), times=times)
    assert 3 * counts["west"] < counts["east"]


def test_meshes_share_one_quota():
    """Eight CPUs of quota fill one mesh; a second one would add nothing."""
    small = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=80_000)})])
    assert shared(fan(1_000), mesh("east", cpus=8), mesh("west", cpus=8), tree=small)[0] == {"east": 1_000}


def lease(mesh_name, cpus, *, target=None):
    held, aim = (ResourceSet.of({"cpu": units}) for units in (cpus, cpus if target is None else target))
    return LeaseView(lease=f"l-{mesh_name}", tenant="acme", mesh=mesh_name, flavor="standard", amounts=held, token=1, target=aim)


def claim(mesh_name, cpus):
    amounts = ResourceSet.of({"cpu": cpus})
    fields = {"priority": 0, "token": 2, "since_ms": 0, "created_ms": 0}
    return RunningView(stage="r.1", mesh=mesh_name, tenant="acme", flavor="standard", amounts=amounts, **fields)


@pytest.mark.parametrize(
    ("leases", "running", "is_even"),
    [
        pytest.param((lease("east", 8), lease("west", 8)), (), True, id="both hold what no stage uses"),
        pytest.param((lease("east", 8),), (), True, id="one holds it, the other is granted the rest"),
        pytest.param((lease("east", 8), lease("west", 8)), (claim("west", 8),), False, id="a stage uses what one holds"),
        pytest.param((lease("east", 8), lease("west", 8, target=0)), (), False, id="a plan takes what one holds"),
    ],
)
def test_idle_quota_that_a_mesh_holds_is_room_there(leases, running, is_even):
    tree = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=160_000)})])
    counts, _ = shared(fan(1_000), mesh("east", cpus=8), mesh("west", cpus=8), tree=tree, leases=leases, running=running)
    assert (abs(counts["east"] - counts["west"]) <= 8) == is_even  # One round.


@pytest.mark.parametrize(
    ("run", "times"),
    [
        pytest.param(fan(20), None, id="a small fan of unknown functions"),
        pytest.param(fan(500), known_times(1), id="a fan of nodes that take no time"),
        pytest.param(Run("n0:", *(f"n{at}: n{at - 1}" for at in range(1, 60))), known_times(1_000), id="a chain"),
    ],
)
def test_work_that_gains_nothing_stays_on_one_mesh_in_one_stage(run, times):
    counts, parts = shared(run, mesh("east", cpus=8), mesh("west", cpus=4), times=times)
    assert (list(counts), len(parts)) == (["east"], 1)


def test_labels_hold_also_when_work_is_shared_out():
    run = fan(300, **{f"n{number}": {"labels": {"zone": "west"}} for number in range(10)})
    answer = place(run, "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST, WEST)), times=known_times(1_000), now_ms=0)
    assert {answer.placements[f"n{number}"].mesh for number in range(10)} == {"west"}
    assert {placement.mesh for placement in answer.placements.values()} == {"east", "west"}


def test_the_words_of_shared_out_work_say_what_is_gained():
    answer = place(fan(100), "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST, WEST)), times=known_times(1_000), now_ms=0)
    assert {placement.why for placement in answer.placements.values()} == {
        f"EARLIEST_FINISH {name}/general: the run ends in about 7 s, with fewer meshes in 13 s" for name in ("east", "west")
    }


@pytest.mark.parametrize(
    ("size_bytes", "where"),
    [
        pytest.param(50 * 2**20, "east", id="less than the wait costs to move, the work leaves its data"),
        pytest.param(150 * 2**20, "west", id="longer than the wait to move, the data hold the work"),
    ],
)
def test_data_hold_work_if_moving_takes_longer_than_waiting(size_bytes, where):
    run = Run("a:", "b: a", at={"a": "west"}, sizes={"a": size_bytes})
    assert placed(run, EAST, mesh("west", used=8))[0] == {"b": where}


def test_large_values_keep_a_shared_out_lane_on_one_mesh():
    nodes = [*(f"a{at}:" for at in range(64)), *(f"b{at}: a{at}" for at in range(64))]
    times = known_times(1_000, size_bytes=2**30)
    answer = place(Run(*nodes), "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST, WEST)), times=times, now_ms=0)
    on = {node: placement.mesh for node, placement in answer.placements.items()}
    assert {"east", "west"} == set(on.values())
    assert [at for at in range(64) if on[f"a{at}"] != on[f"b{at}"]] == []


def test_the_longest_way_to_the_end_goes_first():
    run = Run("short:", "long:", "b: long", "c: b")
    answer = place(run, "acme", FederationSnapshot(at_ms=0, tree=TREE, meshes=(EAST,)), now_ms=0)
    assert answer.order == ("long", "b", "short", "c")
