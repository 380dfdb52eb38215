"""Preemption among stages of one tenant on a mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import (
    MICROS,
    NO_LIMITS,
    Occupant,
    PreemptionLimits,
    evaluate_occupants,
    harm_of,
    preemptor_of,
    select_victims,
    short_of,
)

NOW_MS, MIN_RUN_MS = 100_000, 1_000
PREEMPTOR = preemptor_of("urgent", "acme", 5, "general")


def occupant(name, priority=0, cpus=1, *, age_ms=10_000, pool="general", tenant="acme", token=0, created_ms=0):
    return Occupant(
        stage=name,
        tenant=tenant,
        priority=priority,
        pool=pool,
        amounts=ResourceSet.of({"cpu": cpus}),
        started_ms=NOW_MS - age_ms,
        token=token,
        created_ms=created_ms,
    )


def stopped(*occupants, room=0, quota=0, preemptor=PREEMPTOR, limits=NO_LIMITS, scorer=None):
    found = select_victims(
        preemptor,
        occupants,
        room={"cpu": room * 10_000} if room else {},
        quota={"cpu": quota * 10_000} if quota else {},
        min_run_ms=MIN_RUN_MS,
        now_ms=NOW_MS,
        limits=limits,
        scorer=scorer,
    )
    return [victim.stage for victim in found]


@pytest.mark.parametrize(
    ("occupants", "room", "quota", "victims"),
    [
        pytest.param([occupant("a", 2), occupant("b", 1)], 1, 0, ["b"], id="the least urgent first"),
        pytest.param([occupant("a", age_ms=9_000), occupant("b", age_ms=3_000)], 1, 0, ["b"], id="of equals the one that loses least"),
        pytest.param([occupant("a", token=1), occupant("b", token=2)], 1, 0, ["b"], id="of these the last one started"),
        pytest.param([occupant("a"), occupant("b", 1), occupant("c", 2)], 2, 0, ["a", "b"], id="as many as it takes"),
        pytest.param([occupant("a"), occupant("b", 1, cpus=4)], 4, 0, ["b"], id="one that is not needed goes on"),
        pytest.param([occupant("a"), occupant("b")], 3, 0, [], id="no victim when all together are not enough"),
        pytest.param([occupant("a", 5), occupant("b", 6)], 1, 0, [], id="no victim that is as urgent, or more"),
        pytest.param([occupant("a", age_ms=999), occupant("b", 4)], 1, 0, ["b"], id="no victim that is too young"),
        pytest.param([occupant("a", tenant="other")], 1, 0, [], id="no victim of another tenant"),
        pytest.param([occupant("a", pool="spot"), occupant("b", 1)], 1, 0, ["b"], id="another pool's room is no help"),
        pytest.param([occupant("a", pool="spot"), occupant("b", 1)], 0, 1, ["a"], id="another pool's lease is"),
        pytest.param([occupant("a", pool="spot"), occupant("b", 1)], 1, 2, ["a", "b"], id="room and quota may come from different stages"),
        pytest.param([occupant("a")], 0, 0, [], id="no victim when nothing is missing"),
    ],
)
def test_as_few_as_suffice_stop_and_those_that_it_costs_least(occupants, room, quota, victims):
    assert stopped(*occupants, room=room, quota=quota) == victims


@pytest.mark.parametrize(
    ("occupants", "victims"),
    [
        pytest.param([occupant("a", 5, created_ms=8)], ["a"], id="an equal stage created later"),
        pytest.param([occupant("a", 5, created_ms=7)], [], id="no equal stage as old"),
        pytest.param([occupant("a", 5, created_ms=6)], [], id="no equal stage that is older"),
        pytest.param([occupant("a", 6, created_ms=8)], [], id="no stage that is more urgent, however new"),
        pytest.param([occupant("a", 5, created_ms=8), occupant("b", 4, created_ms=6)], ["b"], id="a less urgent stage before it"),
    ],
)
def test_stages_of_equal_priority_stop_for_older_ones(occupants, victims):
    assert stopped(*occupants, room=1, preemptor=preemptor_of("urgent", "acme", 5, "general", newer_than_ms=7)) == victims


@pytest.mark.parametrize(
    ("limits", "occupants", "quota", "victims"),
    [
        pytest.param({"threshold": 3 * MICROS}, [occupant("a", 2)], 0, [], id="a score at the threshold is not above it"),
        pytest.param({"threshold": 3 * MICROS}, [occupant("a", 1)], 0, ["a"], id="a score above the threshold"),
        pytest.param({"lost_work_per_s": MICROS // 2}, [occupant("a"), occupant("b", 1, age_ms=2_000)], 0, ["b"], id="less unsaved work"),
        pytest.param(
            {"lost_work_per_s": MICROS // 2},
            [replace(occupant("a"), saved_ms=NOW_MS - 1_000), occupant("b", 1, age_ms=2_000)],
            0,
            ["a"],
            id="work since a checkpoint counts",
        ),
        pytest.param({"lost_work_per_s": MICROS}, [occupant("a", 5), occupant("b", age_ms=50_000)], 0, ["b"], id="never one as urgent"),
        pytest.param(
            {"protected_pools": ("spot",)}, [occupant("a", pool="spot"), occupant("b", 1)], 2, [], id="no victim in a protected pool"
        ),
        pytest.param({"protected_pools": ("general",)}, [occupant("a")], 0, ["a"], id="its own pool, protected or not"),
    ],
)
def test_limits_of_the_mesh_choose_among_the_lower(limits, occupants, quota, victims):
    assert stopped(*occupants, room=1, quota=quota, limits=PreemptionLimits(**limits)) == victims


def test_each_stage_that_is_not_preempted_has_its_reason():
    asked = [occupant("a"), occupant("b", 5), occupant("c", age_ms=0)]
    assert [scored.verdict for scored in evaluate_occupants(PREEMPTOR, asked, min_run_ms=MIN_RUN_MS, now_ms=NOW_MS)] == [
        Reason.ELIGIBLE,
        Reason.PRIORITY_NOT_LOWER,
        Reason.BELOW_MIN_RUN_TIME,
    ]


def test_less_harm_is_less_urgent_then_fewer_then_shorter():
    young, old = occupant("young", age_ms=2_000), occupant("old", age_ms=9_000)
    choices = [(occupant("urgent", 1, age_ms=1_000),), (young, old), (old,), (young,)]
    assert [[victim.stage for victim in choice] for choice in sorted(choices, key=lambda choice: harm_of(choice, NOW_MS))] == [
        ["young"],
        ["old"],
        ["young", "old"],
        ["urgent"],
    ]


def test_a_shortage_of_a_slot_is_listed_by_resource():
    slot = ResourceSet.of({"cpu": 2, "gpu": 1})
    assert short_of(slot, {"cpu": 20_000, "gpu": -5_000}) == {"gpu": 15_000}


@pytest.mark.parametrize(
    ("scores", "room", "victims"),
    [
        pytest.param({"a": 1.0, "b": 3.0, "c": 2.0}, 1, ["b"], id="the highest score first"),
        pytest.param({"a": 1.0, "b": 3.0, "c": 2.0}, 2, ["b", "c"], id="as many as it takes"),
        pytest.param({"a": 1.0, "b": None, "c": None}, 1, ["a"], id="none that the plugin spares"),
        pytest.param({"a": 1.0, "b": None, "c": None}, 2, [], id="no victim when the others are too few"),
        pytest.param({"a": 0.0, "b": 0.0, "c": 0.0}, 1, ["a"], id="of equal scores the usual order"),
        pytest.param(None, 1, ["a"], id="the usual order without scores"),
    ],
)
def test_s13_a_plugin_chooses_among_less_urgent_stages(scores, room, victims):
    found = [occupant("a", 0), occupant("b", 4), occupant("c", 2)]
    scorer = lambda _preemptor, lower, _now_ms: None if scores is None else [scores[one.stage] for one in lower]  # noqa: E731
    assert stopped(*found, room=room, scorer=scorer) == victims


def test_s13_a_plugin_sees_only_candidates_of_lower_priority():
    seen = []

    def scorer(preemptor, lower, now_ms):
        seen.extend(one.stage for one in lower)
        return [None for _ in lower]

    preemptor = preemptor_of("urgent", "acme", 5, "general", newer_than_ms=100)
    found = [occupant("lower", 4), occupant("as urgent", 5), occupant("newer", 5, created_ms=101), occupant("young", age_ms=1)]
    assert stopped(*found, occupant("other", tenant="other"), room=1, preemptor=preemptor, scorer=scorer) == ["newer"]
    assert seen == ["lower"]
