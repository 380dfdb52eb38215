"""WfFormat 1.5 and 1.6: tasks with run times, files with sizes, who reads and writes which file, and who waits for whom.

`workflow.specification.tasks` has ids, names, `parents`, `children`, `inputFiles` and `outputFiles`; `workflow.specification.files` has
sizes; `workflow.execution.tasks` has run times. An edge counts if the parent or the child names it, so a file may lack one of the two
lists. Without both lists, the files are the edges. Names may repeat, ids may not. Keys that are not listed here are ignored.

Source: https://github.com/wfcommons/WfFormat.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from dag.errors import CycleError, SpecError
from mesh.core.counting import counted
from mesh.core.near_names import nearest

_GZIP = b"\x1f\x8b"
#: Where the number of an instance begins.
_INSTANCE = re.compile(r"(_?\d+)?(_ID\d+|\.|$)")
#: Limit on a decompressed file, so that a small file cannot fill the memory.
BYTES_MAX = 2**30
#: Problems that an error lists; further ones are counted.
PROBLEMS_MAX = 20
#: Nodes of a circle that an error names.
CIRCLE_SHOWN = 8


class WorkflowError(SpecError):
    """The file is no workflow that can be read. Each problem has its place in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTask:
    """Task of a workflow."""

    id: str
    name: str
    run_s: float
    reads: tuple[str, ...]  #: Ids of its input files.
    writes: tuple[str, ...]  #: Ids of its output files.
    needs: tuple[int, ...]  #: Numbers of the tasks before it, each once.
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """Its name without the number of the instance: the program that it runs."""
        return type_of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A checked workflow: its needs form no circle."""

    name: str
    schema: str
    tasks: tuple[WorkflowTask, ...]  #: In the order of the file.
    sizes: Mapping[str, int]  #: Bytes of each file.
    order: tuple[int, ...]  #: A topological order of the tasks.

    def values(self) -> Iterator[tuple[str, int, int]]:
        """Yield each file that a task reads from a task before it: the file, its writer and its reader."""
        writers: dict[str, set[int]] = {}
        for number, task in enumerate(self.tasks):
            for file in task.writes:
                writers.setdefault(file, set()).add(number)
        for number, task in enumerate(self.tasks):
            needed = set(task.needs)
            for file in task.reads:
                for writer in sorted(writers.get(file, set()) & needed):
                    yield file, writer, number


def type_of(name: str) -> str:
    """Return a task's type: its name without the number of the instance.

    `NFCORE.FASTQC (sample 1)` is FASTQC; of other names, what stands before `_ID0001` or a dot counts, without digits at the end.
    """
    head = name.split(" (", maxsplit=1)[0]
    return head.rsplit(".", 1)[-1] if head.startswith("NFCORE") else _INSTANCE.split(head, maxsplit=1)[0] or head


def read_workflow(body: bytes) -> Workflow:
    """Read a workflow, plain or compressed with gzip.

    Raises:
        WorkflowError: The problems, each with a JSON pointer to its place and a remedy.
        CycleError: The tasks wait for each other; names the circle.
    """
    return _Reader(_parsed(_plain(body))).workflow()


def _plain(body: bytes) -> bytes:
    if not body.startswith(_GZIP):
        return body
    try:
        unpacker = zlib.decompressobj(wbits=31)
        plain = unpacker.decompress(body, BYTES_MAX + 1)
    except zlib.error as wrong:
        raise WorkflowError((("", f"the gzip file is damaged ({wrong}); copy it again, or give the plain JSON"),)) from None
    if len(plain) > BYTES_MAX:
        raise WorkflowError((("", f"the file has more than {BYTES_MAX} bytes when unpacked; give a smaller workflow"),))
    if not unpacker.eof:
        raise WorkflowError((("", "the gzip file ends too early; copy it again, or give the plain JSON"),))
    return plain


def _parsed(plain: bytes) -> Any:
    value, problem = read_json(plain, "give a WfFormat file, as .json or .json.gz", "use fewer levels and shorter numbers")
    if problem:
        raise WorkflowError((("", problem),))
    return value


def read_json(data: bytes, remedy: str, simpler: str) -> tuple[Any, str]:
    """Return the value that a file holds as JSON, and the problem with it; empty: none.

    Args:
        remedy: Advice for a file that is not JSON.
        simpler: Advice for JSON that cannot be read.
    """
    try:
        return json.loads(data.decode("utf-8-sig")), ""
    except UnicodeDecodeError as wrong:
        return None, f"byte {wrong.start} is not UTF-8; save the file as UTF-8"
    except json.JSONDecodeError as wrong:
        return None, f"line {wrong.lineno}, column {wrong.colno}: not JSON: {wrong.msg}; {remedy}"
    except (RecursionError, ValueError) as wrong:
        return None, f"JSON cannot be read: {wrong}; {simpler}"


class _Reader:
    """Reads the parts of one file and collects their problems."""

    def __init__(self, written: Any) -> None:
        self._problems: list[tuple[str, str]] = []
        self._written = written

    def workflow(self) -> Workflow:
        workflow = self._object(self._written, "", "workflow")
        specification = self._object(workflow, "/workflow", "specification")
        execution = self._object(workflow, "/workflow", "execution")
        self._raise()
        tasks = self._listed(specification, "/workflow/specification", "tasks")
        ids = self._ids(tasks, "/workflow/specification/tasks")
        sizes = self._sizes(specification)
        run_s = self._run_times(execution, ids)
        self._raise()
        edges = self._edges(tasks, ids, sizes)
        read = [self._task(number, task, sizes, run_s, edges[number]) for number, task in enumerate(tasks)]
        self._raise()
        order = _topological([task.needs for task in read], [task.id for task in read])
        name, schema = self._written.get("name"), self._written.get("schemaVersion")
        return Workflow(name=str(name or "workflow"), schema=str(schema or ""), tasks=tuple(read), sizes=sizes, order=order)

    def _raise(self) -> None:
        if self._problems:
            left_out = len(self._problems) - PROBLEMS_MAX
            more = [("", f"and {counted(left_out, 'more problem')}")] if left_out > 0 else []
            raise WorkflowError((*self._problems[:PROBLEMS_MAX], *more))

    def _wrong(self, place: str, problem: str) -> None:
        self._problems.append((place, problem))

    def _nearest(self, name: str, known: Mapping[str, int]) -> str:
        return nearest(name, known) if len(self._problems) < PROBLEMS_MAX else ""  # Slow among thousands of names.

    def _object(self, holder: Any, place: str, key: str) -> dict[str, Any]:
        found = holder.get(key) if isinstance(holder, dict) else None
        if isinstance(found, dict):
            return found
        if not self._problems:
            older = key == "specification" and isinstance(holder, dict) and "tasks" in holder
            what = (
                "the form of WfFormat 1.4 or older; convert it to 1.5" if older else f"there is no object `{key}`; give a WfFormat 1.5 file"
            )
            self._wrong(place or "/", what)
        return {}

    def _listed(self, holder: Mapping[str, Any], place: str, key: str) -> list[Any]:
        found = holder.get(key)
        if isinstance(found, list):
            return found
        self._wrong(f"{place}/{key}", f"must be a list, got {_kind(found)}; give a WfFormat 1.5 file")
        return []

    def _ids(self, listed: list[Any], place: str) -> dict[str, int]:
        ids: dict[str, int] = {}
        for number, one in enumerate(listed):
            found = one.get("id") if isinstance(one, dict) else None
            if not isinstance(found, str) or not found:
                self._wrong(f"{place}/{number}", "has no `id`; give it a text that no other has")
            elif found in ids:
                self._wrong(f"{place}/{number}/id", f"{found!r} is also the id of {place}/{ids[found]}; ids must differ")
            else:
                ids[found] = number
        return ids

    def _sizes(self, specification: Mapping[str, Any]) -> dict[str, int]:
        place, sizes = "/workflow/specification/files", {}
        listed = self._listed(specification, "/workflow/specification", "files") if "files" in specification else []
        for file, number in self._ids(listed, place).items():
            size = listed[number].get("sizeInBytes")
            if not _is_number(size) or size < 0 or size != int(size):
                self._wrong(f"{place}/{number}/sizeInBytes", f"must be whole bytes from 0, got {size!r}")
            else:
                sizes[file] = int(size)
        return sizes

    def _run_times(self, execution: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, float]:
        place, run_s = "/workflow/execution/tasks", {}
        listed = self._listed(execution, "/workflow/execution", "tasks")
        for task, number in self._ids(listed, place).items():
            took = listed[number].get("runtimeInSeconds")
            if task not in ids:
                self._wrong(
                    f"{place}/{number}/id", f"{task!r} is no task of the specification{self._nearest(task, ids)}; rename or remove it"
                )
            elif not _is_number(took) or took < 0:
                self._wrong(f"{place}/{number}/runtimeInSeconds", f"must be seconds from 0, got {took!r}")
            else:
                run_s[task] = float(took)
        if not self._problems:
            for task, number in ids.items():
                if task not in run_s:
                    self._wrong(f"/workflow/specification/tasks/{number}", f"{task!r} has no run time; add it to {place}")
        return run_s

    def _edges(self, tasks: list[Any], ids: Mapping[str, int], sizes: Mapping[str, int]) -> list[dict[int, None]]:
        """Return the needs of each task: what it names as parents, and who names it as a child; without both lists, by files."""
        needs: list[dict[int, None]] = [{} for _ in tasks]
        if not any("parents" in task or "children" in task for task in tasks):
            writers: dict[str, list[int]] = {}
            for number, task in enumerate(tasks):
                for file in self._names(task, number, "outputFiles", sizes):
                    writers.setdefault(file, []).append(number)
            for number, task in enumerate(tasks):
                for file in self._names(task, number, "inputFiles", sizes):
                    needs[number].update(dict.fromkeys(one for one in writers.get(file, ()) if one != number))
            return needs
        for number, task in enumerate(tasks):
            needs[number].update({ids[name]: None for name in self._names(task, number, "parents", ids)})
            for child in self._names(task, number, "children", ids):
                needs[ids[child]][number] = None
        return needs

    def _names(self, task: Mapping[str, Any], number: int, key: str, known: Mapping[str, int]) -> tuple[str, ...]:
        """Return the ids that a task lists under a key, each once."""
        place, listed = f"/workflow/specification/tasks/{number}/{key}", task.get(key, [])
        if not isinstance(listed, list):
            self._wrong(place, f"must be a list of ids, got {_kind(listed)}")
            return ()
        found = []
        for at, name in enumerate(listed):
            if not isinstance(name, str) or name not in known:
                what = "file" if key.endswith("Files") else "task"
                remedy = f"add it to the {what}s of the specification, or remove it here"
                near = self._nearest(name, known) if isinstance(name, str) else ""
                self._wrong(f"{place}/{at}", f"{name!r} is no {what} of the workflow{near}; {remedy}")
            else:
                found.append(name)
        return tuple(dict.fromkeys(found))

    def _task(
        self, number: int, task: Mapping[str, Any], sizes: Mapping[str, int], run_s: Mapping[str, float], needs: Iterable[int]
    ) -> WorkflowTask:
        labels = task.get("labels") or {}
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            self._wrong(f"/workflow/specification/tasks/{number}/labels", 'must be an object of texts, like {"zone": "eu"}')
            labels = {}
        return WorkflowTask(
            id=task["id"],
            name=str(task.get("name") or task["id"]),
            run_s=run_s[task["id"]],
            reads=self._names(task, number, "inputFiles", sizes),
            writes=self._names(task, number, "outputFiles", sizes),
            needs=tuple(needs),
            labels=labels,
        )


def _topological(needs: list[tuple[int, ...]], ids: list[str]) -> tuple[int, ...]:
    """Return a topological order. Raises CycleError."""
    readers: list[list[int]] = [[] for _ in needs]
    missing = [len(sources) for sources in needs]
    for node, sources in enumerate(needs):
        for source in sources:
            readers[source].append(node)
    order = [node for node, count in enumerate(missing) if not count]
    for node in order:  # Grows while it is read.
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                order.append(reader)
    if len(order) == len(needs):
        return tuple(order)
    left = {node for node, count in enumerate(missing) if count}
    node, seen = min(left), dict[int, None]()
    while node not in seen:
        seen[node] = None
        node = next(source for source in needs[node] if source in left)
    walked = list(seen)
    circle = [ids[one] for one in reversed(walked[walked.index(node) :])]
    shown = [*circle[:CIRCLE_SHOWN], *(["…"] if len(circle) > CIRCLE_SHOWN else []), circle[0]]
    raise CycleError((("/workflow/specification/tasks", f"the tasks wait for each other: {' → '.join(shown)}; remove one of these edges"),))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
