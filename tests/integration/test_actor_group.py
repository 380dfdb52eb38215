"""Actor groups on a real cluster: selection, dispatch, and failures of members."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
import ray
from ray.exceptions import ActorDiedError, RayActorError

from mesh.actors.dispatching import Split
from mesh.actors.errors import CallTimeout, DispatchError, GroupCallFailed, GroupCallTimeout, GroupError, MemberLost, NoMembers, ShapeError
from mesh.actors.members import GroupMember
from mesh.actors.per_rank import PerRank
from mesh.core.ids import AgentId, TaskId
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.local.agent.agent import Agent
from mesh.ray.local.agent_messages import HostCommand, Hosted, StopCommand
from mesh.ray.local.client.actor_group import ActorGroup
from mesh.ray.local.pickled_code import pickled_class

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

PATIENCE_S = 60.0
RANKS = 4
SHAPE = {"pipeline": 2, "tensor": 2}


@ray.remote(num_cpus=0)
class Gate:
    """Gate that is shut until a test opens it."""

    def __init__(self):
        self.opened = asyncio.Event()

    async def wait(self):
        await self.opened.wait()

    async def open(self):
        self.opened.set()


class Worker:
    """Class that agents host here."""

    def __init__(self, rank=0):
        self.rank = rank

    def who(self, *args, **kwargs):
        return (self.rank, *args, *kwargs.values())

    def lead(self, value):
        return f"rank {self.rank} leads {value}"

    def follow(self, value):
        return f"rank {self.rank} follows {value}"

    def double(self, values):
        return values * 2

    def give(self, value):
        return value

    def fail_at(self, *ranks):
        if self.rank in ranks:
            raise ValueError(f"no luck at {self.rank}")
        return self.rank

    def hold(self, gate, *ranks):
        if not ranks or self.rank in ranks:
            ray.get(gate.wait.remote())
        return self.rank

    def die_at(self, *ranks):
        if self.rank in ranks:
            os._exit(1)
        return self.rank

    def meet(self, other):
        return ray.get(other.call.remote("who"))

    def length(self, blob):
        return len(blob.content)

    def count(self, upto):
        for number in range(upto):
            if number == 2 and self.rank == 1:
                raise ValueError("lost count")
            yield number


@ray.remote(num_cpus=0)
class Bare(Worker):
    """Minimal agent, as its callers see it."""

    def call(self, method, /, *args, **kwargs):
        return getattr(self, method)(*args, **kwargs)

    def stream(self, method, /, *args, **kwargs):
        yield from getattr(self, method)(*args, **kwargs)


def member(handle: Any, rank: int, **more: Any) -> GroupMember:
    return GroupMember(agent=AgentId(f"a-{rank}"), handle=handle, rank=rank, labels={"gpu": "a100" if rank < 2 else "h100"}, **more)


def until(holds: Callable[[], bool]) -> None:
    """Wait until the check is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not become true"
        ray.get(ray.put(None))


def has_died(handle: Any) -> bool:
    """Return whether Ray reports the death, which takes a moment: until then calls may be answered or lost."""
    try:
        ray.get(handle.call.remote("who"))
    except RayActorError as error:
        return isinstance(error, ActorDiedError)
    return False


def answered(call: Any, count: int) -> None:
    """Wait until so many calls of the group have been answered."""
    assert len(ray.wait(list(call.refs), num_returns=count, timeout=PATIENCE_S)[0]) == count


@pytest.fixture(scope="module")
def handles(ray_driver: OwnCluster) -> Iterator[list[Any]]:
    made = [Bare.remote(rank) for rank in range(RANKS)]
    yield made
    for handle in made:
        ray.kill(handle)


@pytest.fixture
def group(handles: list[Any]) -> ActorGroup:
    return ActorGroup([member(handle, rank) for rank, handle in enumerate(handles)], SHAPE)


@pytest.fixture
def gate(ray_driver: OwnCluster) -> Iterator[Any]:
    made = Gate.remote()
    yield made
    ray.get(made.open.remote())
    ray.kill(made)


@pytest.fixture
def mortal(ray_driver: OwnCluster) -> Iterator[Callable[[int], ActorGroup]]:
    """Make groups of processes that a test may end."""
    made: list[Any] = []

    def make(count: int) -> ActorGroup:
        fresh = [Bare.remote(rank) for rank in range(count)]
        made.extend(fresh)
        return ActorGroup([member(handle, rank) for rank, handle in enumerate(fresh)])

    yield make
    for handle in made:
        ray.kill(handle)


# -- shapes ------------------------------------------------------------------------------------------------------------


def test_s1_a_part_of_the_mesh_is_called_by_its_coordinates(group):
    assert group.where(tensor=1).all().who() == [(1,), (3,)]
    assert group[{"pipeline": 1}].all().who() == [(2,), (3,)]
    assert group.where(pipeline=1, tensor=0).all().who() == [(2,)]
    assert group.where(tensor=[1]).dimensions.sizes == {"pipeline": 2, "tensor": 1}


def test_s1_a_part_of_a_part_is_a_part(group):
    part = group.where(pipeline=1).where(tensor=1)
    assert [one.agent for one in part.members] == ["a-3"]
    assert part is group.where(pipeline=1).where(tensor=1), "whose turn it is must not be forgotten"


def test_a_group_has_the_size_of_its_shape_and_each_rank_once(handles):
    with pytest.raises(ShapeError, match="tensor=3 needs 3 members, got 4"):
        ActorGroup([member(handle, rank) for rank, handle in enumerate(handles)], {"tensor": 3})
    with pytest.raises(ShapeError, match="the ranks 0 to 1, each once"):
        ActorGroup([member(handles[0], 0), member(handles[1], 2)])


# -- all ---------------------------------------------------------------------------------------------------------------


def test_s2_all_gives_the_results_in_rank_order(group):
    assert group.all().who("x", y="y") == [(rank, "x", "y") for rank in range(RANKS)]
    assert group.all("who", "x") == [(rank, "x") for rank in range(RANKS)]


def test_s2_all_of_a_label_reaches_those_that_carry_it(group):
    assert group.all("gpu:h100").who() == [(2,), (3,)]
    assert group.all(label={"gpu": "a100"}).who() == [(0,), (1,)]
    assert len(group.all(label="gpu").who()) == RANKS
    with pytest.raises(NoMembers, match="carries the label 'gpu:b200'"):
        group.all("gpu:b200")
    with pytest.raises(GroupError, match="two labels"):
        group.all("gpu:a100", label="gpu:h100")


def test_s2_code_and_arguments_may_differ_by_rank(group):
    method = PerRank(["lead", "follow", "follow", "follow"])
    assert group.all(method, "us")[:2] == ["rank 0 leads us", "rank 1 follows us"]
    assert group.all().who(PerRank(lambda place: (place["pipeline"], place["tensor"]))) == [
        (0, (0, 0)),
        (1, (0, 1)),
        (2, (1, 0)),
        (3, (1, 1)),
    ]
    with pytest.raises(DispatchError, match="3 values, but the group has 4 ranks"):
        group.all().who(PerRank([1, 2, 3]))


def test_s2_errors_of_some_ranks_are_reported_with_the_results(group):
    with pytest.raises(GroupCallFailed) as caught:
        group.all().fail_at(1, 2)
    assert caught.value.results == {0: 0, 3: 3}
    assert {rank: type(error.cause) for rank, error in caught.value.errors.items()} == {1: ValueError, 2: ValueError}
    assert "rank 1 (agent a-1, pipeline=0, tensor=1): ValueError: no luck at 1; rank 2 (" in str(caught.value)


def test_s2_late_ranks_are_reported_with_the_results_of_others(group, gate):
    call = group.all().hold.remote(gate, 2)
    answered(call, 3)
    with pytest.raises(GroupCallTimeout) as caught:
        call.result(timeout=0.1)
    assert isinstance(caught.value, (GroupCallFailed, TimeoutError))
    assert caught.value.results == {0: 0, 1: 1, 3: 3}
    assert isinstance(caught.value.errors[2], CallTimeout)


def test_s2_a_call_of_all_takes_no_longer_than_it_may(group, gate):
    with pytest.raises(GroupCallTimeout) as caught:
        group.all(timeout=0.1).hold(gate)
    assert {rank: type(error) for rank, error in caught.value.errors.items()} == dict.fromkeys(range(RANKS), CallTimeout)


def test_s2_all_is_awaited_and_taken_as_references(group):
    async def ask():
        return await group.all().who.remote(1), await group.choose("gpu:a100", "round_robin").who.remote(2)

    assert asyncio.run(ask()) == ([(rank, 1) for rank in range(RANKS)], (0, 2))
    assert ray.get(group.all().who.refs()) == [(rank,) for rank in range(RANKS)]

    async def fail_late():
        await group.all().fail_at.remote(3)

    with pytest.raises(GroupCallFailed, match=r"1 of 4 ranks failed") as caught:
        asyncio.run(fail_late())
    assert caught.value.results == {0: 0, 1: 1, 2: 2}


def test_s2_results_are_taken_as_they_come(group, gate):
    coming = group.all().hold.remote(gate, 1).as_they_come()
    assert sorted(next(coming) for _ in range(3)) == [(0, 0), (2, 2), (3, 3)]
    ray.get(gate.open.remote())
    assert list(coming) == [(1, 1)]


def test_s2_a_late_rank_is_reported_after_the_others(group, gate):
    results = []
    call = group.all().hold.remote(gate, 1)
    answered(call, 3)
    with pytest.raises(GroupCallFailed, match="hold: 1 of 4 ranks failed") as caught:
        results.extend(call.as_they_come(timeout=0.1))
    assert sorted(results) == [(0, 0), (2, 2), (3, 3)]
    assert set(caught.value.errors) == {1}


def test_s2_merged_streams_survive_the_failure_of_one(group):
    results = []
    with pytest.raises(GroupCallFailed, match="count: 1 of 4 ranks failed"):
        results.extend(group.all().count.stream(3))
    assert sorted(results) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]


def test_nobody_answers_a_call_of_an_empty_group():
    nobody = ActorGroup([])
    assert nobody.all().who() == []
    with pytest.raises(NoMembers):
        nobody.choose().who()


# -- choose ------------------------------------------------------------------------------------------------------------


def senders(references: list[Any]) -> dict[int, int]:
    """Return the number of calls of each rank."""
    got = [rank for rank, *_ in ray.get(references)]
    return {rank: got.count(rank) for rank in sorted(set(got))}


@pytest.mark.parametrize("strategy", ["least_busy", "round_robin"])
def test_s3_twelve_calls_go_to_four_agents_three_each(group, gate, strategy):
    held = [group.choose(strategy=strategy).hold.remote(gate) for _ in range(12)]  # A held call keeps its agent busy.
    ray.get(gate.open.remote())
    assert sorted(ray.get(held)) == sorted([0, 1, 2, 3] * 3)
    until(lambda: not any(group.loads().values()))
    assert sorted(group.choose(strategy=strategy).who()[0] for _ in range(12)) == sorted([0, 1, 2, 3] * 3)


@pytest.mark.parametrize("strategy", ["random", "power_of_two"])
def test_s3_chance_reaches_more_than_one(group, strategy):
    assert len(senders([group.choose(strategy).who.remote() for _ in range(40)])) > 1


def test_s3_choose_takes_a_label_and_a_strategy(group):
    assert senders([group.choose("gpu:h100", "round_robin").who.remote() for _ in range(4)]) == {2: 2, 3: 2}
    with pytest.raises(NoMembers):
        group.choose("gpu:b200")
    with pytest.raises(GroupError, match="no strategy 'busiest'"):
        group.choose(strategy="busiest")


def test_s3_a_busy_agent_is_avoided_by_every_part_of_the_group(group, gate):
    held = group.where(pipeline=0, tensor=1).choose().hold.remote(gate)
    assert 1 not in {group.choose().who()[0] for _ in range(9)}
    assert 1 not in {group.choose("gpu:a100").who()[0] for _ in range(3)}
    assert 1 not in senders([group.choose("gpu:a100").who.remote()])
    ray.get(gate.open.remote())
    assert ray.get(held) == 1
    until(lambda: not any(group.loads().values()))


def test_s3_calls_count_until_they_end_without_references(group, gate):
    for _ in range(RANKS * 2):
        group.choose().hold.remote(gate)
    assert set(group.loads().values()) == {2}
    ray.get(gate.open.remote())
    until(lambda: not any(group.loads().values()))


def test_s3_an_agent_that_reports_a_long_queue_is_left_alone(group):
    group.report({AgentId("a-0"): 1000})
    assert 0 not in senders([group.choose().who.remote() for _ in range(12)])
    group.report({AgentId("a-0"): 0})
    assert 0 in senders([group.choose().who.remote() for _ in range(12)])


def test_s3_priority_prefers_the_agents_of_urgent_tasks(handles):
    urgent = ActorGroup([member(handle, rank, priority=9.0 if rank == 2 else 1.0) for rank, handle in enumerate(handles)])
    assert senders([urgent.choose(strategy="priority").who.remote() for _ in range(6)]) == {2: 6}


def test_s3_a_strategy_of_ones_own_sees_the_loads(group):
    def last(loads, _turn, _draw):
        assert [load.waiting for load in loads] == [0, 0, 0, 0]
        return len(loads) - 1

    assert group.choose(strategy=last).who() == (3,)


def test_a_late_answer_is_still_counted(group, gate):
    with pytest.raises(CallTimeout, match=r"has not answered within 0.1 s; the call continues"):
        group.choose(timeout=0.1).hold(gate)
    assert sorted(group.loads().values()) == [0, 0, 0, 1]
    ray.get(gate.open.remote())
    until(lambda: not any(group.loads().values()))


def test_what_cannot_be_sent_is_not_counted(group):
    class Unpicklable:
        def __reduce__(self):
            raise pickle.PicklingError("not this one")

    for call in (group.choose().who, group.choose().who.remote, group.choose().count.stream):
        with pytest.raises(Exception, match="not this one"):
            call(Unpicklable())
    assert not any(group.loads().values())


def test_an_error_of_the_method_is_raised_as_it_is(group):
    with pytest.raises(ValueError, match="no luck"):
        group.choose().fail_at(0, 1, 2, 3)
    assert group.lost == ()


def test_a_chosen_agent_streams(group):
    assert list(group.where(tensor=0).choose().count.stream(3)) == [0, 1, 2]
    until(lambda: not any(group.loads().values()))


# -- dead members ------------------------------------------------------------------------------------------------------


def test_a_dead_member_is_reported_and_not_chosen(mortal):
    group = mortal(2)
    with pytest.raises(MemberLost, match=r"agent a-0 \(rank 0\) is lost"):
        group.choose("round_robin").die_at(0)
    assert group.lost == ("a-0",)
    assert [group.choose("round_robin").who() for _ in range(3)] == [(1,)] * 3
    until(lambda: has_died(group.members[0].handle))
    with pytest.raises(GroupCallFailed) as caught:  # No member is missing unnoticed.
        group.all().who()
    assert isinstance(caught.value.errors[0], ActorDiedError)
    assert caught.value.results == {1: (1,)}
    with pytest.raises(MemberLost):
        group.choose().die_at(1)
    with pytest.raises(NoMembers, match="all 2 are lost"):
        group.choose().who()


def test_a_dead_member_attracts_no_calls_of_direct_callers(mortal):
    group = mortal(2)
    ray.kill(group.members[0].handle)
    until(lambda: has_died(group.members[0].handle))
    assert senders([group.choose().who.remote() for _ in range(6)]) == {1: 6}
    assert group.lost == ("a-0",)


def test_a_call_is_sent_again_only_when_that_is_asked(mortal):
    group = mortal(2)
    assert group.choose("round_robin", retry=True).die_at(0) == 1
    assert group.lost == ("a-0",)


def test_a_refresh_brings_the_successor_to_group_and_parts(mortal):
    group = mortal(2)
    part = group.where(rank=[0])
    with pytest.raises(MemberLost):
        part.choose().die_at(0)
    successor = mortal(1).members[0].handle
    group.refresh([member(successor, 0), group.members[1]])
    assert group.lost == ()
    assert part.choose().who() == (0,)
    group.refresh(group.members[:1])
    assert group.lost == ("a-1",)
    with pytest.raises(ShapeError, match="does not belong"):
        group.refresh([member(successor, 7)])


def test_a_remaining_member_keeps_its_count_over_changes(group, gate):
    held = group.where(pipeline=0, tensor=1).choose().hold.remote(gate)
    fewer = group.with_members([member(group.members[place].handle, place) for place in (0, 1)])
    assert fewer.loads() == {"a-0": 0, "a-1": 1}
    assert {fewer.choose().who()[0] for _ in range(4)} == {0}
    ray.get(gate.open.remote())
    assert ray.get(held) == 1
    until(lambda: not any(fewer.loads().values()))
    assert {fewer.choose().who()[0] for _ in range(4)} == {0, 1}


def test_a_dead_actor_that_a_member_meets_is_not_the_member(group, mortal):
    gone = mortal(1).members[0].handle
    ray.kill(gone)
    until(lambda: has_died(gone))
    with pytest.raises(ActorDiedError):
        group.choose().meet(gone)
    assert group.lost == ()


def test_an_agent_that_no_longer_hosts_the_task_is_lost(ray_driver):
    agent = Agent.remote("tests", "nobody", "tests", "a-0")
    task = TaskId("t-0")
    assert isinstance(ray.get(agent.host.remote(HostCommand(task=task, attempt=1, code=pickled_class(Worker)))), Hosted)
    group = ActorGroup([GroupMember(agent=AgentId("a-0"), handle=agent, rank=0, task=task, attempt=1)])
    assert group.choose().who(1) == (0, 1)
    assert group.all().who(2) == [(0, 2)]
    assert group.shard("double", [1]) == [1, 1]
    assert list(group.choose().count.stream(2)) == [0, 1]
    with pytest.raises(AttributeError, match="who"):
        group.choose().whoo()
    ray.get(agent.stop.remote(StopCommand(task=task, attempt=1)))
    with pytest.raises(MemberLost):
        group.choose().who()
    assert isinstance(ray.get(agent.host.remote(HostCommand(task=task, attempt=2, code=pickled_class(Worker)))), Hosted)
    group.refresh([GroupMember(agent=AgentId("a-0"), handle=agent, rank=0, task=task, attempt=2)])
    assert group.choose().who(3) == (0, 3)
    ray.kill(agent)


# -- shard -------------------------------------------------------------------------------------------------------------


def test_s4_values_are_split_and_results_put_together(group):
    np.testing.assert_array_equal(group.shard("double", np.arange(10)), np.arange(10) * 2)
    np.testing.assert_array_equal(group.shard(dispatch_fn="tensor").double(np.eye(4)), np.eye(4) * 2)
    assert group.shard("gpu:a100").give([1, 2, 3]) == [1, 2, 3]
    assert group.shard("give", [], collect_fn="gather") == [[], [], [], []]
    assert group.shard("give", [1, 2], collect_fn="gather") == [[1], [2], [], []]
    assert group.shard("give", {"x": np.arange(4), "y": list("abcd")})["y"] == list("abcd")


@pytest.mark.parametrize(
    ("dispatch", "collect", "value"),
    [
        pytest.param("broadcast", None, [5, 5, 5, 5], id="everybody gets the same, a list comes back"),
        pytest.param("broadcast", "sum", 20, id="a sum"),
        pytest.param("broadcast", "mean", 5, id="a mean"),
        pytest.param("broadcast", max, 5, id="a function of one's own"),
    ],
)
def test_s4_results_are_collected_as_asked(group, dispatch, collect, value):
    assert group.shard("give", 5, dispatch_fn=dispatch, collect_fn=collect) == value


def test_s4_a_custom_dispatch_calls_any_ranks_any_times(group):
    def last_two_and_twice(ranks, args, kwargs):
        for rank in (len(ranks) - 1, len(ranks) - 2, len(ranks) - 1):
            yield rank, (ranks.agents[rank], ranks.labels[rank]["gpu"], *args), kwargs

    def few(ranks, args, kwargs):
        return [(0, args, kwargs)]

    assert group.shard(dispatch_fn=last_two_and_twice).who(7) == [(3, "a-3", "h100", 7), (2, "a-2", "h100", 7), (3, "a-3", "h100", 7)]
    assert group.shard("who", dispatch_fn=few) == [(0,)]
    assert group.shard("who", dispatch_fn=lambda *_: []) == []
    with pytest.raises(DispatchError, match="returned rank 4; this group has ranks 0 to 3"):
        group.shard("who", dispatch_fn=lambda *_: [(4, (), {})])


def test_s4_an_error_of_one_rank_keeps_the_shares_of_the_others(group):
    with pytest.raises(GroupCallFailed) as caught:
        group.shard("fail_at", [0, 1, 2, 3], dispatch_fn="parts", collect_fn="sum")
    assert len(caught.value.errors) == RANKS
    with pytest.raises(GroupCallFailed) as caught:
        group.shard("fail_at", [9, 1, 9, 9], dispatch_fn="parts")
    assert caught.value.results == {0: 0, 2: 2, 3: 3}


def test_s4_results_that_do_not_fit_together_are_not_lost(group):
    with pytest.raises(DispatchError, match='collect_fn="gather"') as caught:
        group.shard("fail_at", [[], [], [], []], dispatch_fn="parts", collect_fn="concat")
    assert caught.value.results == (0, 1, 2, 3)


class Traveller:
    """Value that records the processes in which it was unpickled."""

    def __init__(self, seen=()):
        self.seen = list(seen)

    def __mul__(self, _):
        return self

    def __reduce__(self):
        return _arrived, (tuple(self.seen),)


def _arrived(seen):
    return Traveller([*seen, os.getpid()])


def test_s4_a_pipeline_hands_over_without_passing_here(group):
    values = [Traveller() for _ in range(4)]
    back = group.shard("give", values, dispatch_fn="pipeline")
    assert len(back) == len(values)
    for traveller in back:
        *stages, here = traveller.seen
        assert len(stages) == 2
        assert here == os.getpid()
        assert here not in stages


def test_s4_parts_of_four_workers_move_directly_to_two(group):
    parts = group.shard().give.refs([Traveller() for _ in range(6)])
    assert len(parts) == RANKS
    back = group.where(pipeline=0).shard("give", parts, dispatch_fn="reshard")
    assert [len(part) for part in back] == [3, 3]
    assert all(os.getpid() not in traveller.seen[:-1] for part in back for traveller in part)


def test_s4_resharding_keeps_order_and_passes_on_what_fits(group):
    two = group.where(pipeline=0)
    parts = two.shard().give.refs([1, 2, 3, 4])
    assert group.shard("give", parts, dispatch_fn="reshard") == [[1], [2], [3], [4]]
    assert two.shard("give", parts, dispatch_fn="reshard", collect_fn="concat") == [1, 2, 3, 4]
    assert two.shard("give", [[1], [2, 3], [4]], dispatch_fn="reshard") == [[1, 2], [3, 4]]
    with pytest.raises(DispatchError, match="give a list of parts"):
        two.shard("give", {}, dispatch_fn="reshard")


class Blob:
    """Value that counts its pickling here."""

    pickled = 0

    def __init__(self, size_bytes):
        self.content = b"x" * size_bytes

    def __getstate__(self):
        Blob.pickled += 1
        return {"content": self.content}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda group, blob: group.all().length(blob), id="all"),
        pytest.param(lambda group, blob: group.shard(dispatch_fn="broadcast").length(blob), id="a broadcast"),
        pytest.param(lambda group, blob: group.all("length", blob=blob), id="by name"),
    ],
)
def test_s4_a_large_argument_for_all_is_pickled_once(group, call):
    Blob.pickled, blob = 0, Blob(200_000)
    assert call(group, blob) == [200_000] * RANKS
    assert Blob.pickled == 1


def test_what_goes_to_all_is_not_stored_with_what_is_cut(group):
    shared, values = np.zeros(200_000, dtype=np.uint8), np.arange(8)
    assert [
        (rank, piece.tolist(), same.nbytes)
        for rank, piece, same in group.shard(dispatch_fn=Split(arguments=(0,)), collect_fn="gather").who(values, shared)
    ] == [(rank, [2 * rank, 2 * rank + 1], 200_000) for rank in range(RANKS)]


# -- copies ------------------------------------------------------------------------------------------------------------


def test_a_group_travels_to_a_task_which_calls_it(group):
    @ray.remote(num_cpus=0)
    def elsewhere(copied):
        return copied.all().who(), copied.dimensions.sizes, sorted(copied.choose().who()[0] for _ in range(2))

    assert ray.get(elsewhere.remote(group)) == ([(0,), (1,), (2,), (3,)], SHAPE, [0, 1])
    assert ray.get(elsewhere.remote(group.where(pipeline=1)))[:2] == ([(2,), (3,)], {"tensor": 2})


def test_a_copy_is_made_by_pickling_alone(group):
    copied = pickle.loads(pickle.dumps(group))  # noqa: S301  made here
    assert repr(copied) == "ActorGroup(pipeline=2 x tensor=2)"
    assert [one.agent for one in copied.members] == [one.agent for one in group.members]
