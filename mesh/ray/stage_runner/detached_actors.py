"""The actors of a mesh on its Ray cluster: creation, names, discovery and removal.

The actors are detached: they outlive the process that created them. The watchdogs of their nodes end them when the mesh's leases are no
longer renewed. So actors are created only after a renewal, and their names hold the name of their mesh.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
import structlog
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError

from mesh.core.ids import MeshId
from mesh.core.shapes import Gang, SlotShape
from mesh.ray.placement import PlacementPool
from mesh.ray.stage_runner.held_groups import Groups
from mesh.ray.stage_runner.runner import Inventory, StageRunner
from mesh.ray.user_code import ray_tables
from mesh.ray.worker.watch_folder import register
from mesh.stages.hosting import ANYWHERE, GroupLayers, Places

log = structlog.get_logger(__name__)

#: Time limit for the answer of a found actor; seconds.
ANSWER_S = 10.0
#: Pause between two looks whether anyone waits for resources that idle groups hold; seconds. One look takes half a millisecond.
LOOK_S = 0.2
#: Pause between two looks whether Ray has placed new groups, in seconds, and number of looks: if it has room, it takes milliseconds.
LOOK_PLACED_S, LOOKS_PLACED = 0.003, 8
#: The same for gangs, whose bundles Ray reserves on several nodes.
LOOKS_PLACED_GANG = 80
_KEEPER, _RUNNER = "keeper", "runner"


class Keeper:
    """Keeper of one mesh.

    Args:
        incarnation: The session whose leases pay for the groups.
        since: The first session that this one continues.
    """

    def __init__(self, mesh: MeshId, node_labels: Mapping[str, str], incarnation: int, since: int) -> None:
        register(mesh)
        self._pool, self._node_labels = PlacementPool(node_labels), node_labels
        self._session = incarnation, since
        self._is_idle = threading.Event()  #: The pool may keep groups for later.
        threading.Thread(target=self._release, name="idle-groups", daemon=True).start()

    def settle(self, incarnation: int, since: int) -> None:
        """Set the session that pays from now on."""
        self._session = incarnation, since

    def session(self) -> tuple[int, int]:
        """Return the session that pays, and the first session that it continues."""
        return self._session

    def arrange(self, layers: GroupLayers) -> None:
        """Keep these layers of groups from now on."""
        self._pool.arrange(layers)
        self._is_idle.set()

    def take(self, slot: SlotShape, slots: int, places: Places = ANYWHERE) -> Groups:
        """Return groups with so many slots in all: see `PlacementPool.take_slots`."""
        if isinstance(slot, Gang):
            return self._take_gangs(slot, slots, places)
        groups = self._pool.take_slots(slot, slots, places)
        if len(groups) == 1:  # A stage may use its only group before it is placed, and the look at Ray's table takes a call.
            return groups
        return _looked_at(groups, LOOKS_PLACED)

    def _take_gangs(self, gang: Gang, slots: int, places: Places) -> Groups:
        """Return a group for each gang. Gangs that Ray cannot place on their nodes, which others may have taken meanwhile, go anywhere."""
        groups = _looked_at(self._pool.take_gangs(gang, slots, places), LOOKS_PLACED_GANG)
        elsewhere = tuple(group for group in groups if group.bundle_nodes and not group.is_placed)
        self.give_back(elsewhere, reuse=False)
        more = self._pool.take_gangs(gang, len(elsewhere), replace(places, nodes=())) if elsewhere else ()
        return (*(group for group in groups if group not in elsewhere), *more)

    def give_back(self, groups: Groups, reuse: bool) -> None:
        for held in groups:
            if held.group is not None:
                self._pool.give_back(held.group, reuse=reuse)
        self._is_idle.set()

    def keep_only(self, groups: frozenset[str]) -> None:
        """Remove all taken groups but these, by their ids: the process that took the others died before it returned them."""
        self._pool.keep_only(groups)

    def _release(self) -> None:
        """Remove kept groups when anyone on the cluster waits for resources, and when they are over their time; make lost ones again."""
        while self._is_idle.wait():
            time.sleep(LOOK_S)
            try:
                self._pool.release(ray_tables.resources_waited_for(self._node_labels))
                if idle := self._pool.reserved_ids():
                    known = {row.id for row in ray_tables.groups()}
                    if not idle <= known:
                        self._pool.reserve_again(known | (self._pool.reserved_ids() - idle))
            except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
                log.debug("Ray does not tell who waits for resources", error=str(away))
            if not self._has_to_look():
                self._is_idle.clear()
                if self._has_to_look():  # Returned between the two lines above.
                    self._is_idle.set()

    def _has_to_look(self) -> bool:
        return self._pool.has_idle() or bool(self._pool.reserved_ids())


def _looked_at(groups: Groups, looks: int) -> Groups:
    """Return the groups with what Ray's table shows, after at most so many looks for all to be placed."""
    for pause_s in (*(LOOK_PLACED_S,) * (looks - 1), 0.0):
        placed = {row.id for row in ray_tables.groups() if row.is_placed}
        if placed.issuperset(group.hex_id for group in groups):
            break
        time.sleep(pause_s)
    return tuple(replace(group, is_placed=group.hex_id in placed) for group in groups)


#: The actor class, typed as Any: Ray's types do not know the results of calls on an actor's handle.
GroupKeeper: Any = ray.remote(num_cpus=0, max_restarts=0)(Keeper)


def detached_name(ledger: str, mesh: MeshId) -> MeshId:
    """Return the name of a mesh on its Ray cluster. Meshes of several federations may share a cluster and a name.

    Args:
        ledger: The id of the federation's ledger; empty: there is no other federation.
    """
    return MeshId(f"{ledger}:{mesh}") if ledger else mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundActors:
    """Actors of an earlier process: the keeper with its session and the first session that it continues, and all runners."""

    keeper: Any
    incarnation: int
    since: int
    runners: tuple[tuple[Any, Inventory], ...]


class DetachedActors:
    """Actors of one mesh in the namespace of the calling driver. Safe to use from several threads.

    Args:
        mesh: Its `detached_name`.
        node_labels: Labels of the nodes that the mesh may use; empty: all of the cluster.
    """

    def __init__(self, mesh: MeshId, node_labels: dict[str, str]) -> None:
        self._mesh = mesh
        self._node_labels = node_labels

    def new_keeper(self, incarnation: int, since: int) -> Any:
        """Create a keeper of placement groups. Returns before the keeper is up."""
        return GroupKeeper.options(**self._options(_KEEPER)).remote(self._mesh, self._node_labels, incarnation, since)

    def new_runner(self, runtime_env: dict[str, object], environment: str) -> Any:
        """Create a runner without a tenant. Returns before the runner is up. Raises Ray's own errors about the runtime environment."""
        return StageRunner.options(**self._options(_RUNNER), runtime_env=runtime_env or None).remote(self._mesh, environment)

    def _options(self, role: str) -> dict[str, Any]:
        options: dict[str, Any] = {"name": f"{self.prefix}{role}/{uuid.uuid4().hex}", "lifetime": "detached"}
        if self._node_labels:
            options["label_selector"] = self._node_labels
        return options

    @property
    def prefix(self) -> str:
        """Prefix of the names of all actors of the mesh."""
        return f"mesh/{self._mesh}/"

    def find(self) -> FoundActors | None:
        """Return all actors of an earlier process. None: they cannot be recovered, and the caller may end those that exist.

        An actor that does not answer may still have work that is unknown here. In that case the result is None.
        """
        actors = self._actors()
        keepers = [actor for role, actor in actors if role == _KEEPER]
        runners = [actor for role, actor in actors if role == _RUNNER]
        if len(keepers) != 1:
            if actors:
                log.warning(
                    "the actors that an earlier process left are incomplete", mesh=self._mesh, keepers=len(keepers), runners=len(runners)
                )
            return None
        try:
            incarnation, since = ray.get(keepers[0].session.remote(), timeout=ANSWER_S)
            questions = [(runner, runner.inventory.remote()) for runner in runners]
            ray.wait([question for _, question in questions], num_returns=len(questions), timeout=ANSWER_S) if questions else None
            inventories = [(runner, _inventory_in(question)) for runner, question in questions]
        except (RayError, GetTimeoutError) as silent:
            log.warning("the actors that an earlier process left do not answer", mesh=self._mesh, error=str(silent))
            return None
        return FoundActors(
            keeper=keepers[0],
            incarnation=incarnation,
            since=since,
            runners=tuple((runner, inventory) for runner, inventory in inventories if inventory),
        )

    def end(self, actor: Any) -> None:
        """Kill one actor. Harmless when the actor is dead or Ray does not answer."""
        try:
            ray.kill(actor)
        except (RayError, RuntimeError) as away:
            log.warning("an actor could not be killed", mesh=self._mesh, error=str(away))

    def end_all(self) -> None:
        """Kill every actor of the mesh. Ray ends the tasks of a dead runner, and removes the groups of a dead keeper."""
        try:
            for _, actor in self._actors():
                ray.kill(actor)
        except (RayError, RuntimeError) as away:  # RuntimeError: this driver has left the cluster.
            log.warning("Ray does not answer; the watchdogs end the actors that are left", mesh=self._mesh, error=str(away))

    def _actors(self) -> list[tuple[str, Any]]:
        """Return the actors of the mesh with their roles."""
        found = []
        for name in ray.util.list_named_actors():
            if name.startswith(self.prefix):
                try:
                    found.append((name.removeprefix(self.prefix).partition("/")[0], ray.get_actor(name)))
                except ValueError:  # It has ended since.
                    log.info("an actor has just ended", mesh=self._mesh, actor=name)
        return found


def _inventory_in(question: Any) -> Inventory | None:
    """Return the inventory of a runner; None: the runner is dead, and its state is lost."""
    try:
        inventory: Inventory = ray.get(question, timeout=1)
    except ActorDiedError:
        return None
    return inventory
