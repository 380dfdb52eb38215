"""The root from the file of `serve-config`, deployed by Ray's own `serve` on a running cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import ray
from deployed_federation import written
from patience import eventually
from ray import serve
from receivers import Receiver, receiving
from typer.testing import CliRunner

import dag
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.store.redis.fixtures import running_redis
from mesh.ray.cluster.cluster_token import token_environment, use_token
from mesh.ray.cluster.ports import promise_ports
from serve_apps.cli.app import app
from serve_apps.deployment.serve_file import COORDINATOR, GATEWAY
from serve_apps.processes.ray_entry import enter

pytestmark = pytest.mark.ray

#: Limit for the start of replicas on a busy machine.
LIMIT_S = 180.0


@dataclass(frozen=True)
class Deployed:
    """Root that answers."""

    address: str
    key: str
    state: Path


def schedulemesh(*words: str, **variables: str) -> str:
    ended = CliRunner().invoke(app, [*words], env=variables, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def root(ray_cluster, receiver, tmp_path_factory) -> Iterator[Deployed]:
    if ray.is_initialized():
        ray.shutdown()
    use_token(ray_cluster.token_file)
    folder, port = tmp_path_factory.mktemp("served"), promise_ports(1)[0]
    state, file = str(folder / "state"), str(folder / "serve.yaml")
    webhooks = f'webhooks: {{allow_http: [127.0.0.1], endpoints: {{ops: {{url: "{receiver.url}"}}}}}}\nflavors:'
    changes = (("flavors:", webhooks), ("127.0.0.1:6379", ray_cluster.address), ("8123", str(port)), ("gateways: 2", "gateways: 1"))
    config = str(written(folder, storage=(folder / "values").as_uri(), changes=changes))
    with running_redis() as redis:
        redis.config_set("appendonly", "yes")
        schedulemesh(
            "prepare", config, "--state-dir", state, SCHEDULEMESH_REDIS_URL=f"unix://{redis.connection_pool.connection_kwargs['path']}"
        )
        schedulemesh("serve-config", config, "--secrets-dir", f"{state}/secrets", "--out", file)
        key = json.loads(schedulemesh("keys", "create", "acme", "--role", "admin", "--json", "--state-dir", state))["key"]
        run = [str(Path(sys.executable).with_name("serve")), "run", file, "--address", ray_cluster.address, "--non-blocking"]
        deployed = subprocess.run(
            run,
            env={**os.environ, **token_environment(ray_cluster.token_file)},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert deployed.returncode == 0, deployed.stderr
        enter(ray_cluster.address)
        try:
            yield Deployed(address=f"http://127.0.0.1:{port}", key=key, state=Path(state))
        finally:
            serve.shutdown()
            ray.shutdown()


def test_root_answers_its_health_route_and_its_keys(root):
    eventually(lambda: answer(root, "/healthz").status_code == 200, LIMIT_S)
    assert answer(root, "/v1/whoami").json()["tenant"] == "acme"
    assert answer(root, "/v1/whoami", key="smk_none").status_code == 401


def test_coordinator_advances_a_run_and_calls_a_receiver(root, receiver):
    eventually(lambda: answer(root, "/healthz").status_code == 200, LIMIT_S)
    with Client(Access(address=root.address, api_key=root.key, tenant="acme")) as client:
        assert client.submit(dag.sleep(0.01)).result(timeout=LIMIT_S) is None
    (body,) = eventually(receiver.bodies, LIMIT_S)
    assert (body["type"], body["data"]["tenant"]) == ("run.succeeded", "acme")
    (row,) = json.loads(schedulemesh("webhooks", "--json", "--state-dir", str(root.state)))["webhooks"]
    assert (row["name"], row["tenant"], row["dead"]) == ("ops", "*", 0)


def test_file_that_serve_got_holds_no_secret(root):
    text = (root.state.parent / "serve.yaml").read_text()
    assert GATEWAY in text
    for file in (root.state / "secrets").iterdir():
        assert file.read_text().strip('{}"1: ') not in text


def test_proxy_says_when_to_come_again_without_a_gateway(root):
    """Last: it takes the gateway away."""
    eventually(lambda: answer(root, "/healthz").status_code == 200, LIMIT_S)
    serve.delete(GATEWAY)
    gone = eventually(lambda: response if (response := answer(root, "/v1/runs/night")).status_code == 503 else None)
    assert gone.headers["Retry-After"] == "1"
    assert set(serve.status().applications) == {COORDINATOR}


def answer(root: Deployed, path: str, key: str | None = None) -> httpx.Response:
    return httpx.get(f"{root.address}{path}", headers={"Authorization": f"Bearer {key or root.key}"}, timeout=60)
