"""Instances of one resource of one node: free, held, and leaving.

Capacity changes while instances are held. A raise adds instances with the lowest unused numbers. A cut removes free
instances at once, the highest numbers first; the remainder is a backlog, served by each instance that is released whole.
Until then the pool lends nothing that would keep it over its capacity.
"""

from __future__ import annotations

from typing import NamedTuple

from mesh.core.amounts import ONE, ZERO, Amount
from mesh.core.instances import ResourceIds, without_ids
from mesh.core.resources import UNITS_PER_WHOLE
from mesh.errors import AmountError, LedgerError

_STEPS_MAX = 16_384


_NONE = ResourceIds()


class _Step(NamedTuple):
    """Change of a pool without a backlog: what was free and held, what was taken or released, and what is free and held then."""

    free_before: ResourceIds
    held_before: ResourceIds
    ids: ResourceIds | None
    free: ResourceIds
    held: ResourceIds


#: Steps of all pools, by the identity of the values before and the units or instances. Nodes are alike, so few values come again and again,
#: and to find a step by equal values would cost more than the step. A step keeps its values, so no other value gets their identity.
_ACQUIRED: dict[tuple[int, int, int], _Step] = {}
_RELEASED: dict[tuple[int, int, int], _Step] = {}


class InstancePool:
    """Invariants: an instance is free and held to 1 at most together; free + held = capacity + backlog; backlog > 0 only while held."""

    __slots__ = ("backlog", "capacity", "free", "held")

    def __init__(self, capacity: Amount) -> None:
        """Make a pool of instances 0, 1, 2, ….

        Raises:
            AmountError: The capacity is more than one, and not whole.
        """
        self.capacity = capacity
        self.free = ResourceIds.of(capacity)
        self.held = _NONE
        self.backlog = ZERO  #: Amount that leaves the pool when its holders release it.

    @property
    def available(self) -> Amount:
        """Amount that can be acquired; zero while more is held than the capacity."""
        free = self.free.total
        if not self.backlog:
            return free
        return free - self.backlog if self.backlog < free else ZERO

    def contains(self, amount: Amount) -> bool:
        """Return whether the amount can be acquired now."""
        return amount <= self.available and self.free.contains(amount)

    def acquire(self, amount: Amount) -> ResourceIds | None:
        """Acquire instances for `amount`; None when they are not available."""
        found = self.free.acquire(amount) if self.contains(amount) else None
        if found is None:
            return None
        taken, self.free = found
        self.held = self.held.plus(taken)
        return taken

    def acquire_units(self, units: int) -> ResourceIds | None:
        """Return `acquire` of an amount in units, by a step that is known if any pool took it before."""
        if self.backlog.units:
            return self.acquire(Amount(units))
        free, held = self.free, self.held
        step = _ACQUIRED.get((id(free), id(held), units))
        if step is None:
            taken = self.acquire(Amount(units))
            step = _keep(_ACQUIRED, units, _Step(free, held, taken, self.free, self.held))
        _, _, taken, self.free, self.held = step
        return taken

    def whole_and_largest(self) -> tuple[int, int]:
        """Return the units on instances that are free entirely, and the largest free part of one instance, less the backlog."""
        free, backlog = self.free, self.backlog.units
        if not backlog and not free.parts:
            whole = len(free.whole) * UNITS_PER_WHOLE
            return whole, min(whole, UNITS_PER_WHOLE)
        available = max(free.total.units - backlog, 0)
        largest = UNITS_PER_WHOLE if free.whole else max([amount.units for _, amount in free.parts], default=0)
        return min(len(free.whole), available // UNITS_PER_WHOLE) * UNITS_PER_WHOLE, min(largest, available)

    def take(self, ids: ResourceIds) -> None:
        """Acquire these very instances.

        Raises:
            LedgerError: They are not free.
        """
        self.free = self.free.minus(ids)
        self.held = self.held.plus(ids)

    def release(self, ids: ResourceIds) -> None:
        """Release instances; they serve the backlog first.

        Raises:
            LedgerError: The instances are not held.
        """
        free, held = self.free, self.held
        step = None if self.backlog.units else _RELEASED.get((id(free), id(held), id(ids)))
        if step is None:
            step = _Step(free, held, ids, free.plus(ids), held.minus(ids))
            if not self.backlog.units:
                _keep(_RELEASED, id(ids), step)
        self.free, self.held = step.free, step.held
        if self.backlog.units:
            self._serve_backlog()

    def update_capacity(self, capacity: Amount) -> None:
        """Raise or lower the capacity by whole instances, or to zero.

        Raises:
            AmountError: The change is a part of an instance.
        """
        if capacity > self.capacity:
            self._raise_by(capacity - self.capacity)
        else:
            if capacity:
                _expect_whole(self.capacity - capacity)
            self.backlog += self.capacity - capacity
        self.capacity = capacity
        self._serve_backlog()

    def check(self) -> list[str]:
        """Return every broken invariant as text; empty when all hold."""
        wrong = []
        if self.free.total + self.held.total != self.capacity + self.backlog:
            wrong.append(f"{self.free.total} free and {self.held.total} held are not capacity {self.capacity} plus backlog {self.backlog}")
        if self.backlog and not self.held.total:
            wrong.append(f"backlog is {self.backlog} although nothing is held")
        try:
            self.free.plus(self.held)
        except LedgerError as twice:
            wrong.append(str(twice))
        return wrong

    def _raise_by(self, more: Amount) -> None:
        known = self.free.amounts().keys() | self.held.amounts().keys()
        if not known and more < ONE:
            self.free = ResourceIds.of(more)
            return
        kept = min(self.backlog, more)  # Instances of the backlog are still there and need not leave any more.
        _expect_whole(more)
        _expect_whole(more - kept)
        fresh = [number for number in range(len(known) + more.wholes) if number not in known]
        self.free = self.free.plus(ResourceIds(whole=tuple(fresh[: (more - kept).wholes])))
        self.backlog -= kept

    def _serve_backlog(self) -> None:
        if not self.backlog:
            return
        held = self.held.amounts()
        idle = [(number, amount) for number, amount in self.free.amounts().items() if number not in held]
        going = []
        for number, amount in sorted(idle, reverse=True):
            if amount <= self.backlog:
                self.backlog -= amount
                going.append(number)
        self.free = without_ids(self.free, going)


def _keep(steps: dict[tuple[int, int, int], _Step], what: int, step: _Step) -> _Step:
    if len(steps) >= _STEPS_MAX:
        steps.clear()
    steps[id(step.free_before), id(step.held_before), what] = step
    return step


def _expect_whole(change: Amount) -> None:
    if not change.is_whole:
        raise AmountError(f"capacity cannot change by {change}; change it by whole instances, or set it to 0")
