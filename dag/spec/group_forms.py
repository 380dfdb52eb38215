"""Actor groups in a spec: the form `{"$group": {…}}` among the arguments of a class, and its problems.

    {"$group": {"shape": {"data": 2, "tensor": 2},
                "calls": [{"all": "load", "args": ["s3://in/a"]},
                          {"shard": "score", "dispatch_fn": "split", "collect_fn": "concat", "args": [{"$ref": "images"}]},
                          {"choose": "answer", "strategy": "least_busy", "args": ["?"]}]}}

The number of members is that of the bundles of the node's gang. Dispatch and collect functions are names, or `$blob`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dag.spec.call_names import is_method
from dag.spec.strict_json import pointer
from mesh.actors.collecting import collector_named
from mesh.actors.dimensions import Dimensions
from mesh.actors.dispatching import dispatcher_named
from mesh.actors.errors import GroupError
from mesh.actors.selection import strategy_named
from mesh.core.functions import CALLS_MAX, GROUP, group_mode
from mesh.core.shapes import Gang
from mesh.stages.spec import ArgumentForm

_KEYS = {
    "all": frozenset({"all", "args", "kwargs"}),
    "shard": frozenset({"shard", "args", "kwargs", "dispatch_fn", "collect_fn"}),
    "choose": frozenset({"choose", "args", "kwargs", "strategy"}),
}
#: Lookup of the functions of each kind by their names.
_NAMED: Mapping[str, Callable[[Any], Any]] = {"dispatch_fn": dispatcher_named, "collect_fn": collector_named, "strategy": strategy_named}
_ONE_MODE = "has one of `all`, `shard` and `choose`, with the name of a method"


def group_of(forms: Iterable[ArgumentForm]) -> dict[str, Any] | None:
    """Return the actor group among the arguments of a node; None: the node is none."""
    return next((form[GROUP] for form in forms if type(form) is dict and GROUP in form), None)


def methods_of_group(group: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the methods that the calls of a group name, each once."""
    return tuple(dict.fromkeys(call[group_mode(call)] for call in group["calls"]))


def problem_of_members(group: Mapping[str, Any], gang: Gang | None) -> str | None:
    """Return why the bundles of the node's gang are not the members of its group."""
    if gang is None:
        return 'the node is an actor group, with a member in each bundle of its gang; give one, like {"size": 4}'
    try:
        Dimensions.of(gang.size, group.get("shape"))
    except GroupError as wrong:
        return str(wrong)
    return None


def problem_of_way(name: str, given: Any) -> str | None:
    """Return the problem with the name of a dispatch function, a collect function or a strategy."""
    if name == "dispatch_fn" and given == "reshard":
        return "'reshard' needs agents of a local mesh: leave it out, and pass values"
    try:
        _NAMED[name](given)
    except GroupError as unknown:
        return str(unknown)
    return None


def survey_group(group: Any, place: str) -> tuple[list[tuple[str, str]], list[tuple[Any, str]]]:
    """Return the problems of an actor group with their places, and the forms of its calls with theirs.

    Args:
        place: Place of the group's object.
    """
    if not isinstance(group, dict) or not isinstance(group.get("calls"), list) or not 0 < len(group["calls"]) <= CALLS_MAX:
        return [(place, f"must be an object with `calls`, a list of 1 to {CALLS_MAX} calls")], []
    problems = [(place, f"unknown key {key!r}; known are calls and shape") for key in sorted(group.keys() - {"calls", "shape"})]
    shape = group.get("shape")
    if shape is not None and not (isinstance(shape, dict) and all(type(size) is int for size in shape.values())):
        problems.append((f"{place}/shape", "must be an object of whole numbers by the names of dimensions"))
    forms: list[tuple[Any, str]] = []
    for number, call in enumerate(group["calls"]):
        where = f"{place}/calls/{number}"
        problem = _problem_of_call(call)
        if problem is not None:
            problems.append((where, problem))
        else:
            forms += _forms_of(call, where)
    return problems, forms


def _problem_of_call(call: Any) -> str | None:
    modes = [mode for mode in _KEYS if mode in call] if isinstance(call, dict) else []
    if len(modes) != 1:
        return _ONE_MODE
    (mode,) = modes
    if not isinstance(call[mode], str) or not is_method(call[mode]):
        return f"{_ONE_MODE}; a method does not begin with `_`"
    unknown = sorted(call.keys() - _KEYS[mode])
    if unknown:
        return f"unknown key {unknown[0]!r} beside `{mode}`; known are {', '.join(sorted(_KEYS[mode] - {mode}))}"
    if not isinstance(call.get("args", []), list):
        return "args: must be a list"
    kwargs = call.get("kwargs", {})
    if not isinstance(kwargs, dict) or any(name.startswith("$") for name in kwargs):
        return "kwargs: must be an object of arguments by name"
    for name in ("dispatch_fn", "collect_fn", "strategy"):
        given = call.get(name)
        if isinstance(given, str):
            problem = problem_of_way(name, given)
            if problem is not None:
                return problem
        elif given is not None and not (isinstance(given, dict) and set(given) == {"$blob"}):
            return f"{name}: must be a name, or a `$blob`"
    return None


def _forms_of(call: dict[str, Any], where: str) -> Iterator[tuple[Any, str]]:
    yield from ((form, f"{where}/args/{index}") for index, form in enumerate(call.get("args", ())))
    yield from ((form, pointer(f"{where}/kwargs", name)) for name, form in call.get("kwargs", {}).items())
    yield from ((call[name], f"{where}/{name}") for name in ("dispatch_fn", "collect_fn", "strategy") if isinstance(call.get(name), dict))
