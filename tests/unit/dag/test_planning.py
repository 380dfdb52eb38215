"""Planning of nodes on meshes: routes, blocked nodes and reasons."""

from __future__ import annotations

import pytest

from dag.planning import place
from dag.spec.plans import NodePlan
from federation.quota.policies import QueueSettings, ResourceGroup
from federation.routing.survey import survey
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView, PoolRecord
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


def mesh(name, *, cpus=8, used=0, alive=True, flavor="standard", **labels):
    pool = PoolRecord(pool="general", flavor=flavor, capacity=ResourceSet.of({"cpu": cpus}), used=ResourceSet.of({"cpu": used}))
    record = MeshRecord(mesh=name, labels={"zone": name, **labels}, pools=(pool,), cluster=f"c-{name}")
    return MeshView(record=record, incarnation=1, alive=alive, heartbeat_age_ms=0)


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
