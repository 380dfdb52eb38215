"""Placement groups of a mesh's stages, created and kept by the keeper, which outlives this process.

Nobody waits here but threads of this object: one asks the keeper for groups, one after the other, and one checks that the keeper lives.
The groups of a dead keeper are gone with it. Another keeper is then created, and the caller ends the stages of the lost groups.

Groups of an ended stage rest here for a moment before the keeper gets them back. A stage with the same slots and places that comes
meanwhile takes them without a call of the keeper: short runs often follow each other. Any other request returns them first.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog
from ray.exceptions import ActorDiedError, RayActorError

from mesh.core.ids import MeshId
from mesh.core.shapes import SlotShape
from mesh.ray.stage_runner.actor_calls import ActorCalls
from mesh.ray.stage_runner.detached_actors import DetachedActors
from mesh.ray.stage_runner.held_groups import Groups
from mesh.stages.hosting import GroupLayers, Places

log = structlog.get_logger(__name__)

#: How long groups of an ended stage wait for a stage like it; seconds. Short, since others may wait for their resources.
REST_S = 0.1
#: Pause between two checks of the keeper; seconds.
KEEPER_LOOK_S = 1.0
#: Time limit of one check of the keeper; seconds. A keeper whose Ray is busy answers late.
KEEPER_S_MAX = 60.0
#: Wait for the thread at the close; seconds.
CLOSE_S_MAX = 4.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """Request for groups."""

    slot: SlotShape
    slots: int
    places: Places
    keeper: Any = field(default=None, compare=False)  #: Keeper of the groups; those of a dead one are gone.


@dataclass(frozen=True, slots=True)
class _Resting:
    """Groups of an ended stage that the keeper counts as taken."""

    asked: _Asked
    groups: Groups
    until_s: float  #: Monotonic.


class StageGroups:
    """Placement groups of one mesh. Safe to use from several threads; all methods but `close` return at once.

    Args:
        mesh: Its name in the log.
        lose: Called from a thread of this object when a keeper has died, with the reason; all groups taken so far are gone.
        rest_s: See `REST_S`.
    """

    def __init__(
        self, mesh: MeshId, actors: DetachedActors, calls: ActorCalls, lose: Callable[[str], None], rest_s: float = REST_S
    ) -> None:
        self._mesh, self._actors, self._calls, self._lose = mesh, actors, calls, lose
        self._keeper: Any = None
        self._session = 0, 0  #: Session that pays, and the first session that it continues; 0: none, and no keeper is created.
        self._layers: GroupLayers | None = None  #: None: not known yet; a found keeper goes on with what it has.
        self._rest_s = rest_s
        self._asked_for: dict[str, _Asked] = {}  #: Requests of the groups in use, by Ray's ids of these.
        self._resting: list[_Resting] = []  #: The oldest first.
        self._guard = threading.Lock()
        self._asked: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="groups", daemon=True)
        self._thread.start()
        self._is_closed = threading.Event()
        threading.Thread(target=self._watch_keeper, name="keeper", daemon=True).start()

    @property
    def keeper_id(self) -> str:
        """Actor id of the keeper; empty while there is none."""
        keeper = self._keeper
        return keeper._actor_id.hex() if keeper is not None else ""  # noqa: SLF001  a handle has no public id

    def take(self, slot: SlotShape, slots: int, places: Places, then: Callable[[Groups], None]) -> None:
        """Take groups with `slots` slots in all. `then` gets them from another thread; none: neither keeper nor Ray gave any.

        Args:
            places: Nodes for the slots.
        """
        self._asked.put(partial(self._take, slot, slots, places, then))

    def keep(self, layers: GroupLayers) -> None:
        """Keep these layers of groups, with this keeper and those after it."""
        if layers != self._layers:
            self._layers = layers
            self._asked.put(self._arrange)

    def after(self, then: Callable[[], object]) -> None:
        """Call `then` from another thread, after the calls for all groups that were asked for before."""
        self._asked.put(then)

    def give_back(self, groups: Groups, *, reuse: bool = True) -> None:
        """Return groups. The groups of a dead keeper are gone already.

        Args:
            reuse: False: their tasks may have left something behind, and the groups are removed.
        """
        asked = self._asked_for_all(groups)
        if reuse and asked is not None and not self._is_closed.is_set():
            self._asked.put(partial(self._rest, asked, groups))
        else:
            self._return(groups, reuse=reuse)

    def _asked_for_all(self, groups: Groups) -> _Asked | None:
        """Return what these groups, and no others, were asked for, once. None: some are reserved, or belong to another request.

        The keeper asks Ray which of several groups are placed; of a single one nobody need know.
        """
        asked = [self._asked_for.pop(group.hex_id, None) for group in groups]
        first = asked[0] if asked else None
        if first is None or first.places.groups or any(other is not first for other in asked):
            return None
        is_known = len(groups) == 1 or all(group.is_placed for group in groups)
        is_whole = is_known and sum(group.slots for group in groups) == first.slots
        return first if is_whole else None

    def _return(self, groups: Groups, *, reuse: bool = True) -> None:
        keeper = self._keeper
        if groups and keeper is not None:
            keeper.give_back.remote(groups, reuse)

    def begin(self, incarnation: int, since: int) -> None:
        """Set the session that pays; a keeper is created from now on."""
        self._session = incarnation, since

    def settle(self) -> None:
        """Create the keeper if there is none, and name the session to it."""
        self._asked.put(self._settle)

    def adopt(self, keeper: Any, groups: frozenset[str]) -> None:
        """Go on with a found keeper, and remove all its taken groups but these, by their ids."""
        self._keeper = keeper
        self._asked.put(partial(keeper.keep_only.remote, groups))

    def end(self) -> None:
        """Forget the keeper, which the caller kills with the mesh's other actors."""
        with self._guard:
            self._keeper, self._session = None, (0, 0)
        self._asked.put(self._forget_resting)

    def close(self) -> None:
        """End the threads after the requests made so far."""
        self._is_closed.set()
        self._asked.put(None)
        self._thread.join(timeout=CLOSE_S_MAX)

    # -- the thread that asks ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (request := self._next()) is not None:
            try:
                request()
            except Exception:  # without this thread the mesh would go on accepting stages and run none
                log.exception("a request for placement groups failed", mesh=self._mesh)
        self._return_resting()

    def _next(self) -> Callable[[], object] | None:
        """Return the next request; None: to end. Groups that have rested for long go first."""
        while self._resting:
            left_s = self._resting[0].until_s - time.monotonic()
            try:
                if left_s > 0:
                    return self._asked.get(timeout=left_s)
                return self._asked.get_nowait()
            except queue.Empty:
                if self._resting[0].until_s <= time.monotonic():
                    self._return(self._resting.pop(0).groups)
        return self._asked.get()

    def _rest(self, asked: _Asked, groups: Groups) -> None:
        """Keep groups for a stage like the one that has ended, unless their keeper has died since."""
        if self._is_here(asked):
            self._resting.append(_Resting(asked, groups, time.monotonic() + self._rest_s))

    def _is_here(self, asked: _Asked) -> bool:
        """Return whether the present keeper has the groups."""
        return asked.keeper is not None and asked.keeper is self._keeper

    def _rested(self, asked: _Asked) -> tuple[Any, Groups] | None:
        """Return groups that rest and were asked for alike, the last ones first, with their keeper.

        Without such groups return all that rest to the keeper.
        """
        self._resting = [resting for resting in self._resting if self._is_here(resting.asked)]
        for place in reversed(range(len(self._resting))):
            if self._resting[place].asked == asked:
                found = self._resting.pop(place)
                return found.asked.keeper, found.groups
        self._return_resting()
        return None

    def _return_resting(self) -> None:
        for resting in self._resting:
            self._return(resting.groups)
        self._resting.clear()

    def _forget_resting(self) -> None:
        self._resting.clear()
        self._asked_for.clear()

    def _take(self, slot: SlotShape, slots: int, places: Places, then: Callable[[Groups], None]) -> None:
        groups: Groups = ()
        asked = _Asked(slot, slots, places)
        try:
            keeper, groups = self._rested(asked) or self._ask(slot, slots, places)
            self._asked_for.update(dict.fromkeys([group.hex_id for group in groups], replace(asked, keeper=keeper)))
        finally:
            then(groups)

    def _ask(self, slot: SlotShape, slots: int, places: Places) -> tuple[Any, Groups]:
        """Return the keeper that was asked, and the groups that it gave."""
        keeper = self._housekeeper()
        if keeper is None:
            return None, ()  # All work was stopped.
        try:
            return keeper, self._taken_from(keeper, slot, slots, places)
        except RayActorError as death:
            keeper = self._replace(keeper, str(death))
            return keeper, self._taken_from(keeper, slot, slots, places) if keeper is not None else ()

    def _taken_from(self, keeper: Any, slot: SlotShape, slots: int, places: Places) -> Groups:
        groups: Groups = self._calls.result(keeper.take.remote(slot, slots, places))
        return groups

    def _arrange(self) -> None:
        keeper = self._housekeeper()
        if keeper is not None:
            self._name_layers(keeper)

    def _name_layers(self, keeper: Any) -> None:
        if self._layers is not None:
            keeper.arrange.remote(self._layers)

    def _settle(self) -> None:
        keeper = self._housekeeper()
        if keeper is not None:
            keeper.settle.remote(*self._session)

    def _housekeeper(self) -> Any:
        """Return the keeper; create it if there is none and a session pays."""
        with self._guard:
            if self._keeper is None and self._session[0]:
                self._keeper = self._actors.new_keeper(*self._session)
                self._name_layers(self._keeper)
            return self._keeper

    def _watch_keeper(self) -> None:
        """Detect the death of the keeper: a task that is submitted to a removed group waits for ever, and Ray does not report it."""
        while not self._is_closed.wait(KEEPER_LOOK_S):
            keeper = self._keeper
            if keeper is None:
                continue
            try:
                self._calls.result(keeper.session.remote(), KEEPER_S_MAX)
            except ActorDiedError as death:
                self._asked.put(partial(self._replace, keeper, str(death)))
            except Exception as away:  # noqa: BLE001  Ray raises many errors when it is away; the next check may find the keeper dead
                log.debug("the keeper of placement groups does not answer", mesh=self._mesh, error=str(away))

    def _replace(self, keeper: Any, why: str) -> Any:
        """Create another keeper, unless that was done or all work was stopped; return the keeper."""
        with self._guard:
            is_current, self._keeper = self._keeper is keeper, None if self._keeper is keeper else self._keeper
        if is_current:
            self._forget_resting()
            log.warning("the keeper of placement groups died", mesh=self._mesh, why=why)
            self._actors.end(keeper)  # A keeper that does not answer may be alive.
            self._lose(why)
        return self._housekeeper()
