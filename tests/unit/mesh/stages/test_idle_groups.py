"""Idle placement groups of stages."""

from __future__ import annotations

from mesh.core.resources import ResourceSet
from mesh.stages.idle_groups import IdleGroups


def cpu(count):
    return ResourceSet.of({"cpu": count})


def kept(*shapes):
    groups = IdleGroups()
    for index, shape in enumerate(shapes):
        groups.put(shape, f"g{index}", float(index))
    return groups


def in_the_way(groups, wanted, total, used=()):
    return groups.in_the_way(wanted, used=used, total=total, amount_of=lambda shape: shape)


def test_the_latest_group_of_the_exact_shape_is_taken_once():
    groups = kept(cpu(1), cpu(1), cpu(2))
    assert [groups.take(cpu(1)), groups.take(cpu(1)), groups.take(cpu(1))] == ["g1", "g0", None]
    assert len(groups) == 1


def test_nothing_goes_while_there_is_room():
    groups = kept(cpu(1), cpu(1))
    assert in_the_way(groups, cpu(2), cpu(4)) == ()
    assert len(groups) == 2


def test_the_oldest_go_first_and_no_more_than_needed():
    groups = kept(cpu(1), cpu(1), cpu(1))
    assert in_the_way(groups, cpu(2), cpu(4)) == ("g0",)
    assert len(groups) == 2


def test_what_is_in_use_counts():
    assert in_the_way(kept(cpu(1), cpu(1)), cpu(1), cpu(4), used=[cpu(2)]) == ("g0",)


def test_a_group_that_holds_nothing_of_what_is_short_stays():
    groups = kept(ResourceSet.of({"gpu": 1}), cpu(1))
    assert in_the_way(groups, cpu(2), ResourceSet.of({"cpu": 2, "gpu": 1})) == ("g1",)


def test_all_that_help_go_even_when_they_do_not_suffice():
    assert in_the_way(kept(cpu(1), cpu(1)), cpu(9), cpu(4)) == ("g0", "g1")


def test_what_was_kept_long_enough_goes():
    groups = kept(cpu(1), cpu(1), cpu(1))
    assert groups.older_than(1.0) == ("g0", "g1")
    assert groups.clear() == ("g2",)
    assert len(groups) == 0


def test_those_that_hold_what_others_want_go():
    groups = kept(cpu(1), ResourceSet.of({"gpu": 1}), cpu(2))
    assert groups.holding(lambda shape: "cpu" in shape) == ("g0", "g2")
    assert len(groups) == 1
