"""What is wrong with a file, with the place of it, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """One thing that is wrong with a file, or worth a look."""

    source: str  #: The file.
    message: str
    remedy: str = ""  #: What to do, where that is known.
    line: int | None = None  #: Counts from 1; None: the file as a whole.
    column: int | None = None  #: The same.
    place: str = ""  #: Within what the file holds: `tenants.acme`, or a JSON pointer; empty: all of it.

    def __str__(self) -> str:
        """One line: `configs/x.yaml:12:5: tenants.acme: …`."""
        numbers = (str(number) for number in (self.line, self.column) if number is not None)
        words = f"{self.message}; {self.remedy}" if self.remedy else self.message
        return ": ".join(part for part in (":".join((self.source, *numbers)), self.place, words) if part)


def in_parts(words: str) -> tuple[str, str]:
    """What is wrong, and what to do: by the style of this project the second stands behind the first semicolon."""
    message, _, remedy = words.partition("; ")
    return message, remedy
