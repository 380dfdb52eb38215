"""Argument forms to arguments, and to the nodes that they read. Pure: the caller passes in how to look values up.

`mesh.stages.spec` describes the forms. In addition, in any object a key that begins with `$$` stands for the key with one `$`
less, so a user's own `$ref` can be written. JSON parsers bound the depth of a form, so recursion is safe.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mesh.core.functions import CALLS, GROUP, JOB, ActorCalls, GroupArgument, JobArgument
from mesh.core.ids import NodeId
from mesh.errors import RuntimeAdapterError
from mesh.stages.arrays import EACH, REDUCE, ArrayArgument
from mesh.stages.spec import ArgumentForm

#: Forms whose parts are forms, with what is made of these.
_MADE_OF_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "$tuple": tuple,
    CALLS: lambda calls: ActorCalls(tuple(calls)),
    JOB: JobArgument,
    GROUP: GroupArgument,
}


def resolve(form: ArgumentForm, *, value_of: Callable[[NodeId], Any], blob_of: Callable[[str], Any]) -> Any:
    """Return the argument that `form` stands for. Lists and objects are new each time; values are passed on unchanged.

    Args:
        form: JSON with `$` objects.
        value_of: Returns the value of a node.
        blob_of: Returns the unpickled object of a hash.

    Raises:
        RuntimeAdapterError: A `$` object of an unknown kind.
        LookupError, TypeError: A `path` leads nowhere; the message names node and step.
    """
    if isinstance(form, list):
        return [resolve(part, value_of=value_of, blob_of=blob_of) for part in form]
    if not isinstance(form, dict):
        return form
    if len(form) == 1 and "$ref" in form:
        return value_of(form["$ref"])
    if "$ref" in form and form.keys() <= {"$ref", "path"}:
        return _walk(value_of(form["$ref"]), form.get("path", ()), form["$ref"])
    if len(form) == 1:
        key, inner = next(iter(form.items()))
        if key == "$blob":
            return blob_of(inner)
        if key == "$uri":
            return inner
        if key in _MADE_OF_PARTS:
            return _MADE_OF_PARTS[key](resolve(inner, value_of=value_of, blob_of=blob_of))
    if EACH in form or REDUCE in form:
        source = form[EACH] if EACH in form else form[REDUCE]
        return ArrayArgument(form, resolve(source, value_of=value_of, blob_of=blob_of))
    return {_plain_key(key): resolve(part, value_of=value_of, blob_of=blob_of) for key, part in form.items()}


def refs_of(form: ArgumentForm) -> Iterator[NodeId]:
    """Return the nodes that `form` reads, in order of appearance, repeats included."""
    pending = [form]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(reversed(part))
        elif isinstance(part, dict):
            if "$ref" in part and part.keys() <= {"$ref", "path"}:
                yield part["$ref"]
            else:
                pending.extend(reversed(part.values()))


def _plain_key(key: str) -> str:
    if key.startswith("$$"):
        return key[1:]
    if key.startswith("$"):
        raise RuntimeAdapterError(f"{key} is not an argument form; write ${key} for an object whose key is {key}")
    return key


def _walk(value: Any, path: Sequence[str | int], node: NodeId) -> Any:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError) as nowhere:
            raise type(nowhere)(f"the value of {node} has no {step!r} on the path {list(path)}: {type(value).__name__} {nowhere}") from None
    return value
