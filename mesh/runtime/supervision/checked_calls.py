"""Calls whose arguments are read as their annotations say, before anything is done; a wrong one is told by its name.

One place for the whole facade: whoever adds a call only writes its types. pydantic reads strictly, so nothing is taken for
something else (`"5"` for a number, a string for a list of its letters); what it complains of becomes one line with the argument,
what came and what to give instead. What is passed on to a user's own method (`*args`) is not looked at.
"""

from __future__ import annotations

import inspect
import math
import reprlib
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from numbers import Integral
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from mesh.near_names import nearest, wrong_call
from mesh.runtime.supervision.supervision_errors import ArgumentError

C = TypeVar("C")

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def _no_text(values: Any) -> Any:
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{_SHOWN.repr(values)} is one value; give a list or a tuple of values")  # noqa: TRY004 - pydantic collects this one
    return values


#: A number of things.
Count = Annotated[int, Field(ge=0)]
#: How long; None, where it may be given, is for ever.
Seconds = Annotated[float, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=1)]
#: Values for a call of the user's; a text is one value, not a list of its letters.
Values = Annotated[Sequence[Any], BeforeValidator(_no_text)]

_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
#: Durations and counts, by the units that end their names, are never below zero.
_NOT_BELOW_ZERO = ("_ms", "_s", "_max", "_bytes", "_tries", "_absolute", "_fraction", "_per_node", "_dynamic", "min_idle", "target_agents")
_WANTED = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "True or False",
    "dict_type": "a mapping, like {'key': 'value'}",
    "mapping_type": "a mapping, like {'key': 'value'}",
    "list_type": "a list",
    "tuple_type": "a tuple",
    "sequence_str": "a list, not one text",
    "path_type": "a Path",
    "callable_type": "a function",
    "string_too_short": "a name that is not empty",
}


def checked(*, skip: tuple[str, ...] = ()) -> Callable[[type[C]], type[C]]:
    """A decorator for classes: all public calls read their arguments first, but those named here and those that pass `*args` on.

    Raises:
        ArgumentError: By the calls; an argument is of another type, out of bounds, unknown or missing.
    """

    def of(kind: type[C]) -> type[C]:
        for name, member in tuple(vars(kind).items()):
            call = member.__func__ if isinstance(member, classmethod) else member
            if name.startswith("_") or name in skip or not inspect.isfunction(call) or _passes_on(call):
                continue
            setattr(kind, name, classmethod(_checked(call)) if isinstance(member, classmethod) else _checked(call))
        return kind

    return of


def read(parameter: str, wanted: Any, value: Any) -> Any:
    """The value as the type wants it.

    Raises:
        ArgumentError: It is none; the message begins with `parameter`.
    """
    return _read(parameter, _reader(wanted), value)


def _read(parameter: str, reader: TypeAdapter[Any], value: Any) -> Any:
    if not isinstance(value, (str, int, float)) and isinstance(value, Integral):
        value = int(value)  # Of numpy, which is as good.
    try:
        found = reader.validate_python(value)
    except ValidationError as wrong:
        raise ArgumentError(_line(parameter, value, wrong.errors(include_url=False))) from None
    check_fields(parameter, found)
    return found


def read_timeout(timeout: Any) -> float | None:
    """Seconds, or None; looked at where a call is about to wait. Ray takes what is below zero for ever.

    Raises:
        ArgumentError: It is neither.
    """
    if timeout is None:
        return None
    is_plain = type(timeout) in (int, float) and 0 <= timeout < math.inf
    return float(timeout if is_plain else read("timeout", Seconds, timeout))


def check_fields(parameter: str, value: Any) -> None:
    """The fields of a dataclass are of their types, and no count and no duration in it is below zero; dataclasses inside likewise.

    Raises:
        ArgumentError: With the path of the field.
    """
    if not is_dataclass(value) or isinstance(value, type):
        return
    for name, hint in _hints(type(value)).items():
        inner, path = getattr(value, name), f"{parameter}.{name}"
        read(path, hint, inner)
        check_not_below_zero(path, inner)


def check_not_below_zero(path: str, value: Any) -> None:
    """Raises `ArgumentError` for a count or a duration, by its name, that is below zero."""
    if path.endswith(_NOT_BELOW_ZERO) and isinstance(value, (int, float)) and value < 0:
        raise ArgumentError(f"{path} is {value!r}; give zero or more")


def _checked(call: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(call)

    @wraps(call)
    def with_read_arguments(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise ArgumentError(f"{call.__name__}(){wrong_call(signature, args, kwargs, str(wrong))}") from None
        readers = _readers(call)
        for name, value in bound.arguments.items():
            reader = readers.get(name)
            if reader is None:
                continue
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {each: _read(each, reader, one) for each, one in value.items()}
            else:
                bound.arguments[name] = _read(name, reader, value)
        return call(*bound.args, **bound.kwargs)

    return with_read_arguments


def _passes_on(call: Callable[..., Any]) -> bool:
    return any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(call).parameters.values())


@cache
def _hints(owner: Any) -> dict[str, Any]:
    """The types of a call's parameters, or of a dataclass' fields."""
    found = typing.get_type_hints(owner, include_extras=True)
    if is_dataclass(owner):
        return {field.name: found[field.name] for field in fields(owner)}
    parameters = inspect.signature(owner).parameters.values()
    return {one.name: found[one.name] for one in parameters if one.name in found}


@cache
def _readers(call: Any) -> dict[str, TypeAdapter[Any]]:
    """By parameter, made once: to look a reader up by its type costs more than to read. Those that take anything have none."""
    return {name: _reader(hint) for name, hint in _hints(call).items() if hint is not Any}


@cache
def _reader(wanted: Any) -> TypeAdapter[Any]:
    form = _form(wanted)
    return TypeAdapter(form) if wanted is not form else TypeAdapter(form, config=_STRICT)


def _form(wanted: Any) -> Any:
    """The type with a class in the place of a dataclass: an instance is wanted, and nobody's dict becomes one."""
    if isinstance(wanted, type) and is_dataclass(wanted):
        return InstanceOf[wanted]  # type: ignore[misc]  # pydantic's types know it as an alias only
    return wanted


def _line(parameter: str, value: Any, errors: list[ErrorDetails]) -> str:
    """All that one argument is complained of, as one line: alternatives of a union stand side by side."""
    deepest = max(errors, key=lambda error: len(_path(error["loc"], value)))
    path = _path(deepest["loc"], value)
    same = [error for error in errors if _path(error["loc"], value) == path]
    told = next((error["ctx"]["error"] for error in same if error["type"] == "value_error"), None)
    where = parameter + "".join(f"[{step!r}]" for step in path)
    if told is not None:
        return f"{where}: {told}"
    wanted = list(dict.fromkeys(_wanted(error) for error in same))
    return f"{where} is {_SHOWN.repr(deepest['input'])}; give {' or '.join(wanted)}"


def _path(location: tuple[str | int, ...], value: Any) -> list[str | int]:
    """The steps of the place that lead into what was given; the others are pydantic's names of alternatives."""
    path: list[str | int] = []
    for step in location:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(step)
    return path


def _wanted(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    if error["type"] in ("is_instance_of", "dataclass_exact_type", "dataclass_type"):
        name = str(context.get("class", context.get("class_name", "")))
        return {"Sequence": "a list", "Mapping": "a mapping, like {'key': 'value'}", "Iterable": "a list"}.get(name, f"a {name}")
    if error["type"] in ("enum", "literal_error"):
        expected = str(context["expected"])
        known = tuple(word.strip().strip("'") for word in expected.replace(" or ", ", ").split(","))
        return f"one of {', '.join(known)}{nearest(str(error['input']), known)}"
    if error["type"] in ("greater_than_equal", "greater_than"):
        return f"{context.get('ge', context.get('gt'))} or more"
    if error["type"] in ("less_than_equal", "less_than"):
        return f"{context.get('le', context.get('lt'))} or less"
    return _WANTED.get(error["type"], error["msg"])
