"""Zip archive of a program's working directory, the same bytes for the same files.

Left out is what Ray leaves out: what `.gitignore` and `.rayignore` files name, caches and environments of Python, and the folder of git.
Ignore files of the folders above count as well, up to the root of the repository. State folders of stacks, which hold keys, are never sent.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from dag.client.programs import Archive
from dag.client.writing import BLOB_BYTES_MAX
from dag.errors import SpecError
from mesh.core.counting import counted
from mesh.core.functions import ARCHIVE_BYTES_MAX, FILES_MAX

#: Files with patterns of what is left out.
IGNORE_FILES = (".gitignore", ".rayignore")
#: Left out everywhere, as by Ray, whatever ignore files say.
ALWAYS_OUT = (".git/", ".venv/", "venv/", "__pycache__/", ".schedulemesh/")
#: Files of every state folder of a stack, under whatever name.
_STATE_FILES = ("lock", "settings/root.json")
#: Limit on the archive; a submission holds little more.
ZIP_BYTES_MAX = BLOB_BYTES_MAX * 3 // 4
_LARGEST_SHOWN = 5
#: Time of every file in the archive, so that equal files make equal bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 16  #: Place of the file mode among the attributes of a file in an archive.


@dataclass(frozen=True, slots=True)
class _File:
    name: str  #: Path in the archive.
    path: Path
    size: int


def packed(folder: str | Path, *, excludes: Sequence[str] = ()) -> Archive:
    """Return the archive of a folder.

    Args:
        excludes: Patterns, as in a `.gitignore`, of what is left out as well.

    Raises:
        SpecError: There is no such folder, a file cannot be read, or the files are too large or too many.
    """
    home = Path(folder).expanduser()
    if not home.is_dir():
        kind = "a file" if home.exists() else "not there"
        raise SpecError((("", f"working_dir {home} is {kind}; name a folder, like working_dir='.'"),))
    try:
        files = sorted(_within_bounds(home, _files(home.absolute(), excludes)), key=lambda file: file.name)
    except OSError as unreadable:
        raise _unreadable(home, unreadable.filename, unreadable.strerror or str(unreadable)) from None
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            info = zipfile.ZipInfo(file.name, _NO_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            try:
                info.external_attr = (0o755 if os.access(file.path, os.X_OK) else 0o644) << _MODE
                archive.writestr(info, file.path.read_bytes())
            except OSError as unreadable:
                raise _unreadable(home, file.name, unreadable.strerror or str(unreadable)) from None
            if data.tell() > ZIP_BYTES_MAX:
                raise _too_large(home, files, f"; packed, a program has {ZIP_BYTES_MAX >> 20} MiB at most")
    return Archive(data.getvalue(), len(files))


def _within_bounds(home: Path, files: Iterable[_File]) -> list[_File]:
    """Return the files. Raises SpecError as soon as they are too many or too large."""
    found, size = list[_File](), 0
    for file in files:
        found.append(file)
        size += file.size
        if len(found) > FILES_MAX or size > ARCHIVE_BYTES_MAX:
            raise _too_large(home, found, f" or more; {ARCHIVE_BYTES_MAX >> 20} MiB in {FILES_MAX} files at most")
    return found


#: Patterns of one folder, with the folder's path and `/`.
_Rules = tuple[tuple[str, GitIgnoreSpec], ...]


def _files(home: Path, excludes: Sequence[str]) -> Iterator[_File]:
    """Yield the files of a folder that are not left out. Links are followed, but not in a circle."""
    always, start = GitIgnoreSpec.from_lines(ALWAYS_OUT), f"{home}/".replace("//", "/")
    pending: list[tuple[Path, _Rules, frozenset[str]]] = [
        (home, (*_rules_above(home), (start, GitIgnoreSpec.from_lines(excludes))), frozenset())
    ]
    while pending:
        folder, rules, above = pending.pop()
        real = os.path.realpath(folder)
        if real in above or all((folder / name).is_file() for name in _STATE_FILES):
            continue
        own = (*rules, *_rules_of(folder))
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            is_folder = entry.is_dir()
            path = f"{entry.path}/" if is_folder else entry.path
            name = path[len(start) :]
            if always.match_file(name) or _is_left_out(path, own):
                continue
            if is_folder:
                pending.append((Path(entry.path), own, above | {real}))
            elif entry.is_file():  # No sockets, pipes and links to nothing.
                yield _File(name, Path(entry.path), entry.stat().st_size)


def _rules_above(home: Path) -> _Rules:
    """Return the rules of the folders above, up to the root of the repository; none if they leave out the whole folder."""
    root = next((above for above in (home, *home.parents) if (above / ".git").exists()), home)
    between = [above for above in reversed(home.parents) if above == root or root in above.parents]
    rules = tuple(rule for folder in between for rule in _rules_of(folder))
    return () if _is_left_out(f"{home}/", rules) else rules


def _rules_of(folder: Path) -> _Rules:
    """Return the rules of the folder's own ignore files. Raises SpecError if one is no text."""
    lines = list[str]()
    for name in IGNORE_FILES:
        file = folder / name
        if file.is_file():
            try:
                lines += file.read_text("utf-8").splitlines()
            except UnicodeDecodeError:
                raise _unreadable(folder, name, "it is not UTF-8") from None
    return ((f"{folder}/".replace("//", "/"), GitIgnoreSpec.from_lines(lines)),) if lines else ()


def _is_left_out(path: str, rules: _Rules) -> bool:
    """Return what the last pattern that matches says, as git does: files of deeper folders come later."""
    left_out = False
    for place, spec in rules:
        found = spec.check_file(path[len(place) :]).include
        if found is not None:
            left_out = found
    return left_out


def _unreadable(home: Path, name: str | None, why: str) -> SpecError:
    remedy = "leave it out by a .rayignore file or excludes=[…]"
    return SpecError((("", f"working_dir {home}: {name} cannot be read: {why}; {remedy}"),))


def _too_large(home: Path, files: Sequence[_File], most: str) -> SpecError:
    largest = sorted(files, key=lambda file: -file.size)[:_LARGEST_SHOWN]
    shown = ", ".join(f"{file.name} {file.size / 2**20:.1f} MiB" for file in largest)
    size = sum(file.size for file in files) / 2**20
    remedy = "leave data out by a .rayignore file or excludes=[…], and read it from a storage"
    return SpecError((("", f"working_dir {home} has {size:.1f} MiB in {counted(len(files), 'file')}{most}; largest: {shown}; {remedy}"),))
