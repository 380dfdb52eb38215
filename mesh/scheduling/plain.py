"""Frozen values to plain JSON values and back, exactly, for any dataclass made of the types that contracts are made of.

A form is compiled once per type from its annotations: which fields there are, what stands for each. Fields that hold their
default are left out, which makes a line of the journal short, and lets a field with a default be added without breaking old
journals. What is not known (a kind, a field, a type) is an error with its place: never dropped, never guessed.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any

from mesh.counting import counted
from mesh.errors import AmountError, MeshError
from mesh.resources import ResourceSet

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
#: The key that tells which of several classes a JSON object stands for.
KIND = "kind"


class PlainValueError(MeshError, ValueError):
    """A plain value is not the form of what it should be; the message tells the place and what was expected."""


class Form:
    """How values of one type are written and read."""

    __slots__ = ("decode", "encode", "is_plain")

    def __init__(self, encode: Encode | None, decode: Decode) -> None:
        self.encode = encode or _same
        self.decode = decode
        self.is_plain = encode is None  #: The value stands for itself.


def form_of(annotation: Any) -> Form:
    """The form of a type, compiled at its first use.

    Raises:
        PlainValueError: No form is known for such a type.
    """
    found = _FORMS.get(annotation)
    if found is None:
        found = _FORMS[annotation] = _compile(annotation)
    return found


def tagged(classes: Collection[type]) -> Form:
    """The form of values of any of these dataclasses: an object that carries the name of its class as `kind`."""
    forms = {cls: form_of(cls) for cls in classes}
    by_name = {cls.__name__: form for cls, form in forms.items()}
    writers = {cls: (cls.__name__, form.encode) for cls, form in forms.items()}

    def encode(value: Any) -> dict[str, Any]:
        writer = writers.get(type(value))
        if writer is None:
            raise PlainValueError(f"{type(value).__name__} is not among {', '.join(sorted(by_name))}")
        name, write = writer
        return {KIND: name, **write(value)}

    def decode(plain: Any) -> Any:
        fields = dict(_object(plain))
        name = fields.pop(KIND, None)
        form = by_name.get(name) if isinstance(name, str) else None
        if form is None:
            raise PlainValueError(f"{name!r} is no kind that is known; known are {', '.join(sorted(by_name))}")
        return form.decode(fields)

    return Form(encode, decode)


def dataclasses_of(module: types.ModuleType, base: type) -> tuple[type, ...]:
    """The dataclasses of a module below `base`, in the order of their names."""
    found = (cls for name, cls in sorted(vars(module).items()) if isinstance(cls, type) and issubclass(cls, base) and cls is not base)
    return tuple(cls for cls in found if dataclasses.is_dataclass(cls))


def _compile(annotation: Any) -> Form:
    """By the kind of type; the order matters, as `bool` is an `int` and an Enum may be a `str`."""
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _optional(annotation, arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin in (frozenset, set):
        return _frozenset(form_of(arguments[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(form_of(arguments[0]), form_of(arguments[1]))
    if annotation in (str, int, float, bool):
        return _scalar(annotation)
    if annotation is ResourceSet:
        return Form(_encode_amounts, _decode_amounts)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _record(annotation)
    raise PlainValueError(f"{annotation} has no plain form")


def _scalar(kind: type) -> Form:
    accepted = (int, float) if kind is float else (kind,)

    def decode(plain: Any) -> Any:
        if type(plain) not in accepted:
            raise PlainValueError(f"{plain!r} is no {kind.__name__}")
        return plain

    return Form(None, decode)


def _encode_amounts(amounts: ResourceSet) -> dict[str, int]:
    return dict(amounts.items())


def _decode_amounts(plain: Any) -> ResourceSet:
    try:
        return ResourceSet(_object(plain))
    except AmountError as error:
        raise PlainValueError(str(error)) from None


def _enum(kind: type[Enum]) -> Form:
    by_value = {member.value: member for member in kind}

    def decode(plain: Any) -> Enum:
        member = by_value.get(plain) if isinstance(plain, str) else None
        if member is None:
            raise PlainValueError(f"{plain!r} is no {kind.__name__}")
        return member

    return Form(attrgetter("value"), decode)


def _optional(annotation: Any, arguments: tuple[Any, ...]) -> Form:
    inner = [argument for argument in arguments if argument is not type(None)]
    if len(inner) != 1 or len(inner) == len(arguments):
        raise PlainValueError(f"{annotation} has no plain form: of unions only `T | None` has")
    form = form_of(inner[0])
    encode, decode = form.encode, form.decode

    def write(value: Any) -> Any:
        return None if value is None else encode(value)

    return Form(None if form.is_plain else write, lambda plain: None if plain is None else decode(plain))


def _tuple(arguments: tuple[Any, ...]) -> Form:
    if len(arguments) == 2 and arguments[1] is ...:  # noqa: PLR2004  `tuple[T, ...]` has these two
        form = form_of(arguments[0])
        encode = form.encode
        return Form(
            lambda values: [encode(value) for value in values],
            lambda plain: tuple(_in_place(place, form.decode, item) for place, item in enumerate(_array(plain))),
        )
    forms = [form_of(argument) for argument in arguments]

    def encode_each(values: Any) -> list[Any]:
        return [form.encode(value) for form, value in zip(forms, values, strict=True)]

    def decode_each(plain: Any) -> tuple[Any, ...]:
        items = _array(plain)
        if len(items) != len(forms):
            raise PlainValueError(f"{plain!r} has {counted(len(items), 'item')}, and should have {len(forms)}")
        return tuple(_in_place(place, form.decode, item) for place, (form, item) in enumerate(zip(forms, items, strict=True)))

    return Form(encode_each, decode_each)


def _frozenset(form: Form) -> Form:
    def encode(values: Any) -> list[Any]:
        return sorted(map(form.encode, values))

    return Form(encode, lambda plain: frozenset(_in_place(place, form.decode, item) for place, item in enumerate(_array(plain))))


def _mapping(keys: Form, values: Form) -> Form:
    """JSON keeps keys as text only, so keys are names."""
    encode = values.encode

    def write(mapping: Mapping[Any, Any]) -> dict[str, Any]:
        return {key: encode(value) for key, value in mapping.items()}

    def read(plain: Any) -> dict[Any, Any]:
        return {keys.decode(key): _in_place(key, values.decode, value) for key, value in _object(plain).items()}

    if not keys.is_plain or keys.decode(KIND) != KIND:
        raise PlainValueError("of mappings only those with names as keys have a plain form")
    return Form(write, read)


def _record(cls: type) -> Form:
    """A dataclass: an object of those fields that do not hold their defaults."""
    hints = typing.get_type_hints(cls)
    fields = [kept for kept in dataclasses.fields(cls) if kept.init]
    if any(kept.name == KIND for kept in fields):
        raise PlainValueError(f"{cls.__name__} has a field {KIND!r}, which stands for the class itself")
    forms = {kept.name: form_of(hints[kept.name]) for kept in fields}
    steps = tuple((kept.name, _default(kept), None if forms[kept.name].is_plain else forms[kept.name].encode) for kept in fields)
    required = frozenset(kept.name for kept in fields if _default(kept) is _REQUIRED)
    take = _take_of(tuple(forms))

    def encode(record: Any) -> dict[str, Any]:
        plain = {}
        for (name, default, write), value in zip(steps, take(record), strict=True):
            if value is not default and value != default:
                plain[name] = value if write is None else write(value)
        return plain

    def decode(plain: Any) -> Any:
        values = {}
        for name, value in _object(plain).items():
            form = forms.get(name)
            if form is None:
                raise PlainValueError(f"{cls.__name__} has no field {name!r}")
            values[name] = _in_place(name, form.decode, value)
        if missing := required - values.keys():
            raise PlainValueError(f"{cls.__name__} lacks {', '.join(sorted(missing))}")
        return cls(**values)

    return Form(encode, decode)


def _take_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """All these attributes at once."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


_REQUIRED = object()


def _default(kept: dataclasses.Field[Any]) -> Any:
    if kept.default is not dataclasses.MISSING:
        return kept.default
    if kept.default_factory is not dataclasses.MISSING:
        return kept.default_factory()
    return _REQUIRED


def _same(value: Any) -> Any:
    return value


def _in_place(place: object, decode: Decode, plain: Any) -> Any:
    try:
        return decode(plain)
    except PlainValueError as error:
        raise PlainValueError(f"{place}: {error}") from None


def _object(plain: Any) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise PlainValueError(f"{plain!r} is no JSON object")
    return plain


def _array(plain: Any) -> list[Any]:
    if not isinstance(plain, list):
        raise PlainValueError(f"{plain!r} is no JSON array")
    return plain


_FORMS: dict[Any, Form] = {}
