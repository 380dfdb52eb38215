"""Graphs: how users write, submit and follow them. This import does not import Ray.

Folders:

    client        how users write graphs: functions, nodes, options
    spec          `dag/1`, the form in which a graph is sent
    run           the run machine: events in, decisions out
    store         runs on Redis and in memory; the Python client

Around a run:

    coordinator   the loop between machines, routing and queue        planning     which mesh each node goes to, near its inputs
    starting      limits on the stages that a run may send now        backlog      limits on accepted work that has not ended
    dry_run       where a run would go, without a store               requeueing   runs a dead letter again as a new run

    errors        errors of this layer, below `mesh.errors`
"""

from dag.client.tasks import Node, Options, Task, bind, task
from dag.store.remote import Client, Run, connect, get_run, submit

__all__ = ["Client", "Node", "Options", "Run", "Task", "bind", "connect", "get_run", "submit", "task"]
