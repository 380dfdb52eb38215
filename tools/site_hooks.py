"""Hooks of mkdocs: pages of the site that are made from code or stand outside of `docs`.

The README is the first page. Each code has a page of its own. A file of the repository that a page links to becomes a page that shows it.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from serve_apps.codes.catalogue import codes  # noqa: E402  mkdocs loads this file by its path, outside of the project
from serve_apps.codes.pages import markdown_of  # noqa: E402

#: Files outside of `docs` with a page of their own.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "sources/CONTRIBUTING.md"}
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".lua": "lua", ".toml": "toml"}
_API = """\
# Python API

Made from the docstrings. [Graphs in Python](../python.md) tells the same in the order of use.

## Graphs

::: dag
    options: {show_root_heading: false, members: true}

## Errors

::: dag.errors
    options: {show_root_heading: false}
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages. mkdocs calls this once a build."""
    made = {"reference/python.md": _API, **{f"codes/{code.name}.md": markdown_of(code) for code in codes().values()}}
    made |= {page: _moved(Path(source), page) for source, page in PAGES.items()}
    for path in sorted(_linked()):
        made.setdefault(page_of(path), _shown(path))
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files outside of `docs` to their pages."""
    source = page.file.src_uri
    if source.startswith(("sources/", "codes/")) or source in PAGES.values() or page.file.generated_by:
        return markdown
    return _relinked(markdown, PurePosixPath("docs", source).parent, posixpath.dirname(source))


def page_of(path: PurePosixPath) -> str:
    """Return the page of a file of the repository, as a path below `docs`."""
    if path.parts[0] == "docs":
        return PurePosixPath(*path.parts[1:]).as_posix()
    return PAGES.get(path.as_posix()) or f"sources/{path}{'' if path.suffix == '.md' else '.md'}"


def _linked() -> Iterator[PurePosixPath]:
    """Yield the files outside of `docs` that pages link to, and those that these link to."""
    seen: set[PurePosixPath] = set()
    waiting = [PurePosixPath(page.relative_to(ROOT).as_posix()) for page in ROOT.glob("docs/**/*.md")]
    waiting += [PurePosixPath(source) for source in PAGES]
    while waiting:
        source = waiting.pop()
        if source.suffix != ".md" or source in seen:
            continue
        seen.add(source)
        for _, target, _ in _LINK.findall((ROOT / source).read_text(encoding="utf-8")):
            path = _target(source.parent, target)
            if path is not None and path.parts[0] != "docs" and path.as_posix() not in PAGES:
                yield path
                waiting.append(path)


def _target(folder: PurePosixPath, link: str) -> PurePosixPath | None:
    """Return the file of the repository that a link names; None: it is an address, or a folder."""
    if ":" in link:
        return None
    path = PurePosixPath(os.path.normpath(folder / link))
    return path if path.parts[0] != ".." and (ROOT / path).is_file() else None


def _relinked(markdown: str, folder: PurePosixPath, page_folder: str) -> str:
    """Rewrite links to files of the repository, which are relative to `folder`, to their pages, relative to `page_folder`."""

    def rewritten(found: re.Match[str]) -> str:
        path = _target(folder, found[2])
        if path is None:
            return found[0]
        return f"{found[1]}{posixpath.relpath(page_of(path), page_folder or '.')}{found[3] or ''})"

    return _LINK.sub(rewritten, markdown)


def _moved(source: Path, page: str) -> str:
    text = (ROOT / source).read_text(encoding="utf-8")
    return _relinked(text, PurePosixPath(source.parent.as_posix()), posixpath.dirname(page))


def _shown(path: PurePosixPath) -> str:
    """Return the page that shows a file: Markdown as it is, other text as code."""
    if path.suffix == ".md":
        return _moved(Path(path), page_of(path))
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"# {path}\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"
