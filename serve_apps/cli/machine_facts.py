"""Facts of the machine, the state folder and the root, gathered for the checks of `doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx
import psutil

from dag.errors import ApiError
from dag.store.client_access import ADDRESS_VARIABLE, IN_TERMINAL, Access, find_access
from federation.store.redis.embedded import find_server
from mesh.errors import MeshError
from mesh.ray.cluster.ports import is_free
from serve_apps.browser.page_files import BUILT
from serve_apps.standalone.stack_folder import StackFolder

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where Ray puts its object store
ROOT_PORT = 8000
ROOT_S_MAX = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFacts:
    """Answer of the root to `GET /v1/whoami`."""

    address: str
    status: int | None  #: HTTP status; None: no answer.
    clock_ahead_s: float | None = None  #: How far the root's clock is ahead of this machine's; None: unknown.


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Everything that the checks judge."""

    python: str
    ray: str | None  #: None: not installed.
    redis: str | None  #: Program of the Redis server; None: none found.
    memory_bytes: int  #: Available memory.
    shared_bytes: int | None  #: Free bytes of /dev/shm; None: this system has none.
    disk_bytes: int  #: Free bytes where the state folder is.
    descriptors: int  #: Soft limit of open files.
    state: str
    is_state_writable: bool
    is_stack_dead: bool  #: Whether the state folder names a process that no longer runs.
    is_stack_running: bool
    is_port_free: bool
    root: RootFacts | None  #: None: no root is named.
    is_page_built: bool


def facts_of(state: Path, *, environment: dict[str, str]) -> MachineFacts:
    """Gather the facts. Asks the root that the environment or the state folder names."""
    folder = StackFolder(state)
    place = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    is_running = folder.owner() is not None
    return MachineFacts(
        python=platform.python_version(),
        ray=_ray(),
        redis=_redis(),
        memory_bytes=psutil.virtual_memory().available,
        shared_bytes=shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None,
        disk_bytes=shutil.disk_usage(place).free,
        descriptors=os.sysconf("SC_OPEN_MAX"),
        state=str(state),
        is_state_writable=place.is_dir() and os.access(place, os.W_OK | os.X_OK),
        is_stack_dead=bool(folder.read("stack.json")) and not is_running,
        is_stack_running=is_running,
        is_port_free=is_free(ROOT_PORT, "127.0.0.1"),
        root=_root(state if is_running else None, environment),
        is_page_built=(BUILT / "index.html").is_file(),
    )


def _ray() -> str | None:
    try:
        return version("ray")
    except PackageNotFoundError:
        return None


def _redis() -> str | None:
    try:
        return str(find_server())
    except MeshError:
        return None


def _root(state: Path | None, environment: dict[str, str]) -> RootFacts | None:
    try:
        access = find_access(None, None, environment=environment, folder=Path.cwd(), state_dir=state, asked=IN_TERMINAL)
    except ApiError as refused:
        unasked = {"no_key": HTTPStatus.UNAUTHORIZED, "invalid_address": None}
        return RootFacts(address=environment.get(ADDRESS_VARIABLE, ""), status=unasked[refused.code]) if refused.code in unasked else None
    return _asked(access)


def _asked(access: Access) -> RootFacts:
    try:
        answer = httpx.get(f"{access.address}/v1/whoami", headers={"Authorization": f"Bearer {access.api_key}"}, timeout=ROOT_S_MAX)
    except (httpx.HTTPError, OSError, ValueError):
        return RootFacts(address=access.address, status=None)
    try:
        ahead = parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()
    except (KeyError, TypeError, ValueError):
        ahead = None
    return RootFacts(address=access.address, status=answer.status_code, clock_ahead_s=ahead)
