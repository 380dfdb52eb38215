"""Settings of a mesh that `apply` changes while its stages run, in a federation over two real Ray clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from federation_bed import CONFIG, LIMIT_S, TENANT, eventually, submit

import dag
from dag.client.tasks import Node
from dag.store.remote import Client
from mesh.core.ids import MeshId
from mesh.stages.stage_settings import DEFAULT_SETTINGS, QueueRules, StageSettings
from serve_apps.cli.app import run_command
from serve_apps.processes.stores import Stores

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

WEST = MeshId("west")
NLP = "acme/research/nlp"
ORDERED = CONFIG.replace("labels: {zone: west}", f"labels: {{zone: west}}\n    queues: {{{NLP}: {{priority: 5}}}}")


def hold(folder: str, name: str) -> str:
    """Leave a file, and wait for the one that lets this node go."""
    Path(folder, name).touch()
    while not Path(folder, f"{name}.go").exists():
        time.sleep(0.01)
    return name


@pytest.fixture
def apply(stores: Stores, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[str], str]]:
    """Return a function that applies a file and returns the output; the mesh has its first settings again afterwards."""

    def applied(text: str) -> str:
        (tmp_path / "changed.yaml").write_text(text, encoding="utf-8")
        code = run_command(["apply", str(tmp_path / "changed.yaml"), "--state-dir", str(folder)])
        output = "".join(capsys.readouterr())
        assert code == 0, output
        return output

    yield applied
    applied(CONFIG)
    eventually(lambda: follows(stores, DEFAULT_SETTINGS))


def follows(stores: Stores, settings: StageSettings) -> None:
    reported = {view.record.mesh: view.record.settings for view in stores.ledger.snapshot().meshes}
    assert reported[WEST] == settings


def test_applied_queue_orders_the_stages_of_a_running_mesh(
    client: Client, stores: Stores, apply: Callable[[str], str], tmp_path: Path
) -> None:
    def submitted(name: str, tenant: str = TENANT) -> dag.Run:
        node: Node = dag.task(hold, labels={"zone": "west"}, num_cpus=1).bind(str(tmp_path), name)
        return submit(client, node, tenant=tenant)

    def begun(*names: str) -> None:
        assert {path.name for path in tmp_path.iterdir() if path.suffix not in (".go", ".yaml")} == set(names)

    def waiting(*runs: dag.Run) -> None:
        listed = sorted(client.ask("/v1/queues/acme")["waiting"], key=lambda line: line["position"])
        assert [(line["run"], line["position"]) for line in listed] == [(run.id, number) for number, run in enumerate(runs, 1)]

    full = [submitted("first"), submitted("second")]
    eventually(lambda: begun("first", "second"))
    earlier = submitted("earlier")
    eventually(lambda: waiting(earlier))
    later = submitted("later", NLP)
    eventually(lambda: waiting(earlier, later))
    assert f"mesh west: queues.{NLP}.priority: not set → 5\n" in apply(ORDERED)
    eventually(lambda: follows(stores, StageSettings(queues={NLP: QueueRules(priority=5)})))
    eventually(lambda: waiting(later, earlier))
    (tmp_path / "first.go").touch()
    eventually(lambda: begun("first", "second", "later"))
    for name in ("second", "earlier", "later"):
        (tmp_path / f"{name}.go").touch()
    assert [run.result(LIMIT_S) for run in (*full, earlier, later)] == ["first", "second", "earlier", "later"]
