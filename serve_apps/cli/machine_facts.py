"""Facts of the machine, the state folder and the root, gathered for the checks of `doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from dag.errors import ApiError
from dag.store.client_access import ADDRESS_VARIABLE, IN_TERMINAL, Access, find_access
from federation.config.loading import FederationConfig
from federation.config.sections.root import FederationSection
from federation.leases import LeaseTerms
from federation.store.redis.embedded import find_server
from mesh.core.clock import ms_of
from mesh.errors import MeshError
from mesh.ray.cluster.cluster_token import PATH_VARIABLE
from mesh.ray.cluster.ports import is_free
from serve_apps.browser.page_files import BUILT
from serve_apps.cli.server_facts import ClusterFacts, RedisFacts, cluster_facts, redis_facts
from serve_apps.configuration.root_arguments import REDIS_VARIABLE
from serve_apps.processes.ray_access import token_file
from serve_apps.processes.settings import RootSettings
from serve_apps.schemas.meshes import MeshesView
from serve_apps.standalone.stack_folder import StackFolder

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where Ray puts its object store
ROOT_PORT = 8000
#: A busy machine needs seconds for the first call of a new gateway.
ROOT_S_MAX = 15.0
#: Files of the state folder with secrets.
_SECRETS = ("client.json", "receipts.json", "settings/*.json", "tokens/*", "secrets/*", "redis/redis.conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFacts:
    """Answers of the root to `GET /v1/whoami` and `GET /v1/meshes`."""

    address: str
    status: int | None  #: HTTP status; None: no answer.
    detail: str = ""  #: The root's words for a refusal.
    key_ends_in_s: float | None = None  #: Time until the key expires; None: never, or unknown.
    lost_meshes: tuple[str, ...] = ()  #: Meshes that do not report, or cannot reach their Ray cluster, in words.
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
    temporary_percent: int  #: Used part of the file system of Ray's sessions and spilled values.
    descriptors: int  #: Soft limit of open files.
    state: str
    is_state_writable: bool
    is_stack_dead: bool  #: Whether the state folder names a process that no longer runs.
    is_stack_running: bool
    port: int  #: Port of the root.
    is_port_free: bool
    open_secrets: tuple[str, ...] = ()  #: Files with secrets that other users of the machine may read.
    redis_server: RedisFacts | None = None  #: None: the root starts its own server, or none is known.
    clusters: tuple[ClusterFacts, ...] = ()  #: Clusters that the federation file attaches.
    root: RootFacts | None  #: None: no root is named.
    is_page_built: bool


def facts_of(state: Path, *, environment: dict[str, str], config: FederationConfig | None = None, file: Path | None = None) -> MachineFacts:
    """Gather the facts. Asks the root that the environment or the state folder names, its Redis, and attached Ray clusters.

    Args:
        config: The federation file; None: there is none.
        file: Its place.
    """
    folder = StackFolder(state)
    place = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    is_running, port = folder.owner() is not None, config.root.port if config is not None else ROOT_PORT
    return MachineFacts(
        python=platform.python_version(),
        ray=_ray(),
        redis=_redis(),
        memory_bytes=psutil.virtual_memory().available,
        shared_bytes=shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None,
        disk_bytes=shutil.disk_usage(place).free,
        temporary_percent=round(psutil.disk_usage(tempfile.gettempdir()).percent),
        descriptors=os.sysconf("SC_OPEN_MAX"),
        state=str(state),
        is_state_writable=place.is_dir() and os.access(place, os.W_OK | os.X_OK),
        is_stack_dead=bool(folder.read("stack.json")) and not is_running,
        is_stack_running=is_running,
        port=port,
        is_port_free=is_free(port, "127.0.0.1"),
        open_secrets=_open_secrets(folder, environment, config, file),
        redis_server=_redis_server(folder, environment, config),
        clusters=cluster_facts(config, environment) if config is not None else (),
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
    headers = {"Authorization": f"Bearer {access.api_key}"}
    try:
        answer = httpx.get(f"{access.address}/v1/whoami", headers=headers, timeout=ROOT_S_MAX)
    except (httpx.HTTPError, OSError, ValueError):
        return RootFacts(address=access.address, status=None)
    try:
        ahead = parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()
    except (KeyError, TypeError, ValueError):
        ahead = None
    facts = RootFacts(address=access.address, status=answer.status_code, clock_ahead_s=ahead)
    if answer.status_code != HTTPStatus.OK:
        return replace(facts, detail=_detail_of(answer))
    return replace(facts, key_ends_in_s=_end_of_key(answer), lost_meshes=_lost_meshes(access.address, headers))


def _detail_of(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):  # Not a root, or a proxy before it.
        return ""


def _end_of_key(answer: httpx.Response) -> float | None:
    try:
        ends = answer.json().get("expires_at")
        return None if ends is None else ms_of(ends) / 1000 - time.time()
    except (ValueError, AttributeError, TypeError):
        return None


def _lost_meshes(address: str, headers: dict[str, str]) -> tuple[str, ...]:
    try:
        answer = httpx.get(f"{address}/v1/meshes", headers=headers, timeout=ROOT_S_MAX)
        view = MeshesView.model_validate(answer.raise_for_status().json())
    except (httpx.HTTPError, OSError, ValueError):
        return ()
    silent = (f"{mesh.mesh} has not reported for {mesh.heartbeat_age_ms // 1000} s" for mesh in view.meshes if not mesh.alive)
    cut_off = (f"{mesh.mesh} cannot reach its Ray cluster" for mesh in view.meshes if mesh.alive and not mesh.cluster_answers)
    return (*silent, *cut_off, *(f"{mesh.mesh} is lost" for mesh in view.absent if mesh.state == "lost"))


def _redis_server(folder: StackFolder, environment: dict[str, str], config: FederationConfig | None) -> RedisFacts | None:
    """Ask the server of the running or prepared root, else that of the file or the environment."""
    settings = folder.path / "settings" / "root.json"
    if (folder.owner() is not None or folder.is_prepared) and settings.exists():
        root = RootSettings.read(str(settings))
        return redis_facts(root.redis_url, LeaseTerms.of(root.lease_ttl_ms, root.lease_grace_ms))
    url = (config.redis.url if config is not None else None) or environment.get(REDIS_VARIABLE)
    section = config.federation if config is not None else FederationSection(name="unknown")
    return redis_facts(url, LeaseTerms.of(section.lease_ttl_ms, section.lease_grace_ms)) if url else None


def _open_secrets(folder: StackFolder, environment: dict[str, str], config: FederationConfig | None, file: Path | None) -> tuple[str, ...]:
    """Return the files with secrets that other users may read; the state folder protects what is in it, if it is closed."""
    files = [Path(environment[name]) for name in (PATH_VARIABLE,) if environment.get(name)] + [token_file(Path.home())]
    if config is not None:
        files += [Path(section.token_file) for section in config.clusters.values() if section.token_file is not None]
        files += [Path(section.secret_file) for section in config.webhooks.endpoints.values() if section.secret_file is not None]
        if file is not None and config.redis.url is not None and urlsplit(config.redis.url).password is not None:
            files.append(file)
    if folder.path.is_dir() and _is_open(folder.path):
        files += [path for pattern in _SECRETS for path in sorted(folder.path.glob(pattern))]
    return tuple(str(path) for path in files if path.is_file() and _is_open(path))


def _is_open(path: Path) -> bool:
    return os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
