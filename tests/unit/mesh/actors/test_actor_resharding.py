"""Resharding from n parts to m."""

from mesh.actors.resharding import Stretch, assembled, plan_reshard, whole_part


def test_s4_four_workers_parts_become_two_workers_parts():
    assert plan_reshard([2, 2, 2, 2], 2) == [[Stretch(0, 0, 2), Stretch(1, 0, 2)], [Stretch(2, 0, 2), Stretch(3, 0, 2)]]


def test_s4_two_workers_parts_become_three():
    assert plan_reshard([4, 3], 3) == [[Stretch(0, 0, 3)], [Stretch(0, 3, 4), Stretch(1, 0, 1)], [Stretch(1, 1, 3)]]


def test_a_target_with_nothing_left_gets_an_empty_slice():
    assert plan_reshard([1], 2) == [[Stretch(0, 0, 1)], [Stretch(0, 0, 0)]]
    assert plan_reshard([], 2) == [[], []]


def test_a_part_that_fits_is_passed_on_whole():
    plan = plan_reshard([2, 2], 2)
    assert [whole_part(stretches, [2, 2]) for stretches in plan] == [0, 1]
    assert whole_part([Stretch(0, 0, 1)], [2]) is None
    assert whole_part([Stretch(0, 0, 2), Stretch(1, 0, 2)], [2, 2]) is None


def test_stretches_of_parts_are_put_end_to_end():
    assert assembled([(1, 3), (0, 1)], [[1, 2, 3], [4, 5]]) == [2, 3, 4]
