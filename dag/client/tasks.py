"""Writing of graphs: `task` wraps a function, `.bind` makes a node of it.

    @dag.task(num_cpus=2, labels={"zone": "eu"}, retries=3)
    def clean(path): ...

    table = clean.bind("s3://in/a")
    model = dag.bind(train, table, rate=0.1)        # plain and @ray.remote functions as they are

A node is compared by identity and never leaves the process that made it. The client sends the spec that `dag.client.compiling` makes of
the graph.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar

from dag.client.from_ray import (
    RAY_OPTIONS,
    RAY_RETRIES,
    accelerated,
    class_and_options,
    foreign,
    function_and_options,
    is_actor_class,
    names_of,
    sendable_env,
    without_refused,
)
from dag.client.placeholders import Param, Part, Step, graph_of, is_actor, no_value_yet, refuse_uses_as_value, step_of
from dag.errors import GraphTypeError, SpecError
from dag.spec.options import RETRIES_MAX, NodeOptions, checked
from mesh.core.counting import counted
from mesh.core.functions import is_generator, selected
from mesh.core.near_names import nearest, wrong_call

P = ParamSpec("P")
R = TypeVar("R")


def named_call(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with clearer errors: arguments that do not fit raise `GraphTypeError`, which names the likely parameter."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            signature = inspect.signature(function)
            try:
                signature.bind(*args, **kwargs)
            except TypeError as wrong:
                name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
                raise GraphTypeError(f"{name}(){wrong_call(signature, args, kwargs, str(wrong))}{_of_a_task(name, kwargs)}") from None
            raise

    return called


def _of_a_task(called: str, kwargs: Mapping[str, Any]) -> str:
    """Return a hint for an option of a task that was passed to another function."""
    given = [name for name in kwargs if name in Options.__slots__] if called != Options.__name__ else []
    return "".join(f"; {name} is an option of a task: dag.task(f).options({name}={kwargs[name]!r})" for name in given[:1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a node. `.options(...)` returns a copy with some of them changed."""

    num_cpus: float = 1  #: Number of CPUs, exact to 1/10 000.
    num_gpus: float = 0
    memory: int | str = 0  #: Bytes, or text like "4GiB".
    resources: Mapping[str, float] = field(default_factory=dict)  #: Custom resources.
    labels: Mapping[str, str] = field(default_factory=dict)  #: Required labels of the mesh; "!x" excludes a value; see `mesh.core.labels`.
    mesh: str | None = None  #: The only mesh that may run the node.
    name: str | None = None  #: Prefix of the node's id; None: the function's name.
    retries: int = 0  #: Further attempts after an error of the function itself. Lost meshes count separately.
    priority: int = 0  #: Higher goes first in the queue of a mesh.
    after: tuple[Node, ...] = ()  #: Nodes that must end first, as `when` says; their values are not passed.
    when: str = "success"  #: `success`: all in `after` have succeeded; `failure`: one has failed; `always`: all have ended.
    label_selector: Mapping[str, str] = field(default_factory=dict)  #: Ray node labels.
    runtime_env: Mapping[str, Any] = field(
        default_factory=dict
    )  #: Ray's; nodes of a graph in which they differ are Ray tasks of their own.
    isolation: str | None = None  #: "task": a Ray task of its own, not in a worker that runs other nodes too.
    max_retries: int | None = None  #: Ray's retries inside the mesh, after the death of a worker.
    retry_exceptions: bool | tuple[type[Exception], ...] | None = None  #: Errors that `retries` apply to; None: all.
    retry_on: tuple[type[Exception] | str, ...] | None = None  #: Errors that `retries` apply to: classes or their names; None: all.
    never_on: tuple[type[Exception] | str, ...] | None = None  #: Errors after which the node fails at once; these beat `retry_on`.
    backoff: Mapping[str, float] | None = None  #: Waits before retries: `initial_s`, `factor`, `max_s`, `jitter`; None: the federation's.
    memory_growth: float | None = None  #: After a death by lack of memory, the next attempt asks for so many times the memory.
    schedule_to_start_s: float | None = None  #: Longest wait of an attempt for room and quota.
    start_to_close_s: float | None = None  #: Longest run time of an attempt.
    schedule_to_close_s: float | None = None  #: Longest time of the node, with its retries and the waits between them.
    max_calls: int | None = None  #: Ray's limit on calls of the function per worker.
    num_returns: int | None = None  #: Number of outputs, each a value of its own; None: the node has one value.
    cache: bool | str | None = None  #: Keep the value for equal calls: True, for 30 days, or a time like "7d".
    cache_version: str | None = None  #: Version of the function; another one is computed anew.
    gang: Mapping[str, Any] | None = None  #: `size` and `strategy` of a gang, see `gang`; the amounts are then those of each bundle.

    def changed(self, options: Mapping[str, Any], function: object = None) -> Options:
        """Return a copy with these options; None resets an option to its default.

        Args:
            options: Options by our names, or by Ray's.
            function: The function that has the options, for messages.

        Raises:
            GraphTypeError: An option is unknown (the message names the nearest), or is one of Ray's that a node cannot honour. An item of
                `after` is not a node, or a name is not text.
            SpecError: A value is of the wrong type, or an amount is negative or too fine.
        """
        whose = name_of(function) if callable(function) else "…"
        options = self._with_gang(without_refused(options, whose), whose)
        accelerator_type = options.pop("accelerator_type", None)
        known = {each.name: each for each in fields(self)}
        for name in options:
            if name not in known:
                hint = nearest(name, known) or f"; known are {', '.join(sorted(known))}"
                raise GraphTypeError(f"task {whose}: unknown option {name!r}{hint}")
        given = {name: _default_of(known[name]) if value is None else value for name, value in options.items()}
        given |= _error_options(given, whose)
        if "num_returns" in given:
            given["num_returns"] = _outputs(given["num_returns"], function, whose)
        if "runtime_env" in given:
            given["runtime_env"] = sendable_env(given["runtime_env"], whose)
        described = [name for name in given if name in NodeOptions.model_fields and options.get(name) is not None]
        checked({name: _wire_form(name, given[name]) for name in described})
        if accelerator_type is not None:
            if not isinstance(accelerator_type, str):
                raise GraphTypeError(f"task {whose}: accelerator_type must be text, like 'A100', not {accelerator_type!r}")
            given["label_selector"] = accelerated(given.get("label_selector", self.label_selector), accelerator_type)
        if "after" in given:
            given["after"] = nodes_of_after(given["after"])
        if not isinstance(given.get("name", ""), (str, type(None))):
            raise GraphTypeError(f"task {whose}: name must be text, not {given['name']!r}")
        return replace(self, **{**given, **self._retries_as_ray_means_them(given, whose)})

    def _with_gang(self, options: Mapping[str, Any], whose: str) -> dict[str, Any]:
        """Return the options with `size` and `strategy` in `gang`. Raises GraphTypeError if the node is no gang."""
        shape = {name: options[name] for name in ("size", "strategy") if options.get(name) is not None}
        rest = {name: value for name, value in options.items() if name not in ("size", "strategy")}
        if not shape:
            return rest
        if self.gang is None:
            name, value = next(iter(shape.items()))
            raise GraphTypeError(f"task {whose}: {name}={value!r} is an option of a gang; make one: dag.gang({whose}, size=…)")
        return {**rest, "gang": {**self.gang, **shape}}

    def _retries_as_ray_means_them(self, given: Mapping[str, Any], whose: str) -> dict[str, int]:
        """Return `retries` as Ray's option names define them. Raises SpecError if the options contradict each other."""
        wanted = given.get("retry_exceptions", self.retry_exceptions)
        if "retries" in given:
            if given["retries"] and given.get("retry_exceptions") is False:
                raise SpecError((("", f"task {whose}: retries={given['retries']} and retry_exceptions=False contradict: leave one out"),))
            return {}
        if not wanted:
            is_reset = bool(self.retry_exceptions) and "retry_exceptions" in given  # Reset to Ray's default: no error is retried.
            return {"retries": 0} if is_reset or given.get("retry_exceptions") is False else {}
        if not {"retry_exceptions", "max_retries"} & given.keys():
            return {}
        budget = given.get("max_retries", self.max_retries)
        if budget is not None and not 0 <= budget <= RETRIES_MAX:
            described = (
                f"max_retries={budget} with retry_exceptions asks for more retries than there are: give retries={RETRIES_MAX}, or fewer"
            )
            raise SpecError((("", f"task {whose}: {described}"),))
        return {"retries": RAY_RETRIES if budget is None else budget}

    def of_an_output(self) -> Options:
        """Return the options of a node that selects an output of a node with these: it runs beside that node, and takes no device."""
        kept = ("num_cpus", "memory", "resources", "labels", "mesh", "priority", "label_selector")
        return replace(
            Options(), **{name: getattr(self, name) for name in kept if self.gang is None or name in ("labels", "mesh", "priority")}
        )

    def on_the_wire(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, without `name` and `after` (elsewhere in a spec)."""
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in NodeOptions.model_fields and value != _default_of(each):
                changed[each.name] = _wire_form(each.name, value)
        return {name: value for name, value in changed.items() if value is not None}


Options.__init__ = named_call(Options.__init__)  # type: ignore[method-assign]  # the dataclass makes it


class Node:
    """One call in a graph, made by `.bind`; equal only to itself. Its arguments are read when the graph is submitted.

    A node has no value before the run: operations on its value (`dag.client.placeholders`) raise `GraphTypeError`. `node["key"]` stands
    for a part of its value. With `num_returns`, `node[0]` is its first output: a node of its own, which selects this part.
    """

    __slots__ = ("args", "function", "kwargs", "outputs", "settings")
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Options
    outputs: tuple[Node, ...]  #: Made when they are asked for.

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Options) -> None:
        _set_function(self, function)
        _set_args(self, args)
        _set_kwargs(self, kwargs)
        _set_settings(self, settings)

    def options(self, **options: Any) -> Node:
        """Return a new node: the same call with other options. Raises GraphTypeError, SpecError."""
        if self.function is selected and isinstance(self.args[0], Part) and is_actor(self.args[0].node):
            wrong = next((name for name in options if name not in ("name", "num_returns")), None)
            if wrong is not None:
                raise GraphTypeError(
                    f"{self!r} is a call of an actor, and has no option {wrong!r}: give it to the actor, dag.actor(Class, {wrong}=…); "
                    "a call waits for the nodes among its arguments"
                )
        return Node(self.function, self.args, self.kwargs, self.settings.changed(options, self.function))

    def __getitem__(self, key: Step) -> Any:
        step = step_of(self, key)
        if self.settings.num_returns is None:
            return Part(self, (step,))
        outputs = self._outputs()
        if not isinstance(step, int) or not -len(outputs) <= step < len(outputs):
            raise GraphTypeError(
                f"{self!r} has {counted(len(outputs), 'output')} (num_returns), from 0 to {len(outputs) - 1}; there is no {key!r}"
            )
        return outputs[step]

    def __iter__(self) -> Iterator[Node]:
        if self.settings.num_returns is None:
            raise no_value_yet(self, _NO_NUMBER_OF_PARTS)
        return iter(self._outputs())

    def _outputs(self) -> tuple[Node, ...]:
        """Return the outputs, the same nodes each time."""
        try:
            return _get_outputs(self)  # type: ignore[no-any-return]  # a slot's
        except AttributeError:
            pass
        settings = self.settings.of_an_output()
        _set_outputs(self, tuple(Node(selected, (Part(self, (place,)),), {}, settings) for place in range(self.settings.num_returns or 0)))
        return _get_outputs(self)  # type: ignore[no-any-return]  # a slot's

    def __reduce__(self) -> NoReturn:
        raise GraphTypeError(
            f"{self!r} cannot be pickled: a node stands for a value that is not there yet. Pass it as an argument of its own, "
            "or inside a list, tuple or dict"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("result", "wait", "status", "get"):
            raise AttributeError(f"{self!r} has no {name!r} before it runs: submit it, dag.submit(node).result()")
        if name in ("remote", "bind"):
            raise AttributeError(f"{self!r} has no {name!r}: it is a call already; bind its function again for another one")
        raise AttributeError(f"{self!r} has no {name!r}; for an attribute of its value: dag.bind(getattr, node, {name!r})")

    def __graph__(self) -> bytes:
        """Return the node as a graph, in place of the value of the function that returns it. Raises as `continuation`."""
        return graph_of(self)

    def __repr__(self) -> str:
        if self.function is selected and self.settings.name is None:
            return f"<output {self.args[0].node!r}[{self.args[0].path[0]}]>"
        return f"<node {self.settings.name or name_of(self.function)}>"


# A node refuses `__setattr__`, as its value would be meant. Its slots are set beside that, which is also the fastest way.
_new_node = object.__new__
_set_function, _set_args, _set_kwargs, _set_settings = (vars(Node)[name].__set__ for name in ("function", "args", "kwargs", "settings"))
_get_outputs, _set_outputs = vars(Node)["outputs"].__get__, vars(Node)["outputs"].__set__
_NO_NUMBER_OF_PARTS = (
    "has no known number of parts; give it, like f.options(num_returns=2).bind(…), or take each part by its place, like node[0]"
)

refuse_uses_as_value(Node)


class Task:
    """A function with options, from which `.bind` makes nodes. Calling the task calls the function."""

    def __init__(self, function: Callable[..., Any], settings: Options) -> None:
        functools.update_wrapper(self, function)  # First: it copies the function's own attributes, of any name.
        self.function = self._function = function  # Also by Ray's name: a worker that imports the task by name calls the plain function.
        self.settings = settings
        self._args_min, self._args_max = _numbers_of_args(function)

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """Return a node that calls the function with these arguments. The node waits for nodes among them, also in lists, tuples and dicts.

        Raises:
            GraphTypeError: The function does not take these arguments.
        """
        if not kwargs and self._args_min <= len(args) <= self._args_max:
            node = _new_node(Node)  # As `Node(…)` does, with a call less: a large graph is bound node by node.
            _set_function(node, self.function)
            _set_args(node, args)
            _set_kwargs(node, kwargs)
            _set_settings(node, self.settings)
            return node
        signature = signature_of(self.function)
        try:
            if signature is not None:
                signature.bind(*args, **kwargs)
        except TypeError as wrong:
            options = [name for name in kwargs if (name in Options.__slots__ or name in RAY_OPTIONS) and repr(name) in str(wrong)]
            remedy = "".join(f"; an option is given by dag.task(f).options({name}={kwargs[name]!r})" for name in options)
            raise GraphTypeError(f"{name_of(self.function)}(): {wrong}; it takes {signature}{remedy}") from None
        return Node(self.function, args, kwargs, self.settings)

    def options(self, **options: Any) -> Task:
        """Return a copy with other options; this task stays unchanged. Raises GraphTypeError, SpecError."""
        return Task(self.function, self.settings.changed(options, self.function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, (Node, Part, Param)):
                name = name_of(self.function)
                raise GraphTypeError(f"{name}() was called with {value!r}, which has no value yet; bind it: {name}.bind(…)")
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "remote":
            described = "a task of a graph has no .remote(): write .bind(…) for a node of the graph, or call it here and now"
            raise AttributeError(f"{self.__dict__.get('__name__', 'the function')}: {described}")
        raise AttributeError(f"a task has no {name!r}; it has .bind and .options")

    def __repr__(self) -> str:
        return f"<task {name_of(self.function)}>"


def task(function: Any = None, /, **options: Any) -> Any:
    """Wrap a function, or an existing `@ray.remote` function, as a `Task`; with options alone, a decorator.

    Raises:
        GraphTypeError: The object is not a function, is an actor class, or an option is unknown or not honoured.
        SpecError: An option has a value of the wrong type.
    """
    if function is None:
        return lambda wrapped: Task(*_plain(wrapped, options))
    return Task(*_plain(function, options))


def gang(function: Any = None, /, *, size: int, strategy: str = "PACK", **options: Any) -> Any:
    """Wrap a function as `task` does; its nodes run with a placement group of their own, which is admitted whole or not at all.

    The group is `ray.util.get_current_placement_group()` inside. Tasks and actors that the function starts run in it. The function itself
    takes none of it.

    Args:
        size: Number of bundles. `num_cpus`, `num_gpus`, `memory` and `resources` are the amounts of each.
        strategy: Ray's: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        options: As for `task`.

    Raises:
        GraphTypeError, SpecError: As for `task`; or there is no such strategy.
    """
    return task(function, gang={"size": size, "strategy": strategy}, **options)


def bind(function: Any, /, *args: Any, **kwargs: Any) -> Node:
    """Return a node that calls `function`: a plain function, a `@ray.remote` function or a `Task`. Raises GraphTypeError."""
    node: Node = _task_of(function).bind(*args, **kwargs)
    return node


def _plain(function: Any, given: Mapping[str, Any]) -> tuple[Callable[..., Any], Options]:
    if isinstance(function, Task):
        return function.function, function.settings.changed(given, function.function)
    if isinstance(function, Node):
        raise GraphTypeError(f"{function!r} is a node already; name it as an argument or an output, or bind its function again")
    if isinstance(function, type) or is_actor_class(function):
        raise GraphTypeError(f"{function!r} is a class: make an actor of it, dag.actor(Class).bind(…), and bind its methods")
    if refusal := getattr(type(function), "refusal", None):
        raise GraphTypeError(f"{function!r} is {refusal}")
    if belongs_elsewhere := foreign(function):
        raise GraphTypeError(f"the argument {belongs_elsewhere}")
    settings = Options()
    found = function_and_options(function)
    if found is not None:
        function, of_ray = found
        settings = settings.changed(of_ray, function)
    if not callable(function):
        raise GraphTypeError(f"{function!r} is not a function; give one, like dag.task(clean), and its arguments to .bind")
    return function, settings.changed(given, function)


def plain_of(function: Any) -> Any:
    """Return the plain function of a `Task` or a `@ray.remote` function, the class of an actor's; other objects as they are."""
    if isinstance(function, Task):
        return function.function
    if is_actor_class(function):
        return class_and_options(function)[0]
    return getattr(function, "_function", function)


def _task_of(function: Any) -> Any:
    """Return the task of a function to bind; plain functions, which are compared by identity, have one for all their nodes."""
    if isinstance(function, Task):
        return function
    return _task_of_plain(function) if type(function) in _PLAIN_FUNCTIONS else Task(*_plain(function, {}))


@functools.lru_cache(maxsize=256)
def _task_of_plain(function: Any) -> Any:
    return Task(*_plain(function, {}))


_PLAIN_FUNCTIONS = (FunctionType, BuiltinFunctionType)


def _numbers_of_args(function: Callable[..., Any]) -> tuple[int, float]:
    """Return the least and the greatest number of arguments by position with which the function can be called; (1, 0): unknown."""
    signature = signature_of(function)
    if signature is None:
        return 0, math.inf
    least, most = 0, 0.0
    for parameter in signature.parameters.values():
        is_needed = parameter.default is inspect.Parameter.empty
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            least, most = least + is_needed, most + 1
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            most = math.inf
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY and is_needed:
            return 1, 0
    return least, most


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the function's signature; None if Python does not know it (some built-ins)."""
    try:
        return _signature_of(function)
    except (TypeError, ValueError):  # TypeError also for a callable that cannot be hashed
        return None


@functools.lru_cache(
    maxsize=256
)  # Cached: a wide graph binds one function thousands of times, and the signature is the largest cost of a bind.
def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def name_of(function: Callable[..., Any]) -> str:
    """Return a short name for messages and node ids."""
    return str(getattr(function, "__name__", type(function).__name__)).replace("<lambda>", "lambda")


def _exceptions(wanted: Any) -> Any:
    """Return the option `retry_exceptions` as a boolean or a tuple. Raises GraphTypeError."""
    if wanted is None or isinstance(wanted, bool):
        return wanted
    kinds = (wanted,) if isinstance(wanted, type) else wanted
    if not isinstance(kinds, (list, tuple)) or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise GraphTypeError(f"retry_exceptions takes True, False or a list of exception classes, like [ConnectionError], not {wanted!r}")
    return tuple(kinds) or False


def _outputs(wanted: Any, function: Any, whose: str) -> int | None:
    """Return the option `num_returns` as the number of outputs; None: the node has one value. Raises GraphTypeError, SpecError."""
    if wanted in ("streaming", "dynamic"):
        if callable(function) and not is_generator(function):
            raise GraphTypeError(
                f"task {whose}: num_returns={wanted!r} is for generators, which {whose} is not; give the number of its outputs"
            )
        return None
    if wanted == 0 and not isinstance(wanted, bool):
        raise GraphTypeError(f"task {whose}: num_returns=0 is not supported: leave the option out; the value of the node is then None")
    checked({"num_returns": wanted})
    return None if wanted == 1 else wanted


def _error_options(given: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Return the options among `given` that name errors, checked. `retry_on` and Ray's `retry_exceptions` are one: the newer one counts."""
    found: dict[str, Any] = {}
    if "retry_exceptions" in given:
        found["retry_exceptions"] = _exceptions(given["retry_exceptions"])
    found.update((name, _errors(name, given[name])) for name in ("retry_on", "never_on") if given.get(name) is not None)
    if isinstance(found.get("retry_exceptions"), tuple) and "retry_on" in found:
        raise GraphTypeError(f"task {whose}: retry_on and retry_exceptions are one option: give one of them")
    if isinstance(found.get("retry_exceptions"), tuple):
        found["retry_on"] = None
    elif "retry_on" in found:
        found.setdefault("retry_exceptions", None)
    return found


def _errors(name: str, given: Any) -> tuple[Any, ...]:
    """Return an option that names errors as a tuple of classes and names. Raises GraphTypeError."""
    listed = (given,) if isinstance(given, (type, str)) else given
    if not isinstance(listed, (list, tuple)) or not all(
        isinstance(each, str) or (isinstance(each, type) and issubclass(each, Exception)) for each in listed
    ):
        raise GraphTypeError(f"{name} takes exception classes or their names, like [ConnectionError, 'OUT_OF_MEMORY'], not {given!r}")
    return tuple(listed)


def _wire_form(name: str, value: Any) -> Any:
    """Return an option in the form of `NodeOptions`: errors as class names, or None for all errors."""
    if name in ("retry_on", "never_on") and isinstance(value, tuple):
        return [each if isinstance(each, str) else next(names_of([each])) for each in value]
    if name == "retry_exceptions":
        return list(names_of(value)) if isinstance(value, tuple) else None
    return dict(value) if isinstance(value, Mapping) else value


def _default_of(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def nodes_of_after(after: Any) -> tuple[Node, ...]:
    """Return the nodes in the option `after`, which is one node or several. Raises TypeError."""
    if isinstance(after, (Node, Part)):
        return (_node_of(after),)
    if not isinstance(after, (list, tuple)):
        raise GraphTypeError(f"after takes nodes, not {_shown(after)}")
    listed = tuple(after)
    for each in listed:
        if not isinstance(each, (Node, Part)):
            raise GraphTypeError(f"after takes nodes, not {_shown(each)}")
    return tuple(map(_node_of, listed))


def _node_of(given: Node | Part) -> Node:
    return given.node if isinstance(given, Part) else given


def _shown(value: Any) -> str:
    """Return the value as text, with a remedy if it belongs to the user's own Ray cluster."""
    return f"{value!r}: it {described}" if (described := foreign(value)) else repr(value)
