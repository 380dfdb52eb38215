"""The way of a process of the stack into its Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from mesh.errors import RuntimeDoorError
from serve_apps.processes.ray_access import refused_words

NAMESPACE = "schedulemesh"


def enter(address: str, variables: Mapping[str, str] | None = None) -> None:
    """Become a driver of the cluster.

    Args:
        address: `HOST:PORT`.
        variables: For the environment of every worker of this driver; each then takes a second longer to start. None: as its node has it.

    Raises:
        RuntimeDoorError: It does not answer, or lets nobody in who has no token; the message says what helps.
    """
    try:
        environment = {"env_vars": dict(variables)} if variables else None
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False, runtime_env=environment)
    except (ConnectionError, RuntimeError, RayError) as refused:
        raise RuntimeDoorError(refused_words(address, os.environ, Path.home(), refused)) from None


def cluster_id() -> str:
    """Ray's own id of the cluster that was entered, different for each head that is started."""
    worker: Any = ray._private.worker.global_worker  # noqa: SLF001  Ray has no public name for it
    return str(worker.gcs_client.cluster_id.hex())
