"""The example's learner and actors find the best machine, in threads, and its job is what the mesh's reader takes."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
import yaml

from examples.jobs.bandit import WIN_RATES, Actor, Counts, Learner
from examples.jobs.run import main
from mesh.jobs.form import read_job
from mesh.jobs.members import Member, environment
from mesh.jobs.spec import BasicPolicy, CleanPolicy

JOB = Path(__file__).parents[3] / "examples" / "jobs" / "bandit.yaml"


@pytest.fixture
def spec():
    return read_job(yaml.safe_load(JOB.read_text(encoding="utf-8")))


def actor(spec, index, address, monkeypatch):
    """One that finds in its environment what the mesh puts there."""
    for name, value in environment(spec, Member("actors", index), address).items():
        monkeypatch.setenv(name, value)
    return Actor()


class Together:
    """Chance that begins when both actors play: however late one starts, the learner has not ended by then."""

    def __init__(self, random_stream, both_play):
        self._random_stream, self._both_play = random_stream, both_play

    def random(self):
        if self._both_play is not None:
            self._both_play.wait()
            self._both_play = None
        return self._random_stream.random()


def test_the_job_says_what_its_comments_say(spec):
    assert (spec.job, spec.workers_num, spec.workers_needed, spec.restart_limit) == ("bandit", 4, 2, 3)
    assert (spec.clean_pod_policy, spec.basic_policy) == (CleanPolicy.ALL, BasicPolicy.LEADER_FIRST)


def test_the_learner_finds_the_machine_that_pays_best(spec, monkeypatch):
    learner = Learner(plays=2_000)
    actors = [actor(spec, index, f"127.0.0.1:{learner.address.rpartition(':')[2]}", monkeypatch) for index in range(2)]
    both_play = threading.Barrier(2, timeout=60)
    for each in actors:
        each.random = Together(each.random, both_play)
    played = {}
    threads = [threading.Thread(target=lambda each=each: played.update({each.rank: each.run()}), daemon=True) for each in actors]
    for thread in threads:
        thread.start()
    report = learner.run()
    for thread in threads:
        thread.join()
    assert report["best"] == WIN_RATES.index(max(WIN_RATES))
    assert report["plays"] >= 2_000
    assert set(report["plays_by_rank"]) <= set(played) == {"1", "2"}
    assert played == learner.counts.by_rank  # Work under way at the end is counted after it.


def test_an_actor_fails_when_its_learner_hangs_up(spec, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as client:
        lost = actor(spec, 0, f"127.0.0.1:{client.getsockname()[1]}", monkeypatch)

        def answer_and_hang_up():
            client.accept()[0].close()

        hang_up = threading.Thread(target=answer_and_hang_up, daemon=True)
        hang_up.start()
        with pytest.raises(ConnectionError):
            lost.run()
        hang_up.join()


def test_every_machine_is_tried_before_one_is_liked():
    counts = Counts(3, 100)
    seen = []
    for _ in range(3):
        machine = counts.next_machine()
        seen.append(machine)
        counts.add("1", machine, won=False)
    assert sorted(seen) == [0, 1, 2]


def test_the_program_tells_how_it_is_started(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "--address" in capsys.readouterr().out
