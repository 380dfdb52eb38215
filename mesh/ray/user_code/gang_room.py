"""Placement groups within a gang's placement group, for libraries that make their own: Ray Train, Tune and Data.

Ray has no groups within groups. A new group would take room beside the gang's, for which no lease pays, and is refused (ADR 0047). So
in each process of a gang, `placement_group()` returns a part of the gang's own group: a `GangPart`, whose bundles are bundles of the
gang's. It is ready when the gang has room for all of it, and is given back by `remove_placement_group`, or by the end of the actor that
made it. An actor of the gang, `GangRoom`, keeps the ledger. Work that asks for SPREAD or DEFAULT, as that of Ray Data does, is placed
within the gang. Detached actors with DEFAULT, which Ray Train has on the head node, hold nothing, and stay where they are.

`install` runs in every worker process of a gang, also below the node: Ray calls it as the setup hook of workers that the node's runtime
environment names, which its tasks and actors inherit. Ray has no public function for any of this, as for `ownership`.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import ray
from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR
from ray.actor import ActorClass
from ray.remote_function import RemoteFunction
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.errors import OutsideGroup
from mesh.placement.bundle_ledger import BundleLedger, arranged
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.ray_tables import in_words

#: Pause between two looks for parts whose makers have died, while parts wait; seconds.
LOOK_S = 1.0
_ROOM = "schedulemesh gang "


def variables() -> dict[str, str]:
    """Return the environment variables that make Ray install the hooks in a worker process and in those below it."""
    return {WORKER_PROCESS_SETUP_HOOK_ENV_VAR: f"{__name__}.{install.__name__}"}


class GangPart(PlacementGroup):
    """A placement group that is a part of a gang's. Its id is that of the gang's group; two parts are equal only to themselves.

    Args:
        room: Handle of the gang's `GangRoom`.
        part: Name of the part.
        bundles: Its bundles.
    """

    def __init__(self, group: Any, room: Any, part: str, bundles: list[dict[str, float]]) -> None:
        super().__init__(group, bundles)
        self.room = room
        self.part = part
        self._places: list[int] | None = None

    def ready(self) -> Any:
        """Return a reference that is there when the part has its room."""
        return self.room.ready.remote(self.part, self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Wait until the part has its room; return whether it has."""
        done, _ = ray.wait([self.room.places.remote(self.part)], timeout=timeout_seconds)
        return bool(done)

    def in_gang(self, index: int) -> tuple[PlacementGroup, int]:
        """Return the gang's group and the place in it of a bundle of the part; -1: any."""
        if index >= 0 and self._places is None:
            self._places = ray.get(self.room.places.remote(self.part))
        return PlacementGroup(self.id), -1 if index < 0 or self._places is None else self._places[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GangPart) and self.part == other.part

    def __hash__(self) -> int:
        return hash(self.part)

    def __reduce__(self) -> tuple[Any, ...]:
        return (GangPart, (self.id, self.room, self.part, self.bundle_cache))


class GangRoom:
    """Actor of a gang that hands out its bundles as parts.

    Args:
        bundles: Amounts of the gang's bundles, by Ray's names.
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]]) -> None:
        self._ledger = BundleLedger(bundles)
        self._makers: dict[str, str] = {}  #: Actor that made each part, by Ray's id.
        self._changed = asyncio.Condition()
        self._looks: asyncio.Task[None] | None = None

    async def ask(self, part: str, bundles: Sequence[Mapping[str, float]], strategy: str, maker: str | None) -> None:
        """Queue a part."""
        if maker is not None:
            self._makers[part] = maker
        self._ledger.ask(part, bundles, strategy)
        if self._looks is None:
            self._looks = asyncio.get_running_loop().create_task(self._release_of_dead())

    async def places(self, part: str) -> list[int]:
        """Wait for the part's room; return the gang's bundle of each bundle of the part."""
        async with self._changed:
            while (found := self._ledger.places(part)) is None:
                if part not in self._ledger.parts():
                    raise ValueError("this placement group was removed")
                await self._changed.wait()
        return found

    async def ready(self, part: str, group: GangPart) -> GangPart:
        """Wait for the part's room; return the part, as Ray's own `ready` does."""
        await self.places(part)
        return group

    async def release(self, part: str) -> None:
        """Give the part's room back."""
        self._makers.pop(part, None)
        self._ledger.release(part)
        async with self._changed:
            self._changed.notify_all()

    async def _release_of_dead(self) -> None:
        """Give back parts whose makers have died: Ray removes the groups of a dead actor too."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._makers or all(self._ledger.places(part) is not None for part in self._ledger.parts()):
                continue
            alive = {actor.id for actor in await asyncio.to_thread(ray_tables.actors)}
            for part in [part for part, maker in self._makers.items() if maker not in alive]:
                await self.release(part)


class _Known:
    group: PlacementGroup | None = None  #: That of the main thread, as it was last seen.


def note_group() -> PlacementGroup | None:
    """Return the present placement group; of another thread than the main one, that of the process.

    Ray knows the group of a task in its own thread only, and Ray Data works in threads.
    """
    found = ray.util.get_current_placement_group()
    if threading.current_thread() is threading.main_thread():
        _Known.group = found
    return found or _Known.group


def _room_of(group: PlacementGroup) -> Any:
    """Return the handle of the gang's room; the first process that asks makes it."""
    options = {
        "name": f"{_ROOM}{group.id.hex()}",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_concurrency": 1_000,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group),
    }
    return ray.remote(GangRoom).options(**options).remote(group.bundle_specs)


def install() -> None:
    """Install the hooks in this process; harmless when repeated."""
    kinds: tuple[Any, ...] = (RemoteFunction, ActorClass)
    if getattr(kinds[0], "_in_gang", False):
        return
    for kind in kinds:
        kind._in_gang = True  # noqa: SLF001  our own mark
        kind._remote = _inside(kind._remote)  # noqa: SLF001  see the module
    _replace(ray.util.placement_group, _part_of_gang)
    _replace(ray.util.remove_placement_group, _give_back)


def _replace(wrapper: Any, changed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function of Ray inside its own wrapper, since code that has imported it by name calls the wrapper."""
    original = wrapper.__wrapped__
    cell = next(cell for cell in wrapper.__closure__ if cell.cell_contents is original)
    wrapper.__wrapped__ = cell.cell_contents = changed(original)


def _inside(create: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(create)
    def create_inside(*args: Any, **options: Any) -> Any:
        strategy = options.get("scheduling_strategy")
        is_free = strategy in (None, "SPREAD") or (strategy == "DEFAULT" and options.get("lifetime") != "detached")
        if is_free and options.get("placement_group", "default") == "default":
            group = note_group()
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, -1, True) if group is not None else strategy
        elif isinstance(strategy, PlacementGroupSchedulingStrategy) and isinstance(strategy.placement_group, GangPart):
            group, index = strategy.placement_group.in_gang(strategy.placement_group_bundle_index)
            captures = strategy.placement_group_capture_child_tasks
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, index, captures)
        elif isinstance(options.get("placement_group"), GangPart):  # The option that Ray deprecates.
            group, index = options["placement_group"].in_gang(options.get("placement_group_bundle_index", -1))
            options |= {"placement_group": group, "placement_group_bundle_index": index}
        return create(*args, **options)

    return create_inside


def _part_of_gang(create: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(create)
    def make_part(bundles: list[dict[str, float]], strategy: str | None = None, *args: Any, **options: Any) -> Any:
        group = note_group()
        if group is None or not isinstance(bundles, list) or not bundles:
            return create(bundles, strategy, *args, **options)  # Ray says what is wrong.
        wanted = [{name: float(amount) for name, amount in bundle.items()} for bundle in bundles]
        if arranged(group.bundle_specs, wanted, strategy or "PACK") is None:
            raise OutsideGroup(_too_large(wanted, group.bundle_specs))
        part, room = uuid.uuid4().hex, _room_of(group)
        maker = ray.get_runtime_context().get_actor_id()
        ray.get(room.ask.remote(part, wanted, strategy or "PACK", maker))
        return GangPart(group.id, room, part, bundles)

    make_part.is_in_gang = True  # type: ignore[attr-defined]  # for `ownership`, which refuses groups elsewhere
    return make_part


def _give_back(remove: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(remove)
    def give_back(group: PlacementGroup) -> None:
        if isinstance(group, GangPart):
            group.room.release.remote(group.part)
        else:
            remove(group)

    return give_back


def _too_large(wanted: Sequence[Mapping[str, float]], gang: Sequence[Mapping[str, float]]) -> str:
    asked, has = (f"{len(bundles)} of {' or '.join(sorted({in_words(bundle) for bundle in bundles}))}" for bundles in (wanted, gang))
    return f"placement group with bundles {asked} does not fit into the gang, which has {has}; give the gang more `size` or amounts"
