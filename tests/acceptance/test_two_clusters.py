"""Runs over two real Ray clusters: placement, transfer, failure, waiting and cancellation."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest
from federation_bed import CONFIG, LIMIT_S, TENANT, eventually, submit, wait_for

import dag
from dag.errors import ApiError, RunCancelled, RunFailed
from dag.run.states import RunState
from dag.store.remote import Client
from federation.api_keys import EVERYBODY
from federation.config.loading import load_config, tenants_of
from federation.store.redis.key_ring import RedisKeyRing
from federation.tenants import TenantTree
from mesh.core.reasons import Reason
from serve_apps.processes.stores import Stores
from serve_apps.requests.auth import issue
from serve_apps.schemas.runs import RunView
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

EAST, WEST = {"zone": "east"}, {"zone": "west"}


class Unlucky(Exception):
    """User-defined error."""


def cluster() -> str:
    import ray

    return str(ray.get_runtime_context().gcs_address)


def payload(kilobytes: int) -> bytes:
    return b"x" * (kilobytes * 1024)


def size(data: bytes) -> int:
    return len(data)


def total(*numbers: int) -> int:
    return sum(numbers)


def both(*addresses: str) -> list[str]:
    return list(addresses)


def unlucky(message: str) -> None:
    raise Unlucky(message)


def follow(value: object) -> object:
    return value


def wait_until_stopped(folder: str) -> None:
    Path(folder, "started").write_text(str(os.getpid()))
    try:
        while True:
            time.sleep(0.01)
    finally:
        Path(folder, "stopped").touch()


def spin_in_c(folder: str) -> None:
    Path(folder, "started").write_text(str(os.getpid()))
    sum(range(10**12))


def wait_for_file(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return "done"


def print_and_wait(path: str) -> None:
    print("printed before the file")  # noqa: T201
    wait_for_file(path)


def print_and_die() -> None:
    print("last words")  # noqa: T201
    os._exit(1)


def test_s42_a_run_executes_in_both_clusters(client: Client) -> None:
    here = dag.task(cluster, labels=EAST, name="here").bind()
    there = dag.task(cluster, labels=WEST, name="there").bind()
    run = submit(client, dag.task(both, labels=EAST).bind(here, there))
    first, second = run.result(LIMIT_S)
    assert first != second
    clusters = {event.node: event.cluster for event in run.events() if event.kind == "node" and event.after == "SUCCEEDED"}
    assert clusters["here"] == clusters["both"] != clusters["there"]


@pytest.mark.parametrize("kilobytes", [1, 4000], ids=["a small value crosses through the store", "a large value crosses as a file"])
def test_a_value_crosses_and_is_the_same_on_the_other_side(client: Client, kilobytes: int) -> None:
    data = dag.task(payload, labels=EAST).bind(kilobytes)
    sizes = [dag.task(size, labels=WEST).bind(data) for _ in range(3)]
    assert submit(client, dag.task(total, labels=EAST).bind(*sizes)).result(LIMIT_S) == 3 * kilobytes * 1024


def test_a_large_output_is_read_through_the_root(client: Client) -> None:
    assert submit(client, dag.task(payload).bind(3000)).result(LIMIT_S) == payload(3000)


def test_what_nodes_print_is_read_live_from_both_clusters(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    outputs = {zone: dag.task(print_and_wait, labels={"zone": zone}, name=zone).bind(str(gate)) for zone in ("east", "west")}
    run, meshes = submit(client, outputs), {}
    for line in run.logs(follow=True):
        assert line.text == "printed before the file"
        meshes[line.node] = line.mesh
        if len(meshes) == len(outputs):
            gate.touch()
    assert (run.status, len(set(meshes.values()))) == (RunState.SUCCEEDED, 2)
    assert [line.node for line in run.logs("west")] == ["west"]


def test_failure_of_a_dead_worker_has_its_last_words(client: Client) -> None:
    node = dag.task(print_and_die, name="dies", max_retries=0).bind()
    with pytest.raises(RunFailed, match="The last lines of its output:\n  last words"):
        submit(client, node).result(LIMIT_S)


def test_failing_task_fails_its_run_with_the_user_exception(client: Client) -> None:
    node = dag.task(unlucky, name="unlucky").bind("of all days")
    run = submit(client, dag.task(follow, name="after").bind(node))
    with pytest.raises(RunFailed, match="of all days") as failed:
        run.result(LIMIT_S)
    assert isinstance(failed.value.__cause__, Unlucky)
    assert "raise Unlucky(message)" in str(failed.value)
    skipped = RunView.model_validate(client.ask(run.path)).skipped
    assert [(node.node, node.roots) for node in skipped] == [("after", ["unlucky"])]


def test_with_continue_what_does_not_depend_on_the_failure_runs(client: Client) -> None:
    outputs = {"bad": dag.task(unlucky).bind("x"), "good": dag.task(size, labels=WEST).bind(b"abc")}
    run = submit(client, outputs, on_error="continue")
    assert run.wait(LIMIT_S) is RunState.FAILED
    assert run.progress().counts == {"FAILED": 1, "SUCCEEDED": 1}


def test_cancelled_task_left_its_code_or_its_worker_died(client: Client, tmp_path: Path) -> None:
    # `tests/integration/test_runner.py` tests the cleanup of code that is not killed.
    pid = cancelled_worker(client, tmp_path, wait_until_stopped)
    eventually(lambda: _assert_over(tmp_path / "stopped", pid))


def test_cancelled_task_stops_inside_its_c_call(client: Client, tmp_path: Path) -> None:
    pid = cancelled_worker(client, tmp_path, spin_in_c)
    eventually(lambda: _assert_idle(pid))


def cancelled_worker(client: Client, folder: Path, work: object) -> int:
    """Return the worker process of the work at the time of its run's cancellation."""
    run = submit(client, dag.bind(work, str(folder)))
    pid = int(eventually(lambda: _text(folder / "started")))
    run.cancel("enough")
    with pytest.raises(RunCancelled, match="enough"):
        run.result(LIMIT_S)
    return pid


def _text(path: Path) -> str:
    assert path.exists()
    assert path.read_text()
    return path.read_text()


def _assert_over(stopped: Path, pid: int) -> None:
    assert stopped.exists() or _state_of(pid) in ("", "Z")


def _assert_idle(pid: int) -> None:
    assert _state_of(pid) != "R"


def _state_of(pid: int) -> str:
    """Return the kernel's state letter of the process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_run_waits_on_too_small_a_quota_until_it_grows(stack: Stack, stores: Stores, client: Client) -> None:
    run = submit(client, dag.bind(size, b"abc"), tenant="acme/small", wait_for_capacity=True)
    event = wait_for(run, lambda event: event.after == "BLOCKED")
    assert event.reason is Reason.QUOTA_TOO_SMALL
    assert "acme/small" in event.detail
    view = RunView.model_validate(client.ask(run.path))
    assert [(blocked.reason, blocked.nodes) for blocked in view.blocked] == [("QUOTA_TOO_SMALL", ["size"])]
    tenants = [line for line in client.ask("/v1/runs", {"tenant": "acme/small"})["runs"] if line["id"] == run.id]
    assert (tenants[0]["state"], tenants[0]["counts"]) == ("BLOCKED", {"BLOCKED": 1})
    assert tenants[0]["reason"] == "QUOTA_TOO_SMALL"
    before = stores.ledger.snapshot().tree
    more = load_config(CONFIG.replace("nominal: 0, borrowing_limit: 0", "nominal: 1, borrowing_limit: 0"), source="more")
    stores.ledger.configure(TenantTree(tenants_of(more)))
    try:
        assert run.result(LIMIT_S) == 3
    finally:
        stores.ledger.configure(before)


def test_stage_waits_until_quota_in_use_is_returned(client: Client, tmp_path: Path) -> None:
    first = submit(client, dag.bind(wait_for_file, str(tmp_path / "go")), tenant="acme/narrow")
    wait_for(first, lambda event: event.kind == "stage" and event.after == "RUNNING")
    second = submit(client, dag.bind(size, b"ab"), tenant="acme/narrow")
    event = wait_for(second, lambda event: event.reason is Reason.QUOTA_EXHAUSTED)
    assert "acme/narrow" in event.detail
    queue = client.ask("/v1/queues/acme/narrow")
    assert [(waiting["run"], waiting["reason"]) for waiting in queue["waiting"]] == [(second.id, "QUOTA_EXHAUSTED")]
    (tmp_path / "go").touch()
    assert first.result(LIMIT_S) == "done"
    assert second.result(LIMIT_S) == 2


def test_task_of_three_cpus_is_refused_by_two_meshes_of_two(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        submit(client, dag.task(size, num_cpus=3).bind(b"a"))
    assert refused.value.code == "no_mesh_fits"
    words = "needs {cpu: 3}, more than any pool holds when empty (general {cpu: 2, memory: 1GiB})"
    assert [problem for _, problem in refused.value.problems[:2]] == [f"east: {words}", f"west: {words}"]


def test_labels_that_no_mesh_has_block_with_every_mesh_named(client: Client) -> None:
    on_the_moon = dag.task(size, labels={"zone": "moon"}).bind(b"a")
    with pytest.raises(ApiError, match=r"(?s)east: .*west: ") as refused:
        submit(client, on_the_moon)
    assert refused.value.code == "no_mesh_fits"
    run = submit(client, on_the_moon, wait_for_capacity=True)
    event = wait_for(run, lambda event: event.after == "BLOCKED")
    assert event.reason is Reason.LABEL_MISMATCH
    assert "east" in event.detail
    assert "west" in event.detail
    run.cancel()
    assert run.wait(LIMIT_S) is RunState.CANCELLED


def test_s39_s43_a_json_spec_runs_by_http_alone(stack: Stack) -> None:
    spec = {
        "spec": "dag/1",
        "id": "by-http",
        "tenant": TENANT,
        "nodes": {
            "greeting": {"call": "examples.hello.hello:greet", "args": ["mesh"], "options": {"labels": WEST}},
            "letters": {"call": "examples.hello.hello:count", "args": ["mesh"], "options": {"labels": EAST}},
            "sentence": {"call": "examples.hello.hello:join", "args": [{"$ref": "greeting"}, {"$ref": "letters"}]},
        },
        "outputs": {"sentence": {"$ref": "sentence"}},
    }
    with httpx.Client(base_url=stack.address, headers={"Authorization": f"Bearer {stack.api_key}"}, timeout=LIMIT_S) as http:
        assert http.post("/v1/runs", json=spec).status_code == 202
        assert http.post("/v1/runs", json=spec).status_code == 200
        answer = eventually(lambda: _ended(http))
    assert answer["outputs"]["sentence"]["value"] == "Hello, mesh! Your name has 4 letters."


def _ended(http: httpx.Client) -> dict[str, dict[str, dict[str, str]]]:
    answer = http.get("/v1/runs/by-http/result", params={"wait_s": 20})
    assert answer.status_code == 200
    found: dict[str, dict[str, dict[str, str]]] = answer.json()
    return found


def test_any_process_finds_a_run_and_replays_its_events(client: Client) -> None:
    run = submit(client, dag.bind(size, b"abcd"))
    assert run.result(LIMIT_S) == 4
    again = client.run(run.id)
    events = list(again.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert list(again.events(after=len(events) - 2)) == events[-2:]
    assert events[-1].after == "SUCCEEDED"


def test_s23_metrics_and_traces_report_the_run(stack: Stack, stores: Stores, client: Client, folder: Path) -> None:
    run = submit(client, dag.bind(size, b"abcd"))
    run.result(LIMIT_S)
    operators = issue(RedisKeyRing(stores.client, stores.keys), EVERYBODY, 0)
    eventually(lambda: _assert_measured(f"{stack.address}/metrics", operators))
    eventually(lambda: _assert_traced(folder, run.id))


def _assert_measured(url: str, key: str) -> None:
    text = httpx.get(url, headers={"Authorization": f"Bearer {key}"}, timeout=LIMIT_S).text
    assert "schedulemesh_runs{" in text
    assert "schedulemesh_mesh_alive" in text


def _assert_traced(folder: Path, run: str) -> None:
    assert (folder / "traces.jsonl").exists()
    lines = [line for line in (folder / "traces.jsonl").read_text().splitlines() if run in line]
    assert len(lines) >= 3
