"""Facts of the Redis server and of the Ray clusters that a root uses, gathered for the checks of `doctor`. Nothing is written there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from platform import python_version
from typing import cast
from urllib.parse import urlsplit

import redis

from federation.config.loading import FederationConfig
from federation.leases import LeaseTerms
from federation.store.redis.client import connect
from federation.store.redis.keys import Keys
from federation.store.redis.safety import check_schema, problems_of, read_settings
from federation.store.redis.scripts import redis_responses
from mesh.errors import MeshError, RuntimeAdapterError
from serve_apps.processes.ray_access import check_answers, check_token_file, cluster_versions, entry_environment

SERVER_MS_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFacts:
    """Answer of the server that the root uses."""

    place: str  #: Its hosts, without user and password.
    error: str = ""  #: Why it cannot be used; empty: it answers.
    problems: tuple[str, ...] = ()  #: Settings with which it could lose leases, each with the remedy.
    memory_percent: int | None = None  #: Part of `maxmemory` in use; None: it has no limit.
    clock_ahead_s: float | None = None  #: How far its clock is ahead of this machine's; None: unknown.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Answer of a Ray cluster that the federation file attaches."""

    name: str
    address: str
    error: str = ""  #: Why it cannot be used; empty: something listens there.
    ray: str | None = None  #: Its version of Ray; None: unknown.
    python: str | None = None  #: Its version of Python; None: unknown.

    @property
    def is_another(self) -> bool:
        """Whether this machine's drivers cannot enter: Ray wants the same version, and the same minor version of Python."""
        is_other_ray = self.ray is not None and self.ray != version("ray")
        return is_other_ray or (self.python is not None and self.python.split(".")[:2] != python_version().split(".")[:2])


def redis_facts(url: str, terms: LeaseTerms) -> RedisFacts:
    """Ask the server."""
    place = urlsplit(url).netloc.rpartition("@")[2] or urlsplit(url).path
    keys = Keys()
    try:
        with connect(url, timeout_ms=SERVER_MS_MAX) as client:
            asked_s = time.time()
            check_schema(client, keys)
            ahead_s = _clock_of(client) - (asked_s + time.time()) / 2
            percent = _memory_percent(client)
            try:
                problems = tuple(problems_of(read_settings(client, keys), terms))
            except RuntimeAdapterError as refused:  # The root's user may read the settings, another one perhaps not.
                problems = (f"its settings cannot be read ({refused})",)
    except MeshError as wrong:
        return RedisFacts(place=place, error=str(wrong))
    return RedisFacts(place=place, problems=problems, memory_percent=percent, clock_ahead_s=ahead_s)


def _clock_of(client: redis.Redis) -> float:
    with redis_responses("read the server's clock"):
        seconds, micros = client.time()
    return seconds + micros / 1e6


def _memory_percent(client: redis.Redis) -> int | None:
    with redis_responses("read the server's memory"):
        found = cast("dict[str, int]", client.info("memory"))
    return 100 * found["used_memory"] // found["maxmemory"] if found.get("maxmemory") else None


def cluster_facts(config: FederationConfig, environment: Mapping[str, str]) -> tuple[ClusterFacts, ...]:
    """Ask the clusters that the file attaches by `address`."""
    found: list[ClusterFacts] = []
    for name, section in config.clusters.items():
        if section.address is None:
            continue
        here = ClusterFacts(name=name, address=section.address)
        try:
            check_answers(section.address, f"clusters.{name}.address")
            if section.token_file is not None:
                check_token_file(section.token_file, f"clusters.{name}.token_file")
        except RuntimeAdapterError as refused:
            found.append(ClusterFacts(name=name, address=section.address, error=str(refused)))
            continue
        versions = cluster_versions(section.address, entry_environment(environment, section.address, section.token_file))
        found.append(here if versions is None else ClusterFacts(name=name, address=section.address, ray=versions[0], python=versions[1]))
    return tuple(found)
