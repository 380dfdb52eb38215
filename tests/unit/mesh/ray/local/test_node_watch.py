"""Node watch: nodes, labels and foreign use as events."""

from __future__ import annotations

from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.ray.local.supervisor.autoscaling import Autoscaling
from mesh.ray.local.supervisor.node_watch import NodeWatch
from mesh.tasks.events import NodeJoined, NodeLeft, NodeUseSeen

FOUR = ResourceSet.of({"cpu": 4})


def seen(node="n", total=FOUR, available=FOUR, **labels):
    return NodeSeen(node=node, total=total, labels=labels, available=available)


def watch(ours=NOTHING):
    return NodeWatch(lambda _node: ours)


def test_a_node_is_reported_once_and_its_end_too():
    nodes = watch()
    assert nodes.compare([seen()], 1) == [NodeJoined(at_ms=1, node="n", total=FOUR, labels={})]
    assert nodes.compare([seen()], 2) == []
    assert nodes.compare([], 3) == [NodeLeft(at_ms=3, node="n")]


def test_a_node_with_new_resources_or_labels_is_reported_again():
    nodes = watch()
    nodes.compare([seen()], 1)
    assert nodes.compare([seen(total=FOUR.times(2), available=FOUR.times(2))], 2)[0].total == FOUR.times(2)
    assert nodes.compare([seen(total=FOUR.times(2), available=FOUR.times(2), zone="east")], 3)[0].labels == {"zone": "east"}


def test_foreign_use_is_reported_when_two_looks_agree():
    nodes = watch(ours=ResourceSet.of({"cpu": 1}))
    nodes.compare([seen(available=ResourceSet.of({"cpu": 3}))], 1)
    busy = [seen(available=ResourceSet.of({"cpu": 1}))]
    assert nodes.compare(busy, 2) == []
    assert nodes.compare(busy, 3) == [NodeUseSeen(at_ms=3, node="n", foreign=ResourceSet.of({"cpu": 2}))]
    assert nodes.compare(busy, 4) == []


def test_a_lagging_value_is_not_taken_for_foreign_use():
    nodes = watch()
    nodes.compare([seen()], 1)
    nodes.compare([seen(available=ResourceSet.of({"cpu": 2}))], 2)
    assert nodes.compare([seen()], 3) == []


def test_s20_demands_go_to_the_autoscaler_once_each():
    asked = []
    autoscaling = Autoscaling(lambda *, bundles: asked.append(bundles))
    for demands in ([FOUR], [FOUR], []):
        autoscaling.ask(demands)
    assert asked == [[{"CPU": 4.0}], []]


def test_a_cluster_without_an_autoscaler_is_no_failure():
    def refuses(bundles):
        raise RuntimeError("no autoscaler")

    Autoscaling(refuses).ask([FOUR])


def test_s22_foreign_use_from_before_a_crash_is_freed():
    nodes = watch()
    nodes.know("n", FOUR, {}, ResourceSet.of({"cpu": 2}))
    assert nodes.compare([seen()], 1) == []
    assert nodes.compare([seen()], 2) == [NodeUseSeen(at_ms=2, node="n", foreign=NOTHING)]
