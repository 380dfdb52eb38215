"""YAML text to plain values that know their positions, so that later messages can name line and column.

Only the plain part of YAML is read: mappings with text keys, lists, text, whole numbers, decimals, true, false, null. `no`, `on`, `1:30`
and `2026-11-20` stay text, as authors of labels and names intend. Size, depth and number of values are bounded, with aliases counted per
use, so no file can exhaust the reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from federation.errors import ConfigError
from federation.file_problems import FileProblem, in_parts
from mesh.core.printable import escaped

TEXT_CHARACTERS_MAX = 4_000_000
DEPTH_MAX = 100
VALUES_MAX = 200_000
NUMBER_DIGITS_MAX = 40

#: Keys of mappings and indexes of lists, from the top of the file.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Position in the file; both numbers count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """Problem of one value, with its remedy."""

    path: Path
    text: str
    because: tuple[Path, ...] = ()  #: Other values that cause the problem.
    at: Position | None = None  #: Position, if the path alone is ambiguous (a duplicate key).


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Content of a file, with the position of each part."""

    source: str
    value: dict[str, Any]
    positions: Mapping[Path, Position]
    problems: tuple[ConfigProblem, ...] = ()  #: Unreadable parts and duplicate keys; `value` omits them.

    def located(self, problem: ConfigProblem, *, has_remedy: bool = True) -> FileProblem:
        """Return the problem with its place: `configs/x.yaml:12:5: tenants.acme: …`.

        Args:
            has_remedy: Whether the text after the first semicolon is the remedy.
        """
        at, place = self._position(problem), dotted(problem.path)
        message, remedy = in_parts(problem.text) if has_remedy else (problem.text, "")
        return FileProblem(
            source=self.source, line=at.line, column=at.column if place else None, place=place, message=message, remedy=remedy
        )

    def in_order(self, problems: tuple[ConfigProblem, ...], *, have_remedies: bool = True) -> tuple[FileProblem, ...]:
        """Return the problems in the order of the file, without duplicates. Arguments as for `located`."""
        ordered = sorted(problems, key=lambda problem: (self._position(problem), dotted(problem.path)))
        return tuple(dict.fromkeys(self.located(problem, has_remedy=have_remedies) for problem in ordered))

    def renamed(self, path: Path, key: str) -> Document:
        """Return the document with positions of `path` under another last key as well; values are unchanged."""
        here = len(path)
        moved = {(*path[:-1], key, *below[here:]): at for below, at in self.positions.items() if below[:here] == path}
        return replace(self, positions={**moved, **self.positions})

    def _position(self, problem: ConfigProblem) -> Position:
        if problem.at is not None:
            return problem.at
        for length in range(len(problem.path), 0, -1):  # A missing key is reported at its parent.
            found = self.positions.get(problem.path[:length])
            if found is not None:
                return found
        return Position(1, 1)


def dotted(path: Path) -> str:
    """Return the path as `tenants.acme.quotas` or `tenants[2].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{escaped(part)}" for part in path).removeprefix(".").replace("\n", r"\n")


def parse(text: str, *, source: str) -> Document:
    """Parse `text`, the content of `source`.

    Raises:
        ConfigError: Not YAML, too large, empty, or no mapping.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise _unread(source, 1, f"the file has more than {TEXT_CHARACTERS_MAX} characters; a configuration must be smaller")
    root = _compose(text, source)
    if root is None:
        raise _unread(source, 1, "the file is empty; see configs/quickstart.yaml for an example")
    if not isinstance(root, yaml.MappingNode):
        raise _unread(source, root.start_mark.line + 1, "the file must be a mapping (`federation:`, `clusters:`, …)")
    reader = _Reader(source)
    value = reader.read(root, ())
    return Document(source=source, value=value, positions=reader.positions, problems=tuple(reader.problems))


def _unread(source: str, line: int, words: str, column: int | None = None) -> ConfigError:
    message, remedy = in_parts(words)
    return ConfigError(located=(FileProblem(source=source, line=line, column=column, message=message, remedy=remedy),))


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, None)
        raise _unread(source, line, f"not YAML: {_words_of(broken)}", column) from None
    except yaml.reader.ReaderError as broken:
        line = text.count("\n", 0, broken.position) + 1
        raise _unread(source, line, f"not YAML: the character U+{int(broken.character):04X} is not allowed") from None
    return node


#: Sentences with remedies, by the beginning of PyYAML's own message; `{word}` is the part in its quotes.
_SENTENCES = (
    ("mapping values are not allowed", "a second `:` in one line; put the text in quotes, or begin a new line"),
    ("could not find expected ':'", "a line without `:` stands among keys; write KEY: VALUE, or indent the line below its key"),
    ("found character '\\t'", "a tab stands where a value begins; indent with spaces"),
    ("expected <block end>", "the indentation differs from that of the lines above; align the keys of a mapping, and the dashes of a list"),
    ("expected ',' or", "a bracket is not closed, or a comma is missing; add `,`, or close the bracket"),
    ("expected the node content", "a value is missing, or a bracket is not closed; write the value, or close the bracket"),
    ("found unexpected end of stream", "a quote is not closed; close it"),
    ("found unexpected document separator", "a quote is not closed before the line `---`; close it"),
    ("found unknown escape character", "the escape \\{word} in double quotes has no meaning; use single quotes"),
    ("found undefined alias", "the alias *{word} has no anchor; write &{word} before the value that is meant, or quote the text"),
    ("second occurrence", "this anchor stands twice; give each anchor its own name"),
    ("but found another document", "the file has a second document; keep one, without a line `---` between two"),
    ("found character", "no value begins with {word}; put the text in quotes"),
    ("nested deeper", "nested deeper than 100; make the file flatter"),
)


def _words_of(broken: yaml.MarkedYAMLError) -> str:
    """Return the problem and its remedy, in sentences of this project where they are known."""
    problem = broken.problem or "cannot be read"
    found = next((sentence for begins, sentence in _SENTENCES if problem.startswith(begins)), None)
    if found is None:
        return f"{problem}; compare the line with configs/quickstart.yaml"
    quoted = re.search(r"'(.+)'", problem)
    return found.replace("{word}", quoted[1] if quoted is not None else "it")


class _Loader(yaml.SafeLoader):
    """Loader that composes nodes to a bounded depth, and reads only plain decimal numbers as numbers."""

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
    """Converter of nodes into values, with their positions."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.positions: dict[Path, Position] = {}
        self.problems: list[ConfigProblem] = []
        self._values = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self._values += 1
        if self._values > VALUES_MAX or len(path) > DEPTH_MAX:  # Aliases are followed, so both can grow beyond the text.
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
                self.problems.append(ConfigProblem(path=path, at=at, text="a key must be text; put it in quotes"))
                continue
            place = (*path, key)
            if key in value:
                first = self.positions[place].line
                self.problems.append(ConfigProblem(path=place, at=at, text=f"appears twice (first in line {first}); keep one"))
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
                pass  # `!!int seven`: reported below, like every value that does not match its tag.
        self.problems.append(
            ConfigProblem(path=path, text=f"{text[:40]!r} with the tag {node.tag} cannot be read; write plain text or a number")
        )
        return None


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
