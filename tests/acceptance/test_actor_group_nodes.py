"""Actor groups as nodes, over two real Ray clusters."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from federation_bed import LIMIT_S, all_gone, eventually

import dag
from dag.errors import RunCancelled, RunFailed
from dag.store.remote import Client, Run
from mesh import PerRank

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]


class Scorer:
    """Keeps what it was called with; leaves a file for its process."""

    def __init__(self, folder: str, name: str = "") -> None:
        self.folder, self.name, self.seen = Path(folder), name, list[Any]()
        (self.folder / f"{name} {os.getpid()}").touch()

    def load(self, path: str) -> str:
        self.seen.append(path)
        return self.name

    def score(self, values: list[int]) -> list[int]:
        self.seen.append(values)
        return [value * value for value in values]

    def answer(self, question: str) -> tuple[str, str]:
        self.seen.append(question)
        return self.name, question

    def history(self) -> list[Any]:
        return self.seen

    def die(self, marker: str) -> None:
        if self.name == "b" and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def say(self, word: str) -> None:
        print(f"{self.name} says {word}")  # noqa: T201  its output is looked for
        if word == "no":
            raise ValueError(word)

    def hang(self) -> None:
        time.sleep(600)


def submitted(client: Client, outputs: Any, **given: Any) -> Run:
    return client.submit(outputs, by_value=(sys.modules[__name__],), **given)


def group(folder: Path, **options: Any) -> Any:
    return dag.actor_group(Scorer, size=2, num_cpus=0.5, **options).bind(str(folder), PerRank(["a", "b"]))


def test_calls_reach_all_members_one_or_each_with_its_share(client: Client, tmp_path: Path) -> None:
    scorers = group(tmp_path, labels={"zone": "west"})
    numbers = dag.task(sorted, labels={"zone": "east"}).bind(range(5))
    outputs = {
        "loaded": scorers.all().load.bind("m"),
        "scores": scorers.shard().score.bind(numbers),
        "sum": scorers.shard(dispatch_fn="broadcast", collect_fn="first").score.bind([3]),
        "first": scorers.choose("round_robin").answer.bind("?"),
        "second": scorers.choose("round_robin").answer.bind("!"),
        "history": scorers.all().history.bind(),
    }
    found = submitted(client, outputs).result(LIMIT_S)
    assert found["loaded"] == ["a", "b"]
    assert (found["scores"], found["sum"]) == ([0, 1, 4, 9, 16], [9])
    assert {found["first"], found["second"]} == {("a", "?"), ("b", "!")}
    assert found["history"] == [["m", [0, 1, 2], [3], "?"], ["m", [3, 4], [3], "!"]]
    eventually(lambda: all_gone(tmp_path))


def test_a_dead_member_is_a_lost_worker(client: Client, tmp_path: Path) -> None:
    (tmp_path / "members").mkdir()
    outputs = group(tmp_path / "members").all().die.bind(str(tmp_path / "marker"))
    run = submitted(client, outputs)
    with pytest.raises(RunFailed):
        run.result(LIMIT_S)
    assert [failure["reason"] for failure in client.ask(run.path)["failures"]] == ["WORKER_LOST"]


def test_a_group_with_retries_is_made_anew(client: Client, tmp_path: Path) -> None:
    members = tmp_path / "members"
    members.mkdir()
    scorers = group(members, retries=1)
    scorers.all().die.bind(str(tmp_path / "marker"))
    assert submitted(client, scorers.all().load.bind("m")).result(LIMIT_S) == ["a", "b"]
    assert sorted(path.name.partition(" ")[0] for path in members.iterdir()) == ["a", "a", "b", "b"]


def test_a_failed_group_leaves_the_lines_of_all_members(client: Client, tmp_path: Path) -> None:
    made = group(tmp_path)
    run = submitted(client, [made.all().say.bind(word) for word in ("yes", "no")])
    with pytest.raises(RunFailed):
        run.result(timeout=LIMIT_S)
    assert sorted(map(str, run.logs())) == ["rank-0: a says no", "rank-0: a says yes", "rank-1: b says no", "rank-1: b says yes"]


def test_a_cancel_ends_all_members(client: Client, tmp_path: Path) -> None:
    run = submitted(client, group(tmp_path).all().hang.bind())
    eventually(lambda: has_members(tmp_path))
    run.cancel("enough")
    with pytest.raises(RunCancelled):
        run.result(LIMIT_S)
    eventually(lambda: all_gone(tmp_path))


def has_members(folder: Path) -> None:
    assert len(list(folder.iterdir())) == 2
