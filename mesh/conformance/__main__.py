"""`python -m mesh.conformance FILE.json … [--json]`: run conformance cases.

Prints one line of JSON per case, then `N passed, M failed` (as JSON with `--json`). Exit code 0: all passed; 1: some failed; 2: a file
could not be read, with a message that names the place and the remedy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TextIO

from mesh.conformance.case_runner import read_cases, run_all
from mesh.conformance.program import CaseRunner, run_files


def main(arguments: Sequence[str], out: TextIO, errors: TextIO) -> int:
    """Run the files that `arguments` name and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mesh.conformance", description="Run cases against the core of the mesh.")
    parser.add_argument("files", nargs="+", metavar="FILE.json", help="files of cases; see docs/conformance.md")
    parser.add_argument("--json", action="store_true", help="write the last line as JSON too")
    options = parser.parse_args(arguments)
    return run_files(options.files, CaseRunner(read=read_cases, judge=run_all), as_json=options.json, out=out, errors=errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
