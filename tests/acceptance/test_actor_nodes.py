"""Actors as nodes, over two real Ray clusters."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from federation_bed import LIMIT_S, TENANT, eventually
from ray.dag import InputNode, MultiOutputNode

import dag
from dag.errors import RunCancelled, RunFailed
from dag.store.remote import Client, Run
from examples.dedup import dedup

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

EAST, WEST = {"zone": "east"}, {"zone": "west"}


def cluster() -> str:
    return str(ray.get_runtime_context().gcs_address)


class Journal:
    """Writes each call to a file, and dies at a call of `die` the first time."""

    def __init__(self, path: str) -> None:
        self.path, self.calls = path, 0
        self.write("made")

    def write(self, *words: Any) -> int:
        self.calls += 1
        with Path(self.path).open("a") as file:
            file.write(f"{os.getpid()} {' '.join(map(str, words))}\n")
        return self.calls

    def where(self) -> tuple[int, str]:
        return os.getpid(), cluster()

    def die(self) -> int:
        self.write("die")
        if Path(self.path).read_text().count("die") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.calls

    def fail(self) -> None:
        raise ValueError("no")

    def hang(self) -> None:
        self.write("hang")
        time.sleep(600)


@ray.remote(max_restarts=0)
class Adder:
    """An actor of Ray's, in a graph of Ray's."""

    def __init__(self, total: int) -> None:
        self.total = total

    def add(self, value: int) -> int:
        self.total += value
        return self.total


def submitted(client: Client, outputs: Any, **given: Any) -> Run:
    return client.submit(outputs, by_value=(sys.modules[__name__],), **given)


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def is_gone(pid: str) -> None:
    assert not Path("/proc", pid).exists() or Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_calls_run_in_order_in_one_process(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = dag.actor(Journal, labels=WEST).bind(str(path))
    east, first = dag.task(cluster, labels=EAST).bind(), journal.where.bind()
    journal.write.bind("east", east)
    last, after = journal.write.bind("last"), dag.task(os.path.exists, labels=EAST).bind(str(path))
    outputs = {"east": east, "first": first, "last": last, "second": journal.where.bind(), "after": after}
    found = submitted(client, outputs).result(LIMIT_S)
    pid, west = found["first"]
    assert (found["second"], found["last"]) == ((pid, west), 3)
    assert west != found["east"]
    assert lines(path) == [[str(pid), "made"], [str(pid), "east", found["east"]], [str(pid), "last"]]
    eventually(lambda: is_gone(str(pid)))


def test_a_dead_actor_is_lost_without_retries(client: Client, tmp_path: Path) -> None:
    journal = dag.actor(Journal).bind(str(tmp_path / "journal"))
    ready = dag.bind(abs, 7)
    outputs = {"ready": ready, "written": journal.write.bind(ready), "died": journal.die.bind()}
    run = submitted(client, outputs)
    with pytest.raises(RunFailed) as failed:
        run.result(LIMIT_S)
    assert [failure["reason"] for failure in client.ask(run.path)["failures"]] == ["WORKER_LOST"], failed.value
    nodes = {node["node"]: node["state"] for node in client.ask(f"{run.path}/nodes")["nodes"]}
    assert nodes == {"abs": "SUCCEEDED", "Journal": "FAILED", "Journal.write": "SKIPPED", "Journal.die": "SKIPPED"}


def test_a_dead_actor_is_made_anew_and_repeats_its_calls(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = dag.actor(Journal, retries=1).bind(str(path))
    journal.write.bind("a")
    died, last = journal.die.bind(), journal.write.bind("b")
    assert submitted(client, {"died": died, "last": last}).result(LIMIT_S) == {"died": 3, "last": 4}
    said = lines(path)
    assert [words for _, *words in said] == [["made"], ["a"], ["die"], ["made"], ["a"], ["die"], ["b"]]
    assert len({pid for pid, *_ in said[:3]}) == len({pid for pid, *_ in said[3:]}) == 1


def test_a_cancel_ends_the_process_of_an_actor(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = dag.actor(Journal).bind(str(path))
    run = submitted(client, journal.hang.bind())
    eventually(lambda: has_hung(path))
    run.cancel("enough")
    with pytest.raises(RunCancelled):
        run.result(LIMIT_S)
    eventually(lambda: is_gone(lines(path)[0][0]))


def has_hung(path: Path) -> None:
    assert path.exists()
    assert "hang" in path.read_text()


def test_a_graph_of_ray_with_an_actor_runs_here(client: Client) -> None:
    with InputNode() as given:
        adder = Adder.bind(given["start"])
        graph = MultiOutputNode([adder.add.bind(1), adder.add.bind(40)])
    assert submitted(client, graph, params={"start": 1}).result(LIMIT_S) == {"0": 2, "1": 42}


def grows(path: str) -> Any:
    journal = dag.actor(Journal).bind(path)
    journal.write.bind("a")
    return journal.write.bind("b")


def test_a_graph_grows_by_an_actor(client: Client, tmp_path: Path) -> None:
    assert submitted(client, dag.bind(abs, dag.bind(grows, str(tmp_path / "journal")))).result(LIMIT_S) == 3


def test_an_error_of_a_call_fails_its_actor(client: Client, tmp_path: Path) -> None:
    journal = dag.actor(Journal).bind(str(tmp_path / "journal"))
    first = journal.write.bind("a")
    with pytest.raises(RunFailed, match=r"in call 2 of 2 of the actor: fail" if sys.version_info >= (3, 11) else "no"):
        submitted(client, {"first": first, "failed": journal.fail.bind()}).result(LIMIT_S)


def test_the_example_removes_duplicates(client: Client) -> None:
    spec = dag.to_spec(dedup.graph(), id="dedup", tenant=TENANT)
    for run in (client.submit(dedup.graph()), client.submit(dag.from_spec(spec)), client.submit_spec(spec)):
        found = run.result(LIMIT_S)
        assert found == {"shard-0": ["the quick brown fox.", "a lazy dog."], "shard-1": ["another text."],
                     "shard-2": ["something new."], "size": 4}  # fmt: skip
