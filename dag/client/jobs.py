"""Jobs as nodes: `dag.job` makes the node of a leader and its worker sets, with the keys of a job on a local mesh.

The node is a gang. Its function is the leader, and its last argument the rest of the job: all members have bundles of one placement
group, and the leader's value is the node's (ADR 0071).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import yaml
from pydantic.alias_generators import to_camel

from dag.client.actors import check_arguments
from dag.client.from_ray import class_and_options, foreign, is_actor_class, refused_words
from dag.client.placeholders import JobWorkers
from dag.client.tasks import Node, Options, Task, name_of, named_call, plain_of
from dag.errors import GraphTypeError
from dag.spec.call_names import VARIABLE, is_method
from dag.spec.options import amounts_of
from mesh.errors import JobSpecError
from mesh.jobs.gang_form import read_gang_job, smallest_gang
from mesh.jobs.spec import LEADER


@runtime_checkable
class TextFile(Protocol):
    """Path of a file that holds text, like a `pathlib.Path`."""

    def read_text(self, encoding: str) -> str:
        """Return the text."""


_AMOUNTS = "the amounts are those of the members: give `resources` of the leader and of each worker set in the job"
_ONE_TASK = "a job is a Ray task of its own already: leave it out"
_EFFECTS = "the effects of a job are not its value: cache the functions around it"
#: Options that the node of a job cannot have, with the remedy.
JOB_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "size", "gang"), _AMOUNTS),
    "memory_growth": "members keep the memory that the job gives them: give `memory` in their `resources`",
    **dict.fromkeys(("isolation", "max_calls"), _ONE_TASK),
    **dict.fromkeys(("cache", "cache_version"), _EFFECTS),
}


@named_call
def job(
    spec: Mapping[str, Any] | str | TextFile,
    *,
    leader: Any,
    workers: Mapping[str, Any] | None = None,
    args: Mapping[str, Sequence[Any]] | None = None,
    kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    method: str | None = "run",
    environment: Mapping[str, str] | None = None,
    strategy: str = "PACK",
    **options: Any,
) -> Node:
    """Return a node that is a leader with sets of workers, admitted together, restarted and ended as one job.

        learned = dag.job({"leader": {"resources": {"cpu": 1}}, "workerSets": [{"name": "actors", "counts": 2, "resources": {"cpu": 1}}]},
                          leader=Learner, workers={"actors": Actor}, args={"leader": (rows,)})

    The leader starts first. Its `address`, an attribute or a method, reaches the workers as `SCHEDULEMESH_LEADER_ADDRESS`. The value
    that its method returns is the value of the node, and ends the workers.

    Args:
        spec: The job: a mapping, the text of a YAML document, or the path of one. Its keys are those of a job on a local mesh.
        leader: Class of the leader; or a function, if those of all workers are functions.
        workers: Class or function of each worker set, by its name.
        args: Arguments by role, `{"leader": (…), "actors": (…)}`; nodes may be among them.
        kwargs: Arguments by name, by role.
        method: Method that each member runs. The leader must have it. Workers without it stay until the job is over.
        environment: Environment variables of all members.
        strategy: Ray's, for the bundles: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        options: Those of a node, without amounts.

    Raises:
        GraphTypeError: A role has no code, the code of a role does not take its arguments, or an option is not honoured.
        JobSpecError: The job contradicts itself, or has a key that a graph cannot honour: a line for each.
        SpecError: As `dag.task`.
    """
    described = _read(spec)
    named = described.pop("name", None)
    code = {LEADER: _plain(leader, "leader"), **{name: _plain(kind, f"workers[{name!r}]") for name, kind in (workers or {}).items()}}
    whose = f"job {options.get('name') or named or name_of(code[LEADER])}"
    for name, value in options.items():
        if name in JOB_OPTIONS and value is not None:
            raise GraphTypeError(refused_words(whose, name, value, JOB_OPTIONS[name]))
    checked = read_gang_job(described)
    _check_roles(whose, {LEADER, *(each.name for each in checked.worker_sets)}, code, {**(args or {})}, {**(kwargs or {})})
    if _has_method(whose, code, method):
        described["method"] = method
    if environment:
        described["environment"] = _environment(whose, environment)
    for role, kind in code.items():
        check_arguments(kind, f"{whose}, {role}: {name_of(kind)}", tuple((args or {}).get(role, ())), dict((kwargs or {}).get(role, {})))
    gang = smallest_gang(checked, _strategy(whose, strategy))
    settings = Options().changed(
        {"name": named, **options, "gang": {"size": gang.size, "strategy": gang.strategy}, **amounts_of(gang.bundle)}, code[LEADER]
    )
    by_role = {name: tuple((args or {}).get(name, ())) for name in code}
    named_by_role = {name: dict((kwargs or {}).get(name, {})) for name in code}
    rest = JobWorkers(
        described, {name: kind for name, kind in code.items() if name != LEADER}, _without_leader(by_role), _without_leader(named_by_role)
    )
    return Node(code[LEADER], (*by_role[LEADER], rest), named_by_role[LEADER], settings)


def _read(spec: Any) -> dict[str, Any]:
    """Return the job's keys in camelCase, as a copy."""
    raw = spec
    if isinstance(spec, (str, TextFile)):
        try:
            raw = yaml.safe_load(spec if isinstance(spec, str) else spec.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as broken:
            raise JobSpecError(f"spec: {broken}") from None
    if not isinstance(raw, Mapping):
        raise JobSpecError(f"spec: {spec!r:.200} is not a job; give a mapping, the text of a YAML document, or the Path of one")
    twice = [key for key in raw if to_camel(key) != key and to_camel(key) in raw]
    if twice:
        raise JobSpecError("\n".join(f"{to_camel(key)}: is also written {key}; keep one of the two" for key in twice))
    found = {to_camel(key): value for key, value in raw.items()}
    if isinstance(found.get("workerSets"), (list, tuple)):
        found["workerSets"] = [dict(part) if isinstance(part, Mapping) else part for part in found["workerSets"]]
    return found


def _plain(given: Any, role: str) -> Callable[..., Any]:
    """Return the plain class or function of a role. Raises GraphTypeError."""
    if is_actor_class(given):
        kind, of_ray = class_and_options(given)
        for name, value in of_ray.items():
            if value is not None:
                raise GraphTypeError(refused_words(f"{role} {kind.__name__}", name, value, f"{_AMOUNTS}; give the plain class"))
        return kind
    if isinstance(given, (Node, Task)) or not callable(plain_of(given)):
        words = foreign(given) or "is no class and no function: give the class, and its arguments in `args`"
        raise GraphTypeError(f"{role}: {given!r} {words}")
    plain: Callable[..., Any] = plain_of(given)
    return plain


def _check_roles(whose: str, roles: set[str], code: Mapping[str, Any], args: Mapping[str, Any], kwargs: Mapping[str, Any]) -> None:
    for role in sorted((roles ^ code.keys()) | ((args.keys() | kwargs.keys()) - roles)):
        why = "has no code; give it in `workers`" if role in roles else f"is not a role; the roles are {', '.join(sorted(roles))}"
        raise GraphTypeError(f"{whose}: {role!r} {why}")
    for role, given in args.items():
        if isinstance(given, (str, Node)) or not isinstance(given, Sequence):
            raise GraphTypeError(f"{whose}: args[{role!r}] must be a tuple of arguments, not {given!r}")


def _has_method(whose: str, code: Mapping[str, Callable[..., Any]], method: str | None) -> bool:
    """Return whether the members are objects of classes with a method, and not functions. Raises GraphTypeError."""
    classes = {role for role, kind in code.items() if isinstance(kind, type)}
    if not classes:
        return False
    if classes != code.keys():
        other = min(code.keys() - classes)
        raise GraphTypeError(f"{whose}: {other} is a function, and {min(classes)} a class: give all roles classes, or all functions")
    if method is None:
        raise GraphTypeError(f"{whose}: method=None is not supported: a node ends when its leader returns; name the leader's method")
    if not is_method(method):
        raise GraphTypeError(f"{whose}: {method!r} is no method that a job runs: its name must not begin with `_`")
    if not callable(getattr(code[LEADER], method, None)):
        raise GraphTypeError(f"{whose}: the leader {name_of(code[LEADER])} has no method {method!r}; name it by `method`")
    return True


def _environment(whose: str, environment: Mapping[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        if not isinstance(name, str) or not isinstance(value, str) or not VARIABLE.fullmatch(name):
            raise GraphTypeError(f"{whose}: environment takes text by name, not {name!r}: {value!r}")
    return dict(environment)


def _strategy(whose: str, strategy: Any) -> Any:
    known = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
    if strategy not in known:
        raise GraphTypeError(f"{whose}: strategy must be one of {', '.join(known)}, not {strategy!r}")
    return strategy


def _without_leader(by_role: Mapping[str, Any]) -> dict[str, Any]:
    return {role: given for role, given in by_role.items() if role != LEADER and given}
