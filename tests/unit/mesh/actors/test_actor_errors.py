"""Texts and contents of the errors of actor groups."""

from mesh.actors.errors import GroupCallFailed, MemberLost
from mesh.core.ids import AgentId
from mesh.errors import MeshError


def test_s2_errors_of_all_ranks_are_reported_with_the_results():
    failed = GroupCallFailed("step", {1: ValueError("odd"), 3: KeyError("x")}, {0: "a", 2: "c"}, {1: "rank 1 (agent a-1, tensor=1)"})
    assert str(failed) == "step: 2 of 4 ranks failed. rank 1 (agent a-1, tensor=1): ValueError: odd; rank 3: KeyError: 'x'"
    assert failed.results == {0: "a", 2: "c"}
    assert isinstance(failed, MeshError)


def test_long_errors_are_shortened():
    failed = GroupCallFailed("step", {0: ValueError("x" * 5000)}, {}, {})
    assert len(str(failed)) < 500
    assert failed.errors[0].args == ("x" * 5000,)


def test_a_lost_member_is_named():
    assert str(MemberLost(AgentId("a-1"), 3, "killed\n  by somebody")) == "agent a-1 (rank 3) is lost: killed by somebody"
