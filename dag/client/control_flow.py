"""Control flow in graphs: order without data, branches, sleeps and signals. These nodes hold no worker and no quota.

checked = dag.bind(evaluate, model)
deployed = dag.cond(dag.bind(is_good, checked), dag.bind(deploy, model), dag.bind(report, checked))
removed = dag.after(dag.bind(remove_scratch), deployed, when="always")
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dag.client.placeholders import Part
from dag.client.tasks import Node, Options, name_of, named_call, nodes_of_after
from dag.errors import GraphTypeError
from dag.spec.checks import NAME
from dag.spec.control import COND, SECONDS_MAX, SIGNAL, SLEEP, WHENS, is_seconds


class RootFunction:
    """Stands for a function that the root does itself; `wire` is its name in a graph."""

    def __init__(self, name: str, wire: str) -> None:
        self.__name__ = name
        self.wire = wire

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


_COND, _SLEEP, _SIGNAL = RootFunction("cond", COND), RootFunction("sleep", SLEEP), RootFunction("wait_signal", SIGNAL)
_PLAIN = Options()


@named_call
def after(node: Node, *others: Node, when: str = "success") -> Node:
    """Return the same call, which also waits for other nodes without reading their values.

    Args:
        node: The node that waits.
        others: The nodes that it waits for, besides those that it waits for already.
        when: `success`: it runs when all of these have succeeded, and is skipped otherwise. `failure`: when all have ended and one
            failed. `always`: when all have ended, also in a run that stops at a failure or is cancelled. With `failure` and `always`
            the node is cleanup: it runs although the run stops.

    Raises:
        GraphTypeError: Something is not a node, or there is no such `when`.
    """
    if not isinstance(node, Node):
        raise GraphTypeError(f"after() takes a node, which waits, and the nodes that it waits for; {node!r} is not a node")
    if when not in WHENS:
        raise GraphTypeError(f"when must be one of {', '.join(WHENS)}, not {when!r}")
    if not others:
        raise GraphTypeError(f"after({node!r}) names no node to wait for; write dag.after(node, other)")
    return node.options(after=(*node.settings.after, *nodes_of_after(others)), when=when)


@named_call
def cond(predicate: Node | Part, then: Node, otherwise: Node | None = None) -> Node:
    """Return a node with the value of one of two branches; the other branch is skipped, with all that only it needs.

    Args:
        predicate: The node that decides, or a part of it. A mesh takes the truth of its value by `bool`.
        then: The branch for true.
        otherwise: The branch for false; None: the value is None.

    Raises:
        GraphTypeError: Something is not a node.
    """
    for name, given in (("predicate", predicate), ("then", then), ("otherwise", otherwise)):
        may_be_left_out = given is None if name == "otherwise" else isinstance(given, Part) and name == "predicate"
        if not isinstance(given, Node) and not may_be_left_out:
            raise GraphTypeError(f"cond() takes nodes; {name} is {given!r}. Bind a function: dag.bind(f, …)")
    return Node(_COND, (_truth_of(predicate), then, otherwise), {}, _PLAIN)  # type: ignore[arg-type]  # the root's own function


@named_call
def sleep(seconds: float) -> Node:
    """Return a node that succeeds this many seconds after the nodes in its `after`, or after the run began; its value is None.

    Raises:
        GraphTypeError: The time is not a number of seconds, or is too long.
    """
    if not is_seconds(seconds):
        raise GraphTypeError(f"sleep() takes seconds from 0 to {SECONDS_MAX}, not {seconds!r}")
    return Node(_SLEEP, (seconds,), {}, _PLAIN)  # type: ignore[arg-type]  # the same


@named_call
def wait_signal(name: str, *, timeout: float | None = None) -> Node:
    """Return a node that waits for a signal; the signal's value, plain JSON data, is the node's.

    `Run.signal`, `POST /v1/runs/{id}/signals/{name}` and `schedulemesh signal` send it. A signal that comes before the node waits is kept,
    and the first one of a name counts.

    Args:
        timeout: Seconds from the moment that the node begins to wait; then it fails. None: no limit.

    Raises:
        GraphTypeError: The name or the timeout is wrong.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise GraphTypeError(f"the name of a signal has 1 to 200 of A-Z a-z 0-9 . _ : [ ] -, the first a letter, digit or _; not {name!r}")
    if timeout is not None and not is_seconds(timeout):
        raise GraphTypeError(f"timeout takes seconds up to {SECONDS_MAX}, not {timeout!r}")
    return Node(_SIGNAL, (name, timeout), {}, replace(_PLAIN, name=name))  # type: ignore[arg-type]  # the same


def _truth_of(predicate: Node | Part) -> Node:
    """Return a node that returns true or false, which the root can tell apart without reading other values."""
    node: Node = predicate.node if isinstance(predicate, Part) else predicate
    function: Any = node.function
    if isinstance(predicate, Node) and (function is bool or isinstance(function, RootFunction)):
        return predicate
    name = f"{node.settings.name or name_of(function)}-is-true"
    settings = _PLAIN if isinstance(function, RootFunction) else node.settings
    settings = replace(settings, name=name, after=(), when="success", gang=None, num_returns=None, retries=0, retry_exceptions=None)
    return Node(bool, (predicate,), {}, settings)
