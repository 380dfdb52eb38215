"""Pages about codes. `python -m serve_apps.codes.pages FILE` writes the page about all of them; a root serves one page for each.

The root's pages are plain HTML without script, and hold nothing of a tenant, so they need no key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from mesh.core.reasons import PASSING, Reason
from serve_apps.codes.catalogue import Code, codes
from serve_apps.codes.errors import ERRORS

#: Path of the pages at the root.
CODES_PATH = "/codes"

_INTRO = """\
# Codes

Each wait, refusal and failure has a code. `schedulemesh code NAME` prints what is said here about one of them, and a root has a page for
each at `/codes/NAME`. `make docs` writes this page from `mesh/core/reasons.py` and `serve_apps/codes`.
"""

_REASONS = """\
## Reasons

Work that waits, was refused or failed has one of these reasons, and placed work has a reason for its placement. A reason that passes
ends with a later event, without anybody's action; the others hold until somebody changes the work or the configuration.

| reason | passes | meaning | what to do |
| --- | --- | --- | --- |"""

_ERRORS = """
## Errors of the root

A refused call has an error `code` in its [problem details](http.md#errors). `Retry-After` stands with every 429 and 503.

| status | `code` | meaning | what to do |
| --- | --- | --- | --- |"""

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem;color-scheme:light dark}"
    "h1,code{font-family:ui-monospace,monospace}h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1rem;margin-top:1.5rem}"
)


def page() -> str:
    """Return the page about all codes as Markdown."""
    known = codes()
    lines = [_INTRO, _REASONS]
    for reason in Reason:
        code = known[reason.value]
        lines.append(f"| `{code.name}` | {'yes' if reason in PASSING else ''} | {code.meaning} | {code.remedy} |")
    lines.append(_ERRORS)
    for name, error in ERRORS.items():
        lines.append(f"| {error.status} | `{name}` | {error.meaning} | {error.remedy} |")
    return "\n".join((*lines, ""))


def markdown_of(code: Code) -> str:
    """Return the page about one code as Markdown."""
    return f"# {code.name}\n\n{_article(code.kind)}.\n\n{code.meaning}\n\n## What to do\n\n{code.remedy}\n"


def html_of(code: Code) -> str:
    """Return the page about one code as HTML."""
    body = (
        f"<h1>{escape(code.name)}</h1><p>{escape(_article(code.kind))}.</p><p>{_with_code(code.meaning)}</p>"
        f'<h2>What to do</h2><p>{_with_code(code.remedy)}</p><p><a href="{CODES_PATH}">All codes</a></p>'
    )
    return _html(code.name, body)


def html_of_all() -> str:
    """Return the list of all codes as HTML."""
    rows = "".join(f'<li><a href="{CODES_PATH}/{escape(name)}"><code>{escape(name)}</code></a></li>' for name in codes())
    return _html("Codes", f"<h1>Codes</h1><ul>{rows}</ul>")


def html_of_none(name: str) -> str:
    """Return the page about a code that does not exist."""
    return _html("Unknown code", f'<h1>Unknown code</h1><p>There is no code {escape(name)}.</p><p><a href="{CODES_PATH}">All codes</a></p>')


def style() -> str:
    """Return the style of the HTML pages, whose hash the pages' policy names."""
    return _STYLE


def _html(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{body}</main></body></html>\n'


def _article(words: str) -> str:
    return f"{'An' if words[0] in 'aeiou' else 'A'} {words}"


def _with_code(text: str) -> str:
    """Return Markdown with code spans, and nothing else of Markdown, as HTML."""
    return "".join(_spans(text))


def _spans(text: str) -> Iterator[str]:
    for index, part in enumerate(text.split("`")):
        yield f"<code>{escape(part)}</code>" if index % 2 else escape(part)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
