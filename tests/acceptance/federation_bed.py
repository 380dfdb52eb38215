"""Shared parts of tests on a whole federation: its configuration, submissions and waits."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from dag.client.tasks import Node
from dag.run.run_events import RunEvent
from dag.store.remote import Client, Run
from federation.errors import StoreUnavailable
from serve_apps.processes.stores import Stores
from serve_apps.standalone.stack import Stack

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
#: Limit of every real wait, before a test gives up.
LIMIT_S = 150.0
TENANT = "acme/research/vision"

#: No session expires on a busy machine; one that dies is over within `LIMIT_S`.
CONFIG = f"""
federation: {{name: tests, lease_ttl: 20s, heartbeat: 500ms, lease_grace: 3s, inline_limit: 4KiB}}
dispatch: {{resume_window: 1s}}
root: {{cluster: first, port: 18000}}
routing: {{probation: 500ms, probation_max: 2s}}
import_paths: ["{REPOSITORY}"]
clusters:
  first: {{shared: true, nodes: [{{cpu: 2}}], object_store: 120MiB}}
  second: {{shared: true, nodes: [{{cpu: 2}}], object_store: 120MiB}}
flavors:
  standard: {{}}
meshes:
  east:
    cluster: first
    labels: {{zone: east}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 2, memory: 1GiB}}}}}}
  west:
    cluster: second
    labels: {{zone: west}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 2, memory: 1GiB}}}}}}
tenants:
  acme:
    quotas: {{standard: {{cpu: {{nominal: 4}}, memory: {{nominal: 2GiB}}}}}}
    functions: ["examples.*:*"]
    pickled_code: true
    tenants:
      research: {{tenants: {{vision: {{}}, nlp: {{}}}}}}
      small: {{quotas: {{standard: {{cpu: {{nominal: 0, borrowing_limit: 0}}}}}}}}
      narrow: {{quotas: {{standard: {{cpu: {{nominal: 0, borrowing_limit: 1}}}}}}}}
  shared:
    quotas: {{standard: {{cpu: {{nominal: 0}}}}}}   # opens the flavor to all below
    pickled_code: true
    tenants:
      owner: {{quotas: {{standard: {{cpu: {{nominal: 3}}}}}}}}
      guest: {{}}
      orderly: {{scheduling: {{strict_order: true}}}}
quota: {{min_run: 200ms}}
"""


def eventually(check: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Return the value of `check` once it raises no AssertionError and the store answers."""
    for attempt in Retrying(
        retry=retry_if_exception_type((AssertionError, StoreUnavailable)),
        stop=stop_after_delay(limit_s),
        wait=wait_fixed(0.1),
        reraise=True,
    ):
        with attempt:
            return check()
    raise AssertionError


def pids_in(folder: Path) -> list[str]:
    """Return the ids of processes that have left a file whose name ends with their id."""
    return [path.name.rpartition(" ")[2] for path in folder.iterdir()]


def all_gone(folder: Path) -> None:
    """Assert that none of these processes is left."""
    for pid in pids_in(folder):
        assert not Path("/proc", pid).exists() or Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def patient_stores(stack: Stack) -> Stores:
    """Return the stack's stores with long timeouts, so that a busy machine fails no test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serve_apps.processes.stores.ANSWER_MS_MAX", int(LIMIT_S * 1000))
        return stack.stores()


def wait_for(run: Run, wanted: Callable[[RunEvent], bool]) -> RunEvent:
    """Return the first matching event of the run."""
    for event in run.events():
        if wanted(event):
            return event
    raise AssertionError(f"run {run.id} ended without it")


def submit(client: Client, outputs: Any, *, tenant: str | None = None, on_error: str = "fail_fast", wait_for_capacity: bool = False) -> Run:
    """Submit a graph, as the tenant of the client unless another is given; functions of the calling test module are sent by value."""
    module = sys.modules[_module_of(outputs)]
    return client.submit(outputs, tenant=tenant, on_error=on_error, by_value=(module,), wait_for_capacity=wait_for_capacity)


def _module_of(outputs: Any) -> str:
    node = outputs if isinstance(outputs, Node) else next(iter(outputs.values()))
    return str(node.function.__module__)


def processes_of(stack: Stack, cluster: str, title: str) -> list[psutil.Process]:
    """Return the processes of this stack's cluster with these words in their titles."""
    sessions = {os.getsid(pid) for pid in stack.clusters[cluster].pids}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if title in " ".join(process.info["cmdline"] or []) and os.getsid(process.pid) in sessions:
                found.append(process)
    assert found, f"no process of cluster {cluster} is {title}"
    return found


def coordinator_of(stack: Stack) -> psutil.Process:
    """Return the coordinator replica on this stack's cluster."""
    return processes_of(stack, "first", "ServeReplica:coordinator-")[0]
