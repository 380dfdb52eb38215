"""The supervisor: one detached actor per mesh, with the one scheduler and everything that carries out its decisions.

The actor starts and ends the mesh. Its services answer all other verbs, one method of the actor per row of `VERBS`.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import ray
import structlog

from mesh.errors import MeshError, RuntimeAdapterError
from mesh.ray.local.services.agent_service import AgentService
from mesh.ray.local.services.group_service import GroupService
from mesh.ray.local.services.job_service import JobService
from mesh.ray.local.services.mesh_service import MeshService
from mesh.ray.local.services.pool_service import PoolService
from mesh.ray.local.services.task_service import TaskService
from mesh.ray.local.supervision_errors import MeshStopped, StartFailed, StartsAgain, no_such_mesh
from mesh.ray.local.supervisor.agent_client import AgentClient, AgentProcess
from mesh.ray.local.supervisor.placement_group_client import PlacementGroupClient
from mesh.ray.local.supervisor.supervised_mesh import SupervisedMesh, end_in_ray
from mesh.ray.local.supervisor.supervisor_options import SupervisorOptions
from mesh.ray.local.verbs import VERBS, Services, Verb

log = structlog.get_logger(__name__)

#: Number of calls that may wait at the same time.
CALLS_MAX = 10_000


def services_of(mesh: SupervisedMesh) -> Services:
    """Return the services of a mesh that has begun."""
    tasks = TaskService(mesh.loop, mesh.payloads, mesh.driver, mesh.plugins)
    return Services(
        tasks=tasks,
        pools=PoolService(mesh.loop),
        groups=GroupService(mesh.options.mesh, mesh.loop, tasks),
        jobs=JobService(mesh.loop, mesh.jobs, mesh.payloads),
        agents=AgentService(
            loop=mesh.loop,
            driver=mesh.driver,
            agents=mesh.agents,
            standbys=mesh.standbys,
            payloads=mesh.payloads,
            feedback=mesh.observer.feedback,
        ),
        mesh=MeshService(mesh),
    )


class MeshSupervisor:
    """The actor of one mesh. All methods are coroutines on one event loop.

    Args:
        assemble: Constructs the parts of the mesh.
    """

    def __init__(self, options: SupervisorOptions, assemble: Callable[..., SupervisedMesh] = SupervisedMesh) -> None:
        self._options = options
        self._assemble = assemble
        self._mesh: SupervisedMesh | None = None  #: None until it is up.
        self._stopping = asyncio.Lock()
        self._ending: asyncio.TimerHandle | None = None  #: Timer that ends this actor.
        self._is_again = bool(ray.get_runtime_context().was_current_actor_reconstructed)  #: Up before; its process died.
        # Started as a task: an actor whose constructor raises just dies, while this task's error goes to every caller.
        self._ready: asyncio.Future[Services] = asyncio.get_running_loop().create_task(self._start(), name="start")

    async def stop(self, *, forget: bool) -> None:
        """See `ActorVerbs.stop`."""
        async with self._stopping:
            await asyncio.wait([self._ready])
            failed = None if self._mesh is not None else self._ready.exception()
            self._ready = self._gone()  # Later requests must not see a running mesh.
            if self._ending is not None:
                self._ending.cancel()
            try:
                await self._end_all()
                if forget and failed is not None:
                    raise RuntimeAdapterError(f"all has ended, but state_dir {self._options.state_dir} stays: {failed}; remove it yourself")
                if forget:
                    await asyncio.to_thread(shutil.rmtree, self._options.state_dir, ignore_errors=True)
            finally:
                self._end_soon(self._options.farewell_s, is_last=True)  # In case the caller is gone.
                if self._mesh is not None:
                    self._mesh.close()  # The process takes a while to end, and the mesh may be started again at once.

    async def _up(self) -> Services:
        """Return the services of the running mesh. Raises the error of its start, or `MeshStopped`."""
        ready = self._ready
        services = await ready
        return services if ready is self._ready else await self._ready

    async def _start(self) -> Services:
        """Start everything or nothing: a failed start removes what it has created before it raises.

        Raises:
            MeshError: The error, with the remedy.
            StartsAgain: The same, of a supervisor that was up before. Its mesh has agents and tasks, so the start is repeated.
        """
        options = self._options
        async with AsyncExitStack() as made:
            try:
                mesh = self._assemble(options, made, is_again=self._is_again)
                await mesh.begin()
            except Exception as error:
                log.exception("the mesh cannot be started")
                self._end_soon(options.farewell_s if not self._is_again else options.again_s, is_last=not self._is_again)
                if self._is_again:
                    raise StartsAgain(options.mesh, str(error) or type(error).__name__) from error
                if isinstance(error, MeshError):
                    raise
                raise StartFailed(options.mesh, f"{type(error).__name__}: {error}") from error
            made.pop_all()
            self._mesh = mesh
        return services_of(mesh)

    async def _end_all(self) -> None:
        if self._mesh is not None:
            await self._mesh.end()
        else:  # Processes and groups of an earlier supervisor may be there.
            agents = AgentClient(self._options.mesh, self._options.namespace, 0, _ignore)
            await end_in_ray(agents, PlacementGroupClient(self._options.mesh))

    def _end_soon(self, pause_s: float, *, is_last: bool) -> None:
        self._ending = asyncio.get_running_loop().call_later(pause_s, _end_this_actor, is_last)

    def _gone(self) -> asyncio.Future[Services]:
        gone = asyncio.get_running_loop().create_future()
        gone.set_exception(no_such_mesh(self._options.mesh, MeshStopped))
        gone.exception()  # Marks the error as retrieved, because asyncio logs unretrieved ones.
        return gone


def _end_this_actor(is_last: bool) -> None:
    ray.kill(ray.get_runtime_context().current_actor, no_restart=is_last)


def _ignore(_process: AgentProcess, _words: str) -> None:
    """Ignore the end of a process that was ended on purpose."""


def _answer(verb: Verb) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return the actor's method for a verb: it waits until the mesh is up, and calls the service."""

    async def answer(self: MeshSupervisor, /, *args: Any, **kwargs: Any) -> Any:
        service = getattr(await self._up(), verb.service)
        return await getattr(service, verb.name)(*args, **kwargs)

    # Not by `wraps`: Ray changes the signature of the innermost function, which would be the table's.
    answer.__name__, answer.__doc__ = verb.name, verb.signature.__doc__
    answer.__signature__ = inspect.signature(verb.signature)  # type: ignore[attr-defined]  # Python's types know no such attribute
    return answer


for _verb in VERBS:
    setattr(MeshSupervisor, _verb.name, _answer(_verb))

#: The actor class. Typed as Any: Ray's types know no actor that is made by a call.
Supervisor: Any = ray.remote(num_cpus=0, max_restarts=-1, max_concurrency=CALLS_MAX)(MeshSupervisor)  # type: ignore[call-overload]  # as above
