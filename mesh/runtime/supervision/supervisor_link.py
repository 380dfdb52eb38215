"""A client's way to the supervisor: finds it by its name, and sends a call again to the next one when it dies under it."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from mesh.errors import MeshError, RuntimeDoorError
from mesh.runtime.supervision.ray_names import supervisor_name
from mesh.runtime.supervision.supervision_errors import StartFailed, StartsAgain, SupervisorLost, no_such_mesh

#: How long a new supervisor may take to come after the death of the last one.
RETURN_S_MAX = 90.0
#: How long the name of one that was ended may take to come free.
END_S_MAX = 30.0
_PAUSE_S = 0.2


class SupervisorLink:
    """Can be pickled; safe to use from several threads."""

    def __init__(self, mesh: str, namespace: str) -> None:
        self.mesh = mesh
        self.namespace = namespace
        self._actor: Any = None

    def __reduce__(self) -> tuple[type[SupervisorLink], tuple[str, str]]:
        """The name is all: the other process looks the actor up itself."""
        return type(self), (self.mesh, self.namespace)

    def ask(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the supervisor and wait for the answer. All of them may be sent twice.

        Raises:
            MeshError: What the method raised.
            SupervisorLost: There is none, or none came back in time; `StartsAgain` when one did, and cannot start.
            StartFailed: It could not even be made.
        """
        deadline = time.monotonic() + RETURN_S_MAX
        while True:
            try:
                return ray.get(getattr(self.actor(), method).remote(*args, **kwargs))
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
            time.sleep(_PAUSE_S)

    def know(self, actor: Any) -> None:
        """This is its supervisor: it need not be looked up, and a first call hears why it could not be made."""
        self._actor = actor

    def actor(self) -> Any:
        """Ray's handle.

        Raises:
            SupervisorLost: There is no such mesh in this cluster.
            RuntimeDoorError: This process is connected to no cluster.
        """
        if self._actor is None:
            require_cluster()
            try:
                self._actor = ray.get_actor(supervisor_name(self.mesh), namespace=self.namespace)
            except ValueError:
                raise no_such_mesh(self.mesh) from None
        return self._actor

    def end(self, actor: Any) -> None:
        """Kill this supervisor, and wait until its name is free or another one has it: whoever starts the mesh next must not find one
        that answers nobody any more.

        Raises:
            SupervisorLost: It is not, in time.
        """
        ray.kill(actor, no_restart=True)
        deadline = time.monotonic() + END_S_MAX
        while not self.is_gone(actor):
            if time.monotonic() > deadline:
                raise SupervisorLost(f"the supervisor of mesh {self.mesh} was ended and is still there; try again")
            time.sleep(_PAUSE_S)

    def is_gone(self, ended: Any = None) -> bool:
        """Has nobody its name, or another one than the actor that was ended?"""
        self._actor = None
        try:
            found = self.actor()
        except SupervisorLost:
            return True
        return ended is not None and found != ended


def require_cluster() -> None:
    """Raises `RuntimeDoorError` when this process is connected to no Ray cluster."""
    if not ray.is_initialized():
        raise RuntimeDoorError("this process is connected to no Ray cluster; call ray.init(address=...) first")
