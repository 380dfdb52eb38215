"""`python -m serve_apps.states_docs FILE` writes the page about states, from the tables that the code runs on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from dag.run.retrying import RETRY_RULES
from dag.run.states import NODE_TRANSITIONS, RUN_TRANSITIONS, SHOWN_FOR_PLANNED, STAGE_TRANSITIONS, NodeState, RunState, StageState
from mesh.core.task_spec import TRANSITIONS, TaskState
from mesh.jobs.states import MEMBER_TRANSITIONS, SCHEDULE_TRANSITIONS, MemberState, ScheduleState, Stage
from mesh.jobs.states import STAGE_TRANSITIONS as JOB_TRANSITIONS
from serve_apps.codes.member_docs import meanings

S = TypeVar("S", bound=Enum)

_INTRO = """\
# States

A federation splits a run into stages, and a stage holds nodes. A [local mesh](mesh/README.md) has tasks, and jobs with their members. Each
has its own state machine. `make docs` writes this page from `dag/run/states.py`, `mesh/core/task_spec.py` and `mesh/jobs/states.py`, which
the state machines use. [Codes](codes.md) has the reasons. A transition that is not listed here raises `IllegalTransition`.
"""

_SHOWN = """\
A planned run is stored as `RUNNING`. Commands, HTTP, Python and metrics show it as `WAITING` or `BLOCKED` while
none of its stages runs. The difference between the two is that of the [reasons](codes.md#reasons) that pass and those that hold.
"""

_ATTEMPTS = f"""\
These are the transitions within one attempt. A new attempt begins at `WAITING`, whatever the state before: after an error of the function
while `retries` are left, and after the loss of a mesh, a worker or a value. A failed node waits before its next attempt
([dispatch](dispatch.md#trying-again)). A node that is lost more than {RETRY_RULES.losses_max} times fails, and a node during which
{RETRY_RULES.kills_max} workers have died is poison. Losses to others' quota (`QUOTA_RECLAIMED`) and to more urgent work of its own tenant
(`PREEMPTED_WITHIN_TENANT`) are not counted. A node that waits longer than its tenant's `max_wait` fails (`WAITED_TOO_LONG`).
Stages are not repeated: the nodes of a lost stage join new stages.
"""

_TASKS = """\
The names are those of Ray's own queues, with `PREEMPTED` and the ends added. A preempted task, or one whose agent was lost and that may
start again, returns to `PLACEABLE`, at its former position in the queue.
"""

_JOBS = """\
A job has two states at once: its stage, and how much of it is placed. Each member, the leader or a worker, has its own state.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join(
        (
            _INTRO,
            *_table("Runs", RunState, RUN_TRANSITIONS),
            *_shown_states(),
            *_table("Stages", StageState, STAGE_TRANSITIONS),
            *_table("Nodes", NodeState, NODE_TRANSITIONS),
            _ATTEMPTS,
            *_table("Tasks of a mesh", TaskState, TRANSITIONS, begins=(TaskState.PLACEABLE, TaskState.DRIVER)),
            _TASKS,
            *_table("Jobs", Stage, JOB_TRANSITIONS),
            *_table("Schedule states of jobs", ScheduleState, SCHEDULE_TRANSITIONS),
            *_table("Members of jobs", MemberState, MEMBER_TRANSITIONS),
            _JOBS,
        )
    )


def _table(title: str, kind: type[S], moves: Mapping[S, frozenset[S]], *, begins: tuple[S, ...] = ()) -> Iterator[str]:
    """Return one section: the diagram, and the table of all transitions. `begins`: the initial states, if not only the first state."""
    described = meanings(kind)
    yield f"## {title}\n"
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield from (f"    [*] --> {state.value}" for state in begins or (next(iter(kind)),))
    for state in (state for state in kind if state in moves):
        yield from (f"    {state.value} --> {after.value}" for after in kind if after in moves[state])
        if not moves[state]:
            yield f"    {state.value} --> [*]"
    yield "```\n"
    yield "| state | meaning | may become |"
    yield "| --- | --- | --- |"
    for state in (state for state in kind if state in moves):
        after = ", ".join(f"`{other.value}`" for other in kind if other in moves[state]) or "nothing: this is an end"
        yield f"| `{state.value}` | {described[state.name]} | {after} |"
    yield ""


def _shown_states() -> Iterator[str]:
    described = meanings(RunState)
    yield _SHOWN
    yield from (f"- `{state.value}`: {described[state.name]}" for state in RunState if state in SHOWN_FOR_PLANNED)
    yield ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
