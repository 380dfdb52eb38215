"""A process of a Ray node that tests do not use: it starts, and ends with its parent."""

from __future__ import annotations

import os
import select
from typing import NoReturn


def wait(command: list[str]) -> NoReturn:
    """End when the parent has ended.

    Args:
        command: Command line. `ray start` waits for the address that a dashboard publishes, so a dashboard publishes one.
    """
    try:
        parent = os.pidfd_open(os.getppid())
    except ProcessLookupError:
        os._exit(0)
    options = dict(part.removeprefix("--").split("=", 1) for part in command if part.startswith("--") and "=" in part)
    if any(part.endswith("/ray/dashboard/dashboard.py") for part in command):
        _publish(f"{options['host']}:{options['port']}", options["gcs-address"], options["cluster-id-hex"])
    select.select((parent,), (), ())
    os._exit(0)


def _publish(address: str, gcs_address: str, cluster_id_hex: str) -> None:
    """Store the address where `ray start` looks for it."""
    from ray._private import ray_constants  # Takes half a second, which agents do not need.
    from ray._raylet import GcsClient

    client = GcsClient(address=gcs_address, cluster_id=cluster_id_hex)
    client.internal_kv_put(
        ray_constants.DASHBOARD_ADDRESS.encode(), address.encode(), True, ray_constants.KV_NAMESPACE_DASHBOARD, timeout=60
    )
