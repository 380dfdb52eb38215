"""Characters that are safe on a terminal: printed text of a tenant must not move a cursor, change a colour or hide a word.

Unprintable are the control characters (C0, DEL, C1), line and paragraph separators, the marks and overrides of writing
direction, and lone surrogates. Names that hold one are refused. Texts (messages, tracebacks, reasons) keep them, and `escaped`
shows them.

Source: CWE-150 (escape sequences), CVE-2021-42574 (overrides of writing direction).
"""

from __future__ import annotations

import re

_LAYOUT = "\t\n"  #: Allowed in texts, but not in names.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
_INVISIBLE = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
#: Characters that no name may hold, written for the inside of a regular expression's `[...]`.
UNPRINTABLE = f"{_LAYOUT}{_CONTROLS}{_INVISIBLE}"

_IN_TEXT = re.compile(f"[{_CONTROLS}{_INVISIBLE}]")
_IN_NAME = re.compile(f"[{UNPRINTABLE}]")


def escaped(text: str) -> str:
    r"""Return the text with each unprintable character as Python writes it (`\x1b`, `\u202e`); line ends and tabs stay."""
    return _IN_TEXT.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def escaped_json(document: str) -> str:
    r"""Escape a JSON document, which stays valid: unprintable characters occur only in its strings, and become `\u202e`."""
    return _IN_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def check_printable(name: str) -> str:
    """Return the name unchanged.

    Raises:
        ValueError: It holds an unprintable character, a line end or a tab.
    """
    found = _IN_NAME.search(name)
    if found is not None:
        raise ValueError(f"character {found.start() + 1} of {name[:100]!a} is a control character; leave it out")
    return name
