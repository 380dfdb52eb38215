"""The tenant's functions as Ray knows them: one remote function each, so that Ray sends its code to a worker once."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.ids import MeshId
from mesh.runtime.execution import task_of
from mesh.stages import TaskSpec

#: Functions that are kept ready; one that is pushed out is sent to the workers again when it comes back.
FUNCTIONS_MAX = 512
#: Configured forms of one function.
FORMS_MAX = 64
_REPEAT = re.compile(r"-\d+$")


class FunctionShelf:
    """Remote functions by key, and their configured forms by options.

    Args:
        runner: Handle of the actor that owns the shelf; workers tell it about long tasks.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._mesh = MeshId("")
        self._plain: OrderedDict[str, Any] = OrderedDict()
        self._configured: dict[str, dict[Hashable, Any]] = {}

    def bind(self, mesh: MeshId) -> None:
        """Say which mesh the workers work for."""
        self._mesh = mesh

    def holds(self, task: TaskSpec) -> bool:
        """Is the task's function here already, so that its code need not be shown again?"""
        return _key(task) in self._plain

    def remote(self, task: TaskSpec, code: bytes | None, group: PlacementGroup | None) -> Any:
        """What to call `.remote` on for this task.

        Args:
            task: Names function and options.
            code: The pickled function, when it is one and the shelf may not hold it.
            group: Where the task and its children run; None: anywhere in the cluster.

        Raises:
            ValueError, TypeError: Ray refuses an option.
        """
        key = _key(task)
        plain = self._plain.get(key)
        if plain is None:
            plain = self._put(key, task, code)
        self._plain.move_to_end(key)
        options = json.dumps(task.ray_options, sort_keys=True) if task.ray_options else ""
        wanted = task.resources, options, group.id if group is not None else None
        forms = self._configured[key]
        if wanted not in forms:
            if len(forms) >= FORMS_MAX:
                forms.clear()  # Placement groups come and go; nobody says which of them is gone.
            forms[wanted] = plain.options(**_options(task, group))
        return forms[wanted]

    def _put(self, key: str, task: TaskSpec, code: bytes | None) -> Any:
        if len(self._plain) >= FUNCTIONS_MAX:
            oldest, _ = self._plain.popitem(last=False)
            del self._configured[oldest]
        name = task.function.rpartition(":")[2] if task.function.startswith("call:") else _REPEAT.sub("", task.node)
        function = task_of(task.function, code, name=name, runner=self._runner, mesh=self._mesh)
        max_calls = task.ray_options.get("max_calls")  # Ray reads it where the function is made, and nowhere else.
        self._plain[key] = plain = ray.remote(function) if max_calls is None else ray.remote(max_calls=max_calls)(function)
        self._configured[key] = {}
        return plain


def _key(task: TaskSpec) -> str:
    """Of a remote function: the tenant's function, and what Ray cannot be told later."""
    max_calls = task.ray_options.get("max_calls")
    return task.function if max_calls is None else f"{task.function} {max_calls}"


def _options(task: TaskSpec, group: PlacementGroup | None) -> dict[str, Any]:
    amounts = task.resources.for_people()
    # Ray's own retries are off unless asked for: the run machine counts attempts, and every attempt is an event.
    given = {name: value for name, value in task.ray_options.items() if name != "max_calls"}
    options: dict[str, Any] = {"max_retries": 0, **given, "num_returns": 2, "num_cpus": amounts.pop("cpu", 0)}
    if "gpu" in amounts:
        options["num_gpus"] = amounts.pop("gpu")
    if "memory" in amounts:
        options["memory"] = amounts.pop("memory")
    if amounts:
        options["resources"] = amounts
    if group is not None:
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    return options
