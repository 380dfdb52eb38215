"""Values of a graph's parameters: those of the submission, and the defaults of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dag.client.placeholders import NO_DEFAULT, Param
from dag.client.writing import exact_bytes
from dag.errors import GraphTypeError, SpecError
from dag.spec.checks import LITERAL_BYTES_MAX, UNUSED_PARAM
from dag.spec.strict_json import pointer
from mesh.core.near_names import nearest


def values_of(used: Iterable[Param], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter, in the order of their first use.

    Args:
        used: The parameters in the graph, with repeats.
        given: The values of the submission.

    Raises:
        SpecError: Lists all problems: a parameter has no value, two defaults, or is not in the graph; a value is not plain JSON data.
        GraphTypeError: `given` is not a mapping.
    """
    if not isinstance(given, Mapping):
        raise GraphTypeError(f"params takes a dict of plain data by name, like {{'day': '2026-11-20'}}, not {given!r}")
    problems: list[tuple[str, str]] = []
    values: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for param in used:
        values.setdefault(param.name, NO_DEFAULT)
        if param.default is not NO_DEFAULT:
            known = defaults.setdefault(param.name, param.default)
            if type(known) is not type(param.default) or known != param.default:
                problems.append((pointer("/params", param.name), f"has two defaults, {known!r} and {param.default!r}"))
    values = {name: given[name] if name in given else defaults.get(name, NO_DEFAULT) for name in values}
    for name, value in values.items():
        if value is NO_DEFAULT:
            problems.append((pointer("/params", name), f"has no value: submit the graph with params={{{name!r}: …}}, or give it a default"))
        elif exact_bytes(value, LITERAL_BYTES_MAX) is None:
            limit = f"is not plain JSON data of at most {LITERAL_BYTES_MAX // 1024} KiB: {type(value).__name__}"
            problems.append((pointer("/params", name), limit))
    problems += [(pointer("/params", str(name)), f"{UNUSED_PARAM}{nearest(str(name), values)}") for name in given if name not in values]
    if problems:
        raise SpecError(tuple(dict.fromkeys(problems)))
    return values
