"""Actors and tasks that end with a stage, and those that stay with running stages."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.core.ids import StageId
from mesh.ray.user_code.dependents import SKEW_MS, Dependents, dependents
from mesh.ray.user_code.ownership import OwnerReference, ResourceKind
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow, TaskRow

OVER, RUNS = StageId("over"), StageId("runs")


JOB = "0000000j"


def noted(
    stage: StageId, kind: ResourceKind = ResourceKind.STAGE, name: str = "", *, worker: str = "w", at_ms: int = 10_000
) -> OwnerReference:
    return OwnerReference(stage=stage, kind=kind, id=name, worker=worker, job=JOB, at_ms=at_ms)


def actor(name: str, *, owner: str = "w", worker: str = "", group: str = "", created_ms: int = 20_000, job: str = JOB) -> ActorRow:
    return ActorRow(
        id=name,
        name="",
        class_name="A",
        job=job,
        worker=worker or f"process of {name}",
        owner=owner,
        group=group,
        is_detached=True,
        created_ms=created_ms,
        amounts={},
    )


def group(name: str, *, creator: str = "", created_ms: int = 20_000, job: str = JOB) -> GroupRow:
    return GroupRow(id=name, name="", job=job, creator=creator, is_placed=True, created_ms=created_ms, amounts={})


def left(references: list[OwnerReference], *rows: Any, given_back: tuple[str, ...] = ()) -> tuple[set[str], set[str]]:
    found: Dependents = dependents(
        references,
        running={RUNS},
        actors=[row for row in rows if isinstance(row, ActorRow)],
        groups=[row for row in rows if isinstance(row, GroupRow)],
        tasks=(),
        given_back=given_back,
        own={"driver"},
    )
    return set(found.actors), set(found.groups)


def task(name: str, parent: str, *, owner: str = "w") -> TaskRow:
    return TaskRow(id=f"{name}{JOB}", parent=f"{parent}{JOB}", owner=owner)


def parents_left(references: list[OwnerReference], *tasks: TaskRow, actors: tuple[ActorRow, ...] = ()) -> set[str]:
    """Return the parents whose tasks are ended."""
    found = dependents(references, running={RUNS}, actors=actors, groups=(), tasks=tasks, given_back=(), own={"driver", "runner"})
    return {parent.removesuffix(JOB) for _, parent in found.parents}


def test_what_was_noted_goes_with_its_stage() -> None:
    references = [
        noted(OVER, ResourceKind.GROUP, "g"),
        noted(OVER, ResourceKind.ACTOR, "a"),
        noted(RUNS, ResourceKind.GROUP, "h"),
        noted(RUNS, ResourceKind.ACTOR, "b"),
    ]
    assert left(references, group("g"), group("h"), actor("a"), actor("b")) == ({"a"}, {"g"})


def test_a_handle_of_what_was_there_before_is_no_claim() -> None:
    references = [noted(RUNS), noted(OVER, ResourceKind.ACTOR, "shared", worker="late")]
    assert left(references, actor("shared", owner="early")) == (set(), set())


def test_actors_created_by_an_ending_actor_end_too() -> None:
    rows = actor("a"), actor("child", owner="process of a"), actor("grandchild", owner="process of child"), group("g", creator="child")
    assert left([noted(OVER, ResourceKind.ACTOR, "a"), noted(RUNS)], *rows) == ({"a", "child", "grandchild"}, {"g"})


def test_actors_in_a_group_that_goes_are_killed_first() -> None:
    rows = (
        actor("in it", owner="driver", group="g"),
        actor("in the room", owner="driver", group="lease"),
        group("g"),
        group("lease", creator="keeper"),
    )
    assert left([noted(OVER, ResourceKind.GROUP, "g")], *rows, given_back=("lease",)) == ({"in it", "in the room"}, {"g"})


@pytest.mark.parametrize(
    ("references", "goes"),
    [
        pytest.param([noted(OVER)], True, id="the only stage that may own it is over"),
        pytest.param([noted(OVER), noted(RUNS)], False, id="a stage that runs may own it"),
        pytest.param([noted(OVER), noted(RUNS, at_ms=20_000 + SKEW_MS)], False, id="it may, by as much as clocks are apart"),
        pytest.param([noted(OVER), noted(RUNS, at_ms=20_001 + SKEW_MS)], True, id="it began to create things afterwards"),
        pytest.param([noted(OVER, at_ms=20_001 + SKEW_MS)], False, id="it is older than all marks"),
    ],
)
def test_what_nobody_noted_goes_when_no_stage_may_own_it(references: list[OwnerReference], goes: bool) -> None:
    assert left(references, actor("a", owner="a task"), group("g")) == (({"a"}, {"g"}) if goes else (set(), set()))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(actor("a", owner="driver"), id="an actor of the mesh"),
        pytest.param(group("g", creator="keeper"), id="a group of the keeper"),
        pytest.param(actor("a", job="other"), id="an actor of another job"),
        pytest.param(group("g", job="other"), id="a group of another job"),
    ],
)
def test_what_is_not_a_tenants_stays(row: Any) -> None:
    assert left([noted(OVER)], row) == (set(), set())


def test_an_actor_that_waits_for_room_goes_with_the_last_stage() -> None:
    waiting = actor("waiting", owner="w", created_ms=0)
    assert left([noted(OVER)], waiting) == ({"waiting"}, set())
    assert left([noted(OVER), noted(RUNS)], waiting) == (set(), set())


def node(stage: StageId, name: str) -> OwnerReference:
    """Return the mark of a node that has started a task."""
    return noted(stage, name=f"{name}{JOB}")


def test_tasks_go_with_the_node_that_has_started_them() -> None:
    assert parents_left([node(OVER, "n"), node(RUNS, "m")], task("a", "n"), task("b", "m")) == {"n"}


def test_a_thread_of_two_stages_keeps_its_tasks_for_both() -> None:
    assert parents_left([node(OVER, "thread"), node(RUNS, "thread")], task("a", "thread")) == set()


def test_what_a_task_that_goes_has_started_goes_by_itself() -> None:
    assert parents_left([node(OVER, "n")], task("a", "n"), task("below", "a", owner="v")) == {"n"}


@pytest.mark.parametrize(("others", "goes"), [((), {"gone"}), ((node(RUNS, "m"),), set())], ids=["all stages are over", "one runs"])
def test_tasks_of_a_task_that_is_over_go_with_the_last_stage(others: tuple[OwnerReference, ...], goes: set[str]) -> None:
    assert parents_left([node(OVER, "n"), *others], task("orphan", "gone", owner="v")) == goes


def test_tasks_of_a_node_that_runs_and_could_not_note_it_stay() -> None:
    assert parents_left([node(OVER, "n")], task("m", "p", owner="runner"), task("child", "m")) == set()


@pytest.mark.parametrize("owner", ["driver", "runner", "process of a"], ids=["the mesh", "a runner", "an actor, with which they go"])
def test_tasks_of_others_stay(owner: str) -> None:
    assert parents_left([node(OVER, "n")], task("t", "p", owner=owner), actors=(actor("a", owner="driver"),)) == set()


def test_tasks_of_another_job_stay() -> None:
    assert parents_left([node(OVER, "n")], TaskRow(id="t0000000k", parent="p0000000k", owner="w")) == set()
