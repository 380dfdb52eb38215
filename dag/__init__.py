"""Graphs: how users write, submit and follow them. This import does not import Ray.

The names below are imported on first use, so that a process which reads one record needs no graph library.

Folders:

    client        how users write graphs: functions, nodes, options
    spec          `dag/1`, the form in which a graph is sent
    run           the run machine: events in, decisions out
    store         runs on Redis and in memory; the Python client
    placement     where and when each node runs: pools of slots, ranks, the planner
    workflows     workflows of other systems, in WfFormat
    drawing       pictures of graphs and runs
    progress      how far a run is: nodes by name, bars, the estimated end
    conformance   cases of planning, and metrics of workflows

Around a run:

    coordinator   the loop between machines, routing and queue        planning     which mesh each node goes to, near its inputs
    starting      limits on the stages that a run may send now        backlog      limits on accepted work that has not ended
    dry_run       where a run would go, without a store               requeueing   runs a dead letter again as a new run
    sharing_out   a run over several meshes, by earliest finish       function_times  times and sizes by function
    parting       order of nodes, and parts of large stages           moving       stages that a dry mesh takes
    placing_together  a whole graph on one mesh, by its columns
    alarms        when runs need a step because of a timer            resuming     resumes a run that failed or was cancelled
    result_cache  values of cached nodes: entries, claims, copies
    removing      removes an ended run before its retention ends
    schedules     runs that start by cron                          webhooks     calls to other services when runs end
    growing       nodes that functions return, before they are added
    stage_timing  waits, run times and preemptions of stages, for metrics

    errors        errors of this layer, below `mesh.errors`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dag.client.actor_groups import actor_group
    from dag.client.actors import Actor, ActorClass, ActorMethod, actor
    from dag.client.arrays import gather, map, reduce, starmap  # noqa: A004  used as `dag.map`
    from dag.client.continuations import continuation
    from dag.client.control_flow import after, cond, sleep, wait_signal
    from dag.client.graph_functions import GraphFunction, graph
    from dag.client.jobs import job
    from dag.client.json_graphs import from_spec, to_networkx, to_spec
    from dag.client.placeholders import Param, Part, param
    from dag.client.tasks import Node, Options, Task, bind, gang, task
    from dag.store.programs import program
    from dag.store.remote import Client, Run, connect, get_run, resume, submit
    from dag.store.schedules import schedule

# fmt: off
__all__ = [
    "Actor", "ActorClass", "ActorMethod", "Client", "GraphFunction", "Node", "Options", "Param", "Part", "Run", "Task", "actor",
    "actor_group", "after", "bind", "cond", "connect", "continuation", "from_spec", "gang", "gather", "get_run", "graph", "job", "map",
    "param", "program", "reduce", "resume", "schedule", "sleep", "starmap", "submit", "task", "to_networkx", "to_spec", "wait_signal",
]
# fmt: on

#: Module to the names that it defines.
_HOMES = {
    "dag.client.actor_groups": ("actor_group",),
    "dag.client.actors": ("Actor", "ActorClass", "ActorMethod", "actor"),
    "dag.client.arrays": ("gather", "map", "reduce", "starmap"),
    "dag.client.continuations": ("continuation",),
    "dag.client.control_flow": ("after", "cond", "sleep", "wait_signal"),
    "dag.client.graph_functions": ("GraphFunction", "graph"),
    "dag.client.json_graphs": ("from_spec", "to_networkx", "to_spec"),
    "dag.client.placeholders": ("Param", "Part", "param"),
    "dag.client.jobs": ("job",),
    "dag.client.tasks": ("Node", "Options", "Task", "bind", "gang", "task"),
    "dag.store.remote": ("Client", "Run", "connect", "get_run", "resume", "submit"),
    "dag.store.programs": ("program",),
    "dag.store.schedules": ("schedule",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dag' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
