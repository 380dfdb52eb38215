"""Graphs as specs, and nodes that functions return, of a few words: for tests of the run machine on graphs that grow."""

from __future__ import annotations

from dag.spec.columns import ColumnsBuilder, GraphColumns
from dag.spec.control import with_gates
from dag.spec.growth import Growth, graph_returned, growth_of
from dag.spec.spec import DagSpec, parse_columns
from mesh.stages.call_shapes import ShapeWriter


def spec_of(*nodes, outputs=(), **given) -> DagSpec:
    """Return a checked graph. A node: `name: needs`; a need with `~` is only waited for.

    Args:
        outputs: The last node, if there are none.
        given: Options of nodes, as `a={"retries": 1}`; `call` is the function, with `args` as forms in place of the needs.
    """
    return parse_columns(message_of(*nodes, outputs=outputs, **given))


def message_of(*nodes, outputs=(), **given) -> bytes:
    """Return a graph as a client sends it. As `spec_of`."""
    built = ColumnsBuilder()
    parted = [(name, needs.split()) for name, _, needs in (text.partition(":") for text in nodes)]
    place_of = {name: place for place, (name, _) in enumerate(parted)}
    for name, needs in parted:
        options = dict(given.get(name, {}))
        function, forms = options.pop("call", "call:work:do"), options.pop("args", None)
        forms = [{"$ref": need} for need in needs if not need.startswith("~")] if forms is None else forms
        written = ShapeWriter()
        args = [written.argument(form, place_of.__getitem__) for form in forms]
        built.append(name, built.function_at(function), built.shape_at(args, {}, written), built.options_at(options))
        built.inputs += written.inputs
        built.values += written.values
        for need in needs:
            if need.startswith("~") and place_of[need[1:]] not in written.inputs:
                built.ordered.append(place_of[name])
                built.after.append(place_of[need[1:]])
    head = {"spec": "dag/1", "outputs": {node: {"$ref": node} for node in outputs or (parted[-1][0],)}}
    return GraphColumns(head=head, calls=with_gates(built.calls()), options=built.options_table()).packed()


def growth(parent, *nodes, before=(), size_bytes=100, **given) -> Growth:
    """Return the growth by nodes that a node has returned. As `spec_of`; the value is that of the last one.

    Args:
        before: The growths of the run so far.
    """
    message = message_of(*nodes, **given)
    return growth_of(parent, graph_returned(b"%s 1\n%s" % (parent.encode(), message), parent, 1), size_bytes, before)
