"""Control flow through a whole federation: order by outcome, branches, sleeps and signals, with real meshes and real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from federation_bed import LIMIT_S, coordinator_of, eventually, submit

import dag
from dag.errors import RunFailed
from dag.store.remote import Client, Run
from examples.approval import sweep
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]


def states(client: Client, run: Run) -> dict[str, str]:
    return {node["node"]: node["state"] for node in client.ask(f"{run.path}/nodes")["nodes"]}


def score(number: int) -> float:
    return number / 10


def is_good(value: float) -> bool:
    return value > 0.5


def mark(folder: str, name: str, *_: object) -> str:
    Path(folder, name).touch()
    return name


def fail() -> None:
    raise ValueError("no")


@pytest.mark.parametrize(("number", "taken", "other"), [(9, "deploy", "report"), (1, "report", "deploy")])
def test_only_the_branch_taken_runs(client: Client, tmp_path: Path, number: int, taken: str, other: str) -> None:
    scored = dag.bind(score, number)
    branches = [dag.task(mark, name=name).bind(str(tmp_path), name, scored) for name in ("deploy", "report")]
    chosen = dag.cond(dag.bind(is_good, scored), *branches)
    run = submit(client, dag.task(mark, name="end").bind(str(tmp_path), "end", chosen))
    assert run.result(timeout=LIMIT_S) == "end"
    assert states(client, run) == {"score": "SUCCEEDED", "is_good": "SUCCEEDED", "is_good-is-true": "SUCCEEDED", "cond": "SUCCEEDED",
                                   taken: "SUCCEEDED", other: "SKIPPED", "end": "SUCCEEDED"}  # fmt: skip
    assert {file.name for file in tmp_path.iterdir()} == {taken, "end"}


def test_cleanup_runs_after_a_failure(client: Client, tmp_path: Path) -> None:
    work = dag.bind(fail)
    tidy = dag.after(dag.task(mark, name="tidy").bind(str(tmp_path), "tidy"), work, when="always")
    alarm = dag.after(dag.task(mark, name="alarm").bind(str(tmp_path), "alarm"), work, when="failure")
    run = submit(client, {"work": work, "tidy": tidy, "alarm": alarm})
    with pytest.raises(RunFailed, match="no"):
        run.result(timeout=LIMIT_S)
    assert states(client, run) == {"fail": "FAILED", "tidy": "SUCCEEDED", "alarm": "SUCCEEDED"}
    assert {file.name for file in tmp_path.iterdir()} == {"tidy", "alarm"}


def test_a_signal_approves_a_deployment(client: Client, tmp_path: Path) -> None:
    approved = dag.after(dag.wait_signal("approve"), dag.bind(score, 9))
    chosen = dag.cond(approved, dag.task(mark, name="deploy").bind(str(tmp_path), "deploy", approved), dag.sleep(0.1))
    run = submit(client, dag.task(mark, name="end").bind(str(tmp_path), "end", chosen))
    eventually(lambda: waits_for_signal(client, run))
    run.signal("approve", {"by": "Ada"})
    assert run.result(timeout=LIMIT_S) == "end"
    assert {file.name for file in tmp_path.iterdir()} == {"deploy", "end"}


def waits_for_signal(client: Client, run: Run) -> None:
    line = client.ask(f"{run.path}/summary")
    assert (line["state"], line["reason"]) == ("WAITING", "WAITING_FOR_SIGNAL")


def test_a_wait_survives_the_death_of_the_root(client: Client, stack: Stack, tmp_path: Path) -> None:
    pause = dag.after(dag.sleep(1), dag.wait_signal("go"))
    run = submit(client, dag.after(dag.task(mark, name="end").bind(str(tmp_path), "end"), pause))
    eventually(lambda: waits_for_signal(client, run))
    coordinator_of(stack).kill()
    run.signal("go")
    assert run.result(timeout=LIMIT_S) == "end"


def wait_and_mark(folder: str) -> dag.Node:
    return dag.after(dag.task(mark, name="marked").bind(folder, "marked"), dag.wait_signal("go"))


def test_returned_nodes_survive_the_death_of_the_root(client: Client, stack: Stack, tmp_path: Path) -> None:
    grown = dag.task(wait_and_mark, name="grows").bind(str(tmp_path))
    run = submit(client, dag.task(mark, name="end").bind(str(tmp_path), "end", grown))
    eventually(lambda: waits_for_signal(client, run))
    coordinator_of(stack).kill()
    run.signal("go")
    assert run.result(timeout=LIMIT_S) == "end"
    assert {"grows~marked", "grows~go"} <= states(client, run).keys()
    assert {file.name for file in tmp_path.iterdir()} == {"marked", "end"}


@pytest.mark.parametrize(
    ("least", "answer", "outcome"),
    [(0.8, True, "deployed the model"), (0.8, False, "nobody approved"), (2.0, None, "its score is too low")],
    ids=["approved", "refused", "too weak to ask"],
)
def test_the_sweep_deploys_a_good_model_that_is_approved(client: Client, least: float, answer: bool | None, outcome: str) -> None:
    run = client.submit(sweep.graph(least))
    if answer is not None:
        run.signal("approve", answer)
    result = run.result(timeout=LIMIT_S)
    assert outcome in result["outcome"]
    assert result["cleanup"] == "scratch files removed"
