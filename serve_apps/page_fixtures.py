"""For tests, benchmarks and pictures of the browser page: a gateway behind a real server, with runs in every state, and Chromium."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dag
from dag.coordinator import Coordinator
from dag.run.node_facts import PastAttempt
from dag.run.runs import StageRecord
from dag.run.states import NodeState, RunState, StageState
from federation.api_keys import EVERYBODY
from federation.change_log import TERMINAL, Change, Outcome
from federation.leases import QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.quota.policies import QueueSettings, Rules, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.usage.accounting import day_of
from federation.usage.records import RowKey, Sums, UsageChange
from mesh.core.clock import ManualClock
from mesh.core.ids import MeshId, NodeId, PoolName, RunId, StageId, TenantPath
from mesh.core.node_sizes import NodeSize
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.stages.messages import Failure, NodeOutput
from mesh.stages.spec import StageSpec
from serve_apps.gateway_fixtures import EAST, RESEARCH, RIVAL, SALES, STANDARD, GatewayWorld, spec_of
from serve_apps.link_fixtures import serving
from serve_apps.requests.auth import issue

WEST = MeshId("west")
CALL = "examples.hello.hello:greet"
#: Chromium as Debian names it, and as others do.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Nodes of the large graph, by levels.
LEVELS, PER_LEVEL = 100, 100
#: Lines that `clean-03` has printed: more than a page of the log has entries.
PRINTED = 250
#: Changes that a program has made before those of people: more than the page loads at once.
REPEATED = 230
_HOUR_MS = 3_600_000


@dataclass(slots=True)
class Scene:
    """Address of the root, an operator's key, and the world behind them."""

    world: GatewayWorld
    coordinator: Coordinator
    address: str
    key: str


def chromium() -> str | None:
    """Return the path of Chromium; None: this machine has none."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


@contextmanager
def running_chromium() -> Iterator[Any]:
    """Yield playwright's browser, a Chromium without a window, which ends with the block.

    Raises:
        FileNotFoundError: This machine has no Chromium.
    """
    from playwright.sync_api import sync_playwright  # Half a second, which machines without Chromium save.

    if (path := chromium()) is None:
        raise FileNotFoundError("this machine has no Chromium: `apt-get install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


def entering(key: str, theme: str = "light") -> str:
    """Return the script that signs a tab in, and sets the theme, before the page's own script runs."""
    enter = f"if (!sessionStorage.getItem('schedulemesh.key')) sessionStorage.setItem('schedulemesh.key', {json.dumps(key)});"
    return f"localStorage.setItem('schedulemesh.theme', '{theme}'); {enter if key else ''}"


@contextmanager
def scene() -> Iterator[Scene]:
    """Serve a world with runs in every state within the block."""
    world = GatewayWorld(clock=ManualClock(int(time.time() * 1000) - 58_000), body_limit_bytes=64 << 20)
    client = world.client(RESEARCH)
    client.submit_spec({**etl(), "id": "etl-nightly-7", "labels": {"team": "ads", "kind": "nightly"}})
    world.clock.advance(58_000)
    client.submit(dag.map(double, range(1_000), parts=10), id="array")
    client.submit_spec({**layered(LEVELS, PER_LEVEL), "id": "large"})
    coordinator, east = _waiting(world)
    _runs(world)
    coordinator.step(0)
    _print(world, east)
    _changes(world)
    _usage(world)
    key = issue(world.keys, TenantPath("*"), world.clock.wall_ms())
    with serving(world.app) as address:
        yield Scene(world, coordinator, address, key)


def layered(levels: int, per_level: int, seed: int = 7) -> dict[str, Any]:
    """Return a graph of `levels` times `per_level` nodes, each of which reads up to three of the level before."""
    chance = random.Random(seed)
    nodes: dict[str, Any] = {}
    for level in range(levels):
        for place in range(per_level):
            needs = chance.sample(range(per_level), 3) if level else []
            nodes[f"n{level:03}-{place:03}"] = {"call": CALL, "args": [[{"$ref": f"n{level - 1:03}-{need:03}"} for need in sorted(needs)]]}
    last = f"n{levels - 1:03}-000"
    return {"spec": "dag/1", "nodes": nodes, "outputs": {last: {"$ref": last}}}


def etl() -> dict[str, Any]:
    """Return a graph of an extraction: sources, twelve parts, a train and a report."""
    nodes: dict[str, Any] = {"list-files": {"call": CALL, "args": ["s3"]}, "schema": {"call": CALL, "args": ["v2"]}}
    for part in range(12):
        nodes[f"extract-{part:02}"] = {"call": CALL, "args": [{"$ref": "list-files"}], "options": {"retries": 2}}
        nodes[f"clean-{part:02}"] = {"call": CALL, "args": [[{"$ref": f"extract-{part:02}"}, {"$ref": "schema"}]]}
    nodes["features"] = {"call": CALL, "args": [[{"$ref": f"clean-{part:02}"} for part in range(12)]]}
    for fold in range(4):
        nodes[f"train-fold-{fold}"] = {"call": CALL, "args": [{"$ref": "features"}]}
    nodes["evaluate"] = {"call": CALL, "args": [[{"$ref": f"train-fold-{fold}"} for fold in range(4)]]}
    nodes["publish-report"] = {"call": CALL, "args": [{"$ref": "evaluate"}]}
    return {"spec": "dag/1", "nodes": nodes, "outputs": {"report": {"$ref": "publish-report"}}, "on_error": "continue"}


def _waiting(world: GatewayWorld) -> tuple[Coordinator, ManualMesh]:
    """Two meshes; sales has borrowed of acme, so a run of research waits for two CPUs."""
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 8}), used=ResourceSet.of({"cpu": 5}))
    sizes = (NodeSize(total=ResourceSet.of({"cpu": 4}), nodes=2),)
    east = ManualMesh(world.store, MeshRecord(mesh=EAST, labels={"zone": "east"}, pools=(pool,), cluster="c1", shared=True, nodes=sizes))
    ManualMesh(world.store, MeshRecord(mesh=WEST, labels={"zone": "west"}, pools=(), cluster="c2", shared=True))
    east.acquire(SALES, STANDARD, ResourceSet.of({"cpu": 1}), 5)
    world.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0), settings={SALES: QueueSettings(running_max=1)}))
    night = spec_of("a", "b", id="night", labels={"team": "ads"})
    for node in night["nodes"].values():
        node["options"] = {"num_cpus": 2}
    world.client(RESEARCH).submit_spec(night)
    for run in ("report-1", "report-2"):
        world.client(SALES).submit_spec(spec_of("a", id=run))
    coordinator = world.coordinator()
    coordinator.step(0)
    world.store.explain(east.session, (StageId("night.1"),), Reason.QUOTA_EXHAUSTED, "2 cpu short")
    coordinator.step(0)
    east.heartbeat(demands=(QuotaDemand(tenant=RESEARCH, flavor=STANDARD, slot=ResourceSet.of({"cpu": 2}), slots=1),))
    return coordinator, east


def _runs(world: GatewayWorld) -> None:
    now_ms = world.clock.wall_ms()
    client = world.client(RESEARCH)
    states = _etl_states(now_ms)
    stages = {
        StageId(f"etl-nightly-7.{number}"): StageRecord(
            stage=StageId(f"etl-nightly-7.{number}"),
            mesh=mesh,
            level=number - 1,
            nodes=(),
            state=StageState.RUNNING,
            slots=4,
            why_here=f"LEAST_WAIT {mesh}/general: 0 s, the other mesh 40 s",
            sent_ms=now_ms - 57_000,
            started_ms=now_ms - 56_000,
        )
        for number, mesh in ((1, EAST), (2, WEST))
    }
    world.move("etl-nightly-7", RunState.RUNNING, nodes=states, stages=stages)
    for number, state in enumerate(("succeed", "succeed", "fail")):
        run = f"hello-{number}"
        client.submit_spec(spec_of("fetch", "greet", "send", id=run))
        world.start(run, "fetch", "greet")
        if state == "succeed":
            world.succeed(run, {"fetch": 1, "greet": 2, "send": "hello"})
        else:
            world.move(run, RunState.RUNNING, nodes={"fetch": {"state": NodeState.SUCCEEDED, "finished_ms": now_ms}})
            world.fail(run, "greet", ValueError("the name is empty"), skipped=("send",))
    parts = {f"double@{part}": {"state": NodeState.SUCCEEDED if part < 6 else NodeState.RUNNING, "started_ms": now_ms} for part in range(9)}
    world.move("array", RunState.RUNNING, nodes=parts)


def _etl_states(now_ms: int) -> dict[str, dict[str, Any]]:
    def at(stage: int, mesh: MeshId, state: NodeState, begun_s: int, took_s: float) -> dict[str, Any]:
        started_ms = now_ms - 56_000 + begun_s * 1_000
        over = {"finished_ms": started_ms + round(took_s * 1_000)} if state is not NodeState.RUNNING else {}
        return {"state": state, "stage": StageId(f"etl-nightly-7.{stage}"), "mesh": mesh, "started_ms": started_ms, **over}

    done = NodeState.SUCCEEDED
    states: dict[str, dict[str, Any]] = {"list-files": at(1, EAST, done, 0, 1.5), "schema": at(1, EAST, done, 0, 0.4)}
    for part in range(12):
        stage, mesh = (1, EAST) if part < 6 else (2, WEST)
        states[f"extract-{part:02}"] = at(stage, mesh, done, 2 + part % 6, 4 + part % 5)
        state = done if part < 8 else NodeState.RUNNING
        states[f"clean-{part:02}"] = at(stage, mesh, state, 14 + 3 * (part % 6), 6)
    failure = Failure(
        reason=Reason.USER_ERROR,
        type_name="pandas.errors.ParserError",
        message="Error tokenizing data. C error: Expected 14 fields in line 88127, saw 15",
        traceback='Traceback (most recent call last):\n  File "etl/clean.py", line 41, in clean\n    frame = read_csv(path)\n'
        "pandas.errors.ParserError: Expected 14 fields in line 88127, saw 15",
    )
    states["clean-03"] |= {"state": NodeState.FAILED, "failure": failure, "reason": Reason.USER_ERROR}
    past = (
        PastAttempt(
            attempt=1,
            mesh=WEST,
            started_ms=now_ms - 52_000,
            ended_ms=now_ms - 47_000,
            reason=Reason.USER_ERROR,
            type_name="builtins.OSError",
            detail="disk full",
        ),
        PastAttempt(attempt=2, mesh=EAST, started_ms=now_ms - 46_000, ended_ms=now_ms - 40_000, reason=Reason.WORKER_LOST),
    )
    states["clean-09"] |= {"attempt": 3, "past": past, "retries_used": 1, "losses": 1}
    states["features"] = {"state": NodeState.SKIPPED, "roots": (NodeId("clean-03"),), "reason": Reason.UPSTREAM_FAILED}
    return states


def _print(world: GatewayWorld, mesh: ManualMesh) -> None:
    """Let `clean-03` and both attempts of `clean-09` print, as a mesh that has claimed their stage reports it."""
    stage, run = StageId("etl-nightly-7.3"), RunId("etl-nightly-7")
    world.store.submit(EAST, StageSpec(stage=stage, run=run, tenant=TenantPath(RESEARCH), tasks=(), slot=NOTHING, width=1))
    claimed = world.store.claim(mesh.session, stage, None)
    if claimed is None:
        raise AssertionError("nobody else claims the stage")
    printed = [
        NodeOutput(stage=stage, node=NodeId("clean-09"), attempt=attempt, number=1, at_ms=7, stream="stderr", lines=(f"try {attempt}",))
        for attempt in (1, 3)
    ]
    printed += [
        NodeOutput(stage=stage, node=NodeId("clean-03"), attempt=1, number=number, at_ms=7, stream="stdout", lines=(f"row {number:,}",))
        for number in range(1, PRINTED + 1)
    ]
    world.run_log.append(claimed.claim, 1, tuple(printed))


def _changes(world: GatewayWorld) -> None:
    """Fill the log of changes: made, refused and failed ones, by people, programs, and commands at the terminal."""
    now_ms = world.clock.wall_ms()
    for number in range(REPEATED):
        at_ms = now_ms - 30 * _HOUR_MS + number * 60_000
        operation = "POST /v1/schedules/{name}/" + ("pause" if number % 2 else "resume")
        world.changes.append(
            Change(
                at_ms=at_ms,
                operation=operation,
                tenant=RIVAL,
                target=f"s-{number}",
                key="k-night",
                user="nightly-bot",
                outcome=Outcome.ALLOWED,
            )
        )
    run, tenant = "POST /v1/runs/{run_id}/", "POST /v1/tenants/{tenant}/"
    rows: tuple[tuple[int, str, str, TenantPath, str, dict[str, str], str], ...] = (
        (190, "root", "schedulemesh apply", EVERYBODY, "federation.yaml", {"tenant acme/sales": "borrowing_limit cpu 2 -> 5"}, ""),
        (170, "ines", "schedulemesh keys create", RESEARCH, "k-4f2a", {"user": "tomas", "role": "submitter", "expires": "30d"}, ""),
        (96, "ines", tenant + "suspend", SALES, SALES, {"reason": "Over budget until the invoice is paid"}, ""),
        (72, "tomas", tenant + "resume", RESEARCH, SALES, {}, "forbidden"),
        (64, "ines", tenant + "resume", SALES, SALES, {}, ""),
        (41, "tomas", run + "cancel", RESEARCH, "train-0411", {"reason": "wrong learning rate"}, ""),
        (40, "tomas", run + "signals/{name}", RESEARCH, "review-7/approve", {}, ""),
        (23, "marek", "POST /v1/meshes/{mesh}/drain", EVERYBODY, "west", {"reason": "new kernel"}, ""),
        (12, "marek", "POST /v1/meshes/{mesh}/undrain", EVERYBODY, "west", {}, "store_unavailable"),
        (9, "marek", "POST /v1/keys/{key}/revoke", RESEARCH, "k-0c11", {}, ""),
        (3, "", "PUT /v1/schedules/{name}", RESEARCH, "etl-nightly", {"cron": "15 2 * * *", "sha256": "9f3c2a77d01be4c8"}, ""),
    )
    for minutes, user, operation, about, target, details, code in rows:
        outcome = Outcome.FAILED if code == "store_unavailable" else Outcome.REFUSED if code else Outcome.ALLOWED
        is_command = operation.startswith("schedulemesh")
        change = Change(
            at_ms=now_ms - minutes * 60_000,
            operation=operation,
            tenant=about,
            target=target,
            details=details,
            key=TERMINAL if is_command else f"k-{user or 'ci'}",
            user=user,
            source="root-1" if is_command else "10.1.4.7",
            request_id="" if is_command else f"req-{minutes}",
            outcome=outcome,
            code=code,
        )
        world.changes.append(change)


def _usage(world: GatewayWorld) -> None:
    """Fill in the use of a week, as the elected coordinator writes it."""
    today = day_of(world.clock.wall_ms())
    people = ((RESEARCH, "ines", 9, 2), (RESEARCH, "tomas", 5, 0), (SALES, "vera", 4, 4), (RIVAL, "", 2, 0))
    rows = {}
    for ago in range(7):
        for tenant, user, cpus, borrowed in people:
            hours = (24 - 3 * ago % 7) * _HOUR_MS
            sums = Sums(used=cpus * 10_000 * hours, borrowed=borrowed * 10_000 * hours, lost=(ago % 3) * cpus * 137 * _HOUR_MS)
            rows[RowKey(today - ago, tenant, user, STANDARD, "cpu")] = sums
            rows[RowKey(today - ago, tenant, user, STANDARD, "memory")] = Sums(used=cpus * hours << 32)
    if not world.usage.write(UsageChange(version=world.usage.read(today, today).state.version, cursor="", rows=rows)):
        raise AssertionError("nobody else writes the use")


def double(number: int) -> int:
    """Return twice the number: the function of the array."""
    return 2 * number


def end_run(world: GatewayWorld, run: str, node: str) -> None:
    """End a node of a run as a coordinator would, so that an open page gets the event."""
    world.move(run, RunState.RUNNING, nodes={node: {"state": NodeState.SUCCEEDED, "finished_ms": world.clock.wall_ms()}})


def run_ids(world: GatewayWorld) -> list[RunId]:
    """Return the runs of the world."""
    return [summary.run for summary in world.runs.list(TenantPath("acme"), limit=100)]
