"""Shared resources of test files: started once and ended in time."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sharing import SHARED, Sharing
from source_tree import ROOT

FIRST, SECOND = [file for file, fixture in SHARED.items() if fixture == "two_nodes"][:2]
ELSEWHERE = "tests/test_sharing.py"
#: Fixtures that start something shared.
FIXTURES = re.compile(r"\b(http_stack|http_federation|two_nodes|three_nodes|ray_cluster|ray_driver|runner_log|open_page)\b")


@dataclass(frozen=True, slots=True)
class Item:
    """The part of a test item that sharing reads."""

    nodeid: str


def item_of(file: str) -> Any:
    return Item(f"{file}::test_it")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def starting(log: list[str]) -> Callable[[str], Callable[[], AbstractContextManager[str]]]:
    @contextmanager
    def running(name: str) -> Iterator[str]:
        log.append(f"start {name}")
        yield name
        log.append(f"end {name}")

    return lambda name: lambda: running(name)


def test_resource_of_one_kind_is_started_once(log, starting):
    sharing = Sharing()
    assert [sharing.get("two_nodes", "a", starting("a")) for _ in range(2)] == ["a", "a"]
    assert log == ["start a"]


def test_another_kind_starts_after_the_end_of_the_first(log, starting):
    sharing = Sharing()
    sharing.get("two_nodes", "a", starting("a"))
    sharing.get("two_nodes", "b", starting("b"))
    assert log == ["start a", "end a", "start b"]


@pytest.mark.parametrize(
    ("file", "next_file", "ended"),
    [
        pytest.param(FIRST, FIRST, [], id="the file continues"),
        pytest.param(FIRST, SECOND, [], id="the next file shares it"),
        pytest.param(ELSEWHERE, ELSEWHERE, [], id="a file without shared resources continues"),
        pytest.param(FIRST, ELSEWHERE, ["end a"], id="the next file shares no resource"),
        pytest.param(FIRST, "tests/acceptance/test_reparenting.py", ["end a"], id="the next file shares another resource"),
    ],
)
def test_resource_ends_before_a_file_that_does_not_share_it(log, starting, file, next_file, ended):
    sharing = Sharing()
    sharing.get("two_nodes", "a", starting("a"))
    sharing.close_unused(item_of(file), item_of(next_file))
    assert log[1:] == ended


def test_resource_ends_with_the_last_test(log, starting):
    sharing = Sharing()
    sharing.get("two_nodes", "a", starting("a"))
    sharing.close_unused(item_of(FIRST), None)
    assert log == ["start a", "end a"]


def test_files_on_a_shared_cluster_are_named():
    files = {
        f"tests/{path.parent.name}/{path.name}": path
        for name in ("acceptance", "browser", "integration")
        for path in (ROOT / "tests" / name).glob("test_*")
    }
    users = {file for file, path in files.items() if uses_shared(path.read_text(encoding="utf-8"))}
    assert users - set(SHARED) == set()


def uses_shared(text: str) -> bool:
    """Return whether a test file asks for a shared fixture; a file with a stack of its own has a fixture of that name."""
    return bool(FIXTURES.search(text)) or ("federation_bed" in text and "StackFolder(" not in text)


def test_files_that_share_are_there_and_ask_for_what_they_share():
    assert all((ROOT / file).exists() for file in SHARED)
    assert all("two_nodes" in (ROOT / file).read_text(encoding="utf-8") for file, fixture in SHARED.items() if fixture == "two_nodes")


FORKED_IDS = """
import os, warm_worker

warm_worker.import_all()
from ray._raylet import ObjectID

read, write = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.write(write, ObjectID.from_random().binary())
        os._exit(0)
    os.wait()
first, second = (os.read(read, ObjectID.size()) for _ in range(2))
assert len(first) == ObjectID.size()
assert first != second
"""


def test_forked_workers_draw_ids_of_their_own():
    paths = [str(ROOT), str(ROOT / "tests/warm_workers")]
    lines = [f"import sys; sys.path[:0] = {paths!r}", FORKED_IDS]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True)
