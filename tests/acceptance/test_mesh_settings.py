"""Settings of a mesh that `apply` changes while its stages run, in a federation over two real Ray clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from federation_bed import CONFIG, LIMIT_S, eventually, submit

import dag
from dag.store.remote import Client, Run
from mesh.core.ids import MeshId
from mesh.preemption.stage_preemption import MICROS, PreemptionLimits
from mesh.stages.stage_settings import DEFAULT_SETTINGS, QueueRules, StageSettings
from serve_apps.cli.app import run_command
from serve_apps.processes.stores import Stores

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

WEST = MeshId("west")
#: A stage gains 100 points a second, and may preempt only stages that are less urgent by more than a point.
AGED = CONFIG.replace("labels: {zone: west}", 'labels: {zone: west}\n    queues: {"*": {aging_per_s: 100}}\n    preemption: {threshold: 1}')
FOLLOWED = StageSettings(preemption=PreemptionLimits(threshold=MICROS), queues={"*": QueueRules(aging_per_s=100 * MICROS)})


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


def test_a_running_mesh_follows_applied_queues_and_limits(
    client: Client, stores: Stores, apply: Callable[[str], str], tmp_path: Path
) -> None:
    def submitted(name: str, priority: int) -> Run:
        return submit(client, dag.task(hold, labels={"zone": "west"}, num_cpus=1, priority=priority).bind(str(tmp_path), name))

    def begun(*names: str) -> None:
        assert {path.name for path in tmp_path.iterdir() if path.suffix not in (".go", ".yaml")} == set(names)

    def waiting(*runs: Run) -> None:
        listed = sorted(client.ask("/v1/queues/acme")["waiting"], key=lambda line: line["position"])
        assert [(line["run"], line["position"]) for line in listed] == [(run.id, number) for number, run in enumerate(runs, 1)]

    full = [submitted("first", 5), submitted("second", 5)]
    eventually(lambda: begun("first", "second"))
    earlier = submitted("earlier", 0)
    eventually(lambda: waiting(earlier))
    later = submitted("later", 1)
    eventually(lambda: waiting(later, earlier))
    output = apply(AGED)
    assert "mesh west: preemption.threshold: not set → 1\n" in output
    assert "mesh west: queues.*.aging_per_s: not set → 100\n" in output
    eventually(lambda: follows(stores, FOLLOWED))
    eventually(lambda: waiting(earlier, later))
    (tmp_path / "first.go").touch()
    eventually(lambda: begun("first", "second", "earlier"))
    (tmp_path / "second.go").touch()
    eventually(lambda: begun("first", "second", "earlier", "later"))
    for name in ("earlier", "later"):
        (tmp_path / f"{name}.go").touch()
    assert [run.result(LIMIT_S) for run in (*full, earlier, later)] == ["first", "second", "earlier", "later"]
