"""Objects of a user's own Ray program: `@ray.remote` functions, their options, and values that a graph cannot take.

Every option of Ray has a row in `RAY_OPTIONS`: a node honours it, or refuses it by name. A value without effect, such as Ray's own
default, is always accepted. This module does not import Ray: it recognizes Ray's objects by the modules of their classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dag.errors import GraphTypeError

#: Ray's label for a node's accelerator, which `accelerator_type` selects.
ACCELERATOR_LABEL = "ray.io/accelerator-type"
#: Ray's default for `max_retries`.
RAY_RETRIES = 3
_SHOWN_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class RayOption:
    """Support for one option of `@ray.remote`."""

    honoured_as: str = ""  #: Our name for the option; empty: refused.
    refused_because: str = ""  #: Reason and remedy.
    harmless: tuple[Any, ...] = (None,)  #: Values without effect, which are always accepted.

    def is_harmless(self, value: Any) -> bool:
        """Return whether the value has no effect."""
        return any(value is other or (type(value) is type(other) and value == other) for other in self.harmless)


_OF_ACTORS = "it is an option of actors: make one, dag.actor(Class)"
_PLACED = "the mesh places each node in a placement group of its stage: ask by `mesh`, `labels` or `label_selector` for where it runs"
_STREAMED = "a node does not stream: the elements of a generator are one list; leave the option out"

RAY_OPTIONS: Mapping[str, RayOption] = {
    "num_cpus": RayOption("`num_cpus`"),
    "num_gpus": RayOption("`num_gpus`"),
    "memory": RayOption("`memory`"),
    "resources": RayOption("`resources`"),
    "name": RayOption("`name`"),
    "label_selector": RayOption("`label_selector`"),
    "accelerator_type": RayOption(f"`label_selector`, as the label `{ACCELERATOR_LABEL}`"),
    "runtime_env": RayOption("`runtime_env`"),
    "max_calls": RayOption("`max_calls`"),
    "max_retries": RayOption("`max_retries`; with `retry_exceptions` also as `retries`"),
    "retry_exceptions": RayOption("`retry_exceptions`"),
    "num_returns": RayOption("`num_returns`: `node[0]` is the first output, a value of its own"),
    "scheduling_strategy": RayOption(refused_because=_PLACED, harmless=(None, "DEFAULT")),
    "placement_group": RayOption(refused_because=_PLACED, harmless=(None, "default")),
    "placement_group_bundle_index": RayOption(refused_because=_PLACED, harmless=(None, -1)),
    "placement_group_capture_child_tasks": RayOption(
        refused_because="what a node starts always runs in the placement group of its slot: leave the option out", harmless=(None, True)
    ),
    "fallback_strategy": RayOption(
        refused_because='a node has one selector: name the alternatives in it, like label_selector={"zone": "in(west, east)"}',
        harmless=(None, [], ()),
    ),
    "object_store_memory": RayOption(refused_because="Ray reserves none for a task: ask for `memory`"),
    "enable_task_events": RayOption(refused_because="Ray's views show every task of a mesh: leave the option out", harmless=(None, True)),
    "_labels": RayOption(refused_because="it is private to Ray: say what a node is about in its `name`", harmless=(None, {})),
    "_generator_backpressure_num_objects": RayOption(refused_because=_STREAMED, harmless=(None, -1)),
    "_num_objects_per_yield": RayOption(refused_because=_STREAMED, harmless=(None, 1)),
    **dict.fromkeys(
        (
            "concurrency_groups",
            "enable_tensor_transport",
            "lifetime",
            "max_concurrency",
            "max_restarts",
            "max_task_retries",
            "max_pending_calls",
            "namespace",
            "get_if_exists",
            "allow_out_of_order_execution",
            "_actor_generator_backpressure_num_objects",
        ),
        RayOption(refused_because=_OF_ACTORS),
    ),
}


_IN_ORDER = "the calls of an actor run one after the other, in the order in which they were written: leave the option out"
_MADE_ANEW = "give retries=n: after a failure the actor is made anew, and all of its calls are made again, in order"
_OF_THE_RUN = "an actor belongs to its node, and ends with it: keep what others need in a file or a service"
_ONE_PROCESS = "an actor has one process of its own, for all of its calls: leave the option out"

#: Options that the node of an actor cannot have, Ray's and ours.
ACTOR_OPTIONS: Mapping[str, RayOption] = {
    "max_concurrency": RayOption(refused_because=_IN_ORDER, harmless=(None, 1)),
    "concurrency_groups": RayOption(refused_because=_IN_ORDER, harmless=(None, {}, [])),
    "allow_out_of_order_execution": RayOption(refused_because=_IN_ORDER, harmless=(None, False)),
    "max_pending_calls": RayOption(refused_because=_IN_ORDER, harmless=(None, -1)),
    "max_restarts": RayOption(refused_because=_MADE_ANEW, harmless=(None, 0)),
    "max_task_retries": RayOption(refused_because=_MADE_ANEW, harmless=(None, 0)),
    "max_retries": RayOption(refused_because=_MADE_ANEW, harmless=(None, 0)),
    "lifetime": RayOption(refused_because=_OF_THE_RUN, harmless=(None, "non_detached")),
    "namespace": RayOption(refused_because=_OF_THE_RUN),
    "get_if_exists": RayOption(refused_because=_OF_THE_RUN, harmless=(None, False)),
    "enable_tensor_transport": RayOption(
        refused_because="values of calls travel as those of all nodes: leave it out", harmless=(None, False)
    ),
    "_actor_generator_backpressure_num_objects": RayOption(refused_because=_STREAMED, harmless=(None, -1)),
    "max_calls": RayOption(refused_because=_ONE_PROCESS),
    "isolation": RayOption(refused_because=_ONE_PROCESS, harmless=(None, "task")),
    "gang": RayOption(refused_because=_ONE_PROCESS),
    "size": RayOption(refused_because=_ONE_PROCESS),
    "strategy": RayOption(refused_because=_ONE_PROCESS),
    "num_returns": RayOption(refused_because="each call has its own: actor.method.options(num_returns=2).bind(…)"),
    "cache": RayOption(refused_because="the state of an actor is no value that could be kept: leave it out", harmless=(None, False)),
    "cache_version": RayOption(refused_because="the state of an actor is no value that could be kept: leave it out"),
}


def without_refused_of_actors(options: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Return the options that a node of an actor can have. Raises GraphTypeError as `without_refused`."""
    kept = {}
    for name, value in options.items():
        known = ACTOR_OPTIONS.get(name)
        if known is None:
            kept[name] = value
        elif not known.is_harmless(value):
            raise GraphTypeError(refused_words(f"actor {whose}", name, value, known.refused_because))
    return kept


def refused_words(whose: str, name: str, value: Any, remedy: str) -> str:
    """Return the refusal of an option that a node of this kind cannot have."""
    return f"{whose}: the option {name}={_short(value)} is not supported: {remedy}"


def without_refused(options: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Remove options of Ray that have no effect and no counterpart here.

    Args:
        whose: The function's name, for the message.

    Raises:
        GraphTypeError: A node cannot honour an option of Ray; names option, function and remedy.
    """
    kept = {}
    for name, value in options.items():
        known = RAY_OPTIONS.get(name)
        if known is None or known.honoured_as:
            kept[name] = value
        elif not known.is_harmless(value):
            raise GraphTypeError(f"task {whose}: Ray's option {name}={_short(value)} is not supported: {known.refused_because}")
    return kept


def function_and_options(function: Any) -> tuple[Callable[..., Any], dict[str, Any]] | None:
    """Return the plain function and the given options of a `@ray.remote` function or of its `.options(...)`; None for other objects.

    Raises:
        GraphTypeError: An option is unknown here.
    """
    inner, options = getattr(function, "_function", None), getattr(function, "_default_options", None)
    if inner is None and _module_of(function) == "ray.remote_function" and hasattr(function, "bind"):
        node = function.bind()  # The result of `.options(...)` shows its function and options only in its node.
        inner, options = node._body, node.get_options()  # noqa: SLF001  Ray has no public name for the function
    if inner is None or not isinstance(options, dict):
        return None
    unknown = [name for name in options if name not in RAY_OPTIONS]
    if unknown:
        raise GraphTypeError(f"task {getattr(inner, '__name__', inner)}: Ray's option {unknown[0]} is unknown: leave it out")
    return inner, options


def class_and_options(given: Any) -> tuple[type, dict[str, Any]]:
    """Return the plain class and the given options of an actor class of Ray, of its `.options(...)`, or of its node in a graph of Ray."""
    node = given.bind() if is_actor_class(given) else given
    return node._body.__ray_actor_class__, node.get_options()  # noqa: SLF001  Ray has no public name for the class


def is_actor_class(value: Any) -> bool:
    """Return whether the object is a class with `@ray.remote`, or its `.options(...)`: `dag.actor` takes it, `dag.task` does not."""
    return hasattr(value, "__ray_metadata__") or (_module_of(value) == "ray.actor" and type(value).__name__ == "ActorOptionWrapper")


def foreign(value: Any) -> str:
    """Return the problem with a value of the user's own Ray cluster, beginning with a verb; empty for other values."""
    if "ray" not in sys.modules:
        return ""
    kind, module = type(value).__name__, _module_of(value)
    if module.partition(".")[0] != "ray":
        return ""
    if kind in ("ClassNode", "ClassMethodNode"):
        return f"is a {kind} of Ray's own graphs: make the actor here, dag.actor(Class).bind(…), or submit a graph of Ray's nodes alone"
    if module.startswith("ray.dag."):
        return f"is a {kind} of Ray's own graphs: wrap the function first, like dag.task(f).bind(…), where f is the @ray.remote function"
    if kind in ("ObjectRef", "ObjectRefGenerator", "DynamicObjectRefGenerator"):
        return f"is an {kind} of your own Ray cluster, which no mesh can read: bind the function instead of f.remote(), or give ray.get(…)"
    if kind in ("ActorHandle", "ActorMethod"):
        return f"is an {kind} of your own Ray cluster, which no mesh can reach: make it here, dag.actor(Class).bind(…)"
    return ""


def sendable_env(env: Any, whose: str) -> Mapping[str, Any]:
    """Return the runtime environment of a node.

    Raises:
        GraphTypeError: It is not a dict, or it names files of this machine, which no mesh can read.
    """
    if not isinstance(env, Mapping):
        raise GraphTypeError(f"task {whose}: runtime_env must be a dict, not {env!r}")
    modules = env.get("py_modules") or ()
    for name, given in [("working_dir", env.get("working_dir")), *(("py_modules", module) for module in modules)]:
        if given is not None and (not isinstance(given, str) or "://" not in given):
            remedy = (
                "give the address of an archive that the meshes reach, like s3://code/app.zip; modules beside your script are sent anyway"
            )
            raise GraphTypeError(f"task {whose}: runtime_env: {name} {_short(given)} is on this machine: {remedy}")
    return env


def accelerated(selector: Mapping[str, str], accelerator_type: str) -> dict[str, str]:
    """Return the label selector with a term for this accelerator."""
    return {ACCELERATOR_LABEL: accelerator_type, **selector}


def names_of(kinds: Any) -> Iterator[str]:
    """Return the names of exception classes as failures report them: `builtins.OSError`."""
    return (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


def _module_of(value: Any) -> str:
    return str(getattr(type(value), "__module__", ""))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX and "\n" not in text else type(value).__name__
