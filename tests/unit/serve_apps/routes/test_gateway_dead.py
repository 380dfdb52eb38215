"""`/v1/dead` and `/v1/audit` and their commands, on stores in memory."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dag.requeueing import next_id
from dag.run.dead_letters import DeadLetter
from dag.run.runs import RunChange
from dag.run.states import RunState
from dag.spec.plans import plans_of
from dag.spec.spec import load
from dag.store.remote import Client
from federation.dispatch import Orphan, OrphanKind
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import dead
from serve_apps.gateway_fixtures import ACME, ADDRESS, RESEARCH, GatewayWorld, spec_of


@pytest.fixture
def world() -> GatewayWorld:
    """A run whose second node is a dead letter."""
    world = GatewayWorld()
    world.client().submit_spec(spec_of("a", "b", id="night", user="ann"))
    record = world.record("night")
    letter = DeadLetter(
        run=RunId("night"),
        node=NodeId("b"),
        tenant=RESEARCH,
        stage=StageId("night.1"),
        mesh=MeshId("east"),
        reason=Reason.POISON_TASK,
        type_name="schedulemesh.Poison",
        message="3 workers died under it",
        attempts=3,
        retries_used=0,
        losses=0,
        kills=3,
        at_ms=1_000,
    )
    assert world.runs.commit(record, RunChange(dead=(letter,)))
    world.move("night", RunState.FAILED, ended_ms=2_000)
    world.runs.settle(RunId("night"))
    return world


@pytest.fixture
def operated(world, monkeypatch) -> GatewayWorld:
    """The same for operators and the stack's owner."""
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", ADDRESS)
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=world.http("*"), patience_s=0))
    stores = SimpleNamespace(runs=world.runs, blobs=world.store, queue=world.store, ledger=world.store, changes=world.changes)
    monkeypatch.setattr(dead, "running_stores", lambda _: stores)
    return world


def test_an_operator_lists_and_inspects_dead_letters(world):
    (letter,) = world.http("*").get("/v1/dead").json()["letters"]
    assert (letter["letter"], letter["reason"], letter["kills"], letter["mesh"]) == ("night:b", "POISON_TASK", 3, "east")
    assert world.http("*").get("/v1/dead/night:b").json() == letter
    answer = world.http("*").get("/v1/dead/night:a")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_letter")


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/night:b"), ("POST", "/night:b/requeue"), ("POST", "/night:b/drop")])
def test_dead_letters_are_for_operators_alone(world, method, path):
    assert world.http(ACME).request(method, f"/v1/dead{path}").status_code == 403
    assert len(world.runs.dead()) == 1


def test_requeued_letter_becomes_a_new_run_and_disappears(world):
    answer = world.http("*").post("/v1/dead/night:b/requeue")
    assert (answer.status_code, answer.json()) == (200, {"letter": "night:b", "run": "night.again-1"})
    again = world.record("night.again-1")
    assert (again.state, again.tenant, again.user, set(again.nodes)) == (RunState.PENDING, RESEARCH, "ann", {"a", "b"})
    assert set(plans_of(load(again.spec))) == {"a", "b"}
    assert world.runs.dead() == ()
    assert world.http("*").post("/v1/dead/night:b/requeue").status_code == 404
    assert world.store.inbox(0)[-1].run == "night.again-1"


def test_a_requeued_run_brings_its_code_or_is_not_requeued(world, monkeypatch):
    sha256 = "ab" * 32
    sent = {"spec": "dag/1", "nodes": {"b": {"function": {"$blob": sha256}}}, "outputs": {"b": {"$ref": "b"}}}
    stored = replace(world.record("night"), spec=json.dumps(sent).encode())
    monkeypatch.setattr(world.runs, "load", lambda _run: stored)
    answer = world.http("*").post("/v1/dead/night:b/requeue")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_requeued")
    world.store.put("night", sha256, b"code")
    assert world.http("*").post("/v1/dead/night:b/requeue").status_code == 200
    assert world.store.get("night.again-1", (sha256,)) == {sha256: b"code"}


def test_letter_of_an_open_run_is_not_requeued(world, monkeypatch):
    stored = replace(world.record("night"), state=RunState.RUNNING)
    monkeypatch.setattr(world.runs, "load", lambda _run: stored)
    answer = world.http("*").post("/v1/dead/night:b/requeue")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_requeued")
    assert len(world.runs.dead()) == 1


def test_a_dropped_letter_leaves_its_run(world):
    assert world.http("*").post("/v1/dead/night:b/drop").json() == {"letters": 1}
    assert world.http("*").post("/v1/dead/night:b/drop").json() == {"letters": 0}
    assert world.record("night").state is RunState.FAILED


@pytest.mark.parametrize(
    ("run", "after"),
    [("r", "r.again-1"), ("r.again-1", "r.again-2"), ("r.again-9", "r.again-10"), ("x" * 128, "x" * 120 + ".again-1")],
)
def test_requeued_run_is_named_after_its_original(run, after):
    assert next_id(RunId(run)) == after
    assert len(after) <= 128


def test_sound_store_has_an_empty_audit(world):
    assert world.http("*").get("/v1/audit").json() == {"orphans": [], "mismatches": []}
    assert world.http(ACME).get("/v1/audit").status_code == 403


@pytest.mark.parametrize("way", ["the address", "the state folder"])
def test_cli_lists_requeues_and_drops_letters_through(operated, monkeypatch, capsys, way):
    if way == "the state folder":
        monkeypatch.delenv("SCHEDULEMESH_ADDRESS")
    for command, word in ((["list"], "POISON_TASK"), (["show", "night:b"], "3 workers died"), (["requeue", "night:b"], "night.again-1")):
        assert run_command(["dead", *command]) == 0
        assert word in capsys.readouterr().out
    assert run_command(["dead", "list"]) == 0
    assert "no dead letters" in capsys.readouterr().out
    assert run_command(["dead", "drop", "night:b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"letters": 0}
    assert run_command(["dead", "show", "night:b"]) == 1
    assert "there is no dead letter" in capsys.readouterr().err


def test_an_audit_that_finds_something_fails_the_command(operated, monkeypatch, capsys):
    assert run_command(["audit"]) == 0
    assert "agree" in capsys.readouterr().out
    orphan = Orphan(kind=OrphanKind.INDEX_WITHOUT_RECORD, stage=StageId("gone.1"), mesh=MeshId("east"), detail="named as claimed")
    monkeypatch.setattr(operated.store, "orphans", lambda: (orphan,))
    assert run_command(["audit"]) == 1
    assert "INDEX_WITHOUT_RECORD gone.1 at east" in capsys.readouterr().out
