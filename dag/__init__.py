"""Graphs: how users write, submit and follow them. This import does not import Ray.

On the client's side:

    tasks         `task` wraps a function, `.bind` makes a node       options      options of a task beside its arguments
    writing       functions and arguments to forms and blobs          pickling     bytes that only the tenant's own workers read
    from_ray      Ray's options and values in a user's program

On the wire:

    spec          `dag/1`: the same JSON for Python and for HTTP      strict_json  reads JSON strictly, with all problems
    json_places   line and column of each part of a JSON text         spec_checks  checks of a spec as a whole
    forms         the names in argument forms; parameters filled in   compiling    nodes to a spec; a spec to plans

A run, as values:

    graph         dependencies, order and circles of a graph          stages       the parts that go to meshes, by (mesh, level)
    states        states and transitions of runs, stages and nodes    events       inputs of the run machine
    machine       events in, decisions out; the only writer of a run  steps        the parts of the run machine
    retrying      when a failed node is tried again

Around it:

    coordinator   the loop between machines, routing and queue        planning     which mesh each node goes to, near its inputs
    starting      limits on the stages that a run may send now        sending      a stage as its mesh gets it
    dry_run       where a run would go, without a store               backlog      limits on accepted work that has not ended
    dead_letters  nodes that failed for good, kept for an operator    requeueing   runs a dead letter again as a new run

    runs          the records of a run, and the port of their store   store        runs on Redis and in memory; the Python client
    errors        errors of this layer, below `mesh.errors`
"""

from dag.store.remote import Client, Run, connect, get_run, submit
from dag.tasks import Node, Options, Task, bind, task

__all__ = ["Client", "Node", "Options", "Run", "Task", "bind", "connect", "get_run", "submit", "task"]
