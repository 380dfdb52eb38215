"""Problems in a file, with their position, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """One problem in a file, or one setting that deserves a look."""

    source: str  #: The file.
    message: str
    remedy: str = ""  #: Empty if none is known.
    line: int | None = None  #: Counts from 1; None: the file as a whole.
    column: int | None = None  #: The same.
    place: str = ""  #: Place within the content: `tenants.acme`, or a JSON pointer; empty: the whole file.

    def __str__(self) -> str:
        """One line: `configs/x.yaml:12:5: tenants.acme: …`."""
        numbers = (str(number) for number in (self.line, self.column) if number is not None)
        words = f"{self.message}; {self.remedy}" if self.remedy else self.message
        return ": ".join(part for part in (":".join((self.source, *numbers)), self.place, words) if part)


def in_parts(words: str) -> tuple[str, str]:
    """Split a message into problem and remedy. In this project's messages the remedy follows the first semicolon."""
    message, _, remedy = words.partition("; ")
    return message, remedy
