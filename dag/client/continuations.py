"""Continuations: a function that runs as a node returns nodes in place of a value, and its graph grows by them.

    def factorial(n):
        return 1 if n < 2 else dag.bind(operator.mul, n, dag.bind(factorial, n - 1))

The worker asks what a function has returned for `__graph__`, and sends the bytes to the root (`dag.spec.growth`). Functions are pickled
as a client pickles them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dag.client.compiling import compile_columns
from dag.client.placeholders import Part
from dag.client.ray_graphs import is_ray_graph, of_ray
from dag.client.tasks import Node, Options
from dag.client.writing import placeholders_in
from dag.errors import GraphTypeError
from mesh.core.functions import selected

#: Options of the node that collects the values of several.
_COLLECTING = Options(name="value", num_cpus=0)


class Continuation:
    """Nodes whose value becomes that of the node whose function returns them."""

    def __init__(self, node: Node, *, by_name: bool) -> None:
        self._node = node
        self._by_name = by_name

    def __graph__(self) -> bytes:
        """Return the nodes as columns. Raises as `dag.client.compiling.compile_columns`."""
        columns = compile_columns(self._node, by_name=self._by_name)
        env = columns.head.get("code", {}).get("runtime_env")
        if env:  # A whole graph has it once, beside its nodes; these are a part of one.
            head = {key: value for key, value in columns.head.items() if key != "code"}
            columns = replace(columns, head=head, options=tuple({**given, "runtime_env": env} for given in columns.options))
        return columns.packed()

    def __repr__(self) -> str:
        return f"<continuation {self._node!r}>"


def continuation(outputs: Any, *, by_name: bool = False) -> Continuation:
    """Return nodes for a function to return, so that the graph grows by them; its node then has their value.

        def crawl(page):
            return dag.continuation([dag.bind(crawl, link) for link in links_of(page)] or [page])

    A function may return a node as it is, too: `return dag.bind(f, x)`.

    Args:
        outputs: A node, a part of one, or a list, tuple or dict that holds nodes; the value has the same form. Nodes of `ray.dag` too.
        by_name: Name the functions, `module:qualname`, instead of sending them: for tenants that may not send code.

    Raises:
        GraphTypeError: There is no node in it.
    """
    made = of_ray(outputs) if is_ray_graph(outputs) or type(outputs) in (list, tuple, dict) else outputs
    if isinstance(made, Node):
        return Continuation(made, by_name=by_name)
    if not any(isinstance(each, (Node, Part)) for each in placeholders_in([made], 0)):
        raise GraphTypeError(f"continuation() takes a node, or a list, tuple or dict with nodes, not {outputs!r}; return a value as it is")
    return Continuation(Node(selected, (made,), {}, _COLLECTING), by_name=by_name)
