"""The task of a job's node, with processes that a test ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from ray.exceptions import RayActorError

from mesh.errors import JobFailed, JobSpecError
from mesh.jobs.controller import RESTART_PAUSE_MS
from mesh.jobs.gang_form import bundles_of, read_gang_job, smallest_gang
from mesh.jobs.members import Member
from mesh.ray.worker.job_host import Heard, JobHost, is_lost

LEADER, FIRST, SECOND = Member("leader"), Member("actors", 0), Member("actors", 1)
#: A script of a test: each turn gets the processes and returns what became of members.
Turn = Callable[["Processes"], list[Heard]]


class Processes:
    """Processes of members that do as a script says. A killed one that runs is heard of at the next turn."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = list(turns)
        self.log: list[str] = []
        self.env: dict[tuple[Member, int], Mapping[str, str]] = {}
        self.bundles: dict[Member, int] = {}
        self.now_ms = 0
        self._running: set[tuple[Member, int]] = set()
        self._killed: list[Heard] = []

    def start(self, member: Member, attempt: int, bundle: int, env: Mapping[str, str]) -> None:
        self.log.append(f"start {member} {attempt}")
        self.env[member, attempt], self.bundles[member] = env, bundle
        self._running.add((member, attempt))

    def kill(self, member: Member, attempt: int) -> None:
        self.log.append(f"kill {member} {attempt}")
        if (member, attempt) in self._running:
            self._running.discard((member, attempt))
            self._killed.append(Heard(member, attempt, error=RayActorError()))

    def wait(self, wait_s: float | None) -> list[Heard]:
        self.now_ms += int((wait_s or 0) * 1000)
        killed, self._killed = self._killed, []
        assert killed or self.turns or wait_s is not None, f"the job waits for ever after {self.log}"
        found = killed or (self.turns.pop(0)(self) if self.turns else [])
        for heard in found:
            if heard.address is None:
                self._running.discard((heard.member, heard.attempt))
        return found

    def end(self) -> None:
        self.log.append("end")


def up(member: Member, attempt: int = 1, address: str = "") -> Turn:
    return lambda _: [Heard(member, attempt, address=address)]


def returned(member: Member, value: Any = None, attempt: int = 1) -> Turn:
    return lambda _: [Heard(member, attempt, value=(value,))]


def failed(member: Member, attempt: int = 1, error: BaseException | None = None) -> Turn:
    return lambda _: [Heard(member, attempt, error=error or ValueError("no"))]


def run(*turns: Turn, **keys: Any) -> tuple[Any, Processes]:
    processes = Processes(turns)
    return host(processes, **keys).run(), processes


def host(processes: Processes, **keys: Any) -> JobHost:
    spec = read_gang_job({"leader": {"resources": {"cpu": 1}}, "workerSets": [{"name": "actors", "counts": 2, "resources": {"cpu": 0.5}}],
                          "restartLimit": 1, **keys})  # fmt: skip
    gang = smallest_gang(spec, "PACK")
    return JobHost(spec, bundles_of(spec, gang.bundle, gang.size), processes, lambda: processes.now_ms)


def test_workers_start_with_the_address_of_their_leader():
    value, processes = run(up(LEADER, address="tcp://l"), up(FIRST), up(SECOND), returned(LEADER, 7))
    assert value == 7
    assert processes.log[:3] == ["start leader 1", "start actors-0 1", "start actors-1 1"]
    assert processes.bundles == {LEADER: 0, FIRST: 1, SECOND: 1}
    assert processes.env[SECOND, 1] == {
        "SCHEDULEMESH_JOB": "job",
        "SCHEDULEMESH_ROLE": "actors",
        "SCHEDULEMESH_RANK": "2",
        "SCHEDULEMESH_WORLD_SIZE": "3",
        "SCHEDULEMESH_LEADER_ADDRESS": "tcp://l",
    }


def test_members_end_with_their_leader():
    _, processes = run(up(LEADER), up(FIRST), returned(FIRST), up(SECOND), returned(LEADER))
    assert {"kill actors-0 1", "kill actors-1 1", "kill leader 1"} <= set(processes.log)
    assert processes.log[-1] == "end"


def test_a_failed_worker_starts_again():
    _, processes = run(up(LEADER), failed(FIRST), up(FIRST, 2), returned(LEADER))
    assert processes.log.count("start leader 1") == 1
    assert "start actors-0 2" in processes.log


def test_a_failed_leader_restarts_its_workers():
    again = up(LEADER, 2, "b"), up(FIRST, 2), up(SECOND, 2), returned(LEADER, 1, 2)
    value, processes = run(up(LEADER, address="a"), up(FIRST), up(SECOND), failed(LEADER), *again)
    assert value == 1
    assert processes.env[FIRST, 2]["SCHEDULEMESH_LEADER_ADDRESS"] == "b"
    assert {"kill actors-0 1", "kill actors-1 1", "start leader 2"} <= set(processes.log)


def test_a_leader_that_fails_too_often_fails_the_job():
    with pytest.raises(JobFailed, match="RESTART_LIMIT: leader failed 2 times") as error:
        run(failed(LEADER), failed(LEADER, 2, KeyError("last")))
    assert isinstance(error.value.__cause__, KeyError)
    assert not is_lost(error.value)


def test_a_job_whose_members_die_is_lost():
    with pytest.raises(JobFailed) as error:
        run(failed(LEADER, 1, RayActorError()), restartLimit=0)
    assert is_lost(error.value)


def test_too_few_workers_fail_the_job():
    with pytest.raises(JobFailed, match="1 worker is left, and at least 2 needed"):
        run(up(LEADER), failed(FIRST), failed(FIRST, 2), minWorkersNum=2)


def test_a_job_goes_on_with_enough_workers():
    value, processes = run(up(LEADER), up(SECOND), failed(FIRST), failed(FIRST, 2), returned(LEADER, 3))
    assert value == 3
    assert "start actors-0 3" not in processes.log


def test_a_second_restart_waits():
    value, processes = run(up(LEADER), failed(FIRST), failed(FIRST, 2), lambda _: [], returned(LEADER, 1), restartLimit=3)
    assert value == 1
    assert "start actors-0 3" in processes.log
    assert processes.now_ms == RESTART_PAUSE_MS


def test_outdated_ends_are_ignored():
    value, _ = run(up(LEADER), failed(FIRST), failed(FIRST, 1), up(FIRST, 2), returned(LEADER, 2), restartLimit=1, minWorkersNum=2)
    assert value == 2


def test_an_interrupt_ends_all_members():
    def interrupt(_: Processes) -> list[Heard]:
        raise KeyboardInterrupt

    processes = Processes([up(LEADER), interrupt])
    with pytest.raises(KeyboardInterrupt):
        host(processes).run()
    assert processes.log[-1] == "end"


def test_a_job_without_workers_is_its_leader():
    value, processes = run(up(LEADER), returned(LEADER, 5), workerSets=[], minWorkersNum=0)
    assert value == 5
    assert [line for line in processes.log if line.startswith("start")] == ["start leader 1"]


def test_a_job_needs_room_in_its_gang():
    spec = read_gang_job({"leader": {"resources": {"cpu": 2}}, "minWorkersNum": 0})
    with pytest.raises(JobSpecError, match="leader takes"):
        bundles_of(spec, smallest_gang(spec, "PACK").bundle - spec.leader.resources, 1)
