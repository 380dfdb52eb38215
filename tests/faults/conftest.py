"""Beds for the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.bed import LAB, Bed
from faults.nursery import Nursery
from faults.parts import STEADY_TTL_MS, TERMS
from faults.ray_mesh import RayMesh
from faults.server import Server
from faults.table import Row


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Everything that starts processes."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def make_bed(tmp_path: Path, nursery: Nursery, row: Row) -> Iterator[Callable[..., Bed]]:
    """Make the row's bed: tenants with their slots, by default `lab` with two. It is judged when the row is over."""
    beds: list[Bed] = []

    def make(server: Server | None = None, limits: dict[str, int] | None = None, ttl_ms: int = STEADY_TTL_MS, **quota: int) -> Bed:
        beds.append(Bed(tmp_path, nursery, quota=quota or {LAB: 2}, limits=limits, server=server, ttl_ms=ttl_ms))
        return beds[-1]

    yield make
    for bed in beds:
        bed.close()


@pytest.fixture
def bed(make_bed: Callable[..., Bed]) -> Bed:
    """Two slots of one tenant, and a root; no session ends by itself."""
    return make_bed()


@pytest.fixture
def brief_bed(make_bed: Callable[..., Bed]) -> Bed:
    """The same, for rows that wait for the end of a session."""
    return make_bed(ttl_ms=TERMS.ttl_ms)


@pytest.fixture
def servers_of_row(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Make the row's Redis, as `Server`; it ends after the beds that stand on it."""
    made: list[Server] = []

    def make(**wanted: Any) -> Server:
        made.append(Server(tmp_path / f"redis-{len(made)}", **wanted))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(servers_of_row: Callable[..., Server]) -> Server:
    """A Redis of its own."""
    return servers_of_row()


@pytest.fixture
def ray_mesh(server: Server, tmp_path: Path) -> Iterator[RayMesh]:
    """Joined, its tenant has two slots."""
    mesh = RayMesh(server, tmp_path)
    yield mesh
    mesh.close()
