"""Connection of a process to its Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from mesh.errors import RuntimeAdapterError
from serve_apps.processes.ray_access import refused_words

NAMESPACE = "schedulemesh"


def enter(address: str, variables: Mapping[str, str] | None = None) -> None:
    """Connect to the cluster as a driver.

    Args:
        address: `HOST:PORT`.
        variables: Environment of every worker of this driver, each of which then starts a second later. None: the node's environment.

    Raises:
        RuntimeAdapterError: The cluster does not answer, or needs a token; the message says what helps.
    """
    try:
        environment = {"env_vars": dict(variables)} if variables else None
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False, runtime_env=environment)
    except (ConnectionError, RuntimeError, RayError) as refused:
        raise RuntimeAdapterError(refused_words(address, os.environ, Path.home(), refused)) from None


def cluster_id() -> str:
    """Return Ray's id of the connected cluster; each start of a head has a new one."""
    worker: Any = ray._private.worker.global_worker  # noqa: SLF001  Ray has no public name for it
    return str(worker.gcs_client.cluster_id.hex())
