"""A client's connection to the supervisor: finds it by name, and repeats a call at the next one when it dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from mesh.errors import MeshError, RuntimeAdapterError
from mesh.ray.local.ray_names import supervisor_name
from mesh.ray.local.supervision_errors import StartFailed, StartsAgain, SupervisorLost, no_such_mesh
from mesh.ray.local.verbs import P, R, send

#: Time limit for a new supervisor after the death of the last one.
RETURN_S_MAX = 90.0
#: Time limit until the name of an ended supervisor is free.
END_S_MAX = 30.0
_PAUSE_S = 0.2


class SupervisorLink:
    """Connection to one mesh's supervisor. Can be pickled; thread-safe."""

    def __init__(self, mesh: str, namespace: str) -> None:
        self.mesh = mesh
        self.namespace = namespace
        self._actor: Any = None

    def __reduce__(self) -> tuple[type[SupervisorLink], tuple[str, str]]:
        """Pickle the name only: the other process looks the actor up itself."""
        return type(self), (self.mesh, self.namespace)

    def ask(self, verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb of the supervisor and wait for the answer. The call may be sent twice, so verbs are idempotent.

        Raises:
            MeshError: The error of the verb.
            SupervisorLost: There is no supervisor, or none came back in time; `StartsAgain` when one did but cannot start.
            StartFailed: The actor could not be created.
        """
        deadline = time.monotonic() + RETURN_S_MAX
        while True:
            try:
                answer: R = ray.get(send(self.actor(), verb, *args, **kwargs))
            except RayTaskError as error:
                if not isinstance(error.cause, MeshError):
                    raise
                if not isinstance(error.cause, StartsAgain) or time.monotonic() > deadline:
                    raise error.cause from None
            except (ActorUnavailableError, RayActorError) as error:
                self._actor = None
                if error.actor_init_failed:
                    raise StartFailed(self.mesh, str(error).strip().splitlines()[-1]) from error
                if time.monotonic() > deadline:
                    raise SupervisorLost(f"the supervisor of mesh {self.mesh} died and none came back: {error}") from error
            else:
                return answer
            time.sleep(_PAUSE_S)

    def know(self, actor: Any) -> None:
        """Set the supervisor's actor: it is not looked up, and the first call raises its start error."""
        self._actor = actor

    def actor(self) -> Any:
        """Return Ray's handle of the supervisor.

        Raises:
            SupervisorLost: There is no such mesh in this cluster.
            RuntimeAdapterError: This process is not connected to a cluster.
        """
        if self._actor is None:
            require_cluster()
            try:
                self._actor = ray.get_actor(supervisor_name(self.mesh), namespace=self.namespace)
            except ValueError:
                raise no_such_mesh(self.mesh) from None
        return self._actor

    def end(self, actor: Any) -> None:
        """Kill this supervisor, and wait until its name is free or belongs to another actor: the next start of the mesh must not find
        a dying supervisor.

        Raises:
            SupervisorLost: The name did not become free in time.
        """
        ray.kill(actor, no_restart=True)
        deadline = time.monotonic() + END_S_MAX
        while not self.is_gone(actor):
            if time.monotonic() > deadline:
                raise SupervisorLost(f"the supervisor of mesh {self.mesh} was ended but still has its name; try again")
            time.sleep(_PAUSE_S)

    def is_gone(self, ended: Any = None) -> bool:
        """Return whether no actor has the name, or another one than the ended actor."""
        self._actor = None
        try:
            found = self.actor()
        except SupervisorLost:
            return True
        return ended is not None and found != ended


def require_cluster() -> None:
    """Raise `RuntimeAdapterError` when this process is not connected to a Ray cluster."""
    if not ray.is_initialized():
        raise RuntimeAdapterError("this process is not connected to a Ray cluster; call ray.init(address=...) first")
