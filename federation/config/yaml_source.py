"""YAML text to plain values that remember where they stood, so that every later complaint can name line and column.

Only the plain part of YAML is read: mappings with text keys, lists, text, whole numbers, decimals, true, false, null.
`no`, `on`, `1:30` and `2026-11-20` stay text, as whoever writes a label or a name means them. Text is bounded in size,
depth and (aliases counted as often as they are used) in the number of values, so no file can exhaust the reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from federation.errors import ConfigError
from federation.located import Located, in_parts
from mesh.printable import escaped

TEXT_CHARACTERS_MAX = 4_000_000
DEPTH_MAX = 100
VALUES_MAX = 200_000
NUMBER_DIGITS_MAX = 40

#: Keys of mappings and indexes of lists from the top of the file.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where something stands; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with one value, and what to write instead."""

    path: Path
    text: str
    because: tuple[Path, ...] = ()  #: Other values from which this was concluded.
    at: Position | None = None  #: Where it stands, when the path alone does not tell (a key that appears twice).


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's value, and where each part of it stands."""

    source: str
    value: dict[str, Any]
    positions: Mapping[Path, Position]
    problems: tuple[Problem, ...] = ()  #: What of it could not be read, or stands there twice; the value goes without.

    def located(self, problem: Problem, *, has_remedy: bool = True) -> Located:
        """The problem with its place: `configs/x.yaml:12:5: tenants.acme: …`.

        Args:
            has_remedy: Its text ends with what to do, if it has several parts.
        """
        at, place = self._position(problem), dotted(problem.path)
        message, remedy = in_parts(problem.text) if has_remedy else (problem.text, "")
        return Located(source=self.source, line=at.line, column=at.column if place else None, place=place, message=message, remedy=remedy)

    def in_order(self, problems: tuple[Problem, ...], *, have_remedies: bool = True) -> tuple[Located, ...]:
        """The problems, first line of the file first, none twice. Arguments as of `located`."""
        ordered = sorted(problems, key=lambda problem: (self._position(problem), dotted(problem.path)))
        return tuple(dict.fromkeys(self.located(problem, has_remedy=have_remedies) for problem in ordered))

    def renamed(self, path: Path, key: str) -> Document:
        """The same with `path` known under another last key as well; its value is left as it is."""
        here = len(path)
        moved = {(*path[:-1], key, *below[here:]): at for below, at in self.positions.items() if below[:here] == path}
        return replace(self, positions={**moved, **self.positions})

    def _position(self, problem: Problem) -> Position:
        if problem.at is not None:
            return problem.at
        for length in range(len(problem.path), 0, -1):  # a missing key is told at what should hold it
            found = self.positions.get(problem.path[:length])
            if found is not None:
                return found
        return Position(1, 1)


def dotted(path: Path) -> str:
    """`tenants.acme.quotas` and `tenants[2].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{escaped(part)}" for part in path).removeprefix(".").replace("\n", r"\n")


def parse(text: str, *, source: str) -> Document:
    """Read `text`, which stands in `source`.

    Raises:
        ConfigError: Not YAML, too large, empty, or no mapping: there is nothing that could be looked at further.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise _unread(source, 1, f"the file has more than {TEXT_CHARACTERS_MAX} characters; that is no configuration")
    root = _compose(text, source)
    if root is None:
        raise _unread(source, 1, "the file is empty; configs/quickstart.yaml shows what belongs in it")
    if not isinstance(root, yaml.MappingNode):
        raise _unread(source, root.start_mark.line + 1, "the file must be a mapping (`federation:`, `clusters:`, …)")
    reader = _Reader(source)
    value = reader.read(root, ())
    return Document(source=source, value=value, positions=reader.positions, problems=tuple(reader.problems))


def _unread(source: str, line: int, words: str, column: int | None = None) -> ConfigError:
    message, remedy = in_parts(words)
    return ConfigError(located=(Located(source=source, line=line, column=column, message=message, remedy=remedy),))


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, None)
        context = f" ({broken.context})" if broken.context else ""
        raise _unread(source, line, f"not YAML: {broken.problem or 'cannot be read'}{context}", column) from None
    except yaml.reader.ReaderError as broken:
        line = text.count("\n", 0, broken.position) + 1
        raise _unread(source, line, f"not YAML: the character U+{int(broken.character):04X} is not allowed") from None
    return node


class _Loader(yaml.SafeLoader):
    """Composes nodes to a bounded depth, and takes only what is written like a number for a number."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML's own class attribute, filled below
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            here = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # types-PyYAML leaves it untyped
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {DEPTH_MAX}", here)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_NULL, _TRUTH, _WHOLE, _DECIMAL, _TEXT, _LIST, _MAPPING = (
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")
)
_Loader.add_implicit_resolver(_NULL, re.compile(r"^(?:~|null|)$"), ["~", "n", ""])
_Loader.add_implicit_resolver(_TRUTH, re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(_WHOLE, re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _DECIMAL, re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)


class _Reader:
    """Turns nodes into values, and notes where they stand."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.positions: dict[Path, Position] = {}
        self.problems: list[Problem] = []
        self._values = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self._values += 1
        if self._values > VALUES_MAX or len(path) > DEPTH_MAX:  # aliases are followed, so both can grow beyond the text
            line = node.start_mark.line + 1
            raise _unread(self._source, line, f"unfolds to too many values (more than {VALUES_MAX}, or {DEPTH_MAX} deep)")
        self.positions.setdefault(path, _position(node))
        if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _LIST:
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, at = self._key(key_node), _position(key_node)
            if key is None:
                self.problems.append(Problem(path=path, at=at, text="a key must be text; put it in quotes"))
                continue
            place = (*path, key)
            if key in value:
                first = self.positions[place].line
                self.problems.append(Problem(path=place, at=at, text=f"appears twice (first in line {first}); keep one"))
            else:
                self.positions[place] = at
                value[key] = self.read(value_node, place)
        return value

    def _key(self, node: yaml.Node) -> str | None:
        return node.value if isinstance(node, yaml.ScalarNode) and node.tag == _TEXT else None

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        text = node.value if isinstance(node, yaml.ScalarNode) else "…"
        if node.tag == _TEXT:
            return text
        if node.tag == _NULL:
            return None
        if node.tag == _TRUTH and text in ("true", "false"):
            return text == "true"
        if node.tag in (_WHOLE, _DECIMAL) and len(text) <= NUMBER_DIGITS_MAX:
            try:
                return int(text) if node.tag == _WHOLE else float(text)
            except ValueError:
                pass  # `!!int seven`: told below, like every value that is not what its tag says
        self.problems.append(Problem(path=path, text=f"{text[:40]!r} with the tag {node.tag} cannot be read; write plain text or a number"))
        return None


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
