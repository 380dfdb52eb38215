"""Zip archive of a program's working directory, the same bytes for the same files.

Left out is what Ray leaves out: what `.gitignore` and `.rayignore` files name, caches and environments of Python, and the folder of git.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Sequence
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
#: Left out everywhere, as by Ray, and the state folder of a stack.
ALWAYS_OUT = (".git/", ".venv/", "venv/", "__pycache__/", ".schedulemesh/")
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
    files = sorted(_files(home, excludes), key=lambda file: file.name)
    if len(files) > FILES_MAX or sum(file.size for file in files) > ARCHIVE_BYTES_MAX:
        raise _too_large(home, files, f"{ARCHIVE_BYTES_MAX >> 20} MiB in {FILES_MAX} files at most")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            info = zipfile.ZipInfo(file.name, _NO_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            try:
                info.external_attr = (0o755 if os.access(file.path, os.X_OK) else 0o644) << _MODE
                archive.writestr(info, file.path.read_bytes())
            except OSError as unreadable:
                raise SpecError((("", f"working_dir {home}: {file.name} cannot be read: {unreadable.strerror or unreadable}"),)) from None
            if data.tell() > ZIP_BYTES_MAX:
                raise _too_large(home, files, f"packed, a program has {ZIP_BYTES_MAX >> 20} MiB at most")
    return Archive(data.getvalue(), len(files))


def _files(home: Path, excludes: Sequence[str]) -> Iterator[_File]:
    """Yield the files of a folder that are not left out. Links are followed, but not in a circle."""
    pending: list[tuple[Path, str, tuple[tuple[str, GitIgnoreSpec], ...], frozenset[str]]] = [
        (home, "", (("", GitIgnoreSpec.from_lines((*ALWAYS_OUT, *excludes))),), frozenset())
    ]
    while pending:
        folder, place, rules, above = pending.pop()
        real = os.path.realpath(folder)
        if real in above:
            continue
        lines = [line for name in IGNORE_FILES if (folder / name).is_file() for line in (folder / name).read_text("utf-8").splitlines()]
        own = (*rules, (place, GitIgnoreSpec.from_lines(lines))) if lines else rules
        for entry in os.scandir(folder):
            name = f"{place}{entry.name}"
            is_folder = entry.is_dir()
            if _is_left_out(f"{name}/" if is_folder else name, own):
                continue
            if is_folder:
                pending.append((Path(entry.path), f"{name}/", own, above | {real}))
            elif entry.is_file():  # No sockets, pipes and links to nothing.
                yield _File(name, Path(entry.path), entry.stat().st_size)


def _is_left_out(name: str, rules: Sequence[tuple[str, GitIgnoreSpec]]) -> bool:
    """Return what the last pattern that matches says, as git does: files of deeper folders come later."""
    left_out = False
    for place, spec in rules:
        found = spec.check_file(name[len(place) :]).include
        if found is not None:
            left_out = found
    return left_out


def _too_large(home: Path, files: Sequence[_File], most: str) -> SpecError:
    largest = sorted(files, key=lambda file: -file.size)[:_LARGEST_SHOWN]
    shown = ", ".join(f"{file.name} {file.size / 2**20:.1f} MiB" for file in largest)
    size = sum(file.size for file in files) / 2**20
    remedy = "leave data out by a .rayignore file or excludes=[…], and read it from a storage"
    return SpecError((("", f"working_dir {home} has {size:.1f} MiB in {counted(len(files), 'file')}; {most}; largest: {shown}; {remedy}"),))
