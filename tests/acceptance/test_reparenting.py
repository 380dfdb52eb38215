"""A tenant gets another parent by `schedulemesh apply` while its work runs on a real cluster."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from federation_bed import CONFIG, LIMIT_S, TENANT, eventually, submit
from typer.testing import CliRunner

import dag
from dag.store.remote import Client
from serve_apps.cli.app import app
from serve_apps.processes.stores import Stores

pytestmark = pytest.mark.ray

OLD, NEW = "acme/research", "acme/narrow"
MOVED = CONFIG.replace("vision: {}", f"vision: {{parent: {NEW}}}")


def wait_for_gate(folder: str) -> int:
    """Mark each attempt; return when the gate is open."""
    with Path(folder, "attempts").open("a") as file:
        file.write("1")
    while not Path(folder, "gate").exists():
        time.sleep(0.01)
    return len(Path(folder, "attempts").read_text())


def cpus_of(stores: Stores, tenant: str) -> int:
    usage = stores.ledger.snapshot().usage
    return sum(units for (path, _, resource), units in usage.items() if (path, resource) == (tenant, "cpu")) // 10_000


def _assert_cpus(stores: Stores, tenant: str, cpus: int) -> None:
    assert cpus_of(stores, tenant) == cpus


def applied(config: str, file: Path, folder: Path) -> str:
    file.write_text(config)
    done = CliRunner().invoke(app, ["apply", str(file), "--state-dir", str(folder)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_tenant_moves_to_another_parent_with_its_work(client: Client, stores: Stores, folder: Path, tmp_path: Path) -> None:
    run = submit(client, dag.task(wait_for_gate, num_cpus=1).bind(str(tmp_path)))
    eventually(lambda: _assert_cpus(stores, OLD, 1))
    try:
        assert f"moved tenants, with the quota they hold: {TENANT} (now below {NEW})" in applied(MOVED, tmp_path / "moved.yaml", folder)
        assert (cpus_of(stores, OLD), cpus_of(stores, NEW), cpus_of(stores, TENANT), cpus_of(stores, "acme")) == (0, 1, 1, 1)
        assert stores.ledger.audit() == ()
        (tmp_path / "gate").touch()
        assert run.result(LIMIT_S) == 1  # It began once, and continued.
    finally:
        applied(CONFIG, tmp_path / "federation.yaml", folder)
