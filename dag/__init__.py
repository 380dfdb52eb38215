"""Graphs: how they are written, sent and followed. Importing this does not import Ray."""

from dag.store.remote import Client, Run, connect, get_run, submit
from dag.tasks import Node, Options, Task, bind, task

__all__ = ["Client", "Node", "Options", "Run", "Task", "bind", "connect", "get_run", "submit", "task"]
