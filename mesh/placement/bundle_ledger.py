"""Parts of a gang's bundles: what code inside a gang takes as placement groups of its own. Pure.

Ray has no placement group within a placement group. Libraries like Ray Train and Tune make one for their workers. Inside a gang such a
group is a part of the gang's bundles: this ledger says which bundle each of its bundles has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Amounts = Mapping[str, float]
#: Differences of amounts below this are rounding.
_EPSILON = 1e-9
_SPREADING = ("SPREAD", "STRICT_SPREAD")


@dataclass(slots=True)
class BundleLedger:
    """Parts of equal or different bundles. Parts get room in the order in which they asked.

    Args:
        bundles: Amounts of the gang's bundles, by Ray's names.
    """

    bundles: Sequence[Amounts]
    _free: list[dict[str, float]] = field(init=False)
    _held: dict[str, list[tuple[int, Amounts]]] = field(init=False, default_factory=dict)
    _waiting: deque[tuple[str, Sequence[Amounts], str]] = field(init=False, default_factory=deque)

    def __post_init__(self) -> None:
        self._free = [dict(bundle) for bundle in self.bundles]

    def ask(self, part: str, wanted: Sequence[Amounts], strategy: str = "PACK") -> None:
        """Queue a part; `places` has it as soon as there is room for all of its bundles."""
        self._waiting.append((part, wanted, strategy))
        self._admit()

    def places(self, part: str) -> list[int] | None:
        """Return the gang's bundle that each bundle of the part is in; None: it waits."""
        held = self._held.get(part)
        return None if held is None else [place for place, _ in held]

    def release(self, part: str) -> None:
        """Give the part's room back. Harmless when it has none."""
        for place, amounts in self._held.pop(part, ()):
            for name, amount in amounts.items():
                self._free[place][name] = self._free[place].get(name, 0.0) + amount
        self._waiting = deque(each for each in self._waiting if each[0] != part)
        self._admit()

    def parts(self) -> list[str]:
        """Return all parts, those that wait too."""
        return [*self._held, *(part for part, _, _ in self._waiting)]

    def _admit(self) -> None:
        while self._waiting:
            part, wanted, strategy = self._waiting[0]
            found = arranged(self._free, wanted, strategy)
            if found is None:
                return
            self._waiting.popleft()
            self._held[part] = list(zip(found, wanted, strict=True))
            for place, amounts in self._held[part]:
                for name, amount in amounts.items():
                    self._free[place][name] = self._free[place].get(name, 0.0) - amount


def arranged(free: Sequence[Amounts], wanted: Sequence[Amounts], strategy: str = "PACK") -> list[int] | None:
    """Return a place for each wanted bundle; None: they do not fit. SPREAD prefers unused bundles, STRICT_SPREAD insists on them."""
    left = [dict(amounts) for amounts in free]
    used: list[int] = []
    for amounts in wanted:
        places = [place for place in range(len(left)) if _fits(amounts, left[place])]
        if strategy in _SPREADING:
            unused = [place for place in places if place not in used]
            places = unused or ([] if strategy == "STRICT_SPREAD" else places)
        if not places:
            return None
        used.append(places[0])
        for name, amount in amounts.items():
            left[places[0]][name] = left[places[0]].get(name, 0.0) - amount
    return used


def _fits(wanted: Amounts, free: Amounts) -> bool:
    return all(amount <= free.get(name, 0.0) + _EPSILON for name, amount in wanted.items() if amount > 0)
