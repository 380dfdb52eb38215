"""Jobs in a spec: the form `{"$job": {…}}` among the arguments of a leader, its problems, and the gang that it needs.

    {"$job": {"leader": {"resources": {"cpu": 1}},
              "workerSets": [{"name": "actors", "counts": 2, "resources": {"cpu": 1}, "call": "ads.rl:Actor", "args": [0.1], "kwargs": {}}],
              "minWorkersNum": 1, "restartLimit": 3, "method": "run", "environment": {"LEVEL": "3"}}}

The keys are those of a job on a local mesh (`mesh.jobs.form`). Each worker set has its code beside them: `call`, or `function` with a
`$blob`. With `method` the leader and the workers are classes with this method; without it they are functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dag.spec.call_names import VARIABLE, is_method, problem_of_call
from dag.spec.strict_json import pointer
from mesh.core.functions import JOB
from mesh.core.shapes import Gang, Strategy
from mesh.errors import JobSpecError
from mesh.jobs.gang_form import bundles_of, read_gang_job, smallest_gang, worker_sets_of
from mesh.stages.spec import ArgumentForm


def job_of(forms: Iterable[ArgumentForm]) -> dict[str, Any] | None:
    """Return the job among the arguments of a node; None: the node is no job."""
    return next((form[JOB] for form in forms if type(form) is dict and JOB in form), None)


def gang_of(job: Mapping[str, Any], strategy: Strategy = "PACK") -> Gang | None:
    """Return the gang that the job needs; None: the job has a problem, which `survey_job` reports."""
    try:
        return smallest_gang(read_gang_job(job), strategy)
    except JobSpecError:
        return None


def problem_of_gang(job: Mapping[str, Any], gang: Gang | None) -> str | None:
    """Return why the members of a job do not fit into the gang of its node."""
    try:
        spec = read_gang_job(job)
        if gang is None:
            return "the node is a job, whose members need a gang"
        bundles_of(spec, gang.bundle, gang.size)
    except JobSpecError as wrong:
        return str(wrong)
    return None


def calls_of_job(job: Mapping[str, Any], leader: str) -> tuple[str, ...]:
    """Return the keys of the functions and methods that a job calls by name, besides its leader's own: `call:module:qualname`."""
    named = [f"call:{part['call']}" for part in worker_sets_of(job) if isinstance(part, Mapping) and isinstance(part.get("call"), str)]
    methods = [f"{function}.{job['method']}" for function in (leader, *named) if "method" in job and function.startswith("call:")]
    return tuple(dict.fromkeys((*named, *methods)))


def survey_job(job: Any, place: str) -> tuple[list[tuple[str, str]], list[tuple[Any, str]]]:
    """Return the problems of a job with their places, and its forms with theirs: code and arguments of its workers.

    Args:
        place: Place of the job's object in the document.
    """
    if not isinstance(job, dict):
        return [(place, "must be an object with the keys of a job, like leader and workerSets")], []
    problems = list(_own_problems(job, place))
    try:
        smallest_gang(read_gang_job(job), "PACK")
    except JobSpecError as wrong:
        problems += [(place, line) for line in str(wrong).splitlines()]
    forms: list[tuple[Any, str]] = []
    key = "workerSets" if "workerSets" in job else "worker_sets"
    for number, part in enumerate(worker_sets_of(job)):
        where = f"{place}/{key}/{number}"
        if isinstance(part, dict):
            problem = _problem_of_code(part)
            if problem is not None:
                problems.append((where, problem))
            else:
                forms += _forms_of(part, where)
    return problems, forms


def _own_problems(job: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    if "method" in job and not (isinstance(job["method"], str) and is_method(job["method"])):
        remedy = "a method is a name that does not begin with `_`; leave it out for functions"
        yield f"{place}/method", f"{job['method']!r:.200} is no method that a job runs: {remedy}"
    environment = job.get("environment", {})
    if not isinstance(environment, dict):
        yield f"{place}/environment", "must be an object of text by name"
        return
    for name, value in environment.items():
        if not VARIABLE.fullmatch(name) or not isinstance(value, str):
            yield pointer(f"{place}/environment", name[:200]), "is no environment variable: give text by a name of A-Z a-z 0-9 _"


def _problem_of_code(part: dict[str, Any]) -> str | None:
    if ("call" in part) is ("function" in part):
        return "a worker set has `call`, module:qualname, or `function`, a `$blob`: one of the two"
    if "call" in part:
        problem = problem_of_call(part["call"]) if isinstance(part["call"], str) else "call: must be text, module:qualname"
        if problem is not None:
            return problem
    elif not isinstance(part["function"], dict) or set(part["function"]) != {"$blob"}:
        return 'function: must be {"$blob": sha256}'
    if not isinstance(part.get("args", []), list):
        return "args: must be a list"
    kwargs = part.get("kwargs", {})
    if not isinstance(kwargs, dict) or any(name.startswith("$") for name in kwargs):
        return "kwargs: must be an object of arguments by name"
    return None


def _forms_of(part: dict[str, Any], where: str) -> Iterator[tuple[Any, str]]:
    if "function" in part:
        yield part["function"], f"{where}/function"
    yield from ((form, f"{where}/args/{index}") for index, form in enumerate(part.get("args", ())))
    yield from ((form, pointer(f"{where}/kwargs", name)) for name, form in part.get("kwargs", {}).items())
