"""Picks of many copies are those of one pick and promise after another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.nodes import NodeTable
from mesh.core.random_stream import RandomStream
from mesh.core.resources import ResourceSet
from mesh.errors import LedgerError
from mesh.placement.candidates import Candidates
from mesh.placement.two_pass import promise_copies
from mesh.policies.catalogue import BUILT_INS, UnknownPolicy
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import NodeDemand
from mesh.stages.slot_placement import check_policy


def _is_usable(name: str) -> bool:
    try:
        check_policy(name)
    except UnknownPolicy:
        return False
    return True


POLICIES = (*filter(_is_usable, BUILT_INS.names), "0.7*least_busy+0.3*binpack", "weighted+spread")
AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.integers(1, 16)}, optional={"gpu": st.integers(1, 4), "memory": st.integers(2**20, 2**36), "disk": st.just(0.3)}
)
NODES = st.lists(st.tuples(AMOUNTS, st.lists(st.sampled_from((0.25, 1, 3)), max_size=3), st.booleans()), min_size=1, max_size=40)
SLOTS = st.fixed_dictionaries(
    {"cpu": st.sampled_from((0.01, 0.5, 1, 3))}, optional={"gpu": st.sampled_from((0.3, 1)), "memory": st.just(2**27)}
)


def table_of(nodes) -> NodeTable:
    table = NodeTable()
    for number, (total, busy, is_labelled) in enumerate(nodes):
        table.join(f"n{number}", ResourceSet.of(total), {"zone": "a"} if is_labelled else {})
        for cpus in busy:
            table.queue_for(table.row(f"n{number}"), table.vector(ResourceSet.of({"cpu": cpus})))
    return table


def candidates_of(table, policy, wanted, selector, shapes) -> Candidates:
    asked = [ResourceSet.of(shape) for shape in shapes]
    for shape in asked:
        table.vector(shape)  # Adds its columns.
    vector = table.vector(wanted)
    common = CommonShapes.of([table.vector(shape) for shape in asked]) if asked else None
    return Candidates(table, wanted, selector, BUILT_INS.policy(policy), NodeDemand(wanted=vector, common=common))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(nodes=NODES, slot=SLOTS, selector=st.sampled_from(({}, {"zone": "a"})), shapes=st.lists(SLOTS, max_size=4), most=st.integers(1, 120))
def test_many_picks_equal_one_after_another(policy, nodes, slot, selector, shapes, most):
    wanted = ResourceSet.of(slot)
    one, many = (table_of(nodes) for _ in range(2))
    single, batched = (candidates_of(table, policy, wanted, selector, shapes) for table in (one, many))
    draws = RandomStream(7), RandomStream(7)
    expected: list[int] = []
    while len(expected) < most and (row := single.pick(draws[0].draw)) is not None:
        one.promise(row, one.vector(wanted))
        expected.append(row)
    found = promise_copies(batched, many, draws[1].draw, most)
    assert found == expected
    assert draws[0].position == draws[1].position
    for name in ("load", "left", "busy"):
        assert (getattr(one, name) == getattr(many, name)).all()
    assert (batched.scores() == candidates_of(many, policy, wanted, selector, shapes).scores()).all()
    many.withdraw_each(found, many.vector(wanted))
    assert many.load.sum() == table_of(nodes).load.sum()


def test_promises_beyond_what_is_free_are_refused():
    table = table_of([({"cpu": 2}, [], False)])
    with pytest.raises(LedgerError, match="do not have"):
        table.promise_each([0, 0, 0], table.vector(ResourceSet.of({"cpu": 1})))
    with pytest.raises(LedgerError, match="cannot release"):
        table.withdraw_each([0], table.vector(ResourceSet.of({"cpu": 1})))
    assert table.load.sum() == 0
