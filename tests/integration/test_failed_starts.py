"""Failed starts of a mesh: the reason is reported, and nothing of the start is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest
import ray
from patience import eventually
from supervisors import link_to

import mesh
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.ports import promise_ports
from mesh.ray.local.ray_names import supervisor_name
from mesh.ray.local.services.supervisor import Supervisor
from mesh.ray.local.store.journal_file import JournalFile
from mesh.ray.local.supervision_errors import StartFailed, SupervisorLost
from mesh.ray.local.supervisor.driver import DriverSettings
from mesh.ray.local.supervisor.supervised_mesh import SupervisedMesh
from mesh.ray.local.supervisor.supervisor_options import SupervisorOptions
from mesh.ray.local.verbs import ActorVerbs
from mesh.tasks.journal import JournalError
from mesh.tasks.settings import SchedulerSettings

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_driver")]


class Unreadable(SchedulerSettings):
    """Settings whose module only this process has."""


class Odd(SchedulerSettings):
    """Settings that arrive as another type."""

    def __reduce__(self):
        return str, ("medium",)


def left_in_ray(name):
    return [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True) if actor["name"].startswith(f"schedulemesh:{name}")]


def nothing_is_left(name, folder):
    eventually(lambda: not left_in_ray(name))
    assert not folder.exists()


def test_options_that_the_scheduler_refuses_are_reported(tmp_path):
    with pytest.raises(StartFailed, match="mesh odd cannot be started: AttributeError: 'str' object has no"):
        mesh.ScheduleMesh.start("odd", state_dir=tmp_path / "deep" / "odd", settings=Odd())
    nothing_is_left("odd", tmp_path / "deep")


def test_options_unreadable_at_the_supervisor_are_reported(tmp_path):
    with pytest.raises(StartFailed, match="ModuleNotFoundError: No module named 'test_failed_starts'"):
        mesh.ScheduleMesh.start("unread", state_dir=tmp_path / "unread", settings=Unreadable())
    nothing_is_left("unread", tmp_path / "unread")


def test_an_unusable_state_folder_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeAdapterError, match=r"state_dir .* cannot be used: .*; name a folder on the head node"):
        mesh.ScheduleMesh.start("nowhere", state_dir=tmp_path / "file" / "mesh")
    nothing_is_left("nowhere", tmp_path / "file" / "mesh")


def test_an_unusable_trace_file_is_reported(tmp_path):
    with pytest.raises(RuntimeAdapterError, match=r"traces_file .* cannot be written: .*; name a file"):
        mesh.ScheduleMesh.start("untraced", state_dir=tmp_path / "untraced", traces_file=tmp_path / "nowhere" / "traces")
    nothing_is_left("untraced", tmp_path / "untraced")


def test_a_taken_port_is_reported_until_a_free_one_is_given(tmp_path):
    (port,) = promise_ports(1)  # Outside of the kernel's ephemeral ports, so that it stays free later.
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(RuntimeAdapterError, match="metrics cannot be served"):
            mesh.ScheduleMesh.start("port", state_dir=tmp_path / "port", metrics_port=port)
        nothing_is_left("port", tmp_path / "port")
        mesh.ScheduleMesh.start("port", state_dir=tmp_path / "port", standbys_per_node=0).stop()
        with pytest.raises(RuntimeAdapterError, match="metrics cannot be served"):
            mesh.ScheduleMesh.start("port", state_dir=tmp_path / "port", metrics_port=port)
    eventually(lambda: not left_in_ray("port"))
    with mesh.running_mesh("port", state_dir=tmp_path / "port", metrics_port=port, standbys_per_node=0) as running:
        assert running.status().metrics_port == port


@pytest.mark.parametrize("what", ["journal", pytest.param("snapshot", marks=[pytest.mark.faults, pytest.mark.slow])])
def test_a_damaged_journal_is_reported_and_stays_unchanged(tmp_path, what):
    folder = tmp_path / "damaged"
    options = {"state_dir": folder, "standbys_per_node": 0, "journal_lines_max": 10_000 if what == "journal" else 1}
    started = mesh.ScheduleMesh.start("damaged", **options)
    for capacity in range(1, 4):
        started.ensure_pool("main", capacity={"cpu": capacity})
    started.stop()
    eventually(lambda: not left_in_ray("damaged"))
    (file,) = (folder / "journal").glob(f"{what}-*")
    whole = file.read_bytes()
    file.write_bytes(b"{" + whole)
    with pytest.raises(JournalError, match=rf"{what}-\d+\.json.*restore the file"):
        mesh.ScheduleMesh.start("damaged", **options)
    eventually(lambda: not left_in_ray("damaged"))
    file.write_bytes(whole)
    with mesh.running_mesh("damaged", **options) as running:
        assert [pool.pool for pool in running.list_pools()] == ["main"]


def supervisor_class(name, *, max_restarts=0):
    """The supervisor's actor class, with the place that clients look at."""
    where = {"name": supervisor_name(name), "namespace": "tests", "lifetime": "detached"}
    return Supervisor.options(**where, max_restarts=max_restarts)


def test_a_start_that_fails_with_processes_up_leaves_none(tmp_path):
    class Late(SupervisedMesh):
        async def begin(self):
            await self.watch.look()
            raise OSError(f"the disk is full, and {len(self.agents.processes)} process is up")

    folder = tmp_path / "late"
    options = SupervisorOptions(mesh="late", namespace="tests", state_dir=str(folder))
    supervisor = supervisor_class("late").remote(options, Late)
    attached = mesh.ScheduleMesh("late", namespace="tests")
    with pytest.raises(StartFailed, match="OSError: the disk is full, and 1 process is up"):
        attached.status()
    eventually(lambda: left_in_ray("late") == [supervisor_name("late")])
    assert not folder.exists()
    attached.stop()
    nothing_is_left("late", folder)
    with pytest.raises(SupervisorLost, match="no mesh late runs"):
        attached.status()
    del supervisor


def up(name, folder, assemble=SupervisedMesh, **options):
    """A mesh of these parts. Only a function or a class that another function makes travels whole to the supervisor's process."""
    options = SupervisorOptions(mesh=name, namespace="tests", state_dir=str(folder), driver=DriverSettings(standbys_per_node=1), **options)
    supervisor_class(name, max_restarts=-1).remote(options, assemble)
    return mesh.ScheduleMesh.attach(name, namespace="tests")


def up_until_broken(name, folder, again_s):
    """A mesh that cannot begin while there is a file `broken` in the folder above its own; it leaves one named `tried` then, and makes
    place for the next after `again_s` seconds."""

    class Wavering(SupervisedMesh):
        async def begin(self):
            above = Path(self.options.state_dir).parent
            if (above / "broken").exists():
                (above / "tried").touch()
                raise OSError("a moment's fault")
            await super().begin()

    return up(name, folder, Wavering, again_s=again_s)


def break_down(running, folder):
    """Kill the supervisor's process, and let the next one fail to start."""
    (folder / "broken").touch()
    os.kill(running.status().pid, signal.SIGKILL)
    eventually((folder / "tried").exists)


def test_a_returned_supervisor_starts_again_until_it_can(tmp_path):
    running = up_until_broken("waver", tmp_path / "state", again_s=0.5)
    break_down(running, tmp_path)
    (tmp_path / "broken").unlink()
    assert running.status().incarnation > 2
    running.stop()
    eventually(lambda: not left_in_ray("waver"))


def test_a_returned_supervisor_that_cannot_start_can_be_stopped(tmp_path):
    running = up_until_broken("wreck", tmp_path / "state", again_s=60.0)  # So long that it is there to be stopped.
    break_down(running, tmp_path)
    with pytest.raises(RuntimeAdapterError, match=r"all has ended, but state_dir .* stays: .*a moment's fault"):
        running.stop(forget=True)
    eventually(lambda: not left_in_ray("wreck"))
    assert (tmp_path / "state").exists()


def test_a_mesh_whose_stopper_died_can_be_started_again_at_once(tmp_path):
    options = {"namespace": "tests", "state_dir": tmp_path / "state", "standbys_per_node": 0}
    first = mesh.ScheduleMesh.start("halted", **options)
    link_to(first, "tests").ask(ActorVerbs.stop, forget=False)  # And nobody ends the supervisor.
    JournalFile(tmp_path / "state" / "journal").close()  # It is there, and has let go of its folder.
    assert left_in_ray("halted")
    again = mesh.ScheduleMesh.start("halted", **options)
    assert again.status().incarnation == 2
    again.stop()


def test_a_start_replaces_a_supervisor_that_is_being_ended(tmp_path):
    class Ends:
        def status(self):
            os._exit(1)

    where = {"name": supervisor_name("ends"), "namespace": "tests", "lifetime": "detached"}
    ending = ray.remote(num_cpus=0)(Ends).options(**where).remote()
    with mesh.running_mesh("ends", namespace="tests", state_dir=tmp_path / "state", standbys_per_node=0) as running:
        assert running.status().incarnation == 1
    del ending


def test_a_stopped_supervisor_whose_stopper_died_ends_by_itself(tmp_path):
    running = up("brief", tmp_path / "state", farewell_s=0.5)
    with contextlib.suppress(SupervisorLost):  # It may have ended by the time that its answer is heard.
        link_to(running, "tests").ask(ActorVerbs.stop, forget=False)
    eventually(lambda: not left_in_ray("brief"))


def test_a_failed_supervisor_ends_itself_without_its_starter(tmp_path):
    def touch_and_assemble(options, made, *, is_again):
        Path(options.state_dir).parents[1].joinpath("tried").touch()
        return SupervisedMesh(options, made, is_again=is_again)

    (tmp_path / "file").touch()
    options = SupervisorOptions(mesh="left", namespace="tests", state_dir=str(tmp_path / "file" / "mesh"), farewell_s=0.5)
    supervisor_class("left", max_restarts=-1).remote(options, touch_and_assemble)
    eventually((tmp_path / "tried").exists)
    eventually(lambda: not left_in_ray("left"))
