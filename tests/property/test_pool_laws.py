"""Laws of the pool ledger under any interleaving: its sums equal what is held."""

from __future__ import annotations

import pytest
from examples_of_laws import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesh.core.pools import PoolLedger, PoolSpec
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import LedgerError

POOLS, HOLDERS = ["p", "q"], ["a", "b", "c", "d"]
amounts = st.builds(lambda cpu, gpu: ResourceSet({"cpu": cpu, "gpu": gpu}), st.integers(0, 6), st.integers(0, 3))
pools, holders = st.sampled_from(POOLS), st.sampled_from(HOLDERS)


class AnyLedger(RuleBasedStateMachine):
    """Model that keeps each entry by itself, and sums them anew."""

    @initialize(capacity=amounts)
    def begin(self, capacity):
        self.ledger = PoolLedger()
        self.capacity, self.reserved, self.used, self.closing = {}, {}, {}, set()
        self.configure("p", capacity)

    def left(self, pool, name):
        entries = [*self.reserved.items(), *self.used.items()]
        return self.capacity[pool][name] - sum(held[name] for (kept, _), held in entries if kept == pool)

    def is_held(self, pool):
        return any(kept == pool for kept, _ in [*self.reserved, *self.used])

    @rule(pool=pools, capacity=amounts)
    def configure(self, pool, capacity):
        self.ledger.configure(PoolSpec(pool=pool, capacity=capacity))
        self.capacity[pool] = capacity
        self.closing.discard(pool)

    @rule(pool=pools)
    def delete(self, pool):
        is_held = self.is_held(pool)
        assert self.ledger.delete(pool) is not is_held
        if is_held:
            self.closing.add(pool)
        else:
            self.capacity.pop(pool, None)
            self.closing.discard(pool)

    @rule(pool=pools, holder=holders, wanted=amounts)
    def reserve(self, pool, holder, wanted):
        has_one = (pool, holder) in self.reserved or (pool, holder) in self.used
        has_room = pool in self.capacity and pool not in self.closing and all(wanted[name] <= self.left(pool, name) for name in wanted)
        if has_room and not has_one:
            assert self.ledger.pool(pool).fits(wanted)
            self.ledger.reserve(pool, holder, wanted)
            self.reserved[pool, holder] = wanted
        else:
            with pytest.raises(LedgerError):
                self.ledger.reserve(pool, holder, wanted)

    @rule(pool=pools, holder=holders, wanted=st.none() | amounts)
    def commit(self, pool, holder, wanted):
        has = self.reserved.get((pool, holder))
        if has is not None and (wanted is None or wanted <= has):
            self.ledger.commit(pool, holder, wanted)
            del self.reserved[pool, holder]
            self.used[pool, holder] = has if wanted is None else wanted
        else:
            with pytest.raises(LedgerError):
                self.ledger.commit(pool, holder, wanted)

    @rule(holder=holders)
    def release(self, holder):
        had = [key for entries in (self.reserved, self.used) for key in entries if key[1] == holder]
        assert self.ledger.release(holder) is bool(had)
        for key in had:
            self.reserved.pop(key, None)
            self.used.pop(key, None)

    @rule(old=holders, new=holders)
    def move(self, old, new):
        known = {key: held for entries in (self.reserved, self.used) for key, held in entries.items()}
        in_the_way = old != new and any((pool, new) in known for pool, holder in known if holder == old)
        if in_the_way:
            with pytest.raises(LedgerError):
                self.ledger.move(old, new)
            return
        assert self.ledger.move(old, new) is any(holder == old for _, holder in known)
        for entries in (self.reserved, self.used):
            for pool, _ in [key for key in entries if key[1] == old]:
                entries[pool, new] = entries.pop((pool, old))

    @invariant()
    def nothing_is_lost_and_nothing_comes_from_nowhere(self):
        assert self.ledger.check() == []
        assert self.ledger.pools.keys() == self.capacity.keys()
        for name, pool in self.ledger.pools.items():
            assert pool.reservations == {holder: held for (kept, holder), held in self.reserved.items() if kept == name}
            assert pool.uses == {holder: held for (kept, holder), held in self.used.items() if kept == name}
            assert pool.is_closing is (name in self.closing)

    @invariant()
    def capacity_is_what_is_free_and_what_is_held_less_the_excess(self):
        for pool in self.ledger.pools.values():
            assert pool.free + pool.reserved + pool.used == pool.capacity + pool.excess
            assert not {*pool.free} & {*pool.excess}
            assert pool.short_of(pool.free) == NOTHING

    @invariant()
    def a_holder_has_the_sum_of_its_entries(self):
        for holder in HOLDERS:
            of_holder = [held for entries in (self.reserved, self.used) for (_, kept), held in entries.items() if kept == holder]
            assert self.ledger.held_by(holder) == sum(of_holder, start=NOTHING)


TestAnyLedger = AnyLedger.TestCase
TestAnyLedger.settings = settings(max_examples=examples(60), stateful_step_count=40)
