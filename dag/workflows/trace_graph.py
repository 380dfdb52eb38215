"""A workflow's trace as a graph that runs: each task sleeps its scaled run time, reads its input files as values and writes its outputs.

A task's value is `[files, account]`: the bytes of its output files, and sums of what was read and written so far. Each account goes on to
one reader only, so the account of the last node counts every task and every file exactly once. `expected_account` computes the same
sums from the file, and a difference names what was lost. Files that no task before a reader writes are made by the reader itself.

The function is passed in as bytes; `trace_task.py` beside the commands has it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from dag.spec.checks import NAME
from dag.spec.forms import sha256_of
from dag.workflows.wfformat import Workflow

#: Name of the node that adds up the accounts; the run's output.
ACCOUNT = "account"
#: Accounts that one adding node reads.
ARITY = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:\[\]-]")
_NAME_CHARS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceScale:
    """Scale of a replay."""

    time: float = 1.0
    bytes: float = 1.0
    burn: bool = False  #: Tasks compute for their time instead of sleeping.
    num_cpus: float = 1.0

    def run_s(self, run_s: float) -> float:
        """Return the scaled run time of a task, in seconds."""
        return run_s * self.time

    def size_bytes(self, size_bytes: int) -> int:
        """Return the scaled size of a file."""
        return round(size_bytes * self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sums over all tasks."""

    tasks: int = 0
    files_read: int = 0  #: Files that tasks before the reader wrote, once per reader.
    bytes_read: int = 0
    files_made: int = 0  #: Input files that no task writes.
    bytes_made: int = 0
    files_written: int = 0
    bytes_written: int = 0
    checks: int = 0  #: Sum of the checks of all tasks, files and sizes.


def expected_account(workflow: Workflow, scale: TraceScale) -> Account:
    """Return the sums that a complete replay has."""
    read = [(file, reader) for file, _, reader in workflow.values()]
    known = set(read)
    made = [(file, number) for number, task in enumerate(workflow.tasks) for file in task.reads if (file, number) not in known]
    written = [(file, number) for number, task in enumerate(workflow.tasks) for file in task.writes]

    def total(files: Sequence[tuple[str, int]]) -> int:
        return sum(scale.size_bytes(workflow.sizes[file]) for file, _ in files)

    checks = sum(check_of(task.id) for task in workflow.tasks)
    checks += sum(check_of(file) + scale.size_bytes(workflow.sizes[file]) for file, _ in (*read, *written))
    return Account(
        tasks=len(workflow.tasks),
        files_read=len(read),
        bytes_read=total(read),
        files_made=len(made),
        bytes_made=total(made),
        files_written=len(written),
        bytes_written=total(written),
        checks=checks,
    )


def check_of(name: str) -> int:
    """Return a number for a task or a file."""
    return crc32(name.encode())


def trace_spec(workflow: Workflow, scale: TraceScale, function: bytes, *, run_id: str | None, tenant: str | None) -> dict[str, Any]:
    """Return the graph of a replay in its wire form, `dag/1`.

    Args:
        function: The pickled function of all nodes.
    """
    names = _names(workflow)
    sha256 = sha256_of(function)
    files_from: list[dict[int, list[int]]] = [{} for _ in workflow.tasks]
    place_of = {(number, file): at for number, task in enumerate(workflow.tasks) for at, file in enumerate(task.writes)}
    for file, writer, reader in workflow.values():
        files_from[reader].setdefault(writer, []).append(place_of[writer, file])
    is_passed = [False] * len(workflow.tasks)  #: Whether a reader has the task's account already.
    nodes: dict[str, Any] = {}
    for number in workflow.order:
        task, sources = workflow.tasks[number], files_from[number]
        taken = {source for source in sources if not is_passed[source]}
        for source in taken:
            is_passed[source] = True
        known = {workflow.tasks[source].writes[at] for source, places in sources.items() for at in places}
        made = [scale.size_bytes(workflow.sizes[file]) for file in task.reads if file not in known]
        work = {
            "id": check_of(task.id),
            "run_s": scale.run_s(task.run_s),
            "burn": scale.burn,
            "reads": list(sources.values()),
            "accounts": [source in taken for source in sources],
            "made": [len(made), sum(made)],
            "writes": [[check_of(file), scale.size_bytes(workflow.sizes[file])] for file in task.writes],
        }
        options = {"num_cpus": scale.num_cpus, **({"labels": dict(task.labels)} if task.labels else {})}
        after = [names[need] for need in task.needs if need not in sources]
        nodes[names[number]] = {
            "function": {"$blob": sha256},
            "args": [work, *({"$ref": names[source]} for source in sources)],
            "options": options,
            **({"after": after} if after else {}),
        }
    last = _added_up([names[number] for number in workflow.order if not is_passed[number]], nodes, sha256, scale)
    spec: dict[str, Any] = {
        "spec": "dag/1",
        "nodes": nodes,
        "outputs": {ACCOUNT: {"$ref": last, "path": [1]}},
        "blobs": {sha256: base64.b64encode(function).decode()},
    }
    return {**spec, **({"id": run_id} if run_id else {}), **({"tenant": tenant} if tenant else {})}


def _added_up(ends: list[str], nodes: dict[str, Any], sha256: str, scale: TraceScale) -> str:
    """Add nodes that add up the accounts of the last tasks, `ARITY` at once; return the name of the last one."""
    number = 0
    while True:
        groups = [ends[at : at + ARITY] for at in range(0, len(ends), ARITY)] or [[]]
        ends = []
        for group in groups:
            number += 1
            name = f"_{ACCOUNT}_{number}"
            work = {"accounts": [True] * len(group), "reads": [[]] * len(group)}
            args = [work, *({"$ref": one} for one in group)]
            nodes[name] = {"function": {"$blob": sha256}, "args": args, "options": {"num_cpus": scale.num_cpus}}
            ends.append(name)
        if len(ends) == 1:
            return ends[0]


def _names(workflow: Workflow) -> list[str]:
    """Return a valid name for the node of each task: its id, or what is valid of it with its number."""
    return [
        task.id
        if NAME.fullmatch(task.id) and not task.id.startswith(f"_{ACCOUNT}_")
        else f"t{number}_{_NOT_IN_NAMES.sub('-', task.id)[:_NAME_CHARS_MAX]}"
        for number, task in enumerate(workflow.tasks)
    ]
