"""Laws of cached scores: equal to a fresh look at every node (ADR 0014)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.ids import NodeName
from mesh.core.nodes import NodeTable
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import Weights
from mesh.placement.candidates import Candidates
from mesh.policies.catalogue import node_policy
from mesh.policies.policy import NodeDemand

WANTED = ResourceSet.of({"cpu": 1, "memory": "1GiB"})
TAKEN = ResourceSet.of({"cpu": "0.5", "memory": "512MiB"})
ZONES = ("east", "west")


def looked_at(table: NodeTable, name: str) -> Candidates:
    demand = NodeDemand(wanted=table.vector(WANTED), weights=Weights())
    return Candidates(table, WANTED, {"zone": "in(east)"}, node_policy(name), demand)


def change(table: NodeTable, held: list[NodeName], verb: str, number: int) -> None:
    """Make one change to a table; `held` lists the nodes with reservations, once for each."""
    node = NodeName(f"n{number % 6}")
    if verb == "join" and node not in table:
        table.join(node, ResourceSet.of({"cpu": 1 + number % 4, "memory": "4GiB"}), {"zone": ZONES[number % 2]})
    elif verb == "leave" and node in table and node not in held:
        table.leave(node)
    elif verb == "promise" and node in table:
        row = table.row(node)
        if (table.free(np.array([row]))[0] >= table.vector(TAKEN)).all():
            table.promise(row, table.vector(TAKEN))
            held.append(node)
    elif verb == "withdraw" and held:
        gone = held.pop(number % len(held))
        table.withdraw(table.row(gone), table.vector(TAKEN))


@pytest.mark.parametrize("name", ["weighted", "binpack", "hybrid", "least_busy", "spread", "min_fragment"])
@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.sampled_from(["join", "leave", "promise", "promise", "withdraw"]), st.integers(0, 23)), max_size=30))
def test_scores_that_were_kept_are_those_of_a_new_look(name: str, steps: list[tuple[str, int]]):
    table, held = NodeTable(), []
    kept = looked_at(table, name)
    for verb, number in steps:
        change(table, held, verb, number)
        assert np.allclose(kept.scores(), looked_at(table, name).scores())
