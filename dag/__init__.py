"""Graphs: how they are written, sent and followed. Importing this does not import Ray.

On the client's side:

    tasks         `task` wraps a function, `.bind` makes a node       options      what can be said of a task beside its arguments
    writing       functions and arguments to forms and blobs          pickling     bytes that only the tenant's own workers read
    from_ray      Ray's options and values in a user's program

On the wire:

    spec          `dag/1`: the same JSON for Python and for HTTP      strict_json  one meaning per text, or every reason why not
    json_places   on which line a part of a text stands               spec_checks  does a spec make sense as a whole
    forms         what argument forms name; parameters filled in      compiling    nodes to a spec; a spec to plans

A run, as values:

    graph         which node needs which                              stages       the parts that go to meshes, by (mesh, level)
    states        runs and nodes, and the one table of moves          events       what the run machine is told
    machine       events in, decisions out; the only writer of a run  steps        what a step of the machine is made of
    retrying      when a node that failed is tried again

Around it:

    coordinator   the loop between machines, routing and queue        planning     which mesh each node goes to, near its inputs
    starting      which run may send stages now                       sending      a stage as its mesh gets it
    dry_run       where a run would go, asked without a store         backlog      how much may be accepted and not be done
    dead_letters  what failed for good, kept for an operator          requeueing   a dead letter, run again as a new run

    runs          a run as it is kept, and the port of its store      store        runs on Redis and in memory; the Python client
    errors        what can break here, below `mesh.errors`
"""

from dag.store.remote import Client, Run, connect, get_run, submit
from dag.tasks import Node, Options, Task, bind, task

__all__ = ["Client", "Node", "Options", "Run", "Task", "bind", "connect", "get_run", "submit", "task"]
