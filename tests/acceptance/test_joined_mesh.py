"""Features of meshes, on a mesh that has joined over HTTP: two real Ray clusters under one root."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from federation_bed import LIMIT_S, eventually, submit, wait_for
from http_federation import HttpFederation
from ray.util.placement_group import placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from shared_clusters import driving

import dag
from dag.client.tasks import Node
from dag.errors import ApiError, RunFailed
from dag.store.remote import Client, Run
from mesh.core.ids import MeshId
from mesh.core.reasons import Reason
from mesh.preemption.stage_preemption import MICROS, PreemptionLimits
from mesh.stages.stage_settings import DEFAULT_SETTINGS, QueueRules, StageSettings
from serve_apps.cli.app import run_command
from serve_apps.processes.stores import Stores
from serve_apps.schemas.meshes import MeshEntry

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left_over_http")]

LAB, EAST = {"zone": "lab"}, {"zone": "east"}
OWNER, GUEST, URGENT = "acme/shared/owner", "acme/shared/guest", "acme/urgent"
LABELS = 'labels: {zone: lab, either: "yes"}'
#: A stage gains 100 points a second, and may preempt only stages that are less urgent by more than a point.
AGED = f'{LABELS}\n    queues: {{"*": {{aging_per_s: 100}}}}\n    preemption: {{threshold: 1}}'
FOLLOWED = StageSettings(preemption=PreemptionLimits(threshold=MICROS), queues={"*": QueueRules(aging_per_s=100 * MICROS)})


@pytest.fixture(scope="module")
def lab_driver(http_federation: HttpFederation) -> Iterator[None]:
    """This process as a driver of the cluster of `lab`."""
    with driving(http_federation.lab.cluster):
        yield


def rack() -> str:
    return str(ray.get_runtime_context().get_node_labels()["rack"])


def meet(folder: str, place: int, count: int) -> str:
    """Return the rack of this task once so many tasks run."""
    Path(folder, str(place)).touch()
    while len(list(Path(folder).iterdir())) < count:
        time.sleep(0.01)
    return rack()


def hold(folder: str, name: str) -> str | None:
    """Log each attempt, wait for the file that lets this node go, and return the id of its placement group."""
    with Path(folder, name).open("a") as file:
        file.write("x")
    while not Path(folder, f"{name}.go").exists():
        time.sleep(0.01)
    group = ray.util.get_current_placement_group()
    return None if group is None else str(group.id.hex())


def held(folder: Path, name: str, labels: dict[str, str] = LAB, **options: Any) -> Node:
    node: Node = dag.task(hold, labels=labels, name=name, num_cpus=1, **options).bind(str(folder), name)
    return node


def begun(folder: Path, *names: str) -> None:
    """Wait until these nodes, and no others, have begun."""

    def look() -> None:
        assert {path.name for path in folder.iterdir() if not path.suffix} == set(names)

    eventually(look)


def let_go(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.go").touch()


def attempts(folder: Path, name: str) -> int:
    return len((folder / name).read_text())


def lab_seen(client: Client) -> MeshEntry:
    """Return the mesh as HTTP shows it."""
    (entry,) = [one for one in client.ask("/v1/meshes")["meshes"] if one["mesh"] == "lab"]
    return MeshEntry.model_validate(entry)


def test_policies_and_plugins_choose_the_nodes(http_client: Client, tmp_path: Path) -> None:
    def fan(policy: str, count: int) -> Run:
        (tmp_path / policy).mkdir()
        task = dag.task(meet, labels=LAB, num_cpus=0.1)
        slots = {str(place): task.bind(str(tmp_path / policy), place, count) for place in range(count)}
        return submit(http_client, slots, tenant=f"acme/{policy}")

    spread = fan("spread", 3).result(LIMIT_S)  # It counts the reserved group too, so two might meet on the other node.
    assert set(spread.values()) == {"a", "b"}
    runs = {policy: fan(policy, 2) for policy in ("python", "wasm", "sum", "broken")}
    racks = {policy: sorted(run.result(LIMIT_S).values()) for policy, run in runs.items()}
    assert len(racks.pop("broken")) == 2
    assert racks == {"python": ["a", "a"], "wasm": ["a", "a"], "sum": ["a", "a"]}

    def fenced() -> None:
        reasons = {one.plugin: one.fenced for one in lab_seen(http_client).plugins}
        assert reasons == {"near_full_gpu": {}, "gpu_last": {}, "broken": {"score": "raised OSError: the model is gone"}}

    eventually(fenced)


@pytest.mark.usefixtures("lab_driver")
def test_s7_urgent_work_takes_the_reserved_group(http_client: Client, tmp_path: Path) -> None:
    def counted(in_use: int, idle: int) -> None:
        (groups,) = [pool.groups for pool in lab_seen(http_client).pools if pool.pool == "urgent"]
        assert groups is not None
        assert (groups.reserved, groups.in_use, groups.idle) == (1, in_use, idle)

    def of_urgent(name: str, priority: int) -> Run:
        return submit(http_client, held(tmp_path, name, priority=priority), tenant=URGENT)

    eventually(lambda: counted(in_use=0, idle=1))
    ordinary = of_urgent("ordinary", 0)
    begun(tmp_path, "ordinary")
    waiting = of_urgent("waiting", 0)
    assert wait_for(waiting, lambda event: event.reason is Reason.CAPACITY_RESERVED).mesh == "lab"
    before = {row["placement_group_id"] for row in placement_group_table().values() if row["state"] == "CREATED"}
    urgent = of_urgent("urgent", 8)
    begun(tmp_path, "ordinary", "urgent")
    eventually(lambda: counted(in_use=1, idle=0))
    let_go(tmp_path, "urgent")
    reserved = urgent.result(LIMIT_S)
    assert reserved in before
    again = of_urgent("again", 8)
    let_go(tmp_path, "again", "ordinary", "waiting")
    assert again.result(LIMIT_S) == reserved
    assert reserved not in (ordinary.result(LIMIT_S), waiting.result(LIMIT_S))


def look_around() -> tuple[list[str], list[str]]:
    """Return the node of each bundle of this node's group, and the nodes of tasks that it starts in each."""
    group = ray.util.get_current_placement_group()
    assert group is not None
    nodes = ray.util.placement_group_table(group)["bundles_to_node_id"]

    def node() -> str:
        return str(ray.get_runtime_context().get_node_id())

    places = (PlacementGroupSchedulingStrategy(group, index) for index in range(group.bundle_count))
    ran = ray.get([ray.remote(node).options(scheduling_strategy=place, num_cpus=1).remote() for place in places])
    return [nodes[key] for key in sorted(nodes)], ran


@pytest.mark.usefixtures("lab_driver")
def test_s41_a_gang_starts_whole_on_two_nodes_or_waits(http_client: Client, tmp_path: Path) -> None:
    single = submit(http_client, held(tmp_path, "single"))
    begun(tmp_path, "single")
    gang = submit(http_client, dag.gang(look_around, size=2, strategy="STRICT_SPREAD", labels=LAB).bind())
    waits = wait_for(gang, lambda event: "2 bundles of 1 cpu each" in event.detail)
    assert (waits.mesh, waits.reason) == ("lab", Reason.POOL_BUSY)
    let_go(tmp_path, "single")
    bundles, ran = gang.result(LIMIT_S)
    assert ran == bundles
    assert set(bundles) == {row["NodeID"] for row in ray.nodes() if row["Alive"]}
    assert single.result(LIMIT_S)


def test_s41_a_gang_that_no_mesh_can_hold_is_refused(http_client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        submit(http_client, dag.gang(look_around, size=3, strategy="STRICT_SPREAD", num_cpus=0.5).bind())
    assert refused.value.code == "no_mesh_fits"
    words = "needs 3 bundles of 0.5 cpu each on nodes of their own, and its nodes hold {} of them when empty"
    problems = " ".join(problem for _, problem in refused.value.problems)
    assert all(f"{mesh}: {words.format(nodes)}" in problems for mesh, nodes in (("east", 2), ("lab", 2), ("west", 1)))


def test_s41_a_stage_grows_and_shrinks_with_quota_elsewhere(http_client: Client, tmp_path: Path) -> None:
    mine = submit(http_client, held(tmp_path, "mine", EAST), tenant=OWNER)
    begun(tmp_path, "mine")
    fan = submit(http_client, {name: held(tmp_path, name) for name in ("a", "b")}, tenant=GUEST)  # One CPU is left to borrow.
    begun(tmp_path, "mine", "a")
    let_go(tmp_path, "mine")
    begun(tmp_path, "mine", "a", "b")
    assert wait_for(fan, lambda event: "2 slots instead of 1" in event.detail).mesh == "lab"
    claimed = submit(http_client, held(tmp_path, "claimed", EAST), tenant=OWNER)
    begun(tmp_path, "mine", "a", "b", "claimed")
    reclaimed = wait_for(fan, lambda event: event.reason is Reason.QUOTA_RECLAIMED)
    assert (reclaimed.kind, reclaimed.detail) == ("node", "its slot went back")
    assert wait_for(fan, lambda event: "1 slot instead of 2" in event.detail).mesh == "lab"
    let_go(tmp_path, "claimed", "a", "b")
    assert all(fan.result(LIMIT_S).values())
    assert claimed.result(LIMIT_S)
    assert mine.result(LIMIT_S)
    assert not [event for event in fan.events() if event.kind == "stage" and event.after in ("STOPPED", "LOST")]


def test_s41_idle_slots_of_a_stage_serve_others(http_client: Client, tmp_path: Path) -> None:
    fan = submit(http_client, {name: held(tmp_path, name) for name in ("a", "b")})
    begun(tmp_path, "a", "b")
    let_go(tmp_path, "a")
    later = submit(http_client, held(tmp_path, "later"))
    begun(tmp_path, "a", "b", "later")  # In the room of `a`, while `b` still runs.
    let_go(tmp_path, "b", "later")
    assert all(fan.result(LIMIT_S).values())
    assert later.result(LIMIT_S)


@pytest.fixture
def apply(
    http_federation: HttpFederation, http_stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], str]]:
    """Return a function that applies a file and returns the output; the mesh has its first settings again afterwards."""
    file, folder = tmp_path / "changed.yaml", http_federation.stack.folder.path

    def applied(text: str) -> str:
        file.write_text(text, encoding="utf-8")
        code = run_command(["apply", str(file), "--state-dir", str(folder)])
        output = "".join(capsys.readouterr())
        assert code == 0, output
        return output

    yield applied
    applied(http_federation.config)
    eventually(lambda: follows(http_stores, DEFAULT_SETTINGS))


def follows(stores: Stores, settings: StageSettings) -> None:
    reported = {view.record.mesh: view.record.settings for view in stores.ledger.snapshot().meshes}
    assert reported[MeshId("lab")] == settings


def test_a_joined_mesh_follows_applied_queues_and_limits(
    http_federation: HttpFederation, http_client: Client, http_stores: Stores, apply: Callable[[str], str], tmp_path: Path
) -> None:
    def waiting(*runs: Run) -> None:
        listed = sorted(http_client.ask("/v1/queues/acme")["waiting"], key=lambda line: line["position"])
        assert [(line["run"], line["position"]) for line in listed] == [(run.id, number) for number, run in enumerate(runs, 1)]

    full = [submit(http_client, held(tmp_path, name, priority=5)) for name in ("first", "second")]
    begun(tmp_path, "first", "second")
    earlier = submit(http_client, held(tmp_path, "earlier", priority=0))
    eventually(lambda: waiting(earlier))
    later = submit(http_client, held(tmp_path, "later", priority=1))
    eventually(lambda: waiting(later, earlier))
    output = apply(http_federation.config.replace(LABELS, AGED))
    assert "mesh lab: preemption.threshold: not set → 1\n" in output
    assert "mesh lab: queues.*.aging_per_s: not set → 100\n" in output
    eventually(lambda: follows(http_stores, FOLLOWED))
    eventually(lambda: waiting(earlier, later))
    let_go(tmp_path, "first")
    begun(tmp_path, "first", "second", "earlier")
    let_go(tmp_path, "second", "earlier", "later")
    assert all(run.result(LIMIT_S) for run in (*full, earlier, later))


class Left:
    """Actor that a node leaves behind."""

    def ping(self) -> str:
        return "here"


def litter() -> str:
    """Leave a detached actor behind, and return what it says."""
    left = ray.remote(Left).options(name="left", namespace="litter", lifetime="detached", num_cpus=0).remote()
    return str(ray.get(left.ping.remote()))


def spread_out() -> str:
    """Start a task outside the placement group of this node."""
    return str(ray.get(ray.remote(rack).options(scheduling_strategy="SPREAD", num_cpus=1).remote()))


@pytest.mark.usefixtures("lab_driver")
def test_what_a_node_leaves_in_ray_goes_with_its_stage(http_client: Client) -> None:
    def gone() -> None:
        assert {"name": "left", "namespace": "litter"} not in ray.util.list_named_actors(all_namespaces=True)

    run = submit(http_client, dag.task(litter, labels=LAB).bind())
    assert run.result(LIMIT_S) == "here"
    eventually(gone)


def test_work_outside_the_group_of_its_node_is_refused(http_client: Client) -> None:
    run = submit(http_client, dag.task(spread_out, labels=LAB, max_retries=2).bind())
    with pytest.raises(RunFailed, match="placement group"):
        run.result(LIMIT_S)
    failed = [(event.mesh, event.attempt, event.reason) for event in run.events() if event.kind == "node" and event.after == "FAILED"]
    assert failed == [("lab", 1, Reason.OUTSIDE_GROUP)]
    eventually(lambda: _assert_counted(http_client))


def _assert_counted(client: Client) -> None:
    assert lab_seen(client).outside_group >= 1
