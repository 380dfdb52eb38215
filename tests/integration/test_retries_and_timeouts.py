"""Retries, time limits, resumption and labels, on a running federation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import eventually
from shared_clusters import REPOSITORY

import dag
from dag.errors import ApiError, RunFailed
from dag.store.client_access import Access
from dag.store.remote import Client, Run
from federation.config.loading import load_config
from mesh.core.clock import ms_of
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

pytestmark = pytest.mark.ray

LIMIT_S = 90.0
HERE = (sys.modules[__name__],)
EAST = {"zone": "east"}
SOON = {"initial_s": 0.2, "factor": 1.5, "jitter": 0}


CONFIG = f"""
federation: {{name: tests, lease_ttl: 20s, heartbeat: 500ms, lease_grace: 1s}}
root: {{cluster: local, port: 18300}}
import_paths: ["{REPOSITORY}"]
clusters:
  local:
    shared: true
    object_store: 100MiB
    nodes: [{{cpu: 4}}]
flavors: {{standard: {{}}}}
meshes:
  east: {{cluster: local, labels: {{zone: east}}, pools: {{general: {{flavor: standard, capacity: {{cpu: 2}}}}}}}}
tenants:
  acme: {{quotas: {{standard: {{cpu: {{nominal: 2}}}}}}, pickled_code: true}}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a federation of one mesh. Nobody watches its processes but Ray Serve, which starts a new coordinator for a dead one."""
    with StackFolder(tmp_path_factory.mktemp("stack") / "state") as folder:
        stack = Stack(load_config(CONFIG, source="tests"), folder, say=lambda _: None)
        stack.start()
        try:
            yield stack
        finally:
            stack.stop()


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(Access(address=stack.address, api_key=stack.api_key, tenant="acme")) as client:
        yield client


def fail_until(tries: str, good: int, error: type[Exception] = ConnectionError) -> int:
    """Return the number of calls; the calls before number `good` raise."""
    with Path(tries).open("a+") as file:
        file.write("x")
        file.seek(0)
        count = len(file.read())
    if count < good:
        raise error(f"call {count}")
    return count


def hang_at_first(folder: str) -> int:
    """Return the number of calls; the first one never ends, and neither does its child."""
    count = len(list(Path(folder).iterdir())) + 1
    (Path(folder) / str(count)).write_text(str(os.getpid()))
    if count == 1:
        subprocess.run(["sleep", "1000"], check=True)
    return count


def rest(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def node_of(client: Client, run: Run, node: str) -> dict:
    return next(each for each in client.ask(f"{run.path}/nodes")["nodes"] if each["node"] == node)


def test_a_node_waits_its_own_time_and_shows_its_attempts(client: Client, tmp_path: Path) -> None:
    task = dag.task(retries=3, retry_on=[OSError], backoff=SOON, labels=EAST)(fail_until)
    run = client.submit(task.bind(str(tmp_path / "tries"), 3), by_value=HERE)
    assert run.result(LIMIT_S) == 3
    node = node_of(client, run, "fail_until")
    assert (node["attempt"], node["retries_used"], node["losses"]) == (3, 2, 0)
    assert [(past["attempt"], past["reason"], past["type"]) for past in node["attempts"]] == [
        (1, "USER_ERROR", "builtins.ConnectionError"),
        (2, "USER_ERROR", "builtins.ConnectionError"),
    ]
    assert node["attempts"][0]["detail"] == "call 1 (again in 0.2 s)"
    assert ms_of(node["started_at"]) - ms_of(node["attempts"][1]["ended_at"]) >= 300


def test_an_error_that_is_never_retried_fails_at_once(client: Client, tmp_path: Path) -> None:
    task = dag.task(retries=3, retry_on=["OSError"], never_on=[ConnectionResetError], labels=EAST)(fail_until)
    run = client.submit(task.bind(str(tmp_path / "tries"), 3, ConnectionResetError), by_value=HERE)
    with pytest.raises(RunFailed, match="call 1"):
        run.result(LIMIT_S)
    assert (tmp_path / "tries").read_text() == "x"


def test_an_attempt_that_runs_too_long_is_really_stopped(client: Client, tmp_path: Path) -> None:
    task = dag.task(retries=1, start_to_close_s=2, backoff=SOON, labels=EAST)(hang_at_first)
    run = client.submit(task.bind(str(tmp_path)), by_value=HERE)
    assert run.result(LIMIT_S) == 2
    node = node_of(client, run, "hang_at_first")
    (past,) = node["attempts"]
    assert past["reason"] == "START_TO_CLOSE_TIMEOUT"
    assert past["detail"].startswith("ran for more than 2 s (start_to_close_s), and was stopped")
    first = int((tmp_path / "1").read_text())
    eventually(lambda: not psutil.pid_exists(first))
    eventually(lambda: not [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "1000"]])


def test_a_node_that_no_mesh_takes_in_time_fails_by_name(client: Client) -> None:
    nowhere = dag.task(labels={"zone": "nowhere"}, schedule_to_start_s=1)(rest).bind(0)
    run = client.submit(nowhere, by_value=HERE, wait_for_capacity=True)
    with pytest.raises(RunFailed, match="to start, 1 s at most"):
        run.result(LIMIT_S)
    assert node_of(client, run, "rest")["reason"] == "SCHEDULE_TO_START_TIMEOUT"


def test_a_node_has_a_limit_for_all_its_attempts_together(client: Client) -> None:
    run = client.submit(dag.task(schedule_to_close_s=2, labels=EAST)(rest).bind(600), by_value=HERE, on_error="continue")
    with pytest.raises(RunFailed, match="within 2 s and 1 attempt"):
        run.result(LIMIT_S)
    assert node_of(client, run, "rest")["reason"] == "SCHEDULE_TO_CLOSE_TIMEOUT"


def test_a_run_is_stopped_at_its_deadline(client: Client) -> None:
    run = client.submit(dag.task(labels=EAST)(rest).bind(600), by_value=HERE, deadline_s=2)
    with pytest.raises(RunFailed, match="did not end within 2 s"):
        run.result(LIMIT_S)
    line = client.ask(f"{run.path}/summary")
    assert (line["state"], line["reason"]) == ("FAILED", "RUN_DEADLINE_EXCEEDED")
    assert node_of(client, run, "rest")["state"] == "SKIPPED"


def coordinators(stack: Stack) -> list[psutil.Process]:
    """Return the processes of the stack's coordinator; other stacks of this machine have some of their own."""
    cluster = stack.clusters["local"]
    processes = {child for pid in cluster.pids for child in psutil.Process(pid).children(recursive=True)}
    return [process for process in processes if "ServeReplica:coordinator" in " ".join(process.cmdline())]


def test_a_retry_comes_after_the_death_of_the_coordinator(client: Client, stack: Stack, tmp_path: Path) -> None:
    task = dag.task(retries=1, backoff={"initial_s": 3, "jitter": 0}, labels=EAST)(fail_until)
    run = client.submit(task.bind(str(tmp_path / "tries"), 2), by_value=HERE)
    waiting = eventually(lambda: node_of(client, run, "fail_until") if node_of(client, run, "fail_until")["attempts"] else None)
    assert waiting["state"] == "WAITING"
    killed = coordinators(stack)
    for process in killed:
        process.send_signal(signal.SIGKILL)
    assert killed
    assert run.result(LIMIT_S) == 2
    assert (tmp_path / "tries").read_text() == "xx"
    node = node_of(client, run, "fail_until")
    assert ms_of(node["started_at"]) >= ms_of(waiting["not_before"])


# -- resumption and labels -------------------------------------------------------------------------------------------------


def note(folder: str, name: str, *needs: object) -> str:
    """Note that the node runs; the node `b` fails the first time."""
    with (Path(folder) / name).open("a") as file:
        file.write("x")
    if name == "b" and (Path(folder) / name).stat().st_size == 1:
        raise ValueError("not yet")
    return name


def chain(folder: Path) -> dag.Node:
    task = dag.task(labels=EAST)(note)
    node = task.options(name="a").bind(str(folder), "a")
    for name in "bcd":
        node = task.options(name=name).bind(str(folder), name, node)
    return node


def runs_of_nodes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def command(stack: Stack, *arguments: str) -> str:
    words = [sys.executable, "-m", "serve_apps.cli", *arguments]
    environment = {**os.environ, "SCHEDULEMESH_ADDRESS": stack.address, "SCHEDULEMESH_API_KEY": stack.api_key}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_resumed_run_runs_what_is_not_done_and_no_more(client: Client, stack: Stack, tmp_path: Path) -> None:
    run = client.submit(chain(tmp_path), by_value=HERE, labels={"team": "ads", "kind": "resumed"})
    with pytest.raises(RunFailed, match="not yet"):
        run.result(LIMIT_S)
    assert runs_of_nodes(tmp_path) == {"a": 1, "b": 1}
    assert run.id in [letter.run for letter in stack.stores().runs.dead()]
    dag.resume(run.id, "it is there now", client=client)
    assert run.result(LIMIT_S) == "d"
    assert runs_of_nodes(tmp_path) == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert run.id not in [letter.run for letter in stack.stores().runs.dead()]
    moves = [(event.before, event.after) for event in run.events() if event.kind == "run"]
    assert moves == [("PENDING", "RUNNING"), ("RUNNING", "FAILED"), ("FAILED", "RUNNING"), ("RUNNING", "SUCCEEDED")]
    with pytest.raises(ApiError, match="has succeeded"):
        run.resume()
    listed = client.ask("/v1/runs", {"label": ["team=ads", "kind=resumed"]})["runs"]
    assert [(line["id"], line["labels"]) for line in listed] == [(run.id, {"team": "ads", "kind": "resumed"})]
    assert run.id in command(stack, "runs", "--label", "team=ads", "--json")
    with pytest.raises(ApiError, match="write NAME=VALUE"):
        client.ask("/v1/runs", {"label": "team"})


def test_a_run_is_resumed_from_the_terminal(client: Client, stack: Stack, tmp_path: Path) -> None:
    run = client.submit(chain(tmp_path), by_value=HERE)
    assert run.wait(LIMIT_S).value == "FAILED"
    assert "SUCCEEDED" in command(stack, "resume", run.id)
    assert runs_of_nodes(tmp_path) == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_a_cancelled_run_is_resumed(client: Client, tmp_path: Path) -> None:
    first = dag.task(labels=EAST)(note).bind(str(tmp_path), "a")
    run = client.submit(dag.task(labels=EAST, name="hang")(hang_unless).bind(str(tmp_path / "go"), first), by_value=HERE)
    eventually(lambda: node_of(client, run, "hang")["state"] == "RUNNING")
    run.cancel("later")
    assert run.wait(LIMIT_S).value == "CANCELLED"
    (tmp_path / "go").touch()
    run.resume()
    assert run.result(LIMIT_S) == "done"
    assert (tmp_path / "a").read_text() == "x"


def hang_unless(path: str, _: str) -> str:
    while not Path(path).exists():
        time.sleep(0.05)
    return "done"
