"""Running work over a ledger, for trials: an undo log records every change, so nothing is ever copied.

Most searches look at the work of few queues. So work may be listed later (`list_later`): its quota is charged, and the work itself is made
when a search first looks at its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from federation.quota.forest import QuotaForest
from federation.quota.ledger import Amounts, QuotaLedger
from federation.quota.policies import QueueSettings, Rules
from federation.quota.share_ranks import ShareRanks
from federation.quota.share_rows import ShareRows
from federation.quota.workloads import Running, Workload
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName

ListWork = Callable[[], Iterable[Running]]
_NO_WORK: Mapping[str, Running] = {}


class Ask(NamedTuple):
    """Request of a workload with flavors already chosen."""

    workload: Workload
    node: int
    amounts: Amounts
    needed: frozenset[FlavorResource]  #: Keys that did not fit; a victim has to use one of them.
    mesh: str = ""  #: Mesh without room for the request, whatever quota says: only work there helps. Empty: quota is short.
    home: str = ""  #: Mesh where the workload waits; empty: none is known.
    spares_own: bool = False  #: No work of the same queue may be preempted for it.


#: Running work that was added or removed, or None for a charge; the charged queue, the amounts, and their sign.
_Change = tuple[Running | None, int, Amounts, int]


def nobody_displaced(by: Workload, victim: Workload) -> bool:
    """Return False: no eviction is forbidden."""
    del by, victim
    return False


class QuotaSnapshot:
    """State of quota at one moment.

    With `is_momentary`, neither the time nor the settings change, and there is no history: the snapshot is for one round.

    `displaces(a, b)` returns whether `a` may not evict `b`, because `b` evicted `a` before (`EvictionOrder`).
    """

    __slots__ = (
        "_later",
        "_later_on",
        "_log",
        "by_mesh",
        "displaces",
        "forest",
        "is_momentary",
        "kept_candidates",
        "ledger",
        "now_ms",
        "protects_young",
        "rooms",
        "rows",
        "rules",
        "running",
        "settings",
        "shares",
    )

    def __init__(
        self,
        forest: QuotaForest,
        rules: Rules,
        settings: Mapping[int, QueueSettings],
        *,
        now_ms: int = 0,
        displaces: Callable[[Workload, Workload], bool] = nobody_displaced,
        is_momentary: bool = False,
    ) -> None:
        self.forest = forest
        self.rules = rules
        self.settings = settings  #: By queue.
        self.ledger = QuotaLedger(forest, keeps_local=rules.keeps_local)
        self.shares = ShareRanks(self.ledger)
        self.rows = ShareRows(self.ledger, self.shares)
        self.running: dict[int, dict[str, Running]] = {}  #: Queue to id to running work, as far as it is listed.
        self.by_mesh: dict[str, dict[str, Running]] = {}  #: Mesh to id to running work, as far as it is listed.
        self._later: dict[int, dict[FlavorName, list[ListWork]]] = {}  #: Queue to flavor to work that is not listed yet.
        self._later_on: dict[str, set[int]] = {}  #: Mesh to queues that have, or had, such work there.
        self.rooms: dict[str, dict[FlavorResource, int]] = {}  #: Free room of meshes for which room is looked for.
        self.now_ms = now_ms
        self.protects_young = True  #: False: the minimum run time protects nothing.
        self.displaces = displaces
        self.is_momentary = is_momentary
        #: Candidates by queue, for `federation.quota.preemption.candidates`; dropped when running work of the queue changes.
        self.kept_candidates: dict[int, dict[tuple[frozenset[FlavorResource], bool], list[Running]]] = {}
        self._log: list[_Change] = []

    @property
    def has_history(self) -> bool:
        """Whether some evictions may be forbidden because of earlier ones."""
        return self.rules.ends_loops and self.displaces is not nobody_displaced

    def mark(self) -> int:
        """Return a position in the undo log for `undo`."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Undo all changes since the mark."""
        while len(self._log) > mark:
            running, node, amounts, sign = self._log.pop()
            if running is not None:
                self._list(node, running) if sign < 0 else self._unlist(node, running)
            self._apply(node, amounts, -sign)

    def forget_log(self) -> None:
        """Make all changes so far permanent."""
        self._log.clear()

    def fits(self, ask: Ask) -> bool:
        """Return whether the request has what it lacks: room on its mesh, or quota."""
        if not ask.mesh:
            return self.ledger.fits(ask.node, ask.amounts)
        room = self.rooms[ask.mesh]
        return all(ask.amounts.get(key, 0) <= units for key, units in room.items())

    def list_running(self, running: Running) -> None:
        """Add running work whose quota is charged already."""
        self._enter(self.node_of(running), running)

    def list_later(self, queue: int, flavor: FlavorName, mesh: str, work: ListWork) -> None:
        """Add running work of one flavor on one mesh, whose quota is charged already; `work` is called when it is looked at first."""
        self._later.setdefault(queue, {}).setdefault(flavor, []).append(work)
        self._later_on.setdefault(mesh, set()).add(queue)
        self.rows.enter(queue, flavor)

    def work_of(self, queue: int, keys: Iterable[FlavorResource] | None = None) -> Iterable[Running]:
        """Return the running work of a queue; with `keys`, at least the work that uses one of them."""
        later = self._later.get(queue)
        if later:
            for flavor in list(later) if keys is None else {flavor for flavor, _ in keys}:
                for work in later.pop(flavor, ()):
                    self._enter_all(queue, work())
        return self.running.get(queue, _NO_WORK).values()

    def queues_with_work(self, mesh: str = "") -> set[int]:
        """Return the queues that have or had running work; with `mesh`, those that have some there."""
        if not mesh:
            return {*self.running, *self._later}
        for queue in self._later_on.pop(mesh, ()):
            self.work_of(queue)
        return {self.node_of(running) for running in self.by_mesh.get(mesh, _NO_WORK).values()}

    def charge(self, node: int, amounts: Amounts) -> None:
        """Add the amounts to the queue's use."""
        self._apply(node, amounts, 1)
        self._log.append((None, node, amounts, 1))

    def discharge(self, node: int, amounts: Amounts) -> None:
        """Subtract the amounts from the queue's use. Raises LedgerError."""
        self.ledger.discharge(node, amounts)
        self.rows.note(node)
        self._log.append((None, node, amounts, -1))

    def add(self, running: Running) -> None:
        """Add running work with its quota."""
        node = self.node_of(running)
        self._list(node, running)
        self._apply(node, running.amounts, 1)
        self._log.append((running, node, running.amounts, 1))

    def remove(self, running: Running) -> None:
        """Remove running work with its quota. Raises LedgerError."""
        node = self.node_of(running)
        self.ledger.discharge(node, running.amounts)
        self.rows.note(node)
        self._unlist(node, running)
        self._log.append((running, node, running.amounts, -1))

    def remove_all(self, several: Iterable[Running]) -> None:
        """Remove all of these; skip work that is not in the snapshot."""
        for running in several:
            if running.workload.workload in self.running.get(self.node_of(running), {}):
                self.remove(running)

    def running_below(self, root: int) -> Iterator[Running]:
        """Yield all running work of one tree."""
        for queue, running in self.running.items():
            if self.forest.root(queue) == root:
                yield from running.values()

    def node_of(self, running: Running) -> int:
        """Return the queue of the running work."""
        return self.forest.index[running.workload.queue]

    def _apply(self, node: int, amounts: Amounts, sign: int) -> None:
        self.ledger.charge(node, amounts, sign)
        self.rows.note(node)

    def _list(self, node: int, running: Running) -> None:
        self._enter(node, running)
        self._change_room(running, -1)

    def _enter(self, node: int, running: Running) -> None:
        self._enter_all(node, (running,))
        for flavor, _ in running.amounts:
            self.rows.enter(node, flavor)

    def _enter_all(self, node: int, several: Iterable[Running]) -> None:
        here, by_mesh = self.running.setdefault(node, {}), self.by_mesh
        self.kept_candidates.pop(node, None)
        for running in several:
            name = running.workload.workload
            here[name] = running
            if running.mesh:
                by_mesh.setdefault(running.mesh, {})[name] = running

    def _unlist(self, node: int, running: Running) -> None:
        del self.running[node][running.workload.workload]
        self.kept_candidates.pop(node, None)
        if running.mesh:
            del self.by_mesh[running.mesh][running.workload.workload]
        self._change_room(running, 1)

    def _change_room(self, running: Running, sign: int) -> None:
        room = self.rooms.get(running.mesh) if self.rooms else None
        if room is not None and not running.is_divisible:
            for key in room:
                room[key] += sign * running.amounts.get(key, 0)
