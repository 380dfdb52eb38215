"""Does a leader with as many workers as it needs fit on these nodes at all?

Placing one member after the other, as policies do, can run into a corner that another arrangement avoids. So when it
does, arrangements are searched; and before a job is told that it will never fit, that is proved. To pack vectors is hard
in general: bounds answer most cases, a search with a limited number of steps the small rest, and where neither answers,
nobody claims anything.

The search goes depth first, each member on the first node that has room. Members of a set are alike, and nodes with the
same room and the same labels are too, so of alike choices one is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mesh.counting import counted
from mesh.nodes import Units
from mesh.policies.policy import BoolArray, IntArray
from mesh.resources import format_units

MEMBERS_MAX = 64  #: Larger jobs are not searched for: the steps would be over before the first arrangement is complete.


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The leader, or workers that are alike."""

    role: str
    wanted: Units  #: [r], of each.
    suits: BoolArray  #: [n], the nodes whose labels suit.
    count: int = 1  #: How many there are.


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What has to have places at the same time."""

    leader: Part
    sets: tuple[Part, ...]
    needed: int  #: Workers, of whichever sets.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why it cannot fit, whatever the arrangement."""

    is_of_pool: bool  #: Else of the nodes.
    text: str


@dataclass(slots=True)
class Steps:
    """What searches may cost; shared by those of one round."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What a search found."""

    places: tuple[tuple[str, int], ...] | None  #: Role and row: the leader, then workers.
    is_sure: bool  #: False: the steps were over before all arrangements were tried.


def shortage(demands: Demands, free: IntArray, limit: Units | None, resources: Sequence[str]) -> Shortage | None:
    """A proof in words that no arrangement can hold them; None: there is none of the simple kind.

    Three bounds: a leader that fits on no node; fewer workers than are needed, each set having all nodes for itself; of
    some resource, less in all than the leader and the least demanding workers take together.

    Args:
        demands: What has to have places.
        free: [n, r], units.
        limit: [r], what all of them may take together; None: no bounds.
        resources: The names of the columns.
    """
    leader, needed = demands.leader, demands.needed
    if not (leader.suits & (free >= leader.wanted).all(axis=1)).any():
        return Shortage(is_of_pool=False, text=f"the leader fits on no node: {_why_not(leader, free, resources)}")
    copies = sum(_copies(part, free) for part in demands.sets)
    if copies < needed:
        return Shortage(is_of_pool=False, text=f"{counted(needed, 'worker is', 'workers are')} needed, {copies} would fit at most")
    least = _least(demands)
    bounds = [(False, "nodes", free.sum(axis=0))] + ([] if limit is None else [(True, "pool", limit)])
    for is_of_pool, who, bound in bounds:
        short = np.flatnonzero(least > bound)
        if short.size:
            text = f"the leader and {counted(needed, 'worker')} take more {resources[int(short[0])]} than the {who} can give"
            return Shortage(is_of_pool=is_of_pool, text=text)
    return None


def _why_not(part: Part, free: IntArray, resources: Sequence[str]) -> str:
    """What one member of the part wants of a node, and what there is of it."""
    if not part.suits.any():
        return "no node has the labels that it asks for"
    most = free[part.suits].max(axis=0)
    short = np.flatnonzero(part.wanted > most)
    if short.size:
        column = int(short[0])
        name, wanted, there = resources[column], int(part.wanted[column]), max(0, int(most[column]))
        return f"it wants {format_units(name, wanted)} {name}, and {format_units(name, there)} is the most that a node can give"
    wanted_of = [(resources[column], int(part.wanted[column])) for column in np.flatnonzero(part.wanted).tolist()]
    return f"no node can give {' and '.join(f'{format_units(name, units)} {name}' for name, units in wanted_of)} at once"


def pack(demands: Demands, free: IntArray, limit: Units | None, steps: Steps) -> Packing:
    """Search places for the leader and the needed workers, of whichever sets.

    Args:
        demands: What has to have places.
        free: [n, r], units; left as it is.
        limit: [r], what all of them may take together; None: no bounds. Left as it is.
        steps: What the search may cost; it is charged.
    """
    if demands.needed >= MEMBERS_MAX or len(demands.sets) > MEMBERS_MAX:
        return Packing(places=None, is_sure=False)
    everyone = demands.needed == sum(part.count for part in demands.sets)
    scale = np.maximum(free.max(axis=0, initial=0), 1)
    # All of them must fit: the most demanding first. Some may be left out: those that are easiest to place first.
    sets = sorted(demands.sets, key=lambda part: float((part.wanted / scale).max(initial=0.0)), reverse=everyone)
    masks = np.array([part.suits for part in (demands.leader, *sets)], dtype=np.bool_)
    search = _Search(
        parts=(demands.leader, *sets),
        free=free.copy(),
        limit=None if limit is None else limit.copy(),
        kinds=tuple(column.tobytes() for column in masks.T),
        counts=tuple(sum(part.count for part in sets[index:]) for index in range(len(sets) + 1)),
        steps=steps,
    )
    found = search.run(0, 0, 0, demands.needed)
    return Packing(places=tuple(search.chosen) if found else None, is_sure=found is not None)


@dataclass(slots=True, kw_only=True)
class _Search:
    """`run` and `_try` answer True (found, and `chosen` holds it), False (there is none), or None (the steps were over)."""

    parts: tuple[Part, ...]  #: The leader, then the sets.
    free: IntArray
    limit: Units | None
    kinds: tuple[bytes, ...]  #: Per node: which parts it suits.
    counts: tuple[int, ...]  #: How many workers there are in all sets from this one on.
    steps: Steps
    chosen: list[tuple[str, int]] = field(default_factory=list)

    def run(self, part: int, nth: int, row_min: int, needed: int) -> bool | None:
        """Place the `nth` member of a part, on `row_min` or behind, or go on to the next part."""
        if part > 0 and (needed == 0 or self.counts[part - 1] - nth < needed):
            return needed == 0
        if self.steps.left <= 0:
            return None
        self.steps.left -= 1
        now, was_cut = self.parts[part], False
        for row in self._rows(now, row_min) if nth < now.count else ():
            found = self._try(part, nth, row, needed)
            if found:
                return True
            was_cut = was_cut or found is None
        if part > 0:
            found = self.run(part + 1, 0, 0, needed)
            if found:
                return True
            was_cut = was_cut or found is None
        return None if was_cut else False

    def _try(self, part: int, nth: int, row: int, needed: int) -> bool | None:
        now = self.parts[part]
        self._charge(row, now.wanted)
        self.chosen.append((now.role, row))
        found = self.run(1, 0, 0, needed) if part == 0 else self.run(part, nth + 1, row, needed - 1)
        if not found:
            self.chosen.pop()
            self._charge(row, -now.wanted)
        return found

    def _charge(self, row: int, wanted: Units) -> None:
        self.free[row] -= wanted
        if self.limit is not None:
            self.limit -= wanted

    def _rows(self, part: Part, row_min: int) -> Iterator[int]:
        """The nodes from `row_min` on that have room, one of each kind and room."""
        if self.limit is not None and (self.limit < part.wanted).any():
            return
        seen: set[tuple[bytes, bytes]] = set()
        for row in np.flatnonzero(part.suits[row_min:] & (self.free[row_min:] >= part.wanted).all(axis=1)) + row_min:
            alike = (self.kinds[row], self.free[row].tobytes())
            if alike not in seen:
                seen.add(alike)
                yield int(row)


def _copies(part: Part, free: IntArray) -> int:
    asked = part.wanted > 0
    if not asked.any():
        return part.count if part.suits.any() else 0
    per_node = (free[part.suits][:, asked] // part.wanted[asked]).min(axis=1, initial=part.count)
    return min(part.count, int(per_node.sum()))


def _least(demands: Demands) -> Units:
    """Per resource: what the leader takes, and as many workers as are needed, the least demanding ones in it."""
    least: Units = demands.leader.wanted.copy()
    for column in range(len(least)):
        left = demands.needed
        for amount, count in sorted((int(part.wanted[column]), part.count) for part in demands.sets):
            taken = min(left, count)
            least[column] += taken * amount
            left -= taken
    return least
