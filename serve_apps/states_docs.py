"""`python -m serve_apps.states_docs FILE` writes the page about states and reasons, from the tables that the code runs on."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from dag.retrying import RETRY_RULES
from dag.states import NODE_TRANSITIONS, RUN_TRANSITIONS, STAGE_TRANSITIONS, NodeState, RunState, StageState
from mesh.jobs.states import MEMBER_TRANSITIONS, SCHEDULE_TRANSITIONS, MemberState, ScheduleState, Stage
from mesh.jobs.states import STAGE_TRANSITIONS as JOB_TRANSITIONS
from mesh.reasons import PASSING, Reason
from mesh.scheduling.tasks import TRANSITIONS, TaskState

S = TypeVar("S", bound=Enum)

_INTRO = """\
# States and reasons

A federation splits a run into stages; a stage holds nodes. A [local mesh](mesh/README.md) has tasks, and jobs with their members. Each
moves along its own table. This page is written by `make docs` from `dag/states.py`, `mesh/scheduling/tasks.py`, `mesh/jobs/states.py` and
`mesh/reasons.py`, which the machines themselves read: a move that is not here raises `IllegalTransition`.
"""

_ATTEMPTS = f"""\
These are the moves within one attempt. A new attempt begins at `WAITING`, whatever the state before: after an error of the function
while `retries` are left, and after the loss of a mesh, a worker or a value. What failed by itself waits first
([dispatch](dispatch.md#trying-again)). A node that is lost more than {RETRY_RULES.losses_max} times fails, and one under which
{RETRY_RULES.kills_max} workers have died is poison; losses to others' quota (`QUOTA_RECLAIMED`) and to more urgent work of its own tenant
(`LOWER_IN_QUEUE`) are not counted. One that waits longer than its tenant's `max_wait` fails (`WAITED_TOO_LONG`).
Stages are not repeated: the nodes of one that was lost become part of new ones.
"""

_TASKS = """\
The names are those of Ray's own queues, with `PREEMPTED` and the ends added. A task that gave way, or whose agent was lost and may be
started again, goes back to `PLACEABLE`, at the place in the queue that it had.
"""

_JOBS = """\
A job has two states at once: its stage, and how much of it has a place. Each member, the leader or one worker, has its own.
"""

_REASONS = """\
## Reasons

Whatever waits, was refused or failed carries one of these words, and whatever was placed tells by one of them why there. One that passes
is lifted by a later event, without anybody's doing; the others hold until somebody changes the work or the configuration.

| reason | passes | meaning |
| --- | --- | --- |"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join(
        (
            _INTRO,
            *_table("Runs", RunState, RUN_TRANSITIONS),
            *_table("Stages", StageState, STAGE_TRANSITIONS),
            *_table("Nodes", NodeState, NODE_TRANSITIONS),
            _ATTEMPTS,
            *_table("Tasks of a mesh", TaskState, TRANSITIONS, begins=(TaskState.PLACEABLE, TaskState.DRIVER)),
            _TASKS,
            *_table("Jobs", Stage, JOB_TRANSITIONS),
            *_table("Schedule states of jobs", ScheduleState, SCHEDULE_TRANSITIONS),
            *_table("Members of jobs", MemberState, MEMBER_TRANSITIONS),
            _JOBS,
            *_reasons(),
            "",
        )
    )


def meanings(kind: type[Enum]) -> dict[str, str]:
    """The words that stand below each member in the source; Python itself forgets them."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101  `kind` is a class; the type of a statement is wider
    told: dict[str, str] = {}
    for member, words in zip(body.body, body.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name) and isinstance(words, ast.Expr):
            told[member.targets[0].id] = str(ast.literal_eval(words.value))
    return told


def _table(title: str, kind: type[S], moves: Mapping[S, frozenset[S]], *, begins: tuple[S, ...] = ()) -> Iterator[str]:
    """One section: the picture, and the table with every move. `begins`: where a story begins, if not at the first state only."""
    told = meanings(kind)
    yield f"## {title}\n"
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield from (f"    [*] --> {state.value}" for state in begins or (next(iter(kind)),))
    for state in kind:
        yield from (f"    {state.value} --> {after.value}" for after in kind if after in moves[state])
        if not moves[state]:
            yield f"    {state.value} --> [*]"
    yield "```\n"
    yield "| state | meaning | may become |"
    yield "| --- | --- | --- |"
    for state in kind:
        after = ", ".join(f"`{other.value}`" for other in kind if other in moves[state]) or "nothing: this is an end"
        yield f"| `{state.value}` | {told[state.name]} | {after} |"
    yield ""


def _reasons() -> Iterator[str]:
    told = meanings(Reason)
    yield _REASONS
    for reason in Reason:
        yield f"| `{reason.value}` | {'yes' if reason in PASSING else ''} | {told[reason.name]} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
