"""Remote functions of Ray, one per function of the tenant, so that Ray sends the code to a worker once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.core.ids import MeshId
from mesh.core.resources import NOTHING
from mesh.ray.user_code import gang_room
from mesh.ray.worker.execution import shown_name, task_of
from mesh.stages.spec import TaskSpec

#: Remote functions that are kept. A dropped function is sent to the workers again when it is next used.
FUNCTIONS_MAX = 512
#: Configured forms that are kept of one function.
FORMS_MAX = 512


class FunctionShelf:
    """Remote functions by key, and their configured forms by options.

    Args:
        runner: Handle of the actor that owns the functions; workers announce long tasks to it.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._mesh = MeshId("")
        self._plain: OrderedDict[str, Any] = OrderedDict()
        self._configured: dict[str, dict[Hashable, Any]] = {}

    def bind(self, mesh: MeshId) -> None:
        """Set the mesh that the workers work for."""
        self._mesh = mesh

    def holds(self, task: TaskSpec) -> bool:
        """Return whether the task's function is kept, so that its code is not needed."""
        return _key(task) in self._plain

    def remote(self, task: TaskSpec, code: bytes | None, group: PlacementGroup | None) -> Any:
        """Return the remote function for this task, ready for a call of `.remote`.

        Args:
            task: Names function and options.
            code: The pickled function, when the function is pickled and may not be kept.
            group: Placement group of the task and its children; None: anywhere in the cluster.

        Raises:
            ValueError, TypeError: Ray refuses an option.
        """
        key = _key(task)
        plain = self._plain.get(key)
        if plain is None:
            plain = self._put(key, task, code)
        self._plain.move_to_end(key)
        options = json.dumps(task.ray_options, sort_keys=True) if task.ray_options else ""
        wanted = task.resources, task.gang is None, options, group.id if group is not None else None
        forms = self._configured[key]
        if wanted not in forms:
            if len(forms) >= FORMS_MAX:
                forms.clear()  # Placement groups come and go, and nothing reports the removed ones.
            forms[wanted] = plain.options(**_options(task, group))
        return forms[wanted]

    def _put(self, key: str, task: TaskSpec, code: bytes | None) -> Any:
        if len(self._plain) >= FUNCTIONS_MAX:
            oldest, _ = self._plain.popitem(last=False)
            del self._configured[oldest]
        name = shown_name(task.function, task.node)
        function = task_of(task.function, code, name=name, runner=self._runner, mesh=self._mesh)
        max_calls = task.ray_options.get("max_calls")  # Ray reads it only when the remote function is created.
        self._plain[key] = plain = ray.remote(function) if max_calls is None else ray.remote(max_calls=max_calls)(function)
        self._configured[key] = {}
        return plain


def _key(task: TaskSpec) -> str:
    """Return the key of a remote function: the tenant's function, and the options that Ray takes only at creation."""
    max_calls = task.ray_options.get("max_calls")
    return task.function if max_calls is None else f"{task.function} {max_calls}"


def _options(task: TaskSpec, group: PlacementGroup | None) -> dict[str, Any]:
    amounts = (task.resources if task.gang is None else NOTHING).in_ray_units()  # A gang's bundles are for what its task starts.
    # Ray's own retries are off by default: the run machine counts attempts, and every attempt is an event.
    given = {name: value for name, value in task.ray_options.items() if name != "max_calls"}
    options: dict[str, Any] = {"max_retries": 0, **given, "num_returns": 2, "num_cpus": amounts.pop("cpu", 0)}
    if "gpu" in amounts:
        options["num_gpus"] = amounts.pop("gpu")
    if "memory" in amounts:
        options["memory"] = amounts.pop("memory")
    if amounts:
        options["resources"] = amounts
    if task.gang is not None:
        own = options.get("runtime_env", {})
        options["runtime_env"] = {**own, "env_vars": {**own.get("env_vars", {}), **gang_room.variables()}}
    if group is not None:
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    return options
