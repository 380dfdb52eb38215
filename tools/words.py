"""Private words that are left in names, strings, comments and documents: `python -m tools.words [PATH ...]`.

The project uses the words of Kueue, Kubernetes, Ray and Slurm, so that a stranger finds things by searching. This
module lists the words and the forms of sentences that it does not use, each with the one that it uses.
"""

from __future__ import annotations

import argparse
import io
import keyword
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Parts of names, as `snake_case` and `CamelCase` are split, and the words to use instead.
NAME_PARTS = {
    "told": "reported, sent, acked",
    "tidings": "status, report",
    "purse": "lease_client, lease_accounting",
    "vigil": "lease_deadline",
    "docket": "decision_queue",
    "heirloom": "recovered_stage",
    "remnant": "orphan_stage",
    "tenure": "session",
    "crew": "assignments",
    "roster": "configured_meshes",
    "news": "events",
    "story": "history",
    "chapter": "lease_event",
    "mail": "notifications",
    "figures": "metrics",
    "door": "client",
    "doors": "adapters",
    "desk": "reconciler",
    "heir": "successor",
    "seat": "leader election, placement",
    "seats": "gang_placement",
    "knock": "probe",
    "steadiness": "flap_detection",
    "unsteady": "flapping",
    "foreseeing": "preview",
    "leftovers": "stray",
    "aftermath": "pending_ends",
    "doomed": "unschedulable",
    "books": "state",
    "beat": "heartbeat",
}

#: Parts of names that are private only side by side.
NAME_PAIRS = {
    ("give", "way"): "preempt",
    ("gives", "way"): "is_preempted",
    ("giving", "way"): "preemption",
    ("making", "way"): "preemption",
    ("way", "made"): "preemption_plan",
    ("right", "way"): "preemptor",
    ("front", "desk"): "request_limiter",
}

#: First words of sentences that name no thing.
_PRONOUNS = "Who|What(?!-if)|Whose|Whoever|Whatever|Whom|Of (?:those|these|them|what|each|every|all|one|a|the)"

#: Forms of prose, as regular expressions, and what to write instead.
PROSE = {
    r"\b(?:give|gives|gave|giving|given) way\b": "is preempted, is evicted",
    r"\b(?:make|makes|made|making) way\b": "preempt, evict",
    r"\btidings\b": "reports, events",
    r"\bpurses?\b": "lease accounting",
    r"\bvigils?\b": "lease deadline",
    r"\bdockets?\b": "decision queue",
    r"\bheirlooms?\b": "recovered stage",
    r"\bright of way\b": "preemption",
    r"\bseed §": "name the paper, the system or the ADR",
    r"\breferences/": "name the paper, the system or the ADR",
    rf"(?:(?<=[.!?:] )|^)(?:{_PRONOUNS})\b[^?]*?[.:\n]": "begin with the noun",
}
#: First words of docstrings that name no thing. In other places they also begin a time or a condition.
_DOCSTRING = re.compile(r'[a-zA-Z]*"""((?:How|Where|Which)\b[^?\n]*)(?:\n|$)')
_COMMENT = re.compile(r"^ *(?:--|#) ?", re.MULTILINE)
_PROSE = [(re.compile(pattern, re.MULTILINE), instead) for pattern, instead in PROSE.items()]

#: Places that may hold such a word, and why.
ALLOWED = {
    "tools/words.py": "lists them",
    "tests/unit/tools/test_words.py": "shows what is found",
    "LICENSE": "is not ours",
}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One private word or sentence."""

    file: str
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        """As an editor can jump to it."""
        return f"{self.file}:{self.line}: {self.text!r}: {self.instead}"


def parts_of(name: str) -> list[str]:
    """Split a name into its lower-case words: `told_batchesOf` is told, batches, of."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


@cache  # Few of a program's names are distinct.
def private_parts(name: str) -> tuple[tuple[str, str], ...]:
    """Return the private words of a name, each with what to use instead."""
    parts = parts_of(name)
    words = [(part, NAME_PARTS[part]) for part in parts if part in NAME_PARTS]
    return (*words, *((" ".join(pair), NAME_PAIRS[pair]) for pair in pairwise(parts) if pair in NAME_PAIRS))


def in_prose(file: str, text: str, first_line: int = 1) -> Iterator[Finding]:
    """Yield the private words and forms of a text."""
    for pattern, instead in _PROSE:
        for match in pattern.finditer(text):
            yield Finding(file, first_line + text.count("\n", 0, match.start()), match[0].strip()[:60], instead)


def in_python(file: str, source: str) -> Iterator[Finding]:
    """Yield what is private in names, comments and strings of a Python file."""
    yield from (Finding(file, 1, name, instead) for part in Path(file).with_suffix("").parts for name, instead in private_parts(part))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield from (Finding(file, line, token.string, instead) for _, instead in private_parts(token.string))
        elif token.type == tokenize.COMMENT:
            yield from in_prose(file, token.string.lstrip("#: "), line)
        elif token.type == tokenize.STRING:
            opening = _DOCSTRING.match(token.string)
            if opening is not None:
                yield Finding(file, line, opening[1].strip().rstrip('"')[:60], "begin with the noun, or with a verb")
            yield from in_prose(file, token.string.lstrip("rbfuRBFU").strip("\"'"), line)


def findings_in(file: str) -> list[Finding]:
    """Return what is private in a file of the repository, by line."""
    if file in ALLOWED:
        return []
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith((".lua", ".yaml", ".toml")):
        text = _COMMENT.sub("", text)
    found = in_python(file, text) if file.endswith(".py") else in_prose(file, text)
    return sorted(set(found))


def files_of(paths: Sequence[str]) -> list[str]:
    """Return the tracked files below the paths that hold words."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=ROOT, check=True, capture_output=True, text=True)
    return [file for file in listed.stdout.split("\0") if file.endswith((".py", ".md", ".lua", ".yaml", ".toml"))]


def main() -> int:
    """Print every finding, or how many there are by file."""
    parser = argparse.ArgumentParser(description="Look for private words in names and prose.")
    parser.add_argument("paths", nargs="*", default=["."], help="files or folders (default: all)")
    parser.add_argument("--count", action="store_true", help="only how many by file, most first")
    given = parser.parse_args()
    found = [finding for file in files_of(given.paths) for finding in findings_in(file)]
    if given.count:
        for file, count in Counter(finding.file for finding in found).most_common():
            print(f"{count:6} {file}")
    else:
        print(*found, sep="\n")
    print(f"{len(found)} private words and forms in {len({finding.file for finding in found})} files")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
