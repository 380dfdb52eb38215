"""Free times of the slots of one pool: the earliest start for a node, in a gap or after the last node of a slot.

Of two slots with the same start the lower one is taken, as by an algorithm that asks slot after slot. A tree over the slots holds when
each is free for good, so the search takes O(log slots). Gaps are sorted by their end, and those that end too early are never looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf

from dag.placement.problem import Pool


class SlotPool:
    """Bookings of the slots of one pool.

    Args:
        most: Slots beyond this number are left out: no more nodes are to come.
        with_gaps: Use free time between two nodes of a slot too.
    """

    def __init__(self, pool: Pool, most: int, *, with_gaps: bool = True) -> None:
        used = len(pool.busy)
        self._slots = max(1, min(pool.slots, used + most))
        self._with_gaps = with_gaps
        self._leaves = 1 << (self._slots - 1).bit_length()
        self._free_from = [inf] * (2 * self._leaves)  #: A tree of minima; its leaves are the slots.
        self._gaps: list[tuple[float, int, float]] = []  #: End, slot and start of each gap, sorted.
        for slot in range(self._slots):
            free_from = 0.0
            for start, end in pool.busy[slot] if slot < used else ():
                if with_gaps and start > free_from:
                    insort(self._gaps, (start, slot, free_from))
                free_from = max(free_from, end)
            self._free_from[self._leaves + slot] = free_from
        for place in range(self._leaves - 1, 0, -1):
            self._free_from[place] = min(self._free_from[2 * place], self._free_from[2 * place + 1])

    def earliest(self, ready: float, length: float) -> tuple[float, int, int]:
        """Return start, slot, and number of the gap; -1: the start is after the slot's last node."""
        tree, place = self._free_from, 1
        soonest = max(ready, tree[1])
        while place < self._leaves:
            place *= 2
            if tree[place] > soonest:
                place += 1
        best, slot, gap = soonest, place - self._leaves, -1
        if self._gaps:
            for number in range(bisect_left(self._gaps, (ready + length,)), len(self._gaps)):
                end, of_slot, start = self._gaps[number]
                begins = max(ready, start)
                if begins + length <= end and (begins < best or (begins == best and of_slot < slot)):
                    best, slot, gap = begins, of_slot, number
        return best, slot, gap

    def book(self, start: float, end: float, slot: int, gap: int) -> None:
        """Use the slot from start to end, as `earliest` has returned them last."""
        if gap >= 0:
            gap_end, _, gap_start = self._gaps.pop(gap)
            if start > gap_start:
                insort(self._gaps, (start, slot, gap_start))
            if gap_end > end:
                insort(self._gaps, (gap_end, slot, end))
            return
        place, tree = self._leaves + slot, self._free_from
        if self._with_gaps and start > tree[place]:
            insort(self._gaps, (start, slot, tree[place]))
        tree[place] = end
        while place > 1:
            place //= 2
            left, right = tree[2 * place], tree[2 * place + 1]
            tree[place] = min(left, right)
