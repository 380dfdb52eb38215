"""The smallest graphs: the cost of the way through the federation, beside plain Ray; at once, and after a pause.

After a pause: whether warm processes stay warm. As many tasks as CPUs, so that all workers are needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import ray

import dag
from benchmarks.bed import Bed
from benchmarks.journey import Stamps, journey_of, now_ms
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.work import nothing
from dag.client.compiling import compile_graph
from mesh.core.ids import RunId

PYTHON, HTTP, PLAIN = "Python client", "bare HTTP", "plain Ray"
SPEC = {"spec": "dag/1", "nodes": {"nothing": {"call": "benchmarks.work:nothing"}}, "outputs": {"result": {"$ref": "nothing"}}}
WAIT_S = 30
MESH = "ScheduleMesh"
CLIENTS, RUNS_OF_EACH = 8, 10
#: Longer than Ray keeps an idle worker process.
PAUSE_S = 3


def measure(bed: Bed, turns: int) -> Result:
    """Measure three sides in turns."""
    access = bed.client.access
    headers = {"Authorization": f"Bearer {access.api_key}"}
    task = bed.plain(nothing)
    with httpx.Client(base_url=access.address, headers=headers, timeout=WAIT_S + 10) as http:
        sides = {PYTHON: lambda: _by_client(bed), HTTP: lambda: _by_http(bed, http), PLAIN: lambda: _by_ray(task)}
        found = in_turns(sides, warm_ups=5, turns=turns)
    return result_of("one_node", "one task that does nothing, from its submission until its value is there", found, base=PLAIN)


def measure_after_pause(bed: Bed, turns: int) -> Result:
    """Measure both sides in turns, each after its own pause."""
    task = bed.plain(nothing)

    def rested(once: Callable[[], Sample]) -> Sample:
        time.sleep(PAUSE_S)
        return once()

    about = f"{bed.cpus} tasks that do nothing, one for each CPU, after {PAUSE_S} s in which nothing ran"
    sides = {MESH: lambda: rested(lambda: _by_client(bed, bed.cpus)), PLAIN: lambda: rested(lambda: _by_ray(task, bed.cpus))}
    return result_of("after_pause", about, in_turns(sides, warm_ups=2, turns=turns), base=PLAIN)


def measure_clients(bed: Bed, turns: int) -> Result:
    """Measure both sides in turns: many clients that each submit one run after the other; milliseconds a run, over all clients."""
    task = bed.plain(nothing)

    def clients_of(once: Callable[[], object]) -> Callable[[], Sample]:
        def run() -> Sample:
            begun = time.perf_counter()
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(lambda _: once(), range(CLIENTS * RUNS_OF_EACH)))
            return {WALL: (time.perf_counter() - begun) * 1000 / (CLIENTS * RUNS_OF_EACH)}

        return run

    sides = {
        MESH: clients_of(lambda: bed.client.submit(dag.bind(nothing)).result()),
        PLAIN: clients_of(lambda: ray.get(task.remote())),
    }
    about = f"{CLIENTS} clients, each submits {RUNS_OF_EACH} runs of a task that does nothing, one after the other: milliseconds a run"
    return result_of("one_node_clients", about, in_turns(sides, warm_ups=2, turns=turns), base=PLAIN)


def _by_ray(task: Any, count: int = 1) -> Sample:
    begun = time.perf_counter()
    ray.get([task.remote() for _ in range(count)])
    return {WALL: (time.perf_counter() - begun) * 1000}


def _by_client(bed: Bed, count: int = 1) -> Sample:
    begun = now_ms()
    spec = compile_graph([dag.bind(nothing) for _ in range(count)], tenant=bed.client.access.tenant)
    compiled = now_ms()
    run = bed.client.submit_spec(spec)
    run.result()
    return journey_of(bed.client, run.id, Stamps(begun=begun, compiled=compiled, ended=now_ms()))


def _by_http(bed: Bed, http: httpx.Client) -> Sample:
    begun = now_ms()
    posted = http.post("/v1/runs", json={**SPEC, "tenant": bed.client.access.tenant}).raise_for_status().json()
    answer = http.get(f"/v1/runs/{posted['id']}/result", params={"wait_s": WAIT_S}).raise_for_status().json()
    ended = now_ms()
    if answer["state"] != "SUCCEEDED":
        raise AssertionError(f"the run is {answer['state']} after {WAIT_S} s")
    return journey_of(bed.client, RunId(posted["id"]), Stamps(begun=begun, compiled=begun, ended=ended))
