"""Joint placement of a leader with the workers it needs: search, and proofs that none exists.

Placing members one by one, as policies do, can run into a dead end that another arrangement avoids. Then arrangements are searched, and a
job is reported as unschedulable only after a proof. Vector packing is hard in general. Bounds answer most cases, a search with limited
steps answers most others, and otherwise the result is unknown.

The search is depth first, with each member on the first node that fits. Workers of a set are identical, and so are nodes with equal free
amounts and matching labels. Of identical choices only one is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mesh.core.counting import counted
from mesh.core.nodes import Units
from mesh.core.resources import format_units
from mesh.policies.policy import BoolArray, IntArray

MEMBERS_MAX = 64  #: Larger jobs are not searched: the steps would run out before the first arrangement is complete.


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The leader, or a set of identical workers."""

    role: str
    wanted: Units  #: [r], amounts of each member.
    suits: BoolArray  #: [n], nodes with matching labels.
    count: int = 1  #: Number of members.


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Members that need places at the same time."""

    leader: Part
    sets: tuple[Part, ...]
    needed: int  #: Number of workers, from any sets.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Proof that no arrangement fits."""

    is_of_pool: bool  #: True: the pool is too small; False: the nodes are.
    text: str


@dataclass(slots=True)
class Steps:
    """Budget of search steps, shared within a round."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Result of a search."""

    places: tuple[tuple[str, int], ...] | None  #: Role and row: the leader, then workers.
    is_sure: bool  #: False: the steps ran out before all arrangements were tried.


def shortage(demands: Demands, free: IntArray, limit: Units | None, resources: Sequence[str]) -> Shortage | None:
    """Return a simple proof that no arrangement can hold the members, or None if there is none.

    Three bounds are checked: the leader fits on no node; too few workers fit even if each set had all nodes to itself; the leader and the
    smallest workers together exceed the total of some resource.

    Args:
        demands: Members that need places.
        free: [n, r], units.
        limit: [r], limit for all members together; None: unlimited.
        resources: Names of the columns.
    """
    leader, needed = demands.leader, demands.needed
    if not (leader.suits & (free >= leader.wanted).all(axis=1)).any():
        return Shortage(is_of_pool=False, text=f"the leader fits on no node: {_why_not(leader, free, resources)}")
    copies = sum(_copies(part, free) for part in demands.sets)
    if copies < needed:
        return Shortage(is_of_pool=False, text=f"{counted(needed, 'worker is', 'workers are')} needed, at most {copies} would fit")
    least = _least(demands)
    bounds = [(False, "nodes", free.sum(axis=0))] + ([] if limit is None else [(True, "pool", limit)])
    for is_of_pool, who, bound in bounds:
        short = np.flatnonzero(least > bound)
        if short.size:
            text = f"the leader and {counted(needed, 'worker')} need more {resources[int(short[0])]} than the {who} can provide"
            return Shortage(is_of_pool=is_of_pool, text=text)
    return None


def _why_not(part: Part, free: IntArray, resources: Sequence[str]) -> str:
    """Return why one member of the part fits on no node."""
    if not part.suits.any():
        return "no node has the required labels"
    most = free[part.suits].max(axis=0)
    short = np.flatnonzero(part.wanted > most)
    if short.size:
        column = int(short[0])
        name, wanted, there = resources[column], int(part.wanted[column]), max(0, int(most[column]))
        return f"it requests {format_units(name, wanted)} {name}, but a node can provide at most {format_units(name, there)}"
    wanted_of = [(resources[column], int(part.wanted[column])) for column in np.flatnonzero(part.wanted).tolist()]
    return f"no node can provide {' and '.join(f'{format_units(name, units)} {name}' for name, units in wanted_of)} together"


def pack(demands: Demands, free: IntArray, limit: Units | None, steps: Steps) -> Packing:
    """Search places for the leader and the needed workers, from any sets.

    Args:
        demands: Members that need places.
        free: [n, r], units; not changed.
        limit: [r], limit for all members together; None: unlimited. Not changed.
        steps: Budget of the search; reduced by its cost.
    """
    if demands.needed >= MEMBERS_MAX or len(demands.sets) > MEMBERS_MAX:
        return Packing(places=None, is_sure=False)
    everyone = demands.needed == sum(part.count for part in demands.sets)
    scale = np.maximum(free.max(axis=0, initial=0), 1)
    # If all must fit, most demanding sets first; if some may be left out, easiest first.
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
    """Search state. `run` and `_try` return True (found, in `chosen`), False (none exists) or None (out of steps)."""

    parts: tuple[Part, ...]  #: The leader, then the sets.
    free: IntArray
    limit: Units | None
    kinds: tuple[bytes, ...]  #: Per node: the parts that it matches.
    counts: tuple[int, ...]  #: Number of workers in all sets from this one on.
    steps: Steps
    chosen: list[tuple[str, int]] = field(default_factory=list)

    def run(self, part: int, nth: int, row_min: int, needed: int) -> bool | None:
        """Place the `nth` member of a part on `row_min` or a later row, or continue with the next part."""
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
        """Yield the rows from `row_min` on that fit, one per kind and free amounts."""
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
    """Return the least total per resource: the leader and as many of the smallest workers as needed."""
    least: Units = demands.leader.wanted.copy()
    for column in range(len(least)):
        left = demands.needed
        for amount, count in sorted((int(part.wanted[column]), part.count) for part in demands.sets):
            taken = min(left, count)
            least[column] += taken * amount
            left -= taken
    return least
