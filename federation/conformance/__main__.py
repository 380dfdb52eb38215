"""`python -m federation.conformance quota FILE.json … [--rules kueue|mesh] [--json]`: run cases and report which pass.

The output is one line of JSON per case, then `N passed, M failed` (also as JSON with `--json`). Exit code 0: all passed; 1: some failed,
or there are no cases; 2: a file could not be read, and the message says where and what to do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import TextIO

from federation.conformance.quota_case_runner import read_cases, run_all
from federation.conformance.quota_cases import run_case
from federation.quota.policies import KUEUE, MESH
from mesh.conformance.program import CaseRunner, run_files

RULES = {"kueue": KUEUE, "mesh": MESH}


def main(arguments: Sequence[str], out: TextIO, errors: TextIO) -> int:
    """Run the files named in `arguments`; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m federation.conformance", description="Run cases against the quota core.")
    parser.add_argument("subject", choices=["quota"], help="what the cases are about")
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE.json",
        help="files of cases; docs/quota.md describes keys, units and words at its end, with an example",
    )
    parser.add_argument("--rules", choices=sorted(RULES), default="kueue", help="rules to apply; the cases expect Kueue's")
    parser.add_argument("--json", action="store_true", help="also write the last line as JSON")
    options = parser.parse_args(arguments)
    judge = CaseRunner(read=read_cases, judge=partial(run_all, run=partial(run_case, RULES[options.rules])))
    return run_files(options.files, judge, as_json=options.json, out=out, errors=errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
