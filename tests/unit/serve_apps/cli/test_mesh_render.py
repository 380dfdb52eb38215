"""Output of `schedulemesh meshes` on terminals of several widths."""

import io

import pytest
from rich.console import Console

from mesh.core.resources import format_units, to_units
from serve_apps.cli.mesh_render import meshes_table
from serve_apps.schemas.meshes import MeshEntry, MeshesView, PluginView, PoolView
from serve_apps.schemas.quantities import Quantity

AT_MS = 1_700_000_090_000
LONG = "montreal-research-cluster-with-a-name-that-is-long"
LABELS = {"zone": "east", "tier": "standard", "accelerator": "nvidia-h100-80gb-hbm3"}


def lines_on(width: int, *meshes: MeshEntry) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(meshes_table(MeshesView(at_ms=AT_MS, meshes=list(meshes))))
    output = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert all(len(line) <= width for line in output)
    return output


def amount(resource: str, value: str) -> Quantity:
    units = to_units(resource, value)
    return Quantity(units=units, amount=0, text=format_units(resource, units))


def a_mesh(name: str = "east", **fields: object) -> MeshEntry:
    capacity = {"cpu": amount("cpu", "64"), "memory": amount("memory", "512GiB"), "gpu": amount("gpu", "8")}
    pool = PoolView(pool="general", flavor="standard", capacity=capacity, used={"cpu": amount("cpu", "1")})
    given: dict[str, object] = {"mesh": name, "alive": True, "draining": False, "heartbeat_age_ms": 300, "last_heard_ms": AT_MS - 300}
    given |= {"labels": {"zone": "east"}, "cluster": "c", "tenants": ["*"], "pools": [pool], "waiting": 0, "running": 0}
    return MeshEntry(**(given | fields))


def words_of(mesh: MeshEntry) -> set[str]:
    """Return all words that must not be broken."""
    pools = {
        f"{name} {pool.used[name].text if name in pool.used else '0'}/{held.text}"
        for pool in mesh.pools
        for name, held in pool.capacity.items()
    }
    return {mesh.mesh, *(f"{name}={value}" for name, value in mesh.labels.items()), *pools, *mesh.drain_reason.split()}


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
@pytest.mark.parametrize("name", ["east", LONG])
def test_no_word_is_broken_whatever_the_width(width, name):
    drained = a_mesh(name, labels=LABELS, draining=True, drain_reason="uninterruptible-power-supplies are changed", waiting=12_345)
    lines = "\n".join(lines_on(width, drained, a_mesh("west", alive=False, heartbeat_age_ms=725_000)))
    for word in words_of(drained):
        assert word in lines
    assert "last heartbeat" in lines


def test_wide_terminal_shows_meshes_as_a_table():
    head, east, *_ = lines_on(160, a_mesh(oldest_waiting_ms=125_000, waiting=3, run_ms=1_500))
    assert head.split() == ["mesh", "state", "heartbeat", "labels", "used/capacity", "queued", "running", "a", "stage"]
    assert east.split() == ["east", "alive", "300ms", "zone=east", "general:", "cpu", "1/64,", "3", "0", "1.5s"]


def test_narrow_terminal_wraps_long_cells_of_small_meshes():
    lines = lines_on(84, a_mesh(labels={"tier": "standard", "zone": "east"}))
    assert lines[1:] == [
        "east  alive      300ms  tier=standard,  general: cpu 1/64,       0        0",
        "                        zone=east       memory 0/512GiB,",
        "                                        gpu 0/8",
    ]


def test_narrow_terminal_gives_each_mesh_its_own_lines():
    lines = lines_on(60, a_mesh(labels=LABELS, oldest_waiting_ms=125_000, waiting=3, run_ms=1_500))
    assert lines == [
        "east  alive",
        "  heartbeat 300ms ago, 3 queued (for 2m05s), 0 running,",
        "  a stage takes 1.5s",
        "  general: cpu 1/64, memory 0/512GiB, gpu 0/8",
        "  accelerator=nvidia-h100-80gb-hbm3, tier=standard,",
        "  zone=east",
    ]


@pytest.mark.parametrize("width", [60, 160])
def test_silent_mesh_shows_its_last_heartbeat_and_process(width):
    silent = a_mesh(alive=False, heartbeat_age_ms=725_000, last_heard_ms=AT_MS - 725_000, pid=4711)
    lines = " ".join(" ".join(lines_on(width, silent)).split())
    for words in ("unreachable", "last heartbeat 12m05s", "22:02:45Z", "process 4711"):
        assert words in lines
    assert "process" not in " ".join(lines_on(width, a_mesh(pid=4711)))


def test_a_mesh_shows_what_keeps_work_away_from_it():
    drained = a_mesh(
        cluster_answers=False,
        waiting_for_ray=2,
        outside_group=3,
        draining=True,
        drain_reason="disks [red]",
        stable=False,
        stable_in_ms=4_200,
    )
    lines = "\n".join(lines_on(160, drained))
    for words in ("no answer from Ray", "2 wait for Ray", "3 left their groups", "draining: disks [red]", "on probation 4.2s"):
        assert words in lines
    assert "alive" not in lines


def test_without_meshes_it_says_so():
    assert lines_on(80) == ["no mesh that this key may use has joined"]


def test_s13_a_disabled_plugin_is_named_with_its_cause():
    plugins = [PluginView(plugin="mine", hooks=[], fenced={"score": "took 80 ms of 50"}), PluginView(plugin="fine", hooks=["score"])]
    shown = " ".join(" ".join(lines_on(60, a_mesh(plugins=plugins))).split())
    assert "alive; score() of plugin mine is disabled: took 80 ms of 50" in shown
    assert "fine" not in shown
