"""Laws of the ledger of placement groups, under any interleaving of its operations."""

from __future__ import annotations

from collections import Counter

import pytest
from examples_of_laws import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.core.pools import PoolSpec
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.errors import IllegalTransition, LedgerError
from mesh.placement.group_ledger import GroupLedger
from mesh.placement.groups import GroupState, Layer

POOLS, NODES, TASKS = ["p", "q"], ["n1", "n2"], ["a", "b", "c"]
CREATING, IDLE, TAKEN, HELD, REMOVING = GroupState
bundles = st.builds(lambda cpu, gpu: ResourceSet({"cpu": cpu, "gpu": gpu}), st.integers(0, 3), st.integers(0, 1))
shapes = st.builds(GroupShape, st.lists(bundles, min_size=1, max_size=2).map(tuple), st.sampled_from(["PACK", "STRICT_PACK", "SPREAD"]))
pools, layers, tasks, some_task = st.sampled_from(POOLS), st.sampled_from(Layer), st.sampled_from(TASKS), st.none() | st.sampled_from(TASKS)


def covers(has, wanted):
    strategies = len(has.bundles) == 1 or has.strategy in (wanted.strategy, "STRICT_" + wanted.strategy)
    return len(has.bundles) == len(wanted.bundles) and strategies and all(map(ResourceSet.__le__, wanted.bundles, has.bundles))


class AnyGroups(RuleBasedStateMachine):
    """Model that counts orders and losses, and reads all else from the ledger."""

    @initialize()
    def begin(self):
        self.ledger = GroupLedger()
        self.ordered, self.gone, self.now_ms = 0, 0, 0

    def pick(self, data):
        return data.draw(st.sampled_from(list(self.ledger.records)))

    def states(self):
        return {group: (record.state, record.holder, record.reuse_count) for group, record in self.ledger.records.items()}

    @rule(pool=pools, shape=shapes, layer=layers, holder=some_task, data=st.data())
    def order(self, pool, shape, layer, holder, data):
        nodes = tuple(data.draw(st.sampled_from(NODES)) for _ in shape.bundles)
        own = holder and self.ledger.held_by(holder)
        if own and own.state is not HELD:
            with pytest.raises(LedgerError):
                self.ledger.add("again", pool, shape, layer, nodes, holder)
            return
        self.ordered += 1
        self.ledger.add(f"g{self.ordered}", pool, shape, layer, nodes, holder)

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data(), passed_ms=st.integers(0, 50))
    def make(self, data, passed_ms):
        self.now_ms += passed_ms
        group = self.pick(data)
        before = self.states()
        if before[group][0] is CREATING:
            assert self.ledger.ready(group, self.now_ms).state is (IDLE if before[group][1] is None else TAKEN)
        else:
            with pytest.raises(IllegalTransition):
                self.ledger.ready(group, self.now_ms)
            assert self.states() == before

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data(), task=tasks)
    def take(self, data, task):
        group = self.pick(data)
        before, own = self.states(), self.ledger.held_by(task)
        state, holder, reuses = before[group]
        may = state in (CREATING, IDLE, HELD) and holder in (None, task)
        if may and (own is None or own.state is HELD or own.group == group):
            record = self.ledger.take(group, task)
            assert (record.state, record.holder) == (CREATING if state is CREATING else TAKEN, task)
            assert record.reuse_count in (reuses, reuses + 1)
        else:
            with pytest.raises((IllegalTransition, LedgerError)):
                self.ledger.take(group, task)
            assert self.states() == before

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data(), hold_for=some_task, passed_ms=st.integers(0, 50))
    def give_back(self, data, hold_for, passed_ms):
        self.now_ms += passed_ms
        group = self.pick(data)
        before, own = self.states(), hold_for and self.ledger.held_by(hold_for)
        state = before[group][0]
        if state in (CREATING, TAKEN, HELD) and (not own or own.state is HELD or own.group == group):
            record = self.ledger.give_back(group, self.now_ms, hold_for)
            assert record.state is (CREATING if state is CREATING else HELD if hold_for else IDLE)
            assert record.holder == hold_for
        else:
            with pytest.raises((IllegalTransition, LedgerError)):
                self.ledger.give_back(group, self.now_ms, hold_for)
            assert self.states() == before

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data())
    def remove(self, data):
        group = self.pick(data)
        was = self.ledger.record(group).state
        assert self.ledger.remove(group) is (was is not REMOVING)
        assert self.ledger.record(group).state is REMOVING

    @precondition(lambda self: self.ledger.records)
    @rule(data=st.data())
    def lose(self, data):
        group = self.pick(data)
        was = self.states()[group][:2]
        last = self.ledger.drop(group)
        assert (last.state, last.holder) == was
        self.gone += 1

    @rule(pool=pools, wanted=shapes, layer=layers, task=some_task, waste_max=st.sampled_from([None, 0.0, 0.5, 1.0]))
    def match(self, pool, wanted, layer, task, waste_max):
        found = self.ledger.match(pool, wanted, layer=layer, task=task, waste_max=waste_max)
        free = [
            record
            for record in self.ledger.of_pool(pool)
            if record.layer is layer
            and (record.state is IDLE or (record.state is HELD and record.holder == task))
            and covers(record.shape, wanted)
        ]
        allowed = waste_max if waste_max is not None else 0.0 if layer is Layer.DYNAMIC else 1.0
        wasted = {record.group: self.waste(record.shape, wanted) for record in free}
        fitting = [record for record in free if wasted[record.group] <= allowed]
        assert (found in fitting) if fitting else (found is None)
        if found is not None and found.state is IDLE:
            assert all(record.state is IDLE for record in fitting)
            assert wasted[found.group] == min(wasted[record.group] for record in fitting)
            assert found.shape == wanted or all(record.shape != wanted for record in fitting)

    @staticmethod
    def waste(has, wanted):
        return max(((amount - wanted.amounts[name]) / amount for name, amount in has.amounts.items()), default=0.0)

    @rule(pool=st.none() | pools, needed=bundles, node=st.sampled_from(NODES))
    def make_way(self, pool, needed, node):
        """Removal suffices, removes none for nothing, and none at all where all would not suffice."""
        chosen = [record.amounts_on(node) for record in self.ledger.in_the_way(pool, needed, node)]
        everything = sum((record.amounts_on(node) for record in self.ledger.idle(pool)), start=NOTHING)
        assert needed <= sum(chosen, start=NOTHING) if needed <= everything else not chosen
        for left_out in range(len(chosen)):
            assert not needed <= sum(chosen[:left_out] + chosen[left_out + 1 :], start=NOTHING)

    @rule(pool=pools, reserved=st.lists(shapes, max_size=3), idle_ms=st.integers(0, 40), min_idle=st.integers(0, 2))
    def compare_with_what_is_configured(self, pool, reserved, idle_ms, min_idle):
        groups = GroupPoolSpec(reserved=tuple(reserved), idle_ms=idle_ms, min_idle=min_idle)
        standing = [record for record in self.ledger.of_pool(pool) if record.state is not REMOVING]
        there = Counter(record.shape for record in standing if record.layer is Layer.RESERVED)
        assert Counter(self.ledger.missing_reserved(pool, groups)) == Counter(reserved) - there
        expired = self.ledger.expired(self.now_ms, PoolSpec(pool=pool, capacity=NOTHING, groups=groups))
        ages = [record.idle_since_ms for record in expired]
        assert ages == sorted(ages)
        assert all(self.now_ms - age >= idle_ms for age in ages)
        assert len(self.ledger.idle(pool)) - len(expired) >= min(min_idle, len(self.ledger.idle(pool)))

    @invariant()
    def the_state_is_consistent(self):
        assert self.ledger.check() == []

    @invariant()
    def groups_are_conserved(self):
        assert self.ordered == self.gone + len(self.ledger.records)
        dynamic = [record for record in self.ledger.records.values() if record.layer is Layer.DYNAMIC]
        assert sum(map(self.ledger.dynamic_count, POOLS)) == len(dynamic)

    @invariant()
    def a_task_has_one_group_and_a_group_one_holder(self):
        holders = Counter(record.holder for record in self.ledger.records.values() if record.holder is not None)
        assert all(count == 1 for count in holders.values())
        for task in TASKS:
            held = self.ledger.held_by(task)
            assert (held is not None) is (task in holders)
            assert held is None or held.holder == task


TestAnyGroups = AnyGroups.TestCase
TestAnyGroups.settings = settings(max_examples=examples(60), stateful_step_count=40)
