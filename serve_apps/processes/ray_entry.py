"""The way of a process of the stack into its Ray cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from mesh.errors import RuntimeDoorError
from serve_apps.processes.ray_access import refused_words

NAMESPACE = "schedulemesh"


def enter(address: str) -> None:
    """Become a driver of the cluster.

    Args:
        address: `HOST:PORT`.

    Raises:
        RuntimeDoorError: It does not answer, or lets nobody in who has no token; the message says what helps.
    """
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, RayError) as refused:
        raise RuntimeDoorError(refused_words(address, os.environ, Path.home(), refused)) from None


def cluster_id() -> str:
    """Ray's own id of the cluster that was entered, different for each head that is started."""
    worker: Any = ray._private.worker.global_worker  # noqa: SLF001  Ray has no public name for it
    return str(worker.gcs_client.cluster_id.hex())
