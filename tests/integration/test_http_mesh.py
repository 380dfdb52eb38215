"""Meshes without a key to the store, on real Ray: one that `up` starts over HTTP, and its cluster's token."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
import ray
from open_ports import answers, listeners
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

import dag
from dag.errors import RunFailed
from dag.store.client_access import Access
from dag.store.remote import Client
from serve_apps.standalone.stack import Stack

pytestmark = pytest.mark.ray

T = TypeVar("T")
LIMIT_S = 90.0


def eventually(check: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Return the result of `check` once it raises no AssertionError."""
    stop = stop_after_delay(limit_s)
    for attempt in Retrying(retry=retry_if_exception_type(AssertionError), stop=stop, wait=wait_fixed(0.1), reraise=True):
        with attempt:
            return check()
    raise AssertionError


@pytest.fixture(scope="module")
def stack(http_stack: Stack) -> Stack:
    return http_stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(Access(address=stack.address, api_key=stack.api_key, tenant="acme")) as client:
        yield client


def cut(text: str) -> list[str]:
    return text.split()


def count(words: list[str]) -> int:
    return len(words)


def large(size: int) -> bytes:
    return b"x" * size


def total(*numbers: int) -> int:
    return sum(numbers)


def counted(zone: str) -> dag.Node:
    """Count the size of a large value and the words of a small one, all of it in one zone."""
    labels = {"zone": zone}
    words = dag.task(count, labels=labels).bind(dag.task(cut, labels=labels).bind("so many words"))
    data = dag.task(count, labels=labels).bind(dag.task(large, labels=labels).bind(10_000))
    return dag.task(total, labels=labels).bind(words, data)


def run_in(client: Client, zone: str) -> int:
    return int(client.submit(counted(zone), by_value=(sys.modules[__name__],)).result(LIMIT_S))


def fail_first(tries: str, error: type[Exception]) -> int:
    """Return the number of calls; the first call raises."""
    with Path(tries).open("a+") as file:
        file.write("x")
        file.seek(0)
        count = len(file.read())
    if count == 1:
        raise error("again, please")
    return count


def test_a_remote_functions_retries_are_for_the_errors_it_names(client: Client, tmp_path: Path) -> None:
    here = (sys.modules[__name__],)
    remote = ray.remote(max_retries=2, retry_exceptions=[ConnectionError])(fail_first)
    reset = dag.task(remote, labels={"zone": "east"}).bind(str(tmp_path / "reset"), ConnectionResetError)
    assert client.submit(reset, by_value=here).result(LIMIT_S) == 2
    missing = dag.task(remote, labels={"zone": "east"}).bind(str(tmp_path / "missing"), KeyError)
    with pytest.raises(RunFailed, match="again, please"):
        client.submit(missing, by_value=here).result(LIMIT_S)
    assert (tmp_path / "missing").read_text() == "x"


def settings_of(stack: Stack, mesh: str) -> str:
    return (stack.folder.path / "settings" / f"mesh-{mesh}.json").read_text()


def test_a_mesh_without_a_key_to_the_store_runs_a_stage(stack: Stack, client: Client) -> None:
    settings = settings_of(stack, "east")
    assert json.loads(settings)["store"] is None
    assert stack.redis_url not in settings
    assert run_in(client, "east") == 10_003
    eventually(lambda: _all_alive_without_a_lease(stack))


def _all_alive_without_a_lease(stack: Stack) -> None:
    snapshot = stack.stores().ledger.snapshot()
    assert snapshot.leases == ()
    assert [(view.record.mesh, view.alive) for view in snapshot.meshes] == [("east", True), ("lab", True), ("west", True)]


def test_a_killed_mesh_recovers_over_http(stack: Stack, client: Client) -> None:
    stack.children["east"].kill()
    run = client.submit(counted("east"), by_value=(sys.modules[__name__],))
    eventually(lambda: _alive_again(stack))
    assert run.result(LIMIT_S) == 10_003


def _alive_again(stack: Stack) -> None:
    stack.watch()
    assert stack.children["east"].alive()


REFUSED = ({"UNAUTHENTICATED"}, {"HTTP 401"})


def test_whatever_listens_in_a_cluster_asks_for_its_token(stack: Stack) -> None:
    assert stack.root is not None
    drivers = [process.pid for process in (stack.root, *stack.children.values())]
    found = listeners([*stack.clusters["local"].pids, *drivers])
    assert any("gcs_server" in socket.program for socket in found)
    assert any("ray::ServeReplica" in socket.program for socket in found)
    said = list(zip(found, answers(found), strict=True))
    root = int(stack.address.rpartition(":")[2])
    assert [socket.host for socket in found if socket.port == root] == ["127.0.0.1"]
    assert [(socket, words) for socket, words in said if socket.port != root and set(words) not in REFUSED] == []


def test_a_process_of_the_stack_has_its_clusters_token_alone(stack: Stack) -> None:
    assert stack.root is not None
    cluster = stack.clusters["local"]
    assert stat.S_IMODE(cluster.token_file.stat().st_mode) == 0o600
    assert cluster.token_file.parent.parent == stack.folder.path
    for process in (stack.root, *stack.children.values()):
        environment = psutil.Process(process.pid).environ()
        assert (environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN_PATH"], environment["RAY_AUTH_TOKEN"]) == (
            "token",
            str(cluster.token_file),
            "",
        )


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize(
    "shown", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}], ids=["none", "wrong"]
)
def test_a_driver_without_the_token_runs_nothing(stack: Stack, tmp_path: Path, shown: dict[str, str]) -> None:
    script = f"""
import pathlib, ray
ray.init(address="{stack.clusters["local"].address}", log_to_driver=False)
ray.get(ray.remote(lambda: pathlib.Path("{tmp_path}/ran").touch()).options(num_cpus=0).remote())
"""
    environment = {**os.environ, "RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": "", **shown}
    tried = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert tried.returncode != 0
    assert "Failed to connect to Ray cluster" in tried.stderr
    assert not (tmp_path / "ran").exists()
