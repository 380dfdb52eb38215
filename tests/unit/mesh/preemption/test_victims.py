"""Choice of victims: sufficient, minimal, cheapest, and limited per minute."""

from __future__ import annotations

from dataclasses import replace

from running_tasks import NOW_MS, RULES, choose, cpu, demand, runs, verdict_on, victims

from mesh.core.nodes import NodeTable
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.rules import evaluate
from mesh.preemption.victims import PreemptionRefused, free_rows, plan

# -- the victims -------------------------------------------------------------------------------------------------------


def test_two_small_victims_make_room_for_a_large_task():
    found = choose([runs("a"), runs("b")], wanted=2)
    assert victims(found) == {"a", "b"}


def test_victims_are_on_one_node():
    found = choose([runs("a", row=0), runs("b", row=1), runs("c", row=1, priority=3.0)], wanted=2)
    assert victims(found) == {"b", "c"}
    assert found.row == 1


def test_what_is_free_there_counts():
    assert victims(choose([runs("a", row=0), runs("b", row=1)], wanted=2, free={0: 0, 1: 1})) == {"b"}


def test_nobody_is_stopped_who_is_not_needed():
    found = choose([runs("small", priority=1.0, cpu=1), runs("large", priority=2.0, cpu=4)], wanted=4)
    assert victims(found) == {"large"}


def test_nobody_is_stopped_where_there_is_room():
    found = choose([runs("a", row=0)], wanted=2, free={0: 0, 1: 2})
    assert victims(found) == set()
    assert found.row == 1


def test_the_lower_priority_goes_first():
    assert victims(choose([runs("a", priority=3.0), runs("b", priority=2.0), runs("c", priority=4.0)])) == {"b"}


def test_two_cheap_ones_go_before_one_dear_one():
    found = choose([runs("dear", priority=8.0, cpu=2), runs("a", row=1), runs("b", row=1)], wanted=2)
    assert victims(found) == {"a", "b"}


def test_one_large_victim_goes_before_many_small_ones():
    small = [runs(f"s{place}", priority=2.0) for place in range(4)]
    assert victims(choose([*small, runs("large", priority=2.5, cpu=4)], wanted=4)) == {"large"}


def test_s9_the_own_label_is_preempted_before_any_other():
    rules = replace(RULES, cross_label={"": ("other",)}, cross_label_weight=1.0)
    assert victims(choose([runs("own", priority=8.0, row=1), runs("other", label="other", priority=0.0)], rules=rules)) == {"own"}


def test_another_label_is_preempted_where_the_own_cannot_be():
    rules = replace(RULES, cross_label={"": ("other",)})
    assert victims(choose([runs("own"), runs("other", label="other")], wanted=2, rules=rules)) == {"own", "other"}
    assert victims(choose([runs("other", label="other")], rules=rules)) == {"other"}


def test_a_victim_in_another_pool_frees_no_quota():
    rules = replace(RULES, cross_pool=True)
    elsewhere, own = runs("elsewhere", pool="q", priority=0.0), runs("own", priority=5.0)
    assert victims(choose([elsewhere, own], short=cpu(1), rules=rules)) == {"own"}
    refused = choose([elsewhere], short=cpu(1), rules=rules)
    assert isinstance(refused, PreemptionRefused)
    assert refused.reason is Reason.PREEMPTION_INSUFFICIENT
    assert refused.detail == "pool p would still lack {cpu: 1}"


def test_a_victim_in_another_pool_frees_a_full_node():
    rules = replace(RULES, cross_pool=True)
    assert victims(choose([runs("elsewhere", pool="q")], rules=rules)) == {"elsewhere"}


def test_quota_alone_may_come_from_any_node():
    found = choose([runs("a", row=1)], short=cpu(1), free={0: 4, 1: 0})
    assert victims(found) == {"a"}
    assert found.row == 0


def test_room_and_quota_may_come_from_different_nodes():
    rules = replace(RULES, cross_pool=True)
    found = choose([runs("room", pool="q", row=0), runs("quota", row=1)], short=cpu(1), free={0: 0}, rules=rules)
    assert found.row in (0, 1)
    assert victims(found) in ({"room", "quota"}, {"quota"})
    only_row_0 = plan(
        cpu(1),
        pool="p",
        pool_short=cpu(1),
        free_by_row={0: {}},
        scored=evaluate(demand(), [runs("room", pool="q", row=0), runs("quota", row=1)], rules, NOW_MS),
        preemptor=demand(),
        rules=rules,
    )
    assert victims(only_row_0) == {"room", "quota"}


def test_every_resource_has_to_fit():
    wanted = ResourceSet.of({"cpu": 1, "gpu": 1})
    assert victims(choose([runs("cpu only", priority=0.0), runs("both", gpu=1, priority=5.0)], wanted=wanted)) == {"both"}


def test_a_fitting_group_is_worth_a_point_of_priority():
    other, suits = runs("other", priority=2.0), runs("suits", priority=2.5, group="g1")
    found = choose([other, suits], reusable={"g1"})
    assert victims(found) == {"suits"}
    assert found.reuses == "g1"
    assert found.row == 0
    assert victims(choose([other, replace(suits, priority=4.0)], reusable={"g1"})) == {"other"}


def test_a_group_is_reused_on_its_own_row_first():
    found = choose([runs("suits", group="g1", row=3)], short=cpu(1), free={0: 4, 3: 4}, reusable={"g1"})
    assert (found.row, found.reuses) == (3, "g1")


def test_the_reason_for_no_victims_is_reported():
    nothing = choose([])
    assert isinstance(nothing, PreemptionRefused)
    assert nothing == PreemptionRefused(reason=Reason.NO_PREEMPTION_CANDIDATES, detail="no running task is a candidate")
    refused = choose([runs("a", priority=9.0), runs("b", pool="q"), runs("c", pool="q")])
    assert isinstance(refused, PreemptionRefused)
    assert refused.detail == "2 OTHER_POOL, 1 PRIORITY_NOT_LOWER"


def test_the_shortage_on_the_nearest_node_is_reported():
    refused = choose([runs("a", row=0), runs("b", row=1, cpu=3)], wanted=4)
    assert isinstance(refused, PreemptionRefused)
    assert (refused.reason, refused.detail) == (
        Reason.PREEMPTION_INSUFFICIENT,
        "the best node would still lack {cpu: 1}",
    )


# -- how often ---------------------------------------------------------------------------------------------------------


def test_preemptions_of_a_label_are_limited_per_minute():
    rules = replace(RULES, per_minute_max=2)
    assert verdict_on(runs(), rules=rules, recent_preemptions={"": 1}) is Reason.ELIGIBLE
    assert verdict_on(runs(), rules=rules, recent_preemptions={"": 2}) is Reason.PREEMPTION_LIMIT
    assert verdict_on(runs(), rules=rules, recent_preemptions={"other": 2}) is Reason.ELIGIBLE


def test_the_victims_of_one_plan_count_together():
    rules = replace(RULES, per_minute_max=2)
    both = [runs("a"), runs("b")]
    assert victims(choose(both, wanted=2, rules=rules)) == {"a", "b"}
    refused = choose(both, wanted=2, rules=rules, recent_preemptions={"": 1})
    assert isinstance(refused, PreemptionRefused)
    assert refused.detail == "at most 2 tasks of a label may be preempted per minute, and more are needed"


# -- the table, and size -----------------------------------------------------------------------------------------------


def test_free_room_is_read_from_the_table():
    table = NodeTable()
    table.join("n1", ResourceSet.of({"cpu": 4}), {})
    table.join("n2", ResourceSet.of({"cpu": 2, "memory": "1GiB"}), {})
    table.promise(0, table.vector(cpu(3)))
    assert free_rows(table, [0, 1]) == {0: {"cpu": 10_000, "memory": 0}, 1: {"cpu": 20_000, "memory": 2**30}}
    assert free_rows(table, []) == {}
