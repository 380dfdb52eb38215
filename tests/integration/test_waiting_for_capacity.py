"""A task larger than any node of the meshes, on real Ray: refused at submission, or blocked until a mesh that fits joins."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_federation import Joined, command, environment_of
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from dag.run.states import RunState
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.store.redis.key_ring import RedisKeyRing
from mesh.core.ids import MeshId
from serve_apps.requests.auth import issue_for_mesh
from serve_apps.standalone.stack import Stack

pytestmark = pytest.mark.ray

LIMIT_S = 120.0
SPEC = {
    "spec": "dag/1",
    "id": "big",
    "tenant": "acme",
    "nodes": {"train": {"call": "examples.hello.hello:greet", "args": ["world"], "options": {"num_cpus": 3}}},
    "outputs": {"said": {"$ref": "train"}},
}


def environment(stack: Stack) -> dict[str, str]:
    return {**environment_of(stack.clusters["local"]), "SCHEDULEMESH_API_KEY": stack.api_key}


def assert_state(client: Client, state: str, reason: str) -> None:
    line = client.ask("/v1/runs/big/summary")
    assert (line["state"], line["reason"]) == (state, reason)


def eventually(client: Client, state: str, reason: str) -> None:
    stop = stop_after_delay(LIMIT_S)
    for attempt in Retrying(retry=retry_if_exception_type(AssertionError), stop=stop, wait=wait_fixed(0.1), reraise=True):
        with attempt:
            assert_state(client, state, reason)


def test_task_larger_than_any_node_is_refused_or_waits(http_stack: Stack, tmp_path: Path) -> None:
    stack = http_stack
    file = tmp_path / "big.json"
    file.write_text(json.dumps(SPEC))
    sentences = [
        "/nodes/train: east: needs {cpu: 3} on one node, more than any of its nodes has when empty (2 of {cpu: 2})",
        "/nodes/train: west: needs {cpu: 3}, more than any pool holds when empty (general {cpu: 2})",
        "--wait-for-capacity",
    ]
    for option in ("--no-wait", "--dry-run"):
        submitted = command("submit", str(file), option, "--address", stack.address)
        refused = subprocess.run(submitted, capture_output=True, text=True, env=environment(stack), timeout=LIMIT_S, check=False)
        assert refused.returncode == 1, refused
        assert all(sentence in refused.stderr for sentence in sentences), refused.stderr
    submitted = command("submit", str(file), "--no-wait", "--wait-for-capacity", "--address", stack.address)
    subprocess.run(submitted, env=environment(stack), timeout=LIMIT_S, check=True)
    with Client(Access(address=stack.address, api_key=stack.api_key)) as client:
        eventually(client, "BLOCKED", "NO_MESH_FITS")
        with joined(stack, tmp_path):
            assert client.run("big").wait(LIMIT_S) is RunState.SUCCEEDED


@contextlib.contextmanager
def joined(stack: Stack, folder: Path) -> Iterator[None]:
    """The fourth node joins as a mesh of its own within the block, and leaves in good order."""
    stores, key_file = stack.stores(), folder / "key"
    key_file.touch(mode=0o600)
    key_file.write_text(issue_for_mesh(RedisKeyRing(stores.client, stores.keys), MeshId("far"), 0))
    options = ["--root", f"http://127.0.0.1:1,{stack.address}", "--key-file", str(key_file), "--mesh", "far", "--node-label", "zone=far"]
    options += ["--ray", stack.clusters["local"].address, "--pool", "general=standard:cpu=64"]
    far = Joined(stack.clusters["local"], options, folder / "far.log")
    try:
        yield
    finally:
        code = far.stop()
    log = far.log.read_text()
    assert code == 0, log
    assert "warning: mesh far: its pools declare 64 cpu, its nodes have 3" in log
    assert "far" not in [view.record.mesh for view in stores.ledger.snapshot().meshes if view.alive]
