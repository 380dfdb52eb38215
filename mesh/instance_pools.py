"""The instances of one resource of one node: free, held, and on their way out.

Capacity changes while instances are held. Raised, new instances come with the lowest numbers that nobody has. Lowered, free
instances go at once, the highest numbers first; what is missing then is a backlog, and each instance that comes back whole
serves it. Until it is served nothing is lent that would keep the pool over its capacity.
"""

from __future__ import annotations

from mesh.amounts import ONE, ZERO, Amount
from mesh.errors import AmountError, LedgerError
from mesh.instances import ResourceIds, without_ids


class InstancePool:
    """Invariants: an instance is free and held to 1 at most together; free + held = capacity + backlog; backlog > 0 only while held."""

    __slots__ = ("backlog", "capacity", "free", "held")

    def __init__(self, capacity: Amount) -> None:
        """A pool of instances 0, 1, 2, ….

        Raises:
            AmountError: More than one, and not whole.
        """
        self.capacity = capacity
        self.free = ResourceIds.of(capacity)
        self.held = ResourceIds()
        self.backlog = ZERO  #: What still has to go, when those who hold it give it back.

    @property
    def available(self) -> Amount:
        """How much may be lent; zero while more is held than the capacity."""
        free = self.free.total
        return free - self.backlog if self.backlog < free else ZERO

    def contains(self, amount: Amount) -> bool:
        """So much can be acquired now."""
        return amount <= self.available and self.free.contains(amount)

    def acquire(self, amount: Amount) -> ResourceIds | None:
        """Instances for `amount`; None when it is not there."""
        found = self.free.acquire(amount) if self.contains(amount) else None
        if found is None:
            return None
        taken, self.free = found
        self.held = self.held.plus(taken)
        return taken

    def release(self, ids: ResourceIds) -> None:
        """Instances come back; they serve the backlog first.

        Raises:
            LedgerError: Nobody holds them.
        """
        self.held = self.held.minus(ids)
        self.free = self.free.plus(ids)
        self._serve_backlog()

    def update_capacity(self, capacity: Amount) -> None:
        """Raise or lower what the pool has, by whole instances or to zero.

        Raises:
            AmountError: It would change by part of an instance.
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
        """What is wrong with the books, in words; empty when nothing is."""
        wrong = []
        if self.free.total + self.held.total != self.capacity + self.backlog:
            wrong.append(f"{self.free.total} free and {self.held.total} held are not {self.capacity} and a backlog of {self.backlog}")
        if self.backlog and not self.held.total:
            wrong.append(f"a backlog of {self.backlog} though nobody holds anything")
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
        kept = min(self.backlog, more)  # What was to go and is still there need not go any more.
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


def _expect_whole(change: Amount) -> None:
    if not change.is_whole:
        raise AmountError(f"capacity cannot change by {change}: it changes by whole instances, or to none")
