"""Descriptions of the holders of the capacity that a stage waits for."""

from __future__ import annotations

import queue

import pytest

from mesh.core.ids import StageId
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow
from mesh.ray.user_code.room import RoomWatch, why_not_placed


def group(name: str, *, cpu: float, is_placed: bool = True, creator: str = "", nodes: tuple[str, ...] = ()) -> GroupRow:
    return GroupRow(
        id=f"{name}-hex-of-ray",
        name=name,
        job="01",
        creator=creator,
        is_placed=is_placed,
        created_ms=1,
        amounts={"CPU": cpu},
        nodes=nodes,
    )


def actor(name: str, **amounts: float) -> ActorRow:
    return ActorRow(
        id=f"{name}-id",
        name=name,
        class_name="A",
        job="01",
        worker="w",
        owner="o",
        group="",
        is_detached=True,
        created_ms=1,
        amounts=amounts,
    )


WANTED = group("", cpu=2, is_placed=False)


def test_a_group_that_is_placed_waits_for_nothing() -> None:
    assert why_not_placed("a-hex-of-ray", [group("a", cpu=2)], []) is None
    assert why_not_placed("gone", [], []) is None


def test_holders_are_named_with_their_amounts() -> None:
    words = why_not_placed(WANTED.id, [WANTED, group("big", cpu=4, creator="maker-id")], [actor("maker", CPU=1), actor("other", GPU=1)])
    assert words == (
        "Ray has no room for its placement group of 2 CPU; held: 4 CPU by placement group big (big-hex-) of actor maker (maker-id), "
        "1 CPU by actor maker (maker-id) of job 01"
    )


def test_many_holders_are_counted() -> None:
    words = why_not_placed(WANTED.id, [WANTED, *(group(str(number), cpu=1) for number in range(7))], [])
    assert words is not None
    assert words.endswith(", 2 more")


def test_nobody_who_is_known_holds_it() -> None:
    words = why_not_placed(WANTED.id, [WANTED], [])
    assert words == "Ray has no room for its placement group of 2 CPU; no actor and no placement group holds it"


#: Nodes of a gang at the looks at Ray's table; (): Ray has not placed all its bundles.
LOSSES = {
    "Ray does not place it again": ((), ("a", "b"), ("a", "b"), (), ()),
    "Ray places it again before the next look": ((), ("a", "b"), ("a", "c"), ("a", "c")),
}


@pytest.mark.parametrize("seen", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("is_known_placed", [False, True])
def test_a_gang_that_loses_a_node_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, seen: tuple[tuple[str, ...], ...], is_known_placed: bool
) -> None:
    looks = [[group("g", cpu=2, is_placed=bool(nodes), nodes=nodes)] for nodes in seen[is_known_placed:]]
    broken, opened = queue.SimpleQueue[str](), queue.SimpleQueue[str]()
    monkeypatch.setattr("mesh.ray.user_code.ray_tables.groups", lambda: looks.pop(0) if looks else [])
    watch = RoomWatch(lambda *_: None, lambda _, name: opened.put(name), broken.put)
    watch.add(StageId("s"), [] if is_known_placed else ["g-hex-of-ray"], can_begin=True, gangs=["g-hex-of-ray"])
    if not is_known_placed:
        assert opened.get(timeout=60) == "g-hex-of-ray"
    assert broken.get(timeout=60) == "s"
    watch.drop(StageId("s"))
    assert broken.empty()
