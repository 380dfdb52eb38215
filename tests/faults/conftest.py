"""Fixtures of the fault rows: beds, servers and a mesh on Ray."""

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
    """Process that starts all other processes."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def make_bed(tmp_path: Path, nursery: Nursery, row: Row) -> Iterator[Callable[..., Bed]]:
    """Return a factory of beds: tenants with slots, by default `lab` with two. Each bed is judged at the end of its row."""
    beds: list[Bed] = []

    def make(server: Server | None = None, limits: dict[str, int] | None = None, ttl_ms: int = STEADY_TTL_MS, **quota: int) -> Bed:
        beds.append(Bed(tmp_path, nursery, quota=quota or {LAB: 2}, limits=limits, server=server, ttl_ms=ttl_ms))
        return beds[-1]

    yield make
    for bed in beds:
        bed.close()


@pytest.fixture
def bed(make_bed: Callable[..., Bed]) -> Bed:
    """Two slots of one tenant, and a root; no session expires."""
    return make_bed()


@pytest.fixture
def brief_bed(make_bed: Callable[..., Bed]) -> Bed:
    """The same for rows that wait for a session's expiry."""
    return make_bed(ttl_ms=TERMS.ttl_ms)


@pytest.fixture
def servers_of_row(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return a factory of Redis servers that end after the beds on them."""
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
    """A joined mesh whose tenant has two slots."""
    mesh = RayMesh(server, tmp_path)
    yield mesh
    mesh.close()
